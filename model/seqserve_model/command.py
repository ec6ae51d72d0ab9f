"""The sub-commands ``train`` and ``evaluate``: they read their options before torch is loaded.

So ``--help`` works with the client alone, and OpenMP's wait policy is set in time.
"""

import os
import shlex

from seqserve.options import parse
from seqserve_model.options import EvaluateOptions, TrainOptions

_TRAIN_ABOUT = """\
Trains a model from a recipe; see model/configs for examples.

Ctrl-C stops after the current step; --resume continues from there.

examples:
  seqserve train model/configs/numbers.toml --threads 1
  seqserve train model/configs/en-de.toml --threads 2
  seqserve train model/configs/en-de.toml --threads 2 --resume"""

_EVALUATE_ABOUT = """\
Translates held-out sources and prints BLEU and chrF with signatures.

examples:
  seqserve evaluate runs/en-de
  seqserve evaluate runs/en-de --translations out.txt
  seqserve evaluate models/en-de/2 --data test.tsv --beam-size 5 --length-penalty 0.6
  seqserve evaluate --target localhost:50051 --model en-de --data test.tsv
  seqserve evaluate models/en-de/2 --data test.tokenized.tsv --tokenize none"""


def train(argv: list[str]) -> int:
    """Runs ``seqserve train``."""
    options = parse(TrainOptions, argv, prog="seqserve train", description=_TRAIN_ABOUT)
    set_passive_wait()
    from seqserve_model.train import train

    train(options, command=shlex.join(["seqserve", "train", *argv]))
    return 0


def evaluate(argv: list[str]) -> int:
    """Runs ``seqserve evaluate``."""
    options = parse(EvaluateOptions, argv, prog="seqserve evaluate", description=_EVALUATE_ABOUT)
    set_passive_wait()
    from seqserve_model.evaluate import run

    run(options)
    return 0


def set_passive_wait() -> None:
    """Sets OpenMP's wait policy, unless it is set; call it before torch is loaded.

    By default torch's threads spin while they wait for each other. On a machine with other work,
    the thread that the others wait for then finds no core, and a training on two threads makes a
    tenth of its steps.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
