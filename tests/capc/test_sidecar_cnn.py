"""A small net between three processes, in an environment with spu; skipped where there is none."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from dpal.capc.certificate_authority import (
    AUTHORITY,
    CERTIFICATE,
    REQUEST,
    PartyRole,
    enrol,
    make_authority,
    make_key,
    requested,
)
from dpal.capc.precomputed_shares import read_shares
from dpal.capc.sidecar_cnn import plain_bits, shapes_of
from dpal.runs.sites_parties import read_answers
from flows.cli.capc_cnn import SPU
from tests.capc.parties import Authority
from tests.capc.test_commands import party as running_party
from tests.capc.test_commands import wait_for
from tests.flows.calling import call

QUERIES, LABELS = 12, 7
ROLES = {"querier": PartyRole.QUERIER, "site": PartyRole.SITE, "guardian": PartyRole.GUARDIAN}

needs_spu = pytest.mark.skipif(
    not os.environ.get(SPU), reason=f"NO SPU: set {SPU} to the Python of its environment"
)


def random_net(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: rng.normal(0, 0.3, shape).astype(np.float32)
            for name, shape in shapes_of(LABELS).items()}  # fmt: skip


def test_plain_bits_are_those_of_torch():
    rng = np.random.default_rng(1)
    net, images = random_net(rng), rng.random((QUERIES, 28, 28)).astype(np.float32)
    held = {name: torch.from_numpy(array) for name, array in net.items()}
    hidden = torch.from_numpy(images)[:, None]
    for number in (1, 2):
        hidden = torch.relu(torch.nn.functional.conv2d(
            hidden, held[f"conv_{number}"], held[f"bias_{number}"], stride=2))  # fmt: skip
    numbers = hidden.flatten(1) @ held["dense"].T + held["bias_3"]
    bits = plain_bits(net, images)
    assert (bits == (numbers >= 0).numpy()).all() and 0.1 < bits.mean() < 0.9


def parties(place: Path, *, stranger: str = "", seed: int = 2) -> dict[str, Path]:
    """Settings of all three, with keys; a stranger's certificate is of another authority."""
    net: dict[str, Any] = random_net(np.random.default_rng(seed))
    np.savez(place / "net.npz", **net)
    images = np.random.default_rng(2).random((QUERIES, 28, 28)).astype(np.float32)
    np.savez(place / "images.npz", images=images)
    for name in ("ours", "other"):
        make_authority(place / name, name)
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for bound in (one, two, three):
            bound.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{bound.getsockname()[1]}" for bound in (one, two, three)]
    files = {"querier": "images.npz", "site": "net.npz"}
    made = {}
    for party, role in ROLES.items():
        keys = place / party
        make_key(keys, party if party != "querier" else "asker", role)
        authority = place / ("other" if party == stranger else "ours")
        request = keys / REQUEST
        shutil.copy(enrol(authority, request, requested(request)[2]), keys / CERTIFICATE)
        shutil.copy(authority / AUTHORITY, keys / AUTHORITY)
        values: dict[str, Any] = {
            "party": party, "addresses": addresses, "queries": QUERIES, "labels": LABELS,
            "keys": party,
        }  # fmt: skip
        if party in files:
            values |= {"input": files[party], "output": f"{party}-shares.npz"}
        made[party] = place / f"{party}.yaml"
        made[party].write_text(yaml.safe_dump(values), encoding="utf-8")
    return made


