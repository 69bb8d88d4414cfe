from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dpal.errors import CampaignBusy, LedgerError
from dpal.files import atomic_writes
from dpal.files.atomic_writes import write_together
from dpal.ledger.entries import EntryKind
from dpal.ledger.export_table import ledger_table, write_ledger
from dpal.ledger.folder_lock import lock_folder, require_claim
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.campaign_plan import Plan
from tests.conftest import nothing_released
from tests.ledger.releasing import (
    PLAN,
    SELECTION,
    TRAINING,
    Drawing,
    hold,
    release,
    run_all,
    settle,
)


def test_a_release_is_held_reserved_drawn_and_committed(ledger):
    run_all(ledger)
    kinds = [(entry.kind.value, entry.release) for entry in ledger.entries()]
    assert kinds == [
        ("hold", ""),
        ("reserve", "phase-0/training"),
        ("commit", "phase-0/training"),
        ("reserve", SELECTION),
        ("commit", SELECTION),
        ("reserve", TRAINING),
        ("commit", TRAINING),
    ]
    assert ledger.spent() == list(PLAN.releases())


def test_it_is_reserved_before_it_is_drawn(ledger):
    hold(ledger)
    path = ledger.folder / "model"

    def draw() -> None:
        last = ledger.entries()[-1]
        assert (last.kind, last.release) == (EntryKind.RESERVE, "phase-0/training")
        path.write_text("drawn")

    settle(ledger, release("phase-0/training"), [path], draw)
    assert path.exists()


def test_what_was_committed_is_never_drawn_again(ledger):
    run_all(ledger)
    path = ledger.folder / SELECTION.replace("/", "-")
    again, before = Drawing(path), len(ledger.entries())
    settle(ledger, release(SELECTION), [path], again)
    assert again.times == 0
    assert len(ledger.entries()) == before


def test_a_crash_before_anything_was_persisted_draws_under_the_same_reservation(ledger):
    hold(ledger)
    path = ledger.folder / "model"

    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        settle(ledger, release("phase-0/training"), [path], crash)
    drawing = Drawing(path)
    settle(ledger, release("phase-0/training"), [path], drawing)
    assert drawing.times == 1
    assert [entry.kind.value for entry in ledger.entries()] == ["hold", "reserve", "commit"]


def test_a_crash_after_persisting_commits_what_is_there(ledger, monkeypatch):
    hold(ledger)
    path = ledger.folder / "model"
    drawing, append = Drawing(path), ledger.store.append

    def die_at_commit(**entry):
        if entry["kind"] is EntryKind.COMMIT:
            raise KeyboardInterrupt
        return append(**entry)

    monkeypatch.setattr(ledger.store, "append", die_at_commit)
    with pytest.raises(KeyboardInterrupt):
        settle(ledger, release("phase-0/training"), [path], drawing)
    monkeypatch.setattr(ledger.store, "append", append)
    settle(ledger, release("phase-0/training"), [path], drawing)
    assert drawing.times == 1
    assert path.read_text() == "drawn 1"
    assert len(ledger.entries()) == 3


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_several_artifacts_are_one(ledger, monkeypatch, moved):
    """A crash after the journal, with some files moved: the release is whole, not redrawn."""
    hold(ledger)
    optimizer, model = ledger.folder / "optimizer", ledger.folder / "model"
    times = []

    def draw() -> None:
        times.append(1)
        write_together(ledger.folder, {"optimizer": b"o", "model": b"m"})

    def die(folder: Path) -> None:
        for name in ("optimizer", "model")[:moved]:
            (folder / f".staged-{name}").replace(folder / name)
        raise KeyboardInterrupt

    roll_forward = atomic_writes.roll_forward
    monkeypatch.setattr(atomic_writes, "roll_forward", die)
    with pytest.raises(KeyboardInterrupt):
        settle(ledger, release("phase-0/training"), [optimizer, model], draw)
    monkeypatch.setattr(atomic_writes, "roll_forward", roll_forward)
    settle(ledger, release("phase-0/training"), [optimizer, model], draw)
    assert len(times) == 1
    assert (optimizer.read_bytes(), model.read_bytes()) == (b"o", b"m")
    assert not list(ledger.folder.glob(".staged-*"))


