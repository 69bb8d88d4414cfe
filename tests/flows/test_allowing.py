"""Runs of deployments are held to the owner's list, in every flow and before anything is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from prefect import flow as prefect_flow
from prefect.client.orchestration import get_client
from prefect.filesystems import LocalFileSystem
from prefect.flow_engine import run_flow
from prefect.results import ResultStore
from prefect.serializers import PickleSerializer
from prefect.states import Completed, Failed

from dpal.config.campaign import parse_config
from dpal.config.owner_allow_list import AllowList
from dpal.errors import AllowListError, NotAllowed, StoredResult, UnexpectedError
from flows.collect_labels import collect_labels
from flows.ops.deployments import ENTRYPOINTS, WorkPool, usual
from tasks.allow_list import ALLOW, ASKED_FOLDER, read_allow_list, write_allow_list
from tasks.training_pool.phase_files import receipt_of
from tests.conftest import allow, small_values
from tests.flows.buying import retraining_values
from tests.flows.watching import watch_values
from tests.variants import quick_and_slow

pytestmark = pytest.mark.usefixtures("orchestrated")


@pytest.fixture
def owners_file(workplace, monkeypatch) -> Path:
    """A list of this test's own; nothing is in it yet."""
    file = workplace / "owner" / "allow.yaml"
    monkeypatch.setenv(ALLOW, str(file))
    return file


def run_deployed(flow_name: str, *, state: dict[str, Any] | None = None, **parameters: Any) -> Any:
    """Does what a worker's process does with a flow run that somebody started by the API.

    And set to a state before the process is there.
    """
    module, _, function = ENTRYPOINTS[flow_name].rpartition(".")
    flow = getattr(import_module(module), function)
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(flow_id=client.create_flow(flow), name="of-a-test")
        run = client.create_flow_run_from_deployment(deployment, parameters=parameters)
        if state is not None:
            body = {"state": state, "force": True}
            client.request(
                "POST", "/flow_runs/{id}/set_state", path_params={"id": run.id}, json=body
            )
    return run_flow(flow, flow_run=run)


def campaign(**overrides: Any) -> dict[str, Any]:
    return parse_config(small_values(**overrides)).model_dump(mode="json")


def order(**overrides: Any) -> dict[str, Any]:
    about = {"phase": 0, "plan": "0" * 64, "inputs": [], "drawer": "nobody"}
    return {"config": campaign(**overrides), **about}


def model_order(**sections: Any) -> dict[str, Any]:
    config = {"kind": "pate", "name": "votes", "data": {"pool": "private.parquet"}, **sections}
    return {"config": config, "training": "student", "plan": "0" * 64}


START: dict[str, Callable[[], dict[str, Any]]] = {
    "new-campaign": lambda: {"config": {"name": "clinic", "data": "pool.parquet"}},
    "new-public": lambda: {
        "config": {"name": "better", "campaign": "clinic", "public": "public.parquet"}
    },
    "new-pate": lambda: {
        "config": {
            "name": "votes",
            "data": "pool.parquet",
            "public": "public.parquet",
            "validation": "validation.parquet",
            "why_public": "made up",
        }
    },
    "new-vote": lambda: {
        "config": {"name": "votes", "ballots": ["ballots.parquet"], "records": 5000}
    },
    "campaign": lambda: {"config": campaign()},
    "public": lambda: {"config": {"kind": "public", "name": "better"}},
    "pate": lambda: {"config": {"kind": "pate", "name": "votes"}},
    "vote": lambda: {
        "config": {
            "kind": "vote",
            "name": "votes",
            "ballots": {"files": ["ballots.parquet"]},
            "privacy": {"records": 5000},
        }
    },
    "train-phase": lambda: {"order": order()},
    "train-repeatable": lambda: {"order": model_order()},
    "audit": lambda: {"config": campaign()},
    "capc": lambda: {"config": retraining_values()},
    "collect-labels": lambda: {"artifacts": "artifacts"},
    "watch": lambda: {"config": watch_values()},
}


QUICK = ["campaign", "public", "pate", "vote", "audit", "capc", "collect-labels", "watch"]


@pytest.mark.slow
def test_every_deployed_flow_is_tested_here():
    deployed = {one.flow for one in usual([WorkPool(name="gpu", limit=1)])}
    assert deployed == set(START) == set(ENTRYPOINTS)


@pytest.mark.parametrize("flow_name", quick_and_slow(QUICK, START))
def test_no_flow_starts_without_a_list(flow_name, owners_file):
    with pytest.raises(NotAllowed) as refused:
        run_deployed(flow_name, **START[flow_name]())
    assert refused.value.path == str(owners_file)
    assert refused.value.setting.startswith(
        ("data.", "public.", "ballots.", "capc.", "runtime.", "folder")
    )
    assert not Path("artifacts").exists()


