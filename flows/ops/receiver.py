"""A small server that Label Studio calls when somebody labeled something.

A call is a hint to look, and nothing in it is believed: what was labeled is asked of Label
Studio itself. Who does not know the shared secret, and every page in a browser, is refused.
"""

from __future__ import annotations

import hmac
import os
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from dpal.errors import ConfigError, DpalError
from dpal.runs.label_studio_access import HOOK_HEADER, HOOK_SECRET
from flows.cli.terminal import err, out
from tasks.collect_waiting import collect_campaign
from tasks.wait_for_people import waiting_campaigns

_MOST_BYTES = 1 << 20
_TOGETHER_SECONDS = 1.0  # calls that come at once are one look
_ANYWAY_SECONDS = 60.0  # a call may be lost


class Receiver(ThreadingHTTPServer):
    """Answers at once, and remembers that there is something to look at.

    Attributes:
      called: set by each call that is believed to be meant for us.
    """

    daemon_threads = True

    def __init__(self, host: str, port: int, secret: str) -> None:
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"{host}:{port} cannot be listened on ({error.strerror}); choose another port"
            ) from error
        self.called = threading.Event()
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


def run_webhook_receiver(artifacts: Path, host: str, port: int) -> None:
    """Looks at all waiting campaigns whenever Label Studio calls, and every minute.

    Args:
      artifacts: folder of all campaigns.
      host: address to listen on.
      port: likewise.

    Raises:
      ConfigError: the port is taken, or no secret is set.
    """
    secret = os.environ.get(HOOK_SECRET, "")
    if not secret:
        raise ConfigError(
            f"{HOOK_SECRET} is not set, and without a secret anybody could call; say source "
            "stack/env, or set it to the same long word here and for the workers"
        )
    with Receiver(host, port, secret) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        out.print(f"listening on http://{host}:{port}; Ctrl-C ends it")
        while True:
            _look(artifacts)
            if server.called.wait(_ANYWAY_SECONDS):
                threading.Event().wait(_TOGETHER_SECONDS)
                server.called.clear()


def _look(artifacts: Path) -> None:
    """Looks once; what is in the way is told and tried again."""
    try:
        for folder in waiting_campaigns(artifacts):
            collect_campaign.fn(folder.root)
    except (DpalError, httpx.HTTPError, RuntimeError, OSError) as error:
        err.print(f"dpal: {error}; looking again in a minute", style="red", markup=False)
