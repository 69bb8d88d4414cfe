"""A small server that Label Studio calls when somebody labeled something.

A call is a hint to look, and nothing in it is believed: what was labeled is asked of Label
Studio itself. Whoever calls without need costs one look.
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
from flows.terminal import err, out
from tasks.collecting import collect_campaign
from tasks.labelers import HOOK_HEADER, HOOK_SECRET
from tasks.waiting import waiting_campaigns

_MOST_BYTES = 1 << 20
_TOGETHER_SECONDS = 1.0  # calls that come at once are one look
_ANYWAY_SECONDS = 60.0  # a call may be lost


class Receiver(ThreadingHTTPServer):
    """Answers at once, and remembers that there is something to look at.

    Attributes:
      called: set by each call that is believed to be meant for us.
    """

    daemon_threads = True

    def __init__(self, host: str, port: int, secret: str | None) -> None:
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
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > _MOST_BYTES:
            self.close_connection = True
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        self.rfile.read(int(length))
        given, wanted = self.headers.get(HOOK_HEADER, ""), self.server.secret
        if wanted and not hmac.compare_digest(given.encode(), wanted.encode()):
            self._answer(HTTPStatus.FORBIDDEN)
            return
        self.server.called.set()
        self._answer(HTTPStatus.NO_CONTENT)

    def _answer(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: calls are many."""


def receive(artifacts: Path, host: str, port: int) -> None:
    """Looks at all waiting campaigns whenever Label Studio calls, and every minute.

    Args:
      artifacts: folder of all campaigns.
      host: address to listen on.
      port: likewise.

    Raises:
      ConfigError: the port is taken.
    """
    with Receiver(host, port, os.environ.get(HOOK_SECRET)) as server:
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