def test_a_file_that_was_never_reserved_is_not_blessed(ledger):
    """A folder copied from another campaign must not pass as this one's release."""
    hold(ledger)
    path = ledger.folder / "model"
    path.write_text("of another campaign")
    drawing = Drawing(path)
    with pytest.raises(LedgerError, match=r"phase-0/training .*never reserved"):
        settle(ledger, release("phase-0/training"), [path], drawing)
    assert [entry.kind for entry in ledger.entries()] == [EntryKind.HOLD]


def test_a_release_that_lost_a_file_is_neither_committed_nor_drawn_again(ledger):
    hold(ledger)
    optimizer, model = ledger.folder / "optimizer", ledger.folder / "model"

    def crash() -> None:
        model.write_text("whole once; its other half is gone")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        settle(ledger, release("phase-0/training"), [optimizer, model], crash)
    drawing = Drawing(optimizer)
    with pytest.raises(LedgerError, match="optimizer is missing", check=nothing_released):
        settle(ledger, release("phase-0/training"), [optimizer, model], drawing)
    assert drawing.times == 0
    assert [entry.kind for entry in ledger.entries()] == [EntryKind.HOLD, EntryKind.RESERVE]


@pytest.mark.parametrize("stray", ["phase-0", "confidential/phase-0", "confidential/query/phase-0"])
def test_a_campaign_is_not_begun_over_the_files_of_another(ledger, stray):
    (ledger.folder / stray).mkdir(parents=True)
    with pytest.raises(LedgerError, match="know campaign planned"):
        hold(ledger)


@pytest.mark.parametrize("drawn", [False, True])
def test_inputs_stay_what_they_were_when_reserved(ledger, drawn):
    """Who is in which cohort may not change under a reservation."""
    hold(ledger)
    pool, path = ledger.folder / "pool", ledger.folder / "model"
    pool.write_text("cohorts")

    def crash() -> None:
        raise KeyboardInterrupt

    drawing = Drawing(path)
    if drawn:
        settle(ledger, release("phase-0/training"), [path], drawing, [pool])
    else:
        with pytest.raises(KeyboardInterrupt):
            settle(ledger, release("phase-0/training"), [path], crash, [pool])
    pool.write_text("other cohorts")
    with pytest.raises(LedgerError, match=r"pool is altered since phase-0/training was reserved"):
        settle(ledger, release("phase-0/training"), [path], drawing, [pool])
    assert drawing.times == drawn


@pytest.mark.parametrize("reason", ["altered", "missing"])
def test_a_changed_artifact_stays_spent_with_the_reason(ledger, reason):
    run_all(ledger)
    path = ledger.folder / TRAINING.replace("/", "-")
    path.write_text("other") if reason == "altered" else path.unlink()
    drawing, spent = Drawing(path), ledger.spent()
    for _ in range(2):
        with pytest.raises(LedgerError, match=f"{reason} since .* was committed.* stays spent"):
            settle(ledger, release(TRAINING), [path], drawing)
    assert drawing.times == 0
    assert ledger.spent() == spent
    forfeits = [entry.body for entry in ledger.entries() if entry.kind is EntryKind.FORFEIT]
    assert forfeits == [{"file": path.name, "reason": reason}]


def test_only_what_the_plan_holds_is_reserved(ledger):
    hold(ledger)
    more = replace(release(SELECTION), name="phase-9/selection")
    with pytest.raises(LedgerError, match="not part of the plan", check=nothing_released):
        settle(ledger, more, [ledger.folder / "x"], Drawing(ledger.folder / "x"))
    assert not (ledger.folder / "x").exists()


