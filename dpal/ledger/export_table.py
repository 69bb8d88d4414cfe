"""The ledger as a table: for people, for Parquet and for CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpal.canonical import canonical_json
from dpal.errors import LedgerError
from dpal.files.atomic_writes import atomic_write
from dpal.files.csv_injection import as_cell
from dpal.ledger.entries import Entry, EntryKind

if TYPE_CHECKING:
    import pandas as pd

WHOLE, REAL, TEXT = "Int64", "Float64", "string"

# Name: type and meaning. An entry gives one row; a reservation one for each of its charges,
# a hold or an end one for each block of the data set, if there is one.
COLUMNS: dict[str, tuple[str, str]] = {
    "sequence": (WHOLE, "number of the entry; rows of one entry share it"),
    "kind": (TEXT, "what happened: open, adopt, register, limit, block, hold, reserve, ..."),
    "release": (TEXT, "which release, data set or block; empty for a plan"),
    "cohorts": (TEXT, "whom a charge is about, separated by commas"),
    "mechanism": (TEXT, "of a charge"),
    "steps": (WHOLE, "of DP-SGD, as charged"),
    "sample_rate": (REAL, "chance that a record of the cohorts joins a batch"),
    "noise_multiplier": (REAL, "standard deviation of the noise over the sensitivity"),
    "epsilon": (REAL, "pure loss of a selection by noisy scores"),
    "overflow": (REAL, "chance that a threshold fails; counts as delta"),
    "above": (REAL, "chance of yes for a record above the threshold"),
    "below": (REAL, "chance of yes for one below"),
    "blank": (REAL, "chance of yes for a blanked record"),
    "steps_on_disk": (WHOLE, "of a training under way, persisted by a checkpoint"),
    "target_epsilon": (REAL, "what a hold promises, or the limit of a data set"),
    "delta": (REAL, "of the campaign's promise, or of the data set's limit"),
    "adjacency": (TEXT, "of the promise or limit"),
    "unit": (TEXT, "of the promise or limit"),
    "dataset": (TEXT, "which data set the row is about"),
    "block": (WHOLE, "which block of it"),
    "size": (WHOLE, "owners of the block; in a hold or end, those that take part"),
    "participation": (REAL, "factor on every sample rate of training for the block"),
    "basis": (TEXT, "how a campaign's part of a block is bounded: renyi (added up) or sole"),
    "block_epsilon": (REAL, "what the campaign alone costs a record of the block"),
    "divergence": (WHOLE, "what it takes of the block at the data set's order, in 1e-9"),
    "reason": (
        TEXT,
        "why a limit changed, similar records were added, a copy was adopted, or a release was "
        "forfeited",
    ),
    "recorded_at": (TEXT, "day in UTC on which the plan was held; of no plan, the entry's own"),
    "campaign": (TEXT, "whose entry it is; empty for data owners and the ledger itself"),
    "body": (TEXT, "everything that the entry says, as canonical JSON"),
    "previous": (TEXT, "digest of the entry before"),
    "digest": (TEXT, "SHA-256 of the entry's canonical JSON"),
}
_OF_EVENTS = (
    "mechanism", "steps", "sample_rate", "noise_multiplier", "epsilon", "overflow", "above",
    "below", "blank",
)  # fmt: skip


def ledger_table(entries: Iterable[Entry]) -> pd.DataFrame:
    """Lays entries out with the columns `COLUMNS`, in order, each of its type.

    Delta, adjacency and unit stand in every row of a campaign, as its hold gives them.
    """
    rows: list[dict[str, Any]] = []
    promises: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry.kind is EntryKind.HOLD:
            promise = {key: entry.body[key] for key in ("delta", "adjacency", "unit")}
            promises[entry.campaign] = promise
        common = {
            **promises.get(entry.campaign, {}),
            "sequence": entry.sequence,
            "recorded_at": entry.recorded_at,
            "campaign": entry.campaign,
            "kind": entry.kind.value,
            "release": entry.release,
            "body": canonical_json(entry.body),
            "previous": entry.previous,
            "digest": entry.digest,
        }
        rows += [{**common, **details} for details in _details(entry)]
    import pandas as pd  # plans read ledgers without it

    table = pd.DataFrame(rows, columns=list(COLUMNS))
    # Early ledgers took any reason, also one that no file can hold.
    table["reason"] = table["reason"].map(_writable, na_action="ignore")
    return table.astype({name: kind for name, (kind, _) in COLUMNS.items()})


def write_ledger(entries: Iterable[Entry], path: Path) -> None:
    """Exports entries to Parquet; the file says what its columns mean."""
    table = pa.Table.from_pandas(ledger_table(entries), preserve_index=False)
    fields = [field.with_metadata({"meaning": COLUMNS[field.name][1]}) for field in table.schema]
    table = table.cast(pa.schema(fields, metadata=table.schema.metadata))
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary)


def export_ledger(entries: Iterable[Entry], path: Path) -> None:
    """Exports entries to Parquet or CSV, as the file's name ends.

    Raises:
      LedgerError: it ends otherwise. Nothing was written.
    """
    if path.suffix == ".parquet":
        write_ledger(entries, path)
    elif path.suffix == ".csv":
        table = ledger_table(entries)
        # Some of it is free text, and spreadsheets run what looks like a formula.
        for name, (kind, _) in COLUMNS.items():
            if kind == TEXT:
                table[name] = table[name].map(as_cell, na_action="ignore")
        with atomic_write(path) as temporary:
            table.to_csv(temporary, index=False)
    else:
        raise LedgerError(
            f"{path} ends in neither .parquet nor .csv, and the ledger is exported to these; "
            "nothing was written"
        )


def _writable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _details(entry: Entry) -> Iterator[dict[str, Any]]:
    """What stands in an entry's rows besides its frame."""
    body = entry.body
    if entry.kind is EntryKind.RESERVE and body.get("charges"):
        for charge in body["charges"]:
            # A column that another kind of row is about must not take a parameter of its name.
            told = {key: charge["event"][key] for key in _OF_EVENTS if key in charge["event"]}
            yield {**told, "cohorts": ",".join(charge["cohorts"])}
    elif entry.kind in (EntryKind.HOLD, EntryKind.END):
        promised = {"target_epsilon": body["epsilon"]} if entry.kind is EntryKind.HOLD else {}
        data = body.get("data")
        if not data:
            yield promised
            return
        for share in data["blocks"]:
            same = {key: share[key] for key in ("block", "size", "participation", "basis")}
            yield {
                **promised,
                **same,
                "dataset": data["name"],
                "block_epsilon": share["epsilon"],
                "divergence": share["divergence"],
            }
    elif entry.kind in (EntryKind.REGISTER, EntryKind.LIMIT):
        same = {key: body.get(key) for key in ("dataset", "delta", "adjacency", "unit", "reason")}
        yield {**same, "target_epsilon": body["epsilon"]}
    elif entry.kind is EntryKind.CHECKPOINT:
        yield {"steps_on_disk": body["steps"]}
    elif entry.kind in (EntryKind.BLOCK, EntryKind.INDEX):
        yield {key: body.get(key) for key in ("dataset", "block", "size", "reason")}
    else:
        yield {"reason": body.get("reason")}
