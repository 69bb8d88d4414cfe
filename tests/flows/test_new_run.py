"""Short forms: few controls, and a run whose settings follow from what is decided."""

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
from dpal.certificate.check_outcome import any_failed
from dpal.config.briefs import (
    CampaignBrief,
    ImprovementBrief,
    VotesBrief,
    VotingBrief,
    parse_brief,
)
from dpal.config.campaign import CampaignConfig
from dpal.config.guarded_settings import fields_of
from dpal.errors import ConfigError, NotAllowed
from dpal.files.artifacts import CampaignFolder
from dpal.privacy import Unit
from dpal.runs.kinds import CAMPAIGN, IMPROVEMENT, KINDS, VOTES, VOTING
from dpal.runs.read_recorded_settings import recorded_settings
from dpal.runs.settings_of_briefs import settings_of_brief
from flows.campaign import run_campaign
from flows.new_run import new_campaign
from flows.ops.deployments import ENTRYPOINTS
from tasks.allow_list import ALLOW
from tasks.watched_runs import in_any_folder
from tests.conftest import allow, write_blobs

PUBLIC = {"validation": "validation.parquet", "why_public": "made up for a test"}
MOST_CONTROLS, OF_THE_PAGE = 15, 3  # those of Prefect: the run's name, the check, when it starts


def brief(**decided: Any) -> dict[str, Any]:
    return {"name": "clinic", "data": "pool.parquet", **decided}


def campaign_of(**decided: Any) -> CampaignConfig:
    """The settings of a campaign of which this was decided."""
    config = settings_of_brief(CAMPAIGN, parse_brief(CampaignBrief, brief(**decided)))
    assert isinstance(config, CampaignConfig)
    return config


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_a_person_decides_few_things_and_each_says_what_it_is(kind):
    module, _, function = ENTRYPOINTS[f"new-{kind.name}"].rpartition(".")
    definitions = getattr(import_module(module), function).parameters.model_dump()["definitions"]
    form = definitions[kind.short_form.__name__]
    assert 0 < len(form["properties"]) <= MOST_CONTROLS - OF_THE_PAGE
    assert form["required"][0] == "name"
    for field in form["properties"].values():
        assert len(field.get("description", "of three words").split()) > 3
        assert field.get("title", "Unit")[0].isupper()


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_nobody_decides_on_infrastructure_in_a_short_form(kind):
    """Ledger, anchors, store and artifacts are the deployment's, in every kind's settings."""
    infrastructure = set(type_of(kind.settings, "runtime").model_fields)
    assert {"ledger", "anchors", "store", "artifacts"} <= infrastructure
    assert not infrastructure & {key for key, _ in fields_of(kind.short_form)}


def type_of(settings: Any, name: str) -> Any:
    return settings.model_fields[name].annotation


@pytest.mark.parametrize("held_out", [PUBLIC, {}])
def test_what_is_decided_becomes_settings_that_plan(workplace, held_out):
    config = campaign_of(epsilon=3, labels=200, **held_out)
    assert config.validation is not None
    assert config.validation.share == (None if held_out else 0.2)
    assert (config.privacy.epsilon, config.schedule.initial) == (3, 200)
    assert dpal.plan(config).epsilon <= 3


def test_people_with_several_records_are_protected_whole(workplace):
    pool = pq.read_table("pool.parquet")
    patients = [f"p{row // 3}" for row in range(pool.num_rows)]
    pq.write_table(pool.append_column("patient", [patients]), "pool.parquet")
    config = campaign_of(group_column="patient", labels=100)
    assert (config.privacy.unit, config.data.group_column) == (Unit.GROUP, "patient")
    assert dpal.plan(config).epsilon <= 8
    with pytest.raises(ConfigError) as refused:
        parse_brief(CampaignBrief, brief(group_column="patient"))
    assert "labels" in str(refused.value)


@pytest.mark.parametrize("wrong", [{"epsilon": 0}, {"labels": 1}, {"name": "../up"}, {"more": 1}])
def test_a_form_that_cannot_be_is_one_sentence(wrong):
    with pytest.raises(ConfigError) as refused:
        parse_brief(CampaignBrief, brief(**wrong))
    assert "\n" not in str(refused.value)


VOTE_ON = {**PUBLIC, "public": "public.parquet"}


