"""Waiting for people without holding a worker: a flow run suspends, and is resumed."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID, uuid4

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.responses import SetStateStatus
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound, Pause
from prefect.input import (
    delete_flow_run_input,
    keyset_from_paused_state,
    read_flow_run_input,
)
from prefect.states import Cancelled, Paused, Suspended

from dpal.errors import CampaignBusy, LabelError, LabelsPending
from dpal.files.artifacts import CampaignFolder, PhaseFolder, campaigns_of
from dpal.files.atomic_writes import write_text
from dpal.ledger.folder_lock import leading_process, lock_folder
from dpal.runs.labelers import labeler_of
from tasks.await_prefect_server import has_server, retry_while_prefect_is_down

if TYPE_CHECKING:
    from dpal.runs.labeling_job import LabelingJob

_PATIENCE_SECONDS = 365 * 24 * 3600
_WAITING = "waiting.json"


class ResumeOutcome(StrEnum):
    """What became of a flow run that waited for labels."""

    RESUMED = "resumed"
    ON_ITS_WAY = "on its way"
    BUSY = "busy"
    ENDED = "ended"
    LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Who waits for a query, as its confidential folder says.

    Attributes:
      kind: who labels.
      flow_run: that waits; None where no flow run does.
      key: of this wait; a form's answers are found by it.
    """

    kind: str
    flow_run: str | None
    key: str

    @classmethod
    def read(cls, files: PhaseFolder) -> Waiting | None:
        """Reads it; None if nobody waits."""
        path = _place(files)
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None

    def write(self, files: PhaseFolder) -> None:
        """Writes it, before the run is suspended: no run may wait without a trace."""
        write_text(_place(files), json.dumps(asdict(self)))


def waiting_campaigns(artifacts: Path) -> list[CampaignFolder]:
    """The campaigns of a folder that wait for people; quick, as it is asked every minute."""
    return [folder for folder in campaigns_of(artifacts) if waiting_phases(folder)]


def waiting_phases(folder: CampaignFolder) -> list[tuple[PhaseFolder, Waiting]]:
    """The phases of a campaign that wait for people; one at most, unless it was killed."""
    names = sorted(path.parent.name for path in folder.phase(0).query.parent.glob(f"*/{_WAITING}"))
    phases = [PhaseFolder(folder.root / name) for name in names]
    return [(files, waiting) for files in phases if (waiting := Waiting.read(files))]


def clear_waiting(files: PhaseFolder) -> None:
    """Notes that nobody waits any more."""
    _place(files).unlink(missing_ok=True)


def wait_for_labels(job: LabelingJob, files: PhaseFolder, pending: LabelsPending) -> NoReturn:
    """Leaves the flow run to people, and ends this process's part.

    A run of a deployment is suspended: its process ends, its worker is free, and it starts
    from the top when it is resumed. Any other run is Paused, with the message.

    Args:
      job: who labels what.
      files: of the phase.
      pending: what a person has to do.

    Raises:
      Pause: always; whoever called the flow tells the person.
      LabelError: a form is wanted, and this run has no deployment to come back by.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        raise pending
    form = job.labeler.form(job, files)
    run, key = context.flow_run.id, uuid4().hex
    suspends = context.flow_run.deployment_id and not context.flow_run.parent_task_run_id
    if form is not None and not suspends:
        raise LabelError(
            f"labeler.kind {job.labeler.name} needs a flow run of a deployment, and this one runs "
            "in a terminal; run dpal deploy and start the campaign on its page, nothing was lost"
        )
    take_over_query(files)
    Waiting(kind=job.labeler.name, flow_run=str(run), key=key).write(files)
    wanted: Any = Suspended if suspends else Paused
    state = wanted(timeout_seconds=_PATIENCE_SECONDS, pause_key=key, message=str(pending))
    if form is not None:
        places = keyset_from_paused_state(state)
        state.state_details.run_input_keyset = places
    answer = retry_while_prefect_is_down(lambda client: client.set_flow_run_state(run, state))
    if form is not None:
        # Afterwards: as a run is suspended, Prefect forgets what lies under these keys.
        shown = {places["schema"]: form.schema, places["description"]: form.description}
        for place, value in shown.items():
            _keep_on_page(run, place, value)
    raise Pause(str(pending), state=answer.state)


def _keep_on_page(run: UUID, place: str, value: Any) -> None:
    written = json.dumps(value)
    retry_while_prefect_is_down(
        lambda client: client.create_flow_run_input(flow_run_id=run, key=place, value=written)
    )


def form_answers(waiting: Waiting) -> dict[str, Any] | None:
    """What a person filled in; None if nobody did."""
    if waiting.flow_run is None:
        return None
    place = _places(waiting)["response"]
    answers: Any = read_flow_run_input(place, flow_run_id=UUID(waiting.flow_run))
    return dict(answers) if answers else None


def clear_form(waiting: Waiting) -> None:
    """Removes records and answers from Prefect's server: they are no longer needed there."""
    if waiting.flow_run is not None:
        for place in _places(waiting).values():
            with suppress(ObjectNotFound):
                delete_flow_run_input(place, flow_run_id=UUID(waiting.flow_run))


