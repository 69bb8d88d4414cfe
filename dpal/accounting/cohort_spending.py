"""What each cohort, and the campaign as a whole, has spent.

A cohort's figures show how evenly a plan spends. The promise is kept by the campaign's
epsilon, the envelope over every path a record can take (`dpal.accounting.worst_path`):
where noisy outputs decide who joins which cohort, figures of single cohorts prove nothing.

Sums are kept: planning, the certificate and the pages of a campaign ask for the same ones, and
they follow from the releases and the target alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dpal.accounting import pld, rdp
from dpal.accounting.budget_cohort_names import about_budget, is_budget_cohort
from dpal.accounting.events import NEVER_SELECTED, VALIDATION, Event, Release
from dpal.accounting.events.noisy_threshold import merge_equal_steps
from dpal.accounting.profiles import Grid
from dpal.accounting.secret_draws_amplification import amplified_epsilon
from dpal.accounting.single_step_curves import Direction
from dpal.accounting.validation_cohort import about_pool, about_validation
from dpal.accounting.worst_path import (
    Path,
    answer_loss,
    campaign_profile,
    grid_of,
    last_phase,
    path_epsilon,
    path_of,
)
from dpal.privacy import Accountant as Accountant
from dpal.privacy import PrivacyTarget

_KEPT = 256  # sums of each kind: numbers, and the releases that they are of


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What one cohort has spent.

    Attributes:
      cohort: its name.
      selection_epsilon: of everything that selections released about it, alone.
      epsilon_rdp: selections plus training by Rényi bounds (basic composition of both).
      epsilon_pld: of the cohort's path by privacy loss distributions; tight, and a bound
        on its own only where membership was decided without looking at records.
    """

    cohort: str
    selection_epsilon: float
    epsilon_rdp: float
    epsilon_pld: float


def spending(cohort: str, releases: Sequence[Release], target: PrivacyTarget) -> Spending:
    """Adds up what releases cost one cohort.

    Args:
      cohort: its name.
      releases: of a campaign, in order, finished or not.
      target: gives delta and adjacency.
    """
    return _spending(cohort, tuple(releases), target)


@lru_cache(maxsize=_KEPT)
def _spending(cohort: str, releases: tuple[Release, ...], target: PrivacyTarget) -> Spending:
    if cohort == VALIDATION:
        measured = about_validation(releases)
        return replace(spending(NEVER_SELECTED, measured, target), cohort=VALIDATION)
    if is_budget_cohort(cohort):
        return replace(spending("0", about_budget(releases, cohort), target), cohort=cohort)
    releases = tuple(about_pool(releases))
    path = path_of(releases, entry_phase(cohort, releases))
    steering = _steering(releases)
    thresholds = [event for event in path.events if event in steering]
    return Spending(
        cohort=cohort,
        selection_epsilon=_pure(path, target) + epsilon_of_thresholds(thresholds, target),
        epsilon_rdp=epsilon_by_rdp(path, target),
        epsilon_pld=_by_pld(path, certificate_grid(releases, target), target),
    )


def epsilon_by_rdp(path: Path, target: PrivacyTarget) -> float:
    """A path's epsilon: pure losses of its selections plus one Rényi bound for the rest.

    Chances to fail, such as overflows of thresholds, are taken out of delta.
    """
    left = target.delta - _failing(path) - path.failing
    if not left > 0:
        return math.inf
    if left >= path.chance:
        return 0.0
    within = left / path.chance
    bound = rdp.epsilon_spent(_unbounded(path), delta=within, adjacency=target.adjacency)
    epsilon = _pure(path, target) + bound
    return amplified_epsilon(epsilon, path.chance) if path.chance < 1 else epsilon


def campaign_epsilon(
    releases: Sequence[Release],
    target: PrivacyTarget,
    *,
    accountant: Accountant = Accountant.PLD,
) -> float:
    """The epsilon that holds for every record of the pool, whatever path it takes.

    Where figures of a protected validation set were released, it holds for its records, too: the
    larger of both, as no record is in both.

    Args:
      releases: of a campaign, in order, finished or not.
      target: gives delta and adjacency.
      accountant: PLD, the tight envelope; or RDP, the worst path by basic composition.
    """
    return _campaign_epsilon(tuple(releases), target, accountant)


@lru_cache(maxsize=_KEPT)
def _campaign_epsilon(
    releases: tuple[Release, ...], target: PrivacyTarget, accountant: Accountant
) -> float:
    if measured := about_validation(releases):
        apart = (about_pool(releases), measured)
        return max(campaign_epsilon(part, target, accountant=accountant) for part in apart)
    if accountant is Accountant.RDP:
        return _campaign_by_rdp(releases, target)
    grid = certificate_grid(releases, target)
    return max(
        campaign_profile(
            releases, grid=grid, adjacency=target.adjacency, direction=direction
        ).epsilon(target.delta)
        for direction in Direction
    )


