"""Versions that their first call loads, in a bounded memory.

The version that no call has used for longest makes room for another one, never one that is in use
or that an administrator has loaded. A call over a pivot holds its first version while it waits for
the second, so no call waits for room without end. Used in the event loop.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import ArtifactError, Draining, ModelUnavailable, QueueFull
from seqserve_server.front.models.deployment import Deployment
from seqserve_server.front.models.lifecycle import Control, Entry, ModelState
from seqserve_server.front.models.repository import Repository
from seqserve_server.front.overload.memory import FairShare
from seqserve_server.process import logs

PAUSE_S = 5.0
"""Time after which a call may try again to load a version that has failed."""
_ROOM_S = 10.0
"""Longest wait for a loaded version that no call uses."""
_POLL_S = 0.02
_RETRY_S = 1.0


class _Read(NamedTuple):
    entry: Entry
    manifest: Manifest | Exception
    num_bytes: int = 0


class OnDemand:
    """Loads versions when calls need them, and unloads others for them."""

    def __init__(self, repository: Repository, deployment: Deployment, max_bytes: int) -> None:
        """Knows no version before :meth:`take`; all loaded ones have at most ``max_bytes``."""
        self._repository = repository
        self._deployment = deployment
        self._max_bytes = max_bytes
        self._loads: dict[Entry, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._callers: Counter[Entry] = Counter()
        limits = deployment.loader.limits
        self._waiting = FairShare(limits.max_queue + limits.slots, limits.caller_share)
        repository.load_on_call = self.load
        deployment.metrics.show_loaded_bytes(lambda: self.loaded_bytes)

    @property
    def loaded_bytes(self) -> int:
        """Memory of the versions that are loaded, begin to be or have not ended yet."""
        return sum(entry.num_bytes for entry in self._repository.entries if not entry.is_idle)

    def read(self) -> list[_Read]:
        """Reads the manifests of the versions whose files are new; blocks, in any thread."""
        entries = self._repository.entries
        return [self._read(each) for each in entries if each.files not in (None, each.read_files)]

    def take(self, found: Iterable[_Read]) -> None:
        """Takes what was read; a version without a sound manifest, or too large, has failed."""
        for entry, manifest, num_bytes in found:
            entry.read_files, entry.num_bytes = entry.files, num_bytes
            entry.described = manifest if isinstance(manifest, Manifest) else None
            if isinstance(manifest, Exception) and entry.is_idle:
                entry.move(ModelState.LOADING)
                self._deployment.fail(entry, manifest)

    def mark(self, due: Collection[Entry]) -> list[Entry]:
        """Has calls load the versions that are due; returns those that no call has to ask for."""
        for entry in self._repository.entries:
            entry.on_call = entry.described is not None and (
                entry in due or (entry.on_call and entry.is_wanted and not entry.is_idle)
            )
        return [entry for entry in due if entry.control is Control.LOADED]

    async def load(self, entry: Entry, client_id: str = "") -> None:
        """Waits until a version is loaded or has failed, or is no longer to be loaded.

        Raises QueueFull if the client has too many calls that wait for this, and ModelUnavailable
        if all other versions were in use for a while.
        """
        if not self._waiting.fits(client_id, 1):
            reason = f"{self._waiting.used} calls wait for models that are loading"
            raise QueueFull(reason, _RETRY_S)
        self._waiting.take(client_id, 1)
        self._callers[entry] += 1
        try:
            task = self.begin(entry)
            # A caller that leaves does not end the load.
            await asyncio.wait([task])
            if task.cancelled():
                raise Draining
            task.result()
        finally:
            self._callers -= Counter([entry])
            self._waiting.give(client_id, 1)

    def begin(self, entry: Entry) -> asyncio.Task[None]:
        """Begins to load a version, unless it is loading."""

        def forget(task: asyncio.Task[None]) -> None:
            del self._loads[entry]
            # Retrieved even if no task waits any more.
            _ = task.cancelled() or task.exception()

        task = self._loads.get(entry)
        if task is None:
            task = self._loads[entry] = asyncio.create_task(self._load(entry))
            task.add_done_callback(forget)
        return task

    def close(self) -> None:
        """Begins no load any more."""
        for task in self._loads.values():
            task.cancel()

    async def _load(self, entry: Entry) -> None:
        # However many wait before it.
        end_s = time.monotonic() + _ROOM_S
        await self._deployment.until_settled(entry)
        async with self._turn:
            if entry.described is None:
                self.take([await asyncio.to_thread(self._read, entry)])
            if self._is_asked_for(entry) and await self._has_room(entry, end_s):
                self._deployment.begin_load(entry)
        await self._deployment.until_settled(entry)
        if entry.state is ModelState.FAILED:
            self._deployment.on_settled()
            asyncio.get_running_loop().call_later(PAUSE_S, self._forgive, entry)

    def _is_asked_for(self, entry: Entry) -> bool:
        is_asked_for = entry.on_call or entry.control is Control.LOADED
        return is_asked_for and entry.described is not None and entry.is_idle

    async def _has_room(self, entry: Entry, end_s: float) -> bool:
        while self.loaded_bytes + entry.num_bytes > self._max_bytes:
            if (unused := self._unused()) is not None:
                logs.event("model makes room", {"model": unused.label, "for": entry.label})
                self._deployment.metrics.evictions.inc()
                self._deployment.begin_unload(unused)
                await self._deployment.until_settled(unused)
            elif time.monotonic() > end_s:
                raise ModelUnavailable(
                    f"{entry.label} is not loaded, and calls or an administrator keep all that"
                    " are; call again"
                )
            else:
                await asyncio.sleep(_POLL_S)
        # It may have been unloaded by hand, or removed, meanwhile.
        return self._is_asked_for(entry)

    def _unused(self) -> Entry | None:
        """Finds the loaded version that no call has used for longest, if no call uses it now."""
        unused = {
            entry: model.calls.idle_since_s
            for entry in self._repository.entries
            if (model := entry.serving) and entry.control is not Control.LOADED
            if model.calls.are_idle and not self._callers[entry]
        }
        return min(unused, key=unused.__getitem__, default=None)

    def _read(self, entry: Entry) -> _Read:
        try:
            loader = self._deployment.loader
            manifest = loader.manifest(entry.name, entry.version)
            num_bytes = loader.num_bytes(manifest)
        except Exception as error:
            return _Read(entry, error)
        if num_bytes > self._max_bytes:
            size, most = num_bytes / 1e6, self._max_bytes / 1e6
            reason = f"takes {size:.0f} MB, and --max-loaded-mb is {most:.0f}"
            return _Read(entry, ArtifactError(reason))
        return _Read(entry, manifest, num_bytes)

    def _forgive(self, entry: Entry) -> None:
        others = self._repository.versions(entry.name)
        # Where another version serves, only its files or an administrator bring it back.
        if entry.state is ModelState.FAILED and not any(other.is_ready for other in others):
            entry.move(ModelState.AVAILABLE)
            self._deployment.on_settled()
