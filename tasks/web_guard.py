"""ASGI middleware by which a server answers programs and its own pages, and no other page.

A browser sends a person's password along with whatever a page asks for, and reads to a page what
a name of its own leads to. So requests are judged by what pages cannot choose: the name by which
the server was called (DNS rebinding), the origin of the page (CSRF), and how the browser came to
ask. Programs send none of the latter two, and their password decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpal.errors import ConfigError

ORIGINS = "DPAL_WEB_ORIGINS"  # where this server's pages are, such as http://127.0.0.1:4200

_OTHER_PAGES = ("same-site", "cross-site")  # Sec-Fetch-Site; another port is "same-site"
_SAFE = ("GET", "HEAD")


def own_origins() -> tuple[str, ...]:
    """Where this server's pages are: scheme, host and port, as browsers name them.

    Raises:
      ConfigError: DPAL_WEB_ORIGINS names none.
    """
    origins = tuple(
        filter(None, (origin.strip() for origin in os.environ.get(ORIGINS, "").split(",")))
    )
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path:
            raise ConfigError(f"{ORIGINS} has {origin!r}; write http://HOST:PORT, without a path")
    if not origins:
        raise ConfigError(
            f"{ORIGINS} is not set, so this server would answer every page; set it to where its "
            "own pages are, such as http://127.0.0.1:4200"
        )
    return origins


def content_policy(**more: str) -> str:
    """A Content-Security-Policy under which a page loads, and speaks to, its own server alone.

    Args:
      more: sources beside the usual ones, by directive, with _ for -.

    >>> "connect-src 'self'; " in content_policy() and "script-src 'self' x" in content_policy(
    ...     script_src="x")
    True
    """
    usual = {
        "default-src": "'self'",
        "script-src": "'self'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "frame-src": "'self'",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'self'",
    }
    for name, sources in more.items():
        usual[name.replace("_", "-")] += f" {sources}"
    return "; ".join(f"{name} {sources}" for name, sources in usual.items())


class WebGuard:
    """Wraps a server's application.

    Attributes:
      origins: of the server's own pages.
      policy: what these pages may load.
      closed: beginnings of paths that are not served at all.
    """

    def __init__(
        self, app: ASGIApp, *, origins: Sequence[str], policy: str, closed: Sequence[str] = ()
    ) -> None:
        self._app, self.origins, self.closed = app, tuple(origins), tuple(closed)
        self._hosts = {urlsplit(origin).netloc for origin in self.origins}
        self._headers = {
            "content-security-policy": policy,
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "referrer-policy": "same-origin",
            "x-content-type-options": "nosniff",
            "x-frame-options": "SAMEORIGIN",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or has the application answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif refusal := self._refusal(scope):
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": refusal})
            else:
                answer = PlainTextResponse(f"{refusal}\n", 403, headers=self._headers)
                await answer(scope, receive, send)
        elif scope["path"].startswith(self.closed):
            answer = PlainTextResponse("not served here\n", 404, headers=self._headers)
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, self._with_headers(send))

    def _refusal(self, scope: Scope) -> str:
        """Why a request is not answered; empty where it is."""
        headers = Headers(scope=scope)
        if headers.get("host") not in self._hosts:
            return (
                f"this server is {' or '.join(sorted(self._hosts))} and was called by another "
                f"name; add it to {ORIGINS} if that is right"
            )
        if headers.get("origin", self.origins[0]) not in self.origins:
            return "pages of another origin are not answered"
        if headers.get("sec-fetch-site") in _OTHER_PAGES and not _follows_a_link(scope, headers):
            return "pages of another origin are not answered"
        return ""

    def _with_headers(self, send: Send) -> Send:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(key.encode(), value.encode()) for key, value in self._headers.items()]
                names = {key for key, _ in own}
                kept = [
                    (key, value)
                    for key, value in message.get("headers", [])
                    if key.lower() not in names and not key.lower().startswith(b"access-control-")
                ]
                message = {**message, "headers": [*kept, *own]}
            await send(message)

        return send_with_headers


def _follows_a_link(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Whether a person goes from another page to one of ours, in a window of its own."""
    return (
        scope.get("method") in _SAFE
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )
