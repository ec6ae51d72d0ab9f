"""Addresses of servers: ``host:port``, targets of gRPC, and the options of a channel to one.

A channel connects to every address of its target and sends calls to them in turn (round robin), so
several servers need no proxy in front of them.
Source: gRPC name resolution, https://github.com/grpc/grpc/blob/master/doc/naming.md
"""

import errno
import re
import socket
from ipaddress import ip_address
from typing import Any

from seqserve.errors import OptionError


def address_of(host: str, port: int) -> str:
    """Formats ``host:port``; a bare IPv6 address gets brackets."""
    is_bare_ipv6 = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if is_bare_ipv6 else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches a host; any name but ``localhost`` counts as no."""
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_taken(host: str, port: int) -> bool:
    """Returns whether the port is in use at every address of the host."""
    bare = host.removeprefix("[").removesuffix("]")
    try:
        addresses = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(_is_bound(family, address) for family, _, _, _, address in addresses)


def held_port(host: str, port: int) -> socket.socket:
    """Binds a socket that shares its port, 0 for any free one, and does not listen.

    So other processes of this user can listen there, and the port stays theirs when they restart.
    Source: Linux, socket(7), SO_REUSEPORT. Raises OSError if the port cannot be had.
    """
    bare = host.removeprefix("[").removesuffix("]")
    family, kind, protocol, _, address = socket.getaddrinfo(
        bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    holder = socket.socket(family, kind, protocol)
    try:
        for each in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            holder.setsockopt(socket.SOL_SOCKET, each, 1)
        holder.bind(address)
    except BaseException:
        holder.close()
        raise
    return holder


def _is_bound(family: int, address: tuple[Any, ...]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        # Servers set it too; without it, connections of the previous server would block the port.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(address)
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


_SCHEME = re.compile(r"(unix|unix-abstract|dns|ipv4|ipv6|vsock|xds):")
_HOST_AND_PORT = re.compile(r"([^\s/,:]+|\[[0-9a-fA-F:.]+\]):[0-9]+")
_PORT = re.compile(r":([0-9]+)\s*(?=,|$)")
_SCHEMES_WITH_PORTS = ("dns", "ipv4", "ipv6")
_LOOPBACK = re.compile(r"(localhost|127\.[\d.]+|\[::1\]):\d+")
_UNIX = re.compile(r"unix(-abstract)?:")


def grpc_target(target: str) -> str:
    """Checks a target and converts it to gRPC's form.

    ``host:port`` means every address of that host. Commas separate several servers,
    ``host:port,host:port``, whose names are resolved once, here. A target with a scheme of gRPC,
    such as ``unix:/run/seqserve.sock`` or ``dns:///host:port``, is not changed.
    """
    if not isinstance(target, str):
        raise OptionError(f"target: {target!r:.80} is not text; write for instance localhost:50051")
    if scheme := _SCHEME.match(target):
        _check_characters("target", target)
        if scheme[1] in _SCHEMES_WITH_PORTS:
            _check_ports(target)
        return target
    parts = [part.strip() for part in target.split(",")]
    for part in parts:
        if not _HOST_AND_PORT.fullmatch(part):
            raise OptionError(
                f"target: {part!r} is not host:port; write for instance localhost:50051"
            )
        _check_characters("target", part)
        _check_ports(part)
    if len(parts) == 1:
        return parts[0]
    addresses = [address for part in parts for address in _resolve(part)]
    return "ipv4:" + ",".join(dict.fromkeys(addresses))


def servers_of(target: str) -> list[str]:
    """Lists the servers that commas separate in a target, each as a target."""
    scheme = _SCHEME.match(target)
    prefix = scheme[0] if scheme else ""
    if prefix not in ("", "ipv4:", "ipv6:"):
        return [target]
    return [prefix + part.strip() for part in target.removeprefix(prefix).split(",")]


def is_local(target: str) -> bool:
    """Returns whether every address of a target is on this machine."""
    parts = [part.strip() for part in target.split(",")]
    return all(_LOOPBACK.fullmatch(part) or _UNIX.match(part) for part in parts)


def check_name(target: str, server_name: str | None) -> None:
    """Checks the name in the servers' certificates; a target that is not one host needs one."""
    _check_characters("tls.server_name", server_name or "")
    if server_name is None and ("," in target or _UNIX.match(target)):
        raise OptionError(
            "target: is not one host; with TLS give the name in the certificates as"
            " tls.server_name (--tls-server-name)"
        )


def channel_options(
    target: str, max_message_bytes: int, server_name: str | None = None
) -> list[tuple[str, Any]]:
    """Returns the options of a channel to a target; certificates name its host by default."""
    options: list[tuple[str, Any]] = [
        ("grpc.lb_policy_name", "round_robin"),
        ("grpc.max_receive_message_length", max_message_bytes),
        # Detects a dead server while a call waits; rare enough for the ping limits of any server.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # gRPC's defaults (1 s, growing to 2 min) are longer than the retries after a restart. And a
        # server that is back must be found before the next one is restarted.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
        # Time for one connection attempt without an answer; gRPC's default is 20 s.
        ("grpc.min_reconnect_backoff_ms", 5_000),
    ]
    if server_name is not None:
        options.append(("grpc.ssl_target_name_override", server_name))
    if is_local(target):
        # An http_proxy in the environment must not get calls to this machine.
        options.append(("grpc.enable_http_proxy", 0))
    return options


def _check_characters(name: str, text: str) -> None:
    # gRPC needs UTF-8; arguments and variables may have other bytes, as lone surrogates.
    if not text.isprintable():
        raise OptionError(f"{name}: {text!r} has a character that no address has")


def _check_ports(target: str) -> None:
    # gRPC would take the port modulo 65536 and call another server.
    for port in _PORT.findall(target):
        if len(port) > 5 or not 1 <= int(port) <= 65535:
            raise OptionError(f"target: the port of {target!r} is not from 1 to 65535")


def _resolve(part: str) -> list[str]:
    host, port = part.rsplit(":", 1)
    try:
        addresses = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise OptionError(f"target: {part!r} has no IPv4 address: {error}") from None
    hosts = [str(address[0]) for *_, address in addresses]
    return [f"{host}:{port}" for host in hosts]
