"""An object in a separate process: its failure breaks nothing else, and no call waits for ever.

An error of a GPU leaves its process unable to use it; engines that are compared there share none.
"""

import multiprocessing
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from bench.drivers import Closing

_PATIENCE_S = 5.0


class RemoteObject(Closing):
    """Calls the methods of an object that another process makes.

    Arguments and results are pickled.
    """

    def __init__(self, name: str, make: Callable[..., Any], *arguments: Any) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(far_end, make, arguments), daemon=True, name=name
        )
        self._process.start()
        far_end.close()

    @property
    def pid(self) -> int:
        """Id of the process."""
        assert self._process.pid is not None, "it has been started"
        return self._process.pid

    def wait(self, timeout_s: float) -> None:
        """Waits until the object is made.

        Raises:
            RuntimeError: It failed, or took too long.
        """
        self.receive(timeout_s)

    def call(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Calls a method and waits for its result.

        Raises:
            RuntimeError: It failed, or took too long, and the process with it.
        """
        self.send(method, *arguments)
        return self.receive(timeout_s)

    def send(self, method: str, *arguments: Any) -> None:
        """Calls a method whose result :meth:`receive` takes."""
        try:
            self._pipe.send((method, arguments))
        except OSError:
            raise RuntimeError(self._end()) from None

    def receive(self, timeout_s: float) -> Any:
        """Returns the result of a call, as :meth:`call` does."""
        try:
            if not self._pipe.poll(max(timeout_s, 0.0)):
                self.close()
                raise RuntimeError(f"{self.name}: no answer after {timeout_s:.0f} s")
            error, result = self._pipe.recv()
        except (EOFError, OSError):
            raise RuntimeError(self._end()) from None
        if error:
            raise RuntimeError(f"{self.name}: {error}")
        return result

    def _end(self) -> str:
        self._process.join(_PATIENCE_S)
        return f"{self.name}: its process ended with status {self._process.exitcode}"

    def close(self) -> None:
        """Ends the process, by force if it is busy."""
        self._pipe.close()
        self._process.join(_PATIENCE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    made: list[Any] = []
    _answer(pipe, lambda: made.append(make(*arguments)))
    while made:
        try:
            method, taken = pipe.recv()
        except EOFError:
            return
        _answer(pipe, partial(getattr(made[0], method), *taken))


def _answer(pipe: Connection, run: Callable[[], Any]) -> None:
    try:
        answer = "", run()
    except Exception as error:
        traceback.print_exc()
        answer = f"{type(error).__name__}: {error}", None
    # Perhaps no caller waits for it any more.
    with suppress(OSError):
        pipe.send(answer)
