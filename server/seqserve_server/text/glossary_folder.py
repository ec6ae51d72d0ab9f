"""The glossaries of a server: one file each in a folder, read again when they change.

A file is named ``NAME.SOURCE-TARGET.tsv`` or ``.tbx``, as ``products.en-de.tsv``. As with models, a
change counts only when two scans in a row agree, and a folder without files changes nothing.
"""

import asyncio
import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from seqserve.errors import OptionError
from seqserve_server.artifact.repository import Files, files_of
from seqserve_server.process import logs
from seqserve_server.text.glossary import OPTION, Glossaries, Glossary, GlossaryError, Label
from seqserve_server.text.glossary_formats import tbx_entries, tsv_entries

MAX_BYTES = 32 << 20
"""Largest file of a glossary."""
_CODE = r"[A-Za-z]{2,8}(?:_[A-Za-z0-9]{2,8})*"
_NAME = re.compile(rf"(?P<name>\w[\w.-]*)\.(?P<source>{_CODE})-(?P<target>{_CODE})\.(?:tsv|tbx)")
_SHOWN = re.compile(r"[^.].*\.(?:tsv|tbx)", re.DOTALL)
_log = logging.getLogger(__name__)

_Stamp: TypeAlias = tuple[str, int, int, int, int]


@dataclass(slots=True)
class GlossaryFile:
    """A file of the folder, and its contents."""

    stamp: _Stamp
    glossary: Glossary | None = None
    """The last sound one; None if there was none."""
    fault: str = ""
    """Why the file as it is now is not used; empty if it is."""


class GlossaryFolder(Glossaries):
    """The glossaries in a folder; used in the event loop, except where it blocks."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self._folder = folder
        self._files: dict[str, GlossaryFile] = {}
        self._seen: Files = ()
        self._success_s = time.time()

    def open(self) -> None:
        """Reads all files; this first scan needs no second one. Blocks."""
        if self._folder is None:
            return
        if not self._folder.is_dir():
            raise OptionError(f"{OPTION}: {self._folder} is not a folder")
        self._seen = self._scanned()
        for stamp in self._seen:
            self._take(stamp, self._read(stamp))

    async def watch(self, interval_s: float) -> None:
        """Scans the folder from now on."""
        while self._folder is not None and interval_s:
            await asyncio.sleep(interval_s)
            try:
                await self.scan()
            except Exception:
                _log.exception("the folder of the glossaries cannot be scanned")

    async def scan(self) -> None:
        """Scans the folder once, and reads what has changed."""
        seen = await asyncio.to_thread(self._scanned)
        if not seen:
            return
        before, self._seen = set(self._seen), seen
        for stamp in seen:
            known = self._files.get(stamp[0])
            # A fault may go without a change to the file, such as permissions of its folder.
            if stamp in before and (known is None or known.fault or known.stamp != stamp):
                self._take(stamp, await asyncio.to_thread(self._read, stamp))
        names = {stamp[0] for stamp in (*before, *seen)}
        self._files = {name: file for name, file in self._files.items() if name in names}
        self._list()

    def _list(self) -> None:
        glossaries = [file.glossary for file in self._files.values() if file.glossary]
        self.listed = sorted(glossaries, key=lambda glossary: glossary.label)

    @property
    def faults(self) -> dict[Glossary, str]:
        """Why the newest file of each glossary is not used; empty if it is."""
        return {file.glossary: file.fault for file in self._files.values() if file.glossary}

    def reloads(self) -> dict[str, tuple[bool, float]]:
        """Returns whether all files are in use as they are, and when the last one was read."""
        if self._folder is None:
            return {}
        is_sound = not any(file.fault for file in list(self._files.values()))
        return {OPTION: (is_sound, self._success_s)}

    def _scanned(self) -> Files:
        assert self._folder is not None
        return files_of(self._folder, _SHOWN.fullmatch)

    def _take(self, stamp: _Stamp, read: Glossary | str) -> None:
        name = stamp[0]
        file = self._files.setdefault(name, GlossaryFile(stamp))
        file.stamp = stamp
        if isinstance(read, Glossary):
            file.glossary, file.fault, self._success_s = read, "", time.time()
            self._list()
            logs.event("glossary read", {"file": name, "entries": len(read.entries)})
        elif file.fault != read:
            file.fault = read
            what = "glossary kept" if file.glossary else "glossary not read"
            logs.event(what, {"file": name, "reason": read}, logging.ERROR)

    def _read(self, stamp: _Stamp) -> Glossary | str:
        assert self._folder is not None
        try:
            return self._glossary_of(self._folder / stamp[0], stamp)
        except GlossaryError as error:
            return str(error)
        except OSError as error:
            return f"cannot be read: {error.strerror}"

    def _glossary_of(self, path: Path, stamp: _Stamp) -> Glossary:
        match = _NAME.fullmatch(path.name)
        if not match:
            raise GlossaryError("its name is not NAME.SOURCE-TARGET.tsv or .tbx, as a.en-de.tsv")
        label = Label(match["name"], match["source"], match["target"])
        for name, other in self._files.items():
            if name != path.name and other.glossary and other.glossary.label == label:
                raise GlossaryError(f"{name} has the same name and languages")
        if not path.is_file():
            # Reading a pipe would block.
            raise GlossaryError("is not a regular file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise GlossaryError(f"is larger than {MAX_BYTES >> 20} MiB")
        is_tbx = path.suffix == ".tbx"
        entries = tbx_entries(content, label) if is_tbx else tsv_entries(content)
        _, _, modified_ns, _, _ = stamp
        return Glossary(label, entries, modified_ns // 1_000_000_000)
