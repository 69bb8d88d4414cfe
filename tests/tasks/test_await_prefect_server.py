"""Asking a server that is away, comes back, or refuses."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import prefect
import pytest
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from tasks import await_prefect_server
from tasks.await_prefect_server import await_server, has_server, retry_while_prefect_is_down


class Server:
    """A server of one page, which answers with given states first and well from then on."""

    def __init__(self) -> None:
        self.states: list[int] = []
        self.asked = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked += 1
                self.send_response(server.states.pop(0) if server.states else 200)
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(prefect.__version__).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/api"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setattr("tasks.await_prefect_server.time.sleep", lambda seconds: None)
    made = Server()
    with temporary_settings({PREFECT_API_URL: made.url, PREFECT_CLIENT_MAX_RETRIES: 0}):
        yield made
    made.close()


def version(client) -> str:
    return client.api_version()


def said(caplog) -> list[str]:
    """What our own logger said; threads of earlier tests may still be retrying something."""
    return [record.message for record in caplog.records if record.name == "dpal"]


def test_a_server_that_answers_is_asked_once_more_than_its_version(server, caplog):
    with caplog.at_level(logging.INFO, "dpal"):
        assert retry_while_prefect_is_down(version) == prefect.__version__
    assert said(caplog) == []
    assert has_server()


@pytest.mark.parametrize("states", [[503], [500, 503, 502]])
def test_one_that_has_troubles_is_asked_again_and_that_is_said_once(server, caplog, states):
    server.states = list(states)
    with caplog.at_level(logging.INFO, "dpal"):
        assert retry_while_prefect_is_down(version) == prefect.__version__
    away, back = said(caplog)
    assert "does not answer" in away
    assert "answers again" in back
    assert server.asked > len(states)


def test_a_refusal_is_not_repeated(server, caplog):
    def refused(client):
        server.states = [404]
        return client.request("GET", "/somewhere")

    with pytest.raises(PrefectHTTPStatusError):
        retry_while_prefect_is_down(refused)
    assert said(caplog) == []


def test_one_that_stays_away_is_given_up_in_the_end(server, monkeypatch):
    monkeypatch.setattr(await_prefect_server, "SERVER_SECONDS", -1.0)
    server.states = [503] * 20
    with pytest.raises((PrefectHTTPStatusError, RuntimeError)):
        retry_while_prefect_is_down(version)


def test_whoever_only_waits_lets_the_next_one_say_that_nobody_answers(server, monkeypatch):
    monkeypatch.setattr(await_prefect_server, "SERVER_SECONDS", -1.0)
    server.close()
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        await_server()


def test_without_an_address_there_is_no_server_that_others_know():
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert not has_server()
