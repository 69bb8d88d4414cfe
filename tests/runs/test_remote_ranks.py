"""Campaigns that processes elsewhere help to train, if they have the same settings and files."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

import dpal
from dpal.certificate.check_outcome import any_failed
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.config.guarded_settings import guarded_settings
from dpal.config.runtime import RuntimeConfig
from dpal.config.watch import parse_watch
from dpal.data.labeled_records import LabeledSet, load_labeled, load_labeled_rows
from dpal.data.process_share import Share
from dpal.errors import ConfigError, DpalError, HelperRefused
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.runs.kinds import parse_any
from dpal.runs.open_ledger import rank_key_file
from dpal.runs.open_sources import open_pool_alone
from dpal.runs.remote_ranks import RankHelper
from dpal.training.distributed.rank_key import write_rank_key
from tests.conftest import command, mislabel, small_values, write_blobs
from tests.flows.watching import watch_values
from tests.runs.test_sweep_names import PUBLIC_VALUES, TEACHERS
from tests.variants import quick_and_slow

pytestmark = pytest.mark.usefixtures("workplace")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def far_values(**changes: Any) -> dict[str, Any]:
    place = {"runtime__rendezvous": f"127.0.0.1:{free_port()}", "runtime__helpers": 1}
    return small_values(**{"schedule__queries": [40], **place, **changes})


class Helping:
    """A helper, as a thread of this process, for some phases."""

    def __init__(self, config: CampaignConfig, phases: int = 1) -> None:
        self.error: DpalError | None = None
        self.said: list[str] = []
        self.loaded: list[Share] = []
        self._helper = RankHelper(config=config, number=0, say=self.said.append)
        self.thread = threading.Thread(target=self._work, args=(phases,), daemon=True)
        self.thread.start()

    def _work(self, phases: int) -> None:
        try:
            for _ in range(phases):
                self._helper.serve(rank_key_file(), once=True)
        except DpalError as error:
            self.error = error


@pytest.fixture
def key():
    """The key is there before anybody looks for it."""
    write_rank_key(rank_key_file())


CHANGES: dict[str, dict[str, Any]] = {
    "visible": {},
    "hidden": {
        "privacy": {"selection": "hidden"},
        "schedule__queries": [150],
        "schedule__initial": 150,
    },
    "self-training": {
        "data__normalisation": {"kind": "validation"},
        "self_training": {"epochs": 2},
    },
    "gloo": {
        "acquisition": "random",
        "runtime__processes": 2,
        "runtime__private_network": True,
    },
}


@pytest.mark.parametrize("mode", quick_and_slow(["visible"], CHANGES))
def test_a_campaign_trains_with_a_helper_elsewhere(key, mode, monkeypatch):
    """Every labeled record is loaded by one of the processes, in each phase."""
    loaded: list[tuple[Share, LabeledSet]] = []

    def keeping(load: Callable[..., LabeledSet]) -> Callable[..., LabeledSet]:
        def kept(*arguments: Any, **options: Any) -> LabeledSet:
            labeled = load(*arguments, **options)
            loaded.append((labeled.share, labeled))
            return labeled

        return kept

    monkeypatch.setattr("dpal.runs.remote_ranks.load_labeled_rows", keeping(load_labeled_rows))
    config = parse_config(far_values(**CHANGES[mode]))
    phases = 3 if config.self_training else 2
    helping = Helping(config, phases)
    folder = dpal.run(config)
    helping.thread.join(30)
    assert helping.error is None and not helping.thread.is_alive()
    assert len(folder.finished_phases()) == phases
    model = folder.phase(phases - 1).model
    checks = dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite"), model=model)
    assert not any_failed(checks)
    processes = config.runtime.processes + 1
    assert [share for share, _ in loaded] == [
        Share(rank=processes - 1, processes=processes)
    ] * phases
    source = open_pool_alone(config)
    for number, (share, labeled) in enumerate(loaded):
        whole = load_labeled(source, folder.phase(number).pool)
        other = load_labeled(source, folder.phase(number).pool, share=share)
        assert 0 < len(labeled.labels) < len(whole.labels)
        assert isinstance(labeled.inputs, Tensor) and isinstance(other.inputs, Tensor)
        assert torch.equal(labeled.inputs, other.inputs)
        assert np.array_equal(labeled.labels, other.labels)
        assert np.array_equal(labeled.cohorts, other.cohorts)


def spoiled(folder: Path, fault: str, values: dict[str, Any]) -> CampaignConfig:
    """Settings of a machine that is not as it should be."""
    folder.mkdir()
    for name in ("pool.parquet", "validation.parquet"):
        shutil.copy(name, folder / name)
    values = {**values, "data": {**values["data"], "pool": str(folder / "pool.parquet")}}
    if fault == "plan":
        values["privacy"] = {**values["privacy"], "epsilon": 7.5}
    elif fault == "label":
        mislabel(folder / "pool.parquet")
    elif fault == "records":
        write_blobs(folder / "pool.parquet", 600, seed=3)
    return parse_config(values)


FAULTS = {"plan": "parameter", "label": "data-changed", "records": "data-changed", "none": None}


@pytest.mark.parametrize(
    ("fault", "code"),
    quick_and_slow([("records", "data-changed"), ("none", None)], FAULTS.items()),
)
def test_a_machine_with_other_settings_or_files_is_refused(key, tmp_path, fault, code):
    values = far_values(schedule__queries=[])
    there = spoiled(tmp_path / "there", fault, values)
    helping = Helping(there)
    if code is None:
        dpal.run(parse_config(values))
        helping.thread.join(30)
        assert helping.error is None
        return
    with pytest.raises(HelperRefused) as refused:
        dpal.run(parse_config(values))
    helping.thread.join(30)
    assert refused.value.fault == code
    assert helping.error is not None and helping.error.code == code
    with closing(LedgerStore(Path("artifacts/ledger.sqlite"), create=False)) as store:
        kinds = [entry.kind for entry in store.entries("small")]
    assert EntryKind.CHECKPOINT not in kinds
    # What was reserved is charged once: with the right machine it goes on.
    second = Helping(parse_config(values))
    folder = dpal.run(parse_config(values))
    second.thread.join(30)
    assert len(folder.finished_phases()) == 1


@pytest.mark.slow
def test_torchrun_starts_helpers(tmp_path):
    values = far_values(schedule__queries=[], runtime__helpers=2)
    there = tmp_path / "there"
    there.mkdir()
    shutil.copy("pool.parquet", there)
    (there / "far.yaml").write_text(yaml.safe_dump(values))
    ranks = [command(), "ranks", "far.yaml"]
    made = subprocess.run([*ranks, "--write-key"], cwd=there, capture_output=True, check=True)
    assert str(rank_key_file()).encode() in made.stdout
    with (there / "ranks.log").open("wb") as log:
        helpers = subprocess.Popen([*ranks, "--processes", "2", "--once"], cwd=there,
                                   stdout=log, stderr=log)  # fmt: skip
    try:
        folder = dpal.run(parse_config(values))
        assert helpers.wait(60) == 0
    finally:
        helpers.kill()
        helpers.wait()
    assert len(folder.finished_phases()) == 1
    said = (there / "ranks.log").read_text()
    assert "process 2 of 3" in said and "process 3 of 3" in said


def test_a_key_of_another_machine_is_refused_by_the_command(tmp_path):
    write_rank_key(rank_key_file())
    open_to_others = tmp_path / "ranks.key"
    write_rank_key(open_to_others)
    open_to_others.chmod(0o644)
    Path("far.yaml").write_text(yaml.safe_dump(far_values()))
    run = subprocess.run(
        [command(), "ranks", "far.yaml", "--key", str(open_to_others)],
        capture_output=True, check=False, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert run.returncode == 2 and str(open_to_others).encode() in run.stderr


@pytest.mark.parametrize(
    "changes",
    [
        {"runtime__helpers": 0},
        {"runtime__rendezvous": None},
        {"runtime__rendezvous": "10.8.0.1"},
        {"runtime__rendezvous": "http://10.8.0.1:29400"},
        {"runtime__rendezvous": "somebody@10.8.0.1:29400"},
        {"search": {"learning_rate": [0.1, 0.5]}},
    ],
)
def test_settings_that_mean_no_such_training_are_refused(changes):
    with pytest.raises(ConfigError):
        parse_config(far_values(**changes))


@pytest.mark.parametrize(
    "values",
    [PUBLIC_VALUES, TEACHERS, {"kind": "watch", **watch_values()}],
    ids=["public", "pate", "watch"],
)
def test_what_is_no_single_campaign_waits_for_no_helpers(values):
    place = {"rendezvous": "127.0.0.1:29400", "helpers": 1}
    inner = "campaign" in values
    parse = parse_watch if inner else parse_any
    values = {key_: value for key_, value in values.items() if key_ != "kind" or not inner}
    parse(values)
    if inner:
        values = {**values, "campaign": {**values["campaign"], "runtime": place}}
    else:
        values = {**values, "runtime": place}
    with pytest.raises(ConfigError):
        parse(values)


def test_where_helpers_are_met_is_for_the_owner_to_allow():
    keys = {setting.key for setting in guarded_settings(parse_config(far_values()))}
    assert {"runtime.rendezvous", "runtime.private_network"} <= keys
    usual = {setting.key: setting for setting in guarded_settings(parse_config(small_values()))}
    for key_ in ("runtime.rendezvous", "runtime.private_network"):
        assert usual[key_].value in usual[key_].mark.free


def test_no_plan_knows_where_it_is_trained():
    near, far = parse_config(small_values()), parse_config(far_values(schedule__queries=[40, 40]))
    assert near.model_copy(update={"runtime": RuntimeConfig()}) == far.model_copy(
        update={"runtime": RuntimeConfig()}
    )
