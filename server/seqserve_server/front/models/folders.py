"""Follows the folder of a model repository: which versions come and go, and when they change.

A change counts only when two scans in a row agree. So a copy in progress is not loaded, and a short
failure of a network disk does not unload a model. A folder that cannot be read changes nothing, and
neither does one without any model: probably a disk was unmounted.
"""

import asyncio
import logging
from pathlib import Path

from seqserve.errors import OptionError
from seqserve_server.artifact import manifest
from seqserve_server.artifact.repository import (
    DEFAULT_FILE,
    Files,
    default_of,
    files_of,
    list_folders,
)
from seqserve_server.contract.errors import ModelUnavailable, StartupError
from seqserve_server.front.models.repository import Repository
from seqserve_server.process import logs

_BEING_WRITTEN = "its files are being written"
_NO_MANIFEST = "manifest.json, which is written last, is not there yet"

_Label = tuple[str, int]


class Scanner:
    """Scans a folder and updates the entries of a repository; used in the event loop."""

    def __init__(self, folder: Path, repository: Repository) -> None:
        self._folder = folder
        self._repository = repository
        self._seen: dict[_Label, Files] = {}
        self._ignored: dict[Path, str] = {}
        self._trouble = ""
        """Why the last scan changed nothing; empty if it went well."""

    def open(self) -> None:
        """Adds all versions in the folder; this first scan needs no second one. Blocks."""
        if not self._folder.is_dir():
            raise OptionError(
                f"--model-repository: {self._folder} is not a folder; `seqserve import`, `seqserve"
                " export` and `seqserve models fetch` make one"
            )
        try:
            self._seen = self._read() or {}
        except OSError as error:
            raise OptionError(f"--model-repository: {self._folder}: {error.strerror}") from None
        if not self._seen:
            hint = "`seqserve import`, `seqserve export` and `seqserve models fetch` put one there"
            if any(self._folder.glob(f"*/{manifest.FILE}")):
                parent = self._folder.absolute().parent
                hint = f"it is the folder of a model, and {parent} is its repository"
            raise StartupError(
                f"--model-repository: {self._folder} holds no <name>/<version>/ folder; {hint}"
            )
        for (name, version), files in self._seen.items():
            self._repository.entry(name, version).files = files

    def default(self) -> tuple[str, str]:
        """Reads which model the folder names as its default, if any, and returns the file too."""
        file = self._folder / DEFAULT_FILE
        try:
            return default_of(self._folder), str(file)
        except OSError as error:
            raise OptionError(f"{file}: cannot be read: {error.strerror}") from None

    async def scan(self) -> bool:
        """Scans once; returns False, and changes nothing, if the folder is unreadable or empty."""
        trouble = "it holds no folder of a model"
        try:
            seen = await asyncio.to_thread(self._read)
        except OSError as error:
            seen, trouble = None, f"it cannot be read: {error.strerror}"
        if seen is None:
            if trouble != self._trouble:
                facts = {"folder": self._folder, "reason": trouble}
                logs.event("model repository kept", facts, logging.WARNING)
            self._trouble = trouble
            return False
        self._trouble = ""
        before, self._seen = self._seen, seen
        for label, files in seen.items():
            entry = self._repository.entry(*label, _BEING_WRITTEN)
            if not any(name == manifest.FILE for name, *_ in files):
                entry.mark_unstable(_NO_MANIFEST)
            elif before.get(label) == files:
                entry.mark_stable(files)
            else:
                entry.mark_unstable(_BEING_WRITTEN)
        for entry in self._repository.entries:
            label = (entry.name, entry.version)
            if label not in seen and label not in before:
                entry.mark_missing()
        return True

    async def find(self, name: str) -> None:
        """Adds the versions of a model that no scan has seen yet."""
        try:
            listing = await asyncio.to_thread(list_folders, self._folder)
        except OSError as error:
            raise ModelUnavailable(
                f"the model repository cannot be read: {error.strerror}"
            ) from None
        for folder in listing.versions:
            if folder.parent.name == name:
                version = int(folder.name)
                self._repository.entry(name, version, _BEING_WRITTEN)
                # A scan in progress may have listed the folder before this version was there.
                self._seen.setdefault((name, version), ())

    def _read(self) -> dict[_Label, Files] | None:
        listing = list_folders(self._folder)
        for folder, reason in listing.ignored.items():
            if folder not in self._ignored:
                facts = {"folder": folder, "reason": reason}
                logs.event("folder ignored", facts, logging.WARNING)
        self._ignored = listing.ignored
        if not listing.has_models:
            return None
        return {
            (folder.parent.name, int(folder.name)): files_of(folder) for folder in listing.versions
        }
