"""Terms that cannot be kept are refused, and so are batches of too few sites."""

from __future__ import annotations

import numpy as np
import pytest

from dpal.capc.terms import SiteModel, batch_of
from dpal.errors import ParameterError
from tests.capc.together import terms_of


@pytest.mark.parametrize(
    "wrong",
    [
        {"sigma": 0.0}, {"sigma": float("nan")}, {"colluding": -1}, {"colluding": 4}, {"absent": 4},
        {"colluding": 2, "absent": 2}, {"labels": 0}, {"features": 1 << 15}, {"queries": 0},
        {"sites": 1}, {"mode": "Strict"}, {"mode": None},
    ],
)  # fmt: skip
def test_terms_that_cannot_be_kept_are_refused(wrong):
    with pytest.raises(ParameterError):
        terms_of(**wrong)


def test_names_are_the_sites_own():
    kept = vars(terms_of(3))
    for names in (("a", "a", "b"), ("a", "guardian", "b"), ("querier", "a", "b")):
        with pytest.raises(ParameterError):
            type(terms_of(3))(**{**kept, "sites": names})


def test_too_few_sites_are_refused_and_strangers_too():
    terms = terms_of(5, absent=1, colluding=1)
    assert batch_of(terms, 1, 6, terms.sites[1:]).sites == terms.sites[1:]
    for live in (terms.sites[2:], (*terms.sites, "stranger"), terms.sites[::-1]):
        with pytest.raises(ParameterError) as refused:
            batch_of(terms, 1, 6, live)
        assert refused.value.released is False
    for number, queries in ((0, 1), (1, 0), (1, 7)):
        with pytest.raises(ParameterError):
            batch_of(terms, number, queries, terms.sites)


def test_sites_deal_in_turn():
    terms = terms_of(4)
    dealers = [batch_of(terms, number, 1, terms.sites).dealer for number in range(1, 9)]
    assert sorted(dealers) == sorted(terms.sites * 2)


@pytest.mark.parametrize(
    ("weights", "bias"),
    [
        (np.zeros((2, 3)), np.zeros(2, int)),
        (np.zeros((2, 3), np.int8), np.zeros(3, int)),
        (np.zeros(3, np.int8), np.zeros(1, int)),
        (np.zeros((2, 3), np.int8), np.array([0, (1 << 30) + 1])),
        (np.zeros((2, 3), np.int8), np.array([0, -(1 << 63)])),  # which has no absolute value
    ],
)
def test_models_that_do_not_fit_are_refused(weights, bias):
    with pytest.raises(ParameterError):
        SiteModel(weights, bias)
