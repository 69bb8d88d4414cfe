"""A vote in parts is the vote in plain text, with noise that is exactly what is charged."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.capc.terms import GUARDIAN, QUERIER, VoteMode, batch_of, noise_share
from dpal.randomness import secure
from tests.capc.shared_outcomes import in_mode, shared
from tests.capc.together import hold_vote, plain_votes, queries, random_models, terms_of
from tests.variants import quick_and_slow

FALSE_ALARM = 1e-7


@pytest.mark.parametrize("mode", VoteMode)
@pytest.mark.parametrize("sites", quick_and_slow([3, 4], [3, 4, 7]))
def test_without_noise_every_bit_is_that_of_the_plain_vote(sites, mode):
    """More than 15,000 bits in each mode, messages in any order; even numbers of sites tie."""
    rng = np.random.default_rng(sites)
    terms = terms_of(sites, labels=15, features=24, queries=350)
    models, asked = random_models(terms, rng), queries(rng, 350, 24)
    votes = plain_votes(models, terms.sites, asked)
    if mode is VoteMode.SHARES:
        own, held = shared(models, asked)
        vote = hold_vote(in_mode(terms, mode), held, own, order=rng)
    else:
        vote = hold_vote(in_mode(terms, mode), models, asked, order=rng)
    assert vote.answers.shape == (350, 15)
    assert (vote.answers == (2 * votes > sites)).all()
    assert 0.05 < vote.answers.mean() < 0.95
    assert (2 * votes == sites).any() == (sites % 2 == 0)
    assert all(not party.awaited for party in vote.parties.values())


def test_outcomes_at_the_very_threshold_count_as_yes():
    terms = terms_of(3, labels=2, features=2, queries=1)
    models = random_models(terms, np.random.default_rng(1))
    models = {site: type(model)(np.array([[1, 0], [1, 0]], np.int8), np.array([-5, -6]))
              for site, model in models.items()}  # fmt: skip
    vote = hold_vote(terms, models, np.array([[5, 9]], np.int8))
    assert vote.answers.tolist() == [[1, 0]]


def test_the_largest_model_does_not_overflow():
    terms = terms_of(3, labels=2, features=1 << 14, queries=1)
    weights = np.full((2, 1 << 14), -128, np.int8)
    bias = np.array([-(1 << 30), 1 << 30])
    models = {site: type(random_models(terms, np.random.default_rng(1))[site])(weights, bias)
              for site in terms.sites}  # fmt: skip
    for value in (-128, 127):
        asked = np.full((1, 1 << 14), value, np.int8)
        expected = 2 * plain_votes(models, terms.sites, asked) > 3
        assert (hold_vote(terms, models, asked).answers == expected).all()


def test_sites_that_are_absent_count_for_nothing():
    rng = np.random.default_rng(2)
    terms = terms_of(5, absent=2)
    models, asked = random_models(terms, rng), queries(rng, 6, 16)
    live = (terms.sites[0], terms.sites[2], terms.sites[4])
    vote = hold_vote(terms, models, asked, live=live)
    assert (vote.answers == (2 * plain_votes(models, live, asked) > 3)).all()


def chance_of_yes(terms, live, votes):
    """By the law of the noise of all that voted: Skellam, its variance the sum of the shares."""
    mean = terms.share_variance * live / 2
    # count + noise > live / 2; scipy's own distribution, which the sampler does not use.
    return scipy.stats.skellam.sf(np.floor(live / 2 - votes), mean, mean)


def deviation(terms, votes, answers):
    """Chi-square of answers against the exact law, and its degrees of freedom."""
    chances = chance_of_yes(terms, len(terms.sites), votes)
    total, freedom = 0.0, 0
    for count in np.unique(votes):
        there, chance = votes == count, float(chances[votes == count][0])
        expected, variance = there.sum() * chance, there.sum() * chance * (1 - chance)
        if variance > 25:
            total, freedom = total + (answers[there].sum() - expected) ** 2 / variance, freedom + 1
    return total, freedom


@pytest.mark.statistical
def test_noisy_answers_have_exactly_the_law_that_is_charged():
    """20,000 answers; a false alarm in ten million runs; a third more noise is noticed."""
    rng = np.random.default_rng(3)
    terms = terms_of(5, labels=20, features=8, queries=1_000, sigma=2.0, colluding=1)
    models, asked = random_models(terms, rng), queries(rng, 1_000, 8)
    batch = batch_of(terms, 1, 1_000, terms.sites)
    noise = {site: noise_share(terms, batch, rng=secure()) for site in terms.sites}
    answers = hold_vote(terms, models, asked, noise).answers
    votes = plain_votes(models, terms.sites, asked)
    found, freedom = deviation(terms, votes, answers)
    assert freedom >= 4
    assert scipy.stats.chi2.sf(found, freedom) > FALSE_ALARM
    wrong = terms_of(5, labels=20, features=8, queries=1_000, sigma=2.66, colluding=1)
    found, freedom = deviation(wrong, votes, answers)
    assert scipy.stats.chi2.sf(found, freedom) < FALSE_ALARM


def test_noise_of_the_honest_sites_alone_is_enough():
    for colluding, absent in ((0, 0), (2, 1), (10, 25)):
        terms = terms_of(50, colluding=colluding, absent=absent, sigma=9.0)
        assert terms.share_variance * (terms.least_live - colluding) >= 9.0**2 / 2
        assert terms.share_variance * (terms.least_live - colluding) < 9.0**2 / 2 * (1 + 1e-12)


def test_who_asks_could_have_drawn_all_it_sees_from_the_answers():
    """The last opening is uniform, and the guardian's share follows from answer and own keys."""
    rng = np.random.default_rng(4)
    terms = terms_of(4, labels=8, features=8, queries=900)
    vote = hold_vote(terms, random_models(terms, rng), np.ones((900, 8), np.int8))
    answer = vote.wire[-1][2]
    asker = vote.parties[QUERIER]
    own = vote.answers.astype(np.uint32) - answer.shares
    assert (own + answer.shares <= 1).all()
    assert is_uniform(asker.margin + answer.masked)
    assert is_uniform(answer.shares)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "mechanism", quick_and_slow([Mechanism.BINARY], [Mechanism.BINARY, Mechanism.GNMAX])
)
def test_every_party_sees_uniform_numbers_alone(mechanism):
    """Bytes of all that is sent about constant queries and models; 1 false alarm in 1e5 runs."""
    terms = terms_of(4, labels=8, features=16, queries=600, mechanism=mechanism)
    models = random_models(terms, np.random.default_rng(5))
    model = type(models["site-1"])(np.full((8, 16), 3, np.int8), np.zeros(8, np.int64))
    asked = np.full((600, 16), 5, np.int8)
    vote = hold_vote(terms, dict.fromkeys(terms.sites, model), asked)
    seen: dict[tuple[str, str, str], list[np.ndarray]] = {}
    for _, receiver, message, _ in vote.wire:
        for name in message.layout:
            to = receiver if receiver in (QUERIER, GUARDIAN) else "sites"
            key = (type(message).__name__, name, to)
            seen.setdefault(key, []).append(np.asarray(getattr(message, name)).ravel())
    checked = 0
    for (kind, name, _), parts in seen.items():
        values = np.concatenate(parts)
        if name in ("seed", "salt"):
            continue
        if name == "difference" and kind == "HiddenQuery":
            values = parts[0]  # the same for all sites
        assert is_uniform(values), (kind, name)
        checked += 1
    assert checked >= (17 if mechanism is Mechanism.BINARY else 24)
    assert not is_uniform(np.asarray(asked, np.uint32)), "power"
    assert not is_uniform(np.asarray(model.weights, np.uint32)), "power"


def is_uniform(values: np.ndarray) -> bool:
    """Chi-square of the second lowest byte, all of whose bits are used in every field."""
    found = np.bincount(
        ((values >> values.dtype.type(8)) & values.dtype.type(0xFF)).astype(np.int64).ravel(),
        minlength=256,
    )
    return scipy.stats.chisquare(found).pvalue > FALSE_ALARM
