"""What ranks on several machines tell each other: JSON and bytes, of which nothing is run.

| who | says | with it |
|---|---|---|
| helper | who it is | |
| rank 0 | load: which plan, which share | the share's labeled rows |
| helper | ready | |
| rank 0 | meet: how vectors go | |
| rank 0 | job: which phase, from which step | all weights |
| rank 0 | step: the bound | |
| helper | ready | |
| rank 0 | end | |

Either may refuse instead, in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, Final

from safetensors.torch import save

from dpal.data.process_share import Share
from dpal.errors import DpalError, HelperRefused, ParameterError
from dpal.planning.phases_json import write_phases
from dpal.training.distributed.messages import ComputeClippedSum, Job, Meet
from dpal.training.distributed.sealed_link import Link

ORDER, LOAD, MEET, JOB, STEP, END = "order", "load", "meet", "job", "step", "end"
READY: Final = {"ready": True}
_REFUSED, _FAULT = "refused", "fault"


@dataclass(frozen=True, kw_only=True)
class HelperGreeting:
    """Who asks to join.

    Attributes:
      number: among all ranks of other machines, from 0.
      version: of dpal.
    """

    number: int
    version: str = metadata.version("dpal")

    def as_message(self) -> dict[str, Any]:
        """As it is sent."""
        return asdict(self)


def load_order(share: Share, patience: float) -> dict[str, Any]:
    """What every first order says: whose records to load, and how long vectors may take."""
    return {
        ORDER: LOAD,
        "rank": share.rank,
        "processes": share.processes,
        "patience": patience,
    }


def message_of(order: Meet | Job | ComputeClippedSum) -> tuple[dict[str, Any], bytes]:
    """An order as it goes to another machine."""
    return _WRITTEN[type(order)](order)


def _meet(order: Meet) -> tuple[dict[str, Any], bytes]:
    meeting = order.meeting
    return {
        ORDER: MEET,
        "ranks": meeting.ranks,
        "address": meeting.address,
    }, b""


def _job(order: Job) -> tuple[dict[str, Any], bytes]:
    if order.model is None:
        raise ParameterError("a sharded model does not go to other machines")
    weights = {name: value.contiguous() for name, value in order.model.state_dict().items()}
    work = order.work
    return {
        ORDER: JOB,
        "phase": write_phases([work.phase]),
        "max_grad_norm": work.spec.max_grad_norm,
        "done": work.done,
    }, save(weights)


def _step(order: ComputeClippedSum) -> tuple[dict[str, Any], bytes]:
    return {ORDER: STEP, "bound": order.bound}, b""


_WRITTEN: Mapping[type, Callable[[Any], tuple[dict[str, Any], bytes]]] = {
    Meet: _meet,
    Job: _job,
    ComputeClippedSum: _step,
}


def refuse(link: Link, reason: str, fault: str) -> None:
    """Says why not, instead of an answer or an order."""
    link.send({_REFUSED: reason, _FAULT: fault})


def refuse_for(link: Link, error: Exception) -> None:
    """Says what an error says of it in public; of one that is not ours, no more than its kind."""
    if isinstance(error, DpalError):
        refuse(link, str(error), error.code)
    else:
        refuse(link, f"it failed ({type(error).__name__})", "failed")


def require_agreed(said: Mapping[str, Any], helper: str) -> None:
    """Requires that a message refuses nothing.

    Args:
      said: what came.
      helper: what the helper is called that is refused, or refuses.

    Raises:
      HelperRefused: it does.
    """
    if _REFUSED in said:
        raise HelperRefused(helper, str(said[_REFUSED]), str(said[_FAULT]))
