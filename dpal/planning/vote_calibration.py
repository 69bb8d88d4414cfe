"""From wishes to an account whose noise fits its promise."""

from __future__ import annotations

from dataclasses import replace

from dpal.accounting.votes.observed_cost import require_told
from dpal.errors import ParameterError
from dpal.planning.vote_bounds import choose_bound, sigma_for
from dpal.planning.vote_thresholds import choose_threshold
from dpal.planning.voting_plan import VotingSpec, least_sigma


def fitted(
    spec: VotingSpec,
    *,
    sigma: float | None,
    agreement: float | None,
    answer_from: float | None = None,
) -> VotingSpec:
    """The account with its noise, and with a bound where one is asked for.

    Args:
      spec: with any sigma.
      sigma: asked for; None is the least that fits.
      agreement: public guess of how far teachers agree, where answers may leave only within a
        bound; None charges what any votes could cost.
      answer_from: share of the teachers whose agreement shall be answered; threshold, its noise
        and sigma are chosen for it. None leaves the rule's threshold as it is.

    Raises:
      PlanRejected: nothing fits.
      ParameterError: a bound is asked for where none is known.
    """
    if answer_from is not None:
        if sigma is not None or agreement is not None or spec.rule.confidence is not None:
            raise ParameterError.before_release(
                "answer_from chooses threshold, threshold_sigma and sigma, for any votes; leave "
                "these and agreement out"
            )
        return replace(spec, rule=choose_threshold(spec, answer_from))
    if agreement is None:
        fitting_sigma = sigma or least_sigma(spec, sum(spec.blocks))
        return replace(spec, rule=replace(spec.rule, sigma=fitting_sigma))
    require_told(spec.rule)
    if spec.gate is not None or spec.before.releases or len(set(spec.blocks)) != 1:
        raise ParameterError.before_release(
            "answers within a bound need blocks of one size, an account of their own and no gate"
        )
    queries, blocks = spec.blocks[0], len(spec.blocks)
    counted = replace(spec.rule, by_answers=False)  # their own cost is told, however it is counted
    noise = sigma or sigma_for(counted, queries, spec.target, agreement=agreement, blocks=blocks)
    rule = replace(counted, sigma=noise)
    chosen = choose_bound(rule, queries, spec.target, agreement=agreement, blocks=blocks)
    return replace(spec, rule=rule, bound=chosen.bound)
