"""The ledger as a table: one row per charge, for people and for Parquet."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from dpal.canonical import canonical_json
from dpal.ledger.entries import Entry, Kind
from dpal.persist import staged

COLUMNS = [
    "sequence",
    "kind",
    "release",
    "cohorts",
    "mechanism",
    "steps",
    "sample_rate",
    "noise_multiplier",
    "epsilon",
    "overflow",
    "above",
    "below",
    "blank",
    "delta",
    "adjacency",
    "unit",
    "recorded_at",
    "campaign",
    "body",
    "previous",
    "digest",
]


def ledger_table(entries: Iterable[Entry]) -> pd.DataFrame:
    """Lays entries out with the columns `COLUMNS`, in order.

    A reservation gives one row for each of its charges, with the mechanism's
    parameters; `epsilon` is the pure loss of a selection. Delta, adjacency and unit
    stand in every row, as the campaign's hold gives them.
    """
    rows: list[dict[str, Any]] = []
    promise: dict[str, Any] = {}
    for entry in entries:
        if entry.kind is Kind.HOLD:
            promise = {key: entry.body[key] for key in ("delta", "adjacency", "unit")}
        common = {
            **promise,
            "sequence": entry.sequence,
            "recorded_at": entry.recorded_at,
            "campaign": entry.campaign,
            "kind": entry.kind.value,
            "release": entry.release,
            "body": canonical_json(entry.body),
            "previous": entry.previous,
            "digest": entry.digest,
        }
        charges = entry.body.get("charges", []) if entry.kind is Kind.RESERVE else []
        for charge in charges:
            rows.append({**common, **charge["event"], "cohorts": ",".join(charge["cohorts"])})
        if not charges:
            rows.append(common)
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.astype({"steps": "Int64", "sequence": "Int64"})


def write_ledger(entries: Iterable[Entry], path: Path) -> None:
    """Exports entries to Parquet."""
    table = ledger_table(entries)
    with staged(path) as temporary:
        table.to_parquet(temporary, index=False)
