"""Training on a work pool, with a real server and real workers, each of them killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from dpal.ledger.entries import EntryKind
from tests.flows.pooling import LONG, Site, await_true, kill, site_in, training_process

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_in(tmp_path_factory.mktemp("site")) as made:
        yield made


def test_a_pool_trains_what_the_campaign_itself_would(site):
    """Same entries in the same order; a person is told when no worker is there."""
    pooled = site.campaign("pooled", runtime__training_pool="gpu", runtime__checkpoint_steps=4)
    alone = site.campaign("alone", runtime__checkpoint_steps=4)
    running = pooled.run()
    await_true(lambda: "pool gpu is" in pooled.said, 240)
    assert "worker gpu" in pooled.said
    worker = site.worker()
    assert running.wait(500) == 0, pooled.said
    assert alone.run().wait(300) == 0, alone.said
    kill(worker)
    there, here = pooled.entries(), alone.entries()
    assert [(one.kind, one.release) for one in there] == [(one.kind, one.release) for one in here]
    orders = [run["parameters"]["order"] for run in site.trainings("pooled")]
    assert [order["phase"] for order in orders] == [2, 1, 0]
    reserved = {one.release: one.body["inputs"] for one in there if one.kind is EntryKind.RESERVE}
    for order in orders:
        known = reserved[f"phase-{order['phase']}/training"]
        sent = {one["name"]: one["sha256"] for one in order["inputs"]}
        assert known.items() <= sent.items()


@pytest.mark.timing
def test_a_killed_training_process_is_ordered_again(site):
    campaign, worker = site.campaign("killed", **LONG), site.worker()
    running = campaign.run()
    before = campaign.await_checkpoint()
    training_process("killed").send_signal(signal.SIGKILL)
    await_true(lambda: len(site.trainings("killed")) == 2, 120)
    assert running.wait(500) == 0, campaign.said
    kill(worker)
    campaign.require_whole()
    assert len(site.trainings("killed")) == 2
    assert "goes on after" in campaign.said
    assert campaign.persisted() > before
    # The campaign's own page showed how far the worker was, and its log where to look.
    leader = site.leader("killed")
    pages = site.ask("artifacts/filter", artifacts={"flow_run_id": {"any_": [leader["id"]]}})
    [progress] = [page for page in pages if page["key"] == "training"]
    assert progress["type"] == "progress" and 0 < progress["data"] <= 100
    assert "/artifacts/key/campaign-killed" in site.words(leader)


@pytest.mark.timing
def test_a_killed_worker_is_noticed_and_another_goes_on(site):
    campaign, worker = site.campaign("orphaned", **LONG), site.worker()
    running = campaign.run()
    campaign.await_checkpoint()
    child = training_process("orphaned")
    kill(worker)
    child.kill()
    began = time.monotonic()
    await_true(lambda: len(site.trainings("orphaned")) == 2, 150)
    assert time.monotonic() - began < 130
    worker = site.worker()
    assert running.wait(500) == 0, campaign.said
    kill(worker)
    campaign.require_whole()


@pytest.mark.timing
def test_a_cancelled_training_stops_at_a_step_and_goes_on_later(site):
    campaign, worker = site.campaign("halted", **LONG), site.worker()
    running = campaign.run()
    campaign.await_checkpoint()
    site.cancel(site.trainings("halted")[0])
    assert running.wait(200) == 2
    assert "was cancelled on work pool gpu" in campaign.said
    stopped = campaign.persisted()
    await_true(lambda: site.trainings("halted")[0]["state"]["type"] == "CANCELLED", 60)
    assert campaign.run().wait(500) == 0, campaign.said
    kill(worker)
    campaign.require_whole()
    assert f"after {stopped:,} of" in site.words(site.trainings("halted")[0])


@pytest.mark.parametrize("pool", ["gpu", None])
@pytest.mark.timing
def test_a_cancelled_campaign_stops_its_training(site, pool):
    name = f"recalled-{pool or 'alone'}"
    campaign = site.campaign(name, **LONG | {"runtime__training_pool": pool})
    worker = site.worker()
    running = campaign.run()
    campaign.await_checkpoint()
    site.cancel(site.leader(name))
    assert running.wait(200) == 2, campaign.said
    assert "cancelled" in campaign.said.splitlines()[-1]
    await_true(lambda: site.leader(name)["state"]["type"] == "CANCELLED", 60)
    assert [one["state"]["type"] for one in site.trainings(name)] == ["CANCELLED"] * bool(pool)
    stopped = campaign.persisted()
    assert campaign.run().wait(500) == 0, campaign.said
    kill(worker)
    campaign.require_whole()
    again = campaign.said if pool is None else site.words(site.trainings(name)[0])
    assert f"after {stopped:,} of" in again


@pytest.mark.timing
def test_a_killed_campaign_finds_its_training_again(site):
    longer = LONG | {"schedule__epochs_per_phase": 6000}  # than a second `dpal run` takes to start
    campaign, worker = site.campaign("headless", **longer), site.worker()
    running = campaign.run()
    campaign.await_checkpoint()
    kill(running)
    assert campaign.run().wait(500) == 0, campaign.said
    kill(worker)
    assert "still on its way" in campaign.said
    campaign.require_whole()
    assert len(site.trainings("headless")) == 1


@pytest.mark.timing
def test_training_outlives_the_prefect_server(tmp_path):
    site = Site(tmp_path)
    try:
        server = site.server()
        site.deploy()
        site.worker()
        campaign = site.campaign("outlived", **LONG)
        running = campaign.run()
        before = campaign.await_checkpoint()
        kill(server)
        campaign.await_checkpoint(before)
        await_true(lambda: "does not answer" in campaign.said, 120)
        site.server()
        assert running.wait(500) == 0, campaign.said
        assert "answers again" in campaign.said
        campaign.require_whole()
        assert len(site.trainings("outlived")) == 1
    finally:
        site.close()
