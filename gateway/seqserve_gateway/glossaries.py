"""DeepL's glossaries, ``/v2`` and ``/v3``: the operator's, and those that callers write.

In ``/v2`` a glossary is one file of the server, and its id is ``products.en-de``. In ``/v3`` it is
all files of one name, a dictionary for each pair of languages, and its id is the name. Callers
write files whose names begin with 16 hexadecimal digits. All other files are the operator's.
"""

import asyncio
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from starlette.responses import JSONResponse, Response

from seqserve.language_codes import Language, folded
from seqserve.model import Glossary
from seqserve.words import MAX_ENTRIES
from seqserve_gateway.call import Call
from seqserve_gateway.failure import Failure, refusal, writable
from seqserve_gateway.fields import Fields

Pair: TypeAlias = tuple[str, str]
"""Codes of the source and the target language."""
_Terms: TypeAlias = dict[Pair, dict[str, str]]
_Id: TypeAlias = Callable[[Glossary], str]
_name_of: _Id = attrgetter("name")
_id_of: _Id = "{0.name}.{0.source_language}-{0.target_language}".format
_pair_of: Callable[[Glossary], Pair] = attrgetter("source_language", "target_language")
_OWN = re.compile(
    r"(?P<name>[0-9a-f]{16}\.([A-Za-z0-9_-]+))"
    r"\.(?P<source_language>[a-z]{2,8})-(?P<target_language>[a-z]{2,8})"
)
_SIGN = re.compile("-(10[0-9a-f]{4}|[0-9a-f]{1,5})-")
_MOST_NAME, _MOST_FILES, _MOST_OF_ALL = 180, 500, 100_000
_READ_ONLY = "glossaries are files of the operator, unless the gateway has the option --glossaries"
_NOT_READ = "the server has not read it yet; its --glossaries has to be the folder of the gateway's"
# Changes wait for each other here, so nothing else waits for them.
_CHANGES = ThreadPoolExecutor(2, "seqserve-glossaries")
_PAUSE_S, _READ_S = 0.5, 25.0  # The server reads a new file when two of its scans have seen it.


async def glossary_of(call: Call, id_: str, pair: Pair) -> str:
    """Returns the name of the glossary of a translation, once the server has read it."""

    def named(known: Iterable[Glossary]) -> list[Glossary]:
        return [each for each in known if id_ in (each.name, _id_of(each))]

    if not (found := _for(pair, named(await call.recent(_known)))):
        others = named(await _known(call)) or _unknown(id_)
        if not (found := _for(pair, others)):
            pairs = ", ".join(" to ".join(_pair_of(each)) for each in others)
            raise refusal("glossary_id", f"is for {pairs}")
    if _OWN.fullmatch(_id_of(found[0])):
        await _until_served(call, found[0])
    return found[0].name


async def answer_v2(call: Call, fields: Fields) -> Response:
    """Answers ``/v2/glossaries``, also with an id."""

    def created(folder: Path) -> list[Glossary]:
        return _store(folder, _name_in(fields), _terms_in([fields]))

    if call.request.method == "POST":
        return JSONResponse(_of_file(*await _changed(call, created)), 201)
    if call.request.method == "DELETE":
        return await _deleted(call, lambda own: _chosen(call, own, _id_of))
    known = await _known(call)
    if call.request.path_params:
        return JSONResponse(_of_file(*_chosen(call, known, _id_of)))
    return JSONResponse({"glossaries": [*map(_of_file, known)]})


async def answer_v3(call: Call, fields: Fields) -> Response:
    """Answers ``/v3/glossaries``, also with an id."""

    def created(folder: Path) -> list[Glossary]:
        return _store(folder, _name_in(fields), _terms_in(fields.objects("dictionaries")))

    if call.request.method == "POST":
        return JSONResponse(_of_name(await _changed(call, created)), 201)
    if call.request.method == "PATCH":
        return JSONResponse(_of_name(await _changed(call, partial(_add, call, fields))))
    if call.request.method == "DELETE":
        return await _deleted(call, partial(_chosen, call))
    known = await _known(call)
    if call.request.path_params:
        return JSONResponse(_of_name(_chosen(call, known)))
    groups = groupby(known, _name_of)
    return JSONResponse({"glossaries": [_of_name([*group]) for _, group in groups]})


async def answer_tsv(call: Call, fields: Fields) -> Response:
    """Answers ``/v2/glossaries/{id}/entries``."""
    [found] = _chosen(call, await _known(call), _id_of)
    return Response(await _tsv_of(call, found), media_type="text/tab-separated-values")


