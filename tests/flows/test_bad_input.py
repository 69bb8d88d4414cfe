"""Wishes that cannot be: one sentence each, with numbers that would work, and nothing spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpal.errors import DpalError
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
    (["privacy.delta=0.01"], "below 1/600 (one", "use 0.000167"),
    (["privacy.delta=0.0016666667"], "below 1/600", "use 0.000167"),
    (["privacy.selection_epsilon=9"], "leaves nothing", "of it (2)"),
    (["schedule.queries=[700]"], "asks for 800 labels", "has 600 records"),
    (["schedule.queries=[0]"], "schedule.queries must", ">= 1, got 0"),
    (["schedule.queries=[40, -5]"], "schedule.queries must", ">= 1, got -5"),
    (
        [HIDDEN, "schedule.queries=[10, 10]"],
        "for 20 labels",
        "34 or more",
        "or select visible",
    ),
    (
        ["acquisition=random", "privacy.epsilon=0.0001"],
        "epsilon 0.0001 at delta 0.000167",
        "raise privacy.epsilon above 0.00286",
    ),
    (
        ["privacy.selection_epsilon=7.99"],
        "take 12.4",
        "privacy.epsilon above 12.4, or lower",
    ),
    (
        [HIDDEN, "schedule.queries=[100]", "privacy.epsilon=0.5"],
        "79 in reserve",
        "noise of 6.05",
        "158 or more",
        "select visible",
    ),
    (
        [HIDDEN, "schedule.queries=[200]", "privacy.epsilon=0.5", "privacy.threshold_noise=4"],
        "take 0.776",
        "above 0.776, or raise",
    ),
    (["privacy.delta=1e-13"], "privacy.delta 1e-13 is", "use 0.000167"),
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
        pytest.param(["privacy.selection_epsilon=2"], marks=pytest.mark.slow),
        ["schedule.queries=[500]", "acquisition=random"],
        pytest.param([HIDDEN, "schedule.queries=[17, 17]"], marks=pytest.mark.slow),
        ["acquisition=random", "privacy.epsilon=0.0029", "schedule.queries=[40]"],
    ],
)
def test_the_numbers_that_are_named_do_work(place, settings):
    arguments = [part for setting in settings for part in ("--set", setting)]
    result = call("plan", "c.yaml", *arguments)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_a_budget_that_is_spent_refuses_through_the_command(orchestrated, place, monkeypatch):
    """A verifier that lets too much pass, as if a bug were in it: the ledger still refuses."""
    from dataclasses import replace

    from dpal.planning.campaign_plan import Plan
    from dpal.planning.certify_campaign import certified_plan

    def careless(spec):
        certified = certified_plan(spec)
        phases = [
            replace(phase, training=replace(phase.training, noise_multiplier=noise))
            for phase, noise in zip(certified.plan.phases, (9.0, 0.3, 9.0), strict=True)
        ]
        return replace(certified, plan=Plan(certified.plan.spec, tuple(phases)))

    monkeypatch.setattr("dpal.runs.plan_new_campaign.certified_or_next_best", careless)
    said = sentence_last(call("run", "c.yaml"))
    assert "phase-1/training could" in said
    assert "of the 8.0000 promised" in said and said.endswith(f"; {DpalError.closing}")
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
