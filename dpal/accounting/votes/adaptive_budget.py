"""A budget for questions that are chosen in view of earlier answers.

Divergences at one order, fixed beforehand, add up whatever was chosen; the best order after
the fact would be a choice that depends on private votes' answers (Feldman & Zrnic 2021).
"""

from __future__ import annotations

import numpy as np

from dpal import check
from dpal.accounting.votes.cost_analysis import ORDERS, Conversion, epsilon_of, query_curve
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import BudgetExceeded

_ROUNDING = 1e-9  # relative error of a sum of equal costs, generously; far below one question


class VotingFilter:
    """Pays for questions as long as (epsilon, delta) covers them."""

    def __init__(self, *, epsilon: float, delta: float, order: float | None = None) -> None:
        """Opens a budget.

        Args:
          epsilon: of all questions together.
          delta: failure probability.
          order: of the divergences that add up; None is the one that leaves Gaussian noise most
            room.
        """
        check.positive(epsilon=epsilon)
        check.inside(0, 1, delta=delta)
        room = np.array(
            [
                epsilon - epsilon_of(np.zeros(1), np.array([candidate]), delta=delta)
                for candidate in ORDERS
            ]
        )
        index = (
            int(np.argmax(room / ORDERS)) if order is None else int(abs(ORDERS - order).argmin())
        )
        self.epsilon, self.delta, self.order = epsilon, delta, float(ORDERS[index])
        self.limit, self.spent = max(0.0, float(room[index])), 0.0

    @classmethod
    def of_answers(cls, rule: VotingRule, answers: int) -> VotingFilter:
        """Covers so many questions of one kind, and no more: any order says the same."""
        check.at_least(1, answers=answers)
        budget = cls(epsilon=1.0, delta=0.5)
        budget.limit = budget._cost(rule, answers) * (1 + _ROUNDING)
        budget.epsilon = budget._epsilon(budget.limit)
        return budget

    def affords(self, rule: VotingRule, questions: int) -> bool:
        """Whether so many questions are covered, whatever their votes are."""
        return self.spent + self._cost(rule, questions) <= self.limit

    def pay(self, rule: VotingRule, questions: int) -> None:
        """Charges questions, before they are asked.

        Raises:
          BudgetExceeded: they are not covered. Nothing may be asked.
        """
        if not self.affords(rule, questions):
            wanted = self.spent + self._cost(rule, questions)
            raise BudgetExceeded("a query", self._epsilon(wanted), self.epsilon, "stop asking")
        self.spent += self._cost(rule, questions)

    @property
    def epsilon_spent(self) -> float:
        """What the questions so far have cost, at the filter's delta."""
        return self._epsilon(self.spent) if self.spent else 0.0

    def _cost(self, rule: VotingRule, questions: int) -> float:
        return questions * float(query_curve(rule, np.array([self.order]))[0])

    def _epsilon(self, divergence: float) -> float:
        orders = np.array([self.order])
        return epsilon_of(
            np.array([divergence]), orders, delta=self.delta, conversion=Conversion.TIGHT
        )
