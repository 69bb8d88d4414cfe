"""What an ensemble of teachers may be asked: fixed beforehand, whatever their votes are.

Queries come in blocks of a fixed size. All blocks are held at once and each is released
once, whoever asks for it, so that all queriers of the same teachers share one account. A
block counts in full also where fewer queries were asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dpal import check
from dpal.accounting.events import VOTING, Charge, Event, Release, to_record
from dpal.accounting.prior_spend import PriorSpend, total_epsilon, total_second_opinion
from dpal.accounting.safe_search import smallest_safe
from dpal.accounting.votes.mechanisms import MOST_BLOCKS, Mechanism, ReleasedVotes
from dpal.accounting.votes.near_records import NearRecords, labels_of_votes, require_near
from dpal.accounting.votes.noisy_cost_bound import CostBound
from dpal.accounting.votes.observed_cost import require_fallback, require_told
from dpal.accounting.votes.outcome_charges import OutcomeCharges, require_charges
from dpal.accounting.votes.public_consensus import PublicConsensus, require_consensus
from dpal.accounting.votes.teacher_budgets import (
    WHOLE,
    TeacherBudget,
    require_budgets,
    stretch_charges,
)
from dpal.accounting.votes.voting_rule import VotingRule, summary_event
from dpal.canonical import LATER, plain, written_fields
from dpal.errors import ParameterError, PlanRejected
from dpal.planning.choose_cost_bound import LESS_AGREEMENT, leave_chance, less_agreed
from dpal.planning.plan_interface import DecidedPlan
from dpal.privacy import Accountant, PrivacyTarget

SUMMARY = "votes/summary"
COHORT = WHOLE  # every private record belongs to a teacher from the start
_LEAST_SIGMA = 1e-3  # votes; less noise turns no answer


@dataclass(frozen=True, kw_only=True)
class VotingSpec:
    """Everything that decides what teachers release.

    Attributes:
      name: of the account; all that is ever asked of these teachers counts in it.
      target: the promise to every private record.
      rule: how a query is answered.
      blocks: queries of each block, in the order of their release.
      teachers: digest of what made the teachers; empty where they came from elsewhere.
      before: what was released about the same records already, and counts towards the promise.
      summary_sigma: noise of a summary of the ballots that is released first; None for none.
      gate: label that is asked first of each query; None asks all.
      dependents: labels that are not asked where the gate is released as absent; what that
        saves serves further queries, a block's answers being as many as without a gate.
      accountant: by which the total is bounded; None is the tighter one for the rule.
      bound: of each block, for answers that leave with little noise only if their own cost is
        told to be small.
      agreement: public guess by which that bound was chosen, or the plain way instead: shares of
        the teachers on the side of the majority, each for as many queries.
      near: single records, or groups as one, vote near a query, in place of teachers, each on so
        many queries of a block at most; `rule` is then of the classes or labels, with so many
        voters as are expected.
      budgets: of teachers whose records are promised less than all others, the least first.
      charges: of each block, where an unanswered query is charged less than an answered one, and
        asking stops before they exceed their limit.
      consensus: a public model answers, and the teachers where they object to it; None asks them
        on every query.
    """

    name: str
    target: PrivacyTarget
    rule: VotingRule
    blocks: tuple[int, ...]
    teachers: str = ""
    before: PriorSpend = field(default_factory=PriorSpend)
    summary_sigma: float | None = None
    gate: int | None = None
    dependents: tuple[int, ...] = ()
    accountant: Accountant | None = None
    bound: CostBound | None = None
    agreement: tuple[float, ...] = field(default=(), metadata=LATER)
    charges: OutcomeCharges | None = field(default=None, metadata=LATER)
    near: NearRecords | None = field(default=None, metadata=LATER)
    budgets: tuple[TeacherBudget, ...] = field(default=(), metadata=LATER)
    consensus: PublicConsensus | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        if not self.blocks and self.summary_sigma is None:
            raise ParameterError("an account of teachers needs at least one query")
        check.at_least(1, queries=min(self.blocks, default=1))
        check.within(0, MOST_BLOCKS, blocks=len(self.blocks))
        if self.bound is not None:
            require_told(self.rule)
            for queries in set(self.blocks):
                require_fallback(self.rule, queries, self.bound)
        if self.near is not None:
            self._require_near()
        if self.charges is not None:
            require_charges(self.rule, self.charges)
            if self.bound is not None or self.gate is not None:
                raise ParameterError.before_release(
                    "queries are charged by their outcome without a bound and without a gate; "
                    "leave answered_share out, or the other one"
                )
        if self.gate is not None or self.dependents:
            self._require_gate()
        if self.budgets:
            self._require_budgets()
        if self.rule.counts:
            self._require_whole_counts()
        if self.consensus is not None:
            self._require_consensus(self.consensus)

    def _require_consensus(self, consensus: PublicConsensus) -> None:
        """Requires one block of queries that teachers are asked where they object, and no more."""
        require_consensus(self.rule, consensus)
        ways = (self.near, self.bound, self.gate, self.charges, self.summary_sigma)
        if self.budgets or any(way is not None for way in ways) or len(self.blocks) != 1:
            raise ParameterError.before_release(
                "teachers object to a public model on the queries of one block, which are charged "
                "together; leave voting.neighbours, agreement, gate, rounds, blocks and "
                "teachers.budgets out, or voting.objections"
            )

    def _require_whole_counts(self) -> None:
        """Requires that nothing is saved on counts that are released as they are."""
        ways = (self.near, self.bound, self.gate, self.charges)
        if self.budgets or any(way is not None for way in ways):
            raise ParameterError.before_release(
                "noisy counts are released whole and charged in full; leave neighbours, agreement, "
                "gate, answered_share and budgets out, or release answers"
            )

    def _require_budgets(self) -> None:
        """Requires budgets of teachers who vote alike on every query, and tell nothing else."""
        ways = (self.near, self.bound, self.gate, self.charges, self.summary_sigma)
        if any(way is not None for way in ways) or self.before.campaign or self.before.declared:
            raise ParameterError.before_release(
                "teachers with budgets of their own are charged for whole answers and for nothing "
                "before them; leave neighbours, agreement, gate, answered_share and after out"
            )
        require_budgets(self.rule, self.budgets, self.blocks)

    def _require_near(self) -> None:
        """Requires votes that are charged by whoever casts them, and nothing beside."""
        require_near(self.rule)
        ways = (self.bound, self.gate, self.charges, self.summary_sigma)
        if any(way is not None for way in ways):
            raise ParameterError.before_release(
                "records that vote themselves are charged by their own votes; leave "
                "voting.agreement, voting.gate and voting.answered_share out"
            )
        if self.near is not None and self.near.blocks > len(self.blocks):
            raise ParameterError.before_release("more blocks are for campaigns than there are")

    def _require_gate(self) -> None:
        """Requires a gate and dependents that are labels of yes-or-no votes."""
        rule, gate = self.rule, self.gate
        numbers = [*self.dependents, *([] if gate is None else [gate])]
        sound = gate is not None and self.dependents and len(set(numbers)) == len(numbers)
        sound = sound and all(0 <= number < rule.labels for number in numbers)
        plain = rule.mechanism is Mechanism.BINARY and rule.confidence is None
        if not sound or not plain or self.bound is not None:
            raise ParameterError.before_release(
                "a gate is asked first in binary votes on several labels, without a threshold or a "
                "bound, and has other labels as dependents, each once; correct voting.gate and "
                "voting.dependents"
            )

    @property
    def promise_accountant(self) -> Accountant:
        """The accountant that the promise is kept by.

        What answers tell is known by Rényi divergences; noisy counts by their whole loss.
        """
        if self.accountant is not None:
            return self.accountant
        return Accountant.RDP if self.events(1)[0].renyi_is_tighter else Accountant.PLD

    def events(self, queries: int) -> tuple[Event, ...]:
        """What a block of so many queries is charged as, whatever the votes are."""
        if self.near is not None:
            once = replace(self.near, blocks=0)
            return once.events(self.rule, self.target.adjacency, (queries,))
        if self.charges is not None:
            return (self.charges.event,)
        if self.consensus is not None:
            return self.consensus.events(self.rule)
        return self.rule.events(queries) if self.bound is None else (self.bound.event,)

    def charges_of_blocks(self) -> Iterator[tuple[Charge, ...]]:
        """What each block is charged as; some may be charged otherwise than others."""
        if self.budgets:
            for number, queries in enumerate(self.blocks, start=1):
                yield stretch_charges(self.rule, self.budgets, number, queries)
            return
        if self.near is None:
            each: Iterable[tuple[Event, ...]] = map(self.events, self.blocks)
        else:
            near = self.near.events(self.rule, self.target.adjacency, self.blocks)
            each = ((event,) for event in near)
        for events in each:
            yield tuple(Charge(cohorts=(COHORT,), event=event) for event in events)


@dataclass(frozen=True)
class VotingPlan(DecidedPlan):
    """An account of teachers, decided: whoever asks them may only obey."""

    spec: VotingSpec

    @property
    def accountant(self) -> Accountant:
        """By which the promise is kept."""
        return self.spec.promise_accountant

    @property
    def before(self) -> PriorSpend | None:
        """What teachers told under another account that counts here; None for nothing."""
        return self.spec.before if self.spec.before.releases else None

    def releases(self) -> Iterator[Release]:
        """Yields what is released, a summary first, then block by block."""
        if self.spec.summary_sigma is not None:
            event = summary_event(self.spec.rule, self.spec.summary_sigma)
            charged = (Charge(cohorts=(COHORT,), event=event),)
            yield Release(name=SUMMARY, kind=VOTING, phase=0, charges=charged)
        for number, charges in enumerate(self.spec.charges_of_blocks(), start=1):
            yield Release(name=block_name(number), kind=VOTING, phase=0, charges=charges)

    def release(self, name: str) -> Release:
        """The release of this name."""
        return next(release for release in self.releases() if release.name == name)


@dataclass(frozen=True, kw_only=True)
class CertifiedVoting:
    """An account and the proof that it keeps its promise.

    Attributes:
      plan: what was certified.
      epsilon: of all blocks, by the plan's accountant.
      epsilon_oracle: the same by dp-accounting, or by plain sums with its conversion.
    """

    plan: VotingPlan
    epsilon: float
    epsilon_oracle: float

    def summary(self) -> dict[str, Any]:
        """The plan as one JSON object."""
        spec, checked = self.plan.spec, self.plan.spec.rule.confidence
        return {
            "kind": "voting",
            "name": spec.name,
            "adjacency": spec.target.adjacency.value,
            "unit": spec.target.unit.value,
            "delta": spec.target.delta,
            "target_epsilon": spec.target.epsilon,
            "accountant": spec.promise_accountant.value,
            "epsilon": self.epsilon,
            "epsilon_oracle": self.epsilon_oracle,
            "mechanism": spec.rule.mechanism.value,
            "teachers": spec.rule.teachers,
            "labels": spec.rule.labels,
            "sigma": spec.rule.sigma,
            "limit": spec.rule.limit,
            "threshold": None if checked is None else checked.threshold,
            "threshold_sigma": None if checked is None else checked.sigma,
            "unanimous_turned": spec.rule.unanimous_flip_probability,
            "queries": sum(spec.blocks),
            "blocks": list(spec.blocks),
            "bound": None if spec.bound is None else written_fields(spec.bound),
            **({"agreement": _agreement(spec)} if spec.agreement else {}),
            **({"charges": plain(spec.charges)} if spec.charges else {}),
            **(
                {}
                if spec.gate is None
                else {"gate": spec.gate, "dependents": list(spec.dependents)}
            ),
            **({"near": plain(spec.near)} if spec.near else {}),
            **({"release": ReleasedVotes.COUNTS.value} if spec.rule.counts else {}),
            **({"budgets": plain(list(spec.budgets))} if spec.budgets else {}),
            **({"consensus": plain(spec.consensus)} if spec.consensus else {}),
            "releases": [
                {"release": release.name, **to_record(charge.event)}
                for release in self.plan.releases()
                for charge in release.charges
            ],
            "plan_digest": self.plan.digest,
        }


def _agreement(spec: VotingSpec) -> dict[str, Any]:
    """What is expected of a bound if teachers agree as was guessed, or somewhat less."""
    found: dict[str, Any] = {"shares": list(spec.agreement)}
    if spec.bound is None:
        return found
    chances = {
        f"{by:g}": leave_chance(
            spec.rule, spec.bound, max(spec.blocks), less_agreed(spec.agreement, by)
        )
        for by in LESS_AGREEMENT
    }
    return {**found, "leave": chances}


def equal_blocks(queries: int, count: int) -> tuple[int, ...]:
    """Sizes of so many blocks of so many queries each.

    Raises:
      ParameterError: there are more than an account may have.
    """
    check.within(1, MOST_BLOCKS, blocks=count)
    return (queries,) * count


def block_name(number: int) -> str:
    """Name of a block's release."""
    return f"votes/{number}"


