"""`dpal watch`: new files in a folder become campaigns."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpal.errors import ConfigError, DpalError, LedgerTampered
from flows.cli.any_settings import load_watch
from flows.cli.read_settings import Settings
from flows.cli.terminal import err, out, print_table, stop_at_once_on_interrupt

if TYPE_CHECKING:
    from dpal.config.watch import WatchConfig

EXAMPLE = "Example: dpal watch watch.yaml --once"

WatchFile = Annotated[Path, typer.Argument(metavar="FILE", help="Settings of the watch (YAML).")]


def watch_command(
    file: WatchFile,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Show what was found and done; look at nothing.")
    ] = False,
    settings: Settings = [],  # noqa: B006
) -> None:
    """Turn new Parquet files in a folder into blocks of a data set, and campaigns on them."""
    if once and status:
        raise ConfigError("--once looks and --status does not; ask for one of the two")
    config = load_watch(file, settings)
    if status:
        _show(config)
        return
    from flows.cli.orchestrator import starting_prefect

    err.print("starting Prefect ...", style="dim")
    stop_at_once_on_interrupt()
    with starting_prefect():
        import flows.watch  # noqa: F401  for every look
    if once:
        _look(config)
        return
    while True:
        try:
            _look(config)
        except LedgerTampered:
            raise
        except DpalError as error:  # a person corrects it, and the watch goes on
            err.print(f"dpal: {error.for_owner()}", style="red", markup=False)
        after = config.next_look(datetime.now(UTC))
        err.print(f"next look at {after:%H:%M:%S} ({after.tzname()}); Ctrl-C ends", style="dim")
        time.sleep(max(0.0, (after - datetime.now(UTC)).total_seconds()))


def _look(config: WatchConfig) -> None:
    from flows.cli.orchestrator import needing_prefect
    from flows.watch import watch as watch_flow
    from tasks.watch import describe_watch, watch_folder

    with needing_prefect():
        watch_flow(config)
    out.print(describe_watch(config, watch_folder(config).read()), markup=False)


def _show(config: WatchConfig) -> None:
    from dpal.reports.ledger_tables import blocks_table, limit_in_words
    from dpal.reports.watch_tables import watch_tables
    from tasks.watch import describe_watch, registered_data_set, watch_folder

    data_set, state = registered_data_set(config), watch_folder(config).read()
    for table in (*watch_tables(state), blocks_table(data_set)):
        print_table(table)
    out.print(f"limit of data set {data_set.name}: {limit_in_words(data_set.limit)}", markup=False)
    out.print(f"{config.folder}: {state.remark or 'not looked at yet'}", markup=False)
    out.print(describe_watch(config, state), markup=False)
