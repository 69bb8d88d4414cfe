"""What a watch plans and starts, and what it remembers after a crash."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
import torch
from prefect.client.schemas.objects import FlowRun
from prefect.states import Failed

from dpal.config.campaign import CampaignConfig
from dpal.config.watch import WatchConfig
from dpal.data.inbox.state import WatchFolder
from dpal.errors import DataBudgetExceeded
from dpal.ledger.folder_lock import leading_process, lock_folder
from dpal.runs.prepare_campaign import prepare
from flows.watch import watch
from tasks.campaign import hold_budget
from tasks.watch import count_unheld_as_refused, start_campaign, watch_folder
from tasks.watched_runs import current_settings, request_key, settings_of
from tests.conftest import flows_at, write_blobs
from tests.flows.watching import (
    end_early,
    known,
    last_run,
    look,
    remembered,
    small_watch,
    spend,
)

_NO_DEVICE = {"device": "cuda:63"}


def participation(plan: str) -> dict[int, int]:
    """By block: how many in a hundred of its records take part."""
    found = re.findall(r"block (\d+) [^;,]*?(\d+)\.\d\d %", plan)
    return {int(block): int(part) for block, part in found}


def test_a_first_file_becomes_a_campaign(watched):
    state = look(small_watch())
    assert [one.name for one in state.accepted] == ["january.parquet"]
    run = last_run(state)
    assert (run.name, run.files, run.stage) == ("clinic-0001", 1, "started")
    assert participation(run.plan) == {0: 100}


@pytest.mark.slow
def test_new_records_get_the_whole_limit_and_old_ones_what_is_left(watched):
    config = small_watch()
    state = look(config)
    spend(config, state)
    write_blobs(Path("inbox/march.parquet"), 400, seed=5, prefix="n")
    state = look(config)
    run = last_run(state)
    assert (run.name, run.files) == ("clinic-0002", 2)
    assert [one.block for one in state.accepted] == [0, 1]
    parts = participation(run.plan)
    assert 10 <= parts.pop(0) < 100
    assert parts == {1: 100}


def test_while_a_campaign_runs_files_are_registered_and_wait(watched, heard):
    config = small_watch()
    look(config)
    write_blobs(Path("inbox/march.parquet"), 400, seed=5, prefix="n")
    state = look(config)
    assert [one.size for one in known().blocks] == [600, 400]
    assert (len(state.runs), last_run(state).files) == (1, 1)
    assert "1 new files" in heard()


@pytest.mark.slow
def test_an_accepted_file_that_left_stops_planning_in_words(watched, heard):
    config = small_watch()
    spend(config, look(config))
    Path("inbox/january.parquet").unlink()
    write_blobs(Path("inbox/march.parquet"), 400, seed=5, prefix="n")
    state = look(config)
    assert len(state.accepted) == len(state.runs) == 1
    assert "march.parquet waits: january.parquet" in heard()


@pytest.mark.parametrize(
    ("said", "stage"), [({}, "ended"), ({"stop": {"patience": 1, "least_gain": 0.01}}, "finished")]
)
def test_a_campaign_that_its_own_rule_ended_is_finished(watched, said, stage):
    config = small_watch()
    end_early(config, look(config), said)
    assert last_run(look(config)).stage == stage


def test_a_campaign_that_another_process_runs_is_left_to_it(watched, heard):
    config = small_watch()
    state = look(config)
    with leading_process(Path("artifacts") / last_run(state).name):
        assert start_campaign.fn(config) is None
    assert "is being run by another process of this machine" in heard()
    started = start_campaign.fn(config)
    assert started is not None
    assert started.name == "clinic-0001"


def test_a_campaign_goes_on_as_it_was_planned_and_where_the_watch_says_now(watched):
    state = look(small_watch())
    changed = small_watch(campaign__runtime__physical_batch=8, campaign__privacy__epsilon=3.0)
    going_on = start_campaign.fn(changed)
    assert going_on is not None
    assert (going_on.runtime.physical_batch, going_on.privacy.epsilon) == (8, 5.0)
    assert settings_of(watch_folder(changed), last_run(state)) == going_on


def test_a_campaign_stays_in_the_ledger_that_it_was_planned_on(watched):
    run = last_run(look(small_watch()))
    changed = small_watch(campaign__runtime__ledger="postgresql://u@127.0.0.1:1/x")
    planned = settings_of(watch_folder(changed), run)
    assert current_settings(changed, watch_folder(changed), run) == planned


def test_a_campaign_whose_budget_others_took_before_it_began_is_planned_anew(watched):
    config = small_watch()
    mine = settings_of(watch_folder(config), last_run(look(config)))
    hold(mine.model_copy(update={"name": "other"}))
    with pytest.raises(DataBudgetExceeded) as refused:
        hold(mine)
    count_unheld_as_refused.fn(config, str(refused.value))
    assert last_run(remembered(config)).stage == "refused"
    write_blobs(Path("inbox/march.parquet"), 400, seed=5, prefix="n")
    run = last_run(look(config))
    assert (run.name, run.stage, run.files) == ("clinic-0001", "started", 2)
    assert participation(run.plan)[1] == 100
    hold(settings_of(watch_folder(config), run))


@pytest.mark.slow
def test_a_look_whose_own_campaign_is_refused_says_so_and_the_next_one_plans(
    watched, prefect_api, monkeypatch
):
    monkeypatch.setattr("tasks.watched_runs.campaign_deployment", lambda: None)
    config = small_watch()
    mine = settings_of(watch_folder(config), last_run(look(config)))
    hold(mine.model_copy(update={"name": "other"}))
    with flows_at(prefect_api):
        with pytest.raises(DataBudgetExceeded):
            watch(config)
        assert last_run(remembered(config)).stage == "refused"
        watch(config)
    run = last_run(remembered(config))
    assert (run.name, run.stage, run.basis != "") == ("clinic-0001", "refused", True)


@pytest.mark.slow
def test_a_campaign_that_another_process_is_about_to_begin_is_left_to_it(
    watched, prefect_api, monkeypatch
):
    monkeypatch.setattr("tasks.watched_runs.campaign_deployment", lambda: None)
    config = small_watch()
    run = last_run(look(config))
    # It took the folder after the look had found it free.
    monkeypatch.setattr("tasks.watched_runs.is_running_here", lambda campaign: False)
    with flows_at(prefect_api), lock_folder(Path("artifacts").absolute() / run.name):
        watch(config)
    assert last_run(remembered(config)) == run


def test_a_campaign_that_failed_after_it_held_budget_is_gone_on_with(watched):
    config = small_watch()
    run = last_run(look(config))
    hold(settings_of(watch_folder(config), run))
    count_unheld_as_refused.fn(config, "the disk is full")
    assert last_run(remembered(config)) == run


def hold(settings: CampaignConfig) -> None:
    campaign = prepare(settings)
    with lock_folder(campaign.folder.root):
        hold_budget.fn(campaign)


@pytest.mark.parametrize(
    "runtime", [_NO_DEVICE, {"store": "memory://dpal", "training_pool": "gpu"}]
)
def test_what_cannot_run_is_refused_before_it_begins_until_its_runtime_is_mended(watched, runtime):
    refused = last_run(look(small_watch(campaign__runtime=runtime)))
    assert (refused.name, refused.stage) == ("clinic-0001", "refused")
    mended = last_run(look(small_watch()))
    assert (mended.name, mended.stage) == ("clinic-0001", "started")


def test_a_campaign_begins_once_its_device_is_there(watched, monkeypatch):
    config = small_watch(campaign__runtime=_NO_DEVICE)
    assert last_run(look(config)).stage == "refused"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 64)
    assert last_run(look(config)).stage == "started"


def test_what_workers_run_needs_no_device_where_the_watch_is(watched, monkeypatch):
    monkeypatch.setattr("tasks.watched_runs.campaign_deployment", uuid4)
    monkeypatch.setattr("tasks.watched_runs.request_flow_run", lambda run, *_: run)
    assert last_run(look(small_watch(campaign__runtime=_NO_DEVICE))).stage == "planned"


def test_asking_again_is_the_same_flow_run_wherever_the_campaign_is_to_run(watched):
    run = last_run(look(small_watch()))
    here, elsewhere = (
        current_settings(changed, watch_folder(changed), run)
        for changed in map(on_batches_of, (8, 16))
    )
    assert here.runtime != elsewhere.runtime
    assert request_key(run, here) == request_key(run, elsewhere)
    assert request_key(replace(run, attempt=1), here) != request_key(run, here)


def on_batches_of(size: int) -> WatchConfig:
    return small_watch(campaign__runtime__physical_batch=size)


def test_settings_that_were_mended_before_a_refusal_was_seen_are_tried(watched, monkeypatch):
    config = small_watch()
    state = look(config)
    asked_for = replace(last_run(state), flow_run=str(uuid4()))
    watch_folder(config).write(state.with_run(asked_for))
    failed = FlowRun(flow_id=uuid4(), state=Failed())
    monkeypatch.setattr("tasks.watched_runs.has_server", lambda: True)
    monkeypatch.setattr("tasks.watched_runs.campaign_deployment", lambda: None)
    monkeypatch.setattr("tasks.watched_runs._flow_run", lambda identity: failed)
    run = last_run(look(small_watch(campaign__runtime__physical_batch=8)))
    assert (run.name, run.stage, run.flow_run) == ("clinic-0001", "started", "")


@pytest.mark.slow
def test_a_crash_at_any_moment_is_gone_on_from(watched, monkeypatch):
    """The write of the state fails at each moment in turn, before and after it is on disk."""
    config = small_watch()
    spend(config, look(config))
    write_blobs(Path("inbox/march.parquet"), 400, seed=5, prefix="n")
    Path("inbox/bad.parquet").write_bytes(b"nothing")
    shutil.copytree(watched, "../before")
    write = WatchFolder.write
    crashes = 0
    for at in range(1, 30):
        for late in (False, True):
            os.chdir(watched.parent)
            shutil.rmtree(watched)
            shutil.copytree("before", watched)
            os.chdir(watched)
            calls = [0]

            def crashing(folder, state, at=at, late=late, calls=calls):
                calls[0] += 1
                if calls[0] == at and not late:
                    raise KeyboardInterrupt
                write(folder, state)
                if calls[0] == at:
                    raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(WatchFolder, "write", crashing)
                try:
                    look(config)
                except KeyboardInterrupt:
                    crashes += 1
            state = look(config)
            assert [one.name for one in state.accepted] == ["january.parquet", "march.parquet"]
            assert [one.block for one in state.accepted] == [0, 1]
            assert [one.done for one in state.quarantined] == [True]
            kept = sorted(path.name for path in Path("inbox/quarantine").iterdir())
            assert kept == ["bad.parquet", "bad.parquet.reason.txt"]
            assert [one.size for one in known().blocks] == [600, 400]
            assert [one.name for one in state.runs] == ["clinic-0001", "clinic-0002"]
        if calls[0] < at:
            break
    assert crashes >= 10
