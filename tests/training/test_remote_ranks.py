"""Ranks of other machines train by the law of one; whoever does not belong there is refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from dpal.errors import ConfigError, HelperRefused, ParameterError, ProcessLost
from dpal.training.distributed import remote_worker
from dpal.training.distributed.remote_handle import SealedSums
from dpal.training.distributed.rendezvous import RemoteRanks, Rendezvous
from dpal.training.distributed.team import Meeting, Team, network_store
from dpal.training.distributed.worker_pool import WorkerPool
from tests.conftest import ROOT
from tests.training.crews import BATCH, RECORDS, Failing, Greedy, Refusing, gradients, phase
from tests.training.elsewhere import ADAPTIVE, MOVING, RemoteHelper, crew_elsewhere, two_layers
from tests.variants import quick_and_slow

SILENT = 1e-6  # noise multiplier: coins and sums show through
EVERYONE = phase(6, noise=SILENT, old=1.0, new=1.0)


@pytest.mark.parametrize(
    ("processes", "helpers", "private"),
    quick_and_slow(
        [(1, 1, True), (1, 2, False)],
        [(*ranks, private) for ranks in ((1, 1), (1, 2), (2, 2)) for private in (False, True)],
    ),
    ids=lambda value: ("sealed", "gloo")[value] if isinstance(value, bool) else str(value),
)
def test_with_everyone_in_every_batch_sums_are_those_of_one_process(
    tmp_path, private, processes, helpers
):
    """Through steps large enough that stale weights or bounds elsewhere would show."""
    with crew_elsewhere(tmp_path, helpers, processes=processes, private=private) as (crew, at, _):
        others = [
            RemoteHelper(at, number, network=two_layers, spec=MOVING, recipe=ADAPTIVE)
            for number in range(helpers)
        ]
        require_sums_of_one_process(crew)
    assert [other.join().error for other in others] == [None] * helpers
    ranks = [other.shares[0].rank for other in others]
    assert ranks == list(range(processes, processes + helpers))


@pytest.mark.slow
@pytest.mark.parametrize("private", [False, True], ids=["sealed", "gloo"])
def test_sums_with_what_torchrun_starts_are_those_of_one_process(tmp_path, private):
    with crew_elsewhere(tmp_path, 2, private=private, coming=120) as (crew, at, _):
        torchrun = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--rdzv-backend",
            "static",
            "--master-addr",
            "127.0.0.1",
            "--master-port",
            "0",
        ]
        helping = subprocess.Popen(
            [*torchrun, "-m", "tests.training.elsewhere", *map(str, at)], cwd=ROOT
        )  # fmt: skip
        try:
            require_sums_of_one_process(crew)
        except BaseException:
            helping.kill()
            raise
    assert helping.wait(60) == 0


def require_sums_of_one_process(crew: WorkerPool) -> None:
    models = [two_layers(), two_layers()]
    released = [
        gradients(EVERYONE, helped, model=model, spec=MOVING, recipe=ADAPTIVE)
        for model, helped in zip(models, (None, crew), strict=True)
    ]
    # Sums over C; a step divides them by BATCH.
    assert np.abs(released[0][0] - released[1][0]).max() / BATCH < 1e-6
    assert np.abs(released[0] - released[1]).max() / BATCH < 1e-5  # weights differ by then
    start, alone = (
        nn.utils.parameters_to_vector(model.parameters()) for model in (two_layers(), models[0])
    )
    assert (alone - start).abs().max() > 0.05


@pytest.mark.parametrize("planted", ["nothing of elsewhere", "twice what is elsewhere"])
def test_another_sum_would_be_seen(tmp_path, monkeypatch, planted):
    honest = SealedSums.add_up
    factor = 0.0 if planted.startswith("nothing") else 2.0

    def dishonest(self, vector, *, watch):
        return vector + factor * (honest(self, vector, watch=watch) - vector)

    monkeypatch.setattr(SealedSums, "add_up", dishonest)
    with crew_elsewhere(tmp_path, 1) as (crew, at, _):
        RemoteHelper(at, 0)
        wrong = gradients(EVERYONE, crew)
    assert np.abs(wrong - gradients(EVERYONE)).max() > 0.5


def refusal(helper: RemoteHelper) -> str | None:
    error = helper.error
    return error.fault if isinstance(error, HelperRefused) else None


def test_who_does_not_belong_is_told_why_and_the_training_goes_on(tmp_path):
    with crew_elsewhere(tmp_path, 1) as (crew, at, told):
        stranger = RemoteHelper(at, 0, key=bytes(32)).join()
        older = RemoteHelper(at, 0, version="0.0.1").join()
        another = RemoteHelper(at, 1).join()
        with socket.create_connection(at) as scanner:
            scanner.sendall(b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n" + bytes(64))
            scanner.settimeout(10)
            with suppress(ConnectionResetError):
                while scanner.recv(1024):
                    pass
        first = RemoteHelper(at, 0)

        def second_comes(done: int) -> None:
            if done == 1:
                seconds.append(RemoteHelper(at, 0).join())

        seconds: list[RemoteHelper] = []
        released = gradients(EVERYONE, crew, on_step=second_comes)
    assert [refusal(one) for one in (stranger, older, another, *seconds)] == [
        "key", "version", "number", "taken",
    ]  # fmt: skip
    assert first.join().error is None
    assert len(released) == EVERYONE.steps
    assert len(told) == 5, told  # where it waits, and once for each fault


@pytest.mark.parametrize("private", [False, True], ids=["sealed", "gloo"])
def test_a_helper_that_goes_ends_the_step_in_a_sentence(tmp_path, private):
    with crew_elsewhere(tmp_path, 2, private=private) as (crew, at, _):
        stays, goes = RemoteHelper(at, 0), RemoteHelper(at, 1)
        seen: list[int] = []

        def on_step(done: int) -> None:
            seen.append(done)
            if done == 3:
                goes.link.close()

        begun = time.monotonic()
        with pytest.raises(ProcessLost) as lost:
            gradients(replace_steps(50), crew, on_step=on_step)
        assert time.monotonic() - begun < 15
        with pytest.raises(ParameterError, match="has ended"):
            gradients(EVERYONE, crew)
    assert (lost.value.rank, lost.value.processes, seen) == (2, 3, [1, 2, 3])
    goes.thread.join(20)
    assert isinstance(stays.join().error, EOFError | OSError | type(None))


class GivenUp(Exception):
    """Waiting makes no sense any more."""


def test_who_says_nothing_is_not_waited_for_once_it_is_given_up():
    """As when a network was cut: nothing comes, and nothing fails."""
    store, meeting = network_store("127.0.0.1", Meeting(ranks=2))
    silent: list[Team] = []
    here = torch.device("cpu")
    joining = threading.Thread(
        target=lambda: silent.append(Team(1, meeting, device=here, patience=30))
    )
    joining.start()
    team = Team(0, meeting, device=here, patience=30, store=store)
    joining.join(30)
    begun = time.monotonic()

    def watch() -> None:
        if time.monotonic() > begun + 0.2:
            raise GivenUp

    with pytest.raises(GivenUp):
        team.add_up(np.zeros(10), watch=watch)
    team.close()
    del team
    assert time.monotonic() - begun < 10
    silent[0].close()


def test_who_does_not_come_is_named(tmp_path):
    with crew_elsewhere(tmp_path, 2, coming=0.5) as (crew, at, _):
        waits = RemoteHelper(at, 0)
        with pytest.raises(ProcessLost) as lost:
            gradients(EVERYONE, crew)
    assert (lost.value.rank, lost.value.processes) == (2, 3)
    assert waits.join().error is not None


def test_who_died_before_all_were_there_is_replaced(tmp_path):
    with crew_elsewhere(tmp_path, 1) as (crew, at, _):
        early = RemoteHelper(at, 0)
        while not hasattr(early, "link"):
            time.sleep(0.02)
        time.sleep(0.2)
        early.link.close()
        other = RemoteHelper(at, 0)
        assert len(gradients(EVERYONE, crew)) == EVERYONE.steps
    assert other.join().error is None


@pytest.mark.parametrize(
    ("load", "fault"),
    [(Refusing(), "data"), (Failing(), "failed"), (Greedy(), "parameter")],
    ids=lambda value: type(value).__name__,
)
def test_what_a_helper_cannot_do_is_said_on_both_sides(tmp_path, load, fault):
    with crew_elsewhere(tmp_path, 1) as (crew, at, _):
        helper = RemoteHelper(at, 0, load_share=load)
        with pytest.raises(HelperRefused) as refused:
            gradients(EVERYONE, crew)
    assert refused.value.fault == fault
    assert "somebody" not in str(refused.value)
    assert helper.join().error is not None


def test_nothing_that_comes_over_the_network_is_unpickled(tmp_path, monkeypatch):
    """Neither here nor there; local helpers are told by pickles, and there is none."""
    monkeypatch.setattr("pickle.loads", None)
    model = nn.Linear(RECORDS, 2, bias=False)
    monkeypatch.setattr("dpal.training.distributed.worker_pool.copy_to", lambda *_: model)
    with crew_elsewhere(tmp_path, 1) as (crew, at, _):
        helper = RemoteHelper(at, 0)
        gradients(EVERYONE, crew, model=model)
    assert helper.join().error is None


def test_sums_cannot_be_read_on_the_way(tmp_path, monkeypatch):
    passed: list[bytes] = []
    read = socket.socket.recv

    def overheard(self, *arguments):
        data = read(self, *arguments)
        passed.append(data)
        return data

    class Overheard(socket.socket):
        recv = overheard

    monkeypatch.setattr(socket, "socket", Overheard)
    sums: list[bytes] = []
    honest = remote_worker.LinkedSums.add_up

    def kept(self, vector, *, watch):
        sums.append(vector.tobytes())
        return honest(self, vector, watch=watch)

    monkeypatch.setattr(remote_worker.LinkedSums, "add_up", kept)
    with crew_elsewhere(tmp_path, 1) as (crew, at, _):
        helper = RemoteHelper(at, 0)
        gradients(EVERYONE, crew)
    assert helper.join().error is None
    everything = b"".join(passed)
    assert len(everything) > len(sums) * len(sums[0]) > 0
    assert not any(sum_[:64] in everything for sum_ in sums)


@pytest.mark.parametrize(
    ("host", "refused"),
    [("127.0.0.1", False), ("192.0.2.1", None), ("8.8.8.8", True), ("0.0.0.0", True)],
)
def test_torch_distributed_listens_in_private_networks_alone(host, refused):
    if refused:
        with pytest.raises(ConfigError):
            network_store(host, Meeting(ranks=2))
    elif refused is None:  # private, and none of this machine
        with pytest.raises(OSError):
            network_store(host, Meeting(ranks=2))
    else:
        store, meeting = network_store(host, Meeting(ranks=2))
        assert meeting.address == (host, store.port)
        lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        listening = {line[1] for line in lines if line[3] == "0A"}
        assert f"0100007F:{store.port:04X}" in listening
        assert f"00000000:{store.port:04X}" not in listening


def replace_steps(steps: int):
    return replace(EVERYONE, training=replace(EVERYONE.training, steps=steps))


def test_an_address_of_another_machine_is_refused(tmp_path):
    remote = RemoteRanks(number=1, address=("192.0.2.1", 29400), key=os.urandom(32),
                         order=lambda share: ({}, b""))  # fmt: skip
    with pytest.raises(ConfigError) as refused:
        Rendezvous(remote)
    assert refused.value.setting == "runtime.rendezvous"
