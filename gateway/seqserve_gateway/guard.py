"""What every request passes: checks of its host and origin, and headers that confine the page.

A page of another site could give its own name the address 127.0.0.1 and then read answers from here
(DNS rebinding). Its requests bear that name as host, so only names that are known are answered. An
IP address cannot be given to somebody else, so all of them are. Nor may scripts and pictures of
another site send requests, which would take places of calls, unless the origin of the site is
named: browsers say where a request comes from (W3C, "Fetch Metadata Request Headers"), and only
navigation may come from elsewhere.
Source: Jackson et al. 2007, "Protecting Browsers from DNS Rebinding Attacks", section 5.2.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+))(?::\d+)?")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Neither texts in a cache nor scripts of the version before.
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses requests for unknown hosts and adds headers to every answer."""

    def __init__(
        self, app: ASGIApp, allowed_hosts: Iterable[str] | None, origins: Collection[str] = ()
    ) -> None:
        """Wraps an application.

        Args:
            app: The application.
            allowed_hosts: Names of it beside localhost and addresses; any if None.
            origins: Origins of other sites whose scripts may send requests; ``*`` for all.
        """
        self._app, self._origins = app, origins
        self._names = None
        if allowed_hosts is not None:
            self._names = {"localhost", *(name.lower() for name in allowed_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def confined(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = hosts[0] if hosts else ""
        app = self._app if self._is_known(host) else _refusal(host)
        if len(hosts) > 1:
            # RFC 9112, section 3.2. A proxy in front may believe another one of them.
            app = PlainTextResponse("a request names one host\n", 400)
        if _is_of_another_site(headers) and not self._is_welcome(headers):
            app = PlainTextResponse("requests of other sites are not answered\n", 403)
        await app(scope, receive, confined)

    def _is_welcome(self, headers: Headers) -> bool:
        return "*" in self._origins or headers.get("origin") in self._origins

    def _is_known(self, host: str) -> bool:
        if self._names is None:
            return True
        parts = _HOST.fullmatch(host)
        name = (parts[1] or parts[2]).lower() if parts else ""
        return name in self._names or _is_address(name)


def _is_of_another_site(headers: Headers) -> bool:
    """Tells whether a browser sends the request for a page of another origin."""
    is_own = headers.get("sec-fetch-site", "none") in ("same-origin", "none")
    return not is_own and headers.get("sec-fetch-mode") != "navigate"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _refusal(host: str) -> ASGIApp:
    advice = "ask for localhost, or start it with --allowed-host"
    return PlainTextResponse(f"{host!r} is not a host of this gateway: {advice}\n", 421)
