"""A small server that Label Studio calls when somebody labeled something.

A call is a hint to look, and nothing in it is believed: what was labeled is asked of Label
Studio itself. Who does not know the shared secret, and every page in a browser, is refused.
"""

from __future__ import annotations

import hmac
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dpal.errors import ConfigError
from dpal.runs.label_studio_access import HOOK_HEADER, HOOK_SECRET
from flows.cli.terminal import out

_MOST_BYTES = 1 << 20


class Receiver(ThreadingHTTPServer):
    """Answers at once, and remembers that there is something to look at.

    Attributes:
      called: set by each call that is believed to be meant for us.
    """

    daemon_threads = True

    def __init__(
        self, host: str, port: int, secret: str, called: threading.Event | None = None
    ) -> None:
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"{host}:{port} cannot be listened on ({error.strerror}); choose another port"
            ) from error
        self.called = called or threading.Event()
        self.secret = secret


class _Handler(BaseHTTPRequestHandler):
    server: Receiver
    timeout = 10  # seconds for a call; a slow one must not hold a thread for ever

    def do_GET(self) -> None:
        self._answer(HTTPStatus.OK)

    def do_POST(self) -> None:
        if refusal := self._refusal():
            self.close_connection = True  # what else was sent is not read
            self._answer(refusal)
            return
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.called.set()
        self._answer(HTTPStatus.NO_CONTENT)

    def _refusal(self) -> HTTPStatus | None:
        """Why a call is not taken: from a browser's page, without the secret, or too large."""
        given = self.headers.get_all(HOOK_HEADER) or [""]
        secret_matches = hmac.compare_digest("\n".join(given).encode(), self.server.secret.encode())
        if "Origin" in self.headers or not secret_matches:
            return HTTPStatus.FORBIDDEN
        length = self.headers.get("Content-Length", "0")
        small = length.isascii() and length.isdigit() and int(length) <= _MOST_BYTES
        if not small or "Transfer-Encoding" in self.headers:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return None

    def _answer(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: calls are many."""


@contextmanager
def listening(host: str, port: int, called: threading.Event) -> Iterator[None]:
    """Within this block calls are listened to.

    Args:
      host: address to listen on.
      port: likewise.
      called: is set by each call that is believed to be meant for us.

    Raises:
      ConfigError: the port is taken, or no secret is set.
    """
    secret = os.environ.get(HOOK_SECRET, "")
    if not secret:
        raise ConfigError(
            f"{HOOK_SECRET} is not set, and without a secret anybody could call; say source "
            "stack/env, or set it to the same long word here and for the workers"
        )
    with Receiver(host, port, secret, called) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        out.print(f"listening on http://{host}:{server.server_port}")
        try:
            yield
        finally:
            server.shutdown()
