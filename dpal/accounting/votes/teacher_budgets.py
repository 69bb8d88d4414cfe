"""Teachers who promise their records less than others do: they vote until that is spent.

A teacher with a budget of its own votes on the first queries of each block, so many that what they
cost keeps its budget whatever the votes are, and is silent on the rest. How many these are is fixed
beforehand and public. A ballot that nobody counts moves nothing: its records are charged for those
queries alone, each by the law of an answer of as many teachers as vote on it.

Source: budgets of their own in PATE, Boenisch et al. (2023), "Individualized PATE", where teachers
of larger budgets vote more often, or with more weight; here a vote counts or does not. Filters of
single records, Feldman & Zrnic (2021). The proof is in docs/guarantee.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dpal import check
from dpal.accounting.budget_cohort_names import budget_cohort
from dpal.accounting.events import Charge
from dpal.accounting.votes.mechanisms import FEWEST_TEACHERS
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError

WHOLE = "0"  # the cohort of records whose teachers vote on every query


@dataclass(frozen=True, kw_only=True)
class TeacherBudget:
    """Teachers whose records are promised less than all others; public.

    Attributes:
      epsilon: that they promise, at the delta of the account.
      teachers: their numbers, ascending, in the order of the ballots.
      queries: first queries of each block on which they vote.
    """

    epsilon: float
    teachers: tuple[int, ...]
    queries: tuple[int, ...]

    def __post_init__(self) -> None:
        check.positive(**{"a teacher's epsilon": self.epsilon})
        check.at_least(0, **{"queries of a teacher": min(self.queries, default=0)})
        if not self.teachers or list(self.teachers) != sorted(set(self.teachers)):
            raise ParameterError("a budget is one of teachers, each named once and in order")


@dataclass(frozen=True, kw_only=True)
class VotingStretch:
    """Queries of a block, one after the other, on which the same teachers vote.

    Attributes:
      first: number of its first query in the block, from 0.
      last: one beyond its last query.
      silent: teachers that do not vote.
      cohorts: whose records are charged.
    """

    first: int
    last: int
    silent: tuple[int, ...]
    cohorts: tuple[str, ...]


def stretches(budgets: Sequence[TeacherBudget], number: int, size: int) -> Iterator[VotingStretch]:
    """The stretches of a block, in order.

    Args:
      budgets: of some teachers.
      number: of the block, from 1.
      size: its queries.
    """
    first = 0
    for last in sorted({*(budget.queries[number - 1] for budget in budgets), size} - {0}):
        votes = [budget.queries[number - 1] >= last for budget in budgets]
        silent = sorted(
            teacher
            for budget, takes_part in zip(budgets, votes, strict=True)
            if not takes_part
            for teacher in budget.teachers
        )
        named = [budget_cohort(at) for at, takes_part in enumerate(votes) if takes_part]
        yield VotingStretch(first=first, last=last, silent=tuple(silent), cohorts=(WHOLE, *named))
        first = last


def rule_of_stretch(rule: VotingRule, stretch: VotingStretch) -> VotingRule:
    """How its queries are answered: by those who vote, with a threshold of the same share."""
    voters = rule.teachers - len(stretch.silent)
    checked = rule.confidence
    if checked is not None:
        checked = replace(checked, threshold=checked.threshold * voters / rule.teachers)
    return replace(rule, teachers=voters, confidence=checked)


def stretch_charges(
    rule: VotingRule, budgets: Sequence[TeacherBudget], number: int, size: int
) -> tuple[Charge, ...]:
    """What a block costs, and whose records: those of the teachers that vote."""
    return tuple(
        Charge(cohorts=stretch.cohorts, event=event)
        for stretch in stretches(budgets, number, size)
        for event in rule_of_stretch(rule, stretch).events(stretch.last - stretch.first)
    )


def require_budgets(
    rule: VotingRule, budgets: Sequence[TeacherBudget], sizes: Sequence[int]
) -> None:
    """Requires budgets of some teachers, in an order of which there is one, and enough others.

    Raises:
      ParameterError: they are not.
    """
    named = [teacher for budget in budgets for teacher in budget.teachers]
    epsilons = [budget.epsilon for budget in budgets]
    sound = len(set(named)) == len(named) and epsilons == sorted(set(epsilons))
    sound = sound and all(0 <= teacher < rule.teachers for teacher in named)
    for budget in budgets:
        fits = len(budget.queries) == len(sizes)
        sound = (
            sound
            and fits
            and all(votes <= size for votes, size in zip(budget.queries, sizes, strict=True))
        )
    if not sound:
        raise ParameterError.before_release(
            "budgets are of teachers of this account, each in one of them, and end within a block"
        )
    if rule.teachers - len(named) < FEWEST_TEACHERS:
        raise ParameterError.before_release(
            f"{rule.teachers - len(named)} teachers are left when all budgets of single teachers "
            f"are spent, and cannot hide a ballot; leave at least {FEWEST_TEACHERS} without one"
        )
