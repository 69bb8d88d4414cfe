"""Where ranks of other machines find the one that trains: an address at which it lets them in.

It listens for as long as a phase trains. Who comes proves first that it knows the key; then it says
which helper it is, and is taken in, or refused in a sentence that both sides are told.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Final

from dpal.data.process_share import Share
from dpal.errors import ConfigError, ProcessLost
from dpal.training.distributed.remote_handle import RemoteHandle
from dpal.training.distributed.remote_messages import HelperGreeting, refuse
from dpal.training.distributed.sealed_link import (
    GREETING_SECONDS,
    KeyRefused,
    SealedLink,
    sealed_link,
)

COMING_SECONDS: Final = 1800.0  # until all helpers are there
_AT_ONCE: Final = 16  # who may ask to join at the same time
_LOOK_SECONDS: Final = 0.2


def _nothing() -> None:
    """Nobody has to be asked whether to go on waiting."""


@dataclass(frozen=True, kw_only=True)
class RemoteRanks:
    """Ranks that are started on other machines, and how they are let in.

    Attributes:
      number: how many there are.
      address: host and port of this machine, at which they find it.
      key: that all of these machines know; 32 bytes.
      order: what the owner of a share is told to load it by, and its labeled rows.
      private: whether the network between them is declared private, so that vectors may go
        through torch.distributed; otherwise they are sealed.
      coming: seconds to wait until they are there.
      say: tells people something.
      watch: called while waiting for them; raises to give up.
    """

    number: int
    address: tuple[str, int]
    key: bytes = field(repr=False)
    order: Callable[[Share], tuple[dict[str, Any], bytes]]
    private: bool = False
    coming: float = COMING_SECONDS
    say: Callable[[str], None] = lambda sentence: None
    watch: Callable[[], None] = _nothing


class Rendezvous:
    """Lets helpers in, each once."""

    def __init__(self, remote: RemoteRanks) -> None:
        """Begins to listen.

        Raises:
          ConfigError: the address is none of this machine, or is taken.
        """
        self._remote = remote
        self._joined: dict[int, tuple[SealedLink, HelperGreeting]] = {}
        self._complete = self._closed = False
        self._lock = threading.Lock()
        self._told: deque[str] = deque()
        self._refused: set[tuple[str, str]] = set()
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        host, port = remote.address
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._listening = socket.create_server((host, port), family=family)
        except OSError as error:
            raise ConfigError.before_release(
                f"helpers cannot be met at runtime.rendezvous {host}:{port} "
                f"({error.strerror or type(error).__name__}); name an address of the machine that "
                "trains and a free port there"
            ).about("runtime.rendezvous", "address") from error
        threading.Thread(target=self._let_in, daemon=True).start()

    @property
    def place(self) -> tuple[str, int]:
        """Host and port at which it listens."""
        host, port = self._listening.getsockname()[:2]
        return str(host), int(port)

    def await_all(self, first: Share) -> list[RemoteHandle]:
        """Waits until all helpers are there.

        Args:
          first: share of the first of them.

        Raises:
          ProcessLost: one did not come.
        """
        remote, deadline = self._remote, time.monotonic() + self._remote.coming
        host, port = self.place
        remote.say(
            f"waits at {host}:{port} for {remote.number} of other machines (there: dpal ranks "
            "FILE.yaml)"
        )
        while True:
            self.tell()
            with self._lock:
                for number, (link, _) in list(self._joined.items()):
                    if link.is_gone():
                        link.close()
                        del self._joined[number]
                if len(self._joined) == remote.number:
                    self._complete = True
                    break
                missing = min(set(range(remote.number)) - self._joined.keys())
            remote.watch()
            if time.monotonic() > deadline:
                how = f"did not come to {host}:{port} within {remote.coming:g} s"
                raise ProcessLost(first.rank + missing, first.processes, how)
            time.sleep(_LOOK_SECONDS)
        shares = [
            Share(rank=first.rank + number, processes=first.processes)
            for number in range(remote.number)
        ]
        return [
            RemoteHandle(share=share, link=link, host=link.other_host)
            for share, (link, _) in zip(
                shares, (self._joined[number] for number in range(remote.number)), strict=True
            )
        ]

    def tell(self) -> None:
        """Tells people who was refused; by the thread that trains, which they listen to."""
        while self._told:
            self._remote.say(self._told.popleft())

    def close(self) -> None:
        """Lets nobody in any more, and sends home who waits."""
        with self._lock:
            self._closed = True
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes who waits for somebody to come
        self._listening.close()
        with self._lock:
            for link, _ in self._joined.values():
                link.close()
        self.tell()

    def _let_in(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:  # closed; or who asked is gone, or files are out
                if self._closed:
                    return
                time.sleep(_LOOK_SECONDS)
                continue
            if self._free.acquire(blocking=False):
                threading.Thread(target=self._meet, args=(connected,), daemon=True).start()
            else:
                connected.close()

    def _meet(self, connected: socket.socket) -> None:
        try:
            with suppress(OSError, EOFError):
                self._greet(connected)
        finally:
            self._free.release()

    def _greet(self, connected: socket.socket) -> None:
        host = str(connected.getpeername()[0])
        # A byte now and then would keep every single wait short, and a place taken.
        limit = threading.Timer(GREETING_SECONDS, _hang_up, (connected,))
        limit.start()
        try:
            link = sealed_link(connected, self._remote.key, listens=True)
            said, _ = link.receive(GREETING_SECONDS)
        except KeyRefused:
            sentence = "somebody at {} does not know the key of these machines and was refused"
            self._note(host, "key", sentence.format(host))
            raise
        finally:
            limit.cancel()
        with self._lock:
            if self._closed:
                link.close()
                return
            refused = self._refusal(said)
            if refused is None:
                greeting = HelperGreeting(number=said["number"])
                if (before := self._joined.get(greeting.number)) is not None:
                    before[0].close()
                self._joined[greeting.number] = (link, greeting)
                return
        refuse(link, *refused)
        self._note(host, refused[1], f"a helper on {host} was refused: {refused[0]}")
        link.close()

    def _note(self, host: str, fault: str, sentence: str) -> None:
        """Has people told, once, though it may be tried again and again."""
        if (host, fault) not in self._refused:
            self._refused.add((host, fault))
            self._told.append(sentence)

    def _refusal(self, said: Mapping[str, Any]) -> tuple[str, str] | None:
        """Why a helper is not taken in, and the same for programs; None if it is."""
        ours, theirs = metadata.version("dpal"), said.get("version")
        if theirs != ours:
            return f"it is dpal {theirs}, and {ours} trains; use one version", "version"
        number = said["number"]
        if number not in range(self._remote.number):
            return (
                f"it is number {number}, and helpers are 0 to {self._remote.number - 1}; see "
                "runtime.helpers, and --first of dpal ranks"
            ), "number"
        if number in self._joined and (self._complete or not self._joined[number][0].is_gone()):
            other = self._joined[number][0].other_host
            return (
                f"number {number} trains on {other} already; each machine begins with another "
                "number (--first of dpal ranks)"
            ), "taken"
        return None


def _hang_up(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
