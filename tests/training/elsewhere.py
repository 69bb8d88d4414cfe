"""Helpers that come over the network, as threads of this process, to train on records of tests."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import nn

from dpal.data.process_share import Share
from dpal.errors import DpalError
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.phases_json import read_phases
from dpal.planning.training_recipe import Clipping, ClippingKind, Recipe
from dpal.training.distributed.messages import Job, Loader
from dpal.training.distributed.remote_messages import HelperGreeting
from dpal.training.distributed.remote_worker import OpenedShare, help_training, join_training
from dpal.training.distributed.rendezvous import RemoteRanks
from dpal.training.distributed.worker_pool import WorkerPool
from dpal.training.train_phase import Work
from tests.training.crews import LOAD, RECORDS, STILL

KEY = bytes(range(32))


class NoMore(Exception):
    """A helper of a test has waited long enough."""


class RemoteHelper:
    """A helper, and what became of it."""

    def __init__(
        self,
        address: tuple[str, int],
        number: int,
        *,
        load_share: Loader = LOAD,
        network: Callable[[], nn.Module] = lambda: nn.Linear(RECORDS, 2, bias=False),
        spec: OptimizerSpec = STILL,
        recipe: Recipe | None = None,
        key: bytes = KEY,
        version: str = metadata.version("dpal"),
    ) -> None:
        self.error: BaseException | None = None
        self.shares: list[Share] = []
        self._network, self._spec, self._recipe = network, spec, recipe or Recipe()
        self._load_share = load_share
        greeting = HelperGreeting(number=number, version=version)
        self._left = threading.Event()
        work = partial(self._work, address, key, greeting)
        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def join(self) -> RemoteHelper:
        """Waits for its end."""
        self._left.set()
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self

    def _work(self, address: tuple[str, int], key: bytes, greeting: HelperGreeting) -> None:
        try:
            self.link = join_training(address, key, greeting, wait=self._wait)
            help_training(self.link, self._open, device=torch.device("cpu"))
        except (DpalError, OSError, EOFError, NoMore) as error:
            self.error = error
        except Exception as error:  # as of a process that dies by it
            self.error = error

    def _wait(self) -> None:
        if self._left.wait(0.05):
            raise NoMore

    def _open(self, said: Mapping[str, Any], rows: bytes, share: Share) -> OpenedShare:
        assert (said["told"], rows) == ("by the test", b"rows")
        self.shares.append(share)
        return OpenedShare(labeled=self._load_share(share=share), job=self._job)

    def _job(self, said: Mapping[str, Any], weights: bytes) -> Job:
        model = self._network()
        model.load_state_dict(load(weights))
        (phase,) = read_phases(said["phase"])
        work = Work(
            phase=phase,
            spec=replace(self._spec, max_grad_norm=said["max_grad_norm"]),
            physical_batch=32,
            recipe=self._recipe,
            done=said["done"],
        )
        return Job(model=model, work=work)


# What torchrun starts, and the model and recipe that it trains.
MOVING = OptimizerSpec(name="sgd", learning_rate=2.0, momentum=0.0, max_grad_norm=0.1)
ADAPTIVE = Recipe(clipping=Clipping(kind=ClippingKind.ADAPTIVE, count_noise=1e-5))


def two_layers() -> nn.Module:
    """The same weights each time."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(RECORDS, 8), nn.Tanh(), nn.Linear(8, 2))


def help_by_torchrun(host: str, port: str) -> None:
    """What `torchrun -m tests.training.elsewhere HOST PORT` does in each process."""
    helper = RemoteHelper(
        (host, int(port)), int(os.environ["RANK"]), network=two_layers, spec=MOVING, recipe=ADAPTIVE
    )
    helper.thread.join(120)
    if helper.error is not None or helper.thread.is_alive():
        raise SystemExit(f"{helper.error!r}")


@contextmanager
def crew_elsewhere(
    scratch: Path, helpers: int, *, processes: int = 1, private: bool = False, coming: float = 30.0,
    patience: float = 20.0,
) -> Iterator[tuple[WorkerPool, tuple[str, int], list[str]]]:  # fmt: skip
    """A crew with ranks of other machines, where they find it, and what it tells people."""
    told: list[str] = []
    remote = RemoteRanks(
        number=helpers,
        address=("127.0.0.1", 0),
        key=KEY,
        order=lambda share: ({"told": "by the test"}, b"rows"),
        private=private,
        coming=coming,
        say=told.append,
    )
    pool = WorkerPool(LOAD, processes=processes, scratch=scratch, remote=remote, patience=patience)
    with pool as crew:
        assert crew._rendezvous is not None
        yield crew, crew._rendezvous.place, told


if __name__ == "__main__":
    help_by_torchrun(*sys.argv[1:])
