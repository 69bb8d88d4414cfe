"""The boundary to Prefect: every task and flow is made here, and says public things only.

What a task raises stands in Prefect's logs, states and events for everybody who opens its page. So
it leaves as an error of ours, whose message is public (`dpal/errors.py`), and alone: without the
exceptions behind it, their notes and tracebacks. Any other exception becomes one fixed sentence
with a number; what it said goes into a file that only the person who runs the campaign can read.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeGuard, TypeVar

import httpx
import prefect
from platformdirs import user_state_path
from prefect import Flow, Task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import (
    CancelledRun,
    ExternalSignal,
    FailedRun,
    MissingContextError,
    PrefectHTTPStatusError,
    PrefectSignal,
)
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Failed

import dpal
from dpal.config.runtime import RunConfig
from dpal.errors import DpalError, ServerLost, TrainingStopped, UnexpectedError
from dpal.files.artifacts import ERRORS, RECORD, CampaignFolder
from dpal.files.atomic_writes import write_text
from dpal.runs.host import run_on
from dpal.runs.kinds import parse_any
from dpal.runs.progress_logging import PAGE
from tasks.allow_list import require_allowed
from tasks.prefect_host import PrefectHost
from tasks.refuse_stored_results import refuse_stored_results

P = ParamSpec("P")
R = TypeVar("R")

# No result is cached, written down or looked for, whatever Prefect's settings say, and what is
# printed does not become a log.
_NOTHING_KEPT: dict[str, Any] = {"persist_result": False, "log_prints": False}
_SIGNALS = (PrefectSignal, ExternalSignal, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
_UNREACHED = "Failed to reach API"  # how Prefect says so before a flow run; a plain RuntimeError

_MOST = 100  # files in one folder: what is tried again every minute may fail every minute


class _Page(logging.Handler):
    """Shows public facts on the page of the flow run that says them, if it is one."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(MissingContextError):
            get_run_logger().info(record.getMessage())


class _SentenceAlone(logging.Filter):
    """Has a run's page say an error of ours in its sentence.

    Prefect logs how it called the task as well: a screen of its own files, above the next line.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None and is_public(error):
            record.msg, record.args = str(error), ()
            record.exc_info = record.exc_text = None
        return True


PAGE.handlers[:] = [_Page()]
for _runs in ("flow_runs", "task_runs"):
    logging.getLogger(f"prefect.{_runs}").addFilter(_SentenceAlone())
run_on(PrefectHost())
refuse_stored_results()

_ABOUT: ContextVar[CampaignFolder | None] = ContextVar("whose errors are kept", default=None)


def task(**options: Any) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Makes a Prefect task whose errors are public; options are those of `prefect.task`."""

    def made(work: Callable[P, R]) -> Task[P, R]:
        @wraps(work)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            raised: BaseException
            with _known_place((*args, *kwargs.values())):
                try:
                    return work(*args, **kwargs)
                except BaseException as error:
                    raised = public_error(error, work.__name__)
            raise raised from None

        settings = {"cache_policy": NO_CACHE, **options, **_NOTHING_KEPT}
        return prefect.task(**settings)(guarded)

    return made


def releasing_task(work: Callable[P, R]) -> Task[P, R]:
    """Makes a task that draws noise: a retry would be a second, unpaid release."""
    return task(retries=0)(work)


def flow(**options: Any) -> Callable[[Callable[P, R]], Flow[P, R]]:
    """Makes a Prefect flow whose errors are public; options are those of `prefect.flow`.

    It does not raise, but ends in the state Failed, or Cancelled where training was stopped, which
    raises at the caller: Prefect would persist what a flow raises, whatever its settings are.
    """

    def made(work: Callable[P, R]) -> Flow[P, R]:
        @wraps(work)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> Any:
            raised: BaseException
            with _known_place((*args, *kwargs.values())):
                try:
                    return work(*args, **kwargs)
                except BaseException as error:
                    raised = public_error(error, work.__name__)
            if isinstance(raised, TrainingStopped):
                return Cancelled(message=str(raised))
            if isinstance(raised, Exception):
                return Failed(message=str(raised), data=raised)
            raise raised from None

        # Prefect reads the types of parameters, and would look for their names in this module.
        guarded.__signature__ = inspect.signature(work, eval_str=True)  # type: ignore[attr-defined]
        settings = {"version": dpal.__version__, **options, **_NOTHING_KEPT}
        return prefect.flow(**settings)(guarded)

    return made


def public_error(error: BaseException, step: str) -> BaseException:
    """What may leave in place of an exception: a signal, or an error of ours, alone.

    Args:
      error: as it was raised; what is not public of it is written to the confidential file.
      step: the task or flow that it leaves.
    """
    try:
        return _public(error, step)
    except KeyboardInterrupt:
        return KeyboardInterrupt()
    except BaseException:  # an exception that raises others while it is looked at
        return UnexpectedError(step, secrets.token_hex(4), "")


