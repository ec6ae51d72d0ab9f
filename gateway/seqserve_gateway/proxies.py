"""Proxies in front of the gateway: the caller behind them, and the address it called.

Sources: RFC 7239, "Forwarded HTTP Extension"; the headers ``X-Forwarded-For``, ``-Proto`` and
``-Host``, and Traefik's ``X-Forwarded-Prefix``, which proxies send in its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    # The command reads its options without it.
    from starlette.types import ASGIApp, Receive, Scope, Send

_HOST = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?", re.ASCII)
_PREFIX = re.compile(r"(?:/[\w.~%-]+)*", re.ASCII)
_NAMES = ("for", "proto", "host", "prefix")
_SCHEMES = ("http", "https")
# Commas divide what each proxy has added, but not within quotes.
_ADDED = re.compile(r'(?:[^,"]|"[^"]*")+')
_PORT = re.compile(r"(?<=[\]\d]):\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicAddress:
    """The gateway's address for callers; the request fills empty parts."""

    scheme: str = ""
    host: str = ""
    prefix: str = ""
    """Prefix of the gateway's paths, such as ``/mt``; the proxy takes it off."""

    @classmethod
    def parse(cls, url: str) -> Self | None:
        """Returns the address of a URL; None if it cannot be a gateway's."""
        parts = urlsplit(url)
        prefix = parts.path.rstrip("/")
        address = cls(scheme=parts.scheme, host=parts.netloc, prefix=prefix)
        is_right = address == address.checked() and parts.scheme and parts.netloc
        return address if is_right and not (parts.query or parts.fragment) else None

    def checked(self) -> Self:
        """Returns the address without parts that are malformed."""
        return type(self)(
            scheme=self.scheme if self.scheme in _SCHEMES else "",
            host=self.host if _HOST.fullmatch(self.host) else "",
            prefix=self.prefix if _PREFIX.fullmatch(self.prefix) else "",
        )


class Proxied:
    """Sets the caller and the address of requests to those that a trusted proxy reports.

    A chain of proxies is followed from the nearest one on, as long as each is trusted: what came
    before may be the caller's invention.
    """

    def __init__(
        self, app: ASGIApp, trusted: Sequence[str], public: PublicAddress | None = None
    ) -> None:
        self._app, self._public = app, public
        networks = [ip_network(each) for each in trusted]

        @lru_cache(maxsize=1024)
        def is_trusted(host: str) -> bool:
            address = address_in(host)
            return address is not None and any(address in network for network in networks)

        self._is_trusted = is_trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] == "http":
            client = scope.get("client")
            address = PublicAddress()
            if client is not None and self._is_trusted(client[0]):
                address = self._forwarded(scope)
            _rename(scope, self._public or address)
        await self._app(scope, receive, send)

    def _forwarded(self, scope: Scope) -> PublicAddress:
        # Also makes the caller the client of the request.
        added, hops = _added(scope), 0
        for caller in reversed(added["for"]):
            # Without a port and brackets; there is none in "unknown" and names that hide.
            host = caller if caller.count(":") > 1 and "[" not in caller else _PORT.sub("", caller)
            if (address := address_in(host.strip("[]"))) is None:
                break
            hops += 1
            scope["client"] = (str(address), 0)
            if not self._is_trusted(str(address)):
                break

        def part(name: str) -> str:
            # The value that came with the caller, or earlier from the only proxy that adds it.
            return added[name][-min(max(hops, 1), len(added[name]))]

        return PublicAddress(
            scheme=part("proto").lower(), host=part("host"), prefix=part("prefix").rstrip("/")
        ).checked()


def _rename(scope: Scope, address: PublicAddress) -> None:
    scope["scheme"] = address.scheme or scope.get("scheme", "http")
    # The proxy has taken the prefix off, which ASGI wants in both.
    scope["root_path"], scope["path"] = address.prefix, address.prefix + scope["path"]
    if address.host:
        others = [pair for pair in scope["headers"] if pair[0] != b"host"]
        scope["headers"] = [(b"host", address.host.encode()), *others]


def _added(scope: Scope) -> Mapping[str, list[str]]:
    # By name, what the proxies have added: the nearest one last.
    def header(name: bytes) -> str:
        return b",".join(value for key, value in scope["headers"] if key == name).decode("latin1")

    if elements := _ADDED.findall(header(b"forwarded")):
        each = [_pairs(element) for element in elements]
        return {name: [pairs.get(name, "") for pairs in each] for name in _NAMES}
    listed = {name: header(f"x-forwarded-{name}".encode()) for name in _NAMES}
    return {name: [each.strip() for each in text.split(",")] for name, text in listed.items()}


def _pairs(element: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in element.split(";"))
    return {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}


def is_origin(text: str) -> bool:
    """Returns whether a text is ``*`` or the origin of a page, which has no path, not even /."""
    return text in ("*", "null") or "/" not in (text.partition("://")[2] or "/")


def address_in(host: str) -> IPv4Address | IPv6Address | None:
    """Returns an IP address; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None
