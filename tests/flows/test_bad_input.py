"""Wishes that cannot be: one sentence each, with numbers that would work, and nothing spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpal.files.artifacts import CampaignFolder
from flows.cli.ledger_view import as_object
from tests.conftest import write_config
from tests.flows.calling import call, sentence

HIDDEN = "privacy.selection=hidden"
BEFORE_DATA = [
    (["privacy.epsilon=0"], "privacy.epsilon is 0 but should be greater than 0"),
    (["privacy.epsilon=-2"], "privacy.epsilon is -2 but should be greater than 0"),
    (["privacy.delta=0"], "privacy.delta is 0 but should be greater than 0"),
    (["schedule.initial=0"], "schedule.initial is 0 but should be greater than or equal to 1"),
    (["schedule.batch_size=-1"], "schedule.batch_size is -1 but should be greater than or equal"),
    (["schedule.epochs_per_phase=0"], "schedule.epochs_per_phase is 0 but should be greater than"),
]
AFTER_DATA = [
    (["privacy.delta=0.01"], "is not below 1/600 (one over the pool size)", "use 0.000167"),
    (["privacy.delta=0.0016666667"], "is not below 1/600", "use 0.000167 or leave it null"),
    (["privacy.selection_epsilon=9"], "leaves nothing of privacy.epsilon 8", "a quarter of it (2)"),
    (["schedule.queries=[700]"], "asks for 800 labels", "the pool has 600 records; lower"),
    (["schedule.queries=[0]"], "schedule.queries must be a finite number >= 1, got 0"),
    (["schedule.queries=[40, -5]"], "schedule.queries must be a finite number >= 1, got -5"),
    ([HIDDEN], "query 1 asks for 40 labels", "ask for 148 or more at once", "or select visible"),
    (
        ["acquisition=random", "privacy.epsilon=0.0001"],
        "cannot keep epsilon 0.0001 at delta 0.000167",
        "raise privacy.epsilon above 0.00286",
    ),
    (
        ["privacy.selection_epsilon=7.99"],
        "its selections alone would take 12.4",
        "raise privacy.epsilon above 12.4, or lower privacy.selection_epsilon",
    ),
    (
        [HIDDEN, "schedule.queries=[200]", "privacy.epsilon=0.5"],
        "keeps 186 in reserve at a threshold noise of 10.4",
        "ask for 372 or more at once, or raise privacy.epsilon, or select visible",
    ),
    (
        [HIDDEN, "schedule.queries=[200]", "privacy.epsilon=0.5", "privacy.threshold_noise=4"],
        "its selections alone would take 0.828",
        "raise privacy.epsilon above 0.828, or raise privacy.threshold_noise",
    ),
    (["privacy.delta=1e-13"], "privacy.delta 1e-13 is smaller than can be", "use 0.000167"),
]


def refused(command: str, settings: list[str]) -> str:
    """The sentence of a refusal that left nothing in the ledger."""
    arguments = [part for setting in settings for part in ("--set", setting)]
    said = sentence(call(command, "c.yaml", *arguments))
    assert not Path("artifacts/ledger.sqlite").exists()
    return said


@pytest.fixture
def place(workplace: Path) -> Path:
    write_config(workplace / "c.yaml", strategy="naive")
    return workplace


@pytest.mark.parametrize(("settings", "expected"), BEFORE_DATA)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_number_that_is_none(place, command, settings, expected):
    assert expected in refused(command, settings)
    assert not Path("artifacts").exists()


@pytest.mark.parametrize(("settings", "expected"), [(one[0], one[1:]) for one in AFTER_DATA])
def test_a_plan_that_cannot_be(place, settings, expected):
    said = refused("plan", settings)
    assert all(part in said for part in expected), said
    assert not Path("artifacts").exists()


@pytest.mark.parametrize(
    ("settings", "expected"), [(one[0], one[1:]) for one in (AFTER_DATA[2], AFTER_DATA[8])]
)
def test_a_run_that_cannot_be_is_refused_in_the_same_words(orchestrated, place, settings, expected):
    said = refused("run", settings)
    assert all(part in said for part in expected), said
    assert not any(Path("artifacts/small").glob("phase-*"))


@pytest.mark.parametrize(
    "settings",
    [
        ["privacy.delta=0.000167"],
        ["privacy.selection_epsilon=2"],
        ["schedule.queries=[500]", "acquisition=random"],
        [HIDDEN, "schedule.queries=[148]"],
        ["acquisition=random", "privacy.epsilon=0.0029", "schedule.queries=[40]"],
    ],
)
def test_the_numbers_that_are_named_do_work(place, settings):
    arguments = [part for setting in settings for part in ("--set", setting)]
    result = call("plan", "c.yaml", *arguments)
    assert result.returncode == 0, result.stderr


def test_a_budget_that_is_spent_refuses_through_the_command(orchestrated, place, monkeypatch):
    """A verifier that lets too much pass, as if a bug were in it: the ledger still refuses."""
    from dataclasses import replace

    from dpal.planning.plan import Plan
    from dpal.planning.verify import certified_plan

    def careless(spec):
        certified = certified_plan(spec)
        phases = [
            replace(phase, training=replace(phase.training, noise_multiplier=noise))
            for phase, noise in zip(certified.plan.phases, (9.0, 0.3, 9.0), strict=True)
        ]
        return replace(certified, plan=Plan(certified.plan.spec, tuple(phases)))

    monkeypatch.setattr("dpal.runs.campaign_start.certified_or_next_best", careless)
    said = sentence_last(call("run", "c.yaml"))
    assert "phase-1/training could take a record to epsilon" in said
    assert "of the 8.0000 promised" in said and said.endswith("; nothing was released")
    folder = CampaignFolder(Path("artifacts/small"))
    view = as_object(folder)
    assert [one["release"] for one in view["releases"]] == [
        "phase-0/training",
        "phase-1/selection",
    ]
    assert view["campaign_epsilon"] <= 8
    assert not folder.phase(1).model.exists()


def sentence_last(result) -> str:
    """The last line of a refusal after some progress."""
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]
