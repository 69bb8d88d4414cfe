"""What training on canaries shows: who joined, how much, under which noise, and epsilon."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpal.accounting.cohort_spending import campaign_epsilon, certificate_grid
from dpal.accounting.events import TRIAL, Release
from dpal.accounting.single_step_curves import Direction
from dpal.accounting.worst_path import campaign_profile
from dpal.audit import hypothesis_tests, lower_bound
from dpal.audit.canaries import CanaryRun
from dpal.audit.findings import FALSE_ALARM, AuditFinding, Layer, statistical_finding
from dpal.planning.campaign_plan import Plan
from dpal.privacy import Adjacency, PrivacyTarget

CONFIDENCE = 0.95  # of the bounds that are shown; a check fails at 1 - _REFUTED only
_REFUTED = 1e-5  # chance that guesses refute a true claim
_SHARES = (0.15, 0.9)  # of the canaries that are guessed, fixed before any score is seen


def training_releases(plan: Plan) -> list[Release]:
    """What the plan's training releases, that of trials included, without its selections."""
    return [release for release in plan.releases() if release.trains or release.kind == TRIAL]


def attack_findings(trained: CanaryRun, ran: Plan) -> list[AuditFinding]:
    """Judges a run on canaries.

    Args:
      trained: what happened.
      ran: the plan of exactly what was run.
    """
    releases, target = training_releases(ran), ran.spec.target
    claim = campaign_epsilon(releases, target)
    tried = [
        lower_bound.guess_membership(
            trained.scores(), trained.included, count=int(share * trained.included.size)
        )
        for share in _SHARES
    ]
    outside = [
        lower_bound.guess_membership(
            -trained.losses,
            trained.mislabeled_included,
            count=int(share * trained.losses.size),
        )
        for share in _SHARES
    ]
    return [
        _steps(trained),
        *_joined(trained),
        _contribution(trained),
        _noise(trained),
        _independent(trained, claim, releases, target),
        _bounded("members by gradients", tried, claim, releases, target),
        _bounded("members by gradients", tried, claim, releases, target, gaussian=True),
        _bounded("members by wrong labels", outside, claim, releases, target),
    ]


def _steps(trained: CanaryRun) -> AuditFinding:
    return AuditFinding(
        layer=Layer.STEP,
        what="training steps",
        expected=f"{trained.planned:,}",
        measured=f"{len(trained.steps):,}",
        passed=len(trained.steps) == trained.planned,
        likely="training does not stop where the plan does",
    )


