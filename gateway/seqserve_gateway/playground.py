"""``seqserve playground``: serves a page in the browser on which to try the models of a server.

The page is static and asks ``/v1``, which this process serves too.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqserve.address import address_of
from seqserve.command.connection import ConnectionOptions
from seqserve.command.progress import outages_reported
from seqserve.errors import OptionError
from seqserve.options import option, parse
from seqserve_gateway import PAGE

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from seqserve_gateway.endpoint import Gateway

# The page shows an outage and asks again, so its calls wait for no server.
_DEFAULT_ATTEMPTS = 2
_MAX_CONNECTIONS = 512
_MAX_BODY_BYTES = 256 << 10
_DRAIN_TIMEOUT_S = 1.0
_EPILOG = """\
The page calls the server of --target with the token and the certificates given here, so anyone who
can open the page can call the server. Only this machine can open it, unless --listen gives another
address. A call is tried twice unless --max-attempts is set; the page shows an outage and waits.

examples:
  seqserve playground
  seqserve playground --target models.example.com:443 --tls --token-file token
  seqserve playground --listen 0.0.0.0:8080 --allowed-host lab.example.com"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundOptions(ConnectionOptions):
    """The options of ``seqserve playground``."""

    # Not --host and --port, because their variables configure a server on this machine.
    listen: str = option(
        "127.0.0.1:8080",
        help="Address of the page, host:port; 0 takes a free port. If other machines can reach"
        " the address, they can call the server.",
        group="page",
    )
    allowed_host: list[str] = option(
        [],
        help="Name by which browsers may open the page, in addition to localhost and IP addresses.",
        group="page",
    )


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parse(
        PlaygroundOptions,
        argv,
        prog="seqserve playground",
        description="Serves a web page for trying the models of a server and looking inside.",
        epilog=_EPILOG,
    )
    from seqserve_gateway.admission import Admission, Bodies
    from seqserve_gateway.endpoint import Gateway
    from seqserve_gateway.listener import run, within_files
    from seqserve_gateway.processes import listener_at
    from seqserve_gateway.protocol import ListenerLimits
    from seqserve_gateway.upstream import Upstream

    host, port = _host_and_port(options.listen)
    gateway = Gateway(
        upstream=Upstream(**options.settings(default_attempts=_DEFAULT_ATTEMPTS)),
        admission=Admission(),
        bodies=Bodies(_MAX_BODY_BYTES),
    )
    app = page_of(gateway, [host, *options.allowed_host])
    limits = ListenerLimits(max_connections=_MAX_CONNECTIONS, drain_timeout_s=_DRAIN_TIMEOUT_S)
    limits = within_files(limits)
    with listener_at(host, port, "--listen") as listener, outages_reported():
        _announce(listener, options)
        run(app, listener, gateway, limits)
    return 0


def page_of(gateway: Gateway, allowed_hosts: Sequence[str] = ()) -> Starlette:
    """Returns the application: ``/v1`` and the page that asks it."""
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    from seqserve_gateway.app import app_of
    from seqserve_gateway.v1 import FORM

    files = Mount("/", StaticFiles(directory=PAGE, html=True))
    return app_of(gateway, [FORM], routes=[files], allowed_hosts=allowed_hosts)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise OptionError(f"--listen: {address!r} is not host:port; write 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def _announce(listener: socket.socket, options: PlaygroundOptions) -> None:
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host)
    if not address.is_loopback:
        warning = "everyone who can reach this machine can call the server through the page"
        print(f"seqserve: {warning}, without a token", file=sys.stderr)
    name = "localhost" if address.is_loopback or address.is_unspecified else str(address)
    page = f"http://{address_of(name, port)}"
    print(f"seqserve playground on {page} for {options.target}", flush=True)
