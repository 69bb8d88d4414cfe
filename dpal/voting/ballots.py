"""What teachers say, bit-packed; and the counts that a rule takes of it.

Ballots are private: each is computed from one teacher's records. Only counts with noise
leave (`dpal.voting.draw_noisy_outcomes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.votes.mechanisms import FEWEST_TEACHERS, Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.errors import DataError

Votes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Codes = NDArray[np.uint64]

_CHUNK = 1 << 24  # votes that are unpacked at a time


@dataclass(frozen=True, eq=False)
class Ballots:
    """A set of labels from each teacher, for each query.

    Attributes:
      packed: (queries, teachers, bytes) votes, eight to a byte, the first label in the
        highest bit.
      labels: how many there are.
    """

    packed: Votes
    labels: int

    @classmethod
    def of(cls, votes: NDArray[np.generic]) -> Ballots:
        """Packs votes.

        Args:
          votes: (queries, teachers, labels) zeros and ones, of any type.

        Raises:
          DataError: they are not, or there are too few teachers. Nothing was released.
        """
        _require_ballots(votes)
        return cls(np.packbits(votes.astype(np.uint8), axis=2), votes.shape[2])

    @property
    def queries(self) -> int:
        """How often the teachers voted."""
        return len(self.packed)

    @property
    def teachers(self) -> int:
        """How many there are."""
        return int(self.packed.shape[1])

    def rows(self, part: slice) -> Ballots:
        """The ballots of some queries."""
        return Ballots(self.packed[part], self.labels)

    def without(self, teachers: Sequence[int]) -> Ballots:
        """The same of all teachers but these."""
        return Ballots(np.delete(self.packed, list(teachers), axis=1), self.labels)

    def unpacked(self) -> Votes:
        """(queries, teachers, labels) zeros and ones."""
        return np.unpackbits(self.packed, axis=2, count=self.labels)

    def parts(self) -> Iterator[Ballots]:
        """Queries, some at a time, so that unpacked ones need little memory."""
        size = max(1, _CHUNK // (self.teachers * self.labels))
        for start in range(0, self.queries, size):
            yield self.rows(slice(start, start + size))

    def counts(self, rule: VotingRule) -> Floats:
        """Votes for yes of each label after clipping, shape (queries, labels)."""
        if not self.queries:
            return np.zeros((0, self.labels))
        return np.concatenate([_counts(part.unpacked(), rule) for part in self.parts()])

    def sets(self, rule: VotingRule) -> Cast:
        """How many teachers cast which set of labels; sets beyond the limit are truncated."""
        parts = [_codes(part.unpacked(), rule) for part in self.parts()]
        codes = np.concatenate(parts) if parts else np.zeros((0, self.teachers), np.uint64)
        return cast_of(codes)


@dataclass(frozen=True, eq=False)
class Choices:
    """One class from each teacher, for each query.

    Attributes:
      chosen: (queries, teachers) class numbers.
      classes: how many there are.
    """

    chosen: NDArray[np.int64]
    classes: int

    def __post_init__(self) -> None:
        if self.chosen.ndim != 2 or self.chosen.shape[1] < FEWEST_TEACHERS:
            raise _too_few(self.chosen.shape[1] if self.chosen.ndim == 2 else 0)
        if self.chosen.size and not 0 <= self.chosen.min() <= self.chosen.max() < self.classes:
            named = self.chosen.min() if self.chosen.min() < 0 else self.chosen.max()
            raise DataError.before_release(
                f"teachers named class {{named}}, and there are {self.classes} classes, numbered "
                "from 0",
                named=named,
            )

    @property
    def queries(self) -> int:
        """How often the teachers voted."""
        return len(self.chosen)

    @property
    def teachers(self) -> int:
        """How many there are."""
        return int(self.chosen.shape[1])

    @property
    def labels(self) -> int:
        """As many as there are classes."""
        return self.classes

    def rows(self, part: slice) -> Choices:
        """The choices of some queries."""
        return Choices(self.chosen[part], self.classes)

    def without(self, teachers: Sequence[int]) -> Choices:
        """The same of all teachers but these."""
        return Choices(np.delete(self.chosen, list(teachers), axis=1), self.classes)

    def counts(self, rule: VotingRule) -> Floats:
        """Votes for each class, shape (queries, classes)."""
        bins = self.chosen + self.classes * np.arange(self.queries)[:, None]
        flat = np.bincount(bins.ravel(), minlength=self.queries * self.classes)
        return flat.reshape(self.queries, self.classes).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Cast:
    """Sets of labels that teachers cast, in the first columns of each row.

    Attributes:
      codes: (queries, teachers) sets as numbers, the first label in the highest bit.
      votes: (queries, teachers) how many teachers cast each; 0 where there are no more.
    """

    codes: Codes
    votes: NDArray[np.int64]


def cast_of(codes: Codes) -> Cast:
    """Counts equal numbers within each row."""
    queries, teachers = codes.shape
    ordered = np.sort(codes, axis=1)
    first = np.ones(ordered.shape, dtype=bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run = np.cumsum(first, axis=1) - 1 + teachers * np.arange(queries)[:, None]
    votes = np.bincount(run.ravel(), minlength=queries * teachers).reshape(queries, teachers)
    distinct = np.zeros_like(ordered)
    distinct.ravel()[run[first]] = ordered[first]
    return Cast(distinct, votes)


def votes_for(rule: VotingRule, ballots: Ballots | Choices) -> Floats:
    """The counts that `dpal.accounting.votes.cost_analysis.analyse` takes of a rule's ballots."""
    if rule.mechanism is Mechanism.POWERSET and isinstance(ballots, Ballots):
        return ballots.sets(rule).votes.astype(np.float64)
    return ballots.counts(rule)


