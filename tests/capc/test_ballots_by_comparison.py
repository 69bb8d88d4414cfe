"""Sites name classes, sets and first positives in parts as they would in plain text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy

from dpal.accounting.events import SkellamCounts, SkellamMajorities, SkellamScaledCounts
from dpal.accounting.rdp import ORDERS
from dpal.accounting.votes.mechanisms import SCALED, Mechanism
from dpal.accounting.votes.scaled_ballots import moved_answers
from dpal.capc.ballots_by_comparison import MECHANISMS, MOST_COUNTS, ballot_rule
from dpal.capc.batch_costs import batch_event, epsilon_of_batches
from dpal.capc.site import begin_site
from dpal.capc.terms import SiteModel, Terms, VoteMode, batch_of, noise_share
from dpal.errors import ParameterError
from dpal.privacy import Adjacency
from dpal.randomness import secure
from dpal.voting.ballots import truncated
from tests.capc.shared_outcomes import in_mode, shared
from tests.capc.together import hold_vote, numbers_of, random_models, terms_of

FALSE_ALARM = 1e-7
KINDS: list[dict[str, Any]] = [
    {"mechanism": Mechanism.BINARY},
    {"mechanism": Mechanism.TOP_M, "limit": 2},
    {"mechanism": Mechanism.TOP_M, "limit": 5},
    {"mechanism": Mechanism.TAU_L2, "limit": 1.5},
    {"mechanism": Mechanism.TAU_L1, "limit": 2},
    {"mechanism": Mechanism.GNMAX},
    {"mechanism": Mechanism.POWERSET},
    {"mechanism": Mechanism.POWERSET, "limit": 2},
]


def expected(terms: Terms, numbers: np.ndarray) -> np.ndarray:
    """(..., counts) ballots of numbers (..., labels), by none of the rule's own arithmetic."""
    rule = ballot_rule(terms.mechanism, terms.labels, terms.limit)
    if terms.mechanism is Mechanism.GNMAX:  # of equal numbers the first
        return np.eye(terms.labels, dtype=bool)[numbers.argmax(axis=-1)]
    votes = (numbers >= 0).astype(np.uint8)
    if terms.mechanism in SCALED:
        most = np.maximum(1, votes.sum(axis=-1, keepdims=True))
        power = 0.5 if terms.mechanism is Mechanism.TAU_L2 else 1.0
        limit = terms.limit or 0.0
        return votes * np.floor(16 * np.minimum(1, limit / most**power) + 1e-9).astype(int)
    if terms.limit is not None:
        votes = truncated(votes[None], int(terms.limit))[0]
    if terms.mechanism is not Mechanism.POWERSET:
        return votes == 1
    return (votes[..., None, :] == rule.sets).all(axis=-1)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_ballot_in_plain_text_is_that_of_private_voting(kind):
    rng = np.random.default_rng(1)
    terms = terms_of(3, labels=5, **kind)
    numbers = rng.integers(-3, 4, (2_000, 5))  # ties, and zeros
    ballots = terms.rule.ballots(numbers)
    assert (ballots == expected(terms, numbers)).all()
    assert 0.01 < (ballots > 0).mean() < 0.99


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_without_noise_what_is_released_is_the_plain_vote(kind):
    """Messages in any order; a site is absent, and numbers tie."""
    rng = np.random.default_rng(2)
    terms = terms_of(5, labels=5, features=3, queries=40, absent=1, **kind)
    models = {
        site: SiteModel(rng.integers(-2, 3, (5, 3), dtype=np.int8), rng.integers(-2, 3, 5))
        for site in terms.sites
    }
    asked = rng.integers(-2, 3, (40, 3), dtype=np.int8)
    live = terms.sites[1:]
    votes = [hold_vote(terms, models, asked, live=live, order=rng)]
    if terms.mechanism is not Mechanism.GNMAX:
        own, held = shared(models, asked)
        votes += [hold_vote(in_mode(terms, VoteMode.SHARES), held, own, live=live, order=rng)]
    counts = np.sum([expected(terms, numbers_of(models[site], asked)) for site in live], axis=0)
    released = counts if terms.tells_counts else 2 * counts > 4 * terms.rule.parts
    assert released.any()
    for vote in votes:
        assert (vote.answers == released).all()
        assert all(not party.awaited for party in vote.parties.values())


