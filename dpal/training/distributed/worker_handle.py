"""A helper as the main process sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe

from dpal.data.process_share import Share
from dpal.errors import DpalError, ProcessLost
from dpal.training.distributed.messages import LoadRecords, receive_message, send

# A fresh interpreter and no fork: nothing of this process, least of all a stream of bits,
# may live on in another one. Where this one finds its modules, that one does.
_FRESH = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from dpal.training.distributed.worker import run_worker; run_worker(int(sys.argv[2]))"
)


@dataclass(frozen=True, kw_only=True)
class WorkerHandle:
    """Another process, as seen from here."""

    share: Share
    process: subprocess.Popen[bytes]
    link: Connection

    def hear(self, patience: float | None) -> None:
        """Waits until it is ready.

        Raises:
          ProcessLost: it ended, or says nothing for so long.
          DpalError: it refuses, and says why.
        """
        try:
            if not self.link.poll(patience):
                raise self.lost(f"has said nothing for {patience:g} s")
            said = receive_message(self.link)
        except (EOFError, OSError):
            raise self.lost(self._ending()) from None
        if isinstance(said, DpalError):
            raise said

    def tell(self, order: object) -> None:
        """Sends an order; raises what `hear` raises if nobody is there."""
        try:
            send(self.link, order)
        except OSError:
            self.drain()

    def look(self) -> None:
        """Raises why it ended, if it has."""
        if self.process.poll() is not None:
            self.drain()

    def await_end(self, seconds: float) -> None:
        """Raises why it ended, if it does so within some seconds."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
            self.drain()

    def end(self) -> None:
        """Ends it at once: it holds nothing that anybody needs."""
        self.process.kill()
        self.process.wait()
        self.link.close()

    def drain(self) -> None:
        """Raises the reason why it ended, or ProcessLost."""
        while True:
            self.hear(0.0)

    def _ending(self) -> str:
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "hung up"
        return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"

    def lost(self, how: str) -> ProcessLost:
        """Says what became of it."""
        return ProcessLost(self.share.rank, self.share.processes, how)


def start_worker(start: LoadRecords) -> WorkerHandle:
    """Starts a helper and gives it its first order.

    Raises:
      ProcessLost: the system has no room for it.
    """
    ours, theirs = Pipe()
    path = json.dumps([str(entry) for entry in sys.path])
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _FRESH, path, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt from the terminal is for this process
        )
    except OSError as error:
        how = f"could not be started ({error.strerror})"
        raise ProcessLost(start.share.rank, start.share.processes, how) from error
    finally:
        theirs.close()
    helper = WorkerHandle(share=start.share, process=process, link=ours)
    helper.tell(start)
    return helper
