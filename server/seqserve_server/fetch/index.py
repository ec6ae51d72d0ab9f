"""An index of models: what an operator offers, in a folder or at an https address.

It is a JSON file with the hash of each model's manifest, which has the hashes of the model's files.
``seqserve models index`` writes one for a repository.
"""

import hashlib
import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from seqserve.errors import OptionError
from seqserve.files import written_whole
from seqserve.options import option, parse
from seqserve.output import aligned
from seqserve_server.artifact.manifest import FILE, MAX_BYTES, NAME, Manifest
from seqserve_server.artifact.pairs import Pairs, Translator
from seqserve_server.artifact.records import Template, build, parsed
from seqserve_server.contract.errors import ArtifactError, InvalidRequest, truncated_list
from seqserve_server.fetch.source import (
    SHA256,
    Files,
    beside,
    check_sha256,
    is_address,
    opened,
    opening_of,
    read_whole,
)

INDEX = "index.json"
_FORMAT = 1
_MAX_INDEX_BYTES, _MAX_MODELS = 16 << 20, 2_000
_PART = "[A-Za-z0-9_][A-Za-z0-9._-]*"
_PLACE = re.compile(rf"https://[^?#\\\s]+|{_PART}(/{_PART})*")
_HEADINGS = ("NAME", "VERSION", "FROM", "TO", "MB", "LICENCE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A version of a model, by the fields of an index."""

    name: str
    version: int
    source_languages: list[str]
    target_languages: list[str]
    url: str
    """Folder of its files: an https address, or a path from the folder of the index."""
    sha256: str
    """Hash of its manifest.json."""
    bytes: int
    """Size of all other files together."""
    licence: str = ""

    @property
    def label(self) -> str:
        """Name for people: ``en-de/1``."""
        return f"{self.name}/{self.version}"

    @property
    def template(self) -> Template:
        """Its languages."""
        return Template(
            source_languages=dict.fromkeys(self.source_languages, ""),
            target_languages=dict.fromkeys(self.target_languages, ""),
        )

    @property
    def wrong(self) -> str:
        """The field that is wrong; empty if none is."""
        is_right = {
            "name": re.fullmatch(NAME, self.name),
            "version": 0 < self.version < 1_000_000_000,
            "url": _PLACE.fullmatch(self.url),
            "sha256": re.fullmatch(SHA256, self.sha256),
            "bytes": self.bytes >= 0,
        }
        return next((name for name, value in is_right.items() if not value), "")

    def files(self, index: str) -> Files:
        """Reads its manifest, at or next to an index, and lists its files.

        Raises NotFetched or ArtifactError if it is not the one that is offered.
        """
        place = beside(index, self.url + "/")
        if not is_address(place):
            place += "/"
        label = f"{self.label}: {place}{FILE}"
        content = read_whole(opening_of(place + FILE), label, MAX_BYTES)
        check_sha256(hashlib.sha256(content).hexdigest(), self.sha256, label)
        manifest = Manifest.parse(content, label)
        size = sum(each.bytes for each in manifest.files.values())
        if (manifest.name, manifest.version, size) != (self.name, self.version, self.bytes):
            found = f"{manifest.label} of {size:,} bytes"
            raise ArtifactError(f"{label}: is of {found}, not {self.label} of {self.bytes:,}")
        files: Files = {name: opening_of(place + name) for name in manifest.files}
        return {FILE: partial(io.BytesIO, content), **files}


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The content of an index."""

    format: int
    models: list[Offer]

    @classmethod
    def read(cls, place: str, sha256: str) -> Self:
        """Reads an index and checks its hash if one is given; ArtifactError names a wrong field."""
        content = read_whole(opening_of(place), place, _MAX_INDEX_BYTES)
        if sha256:
            check_sha256(hashlib.sha256(content).hexdigest(), sha256, place)
        values = parsed(content, place)
        if isinstance(values, dict) and values.get("format") != _FORMAT:
            raise ArtifactError(
                f"{place}: format is {values.get('format')!r:.80}; this version reads {_FORMAT}"
            )
        index: Self = build(cls, values, place)
        if len(index.models) > _MAX_MODELS:
            raise ArtifactError(f"{place}: models: are {len(index.models):,}, over {_MAX_MODELS:,}")
        for number, offer in enumerate(index.models):
            if wrong := offer.wrong:
                value = f"{getattr(offer, wrong)!r:.80}"
                raise ArtifactError(f"{place}: models[{number}].{wrong}: {value} is not allowed")
        return index

    def chosen(self, names: Sequence[str], languages: Sequence[str]) -> list[Offer]:
        """Chooses models by name or label, and by pairs as ``de-en``; all without either.

        Of several versions the highest is chosen, unless a label names another; for a pair that no
        model translates, both of a pivot. Raises OptionError if there are none.
        """
        highest: dict[str, Offer] = {}
        for offer in sorted(self.models, key=lambda offer: (offer.name, offer.version)):
            highest[offer.name] = offer
        known = {offer.label: offer for offer in self.models} | highest
        if not (names or languages):
            return list(highest.values())
        if missing := [name for name in names if name not in known]:
            there = truncated_list(highest)
            raise OptionError(f"names: {missing[0]!r:.80} is not in the index; available: {there}")
        pairs = Pairs(Translator(each.name, each.template) for each in highest.values())
        wanted = [*names, *(name for text in languages for name in _models_of(text, pairs))]
        return [known[name] for name in dict.fromkeys(wanted)]


def table(offers: Sequence[Offer]) -> list[str]:
    """Returns the lines that list offers."""
    rows = []
    for each in offers:
        languages = map(truncated_list, (each.source_languages, each.target_languages))
        size = f"{each.bytes / 1e6:.0f}"
        rows.append((each.name, str(each.version), *languages, size, each.licence))
    return aligned([_HEADINGS, *rows], right=[4])


def _models_of(text: str, pairs: Pairs) -> list[str]:
    reason = "is not a pair as de-en of languages that the index has"
    # Codes have hyphens too: zh-Hans-en.
    for hyphen in re.finditer("-", text):
        try:
            return [leg.model for leg in pairs.legs(text[: hyphen.start()], text[hyphen.end() :])]
        except InvalidRequest as error:
            reason = error.reason
    raise OptionError(f"--languages: {text!r:.80}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """The options of ``seqserve models index``."""

    folder: Path = option(help="A repository of models.", positional=True)


def main(argv: list[str]) -> int:
    """Runs ``seqserve models index`` and returns its exit status."""
    options = parse(
        IndexOptions,
        argv,
        prog="seqserve models index",
        description=f"Writes {INDEX} into a repository of models, for `seqserve models fetch`.",
    )
    if not options.folder.is_dir():
        raise OptionError(f"folder: {options.folder} is not a folder")
    with opened(options.folder, str(options.folder), 0) as files:
        offers = [
            _offer(files, name) for name in files if re.fullmatch(f"{_PART}/[0-9]+/{FILE}", name)
        ]
    if not offers:
        raise ArtifactError(f"{options.folder}: holds no <name>/<version>/{FILE}")
    content: dict[str, Any] = asdict(Index(format=_FORMAT, models=offers))
    with written_whole(options.folder / INDEX, "w", option="") as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(*table(offers), f"{options.folder / INDEX}: {len(offers)} versions", sep="\n")
    return 0


def _offer(files: Files, name: str) -> Offer:
    content = read_whole(files[name], name, MAX_BYTES)
    manifest = Manifest.parse(content, name)
    template = manifest.template or Template()
    return Offer(
        name=manifest.name,
        version=manifest.version,
        source_languages=list(template.source_languages),
        target_languages=list(template.target_languages),
        url=name.removesuffix(f"/{FILE}"),
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=sum(each.bytes for each in manifest.files.values()),
        licence=manifest.licence,
    )
