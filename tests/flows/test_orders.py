from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from prefect.exceptions import FailedRun
from prefect.states import Completed, Failed
from pydantic import ValidationError

import dpal
from dpal.config.campaign import parse_config
from dpal.errors import LedgerError, StoreError
from dpal.files.object_store import ArtifactRef
from dpal.ledger.folder_lock import require_claim
from dpal.runs.prepare_campaign import prepare
from tasks.training_pool import phase_files
from tasks.training_pool.phase_files import (
    TrainingOrder,
    at_hand,
    following_order,
    order_training,
    receipt_of,
    take_inputs,
    take_over,
)
from tests.conftest import nothing_released, small_values, write_blobs

RELEASED_ONLY = re.compile(r"[0-9a-f]{64}")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    place = tmp_path_factory.mktemp("orders")
    data = {
        "pool": str(write_blobs(place / "pool.parquet", 600, seed=1)),
        "validation": str(write_blobs(place / "validation.parquet", 300, seed=2, prefix="v")),
    }
    runtime = {"training_pool": "gpu", "artifacts": str(place / "artifacts")}
    return prepare(parse_config(small_values(data=data, runtime=runtime)))


@pytest.fixture
def campaign(prepared):
    """A prepared campaign whose first phase has all files that it trains on."""
    files = prepared.files(prepared.plan.phases[0])
    for number, path in enumerate([files.selection, files.labels, files.pool]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"private %d" % number)
    return prepared


@pytest.fixture
def order(campaign):
    return order_training.fn(campaign, campaign.plan.phases[0])


@pytest.mark.slow
def test_an_order_is_the_same_after_its_way_through_the_server(order):
    again = TrainingOrder.model_validate(json.loads(json.dumps(order.as_json())))
    assert again == order
    assert again.config.runtime.artifacts.is_absolute()
    assert isinstance(again.config.data.pool, Path)
    assert again.config.data.pool.is_absolute()


def test_an_order_shows_no_more_than_settings_and_digests(order, campaign):
    said = order.as_json()
    assert said.keys() == {"config", "phase", "plan", "inputs", "drawer"}
    for one in said["inputs"]:
        assert one.keys() == {"name", "url", "sha256"}
        assert RELEASED_ONLY.fullmatch(one["sha256"])
    assert RELEASED_ONLY.fullmatch(said["drawer"])
    assert "private" not in json.dumps(said)


def test_inputs_are_taken_only_as_they_were_ordered(order, campaign):
    phase = campaign.plan.phases[0]
    assert take_inputs.fn(campaign, order) == phase
    campaign.files(phase).labels.write_bytes(b"private, and others")
    with pytest.raises(StoreError, match=r"labels\.parquet is not"):
        take_inputs.fn(campaign, order)


def test_an_order_that_leaves_a_file_out_is_refused(order, campaign):
    short = order.model_copy(update={"inputs": order.inputs[1:]})
    with pytest.raises(LedgerError, match=r"selection\.parquet", check=nothing_released):
        take_inputs.fn(campaign, short)


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
def test_files_that_the_ledger_committed_are_taken_as_they_were():
    """And no file but those that the training reads: an order could replace any other."""
    config = parse_config(small_values(schedule__queries=[40]))
    dpal.run(config)
    campaign = prepare(config)
    phase = campaign.plan.phases[1]
    order = order_training.fn(campaign, phase)
    assert take_inputs.fn(campaign, order) == phase
    for name in ("phase-0/model.safetensors", "phase-1/selection.parquet"):
        [named] = [one for one in order.inputs if one.name.endswith(name)]
        others = [one for one in order.inputs if one is not named]
        wrong = order.model_copy(update={"inputs": (replace(named, sha256="0" * 64), *others)})
        with pytest.raises(LedgerError, match="committed", check=nothing_released):
            take_inputs.fn(campaign, wrong)
    more = replace(order.inputs[0], name="certificate.json", sha256="0" * 64)
    take_inputs.fn(campaign, order.model_copy(update={"inputs": (*order.inputs, more)}))


def test_another_plan_than_the_ordered_one_is_refused(order, campaign):
    other = order.model_copy(update={"plan": "0" * 64})
    refused = pytest.raises(LedgerError, match="with plan 000000000000")
    with refused, at_hand(campaign), following_order(other):
        pass


def test_a_worker_claims_what_was_ordered_and_writes_in_its_name(order, campaign, monkeypatch):
    monkeypatch.setattr(phase_files, "prepare_ordered", lambda config: campaign)
    with following_order(order) as there:
        require_claim(there.folder.root)
        assert there.plan.digest == campaign.plan.digest
        with there.ledger() as ledger:
            assert ledger.drawer == order.drawer


def test_a_receipt_must_be_what_the_ledger_committed(campaign):
    phase = campaign.plan.phases[0]
    made = ArtifactRef(name="phase-0/model.safetensors", url="file:///x", sha256="0" * 64)
    with pytest.raises(LedgerError, match="ledger committed"):
        take_over.fn(campaign, phase, [made])


def test_a_receipt_that_a_busy_server_lost_is_left_to_the_ledger():
    made = ArtifactRef(name="phase-0/model.pt", url="file:///model.pt", sha256="0" * 64)
    assert receipt_of(Completed(data=(made,))) == (made,)
    assert receipt_of(Completed()) == ()  # as the server tells it: without data
    with pytest.raises(FailedRun):
        receipt_of(Failed(message="no room left"))


def test_nothing_else_may_stand_in_an_order(order):
    with pytest.raises(ValidationError):
        TrainingOrder.model_validate({**order.as_json(), "count": 40})