def is_public(error: BaseException) -> TypeGuard[DpalError]:
    """Whether an exception's message is public: an error of ours that says what its class says."""
    return isinstance(error, DpalError) and _is_plain(error.args)


def is_server_lost(error: BaseException) -> bool:
    """Whether Prefect's client says that its server does not answer, or only with an error.

    A server whose database is locked for too long, as on a busy machine, answers with one.
    """
    if isinstance(error, PrefectHTTPStatusError):
        return error.response.is_server_error
    return isinstance(error, httpx.TransportError | ServerLost) or (
        isinstance(error, RuntimeError) and str(error).startswith(_UNREACHED)
    )


def reason_of(error: BaseException) -> str:
    """In a few words, how a server was found not to answer."""
    if isinstance(error, ServerLost):
        return error.reason
    if isinstance(error, PrefectHTTPStatusError):
        return f"status {error.response.status_code}"
    return type(error).__name__


def errors_elsewhere() -> Path:
    """Where details of errors are kept that no campaign's folder is known for."""
    return user_state_path("dpal") / ERRORS


def _public(error: BaseException, step: str) -> BaseException:
    if isinstance(error, _SIGNALS) or _is_exit(error):
        return _alone(error)
    if is_public(error):
        if error.detail and not error.kept:
            error.kept = _keep(error, step, error.detail)[1]
        return _alone(error)
    if isinstance(error, CancelledRun):  # a flow run within this one, with a message of ours
        return TrainingStopped(str(error))
    if isinstance(error, FailedRun):  # the same where only its state's message came back
        return DpalError(str(error))
    if is_server_lost(error):
        return ServerLost(reason_of(error))
    return UnexpectedError(step, *_keep(error, step))


@contextmanager
def _known_place(values: Iterable[object]) -> Iterator[None]:
    """Within this block, details are kept beside the campaign that one of the values is about."""
    folder = next(filter(None, map(_folder_of, values)), None)
    token = _ABOUT.set(folder or _ABOUT.get())
    try:
        yield
    finally:
        _ABOUT.reset(token)


def _folder_of(value: object) -> CampaignFolder | None:
    """The campaign's folder that a value handed to a task speaks of, if it does."""
    with suppress(Exception):  # settings may still be unchecked, and nothing may fail here
        if isinstance(value, Path) and (value / RECORD).is_file():
            return CampaignFolder(value)
        config = value if isinstance(value, RunConfig | Mapping) else vars(value).get("config")
        if isinstance(config, Mapping):
            config = parse_any(config)
        if isinstance(config, RunConfig):
            return CampaignFolder(config.runtime.artifacts / config.name)
    return None


def _alone(error: BaseException) -> BaseException:
    """The same exception without those behind it, where it came from, and notes."""
    error.__cause__ = error.__context__ = error.__traceback__ = None
    vars(error).pop("__notes__", None)
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError | GeneratorExit):
        error.args = ()
    return error


def _is_exit(error: BaseException) -> bool:
    """Whether a process is to end with a number; a text would be an error of some library."""
    return isinstance(error, SystemExit) and isinstance(error.code, int | None)


def _is_plain(arguments: Iterable[object]) -> bool:
    """Whether an error's arguments are what its class says, and no object that says more."""
    return all(
        _is_plain(argument)
        if type(argument) is tuple
        else isinstance(argument, str | int | float | None)
        for argument in arguments
    )


def _errors_folder() -> Path:
    """Where details are kept: beside their campaign, unless a run may write nothing there."""
    about = _ABOUT.get()
    if about is None:
        return errors_elsewhere()
    try:  # whoever started a run from Prefect chose the folder, and the list may not be asked yet
        require_allowed(artifacts=about.root.parent)
    except Exception:
        return errors_elsewhere()
    return about.errors


def _keep(error: BaseException, step: str, detail: str = "") -> tuple[str, str]:
    """Writes what happened for its owner alone; returns its number, and where (empty: nowhere)."""
    number, folder = secrets.token_hex(4), _errors_folder().absolute()
    path = folder / f"{number}.txt"
    try:
        told = "".join(traceback.format_exception(error))
        write_text(path, f"{step}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC\n{detail}\n\n{told}")
        for old in sorted(folder.glob("*.txt"), key=lambda file: file.stat().st_mtime)[:-_MOST]:
            old.unlink(missing_ok=True)
    except Exception:  # a full disk, or an exception that cannot be printed: the rest still holds
        return number, ""
    return number, str(path)
