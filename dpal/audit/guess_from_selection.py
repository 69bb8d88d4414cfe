"""Guesses a record's content from who was selected, or from a threshold.

Canaries of a simulated pool have the highest or the lowest score, by a fair coin each, all
others the lowest, and the places are as many as half of the canaries. Whoever sees an exact
selection reads off nearly all coins; Schwethelm et al. (2025) describe this attack on active
learning.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpal.acquisition.non_private_selection import exact_top_k
from dpal.audit import lower_bound
from dpal.audit.attack import CONFIDENCE
from dpal.audit.findings import FALSE_ALARM, AuditFinding, Layer
from dpal.audit.samplers import accepted_counts
from dpal.audit.selections import draw_selection, pool_for, selection_epsilon
from dpal.planning.campaign_plan import Phase, Plan
from dpal.planning.campaign_spec import CampaignSpec
from dpal.planning.selection_steps import HiddenGate, NoisyRanking, VisibleAnswers
from dpal.randomness import BitSource

_SHARE = 0.25  # of the places; fewer canaries are among the selected when noise decides
_POWER = 1.0  # epsilon that the attack must prove where nothing is private; 10 sd below usual
_PLACES = 300  # of the exact selection

Chosen = Callable[[NDArray[np.float64]], NDArray[np.int64]]


def replay_findings(
    plan: Plan, *, draws: int, fresh: Callable[[], BitSource]
) -> list[AuditFinding]:
    """Attacks each way of selecting of the plan, and the exact one for comparison.

    Args:
      plan: its last selection of each kind is attacked.
      draws: a search for a threshold is made for every thousandth of them, in both worlds.
      fresh: gives a new stream, as every release takes one.
    """
    by_kind = {type(phase.selection): phase for phase in plan.phases if phase.selection.events}
    findings: list[AuditFinding] = []
    for phase in by_kind.values():
        if not findings:
            findings.append(_exact(plan.spec, fresh()))
        if isinstance(phase.selection, HiddenGate):
            findings.append(_threshold(phase, phase.selection, plan.spec, draws >> 10, fresh()))
        elif isinstance(phase.selection, NoisyRanking | VisibleAnswers):
            findings.append(_private(phase, plan.spec, fresh))
    return findings


def canaries_of(phase: Phase) -> int:
    """Twice as many as there are places."""
    return 2 * phase.cohort_size


def _attack(
    select: Chosen, *, places: int, records: int, share: float, rng: BitSource
) -> lower_bound.MembershipGuesses:
    """Guesses "highest" for canaries that were selected; for a fixed number, whoever was."""
    canaries = 2 * places
    highest = rng.words(canaries) >> np.uint64(63) == 1
    scores = np.zeros(max(records, canaries))
    scores[:canaries] = highest
    chosen = np.zeros(scores.size, dtype=np.bool_)
    chosen[select(scores)] = True
    # Ties are broken by a coin, so that the order of records says nothing.
    ties = rng.words(canaries).astype(np.float64) / 2.0**64
    made = max(1, round(share * places))
    guessed = np.argsort(chosen[:canaries] + 0.5 * ties)[canaries - made :]
    return lower_bound.MembershipGuesses(
        canaries=canaries, made=made, correct=int(highest[guessed].sum())
    )


def _exact(spec: CampaignSpec, rng: BitSource) -> AuditFinding:
    def exact(scores: NDArray[np.float64]) -> NDArray[np.int64]:
        return exact_top_k(scores, _PLACES).rows

    guesses = _attack(exact, places=_PLACES, records=10 * _PLACES, share=0.75, rng=rng)
    value = lower_bound.epsilon_in_one_run(guesses, delta=spec.target.delta, error=1 - CONFIDENCE)
    return AuditFinding(
        layer=Layer.ATTACK,
        what="scores by an exact selection",
        expected=f"above {_POWER:g}",
        measured=_in_words(value, guesses),
        passed=value > _POWER,
        likely="the attack itself is broken, so that it proves nothing",
        value=value,
        is_epsilon=True,
        false_alarm=FALSE_ALARM,
    )


def _private(phase: Phase, spec: CampaignSpec, fresh: Callable[[], BitSource]) -> AuditFinding:
    def private(scores: NDArray[np.float64]) -> NDArray[np.int64]:
        return draw_selection(phase, scores, rng=fresh())

    guesses = _attack(
        private,
        places=phase.cohort_size,
        records=pool_for(phase, spec),
        share=_SHARE,
        rng=fresh(),
    )
    return _judged(
        phase,
        spec,
        "the selected",
        lower_bound.epsilon_in_one_run(guesses, delta=spec.target.delta, error=1 - CONFIDENCE),
        lower_bound.epsilon_in_one_run(guesses, delta=spec.target.delta, error=FALSE_ALARM),
        guesses,
    )


def _judged(
    phase: Phase,
    spec: CampaignSpec,
    seen: str,
    value: float,
    certain: float,
    guesses: lower_bound.MembershipGuesses,
) -> AuditFinding:
    claim = selection_epsilon(phase, spec)
    return AuditFinding(
        layer=Layer.ATTACK,
        what=f"{phase.name}: scores by {seen}",
        expected=f"at most {claim:.3f}",
        measured=_in_words(value, guesses),
        passed=certain <= claim,
        likely="a selection shows more of scores than is charged",
        claimed=claim,
        value=value,
        is_epsilon=True,
        false_alarm=FALSE_ALARM,
    )


def _threshold(
    phase: Phase, step: HiddenGate, spec: CampaignSpec, searches: int, rng: BitSource
) -> AuditFinding:
    """Guesses whether a record lies above, from a search in which every count is close.

    Without it every count equals the aim, with it each is one more; the more counts are
    accepted, the less likely it is there.
    """
    accepted = [
        accepted_counts(step, step.aim + more, searches, rng=rng).sum(axis=1) for more in (0, 1)
    ]
    # Fixed before anything is seen: the middle of what is expected.
    cut = step.comparisons / 2
    alarms, misses = int((accepted[0] < cut).sum()), int((accepted[1] >= cut).sum())

    def bound(error: float) -> float:
        rates = lower_bound.AttackRates(
            alarms=alarms, absent=searches, misses=misses, present=searches
        )
        return lower_bound.epsilon_of_rates(rates, delta=spec.target.delta, error=error)

    guesses = lower_bound.MembershipGuesses(
        canaries=2 * searches, made=2 * searches, correct=2 * searches - alarms - misses
    )
    return _judged(phase, spec, "a threshold", bound(1 - CONFIDENCE), bound(FALSE_ALARM), guesses)


def _in_words(value: float, guesses: lower_bound.MembershipGuesses) -> str:
    return f"{value:.3f} ({guesses.correct:,} of {guesses.made:,})"
