"""On how many queries teachers with a budget of their own vote, whatever the votes are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dpal.accounting.budget_cohort_names import about_budget, budget_cohort
from dpal.accounting.prior_spend import PriorSpend, total_epsilon
from dpal.accounting.safe_search import smallest_safe
from dpal.accounting.votes.teacher_budgets import TeacherBudget
from dpal.errors import ParameterError, PlanRejected
from dpal.planning.voting_plan import VotingPlan, VotingSpec, total_of


def with_budgets(
    spec: VotingSpec, wanted: Mapping[float, Sequence[int]], *, sigma: float | None
) -> VotingSpec:
    """The account with teachers that fall silent when their own budgets are spent.

    Args:
      spec: with the noise that fits if all teachers vote on every query.
      wanted: numbers of teachers, by the epsilon that they promise. Those that promise as much as
        the account, or more, vote on every query.
      sigma: asked for; None raises the noise where answers of fewer teachers cost more.

    Raises:
      PlanRejected: no noise fits.
      ParameterError: there are too few other teachers, or the account is charged otherwise.
    """
    own = {
        epsilon: tuple(sorted(teachers))
        for epsilon, teachers in sorted(wanted.items())
        if epsilon < spec.target.epsilon and teachers
    }
    if not own:
        return spec

    def voting(noise: float) -> VotingSpec:
        return _filled(replace(spec, rule=replace(spec.rule, sigma=noise)), own)

    found = voting(spec.rule.sigma)
    if sigma is not None or total_of(found) <= spec.target.epsilon:
        return found
    try:
        return voting(
            smallest_safe(
                lambda noise: total_of(voting(noise)), spec.target.epsilon, low=spec.rule.sigma
            )
        )
    except ParameterError as error:
        raise PlanRejected(
            f"no noise makes {sum(spec.blocks):,} queries fit epsilon {spec.target.epsilon:g} when "
            "some teachers fall silent; ask fewer"
        ) from error


def budget_epsilons(spec: VotingSpec) -> tuple[float, ...]:
    """What the records of each budget are charged, by the accountant of the promise."""
    return tuple(_epsilon_of(spec, number) for number in range(len(spec.budgets)))


def _epsilon_of(spec: VotingSpec, number: int) -> float:
    """What the records of a budget, from 0, are charged."""
    own = about_budget(list(VotingPlan(spec).releases()), budget_cohort(number))
    if not own:
        return 0.0
    return total_epsilon(PriorSpend(), own, spec.target, accountant=spec.promise_accountant)


def _filled(spec: VotingSpec, own: Mapping[float, tuple[int, ...]]) -> VotingSpec:
    """The most queries of each budget, the smallest first: later ones vote on these as well."""
    found: list[TeacherBudget] = []
    whole = max(spec.blocks)
    reached = 0
    for at, epsilon in enumerate(own):
        # What is not known yet votes as long as the one that is looked for, which all precede.
        def votes_on(
            most: int, at: int = at, known: tuple[TeacherBudget, ...] = tuple(found)
        ) -> VotingSpec:
            rest = [
                TeacherBudget(
                    epsilon=other, teachers=own[other], queries=_shares(spec.blocks, most)
                )
                for other in list(own)[at:]
            ]
            return replace(spec, budgets=(*known, *rest))

        low, high = reached, whole + 1
        if _epsilon_of(votes_on(low), at) > epsilon:
            raise PlanRejected(
                f"a budget of epsilon {epsilon:g} is spent before its teachers vote as often as "
                "those with less; raise sigma"
            )
        while high - low > 1:
            middle = (low + high) // 2
            if _epsilon_of(votes_on(middle), at) <= epsilon:
                low = middle
            else:
                high = middle
        reached = low
        found.append(votes_on(low).budgets[at])
    return replace(spec, budgets=tuple(found))


def _shares(sizes: Sequence[int], most: int) -> tuple[int, ...]:
    """As large a share of each block as so many queries are of the largest."""
    return tuple(size * most // max(sizes) for size in sizes)
