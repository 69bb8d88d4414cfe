"""Attacks on voting: one ballot is changed, and released answers are asked which it was.

Nobody's ballot is read: the teachers of an attack are made up, and vote as is worst for the one
whose ballot changes. Their votes go through the code that answers in earnest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.accounting.events import VOTING, Charge, Event, Release, SparseVector
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.near_records import labels_of_votes
from dpal.accounting.votes.public_consensus import PublicConsensus
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.audit import hypothesis_tests
from dpal.audit.findings import AuditFinding, Layer, statistical_finding
from dpal.audit.two_worlds_bound import two_worlds
from dpal.errors import ParameterError
from dpal.planning.voting_plan import COHORT, VotingPlan
from dpal.privacy import Adjacency, Unit
from dpal.randomness import BitSource
from dpal.voting.ballots import Ballots, Choices
from dpal.voting.draw_noisy_outcomes import UNANSWERED, release
from dpal.voting.neighbour_votes import NeighbourVotes, VotingRecords, near_answers
from dpal.voting.public_consensus import objections_to

TRANSCRIPTS = 1024  # in each world
_MOST_QUERIES = 128  # of one transcript
_PASSED = 3  # queries to an objection, where a public model answers the rest
_SHARES = (0.5, 0.75, 1.0)  # of the other teachers, who vote as the one does in the first world

Counted = NDArray[np.float64]


@dataclass(frozen=True)
class Worlds:
    """Two sets of ballots on one query that differ in the ballot of the first teacher.

    Attributes:
      first: (teachers, labels) zeros and ones, or (teachers,) classes.
      second: the same, with another first row.
      classes: how many; of a plurality of classes.
      gained: labels, or a class, that the first teacher votes for in the first world.
      lost: those that it votes for in the second.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    classes: int
    gained: tuple[int, ...]
    lost: tuple[int, ...]

    def score(
        self, rule: VotingRule, ballots: NDArray[np.int64], answers: int, rng: BitSource
    ) -> Counted:
        """How much each of so many answers speaks for the first world."""
        repeated = np.broadcast_to(ballots, (answers, *ballots.shape))
        if ballots.ndim == 1:
            told = release(rule, Choices(repeated, self.classes), rng=rng)
            if told.counts is not None:
                return self._difference(told.counts)
            said = told.labels
            return np.isin(said, self.gained).astype(float) - np.isin(said, self.lost)
        packed = np.packbits(ballots.astype(np.uint8), axis=1)
        cast = Ballots(np.broadcast_to(packed, (answers, *packed.shape)), ballots.shape[1])
        told = release(rule, cast, rng=rng)
        if told.counts is not None:
            return self._difference(told.counts)
        return self._difference(np.where(told.labels == UNANSWERED, 0, told.labels).astype(float))

    def _difference(self, told: Counted) -> Counted:
        """What speaks for labels of the first world, less what speaks for those of the second."""
        return np.asarray(told[:, list(self.gained)].sum(1) - told[:, list(self.lost)].sum(1))


def vote_findings(
    plan: VotingPlan, *, transcripts: int, draws: int, fresh: Callable[[], BitSource]
) -> list[AuditFinding]:
    """Attacks the rule by which teachers answer.

    Args:
      plan: whose rule and accountant are audited. What it answers only within a bound, or where
        labels depend on each other, is charged apart; here every query is answered.
      transcripts: released in each world; half decides what to look at, half is judged.
      draws: answers for the law of single ones.
      fresh: gives a new stream of noise.
    """
    rule, consensus = plan.spec.rule, plan.spec.consensus
    asked = sum(plan.spec.blocks) if consensus is None else consensus.objections
    queries = min(_MOST_QUERIES, asked)
    claim = _claim(plan, rule.events(queries))
    findings = list(_answered(rule, draws, fresh()))
    for agree in _SHARES:
        made, rng = worlds(rule, agree), fresh()
        there, absent = (
            made.score(rule, ballots, transcripts * queries, rng).reshape(transcripts, -1).sum(1)
            for ballots in (made.first, made.second)
        )
        what = f"ballots by {queries:,} answers, {agree:.0%} agree"
        findings.append(two_worlds(what, there, absent, claim, delta=plan.target.delta))
    if consensus is not None:
        findings.append(_objected(plan, consensus, transcripts, fresh()))
    return findings


def _objected(
    plan: VotingPlan, consensus: PublicConsensus, transcripts: int, rng: BitSource
) -> AuditFinding:
    """Asks which queries teachers objected to whether one of them did so on every one.

    The others are just divided where that teacher decides: on each query as many object as leave
    the count one below the threshold, or at it with that teacher.
    """
    event = SparseVector(stops=consensus.objections, epsilon=consensus.epsilon)
    queries = _PASSED * consensus.objections
    told = []
    for own in (1, 0):
        objecting = np.full(queries, consensus.threshold - 1 + own, dtype=np.int64)
        stops = [objections_to(objecting, consensus, rng=rng) for _ in range(transcripts)]
        # The sooner they are all used, the more object.
        told.append(np.array([-_last(places, queries, consensus.objections) for places in stops]))
    what = f"objections to {queries:,} queries, one teacher objects to all of them or to none"
    claim = _claim(plan, (event,))
    return two_worlds(what, told[0], told[1], claim, delta=plan.target.delta)


def _last(stops: NDArray[np.int64], queries: int, objections: int) -> float:
    """Where the last objection is; beyond the end, the further the more are missing."""
    missing = objections - len(stops)
    return float(queries + missing if missing else stops[-1])


