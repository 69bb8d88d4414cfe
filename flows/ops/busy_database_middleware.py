"""ASGI middleware: clients of a Prefect server wait for its database while others write there.

Prefect answers with status 503 when SQLite is taken by another process, and its clients ask again
only a few times. On a busy machine whose runs share one database that is too few.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATIENCE_SECONDS = 600.0
_UNAVAILABLE = 503
# What Prefect's clients ask again by, without counting how often.
_ASK_AGAIN = [(b"prefect-maintenance", b"true"), (b"retry-after", b"1")]


class BusyDatabase:
    """Wraps Prefect's application: its clients ask again until the database is free.

    Only while something else is answered at least every ten minutes; then they are left to give
    up, so that nobody waits for ever.
    """

    def __init__(self, app: ASGIApp, *, now: Callable[[], float] = time.monotonic) -> None:
        """Wraps an application.

        Args:
          app: Prefect's.
          now: seconds on a clock that only goes forward.
        """
        self.app = app
        self._now = now
        self._answered = now()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and self.may_wait(message["status"]):
                message = {**message, "headers": [*message.get("headers", ()), *_ASK_AGAIN]}
            await send(message)

        await self.app(scope, receive, sent)

    def may_wait(self, status: int) -> bool:
        """Whether whoever gets an answer of this status shall ask again."""
        now = self._now()
        if status != _UNAVAILABLE:
            self._answered = now
            return False
        return now - self._answered < PATIENCE_SECONDS
