"""What Prefect is for a run: workers, somebody who watches, secrets, forms, and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from prefect.blocks.system import Secret

from dpal.config.runtime import RunConfig, RuntimeConfig, TaskRunnerKind
from dpal.files.artifacts import PhaseFolder
from dpal.runs.host import Host, Part, Result, TrainingMonitor
from tasks.allow_list import comes_from_prefect, require_allowed
from tasks.await_prefect_server import has_server
from tasks.training_monitor import monitoring_training
from tasks.wait_for_people import Waiting, form_answers, take_over_query


class PrefectHost(Host):
    """A process in which Prefect's flows may run."""

    @property
    def is_limited(self) -> bool:
        """As `tasks.allow_list.comes_from_prefect`."""
        return comes_from_prefect()

    def require_allowed(self, config: RunConfig) -> None:
        """As `tasks.allow_list.require_allowed`."""
        require_allowed(config)

    def require_runnable(self, runtime: RuntimeConfig) -> None:
        """Workers are found when they are needed."""

    def run_parts(
        self, work: Callable[[Part], Result], parts: Sequence[Part], runtime: RuntimeConfig
    ) -> Iterator[Result]:
        """On the workers of a task runner, where settings say so."""
        if runtime.task_runner is TaskRunnerKind.LOCAL:
            return map(work, parts)
        from tasks.parallel_parts import (  # its tasks are made by what installs this
            PARTS,
            run_parts,
        )

        return run_parts(PARTS[work], parts, runtime)

    def watch_training(self, phase: str) -> AbstractContextManager[TrainingMonitor]:
        """By the run's page."""
        return monitoring_training(phase)

    def secret(self, name: str) -> str | None:
        """From a Secret block of the server, if there is one."""
        if not has_server():
            return None
        try:
            return str(cast(Secret[str], Secret.load(name)).get())
        except ValueError:  # there is no such block
            return None

    def form_values(self, files: PhaseFolder) -> dict[str, Any] | None:
        """From the page of the flow run that waits."""
        waiting = Waiting.read(files)
        return form_answers(waiting) if waiting else None

    def stop_waiting(self, files: PhaseFolder) -> None:
        """Takes a form off the server, and cancels another flow run that waits."""
        take_over_query(files)
