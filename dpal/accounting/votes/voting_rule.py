"""How teachers vote, and what one ballot can move: the data-independent cost of a query.

One record belongs to one teacher, so one whole ballot is replaced; the number of teachers is
public. `sigma` is the standard deviation of the Gaussian noise on every count, in votes.

Source: Papernot et al. (2018), "Scalable private learning with PATE"; Dziedzic et al.
(2022), "Private multi-winner voting", with the sensitivities of clipped ballots derived in
docs/voting.md (for ballots of zeros and ones they are smaller than for any vector).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from dpal import check
from dpal.accounting.events import MajorityVotes, NoisyVotes, PluralityVotes
from dpal.accounting.events.majority_votes import MOST_TEACHERS
from dpal.accounting.votes.mechanisms import (
    CLIPPED,
    FEWEST_TEACHERS,
    PLURALITY,
    SCALED,
    Confidence,
    Mechanism,
)
from dpal.accounting.votes.worst_winner import MOST_PLURALITY_TEACHERS
from dpal.canonical import LATER
from dpal.errors import ParameterError

AGREEMENT_QUANTILES = 5  # of a summary of classes
_MOST_LABELS = 62  # a Powerset ballot is one number


@dataclass(frozen=True, kw_only=True)
class VotingRule:
    """How a query is answered.

    Attributes:
      mechanism: what is released.
      teachers: that cast a ballot on every query.
      labels: of the data; classes for `gnmax`.
      sigma: standard deviation of the noise on every count, in votes.
      limit: the norm of scaled ballots, the positives of truncated ones, or the largest set of
        `powerset`; None where there is none.
      noises: noisy counts of a label: 2 (yes and no), or 1 (yes alone, against half of the
        teachers). With one, the answer is as noisy as with two of sqrt(2) times the sigma.
      confidence: when to answer; None for always.
      by_answers: whether the winner of a plurality is charged by what answers tell; accounts of
        earlier versions are charged by their noisy counts. Answers of yes or no always are.
      counts: whether the noisy counts themselves are released, with the answers that follow from
        them, and charged as such.
    """

    mechanism: Mechanism
    teachers: int
    labels: int
    sigma: float
    limit: float | None = None
    noises: int = 2
    confidence: Confidence | None = None
    by_answers: bool = field(default=False, metadata=LATER)
    counts: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        if not FEWEST_TEACHERS <= self.teachers <= MOST_TEACHERS:
            raise ParameterError.before_release(
                f"{self.teachers} teachers cannot hide a ballot among others; give from "
                f"{FEWEST_TEACHERS} to {MOST_TEACHERS:,} teachers"
            )
        check.positive(sigma=self.sigma)
        check.within(1, 2, noises=self.noises)
        check.at_least(2 if self.mechanism is Mechanism.GNMAX else 1, labels=self.labels)
        clipped = self.mechanism in CLIPPED
        if clipped and self.limit is None:
            raise ParameterError(f"{self.mechanism} voting needs a limit, such as 2")
        if self.limit is not None:
            if not clipped and self.mechanism is not Mechanism.POWERSET:
                raise ParameterError(f"{self.mechanism} voting has no limit; leave limit out")
            check.at_least(1, limit=self.limit)
            whole = self.mechanism not in SCALED
            if whole and (self.limit != int(self.limit) or self.limit > self.labels):
                raise ParameterError(
                    f"limit {self.limit:g} of {self.mechanism} voting must be a whole number of "
                    f"labels, at most {self.labels}"
                )
        if self.mechanism in PLURALITY and self.noises != 2:
            raise ParameterError(f"{self.mechanism} voting adds noise to every count: noises is 2")
        if self.mechanism is Mechanism.POWERSET and self.labels > _MOST_LABELS:
            raise ParameterError(
                f"powerset voting counts sets of at most {_MOST_LABELS} labels, and there are "
                f"{self.labels}; use binary or top_m"
            )
        if self.counts:
            self._require_counts()

    def _require_counts(self) -> None:
        """Requires counts that are released as they are, each once."""
        if self.mechanism is Mechanism.POWERSET:
            raise ParameterError.before_release(
                "powerset voting counts sets of labels, of which there are too many to release; "
                "release counts of top_m, binary, tau_l2, tau_l1 or gnmax voting"
            )
        if self.confidence is not None or self.by_answers:
            raise ParameterError.before_release(
                "noisy counts tell everything that was paid for, so that no threshold and no "
                "charge by answers saves anything; leave threshold, threshold_sigma, answer_from, "
                "answered_share and agreement out"
            )
        if self.mechanism is not Mechanism.GNMAX and self.noises != 1:
            raise ParameterError.before_release(
                "released counts of yes have one noise for each label; set noises to 1"
            )

    @property
    def classes(self) -> int:
        """Outcomes that a plurality is taken over: also those that nobody cast."""
        if self.mechanism is Mechanism.GNMAX:
            return self.labels
        most = self.labels if self.limit is None else int(self.limit)
        return sum(math.comb(self.labels, size) for size in range(most + 1))

    @property
    def most_positives(self) -> int | None:
        """Labels that a ballot may say yes to; None for any number of them."""
        whole = self.mechanism in (Mechanism.TOP_M, Mechanism.POWERSET)
        return int(self.limit) if whole and self.limit is not None else None

    def charged(self, *, by_answers: bool) -> VotingRule:
        """The same, charged by what answers tell if that is asked for and another charge.

        It is another one of pluralities alone, and not where so many teachers vote that they are
        charged by their counts. Elsewhere the field stays as it was in every earlier plan.
        """
        other = self.classes == 2 or self.teachers <= MOST_PLURALITY_TEACHERS
        told = by_answers and not self.counts
        return replace(self, by_answers=told and self.mechanism in PLURALITY and other)

    @property
    def answer_sigma(self) -> float:
        """The sigma of two noisy counts that make an answer as noisy as this."""
        return self.sigma if self.noises == 2 else math.sqrt(2) * self.sigma

    @property
    def squared_l2_sensitivity(self) -> float:
        """Most that one ballot moves the counts of yes, as a squared Euclidean norm."""
        limit = self.limit or 0.0
        match self.mechanism:
            case Mechanism.BINARY:
                return self.labels
            case Mechanism.TOP_M:
                return min(self.labels, 2 * limit)
            case Mechanism.TAU_L2:
                # Clipped ballots have no negative entries, so their product is not negative.
                return min(self.labels, 2 * limit**2)
            case Mechanism.TAU_L1:
                # m positives are scaled to a squared norm of m, or limit^2 / m beyond the limit.
                longest = max(math.floor(limit), limit**2 / math.ceil(limit))
                return min(self.labels, 2 * longest)
            case _:
                return 1  # one set of labels gains a vote, another loses it

    @property
    def unanimous_flip_probability(self) -> float:
        """Chance that noise turns an answer on which all teachers agree; public.

        Of a plurality it is the union bound over all other classes, at most 1.
        """
        lead = self.teachers / (math.sqrt(2) * self.answer_sigma)
        chance = math.erfc(lead / math.sqrt(2)) / 2
        return min(1.0, (self.classes - 1) * chance) if self.mechanism in PLURALITY else chance

    @property
    def tells_winners(self) -> bool:
        """Whether it is charged by which of several classes wins."""
        few = self.teachers <= MOST_PLURALITY_TEACHERS
        return self.mechanism in PLURALITY and self.by_answers and few and self.classes > 2

    @property
    def tells_sides(self) -> bool:
        """Whether it is charged by which of two sides wins; two classes are no more."""
        if self.counts:
            return False
        two = self.mechanism in PLURALITY and self.by_answers and self.classes == 2
        return two or self.mechanism in (Mechanism.BINARY, Mechanism.TOP_M)

    def events(self, queries: int) -> tuple[MajorityVotes | PluralityVotes | NoisyVotes, ...]:
        """What so many queries are charged as, whatever the votes are.

        Args:
          queries: answered or refused; a fixed number.
        """
        check.at_least(1, queries=queries)
        threshold = None if self.confidence is None else self.confidence.threshold
        threshold_sigma = None if self.confidence is None else self.confidence.sigma
        if self.tells_sides:
            return (
                MajorityVotes(
                    answers=queries * int(self.squared_l2_sensitivity),
                    teachers=self.teachers,
                    sigma=self.answer_sigma,
                    threshold=threshold,
                    threshold_sigma=threshold_sigma,
                ),
            )
        if self.tells_winners:
            return (
                PluralityVotes(
                    queries=queries,
                    teachers=self.teachers,
                    classes=self.classes,
                    sigma=self.sigma,
                    threshold=threshold,
                    threshold_sigma=threshold_sigma,
                ),
            )
        votes = NoisyVotes(
            queries=queries,
            squared_sensitivity=2 * self.squared_l2_sensitivity,
            sigma=self.answer_sigma,
        )
        if self.confidence is None:
            return (votes,)
        checks = NoisyVotes(
            queries=queries,
            squared_sensitivity=self.squared_l2_sensitivity,
            sigma=self.confidence.sigma,
        )
        return (votes, checks)


def noises_of(mechanism: Mechanism, *, counts: bool, noises: int = 2) -> int:
    """Noisy counts of a label: as asked for, but for released counts of yes, which have one."""
    return 1 if counts and mechanism not in PLURALITY else noises


def powers_of_two(labels: int) -> list[int]:
    """1, 2, 4, ... up to below the number of labels: sizes that a summary tells about."""
    return [1 << power for power in range(max(1, math.ceil(math.log2(labels))))]


def summary_event(rule: VotingRule, sigma: float) -> NoisyVotes:
    """What a noisy summary of all ballots is charged as.

    Of ballots that name one class each it is a few quantiles of how far teachers agree
    (`dpal.voting.agreement_quantiles.noisy_quantiles`); of others their sizes and their agreement
    (`dpal.voting.mechanism_advice.noisy_summary`). Each of these numbers one teacher moves by at
    most 1.
    """
    single = rule.mechanism is Mechanism.GNMAX
    numbers = AGREEMENT_QUANTILES if single else len(powers_of_two(rule.labels)) + 1
    return NoisyVotes(queries=1, squared_sensitivity=numbers, sigma=sigma)
