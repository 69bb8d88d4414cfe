"""SIGKILL at random write points, over and over, and the same command again."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

from tests.faults.story import Commands, Story, Told, random_deaths, tell

KILLS = int(os.environ.get("DPAL_FAULT_KILLS") or 240)


@pytest.mark.statistical
@pytest.mark.slow  # the kills at every write point are not: tests/faults/test_kill.py
def test_eight_deaths_leave_the_ledger_of_an_undisturbed_run(story, commands, undisturbed, chance):
    assert len(_tell_wildly(story, commands, undisturbed, chance, kills=8)) == 8


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["labeled by hand", "rerun", "hidden", "fitted"])
def test_any_death_leaves_the_ledger_of_an_undisturbed_run(
    kind, commands, labeled_by_hand, rerun, hidden, fitted, chance, capsys
):
    stories = {"rerun": rerun, "hidden": hidden, "fitted": fitted}
    story = stories.get(kind) or labeled_by_hand(2)
    undisturbed = tell(story, commands)
    deaths = _tell_wildly(story, commands, undisturbed, chance, kills=KILLS // 3)
    toll = Counter(deaths)
    with capsys.disabled():
        print(f"\n{kind}: {toll.total()} deaths")  # noqa: T201
        for point, count in sorted(toll.items()):
            print(f"{count:5}  {point}")  # noqa: T201


def _tell_wildly(
    story: Story,
    commands: Commands,
    undisturbed: Told,
    chance: np.random.Generator,
    *,
    kills: int,
) -> list[str]:
    """Tells a story until enough commands have died in it, from the start if need be."""
    deaths: list[str] = []
    while (left := kills - len(deaths)) > 0:
        wild = tell(story, commands, deaths=random_deaths(chance, undisturbed), limit=left)
        assert wild.entries == undisturbed.entries, wild.place
        deaths += wild.deaths
    return deaths
