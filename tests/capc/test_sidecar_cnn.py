"""A small net between three processes, in an environment with spu; skipped where there is none."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from dpal.capc.certificates import (
    AUTHORITY,
    CERTIFICATE,
    REQUEST,
    PartyRole,
    enrol,
    make_authority,
    make_key,
    requested,
)
from dpal.capc.sidecar_cnn import plain_bits, shapes_of
from flows.cli.capc_cnn import SPU
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


def parties(place: Path, *, stranger: str = "") -> dict[str, Path]:
    """Settings of all three, with keys; a stranger's certificate is of another authority."""
    rng = np.random.default_rng(2)
    net: dict[str, Any] = random_net(rng)
    np.savez(place / "net.npz", **net)
    np.savez(place / "images.npz", images=rng.random((QUERIES, 28, 28)).astype(np.float32))
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


def run_all(files: dict[str, Path]) -> dict[str, tuple[int | None, str]]:
    """Code and complaint of each party's command."""
    begun = {
        party: subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "capc", "cnn", "--config", str(file)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for party, file in files.items()
    }  # fmt: skip
    return {party: (process.wait(240), process.communicate()[1])
            for party, process in begun.items()}  # fmt: skip


@pytest.mark.slow
@needs_spu
def test_shares_add_up_to_what_the_net_says_and_each_is_uniform(tmp_path):
    seen = []
    for _ in range(2):
        found = run_all(parties(tmp_path))
        assert {code for code, _ in found.values()} == {0}, found
        shares = [np.load(tmp_path / f"{party}-shares.npz")["shares"] for party in files_of()]
        with np.load(tmp_path / "net.npz") as net, np.load(tmp_path / "images.npz") as images:
            bits = plain_bits({name: net[name] for name in net.files}, images["images"])
        assert (shares[0] + shares[1] == bits).all() and 0.1 < bits.mean() < 0.9
        seen += shares
        for party in ("ours", "other", *ROLES):
            shutil.rmtree(tmp_path / party)
    drawn = np.concatenate([share.ravel() for share in seen])
    assert np.unique(drawn).size == drawn.size, "a mask serves once"
    # 21,504 bits of uniform numbers: half of them set, within six deviations.
    ones = np.unpackbits(drawn.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 6 * 0.5 / np.sqrt(64 * drawn.size)


def files_of() -> tuple[str, str]:
    return "querier", "site"


@pytest.mark.slow
@needs_spu
def test_a_certificate_of_another_authority_ends_it(tmp_path):
    found = run_all(parties(tmp_path, stranger="guardian"))
    assert {code for code, _ in found.values()} == {2}, found
    assert all(len(said.strip().splitlines()) == 1 for _, said in found.values()), found
    assert not list(tmp_path.glob("*-shares.npz"))


def test_without_its_environment_it_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv(SPU, raising=False)
    done = call("capc", "cnn", "--config", str(parties(tmp_path)["guardian"]))
    assert done.returncode == 2 and SPU in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
