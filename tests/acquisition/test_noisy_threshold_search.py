from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpal.acquisition.noisy_threshold_search import Keys, collect_keys, noisy_threshold
from dpal.errors import ParameterError
from dpal.planning.selection_steps import HiddenGate, design_selections
from tests.conftest import RepeatableBits, nothing_released, small_spec

SILENT = 1e-9  # noise that rounds to nothing


def stream(scores, batch=7):
    rows = np.arange(len(scores))
    for start in range(0, len(scores), batch):
        yield rows[start : start + batch], np.asarray(scores[start : start + batch], dtype=float)


def keys_of(values, bits=16) -> Keys:
    return Keys(np.arange(len(values), dtype=np.uint32), np.asarray(values, np.uint16), bits)


def passing(keys: Keys, **changes) -> int:
    values = {"aim": 10, "count_noise": SILENT, "rng": RepeatableBits(1), **changes}
    return int(keys.above(noisy_threshold(keys, **values)).sum())


# -- keys --------------------------------------------------------------------------------


def test_a_higher_score_never_has_a_lower_key_by_more_than_a_tie(bits):
    scores = np.sort(np.random.default_rng(0).random(5000))
    keys = collect_keys(stream(scores, 512), width=1.0, bits=16, rng=bits)
    levels = keys.keys >> 4
    assert (np.diff(levels.astype(int)) >= 0).all()
    assert levels.tolist() == np.floor(scores * 4096).astype(int).tolist()
    assert keys.rows.tolist() == list(range(5000))


@pytest.mark.parametrize("bits_used", [5, 11, 16])
def test_the_ends_of_the_range_have_the_ends_of_the_keys(bits_used, bits):
    keys = collect_keys(stream([0.0, 0.8, 0.0, 0.8]), width=0.8, bits=bits_used, rng=bits)
    last = (1 << bits_used - 4) - 1
    assert (keys.keys >> 4).tolist() == [0, last, 0, last]
    assert keys.keys.max() < 1 << bits_used


def test_ties_are_broken_by_fresh_bits_alone():
    """Sixteen keys of equal chance for one score: chi-square at a false alarm of 1e-6."""
    keys = collect_keys(stream([0.5] * 16_000, 999), width=1.0, bits=16, rng=RepeatableBits(2))
    assert set(keys.keys >> 4) == {2048}
    counts = np.bincount(keys.keys & 15, minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-6
    again = collect_keys(stream([0.1] * 16_000, 64), width=1.0, bits=16, rng=RepeatableBits(2))
    assert (again.keys & 15 == keys.keys & 15).all()  # whatever the scores and batches are


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, -1e-9, 0.8 + 1e-9])
def test_a_score_outside_of_the_range_is_refused(score, bits):
    with pytest.raises(ParameterError, match="outside of", check=nothing_released):
        collect_keys(stream([0.1, 0.2, score]), width=0.8, bits=16, rng=bits)


@pytest.mark.parametrize("changes", [{"bits": 4}, {"bits": 17}, {"width": 0}, {"width": math.nan}])
def test_keys_that_cannot_be_are_refused(changes, bits):
    with pytest.raises(ParameterError):
        collect_keys(stream([0.1]), **{"width": 1.0, "bits": 16, **changes}, rng=bits)


# -- thresholds --------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 255), max_size=60),
    st.integers(0, 70),
)
def test_without_noise_it_is_the_lowest_key_with_few_enough_above(values, aim):
    keys = keys_of(values, bits=8)
    found = noisy_threshold(keys, aim=aim, count_noise=SILENT, rng=RepeatableBits(1))
    allowed = [t for t in range(1, 257) if sum(value >= t for value in values) <= aim]
    assert found == min(allowed)


def test_without_noise_the_best_pass_and_no_others():
    scores = np.random.default_rng(3).permutation(np.linspace(0, 1, 1000))
    keys = collect_keys(stream(scores), width=1.0, bits=16, rng=RepeatableBits(4))
    threshold = noisy_threshold(keys, aim=100, count_noise=SILENT, rng=RepeatableBits(5))
    chosen = keys.rows[keys.above(threshold)]
    assert set(chosen) == set(np.argsort(scores)[-100:])


def test_equal_scores_pass_by_their_random_bits(bits):
    keys = collect_keys(stream([0.3] * 3200, 500), width=1.0, bits=16, rng=bits)
    assert 800 <= passing(keys, aim=1000) <= 1000  # four or five of sixteen ties, about 200 each
    assert passing(keys, aim=3200) == 3200
    assert passing(keys, aim=100) == 0  # fewer than one tie holds: nobody, rather than too many


