"""Peers that translate a whole file, each in a process and with batches of its own.

    python -m bench.drivers.whole_files ENGINE LINES OUT BEAM ARGUMENT ...

What runs here imports no package of ours, because peers have separate environments.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from bench.drivers.libretranslate import MAX_DECODING_LENGTH, NumberedTokenizer, prepare_argos

_ROWS = 32
"""Sentences of a batch: CTranslate2's own number for files."""
Translate = Callable[[list[str]], list[str]]


def _ctranslate2(beam: int, package: str, eos_id: str) -> Translate:
    import ctranslate2

    cores = len(os.sched_getaffinity(0))
    tokenizer = NumberedTokenizer(Path(package) / "tokenizer.json", int(eos_id))
    model = ctranslate2.Translator(f"{package}/model", inter_threads=cores, intra_threads=1)

    def translate(lines: list[str]) -> list[str]:
        results = model.translate_batch(
            [tokenizer.encode(line) for line in lines],
            beam_size=beam,
            max_batch_size=_ROWS,
            max_decoding_length=MAX_DECODING_LENGTH,
        )
        return [tokenizer.decode(result.hypotheses[0]) for result in results]

    return translate


def _argostranslate(beam: int, package: str, eos_id: str) -> Translate:
    # Its beam is four wide, whatever is asked for.
    prepare_argos(Path(package).parent, int(eos_id))
    from argostranslate import translate

    # Lines of one text: it takes them one after another.
    return lambda lines: translate.translate("\n".join(lines), "en", "de").split("\n")


def _marian(beam: int, *options: str) -> Translate:
    from pymarian import Translator  # type: ignore[import-not-found]

    model = Translator(" ".join([*options, "--beam-size", str(beam)]))
    return model.translate  # type: ignore[no-any-return]


ENGINES: dict[str, Callable[..., Translate]] = {
    "ctranslate2": _ctranslate2,
    "argostranslate": _argostranslate,
    "marian": _marian,
}


def main(engine: str, lines: str, out: str, beam: str, *arguments: str) -> None:
    """Translates a file of lines into another."""
    translate = ENGINES[engine](int(beam), *arguments)
    texts = translate(Path(lines).read_text(encoding="utf-8").splitlines())
    Path(out).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
