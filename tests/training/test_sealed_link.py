"""Two machines that know one key, and whoever stands between them."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpal.errors import DataError
from dpal.training.distributed.rank_key import read_rank_key, write_rank_key
from dpal.training.distributed.sealed_link import KeyRefused, SealedLink, sealed_link

KEY = os.urandom(32)
LARGE = os.urandom(40_000_000)  # several parts


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    return one, other


def meet(
    keys: tuple[bytes, bytes] = (KEY, KEY),
    sockets: tuple[socket.socket, socket.socket] | None = None,
) -> list[SealedLink | Exception]:
    """Both ends of a connection, or why there is none."""
    ends: list[SealedLink | Exception] = [OSError(), OSError()]

    def join(side: int, end: socket.socket) -> None:
        try:
            ends[side] = sealed_link(end, keys[side], listens=side == 1)
        except (OSError, EOFError) as error:
            ends[side] = error

    sides = list(enumerate(sockets or connected()))
    threads = [threading.Thread(target=join, args=side) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return ends


def links(sockets: tuple[socket.socket, socket.socket] | None = None) -> list[SealedLink]:
    return [end for end in meet(sockets=sockets) if isinstance(end, SealedLink)]


def test_what_is_said_arrives():
    one, other = links()
    heard: list[tuple[dict[str, Any], bytes]] = []
    reading = threading.Thread(target=lambda: heard.extend(other.receive() for _ in range(3)))
    reading.start()
    said: list[tuple[dict[str, Any], bytes]] = [
        ({"order": "step", "bound": 0.1}, b""),
        ({}, LARGE),
        ({"last": True}, b"\0"),
    ]
    for message in said:
        one.send(*message)
    reading.join(30)
    assert heard == said
    assert not one.poll()
    other.send({"ready": True})
    assert one.poll(5) and not one.is_gone()
    assert one.receive() == ({"ready": True}, b"")
    other.close()
    assert one.is_gone() and other.is_gone()
    with pytest.raises(EOFError):
        one.receive()
    one.close()


def test_two_keys_meet_nobody():
    ends = meet((KEY, os.urandom(32)))
    assert any(isinstance(end, KeyRefused) for end in ends)
    assert all(isinstance(end, ConnectionError) for end in ends)


class Between:
    """Somebody who passes bytes on, and may change them."""

    def __init__(self, changed: Callable[[bytes, int], bytes]) -> None:
        near, far = connected(), connected()
        self.outer, self.inner = (near[0], far[1]), (near[1], far[0])
        for source, target in (self.inner, self.inner[::-1]):
            work = threading.Thread(target=self._pass, args=(source, target, changed), daemon=True)
            work.start()

    def _pass(
        self, source: socket.socket, target: socket.socket, changed: Callable[[bytes, int], bytes]
    ) -> None:
        passed = 0
        try:
            while data := source.recv(1 << 16):
                target.sendall(changed(data, passed))
                passed += len(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        for end in self.inner:
            end.close()


def flip_after(count: int) -> Callable[[bytes, int], bytes]:
    """Changes one bit, of the byte with this number in each direction."""

    def changed(data: bytes, passed: int) -> bytes:
        place = count - passed
        if 0 <= place < len(data):
            return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        return data

    return changed


def test_who_passes_bytes_on_reads_none():
    seen = bytearray()

    def kept(data: bytes, passed: int) -> bytes:
        seen.extend(data)
        return data

    between = Between(kept)
    one, other = links(between.outer)
    one.send({"told": "somebody's label"}, b"somebody's gradient")
    assert other.receive() == ({"told": "somebody's label"}, b"somebody's gradient")
    assert len(seen) > 100 and b"somebody" not in seen and KEY not in seen
    for end in (one, other):
        end.close()
    between.close()


@pytest.mark.parametrize("count", [3, 20, 60])
def test_a_changed_greeting_meets_nobody(count):
    between = Between(flip_after(count))
    ends = meet(sockets=between.outer)
    assert any(isinstance(end, KeyRefused | TimeoutError) for end in ends)
    assert not any(isinstance(end, SealedLink) for end in ends)
    between.close()


def test_a_changed_message_is_refused():
    between = Between(flip_after(150))
    one, other = links(between.outer)
    one.send({}, bytes(500))
    with pytest.raises(KeyRefused):
        other.receive(10)
    for end in (one, other):
        end.close()
    between.close()


def test_a_message_that_comes_twice_is_refused():
    repeated: list[bytes] = []

    def twice(data: bytes, passed: int) -> bytes:
        if len(data) > 400:
            repeated.append(data)
            return data + data
        return data

    between = Between(twice)
    one, other = links(between.outer)
    one.send({}, bytes(500))
    assert other.receive(10) == ({}, bytes(500))
    with pytest.raises(KeyRefused):
        other.receive(10)
    assert len(repeated) == 1
    for end in (one, other):
        end.close()
    between.close()


def test_nobody_is_waited_for_longer_than_asked():
    one, other = links()
    with pytest.raises(TimeoutError):
        one.receive(0.1)
    for end in (one, other):
        end.close()


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path):
    file = tmp_path / "state" / "ranks.key"
    assert write_rank_key(file)
    key = read_rank_key(file)
    assert len(key) == 32 and file.stat().st_mode & 0o777 == 0o600
    assert not write_rank_key(file)
    assert read_rank_key(file) == key
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    other = tmp_path / "other.key"
    assert write_rank_key(other) and read_rank_key(other) != key


@pytest.mark.parametrize("fault", ["missing", "readable", "short", "binary"])
def test_a_key_that_cannot_be_relied_on_is_refused(tmp_path, fault):
    file = tmp_path / "ranks.key"
    write_rank_key(file)
    _spoil(file, fault)
    with pytest.raises(DataError) as refused:
        read_rank_key(file)
    assert refused.value.released is False and str(file) in str(refused.value)


def _spoil(file: Path, fault: str) -> None:
    if fault == "missing":
        file.unlink()
    elif fault == "readable":
        file.chmod(0o640)
    elif fault == "short":
        file.write_text("00" * 16)
    else:
        file.write_bytes(os.urandom(64))
