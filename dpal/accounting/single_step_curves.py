"""Curves of one step of an event: what the delta must be at every epsilon, and at every order.

A step's hockey-stick curve is given for both adjacencies and both directions. It is the
divergence of a dominating pair (P, Q), so curves of releases may be composed. Steps of one
mechanism alone stand in the file of its event (`dpal.accounting.events`); Gaussian noise, which
several share, stands here.

Source: Balle & Wang (2018) for Gaussian noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from dpal.accounting.rdp import ORDERS, Curve
from dpal.privacy import Adjacency

Losses = NDArray[np.float64]
PrivacyLossDistribution = Any  # of dp-accounting, which takes half a second to import:
DpEvent = Any  # the methods that need it do so themselves

REACH = 9.5  # standard deviations of a Gaussian that are followed; beyond lies mass 1e-21


class Direction(StrEnum):
    """Which of the two neighbouring data sets the adversary is in.

    REMOVE: P has the record, Q its blank (or its replacement).
    ADD: the other way round.
    """

    REMOVE = "remove"
    ADD = "add"


class MechanismStep(ABC):
    """One step of an event, frozen and hashable: the noise, apart from how often it is drawn.

    Attributes:
      chooses_grid: whether grids are fitted to it; a step whose largest loss must not move has
        a say only where there is nothing else.
    """

    chooses_grid: ClassVar[bool] = True

    @abstractmethod
    def delta(self, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
        """Hockey-stick divergence at each epsilon, shape (n,).

        Args:
          losses: (n,) epsilons, of any sign.
          adjacency: which change of the data is meant.
          direction: which side has the record.
        """

    @abstractmethod
    def reach(self, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
        """Least and greatest privacy loss worth following."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """Rough standard deviation of the loss; chooses grids, proves nothing."""

    @property
    def failure(self) -> float:
        """Chance of an unbounded loss that the curve does not know of."""
        return 0.0

    @abstractmethod
    def renyi(self, adjacency: Adjacency) -> Curve:
        """Bounds the Rényi divergence at every order of `ORDERS`, shape (n_orders,)."""

    @abstractmethod
    def second_opinion(self, adjacency: Adjacency, width: float) -> PrivacyLossDistribution:
        """The same by dp-accounting's own constructors, on a grid of this width."""

    @abstractmethod
    def dp_event(self) -> DpEvent:
        """The same as an event of dp-accounting's accountants."""


@dataclass(frozen=True)
class Gaussian(MechanismStep):
    """Gaussian noise on something that changes under both adjacencies alike.

    Attributes:
      noise_multiplier: standard deviation of the noise over the sensitivity.
      failure: chance that it is not what is released; counts as delta.
    """

    noise_multiplier: float
    failure: float = 0.0

    def delta(self, losses: Losses, adjacency: Adjacency, direction: Direction) -> Losses:
        """Of N(1) from N(0), both of variance noise_multiplier^2."""
        sigma = self.noise_multiplier
        cut = sigma**2 * losses + 0.5
        above = scipy.special.ndtr((1 - cut) / sigma)
        below = np.exp(losses + scipy.special.log_ndtr(-cut / sigma))
        return np.asarray(np.clip(above - below, 0, 1))

    def reach(self, adjacency: Adjacency, direction: Direction) -> tuple[float, float]:
        """Of a Gaussian loss."""
        middle = 0.5 / self.noise_multiplier**2
        return middle - REACH / self.noise_multiplier, middle + REACH / self.noise_multiplier

    @property
    def spread(self) -> float:
        """Exact."""
        return 1 / self.noise_multiplier

    def renyi(self, adjacency: Adjacency) -> Curve:
        """Exact."""
        return ORDERS / (2 * self.noise_multiplier**2)

    def second_opinion(self, adjacency: Adjacency, width: float) -> PrivacyLossDistribution:
        """Never "replace one" here: the sensitivity is that of the promised adjacency."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        noise = pld.from_gaussian_mechanism(
            self.noise_multiplier, value_discretization_interval=width
        )
        if not self.failure:
            return noise
        failing = pld.common.DifferentialPrivacyParameters(0.0, self.failure)
        return noise.compose(pld.from_privacy_parameters(failing, width))

    def dp_event(self) -> DpEvent:
        """Their accountants refuse one that may fail: they have no event for a mere chance."""
        from dp_accounting import dp_event

        noise = dp_event.GaussianDpEvent(self.noise_multiplier)
        if not self.failure:
            return noise
        failing = dp_event.PoissonSampledDpEvent(self.failure, dp_event.NonPrivateDpEvent())
        return dp_event.ComposedDpEvent([noise, failing])