def certify_voting(spec: VotingSpec) -> CertifiedVoting:
    """Certifies what teachers will have told when all blocks are released.

    Raises:
      PlanRejected: that is more than was promised.
    """
    plan = VotingPlan(spec)
    epsilon = total_of(spec)
    if spec.charges is not None and not epsilon <= spec.target.epsilon:
        raise PlanRejected(
            f"answers charged by their outcome cost epsilon {epsilon:.4f} at delta "
            f"{spec.target.delta:.3g}, and {spec.target.epsilon:g} is promised; lower their limit"
        )
    if spec.bound is not None and not epsilon <= spec.target.epsilon:
        raise PlanRejected(
            f"answers within a bound cost epsilon {epsilon:.4f} at delta {spec.target.delta:.3g}, "
            f"and {spec.target.epsilon:g} is promised; lower its limit"
        )
    if spec.near is not None and not epsilon <= spec.target.epsilon:
        raise PlanRejected(
            f"records that vote on {spec.near.votes:,} queries of each of {len(spec.blocks)} "
            f"blocks{_open_words(spec.near)} with sigma {spec.rule.sigma:g} cost epsilon "
            f"{epsilon:.4f} at delta {spec.target.delta:.3g}, and {spec.target.epsilon:g} is "
            "promised; lower voting.votes or raise sigma"
        )
    if spec.consensus is not None and not epsilon <= spec.target.epsilon:
        raise PlanRejected(
            f"{spec.consensus.objections:,} objections with epsilon {spec.consensus.epsilon:.4g} "
            f"each, answered with sigma {spec.rule.sigma:g}, cost epsilon {epsilon:.4f} at delta "
            f"{spec.target.delta:.3g}, and {spec.target.epsilon:g} is promised; lower "
            "voting.objections, or raise voting.sigma"
        )
    if not epsilon <= spec.target.epsilon:
        fits = most_queries(spec)
        advice = (
            f"at most {fits:,} fit: lower the queries to that, or raise sigma"
            if fits
            else "not even one fits: raise sigma, or use a mechanism that releases less"
        )
        raise PlanRejected(
            f"{sum(spec.blocks):,} queries by {spec.rule.mechanism} voting with sigma "
            f"{spec.rule.sigma:g} cost epsilon {epsilon:.4f} at delta {spec.target.delta:.3g} "
            f"whatever the votes are, and {spec.target.epsilon:g} is promised; {advice}"
        )
    # Certificates state the other accountant, too: what it cannot add up is refused here.
    if not math.isfinite(total_epsilon(spec.before, list(plan.releases()), spec.target)):
        raise PlanRejected.before_release(
            f"a delta of {spec.target.delta:.3g} is too small for a certificate, which also states "
            "what the noisy counts cost by privacy loss distributions: rounding alone hides as "
            "much; use a larger one, such as 1e-10"
        )
    return CertifiedVoting(plan=plan, epsilon=epsilon, epsilon_oracle=voting_second_opinion(spec))


