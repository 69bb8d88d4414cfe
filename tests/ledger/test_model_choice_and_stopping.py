"""Which phase is released and when buying stops: the rules, and what an END may say of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.certificate.verify import verify_certificate
from dpal.errors import ParameterError
from dpal.ledger.counted_releases import counted_releases
from dpal.ledger.entries import Entry, EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.model_choice_and_stopping import (
    EndStatement,
    ReleaseRule,
    StopRule,
    released_index,
    statement_faults,
)
from dpal.ledger.release_protocol import CampaignLedger
from dpal.planning.campaign_plan import Plan
from tests.certificate.certifying import certified, changed, failures, plan_of, run

curves = st.lists(st.integers(0, 20).map(lambda points: points / 20), min_size=1, max_size=8)


@given(curves)
def test_the_best_is_released_and_of_equal_ones_the_latest(values: list[float]) -> None:
    released = ReleaseRule.BEST.phase(values)
    assert values[released] == max(values)
    assert max(values) not in values[released + 1 :]
    assert ReleaseRule.LAST.phase(values) == len(values) - 1


@pytest.mark.parametrize(
    ("values", "patience", "least_gain", "stops"),
    [
        ([0.5], 1, 0.01, False),  # nothing to compare with
        ([0.5, 0.52], 1, 0.01, False),
        ([0.5, 0.505], 1, 0.01, True),
        ([0.5, 0.4, 0.51], 1, 0.01, False),  # compared with the best before, not the last
        ([0.5, 0.6, 0.55], 1, 0.01, True),
        ([0.6, 0.5, 0.59], 1, 0.01, True),  # it only came back
        ([0.5, 0.6, 0.55, 0.59], 2, 0.01, True),
        ([0.5, 0.6, 0.55], 2, 0.01, False),
        ([0.5, 0.49, 0.505], 2, 0.01, True),
        ([0.5, 0.505, 0.512], 2, 0.01, False),  # small gains add up
        ([0.5, 0.5], 1, 0.0, False),  # no gain is asked for
        ([0.5, 0.49], 1, 0.0, True),
    ],
)
def test_buying_stops_once_the_curve_is_flat(
    values: list[float], patience: int, least_gain: float, stops: bool
) -> None:
    assert StopRule(patience=patience, least_gain=least_gain).stops_after(values) is stops


@pytest.mark.parametrize("wrong", [{"patience": 0}, {"least_gain": -0.1}, {"least_gain": math.nan}])
def test_a_rule_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        StopRule(**{"patience": 1, "least_gain": 0.1, **wrong})


STOPPED = EndStatement(
    figure="accuracy",
    values=(0.5, 0.6, 0.55),
    release=ReleaseRule.BEST,
    stop=StopRule(patience=1, least_gain=0.0),
)


def test_an_end_says_nothing_where_the_last_model_is_the_campaigns() -> None:
    last = EndStatement(figure="accuracy", values=(0.5, 0.6), release=ReleaseRule.BEST)
    assert last.record(models=2) == {}
    assert released_index({"releases": [], "data": None}, 2) == 1
    assert last.record(models=3)  # a model that nobody measured is not released


def test_what_an_end_says_is_read_again() -> None:
    body = {"releases": [], "data": None, **STOPPED.record(models=3)}
    assert EndStatement.of_body(body) == STOPPED
    assert released_index(body, 3) == 1
    assert not list(statement_faults(body, 3))


def edited(**changes: Any) -> dict[str, Any]:
    return {"releases": [], "data": None, **STOPPED.record(models=3), **changes}


UNSOUND = {
    "rule": edited(release="first"),
    "no figures": {"stop": {"patience": 1, "least_gain": 0.0}},
    "no rule": {"validation": STOPPED.record(models=3)["validation"]},
    "more phases than models": edited(
        validation={"figure": "accuracy", "values": [0.5, 0.6, 0.5, 0.4]}
    ),
    "no phase": edited(validation={"figure": "accuracy", "values": []}),
    "no figure": edited(validation={"figure": "accuracy", "values": [0.5, 0.6, 1.5]}),
    "texts": edited(validation={"figure": "accuracy", "values": ["0.5", "0.6", "0.55"]}),
    "another figure": edited(validation={"figure": "beauty", "values": [0.5, 0.6, 0.55]}),
    "a rule that is not met": edited(validation={"figure": "accuracy", "values": [0.5, 0.6, 0.7]}),
    "a rule with more to it": edited(stop={"patience": 1, "least_gain": 0.0, "private": 1}),
    "a rule without gain": edited(stop={"patience": 1}),
    "patience of half a phase": edited(stop={"patience": 1.5, "least_gain": 0.0}),
    "patience of truth": edited(stop={"patience": True, "least_gain": 0.0}),
    "more beside figures": edited(
        validation={"figure": "accuracy", "values": [0.5, 0.6, 0.55], "private": 1}
    ),
    "without need": {
        **{key: value for key, value in edited().items() if key != "stop"},
        "validation": {"figure": "accuracy", "values": [0.5, 0.6, 0.7]},
    },
}


@pytest.mark.parametrize("name", UNSOUND)
def test_an_end_that_says_what_does_not_follow_is_found(name: str) -> None:
    assert list(statement_faults(UNSOUND[name], 3))


def ended(
    place: Path, said: dict[str, Any], *, made: int | None = None
) -> tuple[Plan, list[Entry]]:
    """A certificate of a small campaign whose END says so, and its entries."""
    plan = plan_of("visible")
    run(place, plan, stop_after=made, end=False)
    store = LedgerStore(place / "ledger.sqlite", anchors=place / "anchors")
    with lock_folder(place / "small"):
        CampaignLedger(store, "small", place / "small").end(said)
    entries = store.verified()
    store.close()
    return plan, entries


def test_a_certificate_names_the_model_that_its_end_releases(tmp_path: Path) -> None:
    best = EndStatement(figure="accuracy", values=(0.5, 0.6, 0.55), release=ReleaseRule.BEST)
    plan, entries = ended(tmp_path, best.record(models=3))
    document = certified(entries, plan)
    assert document["model"] == document["models"][1]
    assert failures(verify_certificate(document, ledger=entries)) == {}
    other = dict(document["models"][2])
    forgery = changed(document, "model", to=other)
    assert "statements" in failures(verify_certificate(forgery, ledger=entries))


WORSE = {"validation": {"figure": "accuracy", "values": [0.5, 0.6, 0.7]}, "release": "best"}


def test_a_certificate_with_an_end_that_does_not_follow_fails(tmp_path: Path) -> None:
    plan, entries = ended(tmp_path, {"stop": {"patience": 1, "least_gain": 0.0}, **WORSE}, made=5)
    document = certified(entries, plan)
    assert set(failures(verify_certificate(document, ledger=entries))) == {"ledger entries"}


FLAT = EndStatement(
    figure="accuracy",
    values=(0.6, 0.5),
    release=ReleaseRule.BEST,
    stop=StopRule(patience=1, least_gain=0.0),
)


def test_all_that_could_be_released_is_counted_once_a_rule_ended_it(tmp_path: Path) -> None:
    plan, entries = ended(tmp_path, FLAT.record(models=2), made=3)
    planned, own = list(plan.releases()), [one for one in entries if one.campaign == "small"]
    assert len(planned) > 3
    assert list(counted_releases(own)) == planned
    document = certified(entries, plan)
    assert document["model"] == document["models"][0]
    assert failures(verify_certificate(document, ledger=entries)) == {}
    # What a person ended is counted as in earlier versions.
    closed = [*own[:-1], replace(own[-1], body={"releases": [], "data": None})]
    assert list(counted_releases(closed)) == planned[:3]


def test_a_second_attempt_takes_its_room_from_the_end_of_the_plan(tmp_path: Path) -> None:
    plan, entries = ended(tmp_path, FLAT.record(models=2), made=3)
    held, *own = [one for one in entries if one.campaign == "small"]
    planned, last = list(plan.releases()), [one for one in own if one.kind is EntryKind.RESERVE][-1]
    name = f"{last.release}#2"
    again = replace(last, release=name, body={**last.body, "release": name})
    reserved = [*planned[:3], replace(planned[2], name=name)]
    # A promise with room for the attempt and the next selection, and not for a training after it.
    room = campaign_epsilon([*reserved, planned[3]], plan.spec.target) + 0.01
    target = replace(plan.spec.target, epsilon=room)
    promised = replace(held, body={**held.body, "epsilon": room})
    counted = counted_releases([promised, *own, again])
    assert list(counted) == [*reserved, planned[3]]
    assert campaign_epsilon([*reserved, *planned[3:]], target) > room