def resume_flow_run(folder: CampaignFolder, waiting: Waiting) -> ResumeOutcome:
    """Resumes the flow run that waited, if it is suspended.

    Twice does no harm: a run that is on its way is left alone.
    """
    if waiting.flow_run is None or not has_server():
        return ResumeOutcome.LOCAL
    number = UUID(waiting.flow_run)
    run = _run(number)
    if run is None or run.state is None or run.deployment_id is None:
        return ResumeOutcome.LOCAL
    if run.state.is_final():
        return ResumeOutcome.ENDED
    if not run.state.is_paused():
        return ResumeOutcome.ON_ITS_WAY
    if is_led(folder):
        return ResumeOutcome.BUSY
    answer = retry_while_prefect_is_down(lambda client: client.resume_flow_run(number))
    accepted = answer.status is SetStateStatus.ACCEPT
    return ResumeOutcome.RESUMED if accepted else ResumeOutcome.ON_ITS_WAY


def take_over_query(files: PhaseFolder) -> None:
    """Ends whatever waited for a query before: this process goes on with it.

    A form is taken off Prefect's server, with its answers; another flow run that is still
    suspended or paused is cancelled, as nothing is left for it to do.
    """
    waiting = Waiting.read(files)
    if waiting is None:
        return
    if labeler_of(waiting.kind).on_page:
        clear_form(waiting)
    context = FlowRunContext.get()
    ours = context and context.flow_run and str(context.flow_run.id)
    if waiting.flow_run is not None and waiting.flow_run != ours and has_server():
        _cancel(UUID(waiting.flow_run))
    _place(files).unlink(missing_ok=True)


def is_led(folder: CampaignFolder) -> bool:
    """Whether a process still leads a campaign; it would be in the way of a resumed one."""
    try:
        with leading_process(folder.root), lock_folder(folder.root):
            return False
    except CampaignBusy:
        return True


def _place(files: PhaseFolder) -> Path:
    return files.query / _WAITING


def _places(waiting: Waiting) -> dict[str, str]:
    """Where Prefect keeps a form and its answers."""
    return dict(keyset_from_paused_state(Suspended(pause_key=waiting.key)))  # type: ignore[arg-type]


def _cancel(number: UUID) -> None:
    run = _run(number)
    if run is not None and run.state is not None and run.state.is_paused():
        state: State[Any] = Cancelled(message="another run of the campaign went on with the labels")
        retry_while_prefect_is_down(
            lambda client: client.set_flow_run_state(number, state, force=True)
        )


def _run(number: UUID) -> FlowRun | None:
    def read(client: SyncPrefectClient) -> FlowRun | None:
        try:
            return client.read_flow_run(number)
        except ObjectNotFound:
            return None

    return retry_while_prefect_is_down(read)
