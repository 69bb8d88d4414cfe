from __future__ import annotations

import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.accounting.events import (
    MajorityVotes,
    NoisyScores,
    NoisyThreshold,
    NoisyVotes,
    PhaseExposure,
    RandomizedResponse,
    from_record,
    to_record,
)
from dpal.errors import ParameterError
from tests.conftest import having

translated = st.one_of(
    st.builds(
        PhaseExposure,
        steps=st.integers(1, 5000),
        sample_rate=st.floats(1e-4, 1.0),
        noise_multiplier=st.floats(0.1, 100.0),
    ),
    # Powers of two have exact reciprocals, which is what dp-accounting holds.
    st.builds(NoisyScores, epsilon=st.integers(-10, 5).map(lambda k: 2.0**k)),
    st.builds(
        NoisyThreshold,
        noise_multiplier=st.floats(0.1, 100.0),
        failure_probability=st.one_of(st.just(0.0), st.floats(1e-12, 0.1)),
    ),
)
votes = st.one_of(
    st.builds(
        NoisyVotes,
        queries=st.integers(1, 5000),
        squared_sensitivity=st.floats(0.5, 200.0),
        sigma=st.floats(0.1, 100.0),
    ),
    st.builds(
        MajorityVotes,
        answers=st.integers(1, 5000),
        teachers=st.integers(1, 1000),
        sigma=st.floats(0.1, 100.0),
    ),
)
answers = st.tuples(*[st.floats(0.01, 0.99)] * 3).map(
    lambda rates: dict(zip(("below", "blank", "above"), sorted(rates), strict=True))
)


@settings(max_examples=50)
@given(st.one_of(translated, votes, answers.map(lambda rates: RandomizedResponse(**rates))))
def test_records_of_the_ledger_lead_back(event):
    assert from_record(to_record(event)) == event


def test_records_name_the_mechanism_and_its_parameters():
    assert to_record(NoisyScores(epsilon=0.5)) == {"mechanism": "laplace", "epsilon": 0.5}


def test_what_is_unknown_is_refused():
    with pytest.raises(ParameterError, match="mechanism 'magic' is unknown"):
        from_record({"mechanism": "magic"})
    with pytest.raises(ParameterError, match=r"'laplace' .*parameter more, sigma"):
        from_record({"mechanism": "laplace", "epsilon": 0.5, "sigma": 1.0, "more": 2})
    with pytest.raises(ParameterError, match="'laplace' lacks epsilon"):
        from_record({"mechanism": "laplace"})


def test_training_that_does_nothing_is_no_event():
    for steps, rate in ((0, 0.1), (3, 0.0)):
        event = PhaseExposure(steps=steps, sample_rate=rate, noise_multiplier=1.0)
        assert isinstance(event.dp_event(), dp_event.NoOpDpEvent)


@pytest.mark.parametrize(
    "rates",
    [
        {"above": 0.2, "below": 0.3, "blank": 0.25},
        {"above": 0.6, "below": 0.2, "blank": 0.7},
        {"above": 1.0, "below": 0.2, "blank": 0.3},
        {"above": 0.6, "below": 0.0, "blank": 0.3},
        {"above": float("nan"), "below": 0.2, "blank": 0.3},
    ],
)
def test_impossible_answers_cannot_be_built(rates):
    with pytest.raises(ParameterError):
        RandomizedResponse(**rates)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 65.0, 1e-9, float("nan")])
def test_scores_only_have_losses_that_can_be_drawn(epsilon):
    with pytest.raises(ParameterError, check=having(parameter="epsilon")):
        NoisyScores(epsilon=epsilon)
