"""Training that draws no noise: it releases nothing by itself, and may be done again.

Teachers, a student and fine-tuning are trained so. Another machine that shares the run's folder may
do it, and whoever stops it loses time and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from dpal.runs.host import TrainingMonitor, host
from dpal.runs.run import Run

R = TypeVar("R", bound=Run[Any])


def _nothing(run: Run[Any]) -> None:
    del run


@dataclass(frozen=True, kw_only=True)
class RepeatableTraining(Generic[R]):
    """One such training of a kind of run.

    Attributes:
      name: on pages and in messages; letters and dashes.
      train: does what is not done yet.
      makes: files of the run's folder that are there once it is done.
      require: what a machine that did not begin the run looks at first; raises what is wrong.
    """

    name: str
    train: Callable[[R], None]
    makes: Callable[[R], Sequence[Path]]
    require: Callable[[R], None] = _nothing

    def made(self, run: R) -> int:
        """How many of its files are there."""
        return sum(path.exists() for path in self.makes(run))

    def is_done(self, run: R) -> bool:
        """Whether all of them are."""
        return self.made(run) == len(self.makes(run))


class ShownTraining:
    """A training that is shown as it goes, and that its host may stop."""

    def __init__(self, name: str, monitor: TrainingMonitor, bar: tqdm[Any], *, told: bool) -> None:
        self._name, self._monitor, self._bar, self._told = name, monitor, bar, told

    def step(self) -> None:
        """Counts a step that was made.

        Raises:
          TrainingStopped: it was cancelled.
        """
        self._bar.update()
        if self._told:
            self._monitor.show(100 * self._bar.n / max(1, self._bar.total or 0))
        self.require_wanted()

    def require_wanted(self) -> None:
        """Stops here if somebody wants that.

        Raises:
          TrainingStopped: it was cancelled.
        """
        if self._monitor.must_stop():
            self._monitor.leave(f"training of {self._name}")


@contextmanager
def shown_training(
    name: str, total: int, *, done: int = 0, unit: str = "step", told: bool = True
) -> Iterator[ShownTraining]:
    """Shows finished steps in the terminal and to the host, which may stop it after any of them.

    Args:
      name: of what is trained.
      total: steps.
      done: of them, before this.
      unit: what a step is.
      told: whether the host hears of each step; when a private part is done says how large it is.
    """
    with (
        host().watch_training(name) as monitor,
        tqdm(total=total, initial=done, desc=name, unit=unit, disable=None, leave=False) as bar,
    ):
        monitor.begin(f"{name}: {total:,} {unit}s")
        yield ShownTraining(name, monitor, bar, told=told)
