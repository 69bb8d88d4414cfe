from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dpal.errors import LedgerError
from dpal.ledger.export_table import ledger_table
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_protocol import CampaignLedger
from dpal.ledger.training_releases import TrainingRelease
from dpal.planning.campaign_plan import Plan
from tests.ledger.releasing import SELECTION, release
from tests.ledger.stepping import (
    FOLDER,
    NAME,
    QUIET,
    STEPS,
    Training,
    alter,
    begin,
    interrupted,
    lose,
    story,
)


def test_there_are_steps_enough_to_speak_of():
    assert STEPS == 6


def test_a_training_goes_on_from_its_newest_checkpoint(ledger):
    one = begin(ledger)
    interrupted(one, at=6)
    kept = json.loads((ledger.folder / FOLDER / "1" / "4.safetensors").read_bytes())
    assert sorted(path.name for path in (ledger.folder / FOLDER / "1").iterdir()) == [
        "4.json",
        "4.safetensors",
    ]
    going_on = Training()
    one.release_once(going_on)
    assert going_on.made == [5, 6]
    model = json.loads(one.artifacts[1].read_bytes())
    assert model[:4] == kept
    assert story(ledger) == [
        ("reserve", NAME),
        ("checkpoint", f"{NAME}@2"),
        ("checkpoint", f"{NAME}@4"),
        ("commit", NAME),
    ]
    assert not (ledger.folder / FOLDER).exists()
    table = ledger_table(ledger.entries())
    assert table["kind"].tolist()[2:4] == ["checkpoint", "checkpoint"]


def test_a_committed_training_is_not_made_again(ledger):
    one = begin(ledger)
    one.release_once(Training())
    (ledger.folder / FOLDER / "1").mkdir(parents=True)  # a crash before they were removed
    again = Training()
    one.release_once(again)
    assert again.made == []
    assert not (ledger.folder / FOLDER).exists()


@pytest.mark.parametrize("name", ["4.safetensors", "4.json"])
@pytest.mark.parametrize(("harm", "reason"), [(lose, "missing"), (alter, "altered")])
def test_without_its_recorded_checkpoint_it_does_not_start_again(ledger, name, harm, reason):
    one = begin(ledger)
    interrupted(one, at=6)
    path = ledger.folder / FOLDER / "1" / name
    content = path.read_bytes()
    harm(path)
    going_on = Training()
    for _ in range(2):
        with pytest.raises(LedgerError, match=f"{name} is {reason}.*--redraw {NAME}.*rarely fits"):
            one.release_once(going_on)
    assert going_on.made == []
    assert story(ledger)[-1] == ("forfeit", f"{NAME}@4")
    path.write_bytes(content)
    one.release_once(going_on)
    assert going_on.made == [5, 6]


def unrecorded(ledger: CampaignLedger, monkeypatch: pytest.MonkeyPatch) -> TrainingRelease:
    """Killed between persisting step 4 and recording it."""
    one, append = begin(ledger), LedgerStore.append

    def die(store, **entry):
        if entry["release"] == f"{NAME}@4":
            raise KeyboardInterrupt
        return append(store, **entry)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(LedgerStore, "append", die)
        one.release_once(Training())
    assert story(ledger)[-1] == ("checkpoint", f"{NAME}@2")
    return one


def test_a_checkpoint_that_was_not_recorded_is_recorded_and_used(ledger, monkeypatch):
    one = unrecorded(ledger, monkeypatch)
    (ledger.folder / FOLDER / "1" / "2.safetensors").unlink()  # the older one is not needed
    going_on = Training()
    one.release_once(going_on)
    assert going_on.made == [5, 6]
    assert story(ledger)[-2:] == [("checkpoint", f"{NAME}@4"), ("commit", NAME)]


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: lose(folder / "4.safetensors"),
        lambda folder: lose(folder / "4.json"),
        lambda folder: alter(folder / "4.safetensors"),
        lambda folder: edit(folder / "4.json", follows="0" * 64),  # forked, or another campaign's
        lambda folder: edit(folder / "4.json", steps=5),
        lambda folder: edit(folder / "4.json", release=f"{NAME}#2"),
        lambda folder: edit(folder / "4.json", format=2),
        lambda folder: (folder / "4.json").write_text("[]"),
        lambda folder: shutil.copy(folder / "4.json", folder / "5.json"),
    ],
)
def test_an_unrecorded_checkpoint_must_follow_from_the_ledger(ledger, monkeypatch, harm):
    one = unrecorded(ledger, monkeypatch)
    harm(ledger.folder / FOLDER / "1")
    going_on, before = Training(), story(ledger)
    with pytest.raises(LedgerError, match="whole checkpoint"):
        one.release_once(going_on)
    assert going_on.made == []
    assert story(ledger) == before


def test_the_first_checkpoint_must_be_of_this_reservation(ledger):
    """A folder copied from a campaign of the same plan is not this one's path."""
    one = begin(ledger)
    interrupted(one, at=1)
    folder = ledger.folder / FOLDER / "1"
    folder.mkdir(parents=True)
    (folder / "2.safetensors").write_text("[]")
    (folder / "2.json").write_text("{}")
    with pytest.raises(LedgerError, match="whole checkpoint"):
        one.release_once(Training())


@pytest.mark.parametrize("more", [1, 5])
def test_a_step_beyond_the_reserved_ones_is_never_made(ledger, more):
    one = begin(ledger)
    longer = Training(total=STEPS + more)
    with pytest.raises(LedgerError, match=f"step {STEPS + 1} .* of {STEPS} reserved steps"):
        one.release_once(longer)
    assert longer.made == list(range(1, STEPS + 1))
    assert not one.artifacts[1].exists()
    assert ("commit", NAME) not in story(ledger)


def test_a_step_is_asked_for_once(ledger):
    def twice(steps):
        steps.require(1)
        steps.require(1)
        raise AssertionError

    with pytest.raises(LedgerError, match=r"step 1 of phase-0/training .*after 1"):
        begin(ledger).release_once(twice)


def test_a_shorter_training_is_not_released(ledger):
    one = begin(ledger)
    with pytest.raises(LedgerError, match=f"ended after 4 of {STEPS} reserved steps"):
        one.release_once(Training(total=4))
    assert not one.artifacts[1].exists()
    assert ("commit", NAME) not in story(ledger)


def test_a_phase_in_two_parts_reserves_the_steps_of_both(ledger):
    """The new cohort trains alone first, then with the others: it takes part in all steps."""
    training = replace(QUIET.phases[1].training, steps=3)
    caught = replace(training, steps=2, sample_rate_old=0.0)
    phase = replace(QUIET.phases[1], training=training, catch_up=caught)
    one = begin(ledger, Plan(QUIET.spec, (QUIET.phases[0], phase)), "phase-1/training")
    with pytest.raises(LedgerError, match=r"step 6 .* of 5 reserved"):
        one.release_once(Training(total=6))
    one.release_once(Training(total=5))


def test_only_trainings_have_steps(ledger):
    one = replace(begin(ledger), release=release(SELECTION))
    with pytest.raises(LedgerError, match="training release"):
        one.release_once(Training())