@pytest.mark.parametrize("kind", KINDS[1:7], ids=str)
def test_the_largest_numbers_do_not_overflow(kind):
    limit = {"limit": 1} if isinstance(kind.get("limit"), int) else {}
    terms = terms_of(3, labels=3, features=1 << 14, queries=1, **{**kind, **limit})
    weights = np.array([[-128], [127], [-128]], np.int8).repeat(1 << 14, axis=1)
    most = terms.rule.largest_bias
    models = dict.fromkeys(terms.sites, SiteModel(weights, np.array([most, -most, most])))
    for value in (-128, 127):
        asked = np.full((1, 1 << 14), value, np.int8)
        counts = 3 * expected(terms, numbers_of(models["site-1"], asked))
        answers = hold_vote(terms, models, asked).answers
        ahead = 2 * counts > 3 * terms.rule.parts
        assert (answers == (counts if terms.tells_counts else ahead)).all()


def test_all_sets_of_ten_labels_can_be_voted_on():
    """1,024 sets are the most; each query of each site compares as many."""
    rng = np.random.default_rng(4)
    terms = terms_of(3, labels=10, features=4, queries=3, mechanism=Mechanism.POWERSET)
    models, asked = random_models(terms, rng), rng.integers(-99, 99, (3, 4), dtype=np.int8)
    counts = np.sum([expected(terms, numbers_of(models[site], asked)) for site in terms.sites], 0)
    assert counts.shape == (3, MOST_COUNTS)
    assert (hold_vote(terms, models, asked).answers == counts).all()


def test_a_bias_that_could_overflow_is_refused_by_the_site():
    terms = terms_of(3, labels=2, features=1, queries=1, mechanism=Mechanism.GNMAX)
    model = SiteModel(np.ones((2, 1), np.int8), np.array([terms.rule.largest_bias + 1, 0]))
    batch = batch_of(terms, 1, 1, terms.sites)
    noise = np.zeros((1, 2), np.int64)
    with pytest.raises(ParameterError, match="bias"):
        begin_site(batch, "site-1", model, noise, {}, rng=secure())


def deviation(terms: Terms, drawn: np.ndarray) -> float:
    """Chance of so odd a histogram of the noise, by the law that is charged."""
    mean = terms.share_variance * len(terms.sites) / 2
    law = scipy.stats.skellam(mean, mean)
    least = int(law.ppf(20 / drawn.size))
    edges = np.arange(least, -least + 1)
    chances = np.diff(law.cdf(np.concatenate([[-np.inf], edges[:-1] + 0.0, [np.inf]])))
    within = np.clip(drawn.ravel(), edges[0], edges[-1]) - edges[0]
    found = np.bincount(within, minlength=edges.size)
    return float(scipy.stats.chisquare(found, chances * drawn.size).pvalue)


def test_scaled_ballots_are_charged_by_counts_where_some_may_collude():
    kind: dict[str, Any] = {"mechanism": Mechanism.TAU_L2, "limit": 1.5, "sigma": 9.0}
    alone, helped = (terms_of(20, labels=5, queries=3, colluding=n, **kind) for n in (0, 4))
    event = batch_event(alone)
    assert type(batch_event(helped)) is SkellamScaledCounts and type(event) is not type(
        batch_event(helped)
    )
    assert event.variance == (16 * 9.0) ** 2 / 2 <= alone.share_variance * 20
    assert helped.share_variance * 16 >= event.variance
    # Too short for a limit, a ballot is none: that is binary voting, by its own account.
    whole = terms_of(20, labels=4, queries=3, mechanism=Mechanism.TAU_L2, limit=2, sigma=9.0)
    assert batch_event(whole) == batch_event(terms_of(20, labels=4, queries=3, sigma=9.0))


@pytest.mark.slow
@pytest.mark.statistical
def test_noise_on_released_counts_has_exactly_the_law_that_is_charged():
    """9,000 counts; a false alarm in ten million runs; a fifth more noise is noticed."""
    rng = np.random.default_rng(3)
    kind: dict[str, Any] = {"mechanism": Mechanism.GNMAX, "sigma": 2.0}
    terms = terms_of(4, labels=9, features=2, queries=1_000, **kind)
    models, asked = random_models(terms, rng), rng.integers(-128, 128, (1_000, 2), dtype=np.int8)
    batch = batch_of(terms, 1, 1_000, terms.sites)
    noise = {site: noise_share(terms, batch, rng=secure()) for site in terms.sites}
    vote = hold_vote(terms, models, asked, noise)
    plain = [expected(terms, numbers_of(models[site], asked)) for site in terms.sites]
    drawn = vote.answers - np.sum(plain, axis=0)
    assert deviation(terms, drawn) > FALSE_ALARM
    wrong = terms_of(4, labels=9, features=2, queries=1_000, **{**kind, "sigma": 2.4})
    assert deviation(wrong, drawn) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.statistical
