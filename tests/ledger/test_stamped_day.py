"""No entry of a campaign says when it was written, and none lets its labels be counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from dpal.ledger.chain import verify_chain
from dpal.ledger.entries import GENESIS, EntryKind, seal_entry
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.stamped_day import day_held, day_of
from tests.timing import COUNTS, STEPS, auc, figures_of_entries, moments, step_seconds

PHASES = 3
RUNS = 60  # of each count, half of them to learn from


class Clock:
    """A clock that is set forward."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def pass_by(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def today(self) -> date:
        return self.now.date()


def life(count: int, clock: Clock, *, slowness: float, seed: int):
    """The entries of a hidden campaign in their order, as time goes by."""
    generator = np.random.default_rng(seed)
    yield EntryKind.HOLD, "", {}
    for phase in range(PHASES):
        clock.pass_by(20 * slowness)
        for kind in (EntryKind.RESERVE, EntryKind.COMMIT):
            yield kind, f"phase-{phase}/selection", {}
        yield EntryKind.RESERVE, f"phase-{phase}/training", {}
        took = STEPS * step_seconds(count * (phase + 1), generator.normal(1, 0.02))
        clock.pass_by(slowness * took)
        yield EntryKind.COMMIT, f"phase-{phase}/training", {}
    yield EntryKind.END, "", {}


def as_row(campaign, kind, release, recorded_at):
    return {"campaign": campaign, "kind": kind.value, "release": release, "steps_on_disk": 0,
            "recorded_at": recorded_at}  # fmt: skip


def attacked(stamp, *, slowness: float) -> float:
    """The attacker's success on ledgers whose entries carry what `stamp` says."""
    seen: dict[int, list[dict[str, float]]] = {}
    for count in COUNTS:
        seen[count] = []
        for seed, begun in enumerate(moments(1, RUNS, seed=1)):
            clock = Clock(begun)
            rows: list[dict[str, Any]] = []
            for kind, release, _ in life(count, clock, slowness=slowness, seed=seed):
                rows.append(as_row("hidden", kind, release, stamp(kind, clock, rows)))
            seen[count].append(figures_of_entries(rows))
    return auc(seen)


def by_the_rule(kind, clock, rows):
    """As the ledger stamps them: entries are built only as far as the rule reads them."""
    held = [
        seal_entry(sequence=1, campaign="hidden", kind=EntryKind(row["kind"]),
                   release=row["release"], body={}, recorded_at=row["recorded_at"],
                   previous=GENESIS)
        for row in rows[:1]
    ]  # fmt: skip
    return day_of("hidden", held, clock.today())


@pytest.mark.parametrize("slowness", [1, 1000], ids=["minutes", "weeks"])
def test_days_tell_nobody_how_many_labels_were_bought(slowness):
    """Every count begins at the same moments, so that guessing is .5 exactly: no false alarm."""
    assert attacked(by_the_rule, slowness=slowness) == 0.5


@pytest.mark.parametrize("slowness", [1, 1000], ids=["minutes", "weeks"])
def test_the_attacker_reads_times(slowness):
    """Power: from milliseconds he knows."""

    def exact(kind, clock, rows):
        return clock.now.isoformat(timespec="milliseconds")

    assert attacked(exact, slowness=slowness) > 0.99


def test_the_attacker_reads_a_grid_of_days():
    """Power: that an entry carries its own day is not enough where phases take days."""
    assert attacked(lambda kind, clock, rows: clock.today().isoformat(), slowness=1000) > 0.9


def test_what_the_ledger_writes_is_the_same_however_long_it_takes(tmp_path):
    """Through the database; digests and the ledger's identity apart."""
    written = []
    for count, slowness in ((300, 1), (150, 1000)):
        clock = Clock(datetime(2026, 3, 1, 23, 59))
        store = LedgerStore(tmp_path / f"{count}.sqlite", today=clock.today)
        for kind, release, body in life(count, clock, slowness=slowness, seed=count):
            store.append(campaign="hidden", kind=kind, release=release, body=body)
        entries = store.verified()
        assert {one.recorded_at for one in entries} == {"2026-03-01"}
        written.append([(one.sequence, one.kind, one.release, one.recorded_at) for one in entries])
        store.append(campaign="", kind=EntryKind.REGISTER, release="clinic", body={})
        assert store.entries()[-1].recorded_at == clock.today().isoformat()  # a person's own act
    assert written[0] == written[1]


def test_an_account_that_a_hidden_campaign_asks_carries_its_own_day(tmp_path):
    """Teachers are asked whenever a phase has selected: their entries follow its times."""
    clock = Clock(datetime(2026, 3, 1))
    store = LedgerStore(tmp_path / "ledger.sqlite", today=clock.today)
    store.append(campaign="teachers", kind=EntryKind.HOLD, release="", body={})
    clock.pass_by(3 * 86400)
    store.append(campaign="hidden", kind=EntryKind.HOLD, release="", body={})
    for phase in range(PHASES):
        clock.pass_by(5 * 86400)
        for name in ("hidden", "teachers"):
            store.append(campaign=name, kind=EntryKind.RESERVE, release=f"block-{phase}", body={})
    assert {one.recorded_at for one in store.entries("teachers")} == {"2026-03-01"}
    assert {one.recorded_at for one in store.entries("hidden")} == {"2026-03-04"}
    assert day_held("nobody", store.entries()) is None


def test_a_ledger_with_times_opens_and_goes_on(tmp_path):
    """Entries of earlier versions keep the milliseconds that their digests cover."""
    clock = Clock(datetime(2026, 5, 4))
    store = LedgerStore(tmp_path / "ledger.sqlite", today=clock.today)
    first = store.append(campaign="camp", kind=EntryKind.HOLD, release="", body={})
    old = replace(first, recorded_at="2025-11-30T23:10:27.035+00:00")
    assert day_of("camp", [old], clock.today()) == "2025-11-30"
    again = seal_entry(**{key: value for key, value in vars(old).items() if key != "digest"})
    verify_chain([store.entries()[0], again])
