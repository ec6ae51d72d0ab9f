"""DeepL's glossaries, ``/v2`` and ``/v3``: those of the server, and those that callers write.

``/v3`` takes all glossaries of one name for the dictionaries of one, ``/v2`` knows each by itself,
with its languages: ``products.en-de``. If the gateway knows the folder of the server's glossaries,
callers write files there, whose names begin with 16 digits; others are of the operator.
"""

import asyncio
import csv
import re
import secrets
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from io import StringIO
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from starlette.responses import JSONResponse, Response

from seqserve.language_codes import folded
from seqserve.model import Glossary
from seqserve_gateway.call import Call
from seqserve_gateway.failure import Failure, refusal
from seqserve_gateway.fields import Fields

Pair: TypeAlias = tuple[str, str]
"""Codes of the source and the target language."""
Written: TypeAlias = dict[Pair, dict[str, str]]
"""Targets by their sources, by the languages."""
_OWN = re.compile(
    r"(?P<name>[0-9a-f]{16}\.([A-Za-z0-9_-]+))"
    r"\.(?P<source_language>[a-z]{2,8})-(?P<target_language>[a-z]{2,8})"
)
_SIGN = re.compile("-([0-9a-f]{1,5})-")
# As the server counts the words and signs of a source.
_WORD = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|\w+|[^\w\s]"
)
_TERM = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,256}")
_MOST_WORDS, _MOST_NAME, _MOST_FILES = 32, 180, 500
_MOST_ENTRIES, _MOST_OF_ALL = 10_000, 100_000
_READ_ONLY = "glossaries are files of the operator, unless the gateway has the option --glossaries"
_ONE = ThreadPoolExecutor(1, "seqserve-glossaries")
"""In which changes come one after the other."""
_PAUSE_S, _READ_S = 0.2, 15.0
"""In which the server reads a new file: two of its scans have to see it."""


async def glossary_of(call: Call, id_: str, pair: Pair) -> str:
    """Returns the name of the glossary of a translation, once the server has read it."""
    if not pair[0]:
        raise refusal("source_lang", "is missing; a glossary needs it")

    def fitting(known: Sequence[Glossary]) -> list[Glossary]:
        return [each for each in _with(id_, known) if _is_for(each, pair)]

    if found := fitting(await call.recent(_served)):
        return found[0].name
    if not (found := fitting(known := await _all(call))):
        own = _with(id_, known) or _unknown(id_)
        pairs = (f"{each.source_language} to {each.target_language}" for each in own)
        raise refusal("glossary_id", f"is for {', '.join(pairs)}")
    with suppress(TimeoutError):
        async with asyncio.timeout(_READ_S):
            while not fitting(await _served(call)):
                await asyncio.sleep(_PAUSE_S)
    return found[0].name


async def answer(call: Call, fields: Fields, is_v2: bool = False) -> Response:
    """Answers ``/v3/glossaries`` or ``/v2/glossaries``, both also with an id."""
    id_, method = call.request.path_params.get("id", ""), call.request.method
    if method == "PATCH" and fields.has("name"):
        raise refusal("name", "cannot change; create another glossary, and delete this one")
    is_read = method in ("GET", "HEAD")
    found = await (_all(call) if is_read else _changed(call, id_, fields, is_v2))
    if method == "DELETE":
        return Response(status_code=204)
    if id_:
        found = _with(id_, found, is_v2) or _unknown(id_)
    facts = []
    for key, group in groupby(found, _id_of if is_v2 else attrgetter("name")):
        own = [*group]
        counted = [_languages_of(each, entry_count=each.entry_count) for each in own]
        others = counted[0] if is_v2 else {"dictionaries": counted}
        facts.append(_heading_of(own[0], key) | others)
    if id_ or method == "POST":
        return JSONResponse(facts[0], 201 if method == "POST" else 200)
    return JSONResponse({"glossaries": facts})


async def answer_tsv(call: Call, fields: Fields) -> Response:
    """Answers ``/v2/glossaries/{id}/entries``."""
    id_ = call.request.path_params["id"]
    found = _with(id_, await _all(call), is_whole=True) or _unknown(id_)
    return Response(await _tsv_of(call, found[0]), media_type="text/tab-separated-values")


