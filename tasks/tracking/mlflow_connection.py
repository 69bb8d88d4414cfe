"""The MLflow server: where it is, and what happens while it does not answer.

It is waited for: nothing that is told to it is lost, since every piece of it may be told
again. Name and password come from the environment, as MLflow reads them itself.
"""

from __future__ import annotations

import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import urlsplit

from mlflow.exceptions import MlflowException
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from dpal.config.campaign import RuntimeConfig
from dpal.errors import DpalError
from dpal.runs.progress_logging import notify

T = TypeVar("T")

TROUBLE = (MlflowException, SQLAlchemyError, ImportError, OSError)
PATIENCE = "DPAL_MLFLOW_PATIENCE_SECONDS"  # how long a server is waited for, if not 5 minutes

_REFUSED = {401: "asks who you are", 403: "does not allow this user to write there"}
_PAUSE, _SAY_AGAIN, _LOOK = 3.0, 60.0, 30.0  # seconds
_AT_ONCE = 5  # times that others may have written the same at the same moment
# What Postgres, SQLite and SQLAlchemy say of a row that another one has just made.
_THERE_ALREADY = ("UniqueViolation", "UNIQUE constraint failed", "IntegrityError")
# By default MLflow tries each request for minutes, and nobody would be told.
_QUICK = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


class TrackingError(DpalError):
    """MLflow could not be reached or refused. The campaign's files and ledger are kept."""

    code = "tracking"


def tracking_uri(runtime: RuntimeConfig) -> str:
    """Where runs are tracked: as configured, else this machine's server, else SQLite."""
    # Not MLFLOW_TRACKING_URI: MLflow itself sets that one for every process it was told a URI in.
    here = f"sqlite:///{runtime.artifacts.resolve() / 'mlflow.sqlite'}"
    return runtime.mlflow_uri or os.environ.get("DPAL_MLFLOW_URI") or here


def without_password(uri: str) -> str:
    """The address, fit to be shown."""
    parts = urlsplit(uri)
    if "@" not in parts.netloc:
        return uri
    return parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]).geturl()


def retry_while_mlflow_is_down(uri: str, tell: Callable[[], T], *, patient: bool = True) -> T:
    """Tells MLflow something, and waits some minutes for a server that does not answer.

    Args:
      uri: of the server or database.
      tell: what is told; done again from its start after an interruption.
      patient: whether a server is waited for; not before anything is spent.

    Raises:
      TrackingError: MLflow refused, or did not answer in time.
    """
    for name, value in _QUICK.items():
        os.environ.setdefault(name, value)
    began, patience = time.monotonic(), float(os.environ.get(PATIENCE, "300"))
    silent_since, said_at, at_once = "", 0.0, _AT_ONCE
    while True:
        try:
            answer = tell()
        except TROUBLE as error:
            if at_once and _is_there_already(error):  # told again, it is found
                at_once -= 1
                continue
            now, reason = time.monotonic(), _in_short(error, uri)
            if not silent_since:
                silent_since, began = _clock(), now
            if not patient or not _may_come_back(error, uri) or now - began >= patience:
                raise _refusal(uri, error, reason, silent_since) from error
            if not said_at or now - said_at >= _SAY_AGAIN:
                left = max(1, round((patience - (now - began)) / 60))
                notify(
                    f"MLflow at {without_password(uri)} does not answer since {silent_since} UTC "
                    f"({reason}); nothing is lost, trying for {left} more minutes"
                )
                said_at = now
            time.sleep(_PAUSE)
        else:
            if silent_since:
                notify(f"MLflow at {without_password(uri)} answers again")
            return answer


@contextmanager
def watching_server(runtime: RuntimeConfig) -> Iterator[None]:
    """Says within a minute that the MLflow server went away, also while a phase trains.

    Training goes on meanwhile: it does not need the server.
    """
    uri, over = tracking_uri(runtime), threading.Event()
    if not uri.startswith("http"):
        yield
        return
    # In this context `notify` finds the page of the flow run.
    watcher = threading.Thread(
        target=copy_context().run, args=(_watch, uri, over), name="mlflow-watch", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        over.set()


def _watch(uri: str, over: threading.Event) -> None:
    away = False
    while not over.wait(_LOOK):
        answers = _answers(uri)
        if answers is away:  # it changed
            shown = without_password(uri)
            notify(
                f"MLflow at {shown} answers again"
                if answers
                else f"MLflow at {shown} does not answer since {_clock()} UTC; training goes on, "
                "and the results are kept until it does"
            )
            away = not answers


def _answers(uri: str) -> bool:
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=10) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError as error:
        return getattr(error, "code", None) in _REFUSED  # a server that asks for a name is there


def _is_there_already(error: Exception) -> bool:
    """Whether somebody made the same at the same moment, such as the experiment's first tags."""
    return any(sign in f"{type(error).__name__}: {error}" for sign in _THERE_ALREADY)


def _may_come_back(error: Exception, uri: str) -> bool:
    """Whether a server was silent or broken for a moment; what it refuses is not asked again."""
    if not uri.startswith("http"):
        return isinstance(error, OperationalError) and uri.startswith("postgresql")
    if status := _status(error):
        return status >= 500
    return isinstance(error, ConnectionError | TimeoutError) or type(error).__module__.startswith(
        ("requests.", "urllib3.")
    )


def _status(error: Exception) -> int:
    if isinstance(error, MlflowException):
        status: int = error.get_http_status_code()  # type: ignore[no-untyped-call]
        return status
    return int(getattr(getattr(error, "response", None), "status_code", 0))


def _refusal(uri: str, error: Exception, reason: str, since: str) -> TrackingError:
    where = f"MLflow at {without_password(uri)}"
    status = _status(error)
    if status in _REFUSED and uri.startswith("http"):
        return TrackingError(
            f"{where} {_REFUSED[status]} ({status}); set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD in the environment of this command, nothing was lost"
        )
    return TrackingError(
        f"{where} did not take the results since {since} UTC ({reason}); nothing was lost, run "
        "the same command again once it answers"
    )


def _in_short(error: Exception, uri: str) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    for sign in ("Connection refused", "Read timed out", "Name or service not known"):
        if sign in reason:
            return sign.lower()
    return reason.replace(uri, without_password(uri))[:200]


def _clock() -> str:
    return datetime.now(UTC).strftime("%H:%M:%S")
