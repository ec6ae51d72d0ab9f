"""LibreTranslate from PyPI as a server, offline, with our weights and our tokenizer.

    build/libretranslate/bin/python -m bench.drivers.libretranslate PACKAGES EOS_ID PORT

It runs in an environment of its own, ``build/libretranslate``, which ``make
build/libretranslate/.ready`` makes, and is a process of its own; what runs there, from :func:`main`
on, imports no package of ours. Three things are replaced. The tokenizer, since our vocabulary is no
model of SentencePiece. The longest target, which our model bounds. And the divider of sentences,
whose model would be downloaded: a text is a sentence here, which is in LibreTranslate's favour. All
else is as it comes, threads and log too.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from bench.drivers.numbered_tokenizer import NumberedTokenizer

ENVIRONMENT = Path(__file__).parents[2] / "build" / "libretranslate"
INTERPRETER = ENVIRONMENT / "bin" / "python"
PACKAGE = "translate-en_de"
"""Folder of the package that is measured."""
MAX_DECODING_LENGTH = 127
"""Of the shipped model."""


def packages_of(artifact: Path, folder: Path) -> Path:
    """Writes an artifact's weights as packages of Argos, in eight bits; returns their folder.

    Raises:
        SystemExit: The environment of LibreTranslate is missing.
    """
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
    """Writes a package of Argos, which is a folder.

    Args:
        model: Of CTranslate2.
        tokenizer: Our ``tokenizer.json``.
        packages: Where packages are.
    """
    for source, target in (("en", "de"), ("de", "en")):
        # LibreTranslate downloads models if there are less than two packages.
        folder = packages / f"translate-{source}_{target}"
        shutil.copytree(model, folder / "model")
        shutil.copy(tokenizer, folder / "tokenizer.json")
        names = {"en": "English", "de": "German"}
        facts = {
            "package_version": "1.0",
            "argos_version": "1.9",
            "from_code": source,
            "from_name": names[source],
            "to_code": target,
            "to_name": names[target],
        }
        (folder / "metadata.json").write_text(json.dumps(facts), encoding="utf-8")


def main() -> None:
    """Serves until the process is ended."""
    packages, eos_id, port = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    home = packages.parent / "home"
    os.environ["ARGOS_PACKAGES_DIR"] = str(packages)
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        os.environ[name] = str(home)
    os.chdir(packages.parent)
    _replace(eos_id)
    threading.Thread(target=_announce, args=[port], daemon=True).start()
    from libretranslate import main as serve

    sys.argv = ["libretranslate", "--port", port, "--disable-web-ui", "--disable-files-translation"]
    serve()


def _replace(eos_id: int) -> None:
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
    """Says that the server is ready, once it is."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with direct.open(f"http://127.0.0.1:{port}/languages", timeout=60):
                print(f"\nLibreTranslate ready on 127.0.0.1:{port}", flush=True)
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)


if __name__ == "__main__":
    main()
