"""Which phase's model a campaign releases, and when it stops buying: rules over public figures.

Both read figures on the validation set and nothing else, so that runs decide by them, an END entry
says why, and whoever checks a certificate decides the same again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from dpal import check
from dpal.canonical import canonical_json
from dpal.errors import ParameterError

# What an END entry says beside what was released and what flows back; only where it decides.
STATED_KEYS = frozenset({"validation", "release", "stop"})
FIGURES = ("accuracy", "micro_f1")  # headlines of the tasks there are


class ReleaseRule(StrEnum):
    """Which phase's model is the campaign's.

    BEST: the one with the highest figure on the validation set; of equal ones the latest.
    LAST: that of the last phase, whatever it reached.
    """

    BEST = "best"
    LAST = "last"

    def phase(self, values: Sequence[float]) -> int:
        """Number of the phase that is released.

        Args:
          values: the headline figure of each phase, at least one; higher is better.
        """
        last = len(values) - 1
        if self is ReleaseRule.LAST:
            return last
        return max(range(len(values)), key=lambda phase: (values[phase], phase))


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """When a campaign stops buying labels, although its plan would go on.

    Attributes:
      patience: phases that may pass without a gain.
      least_gain: by how much the best of them must lie above the best before, as a share of 1.
    """

    patience: int
    least_gain: float

    def __post_init__(self) -> None:
        if type(self.patience) is not int:
            raise ParameterError(f"stop.patience is a number of phases, got {self.patience!r}")
        check.at_least(1, **{"stop.patience": self.patience})
        check.within(0, 1, **{"stop.least_gain": self.least_gain})

    def stops_after(self, values: Sequence[float]) -> bool:
        """Whether the last `patience` phases brought less than `least_gain` together.

        Args:
          values: the headline figure of each finished phase; higher is better.
        """
        before, latest = values[: -self.patience], values[-self.patience :]
        return bool(before) and max(latest) < max(before) + self.least_gain


@dataclass(frozen=True, kw_only=True)
class EndStatement:
    """What the end of a campaign says of the model that it releases, and of why it ended.

    Attributes:
      figure: what was measured on the validation set, such as accuracy.
      values: that figure for each finished phase.
      release: which of them is released.
      stop: the rule by which the campaign ended early; None where it did not.
    """

    figure: str
    values: tuple[float, ...]
    release: ReleaseRule
    stop: StopRule | None = None

    @property
    def released(self) -> int:
        """Number of the phase whose model is the campaign's."""
        return self.release.phase(self.values)

    def record(self, *, models: int) -> dict[str, Any]:
        """As JSON values for the body of an END; empty where the last model is what it ends with.

        Args:
          models: how many models the campaign committed.
        """
        if self.stop is None and self.released == models - 1:
            return {}
        told: dict[str, Any] = {
            "validation": {"figure": self.figure, "values": list(self.values)},
            "release": self.release.value,
        }
        return told if self.stop is None else {**told, "stop": asdict(self.stop)}

    @classmethod
    def of_body(cls, body: Mapping[str, Any]) -> EndStatement | None:
        """Reads what `record` wrote; None where it wrote nothing.

        Raises:
          KeyError, TypeError, ValueError, ParameterError: it is not what `record` writes.
        """
        if not STATED_KEYS & body.keys():
            return None
        stop, measured = body.get("stop"), body["validation"]
        return cls(
            figure=str(measured["figure"]),
            values=tuple(float(value) for value in measured["values"]),
            release=ReleaseRule(body["release"]),
            stop=None if stop is None else StopRule(**stop),
        )


def is_stopped(body: Mapping[str, Any]) -> bool:
    """Whether an END says that the campaign ended by its own rule."""
    return "stop" in body


def released_index(body: Mapping[str, Any] | None, models: int) -> int:
    """Which of a campaign's committed models, in order, is its own.

    Args:
      body: of its END; None before there is one.
      models: how many it committed.
    """
    stated = None if body is None else EndStatement.of_body(body)
    return models - 1 if stated is None else stated.released


def statement_faults(body: Mapping[str, Any], models: int) -> Iterator[str]:
    """What an END says of its model or its reason that does not follow from its own figures.

    Args:
      body: of the END.
      models: how many models the campaign committed.
    """
    try:
        stated = EndStatement.of_body(body)
    except (KeyError, TypeError, ValueError, ParameterError):
        yield "the end says in no way that is known which model is released, or why"
        return
    if stated is None:
        return
    if not 1 <= len(stated.values) <= models:
        yield f"the end compares {len(stated.values)} phases and {models} models were committed"
    elif not all(0 <= value <= 1 for value in stated.values):
        yield "the end compares figures that are none"
    elif stated.figure not in FIGURES:
        yield "the end compares figures that are unknown"
    elif stated.stop is not None and not stated.stop.stops_after(stated.values):
        yield "the campaign ended by a rule that these figures do not meet"
    elif not _is_written_so(stated, body, models):
        yield "the end says which model is released, or why, in other words than a ledger does"


def _is_written_so(stated: EndStatement, body: Mapping[str, Any], models: int) -> bool:
    """Whether a body has just what `record` writes: no other types, and nothing without need."""
    shown = {key: body[key] for key in STATED_KEYS & body.keys()}
    return canonical_json(stated.record(models=models)) == canonical_json(shown)