def _open_words(near: NearRecords) -> str:
    """Which blocks are charged for every query."""
    return f", on all queries of the last {near.blocks}," if near.blocks else ""


def voting_second_opinion(spec: VotingSpec) -> float:
    """The total of all blocks by a program that shares nothing with ours."""
    if spec.promise_accountant is Accountant.PLD:
        return total_second_opinion(spec.before, list(VotingPlan(spec).releases()), spec.target)
    releases = [*spec.before.releases, *VotingPlan(spec).releases()]
    events = [charge.event for release in releases for charge in release.charges]
    if not all(event.is_vote for event in events) or spec.before.declared is not None:
        return total_second_opinion(spec.before, list(VotingPlan(spec).releases()), spec.target)
    from dpal.accounting.votes.second_opinion import epsilon_of_votes  # imports dp-accounting

    return epsilon_of_votes(events, delta=spec.target.delta)


def total_of(spec: VotingSpec) -> float:
    """Epsilon of everything that an account releases, and of what was released before it."""
    # Block by block, as it is held and certified: as one release it is rounded otherwise.
    releases = list(VotingPlan(spec).releases())
    return total_epsilon(spec.before, releases, spec.target, accountant=spec.promise_accountant)


def most_queries(spec: VotingSpec) -> int:
    """The most queries that the promise covers, whatever the votes are; 0 for none.

    Budgets of single teachers are left out: whoever has none votes on all of them.
    """
    spec = replace(spec, budgets=())
    low, high = 0, 1
    while _epsilon(spec, high) <= spec.target.epsilon:
        low, high = high, 2 * high
        if high > 1 << 40:
            raise ParameterError("so much noise is no answer; lower sigma")
    while high - low > 1:
        middle = (low + high) // 2
        if _epsilon(spec, middle) <= spec.target.epsilon:
            low = middle
        else:
            high = middle
    return low


