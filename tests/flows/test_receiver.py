from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from dpal.errors import ConfigError
from flows.ops.receiver import Receiver, listening


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver("127.0.0.1", 0, "a secret") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def post(server: Receiver, secret: str, content: bytes = b"{}") -> int:
    url = f"http://127.0.0.1:{server.server_port}/anything"
    headers = {"X-Dpal-Secret": secret}
    return httpx.post(url, content=content, headers=headers).status_code


def test_a_call_is_a_hint_to_look(receiver):
    assert post(receiver, "a secret", b"\xff not even JSON") == 204
    assert receiver.called.is_set()


def test_who_does_not_know_the_secret_is_refused(receiver):
    assert post(receiver, "another") == 403
    assert post(receiver, "") == 403
    assert post(receiver, "a secret", b"x" * (1 << 20 | 1)) == 413
    assert not receiver.called.is_set()


def test_a_page_in_a_browser_is_refused_even_with_the_secret(receiver):
    url = f"http://127.0.0.1:{receiver.server_port}/"
    for origin in ("http://127.0.0.1:8080", "null", ""):
        headers = {"X-Dpal-Secret": "a secret", "Origin": origin}
        assert httpx.post(url, content=b"{}", headers=headers).status_code == 403
    assert not receiver.called.is_set()


def test_lengths_are_believed_once_the_secret_is_known(receiver):
    for length in ("-1", "+5", "²", "1e3", str(1 << 20 | 1)):
        with socket.create_connection(("127.0.0.1", receiver.server_port), 5) as raw:
            head = (
                f"POST / HTTP/1.1\r\nHost: x\r\nX-Dpal-Secret: a secret\r\nContent-Length: {length}"
            )
            raw.sendall(f"{head}\r\n\r\n".encode())
            assert b" 413 " in raw.recv(200).partition(b"\r\n")[0], length
    chunked = httpx.post(
        f"http://127.0.0.1:{receiver.server_port}/",
        content=iter([b"x" * 100] * 10),
        headers={"X-Dpal-Secret": "a secret"},
    )
    assert chunked.status_code == 413
    assert not receiver.called.is_set()


def test_without_a_secret_nobody_listens(monkeypatch):
    monkeypatch.delenv("DPAL_COLLECT_SECRET", raising=False)
    with (
        pytest.raises(ConfigError, match="DPAL_COLLECT_SECRET is"),
        listening("127.0.0.1", 0, threading.Event()),
    ):
        pass


def test_a_port_that_is_taken_is_one_sentence(receiver):
    with pytest.raises(ConfigError, match="listened on"):
        Receiver("127.0.0.1", receiver.server_port, "a secret")
