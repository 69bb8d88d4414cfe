"""From wishes to an account whose noise fits its promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpal.accounting.votes.noisy_cost_bound import CostBound
from dpal.accounting.votes.observed_cost import is_told_by_lead, require_told
from dpal.errors import ParameterError, PlanRejected
from dpal.planning.choose_cost_bound import choose_bound, shares_of, sigma_for
from dpal.planning.choose_outcome_charges import charged_by_outcome
from dpal.planning.vote_thresholds import choose_threshold
from dpal.planning.voting_plan import VotingSpec, least_sigma, total_of


def fitted(
    spec: VotingSpec,
    *,
    sigma: float | None,
    agreement: float | Sequence[float] | None,
    answer_from: float | None = None,
    earlier: tuple[float, CostBound] | None = None,
    answered_share: float | None = None,
) -> VotingSpec:
    """The account with its noise, and with a bound where one is asked for and better.

    Args:
      spec: with any sigma.
      sigma: asked for; None is the least that fits.
      agreement: public guess of how far teachers agree, where answers may leave with little noise
        only within a bound: shares of queries, or their mean. Where the plain way needs no more
        noise there is no bound. None charges what any votes could cost.
      answer_from: share of the teachers whose agreement shall be answered; threshold, its noise
        and sigma are chosen for it. None leaves the rule's threshold as it is.
      answered_share: public guess of the share of queries that will be answered, where an
        unanswered one shall be charged less; None charges both alike.
      earlier: sigma and bound of an account that an earlier version opened, which it keeps.

    Raises:
      PlanRejected: nothing fits.
      ParameterError: a bound is asked for where none is known.
    """
    if answered_share is not None:
        if sigma is None or agreement is not None or answer_from is not None:
            raise ParameterError.before_release(
                "queries are charged by their outcome with a sigma, a threshold and its noise that "
                "are given, without agreement and answer_from; give these, or leave answered_share "
                "out"
            )
        return charged_by_outcome(
            replace(spec, rule=replace(spec.rule, sigma=sigma)), answered_share
        )
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
    if spec.gate is not None or spec.before.declared or len(set(spec.blocks)) != 1:
        raise ParameterError.before_release(
            "answers within a bound need blocks of one size, known releases before them and no gate"
        )
    if earlier is not None:
        rule = replace(spec.rule, sigma=earlier[0], by_answers=False)
        return replace(spec, rule=rule, bound=earlier[1])
    return _bounded_or_plain(spec, sigma, shares_of(agreement))


def _bounded_or_plain(
    spec: VotingSpec, sigma: float | None, shares: tuple[float, ...]
) -> VotingSpec:
    """With a bound, unless the plain way does as well whatever the votes are."""
    guessed, plain = replace(spec, agreement=shares), _plain_sigma(spec, sigma)
    if sigma is not None and plain is not None:
        return replace(guessed, rule=replace(spec.rule, sigma=plain))
    queries, blocks = spec.blocks[0], len(spec.blocks)
    # The published bound, of very many teachers, belongs to accounts charged by their counts.
    counted = spec.rule if is_told_by_lead(spec.rule) else replace(spec.rule, by_answers=False)
    try:
        noise = sigma or sigma_for(
            counted,
            queries,
            spec.target,
            shares=shares,
            blocks=blocks,
            before=spec.before,
            most=plain,
        )
    except PlanRejected:
        if plain is None:
            raise
        noise = plain
    if plain is not None and noise >= plain:
        return replace(guessed, rule=replace(spec.rule, sigma=plain))
    rule = replace(counted, sigma=noise)
    chosen = choose_bound(
        rule, queries, spec.target, shares=shares, blocks=blocks, before=spec.before
    )
    return replace(guessed, rule=rule, bound=chosen.bound)


def _plain_sigma(spec: VotingSpec, sigma: float | None) -> float | None:
    """Noise that fits without a bound: what is asked for, or the least. None where none does."""
    if sigma is None:
        try:
            return least_sigma(spec, sum(spec.blocks))
        except PlanRejected:
            return None
    fits = total_of(replace(spec, rule=replace(spec.rule, sigma=sigma))) <= spec.target.epsilon
    return sigma if fits else None