def test_without_a_hold_nothing_is_released(ledger):
    drawing = Drawing(ledger.folder / "x")
    with pytest.raises(LedgerError, match="has no entries"):
        settle(ledger, release(SELECTION), [drawing.path], drawing)
    assert drawing.times == 0


def test_another_plan_or_pool_under_the_same_name_is_refused(ledger):
    hold(ledger)
    hold(ledger)
    assert len(ledger.entries()) == 1
    with pytest.raises(LedgerError, match="another plan"):
        hold(ledger, Plan(PLAN.spec, PLAN.phases[:1]))
    with pytest.raises(LedgerError, match="campaign planned was"):
        hold(ledger, pool="def")


def test_who_does_not_hold_the_claim_releases_nothing(tmp_path):
    store = LedgerStore(tmp_path / "ledger.sqlite")
    outsider = CampaignLedger(store, "planned", tmp_path / "planned")
    with pytest.raises(LedgerError, match="not claimed"):
        hold(outsider)
    assert store.entries() == []


def test_two_cannot_hold_the_claim(tmp_path):
    with lock_folder(tmp_path / "c"):
        with pytest.raises(CampaignBusy, match="another process"), lock_folder(tmp_path / "c"):
            pass
        require_claim(tmp_path / "c")  # the refused one did not take it away
    with pytest.raises(LedgerError):
        require_claim(tmp_path / "c")


def test_the_store_refuses_a_second_reservation_whatever_the_caller_believes(ledger):
    hold(ledger)
    entry = {"campaign": "planned", "kind": EntryKind.RESERVE, "release": SELECTION, "body": {}}
    ledger.store.append(**entry)
    with pytest.raises(LedgerError, match="reserve of phase-1/selection"):
        ledger.store.append(**entry)


def test_entries_cannot_be_updated_or_deleted(ledger, tmp_path):
    hold(ledger)
    raw = sqlite3.connect(tmp_path / "ledger.sqlite")
    for statement in ("UPDATE entries SET body = '{}'", "DELETE FROM entries"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            raw.execute(statement)


def test_the_export_names_mechanism_and_promise_in_every_row(ledger, tmp_path):
    run_all(ledger)
    table = ledger_table(ledger.entries())
    assert len(table) == 8  # the last training charges two cohorts at two rates
    assert set(table["adjacency"]) == {"zero_out"}
    assert set(table["delta"]) == {1 / 6000}
    trained = table[table["mechanism"] == "poisson_subsampled_gaussian"]
    assert trained["cohorts"].tolist() == ["0", "0", "1"]
    assert (trained["steps"] > 0).all()
    write_ledger(ledger.entries(), tmp_path / "ledger.parquet")
    stored = pq.read_table(tmp_path / "ledger.parquet").to_pylist()
    assert [row["digest"] for row in stored][-1] == ledger.entries()[-1].digest
    assert json.loads(stored[0]["body"])["epsilon"] == 8.0


def test_the_ledger_file_is_the_owners(ledger, tmp_path):
    assert (tmp_path / "ledger.sqlite").stat().st_mode & 0o077 == 0


def test_a_copied_folder_does_not_draw_what_was_begun_in_the_first(ledger, tmp_path):
    """Both see the same ledger, as on a shared server; only one of them may go on."""
    hold(ledger)
    path = ledger.folder / "model"

    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        settle(ledger, release("phase-0/training"), [path], crash)
    copy = tmp_path / "elsewhere" / "planned"
    shutil.copytree(ledger.folder, copy)
    other = CampaignLedger(ledger.store, "planned", copy)
    drawing = Drawing(copy / "model")
    with lock_folder(copy), pytest.raises(LedgerError, match="was begun in another folder"):
        settle(other, release("phase-0/training"), [drawing.path], drawing)
    assert drawing.times == 0
    drawing = Drawing(path)
    settle(ledger, release("phase-0/training"), [path], drawing)
    assert drawing.times == 1
