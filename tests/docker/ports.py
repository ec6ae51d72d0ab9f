"""Ports of this machine that containers can be published on."""

import socket


def free_ports(count: int) -> list[int]:
    """Finds as many ports as asked for."""
    # All are open at the same time, so no port is given twice.
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [opened.getsockname()[1] for opened in sockets]
    finally:
        for opened in sockets:
            opened.close()


def free_pair() -> tuple[int, int]:
    """Finds two ports that follow each other."""
    while True:
        [port] = free_ports(1)
        try:
            socket.create_server(("127.0.0.1", port + 1)).close()
        except OSError:
            continue
        return port, port + 1