@pytest.mark.parametrize("in_groups", [False, True])
def test_the_refusal_is_one_sentence_with_what_is_missing(in_groups, owners_file):
    allow(parse_config(small_values()))
    if not in_groups:
        flat = read_allow_list(owners_file).together["small"]
        write_allow_list(owners_file, AllowList(flat))
    loot = {"runtime__store": "s3://mine/loot", "runtime__store_holds": "everything"}
    with pytest.raises(NotAllowed) as refused:
        run_deployed("campaign", config=campaign(**loot))
    said = str(refused.value)
    assert (refused.value.setting, refused.value.value) == ("runtime.store", "s3://mine/loot")
    assert refused.value.closing in said and "\n" not in said
    assert refused.value.others == 1
    line = yaml.safe_load(refused.value.line)
    assert line == {"runtime.store": ["s3://mine/loot"]}
    # Of groups a line by itself would hold for all of them.
    assert (refused.value.line in said) == (not in_groups)
    assert (refused.value.group == "small") == in_groups
    assert str(owners_file) in said


def test_an_order_to_train_is_held_to_the_workers_own_list(owners_file):
    allow(parse_config(small_values()))
    with pytest.raises(NotAllowed) as refused:
        run_deployed("train-phase", order=order(data__pool="/srv/other.parquet"))
    assert refused.value.setting == "data.pool"


def test_what_is_listed_runs_and_a_call_of_ones_own_is_not_limited(owners_file):
    allow(parse_config(small_values()))
    assert run_deployed("collect-labels", artifacts="artifacts") == 0
    assert run_deployed("collect-labels", artifacts=str(Path("artifacts").absolute())) == 0
    owners_file.unlink()
    assert collect_labels(Path("artifacts")) == 0


def test_a_flow_that_a_limited_one_calls_is_limited_as_well(owners_file, monkeypatch):
    """Whether it is called or started depends on deployments, which anybody may delete."""

    @prefect_flow
    def outer() -> int:
        return collect_labels(Path("artifacts"))

    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", str(uuid4()))
    with pytest.raises(NotAllowed):
        outer()
    allow(parse_config(small_values()))
    assert outer() == 0


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.makedirs, (str(self.folder),)


@pytest.mark.slow
def test_a_stored_result_that_the_server_names_is_not_unpickled(owners_file, workplace):
    """A run that is over by the server's word is asked for its result, before any list is."""
    trap = workplace / "trap"
    storage = LocalFileSystem(basepath=str(workplace / "results"))
    store = ResultStore(result_storage=storage, serializer=PickleSerializer())
    record = store.create_result_record(Trap(trap), key="loot")
    storage.write_path("loot", record.serialize())
    type(record).deserialize((workplace / "results" / "loot").read_bytes())
    trap.rmdir()  # it does what it is made for
    place = str(workplace / "results" / "loot")
    named = record.metadata.model_copy(update={"storage_key": place, "storage_block_id": None})
    over = {"type": "COMPLETED", "name": "Completed", "data": named.model_dump(mode="json")}
    with pytest.raises(StoredResult):
        run_deployed("collect-labels", state=over, artifacts="artifacts")
    for ended in (Completed, Failed):  # as that of a training elsewhere
        with pytest.raises(StoredResult):
            receipt_of(ended(data=named))
    assert not trap.exists()


def test_a_folder_that_a_worker_may_not_work_in_is_refused(owners_file, monkeypatch):
    allow(parse_config(small_values()))
    monkeypatch.setenv(ASKED_FOLDER, "/tmp/elsewhere")
    with pytest.raises(NotAllowed) as refused:
        run_deployed("collect-labels", artifacts="artifacts")
    assert (refused.value.setting, refused.value.value) == ("workdir", "/tmp/elsewhere")


def test_a_list_that_others_could_write_is_no_list(owners_file):
    allow(parse_config(small_values()))
    assert owners_file.stat().st_mode & 0o077 == 0
    for path, mode in ((owners_file, 0o620), (owners_file, 0o602), (owners_file.parent, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        with pytest.raises(AllowListError, match="replaced by others"):
            run_deployed("collect-labels", artifacts="artifacts")
        path.chmod(before)
    if os.geteuid() == 0:
        os.chown(owners_file, 12345, -1)
        with pytest.raises(AllowListError, match="replaced by others"):
            run_deployed("collect-labels", artifacts="artifacts")


def test_a_damaged_list_is_one_sentence(owners_file):
    write_allow_list(owners_file, AllowList())
    assert read_allow_list(owners_file) == AllowList()
    owners_file.write_bytes(b"\xff\xfe")
    with pytest.raises(AllowListError, match="cannot be read"):
        run_deployed("campaign", config=campaign())


def test_nothing_is_written_where_a_run_may_not_before_the_list_is_asked(
    owners_file, workplace, monkeypatch
):
    """Not even what went wrong: its folder is one of the settings that whoever started it chose."""

    def broken(*given: object) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr("flows.campaign.require_allowed", broken)
    allow(parse_config(small_values()))
    for artifacts, kept in (("elsewhere", 0), ("artifacts", 1)):
        with pytest.raises(UnexpectedError):
            run_deployed("campaign", config=campaign(runtime__artifacts=artifacts))
        assert len(list((workplace / artifacts).rglob("errors/*.txt"))) == kept
    assert not (workplace / "elsewhere").exists()
