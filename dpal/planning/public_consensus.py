"""How clearly teachers must object to a public model, and with which noise they answer then."""

from __future__ import annotations

import math
from dataclasses import replace

from dpal.accounting.events import VOTING, Charge, Release, SparseVector
from dpal.accounting.events.discrete_laplace import PURE_EPSILONS
from dpal.accounting.prior_spend import total_epsilon
from dpal.accounting.safe_search import largest_safe
from dpal.accounting.votes.public_consensus import PublicConsensus
from dpal.errors import PlanRejected
from dpal.planning.voting_plan import COHORT, VotingSpec, least_sigma

_OF_OBJECTIONS = 0.5  # share of the promised epsilon that they cost alone
_LEAST, _MOST = 2.0**-10, PURE_EPSILONS[1]  # epsilon of an objection that is worth having, or drawn


def with_consensus(
    spec: VotingSpec, *, objections: int, object_from: float, sigma: float | None
) -> VotingSpec:
    """The account with a public model that answers unless teachers object.

    Args:
      spec: of one block, with any sigma.
      objections: so many at most.
      object_from: share of the teachers that object, from which on they are asked.
      sigma: of their answers; None is the least that fits beside the objections.

    Raises:
      PlanRejected: so many objections fit with no noise.
      ParameterError: the account answers in another way, too.
    """
    threshold = math.ceil(object_from * spec.rule.teachers)

    def told(epsilon: float) -> float:
        """What objections alone cost."""
        event = SparseVector(stops=objections, epsilon=epsilon)
        charge = Charge(cohorts=(COHORT,), event=event)
        release = Release(name="objections", kind=VOTING, phase=0, charges=(charge,))
        return total_epsilon(None, [release], spec.target, accountant=spec.promise_accountant)

    limit, high = _OF_OBJECTIONS * spec.target.epsilon, _LEAST
    # From below: losses far beyond the limit are more than can be added up.
    while high < _MOST and told(high) <= limit:
        high = min(2 * high, _MOST)
    epsilon = largest_safe(told, limit, low=_LEAST, high=high)
    if not epsilon:
        raise PlanRejected(
            f"{objections:,} objections fit epsilon {spec.target.epsilon:g} with no noise; lower "
            "voting.objections"
        )
    consensus = PublicConsensus(epsilon=epsilon, objections=objections, threshold=threshold)
    asked = replace(spec, consensus=consensus)
    noise = sigma or least_sigma(asked, sum(spec.blocks))
    return replace(asked, rule=replace(spec.rule, sigma=noise))