def _campaign_by_rdp(releases: Sequence[Release], target: PrivacyTarget) -> float:
    """The worst path by Rényi bounds.

    Scores and answers have pure losses, which add to any bound of the path they lead to.
    Thresholds have not: where they steer records, all paths share one order, as the best
    order of each path would depend on outputs.

    Source: Feldman & Zrnic (2021), "Individual privacy accounting via a Rényi filter".
    """
    paths = [path_of(releases, cohort) for cohort in range(last_phase(releases) + 2)]
    if not (all(path.chance < 1 for path in paths[:-1]) and not paths[-1].events):
        # Beside paths that something else decides on, secret coins are not counted. That too many
        # are drawn is, so that no figure holds where another does not.
        failing = max(path.failing for path in paths)
        paths = [replace(path, chance=1.0, failing=failing) for path in paths]
    initial, *steered = paths
    if not _steering(releases):
        return max(epsilon_by_rdp(path, target) for path in [initial, *steered])
    left = target.delta - max(_failing(path) + path.failing for path in steered)
    if not left > 0:
        return math.inf
    curves = [
        _pure(path, target)
        + np.sum([event.renyi(target.adjacency) for event in _unbounded(path)], axis=0)
        for path in steered
    ]
    together = rdp.to_epsilon(np.max(np.stack(curves), axis=0), delta=left)
    return max(epsilon_by_rdp(initial, target), together)


def second_opinion(releases: Sequence[Release], target: PrivacyTarget) -> float:
    """The same epsilon by dp-accounting."""
    return _second_opinion(tuple(releases), target)


@lru_cache(maxsize=_KEPT)
def _second_opinion(releases: tuple[Release, ...], target: PrivacyTarget) -> float:
    # dp-accounting takes half a second to import: only whoever asks for its opinion waits.
    from dpal.accounting import second_opinion as oracle

    if measured := about_validation(releases):
        return max(second_opinion(part, target) for part in (about_pool(releases), measured))
    return oracle.second_opinion_epsilon(
        releases, delta=target.delta, adjacency=target.adjacency, limit=target.epsilon
    )


def epsilon_of_thresholds(thresholds: Sequence[Event], target: PrivacyTarget) -> float:
    """What thresholds would cost if nothing else were released."""
    if not thresholds:
        return 0.0
    merged = merge_equal_steps(thresholds)
    grid = pld.fit_grid(
        [merged], delta=target.delta, adjacency=target.adjacency, accuracy=pld.CERTIFY
    )
    return max(
        pld.compose(merged, grid=grid, adjacency=target.adjacency, direction=direction).epsilon(
            target.delta
        )
        for direction in Direction
    )


def certificate_grid(releases: Sequence[Release], target: PrivacyTarget) -> Grid:
    """The fine grid on which certificates are computed."""
    return grid_of(releases, delta=target.delta, adjacency=target.adjacency, accuracy=pld.CERTIFY)


def entry_phase(cohort: str, releases: Sequence[Release]) -> int:
    """The phase in which a cohort enters; one beyond the last for the never-selected."""
    return last_phase(releases) + 1 if cohort == NEVER_SELECTED else int(cohort)


def _by_pld(path: Path, grid: Grid, target: PrivacyTarget) -> float:
    return max(
        path_epsilon(
            path,
            delta=target.delta,
            grid=grid,
            adjacency=target.adjacency,
            direction=direction,
        )
        for direction in Direction
    )


def _steering(releases: Sequence[Release]) -> set[Event]:
    """What selections release that sends records on paths and has no largest loss: thresholds."""
    selected = {
        charge.event for release in releases if release.selects for charge in release.charges
    }
    return {event for event in selected if not event.answer and event.pure_epsilon is None}


def _pure(path: Path, target: PrivacyTarget) -> float:
    """Losses of noisy scores, counts and answers, which hold with delta 0."""
    epsilons = [event.pure_epsilon for event in path.events]
    losses = 0.0
    for answer, entered in path.answers:
        no, yes = (answer_loss(answer, target.adjacency, selected=said) for said in (False, True))
        # Who enters may have said no: a shortage is filled up by chance.
        losses += max(no, yes) if entered else no
    return sum(epsilon for epsilon in epsilons if epsilon is not None) + losses


def _unbounded(path: Path) -> list[Event]:
    """The events of a path that have no largest loss: their noise is Gaussian, say."""
    return [event for event in path.events if event.pure_epsilon is None]


def _failing(path: Path) -> float:
    """Chance that one of a path's thresholds, or of its bounds on votes, fails."""
    return sum(event.delta for event in path.events)
