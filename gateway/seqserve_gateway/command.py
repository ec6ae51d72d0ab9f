"""``seqserve gateway``: opens a server to HTTP until Ctrl-C or SIGTERM."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from seqserve.address import address_of, grpc_target, is_local, is_loopback
from seqserve.arguments import DEFAULT_TIMEOUT_S
from seqserve.command import process
from seqserve.command.connection import ConnectionOptions
from seqserve.command.progress import outages_reported
from seqserve.errors import OptionError
from seqserve.options import option, parse
from seqserve.processes import Share
from seqserve.tls import read_pair
from seqserve_gateway.proxies import PublicAddress, is_origin

if TYPE_CHECKING:
    from seqserve_gateway.processes import Parent

# An HTTP client sees an outage soon and may retry; a call that one of several servers refuses while
# it drains goes to another. A server that is back is found twice in this time.
_DEFAULT_ATTEMPTS, _AWAY_S = 2, 1.0
_EPILOG = """\
The gateway is a separate process, so HTTP takes no time from the server, and it may serve several
servers. It passes a caller's token (Authorization: Bearer) on to the server, which decides what the
token allows. docs/http.md describes every form.

examples:
  seqserve gateway
  seqserve gateway --target a.example.com:443,b.example.com:443 --tls
  seqserve gateway --host 0.0.0.0 --tls-certificate server.pem --tls-key server.key
  curl localhost:5000/v1/generate -H 'Content-Type: application/json' \\
    -d '{"source": "The coffee tastes good."}'"""


def _no_network(text: str) -> str | None:
    try:
        ip_network(text)
    except ValueError:
        return "an address or a network, such as 10.0.0.0/8"
    return None


_WHOLE = Share()
# A server on this machine has the variables of these names.
_listener = partial(option, group="listener")
_own = partial(option, group="listener", has_variable=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions(ConnectionOptions):
    """The options of ``seqserve gateway``."""

    host: str = _own(
        "127.0.0.1",
        help="Address to listen on; 0.0.0.0 for all of IPv4, :: for all of IPv4 and IPv6. If other"
        " machines can reach it, it needs TLS, or --insecure.",
    )
    port: int = _own(5000, help="Port to listen on; 0 for any free port.", minimum=0, maximum=65535)
    tls_certificate: Path | None = _own(
        None,
        help="Certificate of the gateway, PEM, followed by its intermediates. Without it HTTP"
        " connections are not encrypted.",
    )
    tls_key: Path | None = _own(None, help="Private key of --tls-certificate, PEM, unencrypted.")
    insecure: bool = _own(
        False, help="Listen on a --host that other machines can reach, even without TLS."
    )
    lend_token: bool = _listener(
        False,
        help="Let callers without a token use the token of --token-file: anyone who can reach the"
        " gateway can then call the server.",
    )
    allowed_host: list[str] = _listener(
        [],
        help="Name by which clients may call the gateway, in addition to localhost and IP"
        " addresses. By default any name if other machines can reach --host, or else none.",
    )
    cors_origin: list[str] = _listener(
        [],
        help="Origin whose pages may call the gateway from a browser, such as https://example.com;"
        " * for all. By default none.",
        fault=lambda each: None if is_origin(each) else "an origin, such as https://example.com",
    )
    trusted_proxy: list[str] = _listener(
        ["127.0.0.1", "::1"],
        help="Address or network of a proxy in front of the gateway, such as 10.0.0.0/8. Its"
        " Forwarded or X-Forwarded-For, -Proto, -Host and -Prefix identify the caller and the"
        " address called. By default this machine.",
        fault=_no_network,
    )
    public_url: str | None = _listener(
        None,
        help="Address in links to the gateway, such as https://example.com/mt, if a proxy removes"
        " the path. By default the address of the request.",
        fault=lambda url: None if PublicAddress.parse(url) else "a URL such as https://example.com",
    )
    glossaries: Path | None = _own(
        None,
        help="Folder of the server's --glossaries, in which callers may then create, change and"
        " delete glossaries by DeepL's calls; the operator's files stay.",
        fault=lambda path: None if path.is_dir() else "a folder",
    )
    max_timeout_s: float = _listener(
        300.0, help="Longest deadline that a request may ask for, in seconds.", minimum=0.001
    )
    max_requests: int = _listener(
        512, help="Maximum number of requests at a time; further ones get 429.", minimum=1
    )
    max_body_bytes: int = _listener(
        1 << 20, help="Maximum size of the body of a request.", minimum=1
    )
    max_http_connections: int = _listener(
        4096, help="Maximum number of connections; further ones are closed.", minimum=1
    )
    keep_alive_s: float = _listener(
        75.0,
        help="Seconds that a connection may wait for its next request. Set it longer than a"
        " balancer in front keeps idle connections: many keep them 60 s, some 600 s.",
        minimum=1,
    )
    processes: int = _own(
        1,
        help="Number of processes on the port; more than one only on Linux. They share the bounds"
        " on requests, connections and memory.",
        minimum=1,
    )
    drain_timeout_s: float = _own(
        30.0, help="Seconds that requests have to finish after SIGTERM.", minimum=0
    )

    def upstream(self) -> dict[str, Any]:
        """Returns how to reach the server."""
        default_s = min(DEFAULT_TIMEOUT_S, self.max_timeout_s)
        settings = self.settings(default_s, default_attempts=_DEFAULT_ATTEMPTS)
        if self.max_attempts is None:
            settings["retry"] = replace(settings["retry"], away_timeout_s=_AWAY_S)
        return settings if self.lend_token else settings | {"token": None}

    def is_private(self) -> bool:
        """Returns whether tokens of callers may be sent: by TLS, or to this machine."""
        return self._tls() is not None or is_local(self.target)

    def certificate(self) -> tuple[Path, Path] | None:
        """Returns the files of the certificate and its key; None without TLS."""
        if self.tls_certificate is None and self.tls_key is None:
            return None
        if self.tls_certificate is None or self.tls_key is None:
            missing = "--tls-key" if self.tls_key is None else "--tls-certificate"
            raise OptionError(f"{missing}: is missing; a certificate and its key go together")
        read_pair(self.tls_certificate, self.tls_key, ("--tls-certificate", "--tls-key"))
        return self.tls_certificate, self.tls_key

    def hosts(self) -> list[str] | None:
        """Returns the names by which the gateway may be called; None for any."""
        if self.allowed_host or is_loopback(self.host):
            public = urlsplit(self.public_url or "").hostname
            return [self.host, *self.allowed_host, *filter(None, [public])]
        return None


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = _options(argv)
    if options.processes == 1:
        serve(options)
        return 0
    from seqserve_gateway.processes import Children, shared_port

    def command(number: int, folder: Path) -> list[str]:
        own = [*argv, "--port", str(port)]
        return [sys.executable, "-P", "-m", __name__, str(number), str(folder), *own]

    with shared_port(options.host, options.port, "--port") as holder:
        port = holder.getsockname()[1]
        children = Children(
            options.processes, command, partial(_announce, options, port), options.drain_timeout_s
        )
        return children.run()


def child(number: str, folder: str, *argv: str) -> int:
    """Runs one of the processes of a gateway, and returns its exit status."""
    from seqserve_gateway.processes import Parent

    parent = Parent(Path(folder))
    options = _options([*argv])
    serve(options, Share(int(number), options.processes), parent)
    return 0


def _options(argv: list[str]) -> GatewayOptions:
    options = parse(
        GatewayOptions,
        argv,
        prog="seqserve gateway",
        description="Serves the models of a server over HTTP.",
        epilog=_EPILOG,
    )
    _check(options)
    return options


def serve(options: GatewayOptions, share: Share = _WHOLE, parent: Parent | None = None) -> None:
    """Serves with a share of what the options allow, until the parent or a signal ends it."""
    from seqserve_gateway.admission import MAX_MEMORY_BYTES, Admission, Bodies
    from seqserve_gateway.app import FORMS, app_of
    from seqserve_gateway.endpoint import Gateway, Metrics
    from seqserve_gateway.listener import run, within_files
    from seqserve_gateway.processes import listener_at
    from seqserve_gateway.protocol import MAX_WAITING_BYTES, ListenerLimits
    from seqserve_gateway.upstream import Upstream

    folder = parent.folder if parent else None
    gateway = Gateway(
        upstream=Upstream(**options.upstream(), processes=share.processes),
        admission=Admission(share.of(options.max_requests), rate=float("inf")),
        bodies=Bodies(options.max_body_bytes, share.of(MAX_MEMORY_BYTES)),
        metrics=Metrics(share.index, folder),
        max_timeout_s=options.max_timeout_s,
        folder=folder,
        glossaries=options.glossaries,
    )
    app = app_of(
        gateway,
        FORMS,
        allowed_hosts=options.hosts(),
        cors_origins=options.cors_origin,
        trusted_proxies=options.trusted_proxy,
        public=PublicAddress.parse(options.public_url) if options.public_url else None,
    )
    limits = ListenerLimits(
        max_connections=share.of(options.max_http_connections),
        max_waiting_bytes=share.of(MAX_WAITING_BYTES),
        keep_alive_s=options.keep_alive_s,
        drain_timeout_s=options.drain_timeout_s,
    )
    limits, is_shared = within_files(limits), parent is not None
    with (
        listener_at(options.host, options.port, "--port", is_shared=is_shared) as listener,
        outages_reported(),
    ):
        if parent is None:
            _announce(options, listener.getsockname()[1])
        run(app, listener, gateway, limits, options.certificate(), parent)


def _check(options: GatewayOptions) -> None:
    # Before any process starts.
    grpc_target(options.target)
    options.upstream()
    options.certificate()
    if options.timeout_s is not None and options.timeout_s > options.max_timeout_s:
        raise OptionError(
            f"--timeout-s: {options.timeout_s:g} is more than --max-timeout-s,"
            f" {options.max_timeout_s:g}"
        )
    for name in ("max_requests", "max_http_connections"):
        if (most := getattr(options, name)) < options.processes:
            flag = f"--{name.replace('_', '-')}"
            raise OptionError(f"{flag}: {most} is less than --processes, {options.processes}")
    has_token = options.token_file is not None or options.token is not None
    if options.lend_token and not has_token:
        raise OptionError("--lend-token: needs a token; name its file with --token-file")
    if options.token_file is not None and not options.lend_token:
        raise OptionError(
            "--token-file: has no effect, because callers bring their own tokens; add --lend-token"
            " to let those without one use it"
        )
    is_open = not is_loopback(options.host) and options.tls_certificate is None
    if is_open and not options.insecure:
        raise OptionError(
            f"--host: other machines can reach {options.host}, and connections are not encrypted."
            " Give --tls-certificate and --tls-key; or --insecure if the network itself keeps"
            " strangers out, or a proxy before the gateway encrypts"
        )


def _announce(options: GatewayOptions, port: int) -> None:
    if not options.is_private():
        warning = "tokens of callers are not passed on, because --tls is not given"
        print(f"seqserve: {warning}", file=sys.stderr)
    if options.lend_token and not is_loopback(options.host):
        warning = "everyone who can reach the gateway can call the server, without a token"
        print(f"seqserve: {warning}", file=sys.stderr)
    scheme = "http" if options.tls_certificate is None else "https"
    address = f"{scheme}://{address_of(options.host, port)}"
    print(f"seqserve gateway on {address} for {options.target}, see {address}/docs", flush=True)


if __name__ == "__main__":
    process.begin()
    process.end_with(process.status_of(lambda: child(*sys.argv[1:])))
