"""What lies in the folder of a repository, look after look.

Only what two looks in a row agree on counts, so that a copy under way is not taken for a model, nor
a hiccup of a network disk for its end.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from seqserve.errors import OptionError
from seqserve_server.contract.errors import ModelUnavailable, StartupError
from seqserve_server.front.models.folders import Files, files_of, is_whole, versions_in
from seqserve_server.front.models.repository import Entry, Repository

_BEING_WRITTEN = "its files are being written"
_NO_MANIFEST = "manifest.json, which is written last, is not there yet"

_Label = tuple[str, int]
_log = logging.getLogger(__name__)


class Inventory:
    """Enters in a repository what lies in its folder. Lives in the loop, once that runs."""

    def __init__(self, folder: Path, repository: Repository) -> None:
        """Takes both; nothing is looked at before :meth:`begin`."""
        self._folder = folder
        self._repository = repository
        self._seen: dict[_Label, Files] = {}

    def begin(self) -> None:
        """Enters what is there; this first look is believed. Blocks.

        Raises:
            OptionError: The folder cannot be read.
            StartupError: It holds no version.
        """
        if not self._folder.is_dir():
            raise OptionError(
                f"--model-repository: {self._folder} is not a folder; `seqserve export` makes one,"
                " and a clone of seqserve has one"
            )
        try:
            self._seen = self._look()
        except OSError as error:
            raise OptionError(f"--model-repository: {self._folder}: {error.strerror}") from None
        if not self._seen:
            raise StartupError(
                f"--model-repository: {self._folder} holds no <name>/<version>/ folder;"
                " `seqserve export` makes one"
            )
        for (name, version), files in self._seen.items():
            self._repository.add(Entry(name=name, version=version, files=files))

    async def look(self) -> bool:
        """Looks once, and tells whether the folder could be read; else nothing has changed."""
        try:
            seen = await asyncio.to_thread(self._look)
        except OSError as error:
            _log.warning("the model repository cannot be read: %s", error)
            return False
        before, self._seen = self._seen, seen
        for label, files in seen.items():
            self._note(label, files, is_still=before.get(label) == files)
        for entry in self._repository.entries:
            label = (entry.name, entry.version)
            if label not in seen and label not in before:
                entry.vanishes()
        return True

    async def find(self, name: str) -> None:
        """Enters those versions of a model that no look has seen.

        Raises:
            ModelUnavailable: The folder cannot be read.
        """
        try:
            folders = await asyncio.to_thread(versions_in, self._folder)
        except OSError as error:
            raise ModelUnavailable(
                f"the model repository cannot be read: {error.strerror}"
            ) from None
        for folder in folders:
            if folder.parent.name == name:
                version = int(folder.name)
                self._entry(name, version)
                # Seen, too: a look that is under way may have listed the folder before.
                self._seen.setdefault((name, version), ())

    def _look(self) -> dict[_Label, Files]:
        return {
            (folder.parent.name, int(folder.name)): files_of(folder)
            for folder in versions_in(self._folder)
        }

    def _note(self, label: _Label, files: Files, *, is_still: bool) -> None:
        entry = self._entry(*label)
        if not is_whole(files):
            entry.changes(_NO_MANIFEST)
        elif is_still:
            entry.lies_still(files)
        else:
            entry.changes(_BEING_WRITTEN)

    def _entry(self, name: str, version: int) -> Entry:
        """Finds a version that is in the folder, and enters one that is new."""
        for entry in self._repository.versions(name):
            if entry.version == version:
                return entry
        entry = Entry(name=name, version=version, reason=_BEING_WRITTEN)
        self._repository.add(entry)
        return entry
