"""Which figure keeps a promise, which are for information, and what its delta allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpal.certificate.check_outcome import Check, check_from_faults
from dpal.privacy import Accountant, PrivacyTarget


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One of the figures of a certificate.

    Attributes:
      key: its name among the epsilons.
      method: how it was computed, and of what.
      short: the same in a few words.
    """

    key: str
    method: str
    short: str


# By kind of certificate: what each accountant bounds.
CAMPAIGN = {
    Accountant.PLD: Figure(key="pld", method="privacy loss distributions (PLD)", short="PLD"),
    Accountant.RDP: Figure(key="rdp", method="Rényi divergences (RDP)", short="RDP"),
}
VOTES = {
    Accountant.PLD: Figure(
        key="pld",
        method="privacy loss distributions (PLD) of the noisy counts",
        short="PLD of the noisy counts",
    ),
    Accountant.RDP: Figure(
        key="rdp",
        method="Rényi divergences (RDP) of what is released",
        short="RDP of what is released",
    ),
}


def which_keeps(
    costs: Mapping[str, float], accountant: Accountant, figures: Mapping[Accountant, Figure]
) -> str:
    """Says which figure keeps the promise, and that the other is for information.

    >>> which_keeps({"pld": 9.7411, "rdp": 8.0}, Accountant.RDP, VOTES)
    'kept by Rényi divergences (RDP) of what is released at 8.0000; PLD of the noisy counts, \
9.7411, is a looser bound, for information'
    """
    keeper = figures[accountant]
    said = f"kept by {keeper.method} at {costs[keeper.key]:.4f}"
    for other in figures.values():
        if other is not keeper:
            kind = "a looser" if costs[other.key] > costs[keeper.key] else "another"
            said += f"; {other.short}, {costs[other.key]:.4f}, is {kind} bound, for information"
    return said


def pool_size_of(document: Mapping[str, Any]) -> int | None:
    """Records of the pool, or owners where a group is the unit; None where nothing tells.

    Args:
      document: a certificate. That of an improvement has its start's pool, votes have none.
    """
    start = document.get("start")
    about = document if start is None else start["certificate"] or {}
    return about["pool"]["size"] if "pool" in about else None


def is_paper(delta: float, pool_size: int | None) -> bool:
    """Whether a delta is one of published results alone: at least one over the pool's size."""
    return pool_size is not None and delta >= 1 / pool_size


def paper_mark(delta: float, unit: str, pool_size: int | None) -> str:
    """What must be said of such a delta; empty for any other.

    >>> paper_mark(4e-5, "record", 50_000)
    'PROFILE PAPER: delta 4e-05 is at least 1/50,000, one over the records of the pool: it would \
also allow publishing 2 of them, so do not promise it to anybody'
    >>> paper_mark(1e-6, "record", 50_000)
    ''
    """
    if pool_size is None or not is_paper(delta, pool_size):
        return ""
    return (
        f"PROFILE PAPER: delta {delta:.4g} is at least 1/{pool_size:,}, one over the {unit}s of "
        f"the pool: it would also allow publishing {delta * pool_size:.3g} of them, so do not "
        "promise it to anybody"
    )


def check_promise(
    costs: Mapping[str, float],
    target: PrivacyTarget,
    accountant: Accountant,
    figures: Mapping[Accountant, Figure],
    *,
    second: Mapping[str, float],
    pool_size: int | None,
) -> Check:
    """Whether the events cost no more than was promised.

    Args:
      costs: epsilons of the events, recomputed.
      target: what was promised.
      accountant: that keeps the promise.
      figures: what each accountant bounds.
      second: how far a second opinion may lie above the promise, by its name among the costs;
        only those on the figure that keeps it.
      pool_size: records or owners in the pool; None where that is not certified.
    """
    said = which_keeps(costs, accountant, figures)
    mark = paper_mark(target.delta, target.unit, pool_size)
    return check_from_faults(
        "promise",
        _faults(costs, target, figures[accountant], second),
        f"epsilon {target.epsilon:g} at delta {target.delta:.4g}, adjacency {target.adjacency}, "
        f"unit {target.unit}: {said}" + (f"; {mark}" if mark else ""),
    )


def _faults(
    costs: Mapping[str, float], target: PrivacyTarget, keeper: Figure, second: Mapping[str, float]
) -> Iterator[str]:
    if not costs[keeper.key] <= target.epsilon:
        yield (
            f"the events cost epsilon {costs[keeper.key]:.4f} by {keeper.method}, more than the "
            f"{target.epsilon:g} promised"
        )
    for name, apart in second.items():
        if not costs[name] <= target.epsilon + apart:
            yield (
                f"the events cost epsilon {costs[name]:.4f} by a second opinion ({name}), more "
                f"than the {target.epsilon:g} promised and the {apart:.4f} by which it may "
                "overstate"
            )
