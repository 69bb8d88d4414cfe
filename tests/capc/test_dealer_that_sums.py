"""The guardian makes the keys and adds up the votes: from one bare share it finds the outcome.

Each candidate for an outcome gives one share, as the share is a function of keys that the
guardian made. Without the pad of site and querier exactly one of 65,536 candidates fits.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpal.accounting.votes.mechanisms import Mechanism
from dpal.capc import querier_votes as querier_steps
from dpal.capc import site_vote_shares as site_steps
from dpal.capc.messages import PaddedVotes, QuerierBallotDeal, QuerierDeal, SiteBallotDeal, SiteDeal
from dpal.capc.party_step_helpers import pad
from dpal.capc.shared_signs import SignCorrections, SignKeys, sign_keys, sign_shares
from dpal.capc.terms import GUARDIAN, QUERIER, VoteMode
from tests.capc.shared_outcomes import in_mode, shared
from tests.capc.together import hold_vote, numbers_of, random_models, terms_of
from tests.variants import quick_and_slow

CANDIDATES = np.arange(-(1 << 15), 1 << 15)


def vote_of_small_outcomes():
    rng = np.random.default_rng(6)
    terms = terms_of(3, labels=2, features=4, queries=2)
    models = {name: type(model)(np.clip(model.weights, -40, 40), model.bias // 4)
              for name, model in random_models(terms, rng).items()}  # fmt: skip
    asked = rng.integers(-100, 100, (2, 4), dtype=np.int8)
    return models, asked, hold_vote(terms, models, asked)


def fitting_outcomes(vote, site: str, answer: int) -> list[int]:
    """Outcomes of one vote that fit what the guardian was sent, by all that it dealt itself."""
    (deal,) = vote.sent(SiteDeal, site)
    (querier,) = vote.sent(QuerierDeal, QUERIER)
    place = vote.batch.sites.index(site) * vote.batch.counted + answer
    other = sign_keys(querier.seed.tobytes(), "signs", querier.products.size)
    own = sign_keys(deal.seed.tobytes(), "signs", vote.batch.counted)
    here = slice(answer, answer + 1)
    count = CANDIDATES.size
    keys = SignKeys(np.repeat(own.masks[here], count), np.repeat(own.roots[here], count, axis=0),
                    np.repeat(own.tops[here], count))  # fmt: skip
    one = deal.corrections.part(answer, answer + 1)
    comparisons = type(one.comparisons)(*(np.repeat(array, count, axis=1) for array in (
        one.comparisons.seeds, one.comparisons.values, one.comparisons.turns)))  # fmt: skip
    corrections = SignCorrections(comparisons, np.repeat(one.tops, count))
    opened = CANDIDATES.astype(np.uint32) + other.masks[place] + own.masks[answer]
    shares = sign_shares(opened, 1, keys, corrections, deal.salt.tobytes())
    sent = next(message for sender, to, message, _ in vote.wire
                if (sender, to) == (site, GUARDIAN) and type(message) is PaddedVotes)  # fmt: skip
    return CANDIDATES[shares == sent.values.ravel()[answer]].tolist()


def vote_of_first_positives():
    """The same of outcomes that came in shares, of which the guardian deals nothing."""
    rng = np.random.default_rng(8)
    plain = terms_of(3, labels=4, features=4, queries=3, mechanism=Mechanism.TOP_M, limit=2)
    models, asked = random_models(plain, rng), rng.integers(-100, 100, (3, 4), dtype=np.int8)
    own, held = shared(models, asked)
    return models, asked, hold_vote(in_mode(plain, VoteMode.SHARES), held, own)


def vote_of_classes():
    """Two rounds: of the second one the guardian knows all that the numbers can be."""
    rng = np.random.default_rng(8)
    terms = terms_of(3, labels=4, features=4, queries=3, mechanism=Mechanism.GNMAX)
    models, asked = random_models(terms, rng), rng.integers(-100, 100, (3, 4), dtype=np.int8)
    return models, asked, hold_vote(terms, models, asked)


def fitting_numbers(vote, site: str, answer: int) -> list[int]:
    """Numbers of the second round that fit what the guardian was sent, for one count."""
    (deal,) = vote.sent(SiteBallotDeal, site)
    (querier,) = vote.sent(QuerierBallotDeal, QUERIER)
    place = vote.batch.sites.index(site) * vote.batch.counted + answer
    masks = sign_keys(querier.seed.tobytes(), "signs", querier.tops.size).masks[place]
    own = sign_keys(deal.seed.tobytes(), "signs", deal.tops.size)
    here, fitting = slice(answer, answer + 1), []
    keys = SignKeys(own.masks[here], own.roots[here], own.tops[here])
    for number in range(-2 * vote.batch.labels - 2, vote.batch.labels + 2):
        opened = np.array([number], np.int64).astype(np.uint32) + masks + keys.masks
        corrections = deal.corrections.part(answer, answer + 1)
        share = sign_shares(opened, 1, keys, corrections, deal.salt.tobytes())
        sent = next(message for sender, to, message, _ in vote.wire if (sender, to) ==
                    (site, GUARDIAN) and type(message) is PaddedVotes)  # fmt: skip
        fitting += [number] if share[0] == sent.values.ravel()[answer] else []
    return fitting


def numbers_compared(models, asked, vote, site: str) -> np.ndarray:
    """What the second round compares with 0, of one site in plain text."""
    rule = vote.batch.rule
    bits = numbers_of(models[site], asked) @ rule.first.T >= 0
    return np.asarray(bits @ rule.second.weights.T + rule.second.constants).ravel()


TWO_ROUNDS = pytest.mark.parametrize(
    "held",
    quick_and_slow([vote_of_classes], [vote_of_classes, vote_of_first_positives]),
    ids=["classes", "shares"],
)


@TWO_ROUNDS
def test_the_guardian_cannot_tell_second_rounds_either(held):
    """A false alarm in five million runs: 36 shares, 16 candidates each, of 2**32 numbers."""
    _, _, vote = held()
    for site in vote.batch.sites:
        assert all(fitting_numbers(vote, site, count) == [] for count in range(vote.batch.counted))


@TWO_ROUNDS
def test_without_the_pad_it_finds_every_number_of_a_second_round(bare, held):
    models, asked, vote = held()
    for site in vote.batch.sites:
        for answer, truth in enumerate(numbers_compared(models, asked, vote, site)):
            assert fitting_numbers(vote, site, answer) == [truth]


def outcomes(models, asked, site: str) -> np.ndarray:
    model = models[site]
    return (asked.astype(int) @ model.weights.astype(int).T + model.bias).ravel()


@pytest.mark.slow
def test_the_guardian_cannot_tell_outcomes_from_what_it_adds_up():
    """A false alarm in 5,000 runs: 12 shares, 65,536 candidates each, of 2**32 numbers."""
    models, asked, vote = vote_of_small_outcomes()
    for site in vote.batch.sites:
        truth = outcomes(models, asked, site)
        assert np.abs(truth).max() < 1 << 15, "the search would not see it"
        for answer in range(vote.batch.counted):
            assert fitting_outcomes(vote, site, answer) == []


@pytest.fixture
def bare(monkeypatch):
    """Sites that forget their pads; who asks takes off what is not there, and would notice."""
    monkeypatch.setattr(site_steps.SiteVotes, "_pads", lambda self: np.uint32(0))
    monkeypatch.setattr(querier_steps, "_LARGEST_COUNT", 1 << 32)


@pytest.mark.slow
def test_without_the_pad_it_finds_every_outcome_exactly(bare):
    models, asked, vote = vote_of_small_outcomes()
    for site in vote.batch.sites:
        truth = outcomes(models, asked, site)
        for answer in range(vote.batch.counted):
            found = fitting_outcomes(vote, site, answer)
            assert truth[answer] in found and len(found) <= 2


def test_pads_between_sites_cancel_and_hide_each_site():
    """The pad with who asks apart, which it takes off again."""
    kept = site_steps.SiteVotes._pads

    def without_querier(state):
        return np.asarray(kept(state) - pad(state.secrets[QUERIER], state.batch))

    _, _, vote = vote_of_small_outcomes()
    of_sites = {name: without_querier(vote.parties[name]) for name in vote.batch.sites}
    assert not np.sum(list(of_sites.values()), axis=0, dtype=np.uint32).any()
    assert all((one != 0).all() for one in of_sites.values())
