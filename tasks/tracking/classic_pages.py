"""MLflow's pages open as those for training models, until a person chooses the others.

MLflow 3.17 opens its pages for language models unless each address says otherwise, which links on
its own pages do not. It keeps the choice in the browser, and a first visit has none.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SCRIPT = "/dpal-classic.js"
# The key and the version under which MLflow's page keeps the choice.
_CHOICE = """\
if (localStorage.getItem('mlflow.workflowType_v1') === null)
  localStorage.setItem('mlflow.workflowType_v1', '"machine_learning"');
"""
_BEFORE = b'<script defer="defer"'  # its page's own code, which asks for the choice
_TAG = f'<script src=".{SCRIPT}"></script>'.encode()


class ClassicPages:
    """Wraps MLflow: its one page first sets what a first visit would leave open."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or has MLflow answer it."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
        elif scope["path"] == SCRIPT:
            await Response(_CHOICE, media_type="text/javascript")(scope, receive, send)
        elif scope["path"] == "/":
            await self._app(scope, receive, _WithScript(send).pass_on)
        else:
            await self._app(scope, receive, send)


class _WithScript:
    """Passes an answer on once it is whole, with our script before the page's own."""

    def __init__(self, send: Send) -> None:
        self._send, self._body = send, b""
        self._start: Message = {}

    async def pass_on(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        page = self._body.replace(_BEFORE, _TAG + _BEFORE, 1)
        kept = [pair for pair in self._start["headers"] if pair[0].lower() != b"content-length"]
        self._start["headers"] = [*kept, (b"content-length", str(len(page)).encode())]
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": page})
