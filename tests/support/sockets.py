"""The sockets of this machine."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def port_held() -> Iterator[int]:
    """Gives a port that no other process is given meanwhile; a server may listen at it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def connections_to(target: str) -> int:
    """Counts the connections of clients to a server on this machine.

    Source: Linux, Documentation/networking/proc_net_tcp.rst: addresses in hexadecimal digits; state
    1 is that of a connection.
    """
    end = f":{int(target.rpartition(':')[2]):04X}"
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path("/proc/net", name).read_text(encoding="ascii").splitlines()[1:]
    ]
    return sum(remote.endswith(end) and state == "01" for _, _, remote, state, *_ in lines)
