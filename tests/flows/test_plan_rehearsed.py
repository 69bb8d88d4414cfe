"""`dpal plan --rehearse`: what can be expected, and why there is sometimes nothing to expect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import write_config
from tests.flows.calling import call, sentence


@pytest.fixture(autouse=True)
def config(workplace: Path) -> None:
    write_config(workplace / "c.yaml", schedule__queries=[40], strategy="naive")


def planned(*arguments: str) -> dict:
    result = call("plan", "c.yaml", "--rehearse", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_plan_is_shown_with_what_can_be_expected_of_it():
    expected = planned()["expected"]
    assert expected["figure"] == "accuracy"
    assert (expected["pool_records"], expected["judged_records"]) == (150, 150)
    assert [phase["labels"] for phase in expected["phases"]] == [100, 140]
    assert expected["is_smaller"]
    last = expected["phases"][-1]
    assert last["mean"] > expected["majority"]
    assert 0.01 < last["half_width"] < 0.3
    shown = call("plan", "c.yaml", "--rehearse").stdout
    assert f"{100 * last['mean']:.1f} ± {100 * last['half_width']:.1f}" in shown
    assert not Path("artifacts").exists()


def test_without_being_asked_nothing_is_rehearsed():
    result = call("plan", "c.yaml", "--json")
    assert "expected" not in json.loads(result.stdout)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("validation={protected: true}",), "is protected"),
        (("data.group_column=id", "privacy.unit=group"), "protects groups"),
    ],
    ids=["protected", "groups"],
)
def test_why_there_is_no_rehearsal_stands_below_the_plan(settings, said):
    changes = [part for setting in settings for part in ("--set", setting)]
    record = planned(*changes)
    assert record["expected"] is None
    assert said in record["not_rehearsed"]
    assert record["worst_epsilon"] > 0  # the plan is there


@pytest.mark.parametrize(
    "other", [["--compare"], ["--published"], ["--sweep", "privacy.epsilon=2,3"]]
)
def test_other_views_have_no_rehearsal(other):
    assert "--rehearse" in sentence(call("plan", "c.yaml", "--rehearse", *other))
