from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpal.accounting.cohort_spending import Accountant, campaign_epsilon
from dpal.accounting.events import PhaseExposure
from dpal.errors import BudgetExceeded, LedgerError
from dpal.files import atomic_writes
from dpal.ledger.attempt_names import attempt_number, planned_name
from dpal.ledger.export_table import ledger_table
from dpal.planning.campaign_plan import Plan
from tests.ledger.releasing import PLAN, Drawing, settle
from tests.ledger.stepping import FOLDER, NAME, STEPS, Training, begin, interrupted, story


def test_a_redraw_charges_the_whole_phase_again(ledger):
    one = begin(ledger)
    interrupted(one, at=5)
    once = campaign_epsilon(ledger.spent(), ledger.target())
    one.start_over(NAME)
    reserved = ledger.spent()
    assert [again.name for again in reserved] == [NAME, f"{NAME}#2"]
    assert reserved[1].charges == reserved[0].charges
    # Two attempts are a phase of twice the steps: the same number, found another way.
    charge = one.release.charges[0]
    assert isinstance(charge.event, PhaseExposure)
    longer = replace(charge, event=replace(charge.event, steps=2 * STEPS))
    twice = campaign_epsilon([replace(one.release, charges=(longer,))], ledger.target())
    assert campaign_epsilon(reserved, ledger.target()) == pytest.approx(twice, rel=1e-3)
    assert twice > 1.2 * once
    assert ledger_table(ledger.entries())["steps"].dropna().tolist() == [STEPS, STEPS]


def test_each_further_redraw_names_the_attempt_that_it_throws_away(ledger):
    one = begin(ledger)
    interrupted(one, at=5)
    one.start_over(NAME)
    one.start_over(NAME)  # the same command again
    interrupted(one, at=5)
    (ledger.folder / FOLDER / "2" / "4.json").unlink()
    with pytest.raises(LedgerError, match=f"--redraw {NAME}#2"):
        one.release_once(Training())
    one.start_over(NAME)
    assert len(ledger.spent()) == 2
    one.start_over(f"{NAME}#2")
    one.release_once(Training())
    one.start_over(f"{NAME}#2")  # the same command again, after the end
    assert [entry for entry in story(ledger) if entry[0] in ("reserve", "commit")] == [
        ("reserve", NAME),
        ("reserve", f"{NAME}#2"),
        ("reserve", f"{NAME}#3"),
        ("commit", f"{NAME}#3"),
    ]
    aside = ledger.folder / "discarded"
    assert (aside / "phase-0-training-2" / "4.safetensors").exists()


def test_a_persisted_model_that_lost_its_other_half_can_be_redrawn(ledger):
    one = begin(ledger)
    interrupted(one, at=1)
    one.artifacts[1].parent.mkdir(parents=True, exist_ok=True)
    one.artifacts[1].write_text("whole once")
    with pytest.raises(LedgerError, match=r"optimizer\.safetensors is missing"):
        one.release_once(Training())
    one.start_over(NAME)
    one.release_once(Training())
    aside = ledger.folder / "discarded" / "phase-0-training-1"
    assert (aside / "model.safetensors").read_text() == "whole once"
    assert story(ledger)[-1] == ("commit", f"{NAME}#2")


def test_a_checkpoint_on_its_way_to_its_name_was_persisted(ledger, monkeypatch):
    """Killed after the journal: it counts as written, so a redraw throws it away."""
    one = begin(ledger)

    def die(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(atomic_writes, "roll_forward", die)
        interrupted(one, at=5)
    assert not (ledger.folder / FOLDER / "1" / "2.safetensors").exists()
    one.start_over(NAME)
    aside = ledger.folder / "discarded" / "phase-0-training-1"
    assert sorted(path.name for path in aside.iterdir()) == ["2.json", "2.safetensors"]


def test_a_redraw_above_the_promise_is_refused_and_throws_nothing_away(ledger):
    loud = replace(PLAN.phases[0].training, noise_multiplier=1.1)
    plan = Plan(PLAN.spec, (replace(PLAN.phases[0], training=loud),))
    one = begin(ledger, plan)
    interrupted(one, at=5)
    files = sorted((ledger.folder / FOLDER).rglob("*"))
    before, spent = ledger.entries(), ledger.spent()
    with pytest.raises(BudgetExceeded, match=r"rarely fits") as no:
        one.start_over(NAME)
    assert "nothing was charged or thrown away" in str(no.value)
    again = [*spent, replace(one.release, name=f"{NAME}#2")]
    asked = campaign_epsilon(again, ledger.target(), accountant=Accountant.RDP)
    assert (no.value.requested, no.value.limit) == (asked, 8.0)
    assert campaign_epsilon(spent, ledger.target(), accountant=Accountant.RDP) <= 8 < asked
    assert ledger.entries() == before
    assert sorted((ledger.folder / FOLDER).rglob("*")) == files
    going_on = Training()
    one.release_once(going_on)
    assert going_on.made == [5, 6]


def test_what_cannot_be_redrawn(ledger):
    one = begin(ledger)
    with pytest.raises(LedgerError, match="never begun"):
        one.start_over(NAME)
    interrupted(one, at=1)
    with pytest.raises(LedgerError, match="persisted nothing"):
        one.start_over(NAME)
    interrupted(one, at=5)
    for name in (f"{NAME}#2", f"{NAME}@4", f"{NAME}#x"):
        with pytest.raises(LedgerError, match="never begun"):
            one.start_over(name)
    one.inputs[0].write_text("other cohorts")
    with pytest.raises(LedgerError, match="phase-0/training was"):
        one.start_over(NAME)
    one.inputs[0].write_text("cohorts")
    one.release_once(Training())
    with pytest.raises(LedgerError, match="is committed"):
        one.start_over(NAME)
    assert len(ledger.spent()) == 1


def test_an_attempt_is_no_way_around_the_plan(ledger):
    """Another name, cheaper charges: still not what the ledger holds."""
    one = begin(ledger)
    cheaper = replace(one.release, name=f"{NAME}#2", charges=())
    drawing = Drawing(ledger.folder / "x")
    with pytest.raises(LedgerError, match="not part of the plan"):
        settle(ledger, cheaper, [drawing.path], drawing)
    assert drawing.times == 0


def test_names_of_attempts():
    assert [attempt_number(f"a/b{end}") for end in ("", "#2", "#12")] == [1, 2, 12]
    wrong = ("#1", "#0", "#02", "#x", "#", "@4", "#2@4", "#2#3")
    assert [attempt_number(f"a/b{end}") for end in wrong] == [0] * len(wrong)
    assert {planned_name(f"a/b{end}") for end in ("", "#2", "@4", "#2@4")} == {"a/b"}