async def answer_dictionary(call: Call, fields: Fields) -> Response:
    """Answers ``/v3/glossaries/{id}/entries`` and ``/v3/glossaries/{id}/dictionaries``."""
    id_, method, pair = call.request.path_params["id"], call.request.method, _pair_of(fields)
    is_read = method in ("GET", "HEAD")
    found = await (_all(call) if is_read else _changed(call, id_, fields, True))
    if method == "DELETE":
        return Response(status_code=204)
    found = _with(id_, found)
    found = [each for each in found if _is_for(each, pair)] or _unknown(id_, pair)
    if method == "PUT":
        return JSONResponse(_languages_of(found[0], entry_count=found[0].entry_count))
    shown = [
        _languages_of(each, entries=await _tsv_of(call, each), entries_format="tsv")
        for each in found
    ]
    return JSONResponse({"dictionaries": shown})


async def _changed(call: Call, id_: str, fields: Fields, is_one: bool) -> list[Glossary]:
    folder: Path | None = call.request.app.state.glossaries
    if folder is None:
        raise Failure("INVALID_ARGUMENT", _READ_ONLY)
    await call.check_token()
    try:
        loop, given = asyncio.get_running_loop(), (call.request.method, id_, fields, is_one)
        return await loop.run_in_executor(_ONE, _change, folder, *given)
    except OSError as error:
        reason = f"the glossary cannot be stored: {error.strerror}"
        raise Failure("UNAVAILABLE", reason) from None


def _change(folder: Path, method: str, id_: str, fields: Fields, is_one: bool) -> list[Glossary]:
    # Returns the whole glossary as it is then.
    own = _own(folder)
    if method == "DELETE":
        pair = _pair_of(fields) if is_one and fields.has("target_lang") else None
        found = [each for each in _with(id_, own) if pair is None or _is_for(each, pair)]
        for each in found or _unknown(id_, pair):
            (folder / f"{_id_of(each)}.tsv").unlink(missing_ok=True)
        return found
    name = id_ or _name_of(fields)
    written = _written_of([fields] if is_one else fields.objects("dictionaries"))
    before = {_id_of(each) for each in own if each.name == name}
    if not before and method != "POST":
        _unknown(name)
    new = {f"{name}.{pair[0]}-{pair[1]}": terms for pair, terms in written.items()}
    if method == "PATCH":
        new |= {id_: _entries(folder, id_) | new[id_] for id_ in before & new.keys()}
    sizes = {_id_of(each): each.entry_count for each in own} | {id_: len(new[id_]) for id_ in new}
    if not all(1 <= len(terms) <= _MOST_ENTRIES for terms in new.values()):
        raise refusal("entries", f"a dictionary has 1 to {_MOST_ENTRIES:,}")
    if len(sizes) > _MOST_FILES or sum(sizes.values()) > _MOST_OF_ALL:
        raise refusal("entries", "there is no room for more glossaries; delete some")
    for id_, terms in new.items():
        # A line that begins with # would be a comment.
        lines = [f"{' ' * text.startswith('#')}{text}\t{terms[text]}\n" for text in terms]
        # The server sees the file before, or all of this one.
        with tempfile.TemporaryDirectory(prefix=".", dir=folder) as hidden:
            path = Path(hidden) / "new"
            path.write_bytes("".join(lines).encode())
            path.replace(folder / f"{id_}.tsv")
    return _with(name, _own(folder))


def _own(folder: Path) -> list[Glossary]:
    # Without their entries, which would take much memory.
    own = []
    for path in sorted(folder.glob("*.tsv")):
        if match := _OWN.fullmatch(path.stem):
            with suppress(FileNotFoundError):
                facts: dict[str, Any] = match.groupdict()
                facts |= {"modified_s": int(path.stat().st_mtime), "fault": ""}
                own.append(Glossary(**facts, entry_count=path.read_bytes().count(b"\n")))
    return own


def _entries(folder: Path, id_: str) -> dict[str, str]:
    # Of one that another caller has just removed, there are none.
    text = ""
    with suppress(FileNotFoundError):
        text = (folder / f"{id_}.tsv").read_text("utf-8", "replace")
    return dict(line.strip().partition("\t")[::2] for line in text.split("\n")[:-1])


async def _served(call: Call) -> Sequence[Glossary]:
    return await call.client.glossaries(timeout_s=call.left_s)


async def _all(call: Call) -> Sequence[Glossary]:
    served, folder = await _served(call), call.request.app.state.glossaries
    if folder is None:
        return served
    # The server reads a change later.
    others = [each for each in served if not _OWN.fullmatch(_id_of(each))]
    return others + await asyncio.to_thread(_own, folder)


