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
            "campaign": run.name,
            "files": f"{run.files:,}",
            "state": run.stage.value,
            "plan": run.plan or "-",
            "remark": run.said or "-",
        }
        for run in state.runs
    ]
    files = [
        {"file": file.name, "records": f"{file.records:,}", "block": _block(file)}
        for file in state.accepted
    ]
    quarantine = [
        {"file": file.name, "where it is": file.place, "why": file.reason}
        for file in state.quarantined
    ]
    titles = {"Campaigns": runs, "Accepted files": files, "Files in quarantine": quarantine}
    return [table(_title(title, rows), rows[-_LATEST:]) for title, rows in titles.items() if rows]


def _title(title: str, every: Sequence[object]) -> str:
    left_out = len(every) - _LATEST
    return f"{title} (the last {_LATEST} of {len(every):,})" if left_out > 0 else title


def _block(file: Accepted) -> str:
    if not file.registered:
        return "not yet"
    return "-" if file.block is None else str(file.block)