@pytest.mark.slow
def test_teachers_and_questions_follow_from_the_records(workplace):
    write_blobs(workplace / "public.parquet", 200, seed=4, prefix="w")
    decided = parse_brief(VotingBrief, brief(**VOTE_ON))
    config: Any = settings_of_brief(VOTING, decided)
    assert (config.teachers.count, config.voting.queries) == (25, 100)
    assert config.validation.public
    assert dpal.plan(config).epsilon <= config.privacy.epsilon == 8
    fewer: Any = settings_of_brief(
        VOTING, parse_brief(VotingBrief, brief(**VOTE_ON, teachers=30, queries=20, epsilon=3))
    )
    assert (fewer.teachers.count, fewer.voting.queries, fewer.privacy.epsilon) == (30, 20, 3)


def test_all_that_a_person_has_goes_to_one_teacher(workplace):
    write_blobs(workplace / "public.parquet", 200, seed=4, prefix="w")
    pool = pq.read_table("pool.parquet")
    patients = [f"p{row // 3}" for row in range(pool.num_rows)]
    pq.write_table(pool.append_column("group", [patients]), "pool.parquet")
    usual: Any = settings_of_brief(VOTING, parse_brief(VotingBrief, brief(**VOTE_ON)))
    assert usual.teachers.count == 25
    assert dpal.plan(usual).plan.target.unit is Unit.GROUP
    patients_in_all = len(set(patients))
    with pytest.raises(ConfigError) as refused:
        settings_of_brief(
            VOTING, parse_brief(VotingBrief, brief(**VOTE_ON, teachers=patients_in_all + 1))
        )
    assert f"{patients_in_all:,}" in str(refused.value)


@pytest.mark.parametrize(
    "wrong", [{"why_public": ""}, {"validation": None}, {"public": None}, {"teachers": 2}]
)
def test_votes_are_not_measured_on_records_that_need_protection(wrong):
    with pytest.raises(ConfigError):
        parse_brief(VotingBrief, brief(**{**VOTE_ON, **wrong}))


@pytest.mark.parametrize(("labeled", "labeler"), [(True, "oracle"), (False, "file")])
def test_people_label_public_records_that_have_no_label(workplace, labeled, labeler):
    write_blobs(workplace / "public.parquet", 130, seed=4, prefix="w")
    if not labeled:
        table = pq.read_table("public.parquet")
        pq.write_table(table.drop_columns(["label"]), "public.parquet")
    values = {"name": "better", "campaign": "clinic", "public": "public.parquet"}
    config: Any = settings_of_brief(IMPROVEMENT, parse_brief(ImprovementBrief, values))
    assert (config.labeler.kind, config.choice.labels) == (labeler, 60)
    assert config.start.campaign == "clinic" and not config.choice.method.reads_private
    with pytest.raises(ConfigError):
        settings_of_brief(IMPROVEMENT, parse_brief(ImprovementBrief, {**values, "labels": 131}))


def test_an_account_is_opened_with_what_was_decided():
    values = {"name": "hospital", "ballots": ["ballots.parquet"], "records": 5000, "unit": "group"}
    config: Any = settings_of_brief(VOTES, parse_brief(VotesBrief, {**values, "answer_from": 0.7}))
    assert (config.privacy.records, config.privacy.unit) == (5000, Unit.GROUP)
    assert (config.voting.answer_from, config.privacy.epsilon) == (0.7, 8)
    with pytest.raises(ConfigError):
        parse_brief(VotesBrief, {**values, "ballots": []})


@pytest.mark.slow
@pytest.mark.usefixtures("orchestrated")
def test_where_nobody_else_runs_it_it_runs_here_and_begun_it_keeps_its_settings(workplace):
    with get_client(sync_client=True) as client:  # of tests that ran before, on this server
        for deployment in client.read_deployments():
            if deployment.name == "campaign":
                client.delete_deployment(deployment.id)
    folder = Path(str(new_campaign(parse_brief(CampaignBrief, brief(labels=60, **PUBLIC)))))
    recorded = recorded_settings(CampaignFolder(folder))
    assert isinstance(recorded, CampaignConfig) and recorded.schedule.initial == 60
    assert not any_failed(dpal.verify(folder))
    again = campaign_of(labels=50, epsilon=1)
    assert (again.schedule.initial, again.privacy.epsilon) == (60, 8)


@pytest.mark.slow
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
    allow(in_any_folder(campaign_of(name="handed", labels=60, **PUBLIC)))
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