def _claim(plan: VotingPlan, events: Sequence[Event]) -> float:
    """What so much of the plan is charged."""
    charges = tuple(Charge(cohorts=(COHORT,), event=event) for event in events)
    attack = Release(name="attack", kind=VOTING, phase=0, charges=charges)
    return campaign_epsilon([attack], plan.target, accountant=plan.accountant)


def near_findings(
    plan: VotingPlan, *, transcripts: int, fresh: Callable[[], BitSource]
) -> list[AuditFinding]:
    """Attacks votes of single records: one of them is there, or is blank, and votes all it may.

    Args:
      plan: of records that vote near a query, whose promise of a block is audited.
      transcripts: released in each world.
      fresh: gives a new stream of noise.

    Raises:
      ParameterError: teachers vote in this plan.
    """
    near, rule = plan.spec.near, plan.spec.rule
    if near is None:
        raise ParameterError("teachers vote in this plan, and no records")
    claim = _claim(plan, replace(near, blocks=0).events(rule, plan.target.adjacency, (near.votes,)))
    several = labels_of_votes(rule) is not None
    asked = NeighbourVotes(classes=rule.labels, votes=near.votes, sigma=rule.sigma, several=several)
    # Of a group two records are at the same place, and cast one vote.
    owned = 2 if plan.target.unit is Unit.GROUP else 1
    places, groups = np.zeros((owned, 1)), np.zeros(owned, np.int64)
    others = math.ceil(10 * rule.sigma)
    findings = []
    for label, means in ((-1, "blank"), (0 if several else 1, "of another class")):
        if means != "blank" and plan.target.adjacency is Adjacency.ZERO_OUT:
            continue
        rng, scores, first = fresh(), [], 1 if several else 0
        for own in (first, label):
            labels = np.full((owned, rule.labels) if several else owned, own)
            told = []
            for _ in range(transcripts):
                # More queries than it may vote on: it is silent on the rest.
                records = VotingRecords(asked, places, labels, groups=groups)
                counts = records.cast(np.zeros((2 * near.votes, 1)), np.ones(2 * near.votes))
                # Others vote for two classes as often and for no third, so that one vote matters
                # most: how many there are, nobody is promised. Of labels as many say yes as no.
                if not several:
                    counts[:, :2] += others
                said = near_answers(asked, counts, rng=rng).labels
                told.append(float((said == first).sum()) - float((said == 1 - first).sum()))
            scores.append(np.array(told))
        what = f"a {plan.target.unit}'s votes on {near.votes:,} queries; else it is {means}"
        findings.append(two_worlds(what, scores[0], scores[1], claim, delta=plan.target.delta))
    return findings


def worlds(rule: VotingRule, agree: float) -> Worlds:
    """Ballots of which one is replaced, as far as clipping lets it move.

    Args:
      rule: by which teachers vote.
      agree: share of the other teachers who vote as the changed one does in the first world; the
        rest votes as it does in the second.
    """
    others = rule.teachers - 1
    first_like = round(agree * others)
    if rule.mechanism is Mechanism.GNMAX:
        chosen = np.array([0] * first_like + [1] * (others - first_like))
        return Worlds(np.r_[0, chosen], np.r_[1, chosen], rule.labels, (0,), (1,))
    most = rule.labels if rule.limit is None else min(rule.labels, int(rule.limit))
    gained = tuple(range(most))
    lost = tuple(range(most, min(rule.labels, 2 * most)))
    rows = np.zeros((2, rule.labels), np.int64)
    rows[0, list(gained)] = rows[1, list(lost)] = 1
    ballots = np.concatenate(
        [np.repeat(rows[:1], first_like, 0), np.repeat(rows[1:], others - first_like, 0)]
    )
    return Worlds(np.r_[rows[:1], ballots], np.r_[rows[1:], ballots], rule.classes, gained, lost)


def _answered(rule: VotingRule, draws: int, rng: BitSource) -> Iterator[AuditFinding]:
    """How often yes is answered, against its chance under the noise that is charged."""
    if rule.mechanism not in (Mechanism.BINARY, Mechanism.TOP_M):
        return  # the chance of a plurality, or of scaled votes, has no such simple form
    for agree in _SHARES:
        made = worlds(rule, agree)
        voters = int(made.first[:, made.gained[0]].sum())  # clipping leaves such ballots alone
        chance = _normal((2 * voters - rule.teachers) / (math.sqrt(2) * rule.answer_sigma))
        if rule.confidence is not None:
            largest = max(voters, rule.teachers - voters)
            chance *= _normal((largest - rule.confidence.threshold) / rule.confidence.sigma)
        each = max(1, draws // len(made.gained) // len(_SHARES))
        packed = np.packbits(made.first.astype(np.uint8), axis=1)
        cast = Ballots(np.broadcast_to(packed, (each, *packed.shape)), rule.labels)
        said = release(rule, cast, rng=rng).labels[:, list(made.gained)]
        yes = int((said == 1).sum())
        error = math.sqrt(chance * (1 - chance) / said.size)
        yield statistical_finding(
            Layer.MECHANISM,
            f"share of yes where {voters} of {rule.teachers} say it",
            hypothesis_tests.of_count(yes, said.size, chance),
            expected=f"{chance:.5f} +- {4.9 * error:.2g}",
            measured=f"{yes / said.size:.5f}",
            likely="votes are answered with other noise than is charged, or checked otherwise",
            claimed=chance,
            value=yes / said.size,
            within=4.9 * error,
        )


def _normal(deviations: float) -> float:
    return math.erfc(-deviations / math.sqrt(2)) / 2
