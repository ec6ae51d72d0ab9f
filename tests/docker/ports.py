"""Ports of this machine that containers can be published on."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

_PLACES = 1000


def free_ports(count: int) -> list[int]:
    """Finds as many ports as asked for."""
    return [ports[0] for ports in _free(count, together=1)]


def free_pair() -> tuple[int, int]:
    """Finds two ports that follow each other."""
    [(first, second)] = _free(1, together=2)
    return first, second


def _free(count: int, together: int) -> list[range]:
    # The system gives none of these to other tests, which run at the same time, by itself.
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    begins = [*range(10_000, first - 1), *range(last + 1, 65_535)]
    found: list[range] = []
    with ExitStack() as taken:
        for port in random.sample(begins, _PLACES):
            ports = range(port, port + together)
            try:
                for each in ports:
                    taken.enter_context(socket.create_server(("127.0.0.1", each)))
            except OSError:
                continue
            found.append(ports)
            if len(found) == count:
                return found
    raise OSError(f"of {_PLACES} ports hardly one is free")
