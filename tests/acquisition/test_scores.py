from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pytest import approx

from dpal.acquisition.scores import SCORES, score
from dpal.errors import ParameterError
from dpal.planning.spec import Acquisition

SCORED = list(SCORES)


def rows(*values):
    return np.array(values, dtype=float)


def test_values_by_hand():
    sure, torn, split = [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.4, 0.1]
    probabilities = rows(sure, torn, split)
    assert score(Acquisition.LEAST_CONFIDENCE, probabilities) == approx([0, 2 / 3, 0.5])
    assert score(Acquisition.MARGIN, probabilities) == approx([0, 1, 0.9])
    entropy = -(0.5 * math.log(0.5) + 0.4 * math.log(0.4) + 0.1 * math.log(0.1)) / math.log(3)
    # 1.0 and 0.86 are clipped to the public bound of 0.8.
    assert entropy > 0.8
    assert score(Acquisition.ENTROPY, probabilities) == approx([0, 0.8, 0.8])
    assert score(Acquisition.ENTROPY, rows([0.9, 0.05, 0.05])) == approx([0.359], abs=1e-3)


@pytest.mark.parametrize("acquisition", SCORED)
@given(arrays(float, (5, 4), elements=st.floats(0.001, 1)))
def test_scores_stay_in_their_range(acquisition, raw):
    probabilities = raw / raw.sum(axis=1, keepdims=True)
    scores = score(acquisition, probabilities)
    assert (scores >= 0).all()
    assert (scores <= SCORES[acquisition].width(4)).all()


@pytest.mark.parametrize("acquisition", SCORED)
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_record_that_breaks_the_model_is_wanted_least(acquisition, broken):
    """Published code ranks NaN first: such a record is selected whatever the noise."""
    scores = score(acquisition, rows([broken, 0.5, 0.5], [0.2, 0.4, 0.4]))
    assert scores[0] == 0.0
    assert scores[1] > 0


def test_random_selection_has_no_score():
    with pytest.raises(ParameterError, match="does not score"):
        score(Acquisition.RANDOM, rows([0.5, 0.5]))
