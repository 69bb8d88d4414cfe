"""Google's dp-accounting as the second opinion on every plan.

It sees dp-accounting events only, never our own curves.
"""

from __future__ import annotations

from collections.abc import Iterable

from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.privacy_accountant import NeighboringRelation

from dpal.accounting.events import Event, to_dp_event
from dpal.errors import ParameterError
from dpal.privacy import Adjacency

# Pessimistic whatever its width; at 1e-3 epsilon is within 0.001 of the limit.
_DISCRETIZATION = 1e-3

_RELATIONS = {
    Adjacency.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
    Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
}


def epsilon_by_pld(events: Iterable[Event], *, delta: float, adjacency: Adjacency) -> float:
    """Upper bound on epsilon from the composed privacy loss distribution.

    Args:
      events: what happened to one cohort, in any order.
      delta: failure probability.
      adjacency: which change of the data the bound speaks of.

    Returns:
      epsilon, both directions taken, rounded up by the discretisation.

    Raises:
      ParameterError: an event has no privacy loss distribution under this adjacency.

    Source:
      Doroshenko et al. (2022), "Connect the dots"; dp-accounting's implementation.
    """
    accountant = pld_privacy_accountant.PLDAccountant(
        _RELATIONS[adjacency], value_discretization_interval=_DISCRETIZATION
    )
    composed = dp_event.ComposedDpEvent([to_dp_event(event) for event in events])
    if not accountant.supports(composed):
        raise ParameterError(f"dp-accounting cannot account for these events under {adjacency}")
    return float(accountant.compose(composed).get_epsilon(delta))
