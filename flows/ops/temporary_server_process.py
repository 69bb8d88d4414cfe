"""The process of Prefect's temporary server; started as a file, it ends with its parent."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_LOOK_SECONDS = 0.2


def end_with(parent: int) -> None:
    """Ends this process as soon as it is no longer the child of `parent`, however that ended."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def create_app(port: int) -> ASGIApp:
    """Prefect's application, for programs that call this machine by its address.

    It has no pages, and no page in a browser is answered: none that lets its own name point here
    (DNS rebinding), and none of another origin, by web sockets neither, which CORS is no door for.

    Args:
      port: on which it is called.
    """
    from prefect.server.api.server import create_app as create_prefect

    from flows.ops.busy_database_middleware import BusyDatabase
    from tasks.web_guard import WebGuard, content_policy

    served, own = BusyDatabase(create_prefect()), f"http://127.0.0.1:{port}"
    return WebGuard(served, origins=(own,), policy=content_policy())


def main() -> None:
    """Serves Prefect on a bound socket: `temporary_server_process.py PARENT_PID SOCKET`."""
    parent, bound = map(int, sys.argv[1:])
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    import uvicorn  # takes seconds on a busy machine, and the parent may end meanwhile

    listening = socket.socket(fileno=bound)
    app = partial(create_app, listening.getsockname()[1])
    config = uvicorn.Config(app, factory=True, lifespan="on", log_level="error")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
