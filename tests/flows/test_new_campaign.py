"""The short form: nine controls, and a campaign whose settings follow from its data."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.flow_engine import run_flow

import dpal
from dpal.certificate.checks import any_failed
from dpal.config.brief import CampaignBrief, parse_brief
from dpal.config.campaign import CampaignConfig
from dpal.errors import ConfigError, NotAllowed
from dpal.files.artifacts import CampaignFolder
from dpal.privacy import Unit
from dpal.runs.recorded_settings import recorded_settings
from dpal.runs.settings_of_brief import settings_of_brief
from flows.campaign import run_campaign
from flows.new_campaign import new_campaign
from flows.ops.deployments import ENTRYPOINTS
from tasks.allow_list import ALLOW
from tasks.watch_campaigns import in_any_folder
from tests.conftest import allow, write_blobs

PUBLIC = {"validation": "validation.parquet", "why_public": "made up for a test"}
MOST_CONTROLS = 15


def brief(**decided: Any) -> dict[str, Any]:
    return {"name": "clinic", "data": "pool.parquet", **decided}


def test_a_person_decides_few_things_and_each_says_what_it_is():
    [form] = new_campaign.parameters.model_dump()["definitions"].values()
    assert 0 < len(form["properties"]) <= MOST_CONTROLS
    assert form["required"] == ["name", "data"]
    for field in form["properties"].values():
        assert len(field["description"].split()) > 3 and field["title"][0].isupper()


@pytest.mark.parametrize("held_out", [PUBLIC, {}])
def test_what_is_decided_becomes_settings_that_plan(workplace, held_out):
    config = settings_of_brief(parse_brief(brief(epsilon=3, labels=200, **held_out)))
    assert config.validation is not None
    assert config.validation.share == (None if held_out else 0.2)
    assert (config.privacy.epsilon, config.schedule.initial) == (3, 200)
    assert dpal.plan(config).epsilon <= 3


def test_people_with_several_records_are_protected_whole(workplace):
    pool = pq.read_table("pool.parquet")
    patients = [f"p{row // 3}" for row in range(pool.num_rows)]
    pq.write_table(pool.append_column("patient", [patients]), "pool.parquet")
    config = settings_of_brief(parse_brief(brief(group_column="patient", labels=100)))
    assert (config.privacy.unit, config.data.group_column) == (Unit.GROUP, "patient")
    assert dpal.plan(config).epsilon <= 8
    with pytest.raises(ConfigError) as refused:
        parse_brief(brief(group_column="patient"))
    assert "labels" in str(refused.value)


@pytest.mark.parametrize("wrong", [{"epsilon": 0}, {"labels": 1}, {"name": "../up"}, {"more": 1}])
def test_a_form_that_cannot_be_is_one_sentence(wrong):
    with pytest.raises(ConfigError) as refused:
        parse_brief(brief(**wrong))
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("orchestrated")
def test_where_nobody_else_runs_it_it_runs_here_and_begun_it_keeps_its_settings(workplace):
    with get_client(sync_client=True) as client:  # of tests that ran before, on this server
        for deployment in client.read_deployments():
            if deployment.name == "campaign":
                client.delete_deployment(deployment.id)
    folder = Path(str(new_campaign(parse_brief(brief(labels=60, **PUBLIC)))))
    recorded = recorded_settings(CampaignFolder(folder))
    assert isinstance(recorded, CampaignConfig) and recorded.schedule.initial == 60
    assert not any_failed(dpal.verify(folder))
    again = settings_of_brief(parse_brief(brief(labels=50, epsilon=1)))
    assert (again.schedule.initial, again.privacy.epsilon) == (60, 8)


@pytest.mark.usefixtures("orchestrated")
def test_workers_get_it_once_and_the_owners_list_decides_first(workplace, monkeypatch):
    file = workplace / "owner" / "allow.yaml"
    monkeypatch.setenv(ALLOW, str(file))
    module, _, function = ENTRYPOINTS["new-campaign"].rpartition(".")
    flow = getattr(import_module(module), function)
    with get_client(sync_client=True) as client:
        client.create_deployment(flow_id=client.create_flow(run_campaign), name="campaign")
        own = client.create_deployment(flow_id=client.create_flow(flow), name="of-a-test")
        asked = client.create_flow_run_from_deployment(
            own, parameters={"config": brief(name="handed", labels=60, **PUBLIC)}
        )
        write_blobs(workplace / "secret.parquet", 60, seed=3)
        other = client.create_flow_run_from_deployment(
            own, parameters={"config": brief(data="secret.parquet", labels=30)}
        )
    wanted = settings_of_brief(
        CampaignBrief.model_validate(brief(name="handed", labels=60, **PUBLIC))
    )
    allow(in_any_folder(wanted))
    with pytest.raises(NotAllowed) as refused:
        run_flow(flow, flow_run=other)
    assert refused.value.setting == "data.pool"
    for _ in range(2):  # tried again, as after a crash
        state: Any = run_flow(flow, flow_run=asked, return_type="state")
        assert state.is_completed()
    with get_client(sync_client=True) as client:
        named = FlowRunFilter(name=FlowRunFilterName(any_=["handed"]))
        runs = client.read_flow_runs(flow_run_filter=named)
    assert len(runs) == 1
    given = CampaignConfig.model_validate(runs[0].parameters["config"])
    assert given.schedule.initial == 60
    assert Path(str(given.data.pool)).is_absolute()
    assert not Path("artifacts/handed").exists(), "a worker's matter"