def test_keys_at_the_very_top_never_pass_beyond_the_aim():
    """The last threshold is one that no key reaches, and no uint16 either."""
    keys = keys_of([65_535] * 50)
    assert noisy_threshold(keys, aim=10, count_noise=SILENT, rng=RepeatableBits(1)) == 65_536
    assert passing(keys, aim=10) == 0
    assert passing(keys, aim=50) == 50


def test_an_empty_pool_has_a_threshold(bits):
    keys = collect_keys(iter([]), width=1.0, bits=16, rng=bits)
    assert keys.rows.size == 0
    assert passing(keys, aim=5) == 0
    assert noisy_threshold(keys, aim=5, count_noise=SILENT, rng=bits) == 1


@pytest.mark.parametrize("noise", [0.0, -1.0, math.nan])
def test_no_number_switches_the_noise_off(noise, bits):
    with pytest.raises(ParameterError, match="count_noise"):
        noisy_threshold(keys_of([1, 2]), aim=1, count_noise=noise, rng=bits)


def accepted(above: int, *, aim: int, noise: float, draws: int) -> float:
    """How often a single comparison lets `above` records pass."""
    keys, rng = keys_of([1] * above, bits=1), RepeatableBits(6)
    found = [noisy_threshold(keys, aim=aim, count_noise=noise, rng=rng) for _ in range(draws)]
    return found.count(1) / draws


@pytest.mark.parametrize("above", [92, 100, 105])
def test_a_count_has_gaussian_noise_of_its_promised_size(above):
    # Accepted when 100 - above, on whole numbers, is at least the noise. 4,000 draws have a
    # standard error of 0.8 %, and 4.9 of them are an alarm of 1e-6.
    noise, draws = 8.0, 4000

    def error(scale: float) -> float:
        chance = stats.norm.cdf((100.5 - above) / scale)
        seen = accepted(above, aim=100, noise=noise, draws=draws)
        return abs(seen - chance) / math.sqrt(chance * (1 - chance) / draws)

    assert error(noise) < 4.9
    if above == 92:  # power: half or twice the noise would be seen
        assert error(noise / 2) > 4.9
        assert error(noise * 2) > 4.9


def test_every_comparison_has_noise_of_its_own():
    """Were one value used for all, too low a value would let everything through."""
    keys = keys_of(np.repeat(np.arange(256), 8), bits=8)
    rng, draws = RepeatableBits(7), 1000
    seen = [
        passing(keys, aim=1000, count_noise=40.0, rng=rng) for _ in range(draws)
    ]  # steps of 8 records: the comparison with the closest counts decides, up or down
    assert 900 < np.mean(seen) < 1010
    assert 10 < np.std(seen) < 60


# -- the reserve of a hidden gate --------------------------------------------------------


@pytest.fixture(scope="module")
def hidden() -> tuple[int, HiddenGate, Keys]:
    """A planned query, its gate, and the keys of its pool."""
    spec = small_spec(
        6000, privacy={"selection": "hidden"}, schedule={"initial": 1000, "queries": [700]}
    )
    gate = design_selections(spec)[1]
    assert isinstance(gate, HiddenGate)
    scores = np.random.default_rng(8).beta(2, 5, 5000)
    keys = collect_keys(
        stream(scores, 500), width=1.0, bits=gate.comparisons, rng=RepeatableBits(9)
    )
    return 700, gate, keys


def passed(hidden, aim: int) -> np.ndarray:
    _, gate, keys = hidden
    rng = RepeatableBits(10)
    return np.array(
        [passing(keys, aim=aim, count_noise=gate.count_noise, rng=rng) for _ in range(2000)]
    )


@pytest.mark.slow
def test_the_label_budget_is_kept_by_the_reserve(hidden):
    """An overflow has the chance 1e-7 here: none in 2,000 draws, and room to spare."""
    size, gate, _ = hidden
    counts = passed(hidden, gate.aim)
    assert (counts <= size).all()
    assert counts.std() > 1  # it is noise that the reserve is for
    # Few labels are left unbought: the reserve, and half of a bracket's width.
    assert gate.aim * 0.9 < counts.mean() < gate.aim + gate.count_noise


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0.0, 0.1])
def test_without_a_reserve_the_budget_would_break(hidden, kept):
    size, gate, _ = hidden
    aim = size - round(kept * (size - gate.aim))
    assert (passed(hidden, aim) > size).mean() > 0.05
