"""A connection between two machines that know one key: authentic, sealed, in order, nothing twice.

Both sides prove that they know the key before anything of the other is read. Keys of a connection
are made of it and of an exchange of fresh X25519 keys, so that who learns the key later reads
nothing that was sent before. What is said is JSON and bytes: nothing that comes in is ever run.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import Any, Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpal.sealed_channel import SealedDirection

_WHAT: Final = b"dpal ranks 1"
_HELLO_BYTES: Final = len(_WHAT) + 32
_PART: Final = 1 << 24  # bytes that are sealed at once
_TAG: Final = 16
_LAST, _MORE = b"\0", b"\1"
_LENGTH: Final = 4  # bytes
GREETING_SECONDS: Final = 10.0  # for both sides to prove that they know the key
# A machine that no longer answers is given up after about half a minute.
_SILENT_SECONDS, _ASK_SECONDS, _ASKED = 10, 5, 4


class KeyRefused(ConnectionError):
    """The other side does not know the key, or speaks something else."""


class Link(Protocol):
    """What both ends of a connection to another machine need."""

    @property
    def own_host(self) -> str:
        """Address of this machine on the way to the other."""
        ...

    def send(self, said: Mapping[str, Any], data: bytes = b"") -> None:
        """Sends a message and what belongs to it."""
        ...

    def receive(self, patience: float | None = None) -> tuple[dict[str, Any], bytes]:
        """Waits for a message."""
        ...


class SealedLink:
    """One end of such a connection."""

    def __init__(self, connected: socket.socket, *, ours: bytes, theirs: bytes) -> None:
        """Takes a socket over.

        Args:
          connected: to the other side.
          ours: key of what is sent; 32 bytes.
          theirs: of what is received.
        """
        self._socket = connected
        self._ours, self._theirs = SealedDirection(ours), SealedDirection(theirs)

    @property
    def own_host(self) -> str:
        """Address of this machine on the way to the other."""
        return str(self._socket.getsockname()[0])

    @property
    def other_host(self) -> str:
        """Address of the other machine."""
        return str(self._socket.getpeername()[0])

    def send(self, said: Mapping[str, Any], data: bytes = b"") -> None:
        """Sends a message and what belongs to it.

        Raises:
          ConnectionError, TimeoutError: the other side is gone.
        """
        head = json.dumps(said).encode()
        whole = memoryview(len(head).to_bytes(_LENGTH, "big") + head + data)
        for start in range(0, len(whole), _PART):
            more = _MORE if start + _PART < len(whole) else _LAST
            sealed = self._ours.seal(more + whole[start : start + _PART])
            with _losses():
                self._socket.sendall(len(sealed).to_bytes(_LENGTH, "big") + sealed)

    def receive(self, patience: float | None = None) -> tuple[dict[str, Any], bytes]:
        """Waits for a message.

        Args:
          patience: seconds to wait for it; None waits as long as the other side is there.

        Raises:
          EOFError: the other side hung up.
          ConnectionError, TimeoutError: it is gone, or says nothing for so long; or what came is
            not its own.
        """
        whole, more = bytearray(), True
        with _losses():
            self._socket.settimeout(patience)
            while more:
                length = int.from_bytes(read_exactly(self._socket, _LENGTH), "big")
                if not _TAG < length <= 1 + _PART + _TAG:
                    raise KeyRefused(f"a part of {length} bytes was announced")
                opened = self._opened(read_exactly(self._socket, length))
                more = opened[:1] == _MORE
                whole += opened[1:]
        stop = _LENGTH + int.from_bytes(whole[:_LENGTH], "big")
        return dict(json.loads(whole[_LENGTH:stop])), bytes(whole[stop:])

    def _opened(self, sealed: bytes) -> bytes:
        try:
            return self._theirs.open(sealed)
        except InvalidTag as error:
            raise KeyRefused("what came is not sealed by the key") from error

    def poll(self, patience: float | None = 0.0) -> bool:
        """Whether something came, or the other side hung up."""
        return bool(wait([self._socket], patience))

    def is_gone(self) -> bool:
        """Whether this or the other side hung up, and all that it said was read."""
        if self._socket.fileno() < 0:
            return True
        if not self.poll():
            return False
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Hangs up, also where another thread waits for the other side."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextmanager
def _losses() -> Iterator[None]:
    """Raises ConnectionError for every way in which a network may fail."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:  # no route, network down, closed here
        raise ConnectionError(error.strerror) from error


def sealed_link(connected: socket.socket, key: bytes, *, listens: bool) -> SealedLink:
    """Makes sure that the other side knows the key, and agrees on the keys of this connection.

    Args:
      connected: to the other side; stays open only where this succeeds.
      key: 32 secret bytes that both sides know.
      listens: whether this side was connected to.

    Raises:
      KeyRefused: the other side does not know the key, or speaks something else.
      OSError: it hung up, or took too long.
    """
    # What is refused is refused here by the first sealed message, before anything of it is read.
    try:
        _notice_silence(connected)
        connected.settimeout(GREETING_SECONDS)
        own = X25519PrivateKey.generate()
        greeting = _WHAT + own.public_key().public_bytes_raw()
        connected.sendall(greeting)
        other = read_exactly(connected, _HELLO_BYTES)
        if other[: len(_WHAT)] != _WHAT:
            raise KeyRefused("no rank speaks like this")
        said = greeting + other if listens else other + greeting
        ways = _keys(own, other[len(_WHAT) :], key, said)
        ours, theirs = ways if listens else ways[::-1]
        link = SealedLink(connected, ours=ours, theirs=theirs)
        link.send({})
        link.receive(GREETING_SECONDS)
        connected.settimeout(None)
    except EOFError as error:
        connected.close()
        raise ConnectionError("the other side hung up before it proved to know the key") from error
    except BaseException:
        connected.close()
        raise
    return link


def read_exactly(connected: socket.socket, count: int) -> bytes:
    """Reads so many bytes.

    Raises:
      EOFError: the other side hung up before.
    """
    read = bytearray()
    while len(read) < count:
        piece = connected.recv(min(count - len(read), 1 << 20))
        if not piece:
            raise EOFError
        read += piece
    return bytes(read)


def _keys(own: X25519PrivateKey, other: bytes, key: bytes, said: bytes) -> tuple[bytes, bytes]:
    """Keys of what the listening side sends, and of what it receives."""
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:  # a point that gives everybody the same
        raise KeyRefused("the other side's key is none") from error
    both = HKDF(algorithm=hashes.SHA256(), length=64, salt=key, info=said).derive(shared)
    return both[:32], both[32:]


def _notice_silence(connected: socket.socket) -> None:
    """Has the system ask whether the other machine is there, and end the connection if not."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _SILENT_SECONDS),
        ("TCP_KEEPINTVL", _ASK_SECONDS),
        ("TCP_KEEPCNT", _ASKED),
        ("TCP_USER_TIMEOUT", 1000 * (_SILENT_SECONDS + _ASK_SECONDS * _ASKED)),
    ):
        if hasattr(socket, option):  # another system than Linux has some of them
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
