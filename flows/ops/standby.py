"""Processes that stand by for a worker: started ahead, each for one run and no other."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING

import anyio
from prefect.runner._flow_run_executor import FlowRunExecutionResult, FlowRunExecutorContext
from prefect.runner._process_manager import ProcessHandle
from prefect.runner._starter_engine import EngineCommandStarter
from prefect.settings import get_current_settings
from prefect.utilities.processutils import (
    command_from_string,
    consume_process_output,
    sanitize_subprocess_env,
)
from prefect.workers.process import ProcessJobConfiguration, ProcessWorkerResult

from flows.ops import standby_process

if TYPE_CHECKING:
    import anyio.abc
    from prefect.client.schemas.objects import FlowRun, State
    from prefect.runner._control_channel import ControlChannel

# The run that just began has the processors to itself until about its first step.
_REFILL_SECONDS = 2.0


class Standbys:
    """The processes that stand by, at most so many at a time.

    They are children of this process, as runs are. Each reads from a pipe of its own: when this
    process ends, however it does, those that stand by read its end and are gone.
    """

    def __init__(self, number: int, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts none yet.

        Args:
          number: that stand by.
          modules: that they import.
          environment: of runs, as far as it is the same for all.
        """
        self._number, self._modules, self._environment = number, modules, environment
        self._ready: deque[anyio.abc.Process] = deque()
        self._filling: set[asyncio.Task[None]] = set()

    async def fill(self) -> None:
        """Starts what is missing."""
        while len(self._ready) < self._number:
            self._ready.append(
                await anyio.open_process(
                    # -P and the file's path: a folder `flows` where the worker works is not ours.
                    [
                        sys.executable,
                        "-P",
                        standby_process.__file__,
                        str(os.getpid()),
                        *self._modules,
                    ],
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=PIPE,
                    env=sanitize_subprocess_env(self.lasting_environment()),
                )
            )

    def take(self) -> anyio.abc.Process | None:
        """One that stands by, for whoever asks alone; another one is started in a while."""
        taken = None
        while self._ready and taken is None:
            process = self._ready.popleft()
            taken = process if process.returncode is None else None
        refill = asyncio.get_running_loop().create_task(self._refill())
        self._filling.add(refill)
        refill.add_done_callback(self._filling.discard)
        return taken

    async def _refill(self) -> None:
        await anyio.sleep(_REFILL_SECONDS)
        await self.fill()

    async def close(self) -> None:
        """Ends those that stand by."""
        for refill in list(self._filling):
            refill.cancel()
        while self._ready:
            process = self._ready.popleft()
            if process.returncode is None:
                process.kill()
            with anyio.CancelScope(shield=True):
                await process.aclose()

    def lasting_environment(self) -> dict[str, str | None]:
        """What all runs of this worker are told."""
        settings = get_current_settings().to_environment_variables(exclude_unset=True)
        return {**os.environ, **self._environment, **settings}


class StandbyStarter:
    """Starts a run in a process that stood by; as Prefect does, where there is none."""

    def __init__(
        self,
        standbys: Standbys,
        configuration: ProcessJobConfiguration,
        control_channel: ControlChannel,
    ) -> None:
        self._standbys, self._configuration = standbys, configuration
        self._channel = control_channel
        self._folder = Path(configuration.working_dir or Path.cwd()).resolve()

    async def start(
        self,
        flow_run: FlowRun,
        task_status: anyio.abc.TaskStatus[ProcessHandle] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Starts a run and waits for its end."""
        process = self._standbys.take() if self._folder.is_dir() else None
        if process is not None:
            async with process:
                if await self._hand_over(process, flow_run):
                    task_status.started(ProcessHandle(process))
                    await _pass_on_output(process)
                    await process.wait()
                    return
        await self._as_prefect_does().start(flow_run, task_status)

    async def _hand_over(self, process: anyio.abc.Process, flow_run: FlowRun) -> bool:
        """Tells a process what to become; False where it has just ended."""
        order = {
            "command": command_from_string(str(self._configuration.command)),
            "environment": sanitize_subprocess_env(self._environment(flow_run)),
            "folder": str(self._folder),
        }
        pipe: anyio.abc.ByteSendStream = process.stdin  # type: ignore[assignment]
        try:
            await pipe.send(json.dumps(order).encode())
            await pipe.aclose()
        except (anyio.BrokenResourceError, OSError):
            return False
        return True

    def _environment(self, flow_run: FlowRun) -> dict[str, str | None]:
        """What Prefect's own starter would tell a process."""
        told = {**os.environ, **self._configuration.env}
        told |= get_current_settings().to_environment_variables(exclude_unset=True)
        told["PREFECT__FLOW_RUN_ID"] = str(flow_run.id)
        told["PREFECT__ENABLE_CANCELLATION_AND_CRASHED_HOOKS"] = "false"
        try:
            port, token = self._channel.register(flow_run.id)
        except RuntimeError:  # it could not listen; a run is then ended by signals alone
            return told
        return {**told, "PREFECT__CONTROL_PORT": str(port), "PREFECT__CONTROL_TOKEN": token}

    def _as_prefect_does(self) -> EngineCommandStarter:
        return EngineCommandStarter(
            command=self._configuration.command,
            cwd=self._folder,
            env=self._configuration.env,
            stream_output=self._configuration.stream_output,
            control_channel=self._channel,
        )


class NoHooks:
    """Runs nothing after a run that crashed or was cancelled: our flows ask for nothing.

    To look for hooks, Prefect would load the flow as its deployment says: by steps, and from a
    place, that whoever can write to the server chooses.
    """

    async def run_cancellation_hooks(self, flow_run: FlowRun, state: State) -> None:
        """Does nothing."""

    async def run_crashed_hooks(self, flow_run: FlowRun, state: State) -> None:
        """Does nothing."""


async def _pass_on_output(process: anyio.abc.Process) -> None:
    try:
        await consume_process_output(process, sys.stdout, sys.stderr)
    except Exception:
        await consume_process_output(process)  # to nowhere: it must not wait for a reader
        raise


async def run_in_standby(
    standbys: Standbys,
    flow_run: FlowRun,
    configuration: ProcessJobConfiguration,
    task_status: anyio.abc.TaskStatus[int],
) -> ProcessWorkerResult:
    """Runs a flow as `ProcessWorker.run` does, in a process that stood by where there is one."""
    result: FlowRunExecutionResult | None = None
    async with FlowRunExecutorContext() as context:
        starter = StandbyStarter(standbys, configuration, context.control_channel)
        executor = context.create_executor(
            flow_run, starter, hook_runner=NoHooks(), propose_submitting=False
        )

        async def execute(*, task_status: anyio.abc.TaskStatus[ProcessHandle]) -> None:
            nonlocal result
            result = await executor.submit(task_status=task_status)

        async with anyio.create_task_group() as group:
            handle = await group.start(execute)
            task_status.started(handle.pid)
    if result is None or result.status_code is None:
        raise RuntimeError("the flow run's process did not start")
    return ProcessWorkerResult(status_code=result.status_code, identifier=str(handle.pid))
