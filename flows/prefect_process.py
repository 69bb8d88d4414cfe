"""The process of Prefect's temporary server; started as a file, it ends with its parent."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

_LOOK_SECONDS = 0.2


def end_with(parent: int) -> None:
    """Ends this process as soon as it is no longer the child of `parent`, however that ended."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def main() -> None:
    """Serves Prefect on a bound socket: `prefect_process.py PARENT_PID SOCKET`."""
    parent, bound = map(int, sys.argv[1:])
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    import uvicorn  # takes seconds on a busy machine, and the parent may end meanwhile

    served = "prefect.server.api.server:create_app"
    config = uvicorn.Config(served, factory=True, lifespan="on", log_level="error")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=bound)])


if __name__ == "__main__":
    main()
