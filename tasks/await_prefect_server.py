"""Asking Prefect's server, with patience where it may be away for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL

from dpal.runs.progress_logging import notify

SERVER_SECONDS = 900.0
_LONGEST_WAIT = 15.0

Answer = TypeVar("Answer")


def has_server() -> bool:
    """Whether there is a server that other processes can speak to as well."""
    return bool(PREFECT_API_URL.value())


def retry_while_prefect_is_down(ask: Callable[[SyncPrefectClient], Answer]) -> Answer:
    """Asks Prefect's server, again for some minutes while it does not answer, and says so.

    A server that belongs to this process alone does not come back; it is asked once.

    Raises:
      httpx.TransportError: it stayed away.
    """
    deadline, wait, told = time.monotonic() + SERVER_SECONDS, 1.0, False
    while True:
        try:
            with get_client(sync_client=True) as client:
                answer = ask(client)
        except (httpx.TransportError, PrefectHTTPStatusError, RuntimeError) as error:
            if not _is_away(error) or not has_server() or time.monotonic() > deadline:
                raise
            if not told:
                notify("Prefect's server does not answer; what runs goes on, and it is asked again "
                    f"for {SERVER_SECONDS / 60:.0f} minutes")  # fmt: skip
                told = True
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        else:
            if told:
                notify("Prefect's server answers again")
            return answer


def await_server() -> None:
    """Waits some minutes for Prefect's server, if it went away while nobody needed it."""
    with suppress(httpx.TransportError, RuntimeError):  # whoever needs it next says so
        retry_while_prefect_is_down(lambda client: client.api_version())


def _is_away(error: Exception) -> bool:
    if isinstance(error, PrefectHTTPStatusError):
        return bool(error.response.status_code >= 500)
    return isinstance(error, httpx.TransportError) or "reach API" in str(error)
