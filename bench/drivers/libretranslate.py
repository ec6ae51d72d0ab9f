"""LibreTranslate from PyPI, offline, and the plainest server, with our weights and our tokenizer.

    build/libretranslate/bin/python -m bench.drivers.libretranslate libretranslate FOLDER EOS_ID ...
    python -m bench.drivers.libretranslate file ENGINE LINES OUT BEAM ARGUMENT ...

Both run in a separate environment, ``build/libretranslate``, which ``make
build/libretranslate/.ready`` makes; what runs there, from :class:`NumberedTokenizer` on, imports no
package of ours. The plainest server is what people write: FastAPI and CTranslate2, one call for
each request of the same route. LibreTranslate runs as it comes, threads and log too, but for our
tokenizer, the longest target of our model, and its divider of sentences, whose model would be
downloaded: a text is a sentence here, which is in LibreTranslate's favour.

Engines that translate a whole file run here too, each in a process and with batches of its own.
"""

import json
import os
import shutil
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ENVIRONMENT = Path(__file__).parents[2] / "build" / "libretranslate"
INTERPRETER = ENVIRONMENT / "bin" / "python"
PACKAGE = "translate-en_de"
"""Folder of the package that is measured."""
MAX_DECODING_LENGTH = 127
"""Of the shipped model."""
_ROWS = 32
"""Sentences of a batch: CTranslate2's own number for files."""
Translate = Callable[[list[str]], list[str]]


def packages_of(artifact: Path, folder: Path) -> Path:
    """Writes an artifact's weights as packages of Argos, in eight bits; returns their folder."""
    from bench.drivers.ctranslate2 import CTranslate2Converter
    from seqserve_export.restore import restore

    if not INTERPRETER.exists():
        raise SystemExit(
            "build/libretranslate is missing: `make build/libretranslate/.ready` sets it up"
        )
    model, packages = folder / "model", folder / "packages"
    CTranslate2Converter(restore(artifact)).convert(str(model), quantization="int8")
    write_package(model, artifact / "tokenizer.json", packages)
    return packages


def write_package(model: Path, tokenizer: Path, packages: Path) -> None:
    """Writes a package of Argos, which is a folder."""
    for source, target in (("en", "de"), ("de", "en")):
        # LibreTranslate downloads models if there are less than two packages.
        folder = packages / f"translate-{source}_{target}"
        shutil.copytree(model, folder / "model")
        shutil.copy(tokenizer, folder / "tokenizer.json")
        names = {"en": "English", "de": "German"}
        facts = {"package_version": "1.0", "argos_version": "1.9"}
        facts |= {"from_code": source, "from_name": names[source]}
        facts |= {"to_code": target, "to_name": names[target]}
        (folder / "metadata.json").write_text(json.dumps(facts), encoding="utf-8")


class NumberedTokenizer:
    """Our tokenizer for numbered words: texts to words such as ``t17``, the end last, and back."""

    def __init__(self, path: Path, eos_id: int) -> None:
        from tokenizers import Tokenizer

        self._tokenizer, self._eos_id = Tokenizer.from_file(str(path)), eos_id

    def encode(self, text: str) -> list[str]:
        """Encodes a source."""
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [f"t{number}" for number in [*ids, self._eos_id]]

    def decode(self, words: Sequence[str]) -> str:
        """Decodes a target."""
        text: str = self._tokenizer.decode([int(word[1:]) for word in words])
        return text


def serve_libretranslate(packages: Path, eos_id: int, port: str) -> None:
    """Serves packages of Argos."""
    prepare_argos(packages, eos_id)
    os.chdir(packages.parent)
    threading.Thread(target=_announce, args=[port], daemon=True).start()
    from libretranslate import main as serve

    sys.argv = ["libretranslate", "--port", port, "--disable-web-ui", "--disable-files-translation"]
    serve()


