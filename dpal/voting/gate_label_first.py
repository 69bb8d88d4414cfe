"""Ask one label first, and its dependents only where it was released as present.

Where labels hang together (no sign of a disease, none of its forms), a released "no" sets
the dependents to 0 for free. Which question comes next then depends on released answers, so
the cost is bounded by a filter: every question is paid before it is asked, at an order that was
chosen before the first (Feldman & Zrnic 2021), and asking stops while the next record is
sure to be covered. Which label is the gate must come from domain knowledge or public records.

Source: Dziedzic et al. (2022), App. B; the filter and why it is needed: docs/voting.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.votes.adaptive_budget import VotingFilter
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError
from dpal.randomness import BitSource
from dpal.voting.ballots import Ballots, require_fitting
from dpal.voting.draw_noisy_outcomes import UNANSWERED, Released, noisy_answers


@dataclass(frozen=True, kw_only=True)
class Dependencies:
    """A gate and what is 0 without it.

    Attributes:
      gate: number of the label that is asked first.
      dependents: numbers of the labels that are 0 wherever the gate is.
    """

    gate: int
    dependents: tuple[int, ...]

    def __post_init__(self) -> None:
        named = (self.gate, *self.dependents)
        if len(named) < 2 or len(set(named)) < len(named) or min(named) < 0:
            raise ParameterError("a gate needs dependents, each once, and is none of them")


def release_with_gate(
    rule: VotingRule,
    ballots: Ballots,
    dependencies: Dependencies,
    budget: VotingFilter,
    *,
    rng: BitSource,
) -> Released:
    """Answers queries in order, until the next one might not be covered.

    Args:
      rule: binary voting; every question is asked by it.
      ballots: of every teacher on every query, in the order of asking.
      dependencies: gate and dependents.
      budget: pays for every question before it is asked.
      rng: source of the noise.

    Returns:
      Labels of all queries; the last ones are UNANSWERED where the budget ended. How many
      were answered depends on released answers alone.

    Raises:
      ParameterError: the rule is not binary, has a confidence check, or has fewer labels.
    """
    require_fitting(rule, ballots)
    if rule.mechanism is not Mechanism.BINARY or rule.confidence is not None:
        raise ParameterError("a gate is asked by binary voting without a confidence check")
    if max(dependencies.gate, *dependencies.dependents) >= rule.labels:
        raise ParameterError(f"there are {rule.labels} labels, numbered from 0")
    single = replace(rule, labels=1)
    rest = [label for label in range(rule.labels) if label != dependencies.gate]
    free = [label for label in rest if label not in dependencies.dependents]
    labels = np.full((ballots.queries, rule.labels), UNANSWERED, dtype=np.int8)
    counts = ballots.counts(rule)
    for row, votes in zip(labels, counts, strict=True):
        if not budget.affords(single, rule.labels):
            break
        _ask(row, [dependencies.gate, *free], votes, single, budget, rng)
        if row[dependencies.gate] == 1:
            _ask(row, list(dependencies.dependents), votes, single, budget, rng)
        else:
            row[list(dependencies.dependents)] = 0
    return Released(labels)


def _ask(
    row: NDArray[np.int8],
    asked: list[int],
    votes: NDArray[np.float64],
    single: VotingRule,
    budget: VotingFilter,
    rng: BitSource,
) -> None:
    budget.pay(single, len(asked))
    row[asked] = noisy_answers(single, votes[asked, None], rng=rng)[:, 0]
