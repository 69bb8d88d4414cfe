"""Prefect's temporary server, and what is said when a server does not answer."""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from dpal.errors import DpalError
from flows.cli.terminal import err, leave_at_once
from flows.ops.temporary_server import TemporaryServer


@contextmanager
def starting_prefect() -> Iterator[None]:
    """Starts Prefect's temporary server, where none is named, beside what the block imports.

    Raises:
      PrefectNotStarted: the server ended, or made no progress.
      DeployError: one is named that must not be sent what is set.
    """
    with _loading():
        from prefect.settings import PREFECT_API_URL, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE

        from flows.ops.prefect_connection import require_no_password_for_cloud

        if place := PREFECT_API_URL.value():
            require_no_password_for_cloud(place)
        if place or not PREFECT_SERVER_ALLOW_EPHEMERAL_MODE.value():
            yield
            return
        from prefect.server.api.server import SubprocessASGIServer  # takes two seconds to import

        # One for the whole process: whatever of Prefect wants a temporary server asks for this.
        shared = SubprocessASGIServer()
        if shared.running:
            yield
            return
        server = TemporaryServer()
        atexit.register(server.stop)
        yield
    server.wait_until_ready(lambda line: err.print(line, style="dim"))
    shared.port, shared.server_process, shared.running = server.port, server.process, True


@contextmanager
def _loading() -> Iterator[None]:
    """Within this block much is imported, and stays: nothing to look through for garbage.

    Neither now nor at exit, where Python otherwise spends two seconds on it.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


@contextmanager
def needing_prefect() -> Iterator[None]:
    """Ends the process with one sentence and exit code 2 when Prefect's server is gone.

    At once: lines and events that wait to be sent to that server would hold the process
    for minutes. The campaign's files and ledger are kept.
    """
    from prefect.exceptions import FailedRun

    from tasks.boundary import is_server_lost, reason_of

    try:
        yield
    except FailedRun as failed:  # its server was away for a moment, and gave the message alone
        raise DpalError(str(failed)) from None
    except Exception as error:
        if not is_server_lost(error):
            raise
        place = os.environ.get("PREFECT_API_URL", "its temporary address")
        leave_at_once(
            f"dpal: Prefect at {place} does not answer ({reason_of(error)}); nothing was lost, run "
            "the same command again once it answers",
            2,
        )
