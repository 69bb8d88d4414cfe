"""What a plan may be bad at is said by numbers that stand in it."""

from __future__ import annotations

from typing import Any

import pytest

from dpal.data.validation_checks import scale_remarks
from dpal.planning.certify_campaign import certified_plan
from dpal.planning.plan_doubts import plan_doubts
from tests.conftest import small_spec

SOUND: dict[str, Any] = {"privacy__epsilon": 8, "schedule__queries": [], "acquisition": "random"}


def doubts(*, weights: int = 27, **settings) -> list[str]:
    return list(
        plan_doubts(certified_plan(small_spec(**{**SOUND, **settings})).plan, weights=weights)
    )


def test_a_sound_plan_has_none():
    assert doubts(schedule__initial=300, schedule__batch_size=150) == []


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (
            {"schedule__initial": 60, "schedule__queries": [200], "schedule__batch_size": 120},
            "60 labels",
        ),
        ({"schedule__initial": 25, "schedule__batch_size": 20}, "25 labels"),
        ({"schedule__initial": 300, "schedule__epochs_per_phase": 150}, "150 passes"),
        ({"schedule__initial": 300, "weights": 10_000_000}, "10,000,000 numbers"),
    ],
)
def test_each_doubt_names_its_numbers(settings, word):
    assert any(word in doubt for doubt in doubts(**settings))


def test_noise_drowns_gradients_from_three_times_their_length():
    """By the plan's own numbers: sigma * sqrt(weights) / batch."""
    certified = certified_plan(small_spec(**SOUND, schedule__initial=300, schedule__batch_size=150))
    [part] = certified.plan.phases[0].parts
    for times, drowned in ((2.9, False), (3.1, True)):
        weights = int((times * part.expected_batch_size / part.noise_multiplier) ** 2)
        said = list(plan_doubts(certified.plan, weights=weights))
        assert [f"{times} times" in doubt for doubt in said] == [True] * drowned


def test_scales_that_differ_a_hundredfold_are_told():
    assert scale_remarks([1.0, 1.2, 150.0, 0.0])
    assert not scale_remarks([1.0, 2.0, 150.0, 50.0])
    assert not scale_remarks([1.0, 0.9, 0.002])  # a rare category
    assert not scale_remarks([0.0, 0.0])
