"""What a cohort would end with: the question that every planner asks thousands of times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpal.accounting import pld
from dpal.accounting.cohort_spending import Accountant, epsilon_by_rdp
from dpal.accounting.events import Answer, Event, SecretDraw
from dpal.accounting.profiles import Grid
from dpal.accounting.safe_search import smallest_safe
from dpal.accounting.single_step_curves import Direction
from dpal.accounting.worst_path import Path, greatest_loss, path_epsilon
from dpal.errors import ParameterError
from dpal.planning.campaign_spec import CampaignSpec, SelectionMode
from dpal.planning.schedule import BasePhase, scheduled_phases, trial_phase
from dpal.planning.selection_steps import SecretRandomDraw, SelectionStep, design_selections
from dpal.privacy import choose_delta

_LOWEST_NOISE, _HIGHEST_NOISE = 0.3, 1e5
_POOL_SHARE = 0.5  # of delta, for those whom secret coins did not draw at first
_DRAWN_SHARE = 0.85  # of the epsilon that the drawn could have if the others lost nothing
_GRID_MARGIN = 0.8  # of the noise by Renyi bounds: never more is gained


@dataclass(frozen=True, eq=False)
class Budget:
    """A campaign's promise, asked cohort by cohort.

    Attributes:
      spec: the campaign.
      limit: the epsilon aimed for; below the promise when the envelope took some of it.
      grid: on which privacy losses are composed while searching.
      initial_limit: the epsilon aimed for by the initial cohort, where that is another one.
      by_renyi: whether Rényi bounds answer, whatever the accountant: rougher, and without a grid.
      pool_limit: the epsilon aimed for by those whom secret coins did not draw, and who may be
        selected or train unlabeled later; None before it is known, or where coins decide nothing
        like that.
      later_limit: the epsilon aimed for by those of them that queries select, likewise.
    """

    spec: CampaignSpec
    limit: float
    grid: Grid | None = None
    initial_limit: float | None = None
    by_renyi: bool = False
    pool_limit: float | None = None
    later_limit: float | None = None

    def limit_of(self, cohort: int) -> float:
        """The epsilon that a cohort may end with."""
        if cohort == 0 and self.initial_limit is not None:
            return self.initial_limit
        if cohort > 0 and self.later_limit is not None and not self._all_drawn:
            return self.later_limit
        return self.limit

    @cached_property
    def base(self) -> tuple[BasePhase, ...]:
        """The schedule as if all labeled records were treated alike."""
        return scheduled_phases(self.spec)

    def exposures(self, cohort: int, noise_multiplier: float) -> list[Event]:
        """All training of a cohort of the base schedule at one noise, in order.

        Args:
          cohort: the phase in which it enters; the initial one meets the trials of a search, too.
          noise_multiplier: of every phase, and of trials.
        """
        met = self.base[cohort:]
        if self.spec.head is not None and not (cohort and self.spec.entries_may_differ):
            met = met[:1]  # sums over a cohort are released once, and kept
        phases = [phase.exposure(noise_multiplier) for phase in met]
        if cohort or self.spec.search is None:
            return phases
        trial = trial_phase(self.spec.schedule, self.spec.search.epochs)
        together = replace(trial, steps=trial.steps * len(self.spec.trials))
        return [together.exposure(noise_multiplier), *phases]

    @cached_property
    def selections(self) -> tuple[SelectionStep, ...]:
        """How every phase selects."""
        return design_selections(self.spec)

    def final(self, cohort: int, training: Sequence[Event]) -> float:
        """The epsilon that a cohort ends with, over its whole path.

        Args:
          cohort: the phase in which it enters.
          training: all of its exposures.
        """
        if self._splits and (cohort == 0 or self._all_drawn):
            if self.pool_limit is None:
                raise ParameterError("calibrate_noise comes first: it splits the budget")
            return self._drawn_beside(cohort, self.pool_limit, training)
        return self._undrawn(cohort, training)

    def _undrawn(self, cohort: int, training: Sequence[Event]) -> float:
        """What a cohort ends with that no secret coin draws, or none beside which others lose."""
        events, answers = self._selected[cohort]
        path, delta = Path((*events, *training), answers, *self._chance), self.spec.target.delta
        return self._path_epsilon(cohort, path, _POOL_SHARE * delta if self._splits else delta)

    def _path_epsilon(self, cohort: int, path: Path, delta: float) -> float:
        target = replace(self.spec.target, delta=delta)
        if self.by_renyi or self.spec.accountant is Accountant.RDP:
            return epsilon_by_rdp(path, target)
        return max(
            path_epsilon(
                path,
                delta=delta,
                grid=self._required_grid,
                adjacency=target.adjacency,
                direction=direction,
            )
            for direction in self._directions[cohort]
        )

    @cached_property
    def _splits(self) -> bool:
        """Whether secret coins draw, and others lose something, too: by queries, or by training."""
        return self.spec.splits_budget

    @cached_property
    def _all_drawn(self) -> bool:
        """Whether secret coins draw all cohorts that are labeled."""
        return self.spec.secret_draw and not self.spec.selects

    @cached_property
    def _puts_aside(self) -> bool:
        """Whether coins leave records that are no candidate of any query, and train unlabeled."""
        return self.spec.candidates is not None and self.spec.self_training is not None

    @cached_property
    def _chance(self) -> tuple[float, float]:
        """The chance of coming into question by secret coins, and that too many are drawn."""
        if not self._draws or self._puts_aside:
            return 1.0, 0.0
        return (self._draws[0].candidates, 0.0) if self._splits else self._draw_together

    @cached_property
    def _draw_together(self) -> tuple[float, float]:
        stays = math.prod(1 - draw.chance for draw in self._draws)
        return 1 - stays, sum(draw.failure_probability for draw in self._draws)

    @cached_property
    def _draws(self) -> list[SecretDraw]:
        return [step.draw for step in self.selections if isinstance(step, SecretRandomDraw)]

    def _drawn_beside(self, cohort: int, pool: float, training: Sequence[Event]) -> float:
        """What a cohort that secret coins draw ends with, where the others end with `pool`.

        With p the chance of the coins, (e1, d1) of the drawn and (e0, d0) of the others give
        (ln(p e^e1 + (1-p) e^e0), p d1 + (1-p) d0): docs/guarantee.md, "Secret draws". Several
        cohorts that coins draw count as one, each as dear as this one.
        """
        (p, failing), delta = self._draw_together, self.spec.target.delta
        left = delta * (1 - _POOL_SHARE * (1 - p)) - failing
        alone = 0.0 if left >= p else self._path_epsilon(cohort, Path(tuple(training)), left / p)
        return float(np.logaddexp(math.log(p) + alone, math.log1p(-p) + pool))

    def _pool_beside_drawn(self) -> float:
        """The epsilon of those whom coins drew for no label: what costs the drawn little.

        The drawn, and candidates, keep most of the epsilon e that they could have if the others
        lost nothing, which is p e^e + 1 - p = e^limit. Nobody gets more than the limit, though
        where most are drawn the mixture would allow it.
        """
        p, _ = self._draw_together
        if self._puts_aside:
            p += (1 - p) * self._draws[0].candidates
        whole = float(
            np.logaddexp(0.0, self.limit + math.log(-math.expm1(-self.limit)) - math.log(p))
        )
        kept = math.log(p) + _DRAWN_SHARE * whole
        left = self.limit + math.log1p(-math.exp(kept - self.limit)) - math.log1p(-p)
        return min(self.limit, left)

    @cached_property
    def _directions(self) -> list[tuple[Direction, ...]]:
        """Where a cohort's cost is looked for. The certificate always takes both directions.

        One is the dear one, but for answers where much of the pool is asked for: there a blank
        record's answer tells more.
        """
        adjacency = self.spec.target.adjacency
        directions = []
        for _, answers in self._selected:
            path = Path(answers=answers)
            remove, add = (greatest_loss(path, adjacency, direction) for direction in Direction)
            directions.append(tuple(Direction) if add > remove + 1e-9 else (Direction.REMOVE,))
        return directions

    def calibrate_noise(self) -> tuple[float, Budget]:
        """Finds the least noise at which every cohort of the base schedule ends in time.

        Returns:
          The noise multiplier, and the same budget on a grid that fits it.

        Raises:
          ParameterError: no amount of noise does.
        """
        # Rényi bounds need no grid, so they find one; they ask for 6 to 10 % more noise.
        rough = replace(self, by_renyi=True)
        sigma = rough._least_noise(_LOWEST_NOISE)
        if self.spec.accountant is Accountant.RDP:
            return sigma, self
        fitted = replace(self, grid=self._grid_at(_GRID_MARGIN * sigma))
        sigma = fitted._least_noise(_GRID_MARGIN * sigma)
        if self._splits:
            fitted = replace(
                fitted,
                pool_limit=fitted._pool_epsilon(sigma),
                later_limit=None if self._all_drawn else fitted._later_epsilon(sigma),
            )
        return sigma, fitted

    def _least_noise(self, low: float) -> float:
        """Least noise from `low` on."""

        def worst(sigma: float) -> float:
            if self._splits:
                return self._worst_drawn(self._pool_epsilon(sigma), sigma)
            cohorts = range(len(self.base))
            return max(aimed(cohort, self.exposures(cohort, sigma)) for cohort in cohorts)

        def aimed(cohort: int, training: Sequence[Event]) -> float:
            """What a cohort ends with, beside the one limit."""
            return self.final(cohort, training) + (self.limit - self.limit_of(cohort))

        if self._splits:
            floor = self._worst_drawn(self._pool_epsilon(None), None)
        else:
            floor = max(aimed(cohort, []) for cohort in range(len(self.base)))
        if floor >= self.limit:
            raise self._unreachable(floor, "its selections alone")
        least = worst(_HIGHEST_NOISE)
        if least > self.limit:
            raise self._unreachable(least, "it")
        return smallest_safe(worst, self.limit, low=low)

    def _worst_drawn(self, pool: float, sigma: float | None) -> float:
        """What the worst of those ends with whom secret coins draw; None trains nobody."""
        cohorts = range(len(self.base) if self._all_drawn else 1)
        return max(
            self._drawn_beside(cohort, pool, [] if sigma is None else self.exposures(cohort, sigma))
            for cohort in cohorts
        )

    def _pool_epsilon(self, sigma: float | None) -> float:
        """What the worst of those ends with whom secret coins did not draw; None trains nobody."""
        if self._all_drawn:
            return self._pool_beside_drawn()
        later = self._later_epsilon(sigma)
        if not self._puts_aside:
            return later
        share, aside = self._draws[0].candidates, self._pool_beside_drawn()
        return float(np.logaddexp(math.log(share) + later, math.log1p(-share) + aside))

    def _later_epsilon(self, sigma: float | None) -> float:
        """What the worst of those ends with whom queries may select; None trains nobody."""
        later = range(1, len(self.base))
        return max(
            self._undrawn(cohort, [] if sigma is None else self.exposures(cohort, sigma))
            for cohort in later
        )

    def least_noise_of_unlabeled(self, phase: BasePhase, sigma: float) -> float:
        """Least noise at which records that train unlabeled at the end stay within their limit.

        Args:
          phase: how they train.
          sigma: the noise that the labeled records train with at first.

        Raises:
          ParameterError: no amount of noise does.
        """
        budget, last = self, len(self.base)
        if self.spec.accountant is Accountant.PLD:
            budget = replace(self, grid=self._grid_at(_GRID_MARGIN * sigma))
        limit = self.limit
        if self._puts_aside:
            limit = self._pool_beside_drawn()
        elif self._splits:
            limit = budget._pool_epsilon(sigma)
        rough = replace(budget, by_renyi=True)
        floor = rough._unlabeled([])
        if not max(floor, rough._unlabeled([phase.exposure(_HIGHEST_NOISE)])) <= limit:
            raise ParameterError(
                f"what selections release leaves nothing of epsilon {limit:.3g} for self_training; "
                "set it to null, or raise privacy.epsilon"
            )
        noise = rough._least_noise_at_end(phase, limit, low=_LOWEST_NOISE)
        if self.spec.accountant is Accountant.RDP:
            return noise
        least = _GRID_MARGIN * noise
        grid = pld.fit_grid(
            [[*self._selected[last][0], phase.exposure(least)]],
            delta=self.spec.target.delta,
            adjacency=self.spec.target.adjacency,
            accuracy=pld.SEARCH,
        )
        return replace(budget, grid=grid)._least_noise_at_end(phase, limit, low=least)

    def _least_noise_at_end(self, phase: BasePhase, limit: float, *, low: float) -> float:
        def end(noise: float) -> float:
            return self._unlabeled([phase.exposure(noise)])

        return smallest_safe(end, limit, low=low)

    def _unlabeled(self, training: Sequence[Event]) -> float:
        """What those end with whom nobody labeled.

        Where queries have candidates, whoever is none is counted by no query. The few candidates
        that nobody selects may lose as much as the selected.
        """
        if not self._puts_aside:
            return self._undrawn(len(self.base), training)
        return self._path_epsilon(
            len(self.base), Path(tuple(training)), _POOL_SHARE * self.spec.target.delta
        )

    def _unreachable(self, least: float, what: str) -> ParameterError:
        """Says what could be certified instead of what was asked for."""
        spec, target = self.spec, self.spec.target
        if math.isinf(least):
            return ParameterError(
                f"privacy.delta {target.delta:.3g} is smaller than can be certified for this "
                f"campaign; use {choose_delta(None, pool_size=spec.pool_size):.3g} or leave it null"
            )
        if least < target.epsilon:  # possible alone; over all paths it is not
            return ParameterError(
                f"this campaign cannot keep epsilon {target.epsilon:g} at delta "
                f"{target.delta:.3g}: over all paths that a record can take, its selections leave "
                f"too little for training; raise privacy.epsilon to {2 * target.epsilon:g} or so"
                + (", or lower privacy.selection_epsilon" if spec.selection_epsilon else "")
            )
        others = []
        if spec.selection_epsilon:
            others.append("lower privacy.selection_epsilon")
        if any(hasattr(step, "threshold") for step in self.selections):
            others.append("raise privacy.threshold_noise")
        return ParameterError(
            f"this campaign cannot keep epsilon {target.epsilon:g} at delta {target.delta:.3g}: "
            f"{what} would take {least:.3g}; "
            + ", or ".join([f"raise privacy.epsilon above {least:.3g}", *others])
        )

    def _grid_at(self, sigma: float) -> Grid:
        paths = [
            [*events, *self.exposures(cohort, sigma)]
            for cohort, (events, _) in enumerate(self._selected)
        ]
        target = self.spec.target
        return pld.fit_grid(
            paths, delta=target.delta, adjacency=target.adjacency, accuracy=pld.SEARCH
        )

    @property
    def _required_grid(self) -> Grid:
        if self.grid is None:
            raise ParameterError("calibrate_noise comes first: it chooses the grid")
        return self.grid

    @cached_property
    def _selected(self) -> list[tuple[tuple[Event, ...], tuple[tuple[Answer, bool], ...]]]:
        """For each cohort, what selections release about it, and what it answered."""
        paths = []
        hidden = self.spec.selection is SelectionMode.HIDDEN
        last = len(self.selections) - 1
        for cohort in range(len(self.selections) + 1):  # the last are those who never entered
            counted = 0 if cohort == 0 else last if hidden else min(cohort, last)
            events: list[Event] = []
            answers: list[tuple[Answer, bool]] = []
            for phase in range(1, counted + 1):
                for event in self.selections[phase].events:
                    if answer := event.answer:
                        answers.append((answer, phase == cohort))
                    elif event.entry_chance is None:
                        events.append(event)
            paths.append((tuple(events), tuple(answers)))
        return paths
