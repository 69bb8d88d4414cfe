"""A campaign may be ended in view of what it released. Whoever ends it best gains nothing.

What is left to gain is found by dynamic programming: at every point of a plan, whoever decides
ends the campaign there or goes on, whichever makes e^((a-1) (loss - charge)) larger in
expectation. A charge is sound if the value at the start is at most 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpal.accounting import rdp
from dpal.accounting.events import (
    NEVER_SELECTED,
    Charge,
    Event,
    NoisyScores,
    NoisyThreshold,
    PhaseExposure,
    RandomizedResponse,
    Release,
)
from dpal.accounting.renyi_filter import NOTHING, Amount, RenyiFilter
from dpal.accounting.single_step_curves import Direction
from dpal.mechanisms.randomized_response import anchored_rates
from dpal.planning.certify_campaign import certified_plan
from dpal.privacy import Adjacency
from tests.conftest import small_spec
from tests.variants import quick_and_slow

MODES = ["hidden", "visible", "paper", "random"]
POOL = "pool"
ROUNDING = 1e-7  # charges are whole units of 1e-9, rounded up twice

EndCharge = Callable[[int], Amount]  # of a campaign that ends after so many releases


@dataclass(frozen=True)
class Game:
    """Whoever ends a campaign, against one record of it."""

    releases: list[Release]
    filter: RenyiFilter
    adjacency: Adjacency
    direction: Direction
    charge_of_end: EndCharge

    def excess(self) -> float:
        """Renyi divergence beyond the charge, by the best way to end, over all records."""
        table: dict[tuple[int, str], float] = {}
        for made in range(len(self.releases), -1, -1):
            ended = -self.charge_of_end(made).divergence * 1e-9
            begun = max((release.phase for release in self.releases[:made]), default=0)
            for state in (POOL, *map(str, range(begun + 1))):
                going_on = -math.inf
                if made < len(self.releases):
                    going_on = self._goes_on(self.releases[made], state, made, table)
                table[made, state] = max(ended, going_on)
        return max(table[0, POOL], table[0, "0"])

    def _goes_on(
        self, release: Release, state: str, made: int, table: dict[tuple[int, str], float]
    ) -> float:
        """Log-moment over (a - 1) of what follows, after one more release."""
        phase, later = str(release.phase), lambda state: table[made + 1, state]
        if state != POOL or not release.selects:
            value = later(state) + self._cost(release, state)
            chosen_before = any(r.selects and r.phase == release.phase for r in self.releases)
            if state == POOL and not release.selects and not chosen_before and release.phase:
                # Drawn by chance, before this training.
                value = max(value, later(phase) + self._cost(release, phase))
            return value
        events = [charge.event for charge in release.charges]
        stays_or_enters = max(later(POOL), later(phase))
        answers = [event for event in events if isinstance(event, RandomizedResponse)]
        noise = sum(self._divergence(event) for event in events if event not in answers)
        if not answers:
            return stays_or_enters + noise
        a1 = self.filter.order - 1
        found = -math.inf
        for p, q in answers[0].outcomes(self.adjacency, self.direction, yes=True):
            yes = math.log(p) + a1 * (math.log(p / q) + later(phase))
            no = math.log1p(-p) + a1 * (math.log((1 - p) / (1 - q)) + stays_or_enters)
            found = max(found, float(np.logaddexp(yes, no)) / a1)
        return found + noise

    def _cost(self, release: Release, state: str) -> float:
        name = NEVER_SELECTED if state == POOL else state
        if state == POOL and release.selects:
            return 0.0
        return sum(
            self._divergence(charge.event) for charge in release.charges if name in charge.cohorts
        )

    def _divergence(self, event: Event) -> float:
        column = int(np.searchsorted(rdp.ORDERS, self.filter.order))
        return float(event.renyi(self.adjacency)[column])


def random_plan(mode: str, generator: np.random.Generator) -> list[Release]:
    """A plan of one to four queries, of any sizes: what a planner would find is one of them."""
    releases: list[Release] = []
    queries = int(generator.integers(1, 5))

    def exposure() -> PhaseExposure:
        return PhaseExposure(
            steps=int(generator.choice([0, 1, 20, 300])),
            sample_rate=float(generator.choice([0.01, 0.1, 0.4, 1.0])),
            noise_multiplier=float(generator.choice([0.8, 1.5, 4.0, 12.0])),
        )

    for phase in range(queries + 1):
        if phase and mode != "random":
            asked = tuple(str(one) for one in range(phase, queries + 1))
            entered = tuple(str(one) for one in range(1, phase)) if mode == "hidden" else ()
            cohorts = (*entered, *asked, NEVER_SELECTED)
            events: list[Event] = []
            if mode == "paper":
                events.append(NoisyScores(epsilon=float(generator.choice([0.1, 0.5, 2.0]))))
            else:
                noise = float(generator.choice([3.0, 10.0, 40.0]))
                events.append(NoisyThreshold(noise_multiplier=noise, failure_probability=1e-9))
            if mode == "visible":
                blank, epsilon = generator.uniform(0.02, 0.6), generator.choice([0.2, 1.0, 3.0])
                above, below = anchored_rates(float(epsilon), float(blank))
                events.append(RandomizedResponse(above=above, below=below, blank=float(blank)))
            charges = tuple(Charge(cohorts=cohorts, event=event) for event in events)
            releases.append(
                Release(name=f"phase-{phase}/selection", kind="selection", phase=phase,
                        charges=charges)
            )  # fmt: skip
        old = tuple(str(one) for one in range(phase))
        charges = (Charge(cohorts=(str(phase),), event=exposure()),)
        if old:
            charges = (*charges, Charge(cohorts=old, event=exposure()))
        releases.append(
            Release(name=f"phase-{phase}/training", kind="training", phase=phase, charges=charges)
        )
    return releases


def game_of(
    releases: list[Release], generator: np.random.Generator, *, adjacency: Adjacency
) -> Game:
    """A game with the charges of the ledger; begun again, a training is charged again."""
    limit = RenyiFilter(epsilon=8.0, delta=1e-5, order=float(generator.choice([1.5, 3.0, 8.0])))

    def charge_of_end(made: int) -> Amount:
        if not made:
            return NOTHING
        return limit.charge_of_ended(releases, releases[:made], adjacency)

    return Game(
        releases=releases,
        filter=limit,
        adjacency=adjacency,
        direction=Direction(generator.choice(list(Direction))),
        charge_of_end=charge_of_end,
    )


@pytest.mark.parametrize("mode", quick_and_slow(["hidden", "paper"], MODES))
def test_the_best_end_of_a_thousand_plans_gains_nothing(mode):
    generator = np.random.default_rng(19)
    for number in range(250):
        adjacency = list(Adjacency)[number % 2]
        game = game_of(random_plan(mode, generator), generator, adjacency=adjacency)
        assert game.excess() <= ROUNDING


def test_what_flowed_back_before_is_found_to_be_too_much():
    """Power: charging an ended campaign for what it reserved, as if nobody had chosen the end."""
    generator, found = np.random.default_rng(19), []
    for _ in range(100):
        game = game_of(random_plan("visible", generator), generator, adjacency=Adjacency.ZERO_OUT)

        def reserved_alone(made: int, game: Game = game) -> Amount:
            spent = game.releases[:made]
            return game.filter.charge(spent, game.adjacency) if spent else NOTHING

        found.append(replace(game, charge_of_end=reserved_alone).excess())
    assert max(found) > 0.01
    assert sum(one > ROUNDING for one in found) > 15


@pytest.mark.parametrize(("epsilon", "selection"), [(1.0, 0.5), (8.0, 2.0)])
def test_planned_campaigns_with_answers_gain_nothing(epsilon, selection):
    plan = certified_plan(
        small_spec(
            privacy={"epsilon": epsilon, "selection": "visible", "selection_epsilon": selection}
        )
    ).plan
    releases = list(plan.releases())
    limit = RenyiFilter.fitted(2 * epsilon, 1e-5)
    for direction in Direction:
        game = Game(
            releases=releases,
            filter=limit,
            adjacency=Adjacency.ZERO_OUT,
            direction=direction,
            charge_of_end=lambda made: (
                limit.charge_of_ended(releases, releases[:made], Adjacency.ZERO_OUT)
                if made
                else NOTHING
            ),
        )
        assert game.excess() <= ROUNDING
