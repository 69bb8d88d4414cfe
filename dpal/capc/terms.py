"""What the parties of a vote agree on: public, and the same for everybody."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.votes.mechanisms import PLURALITY, Mechanism
from dpal.accounting.votes.scaled_ballots import MOST_SCALED_SIGMA
from dpal.canonical import LATER
from dpal.capc.ballots_by_comparison import LARGEST_BIAS, BallotRule, ballot_rule, require_outcomes
from dpal.capc.ring import MOST_FEATURES
from dpal.errors import ParameterError
from dpal.mechanisms.skellam import LARGEST_VARIANCE, skellam_noise
from dpal.randomness import BitSource

GUARDIAN, QUERIER = "guardian", "querier"  # the parties that are no sites

MOST_LABELS = 1_024
MOST_QUERIES = 1_024
MOST_SITES = 1_000
MOST_BATCHES = 10_000

Features = NDArray[np.int8]


class VoteMode(StrEnum):
    """Who helps sites and who asks to compute.

    Attributes:
      HELPER: the guardian deals keys; it must not collude.
      STRICT: nobody does; epsilon holds even if the guardian and who asks collude.
      SHARES: outcomes were computed before the vote by another program, and who asks and sites
        hold shares of them; the rest is as with a helper.
    """

    HELPER = "helper"
    STRICT = "strict"
    SHARES = "shares"


class _InMode:
    """What is said of terms and of their batches alike."""

    mode: VoteMode

    @property
    def is_strict(self) -> bool:
        """Whether sites and who asks compute without a dealer."""
        return self.mode == VoteMode.STRICT

    @property
    def has_shares(self) -> bool:
        """Whether outcomes come in shares that were made before."""
        return self.mode == VoteMode.SHARES


@dataclass(frozen=True, kw_only=True)
class Terms(_InMode):
    """Who votes on what, and with how much noise.

    Attributes:
      name: of the vote, and so of its account: parties that know other names share no key.
      sites: names of all enrolled sites, in the order of their messages.
      labels: yes-or-no labels of a query.
      features: length of a query, in whole numbers of 8 bits; 0 where outcomes come in shares.
      queries: of a batch, at most.
      sigma: standard deviation of the noise on each count, in votes. Of answers of yes or no it is
        that of each of the two counts of a label, as in `dpal.accounting.events.MajorityVotes`: on
        the count of yes alone it is sigma / sqrt(2).
      colluding: sites that may collude with whoever asks, at most, or ask themselves; the noise of
        all others alone has this deviation.
      absent: sites that may be missing from a batch, at most.
      batches: that may ever be asked, by all who ask together.
      epsilon: what all of them may tell of a record of any site, at most.
      delta: failure probability of that.
      mechanism: what sites vote on, one of `dpal.capc.ballots_by_comparison.MECHANISMS`.
      limit: positives of a ballot, at most, where the mechanism has one; of scaled ballots their
        norm.
      mode: who computes what sites' models say, and how.
    """

    sites: tuple[str, ...]
    labels: int
    features: int
    queries: int
    sigma: float
    colluding: int = 0
    absent: int = 0
    batches: int = 1
    epsilon: float = 20.0
    delta: float = 1e-5
    name: str = "vote"
    mechanism: Mechanism = field(default=Mechanism.BINARY, metadata=LATER)
    limit: float | None = field(default=None, metadata=LATER)
    mode: VoteMode = field(default=VoteMode.HELPER, metadata=LATER)

    def __post_init__(self) -> None:
        check.within(2, MOST_SITES, sites=len(self.sites))
        if {GUARDIAN, QUERIER} & set(self.sites):
            raise ParameterError(f"no site can be called {GUARDIAN} or {QUERIER}; name it anew")
        if len(set(self.sites)) < len(self.sites):
            raise ParameterError("two sites have the same name; give each one of its own")
        check.within(1, MOST_LABELS, labels=self.labels)
        if self.mode not in set(VoteMode):
            raise ParameterError(f"a vote has no mode {self.mode}; use {', '.join(VoteMode)}")
        if not self.has_shares:
            check.within(1, MOST_FEATURES, features=self.features)
        elif self.features:
            raise ParameterError("features are not asked for in mode shares; leave them out")
        check.within(1, MOST_QUERIES, queries=self.queries)
        check.within(1, MOST_BATCHES, batches=self.batches)
        check.positive(sigma=self.sigma, epsilon=self.epsilon)
        check.inside(0, 1, delta=self.delta)
        check.at_least(0, colluding=self.colluding, absent=self.absent)
        if len(self.sites) - self.colluding - self.absent < 2:
            raise ParameterError(
                f"of {len(self.sites)} sites {self.colluding} may collude and {self.absent} be "
                "absent, which leaves fewer than 2 whose noise counts; lower one of them"
            )

        # Also refuses a mechanism, limit or number of labels that cannot be.
        if self.rule.entries:
            check.within(0, MOST_SCALED_SIGMA, sigma=self.sigma)
            if self.share_variance > LARGEST_VARIANCE:
                raise ParameterError(
                    f"sigma {self.sigma:g} is more noise than {len(self.sites)} sites draw exactly "
                    "in parts of a vote; use less noise, or more sites"
                )
        if self.has_shares:
            require_outcomes(self.mechanism)

    @property
    def rule(self) -> BallotRule:
        """How a site's ballot follows from its model."""
        return ballot_rule(self.mechanism, self.labels, self.limit)

    @property
    def tells_counts(self) -> bool:
        """Whether who asks gets noisy counts, or else for each of them whether it is above half."""
        return self.mechanism in PLURALITY

    @property
    def charged_sigma(self) -> float:
        """Sigma of events, by which one count has noise of variance sigma**2 / 2; rounded down."""
        return math.nextafter(math.sqrt(2) * self.sigma, 0) if self.tells_counts else self.sigma

    @property
    def least_live(self) -> int:
        """Sites that a batch needs: any fewer, and noise of the honest ones may be missing."""
        return len(self.sites) - self.absent

    @property
    def share_variance(self) -> float:
        """Variance of each site's noise, so that any honest sites add up to what is charged.

        Of scaled ballots it is that of parts of a vote. Rounded up: of the sites that are there all
        but `colluding` are honest.
        """
        honest = len(self.sites) - self.colluding - self.absent
        votes = math.nextafter(self.charged_sigma**2 / 2 / honest, math.inf)
        return votes * self.rule.parts**2


