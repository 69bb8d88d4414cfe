"""Phases written down and read again are the same, and nothing else is made of a file."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from dpal.accounting.events import (
    NoisyScores,
    NoisyThreshold,
    RandomizedResponse,
    SecretDraw,
)
from dpal.canonical import canonical_json
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import Phase, TrainingPhase
from dpal.planning.campaign_spec import LabelCap, ThresholdStart
from dpal.planning.phases_json import read_phases, write_phases
from dpal.planning.selection_steps import (
    HiddenGate,
    NoisyRanking,
    RandomDraw,
    Remaining,
    SecretRandomDraw,
    SelectionStep,
    VisibleAnswers,
)

THRESHOLD = NoisyThreshold.examples()[0]
STEPS: list[Any] = [
    RandomDraw(candidates=40),
    SecretRandomDraw(draw=SecretDraw.examples()[0], most=70),
    NoisyRanking(scores=NoisyScores.examples()[0]),
    HiddenGate(
        threshold=THRESHOLD,
        comparisons=7,
        aim=30,
        start=ThresholdStart.VALIDATION,
        label_cap=LabelCap.SUM,
        confirming_share=0.25,
        cap=40,
    ),
    VisibleAnswers(
        threshold=THRESHOLD, comparisons=7, aim=30, answers=RandomizedResponse.examples()[0]
    ),
    Remaining(),
]
TRAINING = TrainingPhase(
    steps=12, noise_multiplier=1.1, sample_rate_old=0.1, sample_rate_new=1 / 3,
    expected_batch_size=50.0,
)  # fmt: skip


def phases() -> tuple[Phase, ...]:
    return tuple(
        Phase(
            index=index,
            cohort_size=40,
            selection=step,
            training=TRAINING,
            catch_up=TRAINING if index % 2 else None,
        )
        for index, step in enumerate(STEPS)
    )


def test_every_kind_of_selection_comes_back_as_it_was():
    assert {type(step) for step in STEPS} == set(get_args(SelectionStep))
    text = json.dumps(write_phases(phases()))
    read = read_phases(json.loads(text))
    assert read == phases()
    assert [type(phase.selection) for phase in read] == [type(step) for step in STEPS]
    assert canonical_json(read) == canonical_json(phases())


@pytest.mark.parametrize(
    "change",
    [
        {"part": "Path"},
        {"part": "TrainingPhase"},
        {"more": 1},
        {"training": {"event": {"mechanism": "unheard-of"}}},
        {"selection": {"part": "LabelCap"}},
    ],
)
def test_what_is_no_phase_is_refused(change):
    [written, *_] = write_phases(phases())
    with pytest.raises(ParameterError):
        read_phases([{**written, **change}])


def test_a_list_of_other_parts_is_no_plan():
    [written, *_] = write_phases(phases())
    with pytest.raises(ParameterError):
        read_phases([written["training"]])
