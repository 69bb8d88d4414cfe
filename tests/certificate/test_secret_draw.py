"""Certificates of campaigns whose chance cohorts are drawn by secret coins."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dpal.accounting.events import Charge, Release, SecretDraw
from dpal.certificate.verify import verify_certificate
from dpal.ledger.entries import Entry
from dpal.planning.campaign_plan import Plan
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.selection_steps import SecretRandomDraw
from tests.certificate.certifying import asserted, certified, failures, plan_of, run
from tests.conftest import small_spec
from tests.variants import quick_and_slow


def secretly(**changes: Any) -> Plan:
    return plan_of("hidden", privacy__secret_draw=True, **changes)


@pytest.mark.parametrize("acquisition", quick_and_slow(["entropy"], ["entropy", "random"]))
def test_a_true_certificate_passes(tmp_path, acquisition):
    plan = secretly(acquisition=acquisition)
    _, entries = run(tmp_path, plan)
    document = certified(entries, plan)
    assert failures(verify_certificate(document, ledger=entries)) == {}
    assert 6.5 < document["epsilon"]["pld"] <= 8  # strategy naive leaves something
    assert document["selection"]["mode"] == "hidden"
    assert "secret_draws" in document and "secret_draws" not in certified(*known(tmp_path))
    drawn = [event for event in document["cohorts"][0]["events"] if "chance" in event]
    assert [event["mechanism"] for event in drawn] == ["secret_draw"]
    # Too little noise for the promise, if it were known who is in which cohort.
    assert first_noise(plan) < first_noise(plan_of("hidden", acquisition=acquisition))


def known(place: Path) -> tuple[list[Entry], Plan]:
    """A hidden campaign whose first cohort was drawn for everybody to know."""
    plan = plan_of("hidden")
    return run(place / "known", plan)[1], plan


def first_noise(plan: Plan) -> float:
    return plan.phases[0].training.noise_multiplier


def with_chance(releases: list[Release], chance: float) -> list[Release]:
    """Draws charged as if they were of another chance."""
    return [
        replace(
            release,
            charges=tuple(
                replace(charge, event=replace(charge.event, chance=chance))
                if isinstance(charge.event, SecretDraw)
                else charge
                for charge in release.charges
            ),
        )
        for release in releases
    ]


@pytest.mark.slow
def test_a_draw_that_is_charged_as_a_seldomer_one_is_found(tmp_path):
    plan = secretly()
    _, entries = run(tmp_path, plan, releases=with_chance(list(plan.releases()), 0.01))
    found = failures(verify_certificate(asserted(entries, plan), ledger=entries))
    assert "plan" in found and "does not make" in found["plan"]


def test_a_draw_that_the_plan_knows_nothing_of_is_found(tmp_path):
    """An open draw of so many records, charged as if they had tossed coins."""
    plan = plan_of("hidden")
    invented = Release(
        name="phase-0/selection",
        kind="selection",
        phase=0,
        charges=(Charge(cohorts=plan.cohorts, event=SecretDraw(chance=1 / 6)),),
    )
    _, entries = run(tmp_path, plan, releases=[invented, *plan.releases()])
    found = failures(verify_certificate(asserted(entries, plan), ledger=entries))
    assert "plan" in found and "does not make" in found["plan"]


@pytest.mark.slow
def test_a_draw_of_some_records_only_is_found(tmp_path):
    plan = secretly()
    releases = [
        replace(release, charges=(replace(release.charges[0], cohorts=("0",)),))
        if release.name == "phase-0/selection"
        else release
        for release in plan.releases()
    ]
    _, entries = run(tmp_path, plan, releases=releases)
    found = failures(verify_certificate(asserted(entries, plan), ledger=entries))
    assert "plan" in found


def with_first_step(plan: Plan, **changes: Any) -> Plan:
    """The plan with other numbers of its first draw; those of the event are called `draw`."""
    first = plan.phases[0]
    assert isinstance(first.selection, SecretRandomDraw)
    draw = replace(first.selection.draw, **changes.pop("draw", {}))
    step = replace(first.selection, draw=draw, **changes)
    return replace(plan, phases=(replace(first, selection=step), *plan.phases[1:]))


COMPETING = {"most": 110}  # where 100 are drawn on average


@pytest.mark.parametrize(
    "changes",
    quick_and_slow(
        [COMPETING],
        [COMPETING, {"draw": {"chance": 0.01}}, {"draw": {"failure_probability": 0.0}}],
    ),
)
def test_a_plan_whose_draw_follows_from_nothing_public_is_found(tmp_path, changes):
    plan = with_first_step(secretly(), **changes)
    _, entries = run(tmp_path, plan)
    found = failures(verify_certificate(asserted(entries, plan), ledger=entries))
    assert set(found) == {"plan"}


@pytest.mark.slow
def test_a_plan_whose_draw_was_never_held_is_found(tmp_path):
    plan = secretly(privacy__epsilon=20)
    releases = [one for one in plan.releases() if one.name != "phase-0/selection"]
    cheap = replace(plan, spec=replace(plan.spec, target=replace(plan.spec.target, epsilon=40.0)))
    _, entries = run(tmp_path, cheap, releases=releases)
    assert "plan" in failures(verify_certificate(asserted(entries, cheap), ledger=entries))


@cache
def with_candidates(**changes: Any) -> Plan:
    """A plan whose queries select from 250 candidates of 500 records that are left."""
    return certified_plan(
        small_spec(
            strategy="naive",
            privacy={"selection": "hidden", "secret_draw": True, "candidates": 250},
            schedule__queries=[120],
            **changes,
        )
    ).plan


@pytest.mark.slow
def test_a_true_certificate_of_queries_among_candidates_passes(tmp_path):
    plan = with_candidates()
    _, entries = run(tmp_path, plan)
    document = certified(entries, plan)
    assert failures(verify_certificate(document, ledger=entries)) == {}
    drawn = next(event for event in document["cohorts"][1]["events"] if "chance" in event)
    assert drawn["candidates"] == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.49])
def test_candidates_that_are_charged_as_fewer_are_found(tmp_path, share):
    plan = with_first_step(with_candidates(), draw={"candidates": share})
    _, entries = run(tmp_path, plan)
    found = failures(verify_certificate(asserted(entries, plan), ledger=entries))
    assert "plan" in found


@pytest.mark.slow
def test_candidates_that_the_plan_does_not_have_are_found(tmp_path):
    """Queries of all records, charged as if half of them had not been looked at."""
    plan = with_first_step(secretly(), draw={"candidates": 0.5})
    _, entries = run(tmp_path, plan)
    assert set(failures(verify_certificate(asserted(entries, plan), ledger=entries))) == {"plan"}
