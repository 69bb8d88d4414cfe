"""What a watch found and did, for people. No record's content and no id is in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from dpal.data.inbox.state import Accepted, WatchState
from dpal.reports.report import Table

_LATEST = 20

One = TypeVar("One")


def files_table(state: WatchState) -> Table:
    """The files that were accepted last."""
    rows = tuple((one.name, f"{one.records:,}", _block(one)) for one in _latest(state.accepted))
    return Table(_title("Accepted files", state.accepted), ("file", "records", "block"), rows)


def quarantine_table(state: WatchState) -> Table:
    """The files that were put into quarantine last."""
    rows = tuple((one.name, one.place, one.reason) for one in _latest(state.quarantined))
    return Table(
        _title("Files in quarantine", state.quarantined), ("file", "where it is", "why"), rows
    )


def runs_table(state: WatchState) -> Table:
    """The campaigns that were started, or refused, last."""
    rows = tuple(
        (one.name, f"{one.files:,}", one.stage.value, one.plan or "-", one.said or "-")
        for one in _latest(state.runs)
    )
    columns = ("campaign", "files", "state", "plan", "remark")
    return Table(_title("Campaigns", state.runs), columns, rows)


def watch_tables(state: WatchState) -> list[Table]:
    """All that there is something to show of."""
    every = (runs_table(state), files_table(state), quarantine_table(state))
    return [one for one in every if one.rows]


def _latest(every: Sequence[One]) -> Sequence[One]:
    return every[-_LATEST:]


def _title(title: str, every: Sequence[object]) -> str:
    left_out = len(every) - _LATEST
    return f"{title} (the last {_LATEST} of {len(every):,})" if left_out > 0 else title


def _block(one: Accepted) -> str:
    if not one.registered:
        return "not yet"
    return "-" if one.block is None else str(one.block)
