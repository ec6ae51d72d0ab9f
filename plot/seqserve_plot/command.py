"""``seqserve plot``: draws what is inside, one kind of picture for each sub-command."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from seqserve.attention import Kind
from seqserve.command.connection import PairCallOptions
from seqserve.errors import OptionError
from seqserve.files import read_text
from seqserve.options import option, parse
from seqserve_model.config import PositionScheme

# Pictures are imported when they are drawn: each needs other libraries, and --help needs none.
if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OUT = "File of the picture; its name ends in .png or .svg."
_HELP = """\
usage: seqserve plot KIND ... --out FILE

Draws what is inside, computed by the code that trains and serves, as FILE says: .png or .svg.

kinds, each with its own --help:
  positions   how a scheme tells the network the order of tokens
  masks       which keys a query may see: padding, causal, both
  attention   what a model attended to, every layer and head
  training    loss, scores and learning rate of trainings
  schedule    which request ran at which step, and how full the caches were

examples:
  seqserve plot positions rotary --out rotary.svg
  seqserve plot masks --length 6 --padding 2 --out masks.png
  seqserve plot attention "The coffee tastes good." --artifact models/en-de/2 --out heads.svg
  seqserve plot training runs/en-de --out training.png

The text of an SVG is drawn with the viewer's fonts. A PNG needs a font that has its letters; for
Korean install fonts-nanum or fonts-noto-cjk."""


class Drawing(Protocol):
    """The options of a kind of picture, which can be drawn."""

    @property
    def out(self) -> Path:
        """The file of the picture."""

    def draw(self) -> Figure:
        """Draws the picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsOptions:
    """The options of ``seqserve plot positions``."""

    scheme: PositionScheme | None = option(
        None, help="The scheme; not needed with --trained.", positional=True
    )
    out: Path = option(help=_OUT, short="-o")
    trained: Path | None = option(
        None, help="Training run, or fp32 artifact, whose trained positions are drawn."
    )
    length: int = option(64, help="Tokens.", minimum=2, maximum=1024)
    width: int = option(
        128, help="Width of the network, without --trained.", minimum=2, maximum=4096
    )
    heads: int = option(4, help="Heads of a layer, without --trained.", minimum=1, maximum=64)

    def draw(self) -> Figure:
        """Draws the scheme, or what a model learned."""
        if (self.scheme is None) == (self.trained is None):
            raise OptionError("positions: name either a scheme or --trained; see --help")
        from seqserve_plot import positions

        if self.scheme is not None:
            return positions.draw_scheme(self.scheme, self.length, self.width, self.heads)
        assert self.trained is not None
        from seqserve_export.restore import restore
        from seqserve_model.checkpoint import load_run
        from seqserve_model.evaluate import is_artifact

        model = restore(self.trained) if is_artifact(self.trained) else load_run(self.trained)[0]
        return positions.draw_trained(model, self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class MasksOptions:
    """The options of ``seqserve plot masks``."""

    out: Path = option(help=_OUT, short="-o")
    length: int = option(6, help="Tokens of a row, padding counted.", minimum=2, maximum=64)
    padding: int = option(2, help="How many of them are padding.", minimum=0)

    def draw(self) -> Figure:
        """Draws the masks."""
        if self.padding > self.length:
            raise OptionError(f"--padding: {self.padding} is more than --length {self.length}")
        from seqserve_plot import attention

        return attention.draw_masks(self.length, self.padding)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPlotOptions(PairCallOptions):
    """The options of ``seqserve plot attention``."""

    source: str = option(help="The source text.", positional=True)
    target_text: str | None = option(
        None, help="The target text; by default the output of greedy search.", positional=True
    )
    out: Path = option(help=_OUT, short="-o")
    kind: Kind = option(Kind.CROSS, help="Which attention to draw.")
    artifact: Path | None = option(
        None, help="Folder of an artifact to run in this process, instead of calling a server."
    )

    def draw(self) -> Figure:
        """Draws the attention that an artifact or a server gives."""
        from seqserve_plot import attention

        if self.artifact:
            result = attention.of_artifact(self.artifact, self.source, self.target_text)
        else:
            with self.connect() as client:
                result = client.attention(self.source, self.target_text, **self.call())
        return attention.draw(result, self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """The options of ``seqserve plot training``."""

    runs: list[Path] = option(
        [], help="Directories of trainings, such as runs/mine.", positional=True
    )
    out: Path = option(help=_OUT, short="-o")

    def draw(self) -> Figure:
        """Draws the curves."""
        if not self.runs:
            raise OptionError("training: name a training run, such as runs/mine")
        from seqserve_plot import training

        return training.draw(self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOptions:
    """The options of ``seqserve plot schedule``."""

    artifact: Path = option(help="Folder of the artifact to run.", positional=True)
    out: Path = option(help=_OUT, short="-o")
    file: Path | None = option(None, help="File of sources, one a line.")
    slots: int = option(4, help="Requests that may run at once.", minimum=1)

    def draw(self) -> Figure:
        """Decodes the lines and draws when each ran."""
        if self.file is None:
            raise OptionError("--file is required: a text file with one source a line")
        texts = [line for line in read_text(self.file, "--file").splitlines() if line]
        if not texts:
            raise OptionError(f"--file: {self.file} has no line of text")
        from seqserve_plot import schedule

        return schedule.draw(schedule.trace(self.artifact, texts, self.slots), self.slots)


_KINDS: dict[str, tuple[type[Drawing], str, str]] = {
    "positions": (
        PositionsOptions,
        "Draws how a position scheme tells the network the order of tokens.",
        "seqserve plot positions sinusoidal --out waves.svg\n"
        "seqserve plot positions t5 --heads 4 --out buckets.svg\n"
        "seqserve plot positions --trained runs/mine --out learned.svg",
    ),
    "masks": (
        MasksOptions,
        "Draws which keys (columns) a query (row) may see; blue cells are seen.",
        "seqserve plot masks --out masks.svg\n"
        "seqserve plot masks --length 8 --padding 8 --out nothing-seen.svg",
    ),
    "attention": (
        AttentionPlotOptions,
        "Draws every layer (rows) and head (columns) of what a model attended to.",
        'seqserve plot attention "The coffee tastes good." --out heads.svg\n'
        'seqserve plot attention "The coffee tastes good." --kind encoder \\\n'
        "    --artifact models/en-de/2 --out encoder.png",
    ),
    "training": (
        TrainingOptions,
        "Draws loss, validation scores and learning rate, of several runs in one picture.",
        "seqserve plot training runs/mine --out training.svg\n"
        "seqserve plot training runs/mine runs/other --out both.png",
    ),
    "schedule": (
        ScheduleOptions,
        "Decodes the lines of a file and draws which ran at which step of the decoder, and how many"
        " tokens its cache held; below, the same lines one batch after another.",
        "seqserve plot schedule models/en-de/2 --file source.txt --out schedule.svg",
    ),
}


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    name, arguments = (argv[0], argv[1:]) if argv else ("--help", [])
    if name in ("-h", "--help"):
        print(_HELP)
        return 0
    if name not in _KINDS:
        near = difflib.get_close_matches(name, _KINDS, n=1)
        guess = f"; did you mean {near[0]!r}?" if near else ";"
        raise OptionError(f"plot: unknown kind {name!r}{guess} `seqserve plot --help` lists them")
    kind, description, examples = _KINDS[name]
    options = parse(
        kind,
        arguments,
        prog=f"seqserve plot {name}",
        description=description,
        epilog="examples:\n  " + examples.replace("\n", "\n  "),
    )
    from seqserve_plot.picture import check_name, save

    check_name(options.out)
    save(options.draw(), options.out)
    return 0
