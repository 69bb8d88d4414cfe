"""dp-accounting's loops over numbers at once, for tests: the same sums, sooner.

Each plan and each certificate asks it for a second opinion, which takes half a second, nearly all
of it in loops of Python. Tests of accounting ask it as it is (`tests/conftest.py`), and
`tests/accounting/test_second_opinion.py` compares both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray


@contextmanager
def quicker_opinion() -> Iterator[None]:
    """Subsampled Gaussians and truncated tails are computed with arrays."""
    from dp_accounting.pld import common, pld_pmf, privacy_loss_mechanism

    gaussian: Any = privacy_loss_mechanism.GaussianPrivacyLoss
    kinds = privacy_loss_mechanism.AdjacencyType
    one_by_one = gaussian.get_delta_for_epsilon

    def deltas(self: Any, epsilon: Any) -> Any:
        if np.ndim(epsilon) == 0 or self.sampling_prob == 1 or self.adjacency_type is kinds.REPLACE:
            return one_by_one(self, epsilon)
        epsilons = np.asarray(epsilon, dtype=float)
        end = math.log1p(-self.sampling_prob)
        removing = self.adjacency_type is kinds.REMOVE
        inside = epsilons > end if removing else epsilons < -end
        found = -np.expm1(epsilons) if removing else np.zeros_like(epsilons)
        here = epsilons[inside]
        at = _cutoffs(self, here, removing=removing)
        found[inside] = self.mu_upper_cdf(at) - np.exp(here + self.mu_lower_log_cdf(at))
        return np.clip(found, 0, 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian, "get_delta_for_epsilon", deltas)
        patch.setattr(pld_pmf, "_truncate_tails", _truncated)
        patch.setattr(common, "special", SimpleNamespace(logsumexp=_log_of_sum))
        yield


def _cutoffs(law: Any, epsilons: NDArray[np.float64], *, removing: bool) -> NDArray[np.float64]:
    """Where the loss of a step with subsampling is each of them; see `inverse_privacy_loss`."""
    rate, sign = law.sampling_prob, 1 if removing else -1
    signed = sign * epsilons
    with np.errstate(invalid="ignore", divide="ignore"):
        moved = signed + math.log(1 / rate)
        losses = moved + np.log1p(-np.exp(math.log(1 / rate - 1) - moved))
    losses[signed == 0] = 0.0
    losses[np.isclose(signed, math.log(1 - rate), rtol=1e-9, atol=0)] = -math.inf
    if removing:
        whole: NDArray[np.float64] = law._inverse_privacy_loss_without_subsampling_remove(losses)
    else:
        whole = law._inverse_privacy_loss_without_subsampling_add(-losses)
    return whole


def _truncated(probs: Any, most: float, pessimistic: bool) -> tuple[int, Any, float]:
    """The longest ends of an array that have half of this mass each, cut off."""
    if most == 0:
        return 0, probs, 0
    left = _length(probs, most / 2)
    right = max(len(probs) - _length(np.flip(probs), most / 2), left + 1)
    left_mass, right_mass = np.sum(probs[:left]), np.sum(probs[right:])
    kept = probs[left:right]
    kept[0 if pessimistic else -1] += left_mass if pessimistic else right_mass
    return left, kept, right_mass if pessimistic else 0


def _length(array: Any, most: float) -> int:
    above = np.cumsum(array) > most
    return int(above.argmax()) if above.any() else len(array)


def _log_of_sum(exponents: NDArray[np.float64], *, b: Any) -> float:
    """Of weighted exponentials, for bounds of sums: exponents here are 20 at most."""
    return float(np.log(np.dot(b, np.exp(exponents))))
