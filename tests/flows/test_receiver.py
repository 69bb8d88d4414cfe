from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest

from dpal.errors import ConfigError
from flows.receiver import Receiver


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


def test_a_port_that_is_taken_is_one_sentence(receiver):
    with pytest.raises(ConfigError, match="cannot be listened on"):
        Receiver("127.0.0.1", receiver.server_port, None)