async def answer_entries(call: Call, fields: Fields) -> Response:
    """Answers ``/v3/glossaries/{id}/entries``."""
    source, target = fields.languages()
    head = {"source_lang": source, "target_lang": target, "entries_format": "tsv"}
    found = _dictionaries(call, fields, await _known(call))
    shown = [head | {"entries": await _tsv_of(call, each)} for each in found]
    return JSONResponse({"dictionaries": shown})


async def answer_dictionary(call: Call, fields: Fields) -> Response:
    """Answers ``/v3/glossaries/{id}/dictionaries``."""

    def replaced(folder: Path) -> list[Glossary]:
        return _store(folder, _chosen(call, _own(folder))[0].name, _terms_in([fields]))

    if call.request.method == "DELETE":
        return await _deleted(call, partial(_dictionaries, call, fields))
    return JSONResponse(_counted(*_dictionaries(call, fields, await _changed(call, replaced))))


def _add(call: Call, fields: Fields, folder: Path) -> list[Glossary]:
    if fields.has("name"):
        raise refusal("name", "cannot change; create another glossary, and delete this one")
    terms = _terms_in(fields.objects("dictionaries"))
    for each in (found := _chosen(call, _own(folder))):
        if new := terms.get(_pair_of(each)):
            terms[_pair_of(each)] = _entries(folder, _id_of(each)) | new
    return _store(folder, found[0].name, terms)


async def _deleted(call: Call, chosen: Callable[[list[Glossary]], list[Glossary]]) -> Response:
    def deleted(folder: Path) -> list[Glossary]:
        for each in (found := chosen(_own(folder))):
            (folder / f"{_id_of(each)}.tsv").unlink(missing_ok=True)
        return found

    await _changed(call, deleted)
    return Response(status_code=204)


async def _changed(call: Call, change: Callable[[Path], list[Glossary]]) -> list[Glossary]:
    folder: Path | None = call.request.app.state.glossaries
    if folder is None:
        raise Failure("INVALID_ARGUMENT", _READ_ONLY)
    await call.check_token()

    def alone() -> list[Glossary]:
        import fcntl

        number = os.open(folder, os.O_RDONLY)
        try:
            # Other processes change files there, too. Closing the folder ends the lock.
            fcntl.flock(number, fcntl.LOCK_EX)
            return change(folder)
        finally:
            os.close(number)

    try:
        return await asyncio.get_running_loop().run_in_executor(_CHANGES, alone)
    except OSError as error:
        raise Failure("UNAVAILABLE", f"glossaries cannot be stored: {error.strerror}") from None


def _store(folder: Path, name: str, terms: _Terms) -> list[Glossary]:
    # Returns all dictionaries of the glossary.
    new = {f"{name}.{'-'.join(pair)}": own for pair, own in terms.items()}
    counts = {_id_of(each): each.entry_count for each in _own(folder)}
    counts |= {id_: len(own) for id_, own in new.items()}
    if not all(1 <= counts[id_] <= MAX_ENTRIES for id_ in new):
        raise refusal("entries", f"a dictionary has 1 to {MAX_ENTRIES:,}")
    if len(counts) > _MOST_FILES or sum(counts.values()) > _MOST_OF_ALL:
        raise refusal("entries", "there is no room for more glossaries; delete some")
    # The server sees no file before all are complete.
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as hidden:
        for id_, own in new.items():
            # A line that begins with # would be a comment.
            lines = [f"{' ' * text.startswith('#')}{text}\t{own[text]}\n" for text in own]
            Path(hidden, f"{id_}.tsv").write_bytes("".join(lines).encode())
        for path in Path(hidden).iterdir():
            path.replace(folder / path.name)
    return [each for each in _own(folder) if each.name == name]


def _own(folder: Path) -> list[Glossary]:
    # Without their entries, which would take much memory.
    own = []
    for path in sorted(folder.glob("*.tsv")):
        if (match := _OWN.fullmatch(path.stem)) and path.is_file():
            # Another caller may have just removed it.
            with suppress(OSError):
                facts: dict[str, Any] = match.groupdict()
                facts |= {"modified_s": int(path.stat().st_mtime), "fault": ""}
                own.append(Glossary(**facts, entry_count=path.read_bytes().count(b"\n")))
    return own


