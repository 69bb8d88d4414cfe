from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dpal.config.campaign import parse_config
from dpal.data.labeling_state import load_all
from dpal.data.sources import Role, open_source
from dpal.errors import ParameterError
from dpal.planning.campaign_spec import Acquisition
from dpal.simulation.choose_acquisition import choose_acquisition, choose_best, split_in_halves
from dpal.simulation.paired_comparison import ComparisonVerdict
from dpal.simulation.rehearsal import PublicData
from tests.conftest import ROOT, small_spec, small_values

BETTER, WORSE = ComparisonVerdict.BETTER, ComparisonVerdict.WORSE
EQUAL = ComparisonVerdict.NO_DIFFERENCE
RANDOM, MARGIN, ENTROPY = Acquisition.RANDOM, Acquisition.MARGIN, Acquisition.ENTROPY


@pytest.fixture(scope="module")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    path = ROOT / "data" / "digits-public.parquet"
    if not path.is_file():
        pytest.fail("the sample data is missing: run `make data` (dvc pull) first")
    return load_all(open_source(Path(path), Role.VALIDATION, label_column="label"))


def campaign(**overrides):
    """A campaign on the 10,000 digits that ship, planned quickly."""
    values = {
        "strategy": "naive",
        "acquisition": "margin",
        "privacy": {"selection": "hidden"},
        "schedule__initial": 600,
        "schedule__queries": [400, 400],
        "schedule__batch_size": 400,
        "schedule__epochs_per_phase": 8,
        "training__learning_rate": 0.5,
    }
    config = parse_config(small_values(**{**values, **overrides}))
    return config.to_spec(pool_size=10_000, input_shape=(1, 28, 28), classes=10)


def test_digits_that_ship_choose_a_score(digits):
    """Which one is left to the digits; that none is worse than random holds by construction."""
    seen = []
    chosen = choose_acquisition(
        campaign(),
        split_in_halves(*digits, runs=3),
        candidates=[MARGIN, RANDOM],
        physical_batch=512,
        on_rehearsal=lambda acquisition, run: seen.append((acquisition, run)),
    )
    assert seen == [(name, run) for name in (RANDOM, MARGIN) for run in range(3)]
    assert chosen.labels == 321 + 2 * 214  # half of 1,500, of 1,400 in proportion 600, 400, 400
    # Chance is 10 %. Twenty rehearsals reached 82.2 % and 82.9 %, with a deviation of 1.2.
    assert all(0.5 < mean.mean < 0.95 for mean in chosen.estimates.values())
    assert all(mean.runs == 3 for mean in chosen.estimates.values())
    assert chosen.comparisons[MARGIN].pairs == 3
    assert (chosen.acquisition is MARGIN) == (chosen.comparisons[MARGIN].difference > 0)
    assert chosen.reason.startswith(chosen.acquisition.value)
    record = chosen.as_record()
    assert record["comparisons"]["margin"]["pairs"] == 3
    assert record["acquisition"] == chosen.acquisition.value


def test_halves_are_drawn_anew_and_share_no_record():
    inputs = torch.arange(101).reshape(-1, 1)
    first, second = split_in_halves(inputs, inputs[:, 0], runs=2)
    for half in (first, second):
        pool, judge = half.inputs[:, 0].tolist(), half.validation_inputs[:, 0].tolist()
        assert sorted(pool + judge) == list(range(101))
        assert (half.labels == half.inputs[:, 0]).all()
    assert sorted(first.labels.tolist()) != sorted(second.labels.tolist())


def rare(runs: int, wanted: bool):
    """Records of which one in twenty is of a class of its own, or of which all are alike.

    Blobs: where the rare class is judged as often as the others, whoever finds it wins.
    """
    halves = []
    for run in range(runs):
        rng = np.random.default_rng(run)
        labels = rng.choice(3, 4000, p=[0.49, 0.49, 0.02] if wanted else [0.5, 0.5, 0.0])
        judged = rng.integers(0, 3 if wanted else 2, 2000)
        made = []
        for numbers in (labels, judged):
            values = 1.5 * np.eye(3, 8)[numbers] + rng.normal(0, 0.5, (len(numbers), 8))
            made += [torch.from_numpy(values.astype(np.float32)), torch.from_numpy(numbers)]
        halves.append(made)
    return [PublicData(*made) for made in halves]


def test_a_score_that_finds_a_rare_class_wins():
    spec = replace(campaign(), model=small_spec().model)
    chosen = choose_acquisition(spec, rare(5, wanted=True), candidates=[MARGIN], physical_batch=512)
    assert chosen.acquisition is MARGIN
    assert chosen.comparisons[MARGIN].verdict is BETTER


def reached(**runs: list[float]):
    return {Acquisition(name): dict(enumerate(values)) for name, values in runs.items()}


@pytest.mark.parametrize(
    ("figures", "acquisition", "verdict"),
    [
        (
            reached(random=[0.7, 0.8, 0.9], margin=[0.73, 0.84, 0.93]),
            MARGIN,
            BETTER,
        ),
        (reached(random=[0.7, 0.8], margin=[0.74, 0.8]), MARGIN, EQUAL),
        (
            reached(random=[0.7, 0.8, 0.9], margin=[0.68, 0.77, 0.88]),
            RANDOM,
            WORSE,
        ),
        (reached(random=[0.7, 0.8], margin=[0.69, 0.79]), RANDOM, EQUAL),
        (
            reached(random=[0.7, 0.8], margin=[0.8, 0.7]),
            RANDOM,
            EQUAL,
        ),  # a tie
    ],
)
def test_the_best_mean_wins_and_random_wins_ties(figures, acquisition, verdict):
    chosen = choose_best(figures, labels=100)
    assert chosen.acquisition is acquisition
    assert chosen.comparisons[MARGIN].verdict is verdict
    assert chosen.reason.startswith(acquisition.value)


def test_of_several_scores_the_best_is_taken():
    figures = reached(random=[0.7, 0.8], entropy=[0.72, 0.83], margin=[0.73, 0.86])
    assert choose_best(figures, labels=100).acquisition is MARGIN


def test_scores_that_have_no_plan_leave_random(digits):
    """A query of 20 is too small for a hidden threshold."""
    chosen = choose_acquisition(
        campaign(schedule__queries=[20]),
        split_in_halves(*digits, runs=2),
        candidates=[MARGIN, ENTROPY],
        physical_batch=512,
    )
    assert chosen.acquisition is RANDOM
    assert list(chosen.refused) == [MARGIN, ENTROPY]
    assert chosen.comparisons == {}


@pytest.mark.parametrize("acquisition", ["random", "margin"])
@pytest.mark.parametrize("selection", ["hidden", "visible", "paper"])
def test_every_way_of_selecting_is_rehearsed(digits, selection, acquisition):
    """Whatever the settings choose so far: random ones have no selection epsilon yet."""
    spec = campaign(
        privacy={"selection": selection}, acquisition=acquisition, schedule__epochs_per_phase=1
    )
    halves = split_in_halves(*digits, runs=2)
    chosen = choose_acquisition(spec, halves, candidates=[MARGIN], physical_batch=512)
    assert chosen.refused == {}
    assert chosen.comparisons[MARGIN].pairs == 2


def test_one_rehearsal_chooses_nothing(digits):
    with pytest.raises(ParameterError, match="rehearsals"):
        choose_acquisition(
            campaign(), split_in_halves(*digits, runs=1), candidates=[MARGIN], physical_batch=512
        )
