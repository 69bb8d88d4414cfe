"""Which labels are absent together, and what a gate is worth: from public labeled records.

A label that is nearly always absent where a gate is need not be asked there
(`dpal.voting.gate_label_first`). How often it is, the matrix says; but where a label is rare it is
absent nearly everywhere, so a large entry alone says little. What a gate costs is the share of
its dependents' positives that it makes negative, and that stands beside what it saves.

Source: Dziedzic et al. (2022), App. B, Table 5; what a gate loses is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import ParameterError
from dpal.labels import UNKNOWN
from dpal.voting.gate_label_first import Dependencies

Floats = NDArray[np.float64]

FOLLOWS = 0.95  # of the records without a gate that lack a dependent


@dataclass(frozen=True, kw_only=True)
class GateOption:
    """A gate with its dependents, and what they come to on public records.

    Attributes:
      dependencies: which label is asked first, and which only where it is present.
      times: as many queries for the same answers, on average.
      lost: share of the dependents' positives that are at records without the gate, and so are
        released as absent; 0 where there are none.
    """

    dependencies: Dependencies
    times: float
    lost: float


def absent_together(labels: NDArray[np.integer]) -> Floats:
    """Of the records that lack one label, the share that lack another one.

    Args:
      labels: (records, k) zeros and ones of public records, UNKNOWN where not known; a pair counts
        records on which both are known.

    Returns:
      (k, k): row i, column j is the share of records without i that have no j either; nan where no
      record tells.

    >>> absent_together(np.array([[0, 0], [0, 0], [0, 1], [1, 0]])).round(2).tolist()
    [[1.0, 0.67], [0.67, 1.0]]
    """
    _require_labels(labels)
    lacks, known = (labels == 0).astype(np.float64), (labels != UNKNOWN).astype(np.float64)
    both, first = lacks.T @ lacks, lacks.T @ known
    shares = np.full(both.shape, np.nan)
    np.divide(both, first, out=shares, where=first > 0)
    return shares


def gate_options(labels: NDArray[np.integer], *, follows: float = FOLLOWS) -> list[GateOption]:
    """Gates that save questions, the one that saves most first.

    Args:
      labels: as of `absent_together`.
      follows: least share of records without the gate that lack a label for it to be a dependent.
    """
    check.inside(0, 1, follows=follows)
    shares = absent_together(labels)
    count = labels.shape[1]
    options = []
    for gate in range(count):
        dependents = tuple(
            label for label in range(count) if label != gate and shares[gate, label] >= follows
        )
        known = labels[labels[:, gate] != UNKNOWN]
        if not dependents or not len(known):
            continue
        there = known[:, gate] == 1
        asked = count - len(dependents) * float(1 - there.mean())
        positives = known[:, dependents] == 1
        total = int(positives.sum())
        options.append(
            GateOption(
                dependencies=Dependencies(gate=gate, dependents=dependents),
                times=count / asked,
                lost=float(positives[~there].sum()) / total if total else 0.0,
            )
        )
    return sorted(options, key=lambda option: (-option.times, option.lost))


def answered_chances(
    rule: VotingRule, dependencies: Dependencies, present: Floats, answers: int
) -> Floats:
    """Chance that each query of a gated vote is answered before what is paid for ends.

    Args:
      rule: binary voting.
      dependencies: gate and dependents.
      present: (queries,) chance that the gate is released as present. Of private votes it is
        private, and so is what follows from it.
      answers: of single labels that are paid for.

    Returns:
      (queries,), never rising. Their sum is how many queries to expect.
    """
    check.at_least(1, answers=answers)
    extra = len(dependencies.dependents)
    first = rule.labels - extra
    chances = np.zeros(len(present))
    # How many of the queries so far had the gate: the law of a sum of coins.
    law = np.zeros(len(present) + 1)
    law[0] = 1.0
    for query, chance in enumerate(present):
        room = answers - rule.labels - query * first
        if room < 0:
            break
        chances[query] = law[: room // extra + 1].sum()
        law[1:] = law[1:] * (1 - chance) + law[:-1] * chance
        law[0] *= 1 - chance
    return np.minimum(chances, 1.0)


def _require_labels(labels: NDArray[np.integer]) -> None:
    sound = labels.ndim == 2 and len(labels) and np.isin(labels, (0, 1, UNKNOWN)).all()
    if not sound or labels.shape[1] < 2:
        raise ParameterError(
            "dependencies are between two labels or more of public records, zeros and ones"
        )