def _entries(folder: Path, id_: str) -> dict[str, str]:
    text = ""
    with suppress(OSError):
        text = (folder / f"{id_}.tsv").read_text("utf-8", "replace")
    return dict(line.strip().partition("\t")[::2] for line in text.split("\n")[:-1])


async def _served(call: Call) -> Sequence[Glossary]:
    return await call.client.glossaries(timeout_s=call.left_s)


async def _known(call: Call) -> Sequence[Glossary]:
    served, folder = await _served(call), call.request.app.state.glossaries
    if folder is None:
        return served
    # The server reads a change of the others later.
    own = await asyncio.to_thread(_own, folder)
    return [each for each in served if not _OWN.fullmatch(_id_of(each))] + own


async def _until_served(call: Call, glossary: Glossary) -> None:
    served = await call.recent(_served)
    try:
        async with asyncio.timeout(_READ_S):
            while _id_of(glossary) not in map(_id_of, served):
                await asyncio.sleep(_PAUSE_S)
                served = await _served(call)
    except TimeoutError:
        raise Failure("UNAVAILABLE", f"glossary_id: {_NOT_READ}", field="glossary_id") from None


async def _tsv_of(call: Call, glossary: Glossary) -> str:
    folder, pair = call.request.app.state.glossaries, _pair_of(glossary)
    if folder and _OWN.fullmatch(id_ := _id_of(glossary)):
        entries = await asyncio.to_thread(_entries, folder, id_)
    else:
        found = await call.client.glossary(glossary.name, *pair, timeout_s=call.left_s)
        entries = dict(found.entries)
    return "".join(f"{source}\t{target}\n" for source, target in entries.items())


def _for(pair: Pair, known: Iterable[Glossary]) -> list[Glossary]:
    codes = [*map(folded, pair)]
    return [each for each in known if all(map(Language.may_be, codes, map(folded, _pair_of(each))))]


def _chosen(call: Call, known: Iterable[Glossary], id_of: _Id = _name_of) -> list[Glossary]:
    id_ = call.request.path_params["id"]
    return [each for each in known if id_of(each) == id_] or _unknown(id_)


def _dictionaries(call: Call, fields: Fields, known: Iterable[Glossary]) -> list[Glossary]:
    pair, named = fields.languages(), _chosen(call, known)
    return _for(pair, named) or _unknown(named[0].name, pair)


def _unknown(id_: str, pair: Pair | None = None) -> NoReturn:
    what = f"has no dictionary for {' to '.join(pair)}" if pair else "is not a glossary here"
    reason = f"{id_!r:.80} {what}; no call changes one of the operator"
    raise Failure("NOT_FOUND", f"glossary_id: {reason}", field="glossary_id")


def _of_file(glossary: Glossary) -> dict[str, Any]:
    return _heading_of(glossary, _id_of(glossary)) | _counted(glossary)


def _of_name(glossaries: Sequence[Glossary]) -> dict[str, Any]:
    heading = _heading_of(glossaries[0], glossaries[0].name)
    return heading | {"dictionaries": [*map(_counted, glossaries)]}


def _heading_of(glossary: Glossary, id_: str) -> dict[str, Any]:
    match = _OWN.fullmatch(_id_of(glossary))
    title = _SIGN.sub(lambda sign: chr(int(sign[1], 16)), match[2]) if match else glossary.name
    time = f"{datetime.fromtimestamp(glossary.modified_s, UTC):%Y-%m-%dT%H:%M:%S}.000Z"
    return {"glossary_id": id_, "name": writable(title), "ready": True, "creation_time": time}


def _counted(glossary: Glossary) -> dict[str, Any]:
    source, target = (folded(code).name for code in _pair_of(glossary))
    return {"source_lang": source, "target_lang": target, "entry_count": glossary.entry_count}


def _name_in(fields: Fields) -> str:
    # Other signs are written as their numbers, so the name of a file tells that of its caller.
    title = fields.text("name").strip()
    name = re.sub(r"[^A-Za-z0-9_]", lambda sign: f"-{ord(sign[0]):x}-", title)
    if not 1 <= len(name) <= _MOST_NAME:
        raise refusal("name", "is too long" if name else "is empty")
    return f"{os.urandom(8).hex()}.{name}"


def _terms_in(dictionaries: Sequence[Fields]) -> _Terms:
    terms: _Terms = {}
    for fields in dictionaries:
        terms.setdefault(fields.languages(), {}).update(fields.entries())
    return terms
