"""What Prefect Cloud looks like from outside, before a server of one's own.

A door that lets nobody through without the key of an account, and that shows a server's API below
an account and a workspace, for requests and for web sockets.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

ACCOUNT = "0b5d8e4e-6f0c-4b07-9d0e-2f6f1a4c9a01"
WORKSPACE = "7c1f6a52-93de-4b0e-8f5e-5f2f7f6c1b02"
_PREFIX = f"/api/accounts/{ACCOUNT}/workspaces/{WORKSPACE}"
_REFUSED = b"HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass
class CloudDoor:
    """The door, once it is open.

    Attributes:
      key: that it wants.
      port: where it listens.
      server: port of the server behind it.
      passed: paths that were let through, below the workspace.
      refused: what was not let through, and why.
    """

    key: str
    server: int
    port: int = 0
    passed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What a machine is told that works with it."""
        cloud = f"http://127.0.0.1:{self.port}/api"
        return {
            "PREFECT_CLOUD_API_URL": cloud,
            "PREFECT_API_URL": cloud.removesuffix("/api") + _PREFIX,
            "PREFECT_API_KEY": self.key,
        }


@contextmanager
def cloud_door(server: int, key: str) -> Iterator[CloudDoor]:
    """Opens a door before the server on a port."""
    door = CloudDoor(key=key, server=server)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(ConnectionError, TimeoutError):
                _let_through(door, self.request)

    class Listening(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

    with Listening(("127.0.0.1", 0), Handler) as listening:
        door.port = int(listening.server_address[1])
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        try:
            yield door
        finally:
            listening.shutdown()


def _let_through(door: CloudDoor, client: socket.socket) -> None:
    """One request, or one web socket, on a connection."""
    client.settimeout(300)
    head = b""
    while b"\r\n\r\n" not in head:
        more = client.recv(65536)
        if not more:
            return
        head += more
    head, _, body = head.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, version = first.split(" ")
    fields = {name.strip().lower(): value.strip() for name, _, value in
              (line.partition(":") for line in lines)}  # fmt: skip
    scheme, _, shown = fields.get("authorization", "").partition(" ")
    # These web sockets say the key in their first message, to the server itself.
    says_later = "upgrade" in fields and path.endswith(("/workers/connect", "/events/out"))
    if not says_later and (scheme.lower() != "bearer" or shown != door.key):
        door.refused.append(f"{method} {path}: no key")
        client.sendall(_REFUSED % b"401 Unauthorized")
        return
    if not path.startswith(_PREFIX):
        door.refused.append(f"{method} {path}: outside of the workspace")
        client.sendall(_REFUSED % b"404 Not Found")
        return
    door.passed.append(path.removeprefix(_PREFIX))
    dropped = (
        {"authorization", "host"}
        if "upgrade" in fields
        else {"authorization", "host", "connection"}
    )
    kept = [line for line in lines if line.partition(":")[0].strip().lower() not in dropped]
    kept += [f"Host: 127.0.0.1:{door.server}"]
    kept += [] if "upgrade" in fields else ["Connection: close"]
    new = [f"{method} /api{path.removeprefix(_PREFIX)} {version}", *kept]
    with socket.create_connection(("127.0.0.1", door.server), timeout=300) as behind:
        behind.sendall("\r\n".join(new).encode("latin-1") + b"\r\n\r\n" + body)
        threading.Thread(target=_copy, args=(client, behind), daemon=True).start()
        _copy(behind, client)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while more := source.recv(65536):
            target.sendall(more)
