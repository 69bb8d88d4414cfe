"""A process worker that runs dpal's own flows and nothing else, whatever the server says.

Prefect's own worker takes the command, the environment, the code and the steps before it from
the server: whoever has the server's password may run anything on it. This one takes from the
server which flow is to run and with which parameters; the flow itself then compares those with
the list of the data's owner (`tasks.allow_list`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import anyio
from prefect.utilities.processutils import command_to_string
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

from dpal.config.guarded_settings import Guarded, GuardedSetting
from dpal.config.owner_allow_list import WORKDIR, AllowList
from dpal.errors import AllowListError, DpalError
from dpal.files.canonical_places import NO_PLACE, canonical_place
from flows.ops import run_flow
from flows.ops.deployments import ENTRYPOINTS, ENVIRONMENT, TRAINING_MODULES
from flows.ops.standby import Standbys, run_in_standby
from tasks.allow_list import ASKED_FOLDER, allow_file, read_allow_list

if TYPE_CHECKING:
    import anyio.abc
    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.objects import Flow, FlowRun, WorkPool
    from prefect.client.schemas.responses import DeploymentResponse

_FOLDER_STEP = "prefect.deployments.steps.set_working_directory"


class RunRefused(DpalError):
    """A worker was asked for something else than one of dpal's flows. Nothing was started."""

    code = "run-refused"


class OwnFlowConfiguration(ProcessJobConfiguration):
    """How a run is started: a command and an environment that no server can change."""

    @classmethod
    async def from_template_and_values(
        cls,
        base_job_template: dict[str, Any],
        values: dict[str, Any],
        client: PrefectClient | None = None,
    ) -> Self:
        """A configuration without what the pool, the deployment or the run ask for."""
        return cls()

    def prepare_for_flow_run(
        self,
        flow_run: FlowRun,
        deployment: DeploymentResponse | None = None,
        flow: Flow | None = None,
        work_pool: WorkPool | None = None,
        worker_name: str | None = None,
        worker_id: UUID | None = None,
    ) -> None:
        """Sets the command of the flow that is named.

        Raises:
          RunRefused: it is none of dpal's, or the run is of no deployment.
        """
        name = flow.name if flow else ""
        if name not in ENTRYPOINTS or deployment is None:
            raise RunRefused(
                f"this worker runs dpal's flows as `dpal deploy` makes them, and flow {name!r} is "
                "none of them; nothing was started"
            )
        here = Path.cwd()
        asked = folder_asked_for(deployment) or here
        allowed = _may_work_in(asked, here)
        self.working_dir = asked if allowed else here
        # The run itself says so where the folder is not allowed: as one sentence on its page.
        self.env = {**ENVIRONMENT, **({} if allowed else {ASKED_FOLDER: str(asked)})}
        # -P, and a program of ours: nothing that lies in the folder is taken for a module.
        self.command = command_to_string(
            [sys.executable, "-P", "-m", run_flow.__name__, ENTRYPOINTS[name]]
        )
        super().prepare_for_flow_run(
            flow_run, deployment, flow, work_pool, worker_name, worker_id=worker_id
        )


class OwnFlowWorker(ProcessWorker):
    """Works for a pool of type process."""

    job_configuration: type[ProcessJobConfiguration] = OwnFlowConfiguration

    def __init__(self, work_pool_name: str, *, standby: int = 0, **options: Any) -> None:
        """A worker that is not started yet.

        Args:
          work_pool_name: whose runs it takes.
          standby: processes that have imported what trainings need and wait for one run each.
          options: of Prefect's worker.
        """
        super().__init__(work_pool_name, **options)
        self._standbys = Standbys(standby, TRAINING_MODULES, ENVIRONMENT)

    @classmethod
    def __dispatch_key__(cls) -> str:
        """Under which Prefect registers this kind of worker, beside its own."""
        return "dpal"

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ProcessJobConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> ProcessWorkerResult:
        """Runs a flow in a process of its own."""
        status = task_status or anyio.TASK_STATUS_IGNORED
        return await run_in_standby(self._standbys, flow_run, configuration, status)

    async def setup(self) -> None:
        """Prepares the worker, and what stands by."""
        await super().setup()
        await self._standbys.fill()

    async def teardown(self, *exc_info: Any) -> None:
        """Ends what stands by, and the worker after its runs."""
        await self._standbys.close()
        await super().teardown(*exc_info)


def folder_asked_for(deployment: DeploymentResponse) -> Path | None:
    """The folder in which a deployment wants its runs to work."""
    match deployment.pull_steps or []:
        case [{**only}] if isinstance(step := only.get(_FOLDER_STEP), dict):
            asked = step.get("directory")
            return Path(asked) if isinstance(asked, str) else None
    return None


def _may_work_in(folder: Path, here: Path) -> bool:
    try:
        if canonical_place(folder) == canonical_place(here):
            return True
        # Of no group: which one a run fits is asked later, and in that folder.
        everywhere = AllowList(read_allow_list(allow_file()).values)
    except (AllowListError, *NO_PLACE):
        return False
    return everywhere.allows(GuardedSetting(WORKDIR, folder, Guarded()))