def _there(trained: CanaryRun) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Canaries that are among the records: under replace_one an opposite is there as well."""
    if trained.adjacency is Adjacency.REPLACE_ONE:
        return np.ones_like(trained.included)
    return trained.included


def _joined(trained: CanaryRun) -> list[AuditFinding]:
    """Batches as the model met them, by rate."""
    there = _there(trained)
    hits: dict[float, tuple[int, int]] = {}
    for step in trained.steps:
        for rate in np.unique(step.rates[there]):
            same = there & (step.rates == rate)
            joined, drawn = hits.get(float(rate), (0, 0))
            hits[float(rate)] = joined + int(step.joined[same].sum()), drawn + int(same.sum())
    p_values = [hypothesis_tests.of_count(k, n, rate) for rate, (k, n) in hits.items()]
    expected = sum(rate * n for rate, (_, n) in hits.items())
    value = sum(k for k, _ in hits.values()) / expected
    margin = 4.9 * np.sqrt(sum(r * (1 - r) * n for r, (_, n) in hits.items())) / expected
    outsiders = sum(int(step.joined[~there].sum()) for step in trained.steps)
    return [
        statistical_finding(
            Layer.STEP,
            "rates that training met / planned",
            hypothesis_tests.bonferroni(*p_values) if not outsiders else 0.0,
            expected=f"1 +- {100 * margin:.2g} %",
            measured=f"{value:.4f}",
            likely="training samples at other rates than the plan's",
            claimed=1.0,
            value=float(value),
            within=float(margin),
        )
    ]


def _contribution(trained: CanaryRun) -> AuditFinding:
    """The mean of what is released about canaries that joined, weighted by precision."""
    direction = np.where(trained.included, 1.0, -1.0)
    total = weight = 0.0
    for step in trained.steps:
        precision = step.noise_multiplier**-2
        total += precision * float((direction * step.seen)[step.joined].sum())
        weight += precision * float(step.joined.sum())
    value = total / weight if weight else 0.0
    error = 1 / np.sqrt(weight) if weight else 1.0
    # Clipping stays a little below C; a contribution of more than C is what must not be.
    return statistical_finding(
        Layer.ATTACK,
        "released contribution / C",
        hypothesis_tests.of_deviation((value - 1) / error),
        expected=f"1 +- {490 * error:.2g} %",
        measured=f"{value:.4g}",
        likely="clipping is off, or a sum is divided by other than the plan's constant",
        claimed=1.0,
        value=value,
        within=4.9 * error,
    )


def _noise(trained: CanaryRun) -> AuditFinding:
    """What is released about canaries that did not join: noise alone."""
    values = np.concatenate(
        [step.seen[~step.joined] / step.noise_multiplier for step in trained.steps]
    )
    size = float(np.sqrt(np.mean(np.square(values))))
    margin = 4.9 / np.sqrt(2 * values.size)
    return statistical_finding(
        Layer.ATTACK,
        "released noise / planned",
        hypothesis_tests.of_scale(values, 1.0),
        expected=f"1 +- {100 * margin:.2g} %",
        measured=f"{size:.4f}",
        likely="training adds other noise than noise_multiplier times max_grad_norm",
        claimed=1.0,
        value=size,
        within=float(margin),
    )


def _independent(
    trained: CanaryRun, claim: float, releases: Sequence[Release], target: PrivacyTarget
) -> AuditFinding:
    """A lower bound from one test, with canaries as runs of it.

    Canaries of own directions are independent: coins, batches and noise are, and what one
    contributes depends on nothing that others did.
    """
    said, there = trained.scores() > 0, trained.included
    rates = lower_bound.AttackRates(
        alarms=int((said & ~there).sum()),
        absent=int((~there).sum()),
        misses=int((~said & there).sum()),
        present=int(there.sum()),
    )
    value = lower_bound.epsilon_of_rates_if_gaussian(
        rates, delta=target.delta, error=1 - CONFIDENCE
    )
    tradeoff = _claimed_tradeoff(releases, target)
    return AuditFinding(
        layer=Layer.ATTACK,
        what="members one by one, as Gaussian",
        expected=f"at most {claim:.3f}",
        measured=f"{value:.3f} ({(said == there).sum():,} of {there.size:,})",
        passed=not lower_bound.rates_refute(rates, tradeoff, error=FALSE_ALARM),
        likely="training keeps less privacy than is claimed: noise, clipping, rates or steps",
        claimed=claim,
        value=value,
        is_epsilon=True,
        false_alarm=FALSE_ALARM,
    )


def _bounded(
    who: str,
    tried: Sequence[lower_bound.MembershipGuesses],
    claim: float,
    releases: Sequence[Release],
    target: PrivacyTarget,
    *,
    gaussian: bool = False,
) -> AuditFinding:
    """A lower bound on epsilon from guesses, which a sound claim is not below.

    Args:
      who: is guessed, and by what.
      tried: guesses of several numbers of canaries.
      claim: epsilon of what was run.
      releases: what was run.
      target: gives delta and adjacency.
      gaussian: bound the epsilon of a Gaussian mechanism instead of any.
    """

    def shown(guesses: lower_bound.MembershipGuesses, error: float) -> float:
        bound = lower_bound.epsilon_if_gaussian if gaussian else lower_bound.epsilon_in_one_run
        return bound(guesses, delta=target.delta, error=error)

    value = lower_bound.best_bound(shown, tried, 1 - CONFIDENCE)
    if gaussian:
        # Shown for a Gaussian mechanism; judged against the very curve that is claimed.
        tradeoff = _claimed_tradeoff(releases, target)
        refuted = any(
            lower_bound.refutes(guesses, tradeoff, error=_REFUTED / len(tried)) for guesses in tried
        )
    else:
        refuted = lower_bound.best_bound(shown, tried, _REFUTED) > claim
    most = max(tried, key=lambda guesses: shown(guesses, 1 - CONFIDENCE))
    return AuditFinding(
        layer=Layer.ATTACK,
        what=f"{who}, as Gaussian" if gaussian else who,
        expected=f"at most {claim:.3f}",
        measured=f"{value:.3f} ({most.correct:,} of {most.made:,})",
        passed=not refuted,
        likely="training keeps less privacy than is claimed: noise, clipping, rates or steps",
        claimed=claim,
        value=value,
        is_epsilon=True,
        false_alarm=_REFUTED,
    )


def _claimed_tradeoff(releases: Sequence[Release], target: PrivacyTarget) -> lower_bound.Tradeoff:
    grid = certificate_grid(releases, target)
    return lower_bound.of_profile(
        *(
            campaign_profile(releases, grid=grid, adjacency=target.adjacency, direction=direction)
            for direction in Direction
        )
    )
