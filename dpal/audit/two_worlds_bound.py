"""What telling two worlds apart, over and over, proves about one release."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpal.audit import lower_bound
from dpal.audit.attack import CONFIDENCE
from dpal.audit.findings import FALSE_ALARM, AuditFinding, Layer

Values = NDArray[np.float64]


def two_worlds(
    what: str,
    present: Values,
    absent: Values,
    claim: float,
    *,
    delta: float,
    gaussian: bool = False,
    error: float = FALSE_ALARM,
) -> AuditFinding:
    """A lower bound on epsilon from telling two worlds apart, release by release.

    Half of the releases decides where the values are cut, the other half is judged. Cuts are
    compared as strictly as a claim is refuted: by looser bounds the best of 65 is often one of
    the outermost, which a few values favour by chance.

    Args:
      what: is told apart, and by what.
      present: (n,) values that speak for the first world, of releases there.
      absent: the same of as many releases in the second.
      claim: epsilon of one release.
      delta: of the claim.
      gaussian: bound the epsilon of a Gaussian mechanism instead of any.
      error: chance of refuting a true claim.
    """
    half = present.size // 2
    cuts = np.quantile(np.concatenate([present[:half], absent[:half]]), np.linspace(0, 1, 65))
    bound = lower_bound.epsilon_of_rates_if_gaussian if gaussian else lower_bound.epsilon_of_rates

    def told(part: slice, cut: float, chance: float) -> float:
        rates = lower_bound.AttackRates(
            alarms=int((absent[part] > cut).sum()),
            absent=absent[part].size,
            misses=int((present[part] <= cut).sum()),
            present=present[part].size,
        )
        return bound(rates, delta=delta, error=chance)

    looked, judged = slice(0, half), slice(half, None)
    cut = float(max(cuts, key=lambda candidate: told(looked, float(candidate), error)))
    value = told(judged, cut, 1 - CONFIDENCE)
    right = int((present[judged] > cut).sum() + (absent[judged] <= cut).sum())
    return AuditFinding(
        layer=Layer.ATTACK,
        what=f"{what}, as Gaussian" if gaussian else what,
        expected=f"at most {claim:.3f}",
        measured=f"{value:.3f} ({right:,} of {2 * (present.size - half):,})",
        passed=told(judged, cut, error) <= claim,
        likely="what is released keeps less privacy than is claimed: noise or clipping",
        claimed=claim,
        value=value,
        is_epsilon=True,
        false_alarm=error,
    )
