"""The process of Prefect's temporary server; started as a file, it ends with its parent."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_LOOK_SECONDS = 0.2


def end_with(parent: int) -> None:
    """Ends this process as soon as it is no longer the child of `parent`, however that ended."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def create_app() -> ASGIApp:
    """Prefect's application, for whoever calls this machine by its address.

    A page in a browser that lets its own name point here (DNS rebinding) is refused.
    """
    from prefect.server.api.server import create_app as create_prefect
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from flows.ops.wait_for_database import BusyDatabase

    return TrustedHostMiddleware(BusyDatabase(create_prefect()), allowed_hosts=["127.0.0.1"])


def main() -> None:
    """Serves Prefect on a bound socket: `temporary_server_process.py PARENT_PID SOCKET`."""
    parent, bound = map(int, sys.argv[1:])
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    import uvicorn  # takes seconds on a busy machine, and the parent may end meanwhile

    config = uvicorn.Config(create_app, factory=True, lifespan="on", log_level="error")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=bound)])


if __name__ == "__main__":
    main()