def require_fitting(rule: VotingRule, ballots: Ballots | Choices) -> None:
    """Requires ballots of as many teachers and labels as a rule counts.

    Raises:
      DataError: they are others. Nothing was released.
    """
    single = rule.mechanism is Mechanism.GNMAX
    if single is not isinstance(ballots, Choices):
        wanted = "one class" if single else "a set of labels"
        raise DataError.before_release(f"{rule.mechanism} voting wants {wanted} from each teacher")
    if (ballots.teachers, ballots.labels) != (rule.teachers, rule.labels):
        raise DataError.before_release(
            f"ballots of {ballots.teachers} teachers on {ballots.labels} labels cannot be counted "
            f"as those of {rule.teachers} teachers on {rule.labels}"
        )


def truncated(votes: Votes, most: int) -> Votes:
    """Ballots with their first positives alone, in the public order of the labels."""
    return np.asarray(votes * (np.cumsum(votes, axis=2, dtype=np.int32) <= most))


def surest(above: Floats, most: int | None) -> NDArray[np.bool_]:
    """What a teacher says yes to: what is above its cut, the labels furthest above it first.

    Args:
      above: (queries, labels) probabilities less the cut.
      most: labels at most, as the rule will truncate a ballot to; None for any number.

    >>> surest(np.array([[0.1, 0.3, -0.2]]), 1)
    array([[False,  True, False]])
    """
    yes = above > 0
    if most is None or most >= above.shape[1]:
        return yes
    places = np.argsort(np.argsort(-above, axis=1, kind="stable"), axis=1)
    return np.asarray(yes & (places < most))


def _counts(votes: Votes, rule: VotingRule) -> Floats:
    limit = rule.limit or 0.0
    match rule.mechanism:
        case Mechanism.TOP_M:
            return np.asarray(truncated(votes, int(limit)).sum(axis=1, dtype=np.float64))
        case Mechanism.TAU_L2 | Mechanism.TAU_L1:
            size = votes.sum(axis=2, dtype=np.float64)
            norm = np.sqrt(size) if rule.mechanism is Mechanism.TAU_L2 else size
            scale = np.minimum(1.0, limit / np.maximum(norm, 1.0))
            return np.asarray(np.einsum("qt,qtk->qk", scale, votes.astype(np.float64)))
        case _:
            return np.asarray(votes.sum(axis=1, dtype=np.float64))


def _codes(votes: Votes, rule: VotingRule) -> Codes:
    if rule.limit is not None:
        votes = truncated(votes, int(rule.limit))
    weights = np.uint64(1) << np.arange(votes.shape[2] - 1, -1, -1, dtype=np.uint64)
    codes = np.zeros(votes.shape[:2], dtype=np.uint64)
    for label, weight in enumerate(weights):
        codes += votes[:, :, label] * weight
    return codes


def _require_ballots(votes: NDArray[np.generic]) -> None:
    if votes.ndim != 3 or not votes.shape[2]:
        raise DataError.before_release(
            f"ballots of shape {votes.shape} are no (queries, teachers, labels)"
        )
    if votes.shape[1] < FEWEST_TEACHERS:
        raise _too_few(votes.shape[1])
    if votes.dtype.kind == "f" and np.isnan(votes).any():
        query, teacher, label = np.argwhere(np.isnan(votes))[0]
        raise DataError.before_release(
            "the ballot of teacher {teacher} on query {query} has no number for label {label}; "
            "every teacher votes 0 or 1 on every label",
            teacher=teacher,
            query=query,
            label=label,
        )
    zero_or_one = (votes == 0) | (votes == 1)
    if votes.dtype.kind not in "biuf" or not zero_or_one.all():
        position = tuple(np.argwhere(~zero_or_one)[0]) if not zero_or_one.all() else (0, 0, 0)
        raise DataError.before_release(
            "the ballot of teacher {teacher} on query {query} has {number} for label {label}; "
            "votes are 0 or 1, turn scores into votes by a threshold first",
            teacher=position[1],
            query=position[0],
            number=votes[position],
            label=position[2],
        )


def _too_few(teachers: int) -> DataError:
    return DataError.before_release(
        f"{teachers} teachers cannot hide a ballot among others; give at least {FEWEST_TEACHERS}"
    )