async def _tsv_of(call: Call, glossary: Glossary) -> str:
    folder, id_ = call.request.app.state.glossaries, _id_of(glossary)
    if folder and _OWN.fullmatch(id_):
        entries = (await asyncio.to_thread(_entries, folder, id_)).items()
    else:
        pair = glossary.source_language, glossary.target_language
        found = await call.client.glossary(glossary.name, *pair, timeout_s=call.left_s)
        entries = dict(found.entries).items()
    return "".join(f"{source}\t{target}\n" for source, target in entries)


def _with(id_: str, glossaries: Sequence[Glossary], is_whole: bool = False) -> list[Glossary]:
    of_name = [each for each in glossaries if each.name == id_ and not is_whole]
    return [each for each in glossaries if _id_of(each) == id_] or of_name


def _is_for(glossary: Glossary, pair: Pair) -> bool:
    own = glossary.source_language, glossary.target_language
    return all(folded(code).may_be(folded(other)) for code, other in zip(own, pair, strict=True))


def _unknown(id_: str, pair: Pair | None = None) -> NoReturn:
    what = f"has no dictionary for {' to '.join(pair)}" if pair else "is not a glossary here"
    reason = f"{id_!r:.80} {what}; no call changes one of the operator"
    raise Failure("NOT_FOUND", f"glossary_id: {reason}", field="glossary_id")


def _id_of(glossary: Glossary) -> str:
    return f"{glossary.name}.{glossary.source_language}-{glossary.target_language}"


def _heading_of(glossary: Glossary, id_: str) -> dict[str, Any]:
    match = _OWN.fullmatch(_id_of(glossary))
    title = _SIGN.sub(lambda sign: chr(int(sign[1], 16)), match[2]) if match else glossary.name
    written = datetime.fromtimestamp(glossary.modified_s, UTC).isoformat(timespec="milliseconds")
    times = {"ready": True, "creation_time": written.replace("+00:00", "Z")}
    return {"glossary_id": id_, "name": title, **times}


def _languages_of(glossary: Glossary, **others: Any) -> dict[str, Any]:
    codes = folded(glossary.source_language).name, folded(glossary.target_language).name
    return {"source_lang": codes[0], "target_lang": codes[1], **others}


def _name_of(fields: Fields) -> str:
    # Other signs are written as their numbers, so the name of a file tells that of its caller.
    title = fields.text("name").strip()
    name = re.sub(r"[^A-Za-z0-9_]", lambda sign: f"-{ord(sign[0]):x}-", title)
    if not 1 <= len(name) <= _MOST_NAME:
        raise refusal("name", "is empty" if not name else "is too long; use 30 characters")
    return f"{secrets.token_hex(8)}.{name}"


def _pair_of(fields: Fields) -> Pair:
    # Glossaries of DeepL have no regions.
    source, target = (folded(fields.code(name)).name for name in ("source_lang", "target_lang"))
    if not re.fullmatch("[a-z]{2,8}-[a-z]{2,8}", f"{source}-{target}"):
        raise refusal("source_lang", "is no code of a language, or target_lang is none")
    return source, target


def _written_of(dictionaries: Sequence[Fields]) -> Written:
    written: Written = {}
    for fields in dictionaries:
        text, terms = fields.text("entries"), written.setdefault(_pair_of(fields), {})
        rows = [line.split("\t") for line in text.split("\n")]
        if fields.word("entries_format", "tsv", ("tsv", "csv")) == "csv":
            try:
                # There may be columns with the languages.
                rows = [row[:2] for row in csv.reader(StringIO(text, newline=""))]
            except csv.Error as error:
                raise refusal("entries", f"is not CSV: {error}") from None
        for number, row in enumerate(rows, 1):
            if not any(columns := [column.strip() for column in row]):
                continue
            is_short = len(_WORD.findall(columns[0])) <= _MOST_WORDS
            if len(columns) != 2 or not all(map(_TERM.fullmatch, columns)) or not is_short:
                what = f"a source of up to {_MOST_WORDS} words, and a target, of 256 characters"
                raise refusal("entries", f"line {number}: must be {what}")
            if terms.setdefault(columns[0], columns[1]) != columns[1]:
                raise refusal("entries", f"line {number}: its source has another target before")
    return written