def started(file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "capc", "cnn", "--config", str(file)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run_all(files: dict[str, Path]) -> dict[str, tuple[int | None, str]]:
    """Code and complaint of each party's command."""
    begun = {party: started(file) for party, file in files.items()}
    return {party: (process.wait(240), process.communicate()[1])
            for party, process in begun.items()}  # fmt: skip


@pytest.mark.slow
@needs_spu
def test_shares_add_up_to_what_the_net_says_and_each_is_uniform(tmp_path):
    seen = []
    for _ in range(2):
        files = parties(tmp_path)
        found = run_all(files)
        assert {code for code, _ in found.values()} == {0}, found
        shares = [np.load(tmp_path / f"{party}-shares.npz")["shares"] for party in files_of()]
        with np.load(tmp_path / "net.npz") as net, np.load(tmp_path / "images.npz") as images:
            bits = plain_bits({name: net[name] for name in net.files}, images["images"])
        assert (shares[0] + shares[1] == bits).all() and 0.1 < bits.mean() < 0.9
        assert_one_evaluation(tmp_path)
        assert {run for run, _ in run_all({"site": files["site"]}).values()} == {2}, "it is there"
        for party in files_of():
            (tmp_path / f"{party}-shares.npz").unlink()
        seen += shares
        for party in ("ours", "other", *ROLES):
            shutil.rmtree(tmp_path / party)
    drawn = np.concatenate([share.ravel() for share in seen])
    assert np.unique(drawn).size == drawn.size, "a mask serves once"
    # 21,504 bits of uniform numbers: half of them set, within six deviations.
    ones = np.unpackbits(drawn.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 6 * 0.5 / np.sqrt(64 * drawn.size)


@pytest.mark.slow
@needs_spu
def test_sites_vote_by_the_shares_that_their_nets_ended_with(tmp_path):
    """All by commands: three sites evaluated, then a vote; noise of a fifth of a vote in all."""
    names = ("north", "east", "south")
    nets: dict[str, np.ndarray] = {}
    told: dict[str, str] = {}
    for name in names:
        place = tmp_path / name
        place.mkdir()
        files = parties(place, seed=len(nets))
        found = run_all(files)
        assert {code for code, _ in found.values()} == {0}, found
        with np.load(place / "net.npz") as net, np.load(place / "images.npz") as images:
            nets[name] = plain_bits({one: net[one] for one in net.files}, images["images"])
        (place / "shares").mkdir()
        (place / "site-shares.npz").rename(place / "shares" / "first.npz")
        told[name] = str(place / "querier-shares.npz")
    # The vote's parties, whose names an authority of its own knows.
    authority = Authority.made(tmp_path / "authority")
    for name, role in (("keeper", PartyRole.GUARDIAN), ("ministry", PartyRole.QUERIER),
                       *((name, PartyRole.SITE) for name in names)):  # fmt: skip
        authority.enrolled(name, role)
    with socket.socket() as found_port:
        found_port.bind(("127.0.0.1", 0))
        port = found_port.getsockname()[1]

    def written(file: str, **values: Any) -> Path:
        (tmp_path / file).write_text(yaml.safe_dump(values), encoding="utf-8")
        return tmp_path / file

    written("vote.yaml", name="nets", guardian="keeper", address=f"127.0.0.1:{port}",
            sites=list(names), labels=LABELS, queries=QUERIES, mode="shares", sigma=0.2,
            epsilon=9_000.0, delta=1e-4)  # fmt: skip
    ids = [f"image-{number}" for number in range(QUERIES)]
    pq.write_table(pa.table({"id": ids}), tmp_path / "q.parquet")
    runtime = {"artifacts": "a", "anchors": str(tmp_path / "anchors")}
    guardian = written("guardian.yaml", vote="vote.yaml", keys="keeper-keys", runtime=runtime)
    sites = [written(f"{name}.yaml", vote="vote.yaml", keys=f"{name}-keys", site=name,
                     shares=f"{name}/shares") for name in names]  # fmt: skip
    asker = written("ministry.yaml", vote="vote.yaml", keys="ministry-keys", querier="ministry",
                    queries="q.parquet", answers="answers.parquet", shares=told)  # fmt: skip
    with contextlib.ExitStack() as running:
        running.enter_context(running_party("guardian", guardian))
        for site in sites:
            running.enter_context(running_party("site", site))
        wait_for(guardian.with_suffix(".log"), "(3 of 3 sites)")
        done = call("capc", "query", "--config", str(asker))
        assert done.returncode == 0, done.stderr
    answers = read_answers(tmp_path / "answers.parquet")
    votes = np.sum([nets[name] for name in names], axis=0)
    released = np.array([answers[name].labels for name in ids])
    # Noise changes a count with a chance of 4 %: one of 84 answers in five is beyond 1e-10.
    assert (released == (2 * votes > len(names))).mean() > 0.8
    assert len(np.unique(votes)) > 2, "sites disagree"


def files_of() -> tuple[str, str]:
    return "querier", "site"


def assert_one_evaluation(place: Path) -> None:
    asker, site = (read_shares(place / f"{party}-shares.npz") for party in files_of())
    assert asker.evaluation == site.evaluation
    assert site.queries is None and asker.queries is not None
    assert len(np.unique(asker.queries, axis=0)) == QUERIES
    assert all((place / f"{party}-shares.npz").stat().st_mode & 0o077 == 0 for party in files_of())
    assert not list(place.glob(".*.part"))


@pytest.mark.slow
@needs_spu
def test_two_evaluations_at_once_with_one_key_folder_do_not_mix(tmp_path):
    """Who asks has one key, and is evaluated by two sites."""
    names = ("north", "east")
    both: dict[str, Path] = {}
    for number, name in enumerate(names):
        (tmp_path / name).mkdir()
        files = parties(tmp_path / name, seed=number)
        if number:
            own = tmp_path / name / "querier.yaml"
            values = yaml.safe_load(own.read_text(encoding="utf-8"))
            shutil.rmtree(tmp_path / name / "querier")
            keys = tmp_path / names[0] / "querier"
            for file in ("ours", "other"):  # one authority for both
                shutil.rmtree(tmp_path / name / file)
            own.write_text(yaml.safe_dump({**values, "keys": str(keys)}), encoding="utf-8")
            for party in ("site", "guardian"):
                shutil.rmtree(tmp_path / name / party)
                shutil.copytree(tmp_path / names[0] / party, tmp_path / name / party)
        both |= {f"{name} {party}": file for party, file in files.items()}
    found = run_all(both)
    assert {code for code, _ in found.values()} == {0}, found
    for name in names:
        assert_one_evaluation(tmp_path / name)
        with np.load(tmp_path / name / "net.npz") as net:
            bits = plain_bits(dict(net), np.load(tmp_path / name / "images.npz")["images"])
        shares = [np.load(tmp_path / name / f"{one}-shares.npz")["shares"] for one in files_of()]
        assert (shares[0] + shares[1] == bits).all()


@pytest.mark.slow
@pytest.mark.timing
@needs_spu
def test_a_party_that_is_killed_keeps_nobody_for_long(tmp_path):
    files = parties(tmp_path)
    begun = {party: started(file) for party, file in files.items()}
    for _ in range(600):  # until all are linked: then their connections are there
        sidecars = [child for process in begun.values() for child in
                    psutil.Process(process.pid).children(recursive=True)]  # fmt: skip
        if len(sidecars) >= 3 and all(one.net_connections() for one in sidecars):
            break
        time.sleep(0.05)
    site = psutil.Process(begun["site"].pid).children(recursive=True)
    for one in site:
        one.kill()
    began = time.monotonic()
    told = {party: (process.wait(120), process.communicate()[1])
            for party, process in begun.items()}  # fmt: skip
    assert time.monotonic() - began < 100
    for party in ("querier", "site"):
        code, said = told[party]
        assert code == 2 and len(said.strip().splitlines()) == 1 and "#" not in said, told
    assert not list(tmp_path.glob("*-shares.npz"))


@pytest.mark.slow
@needs_spu
def test_a_certificate_of_another_authority_ends_it(tmp_path):
    found = run_all(parties(tmp_path, stranger="guardian"))
    assert {code for code, _ in found.values()} == {2}, found
    assert all(len(said.strip().splitlines()) == 1 for _, said in found.values()), found
    assert not list(tmp_path.glob("*-shares.npz"))


@pytest.mark.parametrize("there", [False, True], ids=["no file", "no program"])
def test_without_its_environment_it_is_one_sentence(tmp_path, monkeypatch, there):
    (tmp_path / "python").write_text("#!/bin/sh\n")  # which nobody may run
    monkeypatch.setenv(SPU, str(tmp_path / "python") if there else "")
    done = call("capc", "cnn", "--config", str(parties(tmp_path)["guardian"]))
    assert done.returncode == 2 and SPU in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