def prepare_argos(packages: Path, eos_id: int) -> None:
    """Lets Argos read a folder of packages with our tokenizer, to the longest target of our model.

    A text, or a line of one, is a sentence.
    """
    os.environ["ARGOS_PACKAGES_DIR"] = str(packages)
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        os.environ[name] = str(packages.parent / "home")
    import ctranslate2

    class Bounded(ctranslate2.Translator):  # type: ignore[misc]
        def translate_batch(self, *arguments: Any, **options: Any) -> Any:
            options["max_decoding_length"] = MAX_DECODING_LENGTH
            return super().translate_batch(*arguments, **options)

    # Before it is imported there.
    ctranslate2.Translator = Bounded
    from argostranslate import package, sbd

    def read(self: Any, path: Path) -> None:
        read_metadata(self, path)
        self.tokenizer = NumberedTokenizer(Path(path) / "tokenizer.json", eos_id)

    read_metadata = package.Package.__init__
    package.Package.__init__ = read
    sbd.MiniSBDSentencizer.split_sentences = lambda self, text: [text]


def _announce(port: str) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with direct.open(f"http://127.0.0.1:{port}/languages", timeout=60):
                print(f"\nLibreTranslate ready on 127.0.0.1:{port}", flush=True)
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)


def translator(package: Path, eos_id: int, cores: int, beam_size: int) -> Translate:
    """Loads a package into CTranslate2, one thread a core; its batches are those for files."""
    import ctranslate2

    tokenizer = NumberedTokenizer(package / "tokenizer.json", eos_id)
    model = ctranslate2.Translator(str(package / "model"), inter_threads=cores, intra_threads=1)

    def translate(texts: list[str]) -> list[str]:
        results = model.translate_batch(
            [tokenizer.encode(text) for text in texts],
            beam_size=beam_size,
            max_batch_size=_ROWS,
            max_decoding_length=MAX_DECODING_LENGTH,
        )
        return [tokenizer.decode(result.hypotheses[0]) for result in results]

    return translate


def serve_plainly(package: Path, eos_id: int, port: int, cores: int, beam_size: int) -> None:
    """Serves one package by FastAPI and CTranslate2."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import create_model

    translated = translator(package, eos_id, cores, beam_size)
    app = FastAPI()
    body = create_model("Body", q=(str | list[str], ...))

    # Not async: FastAPI runs it in a thread, and CTranslate2 releases the interpreter lock.
    def translate(request: Any) -> dict[str, Any]:
        is_array = isinstance(request.q, list)
        answers = translated(request.q if is_array else [request.q])
        return {"translatedText": answers if is_array else answers[0]}

    translate.__annotations__["request"] = body
    app.post("/translate")(translate)

    @app.on_event("startup")  # type: ignore[untyped-decorator]
    def announce() -> None:
        print(f"plain server ready on 127.0.0.1:{port}", flush=True)

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


def _argostranslate(package: str, eos_id: str) -> Translate:
    prepare_argos(Path(package).parent, int(eos_id))
    from argostranslate import translate

    # Lines of one text: it takes them one after another.
    return lambda lines: translate.translate("\n".join(lines), "en", "de").split("\n")


def translate_file(engine: str, lines: str, out: str, beam: str, *arguments: str) -> None:
    """Translates a file of lines into another, in batches of the engine's own."""
    if engine == "marian":
        from bench.drivers import marian

        translate = marian.load(*arguments, "--beam-size", beam)
    elif engine == "argostranslate":
        # Its beam is four wide, whatever is asked for.
        translate = _argostranslate(*arguments)
    else:
        package, eos_id = arguments
        cores = len(os.sched_getaffinity(0))
        translate = translator(Path(package), int(eos_id), cores, int(beam))
    texts = translate(Path(lines).read_text(encoding="utf-8").splitlines())
    Path(out).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


if __name__ == "__main__":
    way, folder, eos_id, port, *sizes = sys.argv[1:]
    if way == "file":
        translate_file(*sys.argv[2:])
    elif way == "plain":
        serve_plainly(Path(folder), int(eos_id), int(port), *map(int, sizes))
    else:
        serve_libretranslate(Path(folder), int(eos_id), port)
