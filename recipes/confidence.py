"""Fits the confidence of answers to their quality, and draws how well it fits.

    seqserve serve --default-model en-de
    python -m recipes.confidence model/configs/en-de.toml --foreign eng-fra.tsv.gz

translates the validation and the test sentences of a recipe, which the model has not seen; the same
in capitals, in small letters, and with other names; in texts of several sentences, for which it was
not made; and their translations in a language that it does not read. The coefficients that fit chrF
on the validation texts are printed, for ``server/seqserve_server/front/generate/response.py``;
``docs/confidence.svg`` shows the test texts.
"""

import argparse
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sacrebleu
from numpy.typing import NDArray
from recipes.augment.sentences import Sentences
from recipes.augment.values import Language

from seqserve import Client
from seqserve.errors import CallError
from seqserve.pictures import GREY
from seqserve_model.data import Pair, read_pairs
from seqserve_model.parallel_text import read_split
from seqserve_model.recipe import Recipe
from seqserve_plot.picture import grid, save
from seqserve_server.front.generate.response import INTERCEPT, WEIGHTS, predictors

Array = NDArray[Any]

_FIGURE = Path("docs/confidence.svg")
_LENGTHS = (2, 3, 4, 6, 8)
_GROUPS = 10
_NEWTON_STEPS = 50
_RIDGE = 1e-4


class Sample(NamedTuple):
    """Translations of texts: what their confidence is made of, and their quality."""

    inputs: Array
    """1 and the predictors, ``[N, P + 1]``."""
    quality: Array
    """chrF / 100, ``[N]``."""


def main() -> None:
    """Runs the command."""
    options = _options()
    split = read_split(Recipe.load(options.recipe).data, print)
    foreign = {pair.source: pair.target for pair in read_pairs(options.foreign).pairs}
    with Client(options.target) as client:
        validation, test = (
            _sample(client, list(_texts(pairs, foreign)))
            for pairs in (split.validation, split.test)
        )
    fitted = fit(validation)
    print("fitted:", *(f"{value:.2f}" for value in fitted))
    shown = estimates(test, np.array([INTERCEPT, *WEIGHTS]))
    correlation = np.corrcoef(shown, test.quality)[0, 1]
    print(f"{len(shown):,} test texts, correlation of confidence and chrF: {correlation:.2f}")
    _draw(shown, test.quality)


def fit(sample: Sample) -> Array:
    """Fits a logistic function to shares by maximum likelihood: Newton's method, a small ridge.

    Returns:
        The intercept and the weights, ``[P + 1]``.
    """
    inputs, quality = sample
    ridge = _RIDGE * np.diag([0.0] + [1.0] * (inputs.shape[1] - 1))
    weights = np.zeros(inputs.shape[1])
    for _ in range(_NEWTON_STEPS):
        estimated = estimates(sample, weights)
        slope = inputs.T @ (estimated - quality) / len(quality) + ridge @ weights
        variance = estimated * (1 - estimated)
        curvature = (inputs * variance[:, None]).T @ inputs / len(quality) + ridge
        weights -= np.linalg.solve(curvature, slope)
    return weights


def estimates(sample: Sample, weights: Array) -> Array:
    """Computes the confidence of each text, ``[N]``."""
    return np.asarray(1.0 / (1.0 + np.exp(-sample.inputs @ weights)))


def _texts(pairs: list[Pair], foreign: dict[str, str]) -> Iterator[Pair]:
    yield from pairs
    order = random.Random(1)
    names = Sentences(Language.of("en"), Language.of("de"), order)
    ways: tuple[Callable[[Pair], Pair | None], ...] = (
        lambda pair: Pair(pair.source.upper(), pair.target.upper()),
        lambda pair: Pair(pair.source.lower(), pair.target),
        names.names,
    )
    for way in ways:
        yield from filter(None, map(way, order.sample(pairs, len(pairs) // 4)))
    for length in _LENGTHS:
        drawn = order.sample(pairs, len(pairs) // 2)
        for begin in range(0, len(drawn), length):
            sources, targets = zip(*drawn[begin : begin + length], strict=True)
            yield Pair(" ".join(sources), " ".join(targets))
    for pair in pairs:
        if pair.source in foreign:
            yield Pair(foreign[pair.source], pair.target)


def _sample(client: Client, texts: list[Pair]) -> Sample:
    chrf = sacrebleu.CHRF()
    inputs, quality = [], []
    sources = (pair.source for pair in texts)
    for index, result in client.generate_bulk(sources, segmentation="none"):
        # A text with too many tokens is refused.
        if isinstance(result, CallError) or result.score is None:
            continue
        inputs.append([1.0, *predictors(result.score, result.token_ids, result.source_tokens)])
        quality.append(chrf.sentence_score(result.text, [texts[index].target]).score / 100)
    return Sample(np.array(inputs), np.array(quality))


def _draw(confidence: Array, quality: Array) -> None:
    groups = np.array_split(np.argsort(confidence), _GROUPS)
    means = [confidence[group].mean() for group in groups]
    middle = np.array([quality[group].mean() for group in groups])
    low, high = np.array([np.quantile(quality[group], [0.25, 0.75]) for group in groups]).T
    figure, [[axes]] = grid(1, 1, cell=(5.0, 3.6))
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, label="confidence = quality")
    axes.fill_between(means, low, high, alpha=0.2, label="half of the texts")
    axes.plot(means, middle, marker="o", label=f"mean of {len(groups[0])} texts")
    axes.set(xlabel="confidence", ylabel="chrF / 100", xlim=(0, 1), ylim=(0, 1))
    axes.legend(loc="upper left", fontsize="small")
    save(figure, _FIGURE)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m recipes.confidence", description=__doc__)
    parser.add_argument("recipe", type=Path, help="recipe of the served model")
    parser.add_argument(
        "--foreign", type=Path, required=True, help="pairs with the sources of the recipe"
    )
    parser.add_argument("--target", default="localhost:50051", help="the server")
    return parser.parse_args()


if __name__ == "__main__":
    main()
