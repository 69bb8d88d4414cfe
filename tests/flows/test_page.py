"""What the page of a campaign's flow run shows."""

from __future__ import annotations

import pytest
from prefect.client.orchestration import get_client
from prefect.exceptions import ParameterTypeError

from dpal.errors import ConfigError, LedgerError
from flows.campaign import run_campaign
from tests.conftest import small_values


def asked(path: str, wanted: dict) -> list[dict]:
    """By Prefect's client: a server that asks for CSRF tokens gets one."""
    with get_client(sync_client=True) as client:
        # The types of its paths are literals, and these are for tests alone.
        return client.request("POST", path, json=wanted).json()  # type: ignore[arg-type]


def artifacts(run: str) -> dict[str, dict]:
    wanted = {"artifacts": {"flow_run_id": {"any_": [run]}}}
    found = asked("artifacts/filter", wanted)
    assert len({one["key"] for one in found}) == len(found), "one artifact a key"
    return {one["key"]: one for one in found}


def latest(name: str) -> dict:
    wanted = {"flow_runs": {"name": {"any_": [name]}}, "sort": "START_TIME_DESC"}
    return asked("flow_runs/filter", wanted)[0]


@pytest.mark.slow
def test_a_run_tells_its_story_once_and_to_the_end(orchestrated, workplace, small):
    config = small(name="my_story", schedule__queries=[40])
    assert run_campaign(config) == "artifacts/my_story"
    run = latest("my_story")
    assert {"dpal", "my_story", "epsilon 8"} <= set(run["tags"])
    assert run["state"]["message"].startswith("finished: validation accuracy")
    shown = artifacts(run["id"])
    assert {"campaign-my-story", "progress", "budget", "plan"} <= set(shown)
    told = shown["campaign-my-story"]["data"]
    assert run["state"]["message"] in told
    for place in ("mlflow ui --backend-store-uri", "certificate.json", "report.html"):
        assert place in told
    assert shown["progress"]["data"] == 100
    assert shown["budget"]["data"].startswith("data:image/png;base64,")


@pytest.mark.slow
def test_a_run_that_fails_says_so_on_its_page_in_a_sentence(
    orchestrated, workplace, small, monkeypatch
):
    def fail(_campaign, _phase):
        raise LedgerError("the ledger was lost; restore it")

    schedule = {"initial": 100, "queries": [], "batch_size": 50, "epochs_per_phase": 1}
    with monkeypatch.context() as broken, pytest.raises(LedgerError):
        broken.setattr("flows.campaign.tell_phase", fail)
        run_campaign(small(name="broken", schedule=schedule))
    shown = artifacts(latest("broken")["id"])
    assert "**Now:** stopped: the ledger was lost; restore it" in shown["campaign-broken"]["data"]


def test_settings_from_the_form_are_refused_in_one_sentence(orchestrated, workplace):
    values = small_values(name="wrong", model={"name": "mlp"})
    with pytest.raises(ConfigError, match=r"needs model\.hidden") as refused:
        run_campaign(values)  # type: ignore[call-overload]  # Prefect turns them into a value
    assert not isinstance(refused.value, ParameterTypeError)
    message = latest("wrong")["state"]["message"]
    assert "model.name mlp" in message and message.endswith("[128]")
    assert "\n" not in message
