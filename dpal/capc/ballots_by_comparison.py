"""What sites vote on, as comparisons: from the outcomes of private heads to a ballot.

A site's heads give one number for each label. Every mechanism is one or two rounds of the same
step: linear combinations with public whole numbers, of which it is found whether they are negative.
Combinations of shares are shares of the combination, so that nobody needs to see a number for it.

- binary: is the label's number at least 0? Ballots have a yes or no for each label.
- top_m: the same, then for label j: (K + 1) bit_j - (bit_1 + ... + bit_j) >= K + 1 - m, for K
  labels, which holds for the first m positives alone.
- tau_l2, tau_l1: a positive counts c(m) parts of a vote in a ballot of m positives. For every M
  with c(M) > c(M + 1): the same as of top_m, is the label positive and are there no more than M? A
  ballot is the sum of (c(M) - c(M + 1)) times these outcomes.
- gnmax: is the number of class a at least that of class b, for all pairs a < b? Then for class a:
  has it won all K - 1 of its pairs? Of equal numbers the lower class wins, so that exactly one has.
- powerset: for each set: are all of its labels there, and none other? Truncated to m positives,
  a set of m asks for none other before its last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.votes.mechanisms import CLIPPED, SCALED, Mechanism
from dpal.accounting.votes.scaled_ballots import PARTS, scaled_entries
from dpal.errors import ParameterError

MECHANISMS: Final = (
    Mechanism.BINARY,
    Mechanism.TOP_M,
    Mechanism.TAU_L2,
    Mechanism.TAU_L1,
    Mechanism.GNMAX,
    Mechanism.POWERSET,
)
MOST_COUNTS: Final = 1_024
LARGEST_BIAS: Final = 1 << 30  # of one label's number; smaller where two are subtracted

Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SecondRound:
    """Comparisons of what the first ones found: bits @ weights.T + constants >= 0.

    Attributes:
      weights: (compared, outcomes).
      constants: (compared,).
      counted: (counts, compared) what these outcomes count for in a ballot; None where they are it.
      kept: (counts, outcomes) what the first ones count for beside them; None likewise.
    """

    weights: Whole
    constants: Whole
    counted: Whole | None = None
    kept: Whole | None = None


@dataclass(frozen=True, eq=False)
class BallotRule:
    """How a ballot follows from the numbers of a site's heads.

    Attributes:
      first: (outcomes, labels) combinations that are compared with 0 first.
      second: the second round; None where outcomes are the ballot.
      sets: (counts, labels) of 0 and 1, what each count stands for.
      changed: counts that one ballot can change, at most.
      entries: of scaled ballots, parts that a positive counts in ballots of 1, 2, ... positives.
    """

    first: Whole
    second: SecondRound | None
    sets: NDArray[np.int8]
    changed: int
    entries: tuple[int, ...] = ()

    @property
    def parts(self) -> int:
        """What a whole vote counts."""
        return PARTS if self.entries else 1

    @property
    def outcomes(self) -> int:
        """Comparisons of the first round."""
        return len(self.first)

    @property
    def compared_next(self) -> int:
        """Comparisons of the second round."""
        return 0 if self.second is None else len(self.second.constants)

    @property
    def counts(self) -> int:
        """Length of a ballot."""
        return len(self.sets)

    @property
    def largest_bias(self) -> int:
        """Of a head, so that no combination overflows 32 bits."""
        return LARGEST_BIAS // int(np.abs(self.first).sum(axis=1).max())

    def ballots(self, numbers: Whole) -> NDArray[Any]:
        """Ballots (..., counts) of numbers (..., labels), in plain text: yes or no, or parts."""
        bits = numbers @ self.first.T >= 0
        if self.second is None:
            return np.asarray(bits)
        found = bits @ self.second.weights.T + self.second.constants >= 0
        if self.second.counted is None or self.second.kept is None:
            return np.asarray(found)
        return np.asarray(found @ self.second.counted.T + bits @ self.second.kept.T)


@lru_cache(maxsize=16)
def ballot_rule(mechanism: Mechanism, labels: int, limit: float | None = None) -> BallotRule:
    """The rule of a mechanism.

    Args:
      mechanism: one of `MECHANISMS`.
      labels: of a query, or classes.
      limit: positives of a ballot, at most: of `top_m`, and where it is wanted of `powerset`; of
        scaled ballots their norm.

    Raises:
      ParameterError: sites cannot vote so, or a limit is missing, too much, or beyond the labels.
    """
    if mechanism not in MECHANISMS:
        raise ParameterError(
            f"sites that do not trust each other cannot vote by {mechanism}; use "
            f"{', '.join(MECHANISMS)}"
        )
    if limit is None and mechanism in CLIPPED:
        raise ParameterError(f"{mechanism} voting needs a limit, such as 2")
    if limit is not None:
        if mechanism in (Mechanism.BINARY, Mechanism.GNMAX):
            raise ParameterError(f"{mechanism} voting has no limit; leave limit out")
        check.within(1, labels, limit=limit)
        if mechanism not in SCALED and limit != int(limit):
            raise ParameterError(
                f"limit {limit:g} of {mechanism} voting must be a whole number of labels"
            )
    most = None if limit is None else int(limit)
    match mechanism:
        case Mechanism.TAU_L2 | Mechanism.TAU_L1:
            return _scaled(labels, scaled_entries(mechanism, labels, limit or 0.0))
        case Mechanism.GNMAX:
            return _most_named(labels)
        case Mechanism.POWERSET:
            return _sets(labels, labels if most is None else most)
        case _:
            return _yes_or_no(labels, most)


def require_outcomes(mechanism: Mechanism) -> None:
    """Requires a mechanism whose first outcomes are a yes or no for each label.

    Raises:
      ParameterError: it compares numbers of labels with one another.
    """
    if mechanism is Mechanism.GNMAX:
        others = ", ".join(one for one in MECHANISMS if one != mechanism)
        raise ParameterError(
            f"{mechanism} voting compares what a model says to classes, and mode shares knows yes "
            f"or no alone; use {others}, or another mode"
        )


def _yes_or_no(labels: int, limit: int | None) -> BallotRule:
    each = np.eye(labels, dtype=np.int64)
    second, changed = None, labels
    if limit is not None and limit < labels:
        before = np.tril(np.ones((labels, labels), dtype=np.int64))
        constants = np.full(labels, limit - labels - 1, dtype=np.int64)
        second, changed = SecondRound((labels + 1) * each - before, constants), 2 * limit
    return BallotRule(each, second, each.astype(np.int8), min(changed, labels))


def _scaled(labels: int, entries: tuple[int, ...]) -> BallotRule:
    if not entries[-1]:
        raise ParameterError(
            f"with such a limit a ballot of {labels} positives would count nothing, in whole parts "
            f"of {PARTS} of a vote; use a larger one"
        )
    if entries[-1] == PARTS:  # no ballot is longer than the limit
        return _yes_or_no(labels, None)
    falls = [m for m in range(1, labels) if entries[m - 1] > entries[m]]
    _require_few(labels * len(falls), "labels", labels)
    each = np.eye(labels, dtype=np.int64)
    weights = np.tile((labels + 1) * each - 1, (len(falls), 1))
    constants = np.repeat([m - labels - 1 for m in falls], labels)
    steps = [entries[m - 1] - entries[m] for m in falls]
    second = SecondRound(weights, constants, np.kron(steps, each), entries[-1] * each)
    return BallotRule(each, second, each.astype(np.int8), labels, entries)


def _most_named(classes: int) -> BallotRule:
    check.at_least(2, labels=classes)
    _require_few(classes * (classes - 1) // 2, "classes", classes)
    pairs = list(combinations(range(classes), 2))
    first = np.zeros((len(pairs), classes), dtype=np.int64)
    wins = np.zeros((classes, len(pairs)), dtype=np.int64)
    constants = np.full(classes, 1 - classes, dtype=np.int64)
    for place, (lower, higher) in enumerate(pairs):
        first[place, lower], first[place, higher] = 1, -1
        wins[lower, place], wins[higher, place] = 1, -1
        constants[higher] += 1  # it wins where the lower one does not
    sets = np.eye(classes, dtype=np.int8)
    return BallotRule(first, SecondRound(wins, constants), sets, changed=2)


def _sets(labels: int, most: int) -> BallotRule:
    _require_few(sum(comb(labels, size) for size in range(most + 1)), "labels", labels)
    chosen = [found for size in range(most + 1) for found in combinations(range(labels), size)]
    sets = np.zeros((len(chosen), labels), dtype=np.int64)
    for place, found in enumerate(chosen):
        sets[place, list(found)] = 1
    weights = 2 * sets - 1
    if most < labels:
        for place, found in enumerate(chosen):
            if len(found) == most:
                weights[place, found[-1] + 1 :] = 0
    second = SecondRound(weights, -sets.sum(axis=1))
    return BallotRule(np.eye(labels, dtype=np.int64), second, sets.astype(np.int8), changed=2)


def _require_few(counts: int, what: str, given: int) -> None:
    if counts > MOST_COUNTS:
        raise ParameterError(
            f"{given} {what} make {counts:,} comparisons for each site and query, and at most "
            f"{MOST_COUNTS:,} are made; use fewer, a limit, or binary voting"
        )
