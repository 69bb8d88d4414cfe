"""A rank that trains for another machine: it asks to join, and follows orders until they end.

It needs no ledger and draws no noise. Nothing of it is kept on this machine.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dpal.data.labeled_records import LabeledSet
from dpal.data.process_share import Share
from dpal.errors import HelperRefused, ParameterError
from dpal.randomness import secure
from dpal.training.arithmetic import exact_arithmetic
from dpal.training.distributed.messages import ComputeClippedSum, Job
from dpal.training.distributed.remote_messages import (
    END,
    JOB,
    ORDER,
    READY,
    STEP,
    HelperGreeting,
    refuse_for,
    require_agreed,
)
from dpal.training.distributed.sealed_link import KeyRefused, Link, SealedLink, sealed_link
from dpal.training.distributed.team import Meeting, Sums, Team, flat_weights, set_weights
from dpal.training.distributed.worker import FINDING_SECONDS, handle_messages

CONNECT_SECONDS: Final = 10.0
_HERE = "this helper"


@dataclass(frozen=True, kw_only=True)
class OpenedShare:
    """What a helper has once it followed the first order.

    Attributes:
      labeled: the records of its share.
      job: makes a job of the order to begin, and of the weights that come with it.
    """

    labeled: LabeledSet
    job: Callable[[Mapping[str, Any], bytes], Job]


OpenShare = Callable[[Mapping[str, Any], bytes, Share], OpenedShare]


def join_training(
    address: tuple[str, int], key: bytes, greeting: HelperGreeting, *, wait: Callable[[], None]
) -> SealedLink:
    """Asks the machine that trains to be let in; waits until there is one.

    Args:
      address: host and port of its rendezvous.
      key: that both machines know.
      greeting: who asks.
      wait: called before it is asked again; raises to give up.

    Raises:
      HelperRefused: the keys differ.
    """
    while True:
        try:
            connected = socket.create_connection(address, CONNECT_SECONDS)
            link = sealed_link(connected, key, listens=False)
            link.send(greeting.as_message())
            return link
        except KeyRefused as error:
            raise HelperRefused(
                _HERE,
                f"what answers at {address[0]}:{address[1]} knows another key; copy that of the "
                "machine that trains, for its owner alone to read",
                "key",
            ) from error
        except OSError:
            wait()


def help_training(
    link: SealedLink,
    open_share: OpenShare,
    *,
    device: torch.device,
    begun: Callable[[Mapping[str, Any], Share], None] = lambda said, share: None,
) -> None:
    """Follows the orders of a training until its end.

    Args:
      link: to the machine that trains, which was greeted.
      open_share: loads what the first order says; refuses what is not as it says.
      device: to compute on.
      begun: told of the first order.

    Raises:
      HelperRefused: the machine that trains does not take this helper.
      DpalError: this helper refuses the order; the other side was told.
      EOFError, OSError: the training ended without a word, or was lost.
    """
    with suppress(_Ended), closing(link):
        said, rows = _told(link)
        share = Share(rank=said["rank"], processes=said["processes"])
        begun(said, share)
        with _telling_why(link):
            _use(device)
            opened = open_share(said, rows, share)
        del rows
        with opened.labeled as labeled, _telling_why(link):
            if labeled.share != share:
                raise ParameterError(f"records of {labeled.share} were loaded, not of {share}")
            link.send(READY)
            sums = _sums(link, said, share, device)
            try:
                handle_messages(
                    partial(_order, link, opened),
                    partial(link.send, READY),
                    labeled,
                    sums,
                    device=device,
                    rng=secure(),
                    watch=partial(_require_there, link),
                )
            finally:
                sums.close()


class LinkedSums:
    """Vectors of a rank that has nothing but its link: sealed, to rank 0 and from it."""

    def __init__(self, link: Link) -> None:
        """Takes the link that orders come through, between two of them."""
        self._link = link

    def share_weights(self, model: nn.Module, *, watch: Callable[[], None]) -> None:
        """Takes rank 0's trained weights."""
        _, data = self._link.receive()
        kind = flat_weights(model).cpu().numpy().dtype
        set_weights(model, torch.from_numpy(np.frombuffer(data, kind).copy()))

    def add_up(
        self, vector: NDArray[np.float64], *, watch: Callable[[], None]
    ) -> NDArray[np.float64]:
        """Sends a vector; the sum stays with rank 0."""
        self._link.send({}, vector.astype(np.float64).tobytes())
        return vector

    def close(self) -> None:
        """The link is another one's."""


class _Ended(EOFError):
    """The training is over."""


def _sums(link: SealedLink, load: Mapping[str, Any], share: Share, device: torch.device) -> Sums:
    said, _ = _told(link)
    if said["address"] is None:
        return LinkedSums(link)
    host, port = said["address"]
    meeting = Meeting(
        ranks=said["ranks"],
        address=(str(host), int(port)),
        host=link.own_host,
    )
    return Team(share.rank, meeting, device=device, patience=load["patience"])


def _order(link: SealedLink, opened: OpenedShare) -> Job | ComputeClippedSum:
    said, data = _told(link)
    return _ORDERS[said[ORDER]](opened, said, data)


def _told(link: SealedLink) -> tuple[dict[str, Any], bytes]:
    said, data = link.receive()
    require_agreed(said, _HERE)
    if said.get(ORDER) == END:
        raise _Ended
    return said, data


_ORDERS: Mapping[
    str, Callable[[OpenedShare, Mapping[str, Any], bytes], Job | ComputeClippedSum]
] = {
    JOB: lambda opened, said, data: opened.job(said, data),
    STEP: lambda opened, said, data: ComputeClippedSum(bound=float(said["bound"])),
}


@contextmanager
def _telling_why(link: SealedLink) -> Iterator[None]:
    """Tells the other side why this one ends, where it is not the other that ended."""
    try:
        yield
    except ConnectionError:
        # Another rank may be gone, of which the machine that trains hears by its link. It is not to
        # hear of this end first, or it would name this one.
        with suppress(EOFError, OSError):
            link.poll(FINDING_SECONDS)
        raise
    except (EOFError, HelperRefused):
        raise
    except Exception as error:
        with suppress(OSError):
            refuse_for(link, error)
        raise


def _require_there(link: SealedLink) -> None:
    if link.is_gone():
        raise EOFError


def _use(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_device(device)
        exact_arithmetic()
