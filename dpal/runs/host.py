"""What a run needs of its process: a plain one, unless an orchestrator offers more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from dpal.config.runtime import RunConfig, RuntimeConfig, TaskRunnerKind
from dpal.errors import RunnerError
from dpal.files.artifacts import PhaseFolder

Part = TypeVar("Part")
Result = TypeVar("Result")


class TrainingMonitor:
    """Whoever watches a training, and may stop it; nobody, in a plain process."""

    def begin(self, text: str) -> None:
        """Says what is being done from here on."""

    def show(self, progress: float) -> None:
        """Notes how far it is, in percent."""

    def must_stop(self) -> bool:
        """Whether the training is to stop after the step that it is in."""
        return False

    def leave(self, where: str) -> None:
        """Ends what was to stop, once everything it had made is persisted.

        Raises:
          TrainingStopped: it was cancelled.
        """


class Host:
    """A plain process: nobody watches, nothing is limited, parts run one after the other."""

    @property
    def is_limited(self) -> bool:
        """Whether somebody else than the data's owner may have started this run."""
        return False

    def require_allowed(self, config: RunConfig) -> None:
        """Requires that settings which a folder records may be used here.

        Whoever ran them may not have been limited as this process is.

        Raises:
          ConfigError: they may not.
        """

    def require_runnable(self, runtime: RuntimeConfig) -> None:
        """Requires that this process has the workers that settings want.

        Raises:
          RunnerError: they want workers, and it knows none.
        """
        for key, wanted in (
            ("task_runner", runtime.task_runner is not TaskRunnerKind.LOCAL),
            ("training_pool", runtime.training_pool is not None),
        ):
            if wanted:
                raise RunnerError.before_release(
                    f"runtime.{key} {getattr(runtime, key)} needs a flow, and this process runs "
                    "none; leave it out, or start the run with dpal run"
                )

    def run_parts(
        self, work: Callable[[Part], Result], parts: Sequence[Part], runtime: RuntimeConfig
    ) -> Iterator[Result]:
        """Runs a function on every part and yields its results, in the order of the parts.

        Args:
          work: draws no noise, releases nothing, persists no result.
          parts: small; they travel to workers, where there are some.
          runtime: says which task runner, and how many parts at a time.

        Raises:
          RunnerError: workers are wanted, and this process knows none.
        """
        self.require_runnable(runtime)
        return map(work, parts)

    def watch_training(self, phase: str) -> AbstractContextManager[TrainingMonitor]:
        """Whoever watches the training of a phase, for the length of a block."""
        return nullcontext(TrainingMonitor())

    def secret(self, name: str) -> str | None:
        """A secret that an orchestrator keeps by a name; None where there is none."""
        return None

    def form_values(self, files: PhaseFolder) -> dict[str, Any] | None:
        """What a person filled in on an orchestrator's page; None if nobody did."""
        return None

    def stop_waiting(self, files: PhaseFolder) -> None:
        """Ends whatever waited for the labels of a phase: this process goes on with them."""


_HOST = Host()


def host() -> Host:
    """The host of this process."""
    return _HOST


def run_on(other: Host) -> None:
    """Makes another host that of this process."""
    global _HOST
    _HOST = other
