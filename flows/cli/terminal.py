"""How `dpal` speaks in a terminal: tables, progress lines, errors of one sentence."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import typer
import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from dpal.config.yaml_loader import read_yaml
from dpal.errors import ConfigError, DpalError, LedgerTampered, UnexpectedError
from dpal.reports.report import Table

# Names of people are no markup: a book may be called "digits [/draft]", a folder "study [final]".
out = Console(highlight=False, markup=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

# Newer typers carry their own click; whichever it is, this is its base of usage errors.
_UsageError = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

_INTERRUPTED = "interrupted; nothing was lost, run the same command again to continue"

_QUIET = {
    "DO_NOT_TRACK": "1",
    "DVC_NO_ANALYTICS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # The newer pages ask a host outside for settings of their telemetry, on or off.
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # A temporary server has no page of its own: no page in a browser is answered, or may change it.
    "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "http://nobody.invalid",
    "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
    # What `dpal deploy` installs gives up whoever is silent for three times as long.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # On a busy machine a statement may wait for longer than the ten seconds of the default.
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    # A server that died should be reported in seconds; by default each request waits minutes.
    "PREFECT_CLIENT_MAX_RETRIES": "2",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    # Prefect's own lines go to its page; the terminal shows ours.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "GIT_PYTHON_REFRESH": "quiet",
    # Of torch.distributed, when an address has no name.
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


def prepare_process() -> None:
    """Sets what must stand before Prefect and MLflow are imported; what is set already wins."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files may be no text
        sys.stdout.reconfigure(errors="backslashreplace")
    os.umask(0o077)  # whatever a campaign writes, only its owner reads
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", datefmt="%H:%M:%S"))
    logger = logging.getLogger("dpal")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logging.raiseExceptions = False  # a line that cannot reach Prefect's page is no news here
    for noisy in ("alembic", "mlflow", "absl"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    # Its tracebacks of a full disk come before our sentence about the same.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def stop_at_once_on_interrupt() -> None:
    """Lets Ctrl-C end a run whose Prefect server lives as long as the run.

    The interrupt reaches that server as well; reporting to it would then be retried for
    minutes. Nothing is lost by leaving: a campaign continues from a kill at any point.
    """
    if not os.environ.get("PREFECT_API_URL"):
        signal.signal(signal.SIGINT, _leave)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    leave_at_once(f"\ndpal: {_INTERRUPTED}", 130)


def leave_at_once(sentence: str, code: int) -> NoReturn:
    """Ends the process, and those it started, without waiting for what Prefect has to send."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    os.write(sys.stderr.fileno(), f"{sentence}\n".encode())
    os._exit(code)


def print_table(table: Table) -> None:
    """Prints a table, numbers aligned to the right, words to the left.

    One whose words would be broken, and not if it lay on its side, lies on its side.
    """
    if _spare(table, out.width) < 0 <= _spare(on_its_side := _turned(table), out.width):
        table = on_its_side
    rich = RichTable(
        title=f"\n{table.title}",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    widths = _widths(table, out.width)
    for index, column in enumerate(table.columns):
        # Folded rather than cut: on the narrowest terminal no digit may go missing.
        side: JustifyMethod = "right" if table.is_number(index) else "left"
        rich.add_column(column, justify=side, overflow="fold", width=widths[index])
    for row in table.rows:
        rich.add_row(*(Text(cell) for cell in row))  # a reason is free text, and no markup
    out.print(rich)


def _widths(table: Table, room: int) -> list[int] | list[None]:
    """Widths of columns that break no word, if the room allows it; else rich decides."""
    cells = [table.columns, *table.rows]
    numbers = range(len(table.columns))
    whole, words = [max(len(row[index]) for row in cells) for index in numbers], _longest(table)
    spare = _spare(table, room)
    if spare < 0 or sum(whole) + _lines(table) <= room:
        return [None] * len(whole)
    # The least first: a figure and its unit stay in one line, and sentences are broken.
    for index in sorted(numbers, key=lambda number: whole[number] - words[number]):
        more = min(spare, whole[index] - words[index])
        words[index], spare = words[index] + more, spare - more
    return words


def _longest(table: Table) -> list[int]:
    """The longest word of each column."""
    cells = [table.columns, *table.rows]
    return [
        max(len(word) for row in cells for word in row[index].split() or [""])
        for index in range(len(table.columns))
    ]


def _lines(table: Table) -> int:
    """What lies between columns."""
    return 3 * len(table.columns) - 1


def _spare(table: Table, room: int) -> int:
    """What is left of a line where no word is broken; below 0 where some are."""
    return room - sum(_longest(table)) - _lines(table)


def _turned(table: Table) -> Table:
    """A column for each row, below what the first one has."""
    first, *others = zip(table.columns, *table.rows, strict=True)
    return Table(table.title, first, tuple(others))


def how_to_open_mlflow(uri: str) -> str:
    """What a person does to see the campaign's runs."""
    from tasks.tracking.campaign_runs import without_password
    from tasks.tracking.mlflow_notes import RUNS_VIEW

    shown = without_password(uri)
    if uri.startswith("http"):
        return f"open {shown.rstrip('/')}/#/experiments{RUNS_VIEW}"
    return f"{_beside_us('mlflow')} ui --backend-store-uri {shlex.quote(shown)}"


def how_to_open_prefect() -> str | None:
    """What a person does to see the flow run; None where no server keeps it."""
    if os.environ.get("PREFECT_API_URL"):
        from tasks.tracking.mlflow_notes import prefect_pages

        return f"open {prefect_pages()}/runs"
    return None


def as_typed_here(command: str) -> str:
    """A command of dpal as it can be typed here, from whatever environment this is."""
    return _beside_us("dpal") + command.removeprefix("dpal")


def _beside_us(command: str) -> str:
    """A command as it can be typed here: bare if on the path, else from our environment."""
    on_path = shutil.which(command)
    beside = Path(sys.executable).with_name(command)
    if on_path and Path(on_path).parent == beside.parent:
        return command
    if not beside.exists():
        return command
    below = beside.is_relative_to(Path.cwd())
    return shlex.quote(str(beside.relative_to(Path.cwd()) if below else beside))


def parse_setting(text: str) -> tuple[str, Any]:
    """Reads one KEY=VALUE of --set; the value is YAML.

    Raises:
      ConfigError: there is no "=", or the value is not YAML.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set takes KEY=VALUE, such as privacy.epsilon=3, not {text!r}")
    try:
        return key.strip(), read_yaml(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {key}: {value!r} is not a value YAML can read") from error


def run_and_explain_errors(command: Callable[[], Any], *, as_json: bool = False) -> int:
    """Runs a command and turns every failure into one sentence and an exit code.

    Args:
      command: what is run.
      as_json: whether a program reads standard output: what an error of ours is stands there, too.

    Returns:
      0; 1 for a ledger that was altered; 2 for anything a person can correct; 130 when
      interrupted. Unexpected errors are 70, with the way to see where they come from: a file,
      where it was a task or a flow that broke.
    """
    try:
        code = command()
    except DpalError as error:
        if as_json:  # programs may keep what they read: its public part
            public = {"code": error.code, "released": error.released, "message": str(error)}
            print(json.dumps({"error": public}, indent=2))  # noqa: T201
        tampered, unforeseen = isinstance(error, LedgerTampered), isinstance(error, UnexpectedError)
        return _fail(error.for_owner(), 1 if tampered else 70 if unforeseen else 2)
    except typer.Exit as finished:
        return int(finished.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(_INTERRUPTED, 130)
    except Exception as error:
        if isinstance(error, _UsageError):
            return _fail(_without_dressing(error), 2)
        if os.environ.get("DPAL_DEBUG"):
            raise
        said = str(error).splitlines()[0][:200] if str(error) else "no message"
        return _fail(
            f"unexpected {type(error).__name__} ({said}); nothing beyond the ledger's entries was "
            "released, run again with DPAL_DEBUG=1 to see where it comes from",
            70,
        )
    if code == 130:  # typer turns an interrupt into this exit code without a word
        return _fail(_INTERRUPTED, 130)
    return code if isinstance(code, int) else 0


def _without_dressing(error: Exception) -> str:
    """The sentence of a usage error; the whole help where no command was named."""
    said = str(error.format_message()) if hasattr(error, "format_message") else str(error)
    return said if "\n" in said.strip() else said.strip().rstrip(".") + "; see --help"


def _fail(sentence: str, code: int) -> int:
    err.print(f"dpal: {sentence}", style="red", markup=False)
    return code