def least_sigma(spec: VotingSpec, queries: int) -> float:
    """The least noise with which so many queries keep the promise.

    Raises:
      PlanRejected: none does.
    """
    asked = spec if queries == sum(spec.blocks) else replace(spec, blocks=(queries,))

    def cost(sigma: float) -> float:
        try:
            return total_of(_with_sigma(asked, sigma))
        except ParameterError:  # losses that are too large to be counted: too little noise
            return math.inf

    paid = queries if spec.consensus is None else spec.consensus.objections
    low = _too_little(spec, 2 * paid)
    if spec.rule.confidence is not None:
        # Where few answers pass the check, much less noise may be enough.
        while low > _LEAST_SIGMA and cost(low) <= spec.target.epsilon:
            low /= 2
    try:
        return smallest_safe(cost, spec.target.epsilon, low=low)
    except ParameterError as error:
        raise PlanRejected(
            f"no noise makes {queries:,} queries fit epsilon {spec.target.epsilon:g}; ask fewer"
        ) from error


def least_summary_sigma(spec: VotingSpec) -> float:
    """The least noise with which a summary alone keeps the promise."""

    def cost(sigma: float) -> float:
        return total_of(replace(spec, blocks=(), summary_sigma=sigma))

    return smallest_safe(cost, spec.target.epsilon, low=_too_little(spec, 1))


def _too_little(spec: VotingSpec, queries: int) -> float:
    """A sigma whose mean loss is twice what is promised: too little, if every query is answered."""
    moved: float = queries * spec.rule.squared_l2_sensitivity
    if spec.near is not None:
        # However many queries: a record moves as many counts as it votes on. Beyond an eighth so
        # much is told that losses are no numbers any more.
        numbers = range(1, len(spec.blocks) + 1)
        votes = sum(spec.near.votes_in(number, spec.blocks) for number in numbers)
        labels = labels_of_votes(spec.rule)
        moved = votes if labels is None else votes * labels / 2
        return max(math.sqrt(moved / (8 * spec.target.epsilon + 8)), math.sqrt(moved) / 8)
    return math.sqrt(moved / (4 * spec.target.epsilon + 4))


def _with_sigma(spec: VotingSpec, sigma: float) -> VotingSpec:
    return replace(spec, rule=replace(spec.rule, sigma=sigma))


def _epsilon(spec: VotingSpec, queries: int) -> float:
    """All queries as one release: nearly the same as block by block."""
    whole = VotingPlan(replace(spec, blocks=(queries,) if queries else ()))
    return total_epsilon(
        spec.before, list(whole.releases()), spec.target, accountant=spec.promise_accountant
    )
