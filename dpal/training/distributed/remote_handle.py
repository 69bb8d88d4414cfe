"""A helper on another machine as the main process sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from dpal.data.process_share import Share
from dpal.errors import ProcessLost
from dpal.training.distributed.messages import ComputeClippedSum, Job, Meet
from dpal.training.distributed.remote_messages import END, ORDER, message_of, require_agreed
from dpal.training.distributed.sealed_link import SealedLink
from dpal.training.distributed.team import Sums, flat_weights


@dataclass(frozen=True, kw_only=True)
class RemoteHandle:
    """A rank that somebody started on another machine, as seen from here.

    Attributes:
      share: what it owns.
      link: to it.
      host: address of its machine.
    """

    share: Share
    link: SealedLink
    host: str

    @property
    def name(self) -> str:
        """What people call it."""
        return f"process {self.share.rank + 1} of {self.share.processes}, on {self.host},"

    def hear(self, patience: float | None) -> None:
        """Waits until it is ready.

        Raises:
          ProcessLost: it or its machine is gone, or it says nothing for so long.
          HelperRefused: it refuses, and says why.
        """
        self.take(patience)

    def take(self, patience: float | None) -> bytes:
        """Waits for what it has to give; raises what `hear` raises."""
        try:
            said, data = self.link.receive(patience)
        except (EOFError, OSError) as error:
            # The system's own time-outs have a number: nobody there acknowledges anything.
            if isinstance(error, TimeoutError) and error.errno is None:
                raise self.lost(f"has said nothing for {patience:g} s") from error
            raise self.lost("is gone") from error
        require_agreed(said, self.name)
        return data

    def tell(self, order: Meet | Job | ComputeClippedSum) -> None:
        """Sends an order; raises what `hear` raises if nobody is there."""
        self.give(*message_of(order))

    def give(self, said: dict[str, object], data: bytes) -> None:
        """Sends a message; raises what `hear` raises if nobody is there."""
        try:
            self.link.send(said, data)
        except OSError:
            self.await_end(1.0)  # it may have said why
            raise self.lost("is gone") from None

    def look(self) -> None:
        """Raises why it ended, if it has."""
        if self.link.is_gone():
            self.hear(0.0)

    def await_end(self, seconds: float) -> None:
        """Raises why it ended, if it does so within some seconds."""
        deadline = time.monotonic() + seconds
        while self.link.poll(max(0.0, deadline - time.monotonic())):
            self.hear(1.0)

    def dismiss(self) -> None:
        """Tells it that all is trained; it waits there for the next training."""
        with suppress(OSError):
            self.link.send({ORDER: END})

    def end(self) -> None:
        """Hangs up: it does, too, and waits there for the next training."""
        self.link.close()

    def lost(self, how: str) -> ProcessLost:
        """Says what became of it."""
        rank, processes = self.share.rank, self.share.processes
        return ProcessLost(rank, processes, f"{how} (on {self.host}, or on the way there)")


class SealedSums:
    """Vectors of this machine's ranks, and through sealed links those of other machines.

    Nothing of them can be read or altered on the way, whatever the network is.
    """

    def __init__(
        self, here: Sums | None, elsewhere: Sequence[RemoteHandle], *, patience: float
    ) -> None:
        """Opens nothing.

        Args:
          here: ranks of this machine; None where this one is alone.
          elsewhere: ranks of other machines.
          patience: seconds that a sum may take on its way.
        """
        self._here, self._elsewhere, self._patience = here, elsewhere, patience

    def share_weights(self, model: nn.Module, *, watch: Callable[[], None]) -> None:
        """Gives rank 0's trained weights to everyone, exactly as they are."""
        flat = flat_weights(model).cpu().numpy().tobytes()
        for helper in self._elsewhere:
            helper.give({}, flat)
        if self._here is not None:
            self._here.share_weights(model, watch=watch)

    def add_up(
        self, vector: NDArray[np.float64], *, watch: Callable[[], None]
    ) -> NDArray[np.float64]:
        """Sums the vectors of all ranks in float64, always in the same order."""
        total = vector.copy() if self._here is None else self._here.add_up(vector, watch=watch)
        for helper in self._elsewhere:
            theirs = np.frombuffer(helper.take(self._patience), np.float64)
            if theirs.shape != total.shape:
                raise helper.lost("sent a sum of another length")
            total = total + theirs
        return total

    def close(self) -> None:
        """Lets go of the others without waiting for them."""
        if self._here is not None:
            self._here.close()
