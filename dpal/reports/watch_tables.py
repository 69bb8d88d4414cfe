"""What a watch found and did, for people. No record's content and no id is in it."""

from __future__ import annotations

from collections.abc import Sequence

from dpal.data.inbox.state import Accepted, WatchState
from dpal.reports.report import Table, table

_LATEST = 20


def watch_tables(state: WatchState) -> list[Table]:
    """Campaigns that were started or refused, accepted files and those in quarantine: the last."""
    runs = [
        {
            "campaign": one.name,
            "files": f"{one.files:,}",
            "state": one.stage.value,
            "plan": one.plan or "-",
            "remark": one.said or "-",
        }
        for one in state.runs
    ]
    files = [
        {"file": one.name, "records": f"{one.records:,}", "block": _block(one)}
        for one in state.accepted
    ]
    quarantine = [
        {"file": one.name, "where it is": one.place, "why": one.reason} for one in state.quarantined
    ]
    titles = {"Campaigns": runs, "Accepted files": files, "Files in quarantine": quarantine}
    return [table(_title(title, rows), rows[-_LATEST:]) for title, rows in titles.items() if rows]


def _title(title: str, every: Sequence[object]) -> str:
    left_out = len(every) - _LATEST
    return f"{title} (the last {_LATEST} of {len(every):,})" if left_out > 0 else title


def _block(one: Accepted) -> str:
    if not one.registered:
        return "not yet"
    return "-" if one.block is None else str(one.block)