@dataclass(frozen=True, kw_only=True)
class QueryBatch(_InMode):
    """Queries that are answered together.

    Attributes:
      number: 1, 2, ... in a session; keys, masks and pads of a number serve once.
      queries: how many.
      labels: of each.
      features: of each.
      rule: how ballots follow from models.
      tells_counts: whether noisy counts are released.
      sites: those that are there, in the order of `Terms.sites`.
      dealer: the site that deals the last comparison.
      mode: as of the terms.
    """

    number: int
    queries: int
    labels: int
    features: int
    rule: BallotRule
    tells_counts: bool
    sites: tuple[str, ...]
    dealer: str
    mode: VoteMode = VoteMode.HELPER

    @property
    def compared(self) -> int:
        """Comparisons of the first round, of one site."""
        return self.queries * self.rule.outcomes

    @property
    def counted(self) -> int:
        """Counts: each is released, or whether it is above half."""
        return self.queries * self.rule.counts


def batch_of(terms: Terms, number: int, queries: int, live: tuple[str, ...]) -> QueryBatch:
    """The batch of a number among the sites that are there.

    Raises:
      ParameterError: too few are, a stranger is among them, there are too many queries, or no
        batch may have this number.
    """
    check.within(1, terms.batches, number=number)
    check.within(1, terms.queries, queries=queries)
    if live != tuple(site for site in terms.sites if site in live):
        raise ParameterError.before_release("the sites of a batch are not those that agreed")
    if len(live) < terms.least_live:
        raise ParameterError.before_release(
            f"{len(live)} of {len(terms.sites)} sites are there and a batch needs "
            f"{terms.least_live} (capc.absent is {terms.absent}); ask again once more are"
        )
    return QueryBatch(
        number=number,
        queries=queries,
        labels=terms.labels,
        features=terms.features,
        rule=terms.rule,
        tells_counts=terms.tells_counts,
        sites=live,
        dealer=live[number % len(live)],  # each in turn
        mode=terms.mode,
    )


def noise_share(terms: Terms, batch: QueryBatch, *, rng: BitSource) -> NDArray[np.int64]:
    """One site's (queries, counts) noise on the counts of a batch; private."""
    drawn = skellam_noise(batch.counted, terms.share_variance, rng=rng)
    return drawn.reshape(batch.queries, batch.rule.counts)


@dataclass(frozen=True, eq=False)
class SiteModel:
    """A site's private linear heads on public features: weights @ x + bias for each label.

    Attributes:
      weights: (labels, features) whole numbers of 8 bits; private.
      bias: (labels,) whole numbers, at most 2**30 in size; private.
    """

    weights: NDArray[np.int8]
    bias: NDArray[np.int64]

    def __post_init__(self) -> None:
        fits = self.weights.ndim == 2 and self.bias.shape == self.weights.shape[:1]
        if not fits or self.weights.dtype != np.int8:
            raise ParameterError.before_release(
                "a site's model needs (labels, features) weights of 8 bits and a bias for each "
                "label"
            )
        check.within(1, MOST_FEATURES, features=self.weights.shape[1])
        self.require_bias(LARGEST_BIAS)

    def require_bias(self, most: int) -> None:
        """Requires every bias to be so small that a mechanism's comparisons do not overflow.

        Raises:
          ParameterError: one is larger.
        """
        if ((self.bias > most) | (self.bias < -most)).any():
            raise ParameterError.before_release(
                f"a bias of a site's model is above {most:,} in size; make all its numbers smaller"
            )

    def ballots(self, queries: Features, rule: BallotRule) -> NDArray[np.bool_]:
        """(queries, counts) what it would say in plain text."""
        products = queries.astype(np.int64) @ self.weights.astype(np.int64).T
        return rule.ballots(products + self.bias)
