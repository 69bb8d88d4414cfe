"""What a cohort would end with: the question that every planner asks thousands of times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpal.accounting import pld
from dpal.accounting.cohort_spending import Accountant, epsilon_by_rdp
from dpal.accounting.events import Answer, Event, PhaseExposure, SecretDraw
from dpal.accounting.profiles import Grid
from dpal.accounting.safe_search import smallest_safe
from dpal.accounting.step_curves import Direction
from dpal.accounting.worst_path import Path, greatest_loss, path_epsilon
from dpal.errors import ParameterError
from dpal.planning.campaign_spec import CampaignSpec, SelectionMode
from dpal.planning.schedule import BasePhase, base_phases
from dpal.planning.selection_steps import SecretRandomDraw, SelectionStep, design_selections
from dpal.privacy import choose_delta

_LOWEST_NOISE, _HIGHEST_NOISE = 0.3, 1e5
_POOL_SHARE = 0.5  # of delta, for those whom secret coins did not draw at first
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
      pool_limit: the epsilon aimed for by those whom secret coins did not draw at first, and who
        may be selected later; None before it is known, or where coins decide nothing like that.
    """

    spec: CampaignSpec
    limit: float
    grid: Grid | None = None
    initial_limit: float | None = None
    by_renyi: bool = False
    pool_limit: float | None = None

    def limit_of(self, cohort: int) -> float:
        """The epsilon that a cohort may end with."""
        if cohort == 0 and self.initial_limit is not None:
            return self.initial_limit
        if cohort > 0 and self.pool_limit is not None:
            return self.pool_limit
        return self.limit

    @cached_property
    def base(self) -> tuple[BasePhase, ...]:
        """The schedule as if all labeled records were treated alike."""
        return base_phases(self.spec.schedule)

    @cached_property
    def selections(self) -> tuple[SelectionStep, ...]:
        """How every phase selects."""
        return design_selections(self.spec)

    def final(self, cohort: int, training: Sequence[PhaseExposure]) -> float:
        """The epsilon that a cohort ends with, over its whole path.

        Args:
          cohort: the phase in which it enters.
          training: all of its exposures.
        """
        if cohort == 0 and self._splits:
            if self.pool_limit is None:
                raise ParameterError("calibrate_noise comes first: it splits the budget")
            return self._initial_beside(self.pool_limit, training)
        events, answers = self._selected[cohort]
        path, delta = Path((*events, *training), answers, *self._drawn), self.spec.target.delta
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
        """Whether secret coins draw the initial cohort, and records are selected later."""
        return self.spec.secret_draw and self.spec.selects

    @cached_property
    def _drawn(self) -> tuple[float, float]:
        """The chance of being drawn by a secret coin, and that too many are."""
        if not self._draws or self._splits:
            return 1.0, 0.0
        stays = math.prod(1 - draw.chance for draw in self._draws)
        return 1 - stays, sum(draw.failure_probability for draw in self._draws)

    @cached_property
    def _draws(self) -> list[SecretDraw]:
        return [step.draw for step in self.selections if isinstance(step, SecretRandomDraw)]

    def _initial_beside(self, pool: float, training: Sequence[PhaseExposure]) -> float:
        """What the initial cohort ends with, where the others end with `pool`.

        With p the chance of its coins, (e1, d1) of the drawn and (e0, d0) of the others give
        (ln(p e^e1 + (1-p) e^e0), p d1 + (1-p) d0): docs/guarantee.md, "Secret draws".
        """
        (draw,), delta = self._draws, self.spec.target.delta
        p = draw.chance
        left = delta * (1 - _POOL_SHARE * (1 - p)) - draw.failure_probability
        alone = 0.0 if left >= p else self._path_epsilon(0, Path(tuple(training)), left / p)
        return float(np.logaddexp(math.log(p) + alone, math.log1p(-p) + pool))

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
            return sigma, replace(fitted, pool_limit=fitted._pool_epsilon(sigma))
        return sigma, fitted

    def _least_noise(self, low: float) -> float:
        """Least noise from `low` on."""

        def worst(sigma: float) -> float:
            exposures = [phase.exposure(sigma) for phase in self.base]
            if self._splits:
                return self._initial_beside(self._pool_epsilon(sigma), exposures)
            return max(aimed(cohort, exposures[cohort:]) for cohort in range(len(self.base)))

        def aimed(cohort: int, training: Sequence[PhaseExposure]) -> float:
            """What a cohort ends with, beside the one limit."""
            return self.final(cohort, training) + (self.limit - self.limit_of(cohort))

        if self._splits:
            floor = self._initial_beside(self._pool_epsilon(None), [])
        else:
            floor = max(aimed(cohort, []) for cohort in range(len(self.base)))
        if floor >= self.limit:
            raise self._unreachable(floor, "its selections alone")
        least = worst(_HIGHEST_NOISE)
        if least > self.limit:
            raise self._unreachable(least, "it")
        return smallest_safe(worst, self.limit, low=low)

    def _pool_epsilon(self, sigma: float | None) -> float:
        """What the worst of those ends with whom secret coins did not draw; None trains nobody."""
        exposures = [] if sigma is None else [phase.exposure(sigma) for phase in self.base]
        return max(self.final(cohort, exposures[cohort:]) for cohort in range(1, len(self.base)))

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
        exposures = [phase.exposure(sigma) for phase in self.base]
        paths = [
            [*events, *exposures[cohort:]] for cohort, (events, _) in enumerate(self._selected)
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
        for cohort in range(len(self.selections)):
            counted = 0 if cohort == 0 else last if hidden else cohort
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
