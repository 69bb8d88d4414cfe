"""What Prefect's server does by itself: it crashes runs that fell silent, and tells people."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

from flows.ops.deployments import FLOWS, MARK
from tasks.training_monitor import HEARTBEAT

if TYPE_CHECKING:
    from prefect.events.schemas.automations import Automation

SILENT = "dpal: crash silent runs"
TELL = "dpal: tell of lost runs"
SILENCE = timedelta(seconds=90)  # three heartbeats

# After these a run has nothing more to say. "Cancelling" is none of them: a run whose worker died
# before it could cancel would stay so for ever.
_ENDS = ("Completed", "Failed", "Crashed", "Cancelled", "TimedOut", "Suspended", "Paused")
_OURS = {"prefect.resource.role": "flow", "prefect.resource.name": list(FLOWS)}
_LOST = (
    f"No heartbeat for {SILENCE.seconds} seconds: the process, its machine or the way to it is "
    "gone. Nothing is lost; run the same campaign again, it goes on from its last checkpoint."
)


def crash_silent_runs() -> AutomationCore:
    """A run that sent a heartbeat and then nothing is Crashed after 90 seconds."""
    return AutomationCore(
        name=SILENT,
        description=f"{MARK} A killed process cannot say that it died.",
        enabled=True,
        trigger=EventTrigger(
            posture=Posture.Proactive,
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related=_OURS,
            for_each={"prefect.resource.id"},
            after={HEARTBEAT},
            expect={HEARTBEAT, *(f"prefect.flow-run.{name}" for name in _ENDS)},
            threshold=1,
            within=SILENCE,
        ),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message=_LOST)],
    )


def tell_people(block: UUID) -> AutomationCore:
    """Sends a message by a notification block whenever one of our runs crashes or fails."""
    return AutomationCore(
        name=TELL,
        description=f"{MARK} By the notification block that --notify named.",
        enabled=True,
        trigger=EventTrigger(
            posture=Posture.Reactive,
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related=_OURS,
            for_each={"prefect.resource.id"},
            expect={"prefect.flow-run.Crashed", "prefect.flow-run.Failed"},
            threshold=1,
            within=timedelta(0),
        ),
        actions=[
            SendNotification(
                block_document_id=block,
                subject="{{ flow.name }} {{ flow_run.name }}: {{ flow_run.state.name }}",
                body="{{ flow_run.state.message }}\n{{ flow_run|ui_url }}",
            )
        ],
    )


def says_the_same(there: Automation, wanted: AutomationCore) -> bool:
    """Whether a server's automation is the wanted one; whether it is switched on is not asked."""
    same: bool = _essence(there) == _essence(wanted)
    return same


def _essence(automation: AutomationCore) -> Any:
    values = automation.model_dump(
        mode="json", include={"name", "description", "trigger", "actions"}
    )
    return _without_ids(values)


def _without_ids(value: Any) -> Any:
    """The same without the ids that a server gives, and sets in one order."""
    if isinstance(value, dict):
        return {key: _without_ids(each) for key, each in value.items() if key != "id"}
    if isinstance(value, list):
        parts = [_without_ids(each) for each in value]
        return sorted(parts) if all(isinstance(each, str) for each in parts) else parts
    return value