def test_answers_of_scaled_ballots_are_as_often_yes_as_the_law_says():
    """8,000 answers; a false alarm in ten million runs; a fifth more noise is noticed."""
    kind: dict[str, Any] = {"mechanism": Mechanism.TAU_L2, "limit": 1, "sigma": 2.0}
    terms = terms_of(5, labels=8, features=1, queries=1_000, **kind)
    # Three sites say yes to all, each for floor(16 / sqrt(8)) = 5 parts of 16; half is 40.
    yes, no = (SiteModel(np.zeros((8, 1), np.int8), np.full(8, bias)) for bias in (0, -1))
    models = dict(zip(terms.sites, (yes, yes, yes, no, no), strict=True))
    asked = np.zeros((1_000, 1), np.int8)
    batch = batch_of(terms, 1, 1_000, terms.sites)
    noise = {site: noise_share(terms, batch, rng=secure()) for site in terms.sites}
    found = int(hold_vote(terms, models, asked, noise).answers.sum())

    def chance(variance: float) -> float:
        law = scipy.stats.skellam(variance / 2, variance / 2)
        return float(scipy.stats.binomtest(found, 8_000, law.sf(40 - 15)).pvalue)

    assert chance((16 * 2.0) ** 2 / 2) > FALSE_ALARM
    assert chance(2.0**2 / 2) < FALSE_ALARM and chance((16 * 2.4) ** 2 / 2) < FALSE_ALARM


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_two_ballots_differ_in_more_counts_than_are_charged(kind):
    """All ballots that numbers can make, five labels: the largest distance is the charged one."""
    terms = terms_of(3, labels=5, queries=7, **kind)
    signs = np.array(np.meshgrid(*[[-1, 1]] * 5)).reshape(5, -1).T
    numbers = signs if terms.mechanism is not Mechanism.GNMAX else np.eye(5, dtype=np.int64)
    ballots = terms.rule.ballots(numbers)
    apart = (ballots[:, None] != ballots[None]).sum(axis=2).max()
    assert apart == terms.rule.changed
    event = batch_event(terms)
    if isinstance(event, SkellamCounts):
        assert event.answers == 7 * apart
        return
    moves = moved_answers(event.variance, 16, tuple(ORDERS))
    changes = moves[np.abs(ballots[:, None] - ballots[None])].sum(axis=2).max(axis=(0, 1))
    assert event.renyi(Adjacency.ZERO_OUT) == pytest.approx(7 * changes, rel=1e-12)


def test_counts_are_charged_where_they_are_released():
    named = terms_of(20, labels=10, queries=3, sigma=9.0, mechanism=Mechanism.GNMAX)
    event = batch_event(named)
    assert type(event) is SkellamCounts
    assert event.variance <= 81.0 <= event.variance * (1 + 1e-12)
    assert named.share_variance * 20 >= event.variance
    assert type(batch_event(terms_of(20, sigma=9.0))) is SkellamMajorities
    own = epsilon_of_batches(named, colluding=0)
    fewer = epsilon_of_batches(named, colluding=10)
    assert own is not None and fewer is not None and own < fewer


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ({"mechanism": Mechanism.TOP_M}, "needs a limit"),
        ({"mechanism": Mechanism.TAU_L2}, "needs a limit"),
        ({"mechanism": Mechanism.TOP_M, "limit": 1.5}, "whole"),
        ({"mechanism": Mechanism.TAU_L1, "limit": 1, "labels": 17}, "nothing"),
        ({"mechanism": Mechanism.TAU_L2, "limit": 2, "labels": 200}, f"{MOST_COUNTS:,}"),
        ({"mechanism": Mechanism.TAU_L2, "limit": 1.5, "sigma": 61.0}, "sigma"),
        ({"mechanism": Mechanism.TAU_L2, "limit": 1.5, "sigma": 40.0}, "exactly"),
        ({"mechanism": Mechanism.BINARY, "limit": 2}, "has no limit"),
        ({"mechanism": Mechanism.GNMAX, "limit": 2}, "has no limit"),
        ({"mechanism": Mechanism.TOP_M, "limit": 6}, "limit"),
        ({"mechanism": Mechanism.POWERSET, "labels": 11}, f"{MOST_COUNTS:,}"),
        ({"mechanism": Mechanism.GNMAX, "labels": 1}, "labels"),
        ({"mechanism": Mechanism.GNMAX, "labels": 60}, "classes"),
    ],
    ids=str,
)
def test_what_sites_cannot_vote_on_is_refused(kind: dict[str, Any], word):
    with pytest.raises(ParameterError, match=word):
        terms_of(3, **{"labels": 5, **kind})


def test_every_mechanism_is_tried_here():
    assert {kind["mechanism"] for kind in KINDS} == set(MECHANISMS)
