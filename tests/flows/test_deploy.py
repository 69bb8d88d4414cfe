"""`dpal deploy` against a real Prefect server, and what ships with it: prefect.yaml, templates."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import jsonschema
import psutil
import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.schedules import SCHEDULE_TYPES, IntervalSchedule, RRuleSchedule
from prefect.events import EventTrigger, ResourceSpecification

from dpal.errors import ConfigError
from flows.cli.deploy import make
from flows.cli.orchestrator import starting_prefect
from flows.ops import mlflow_accounts, prefect_app
from flows.ops.automations import SILENT, crash_silent_runs, tell_people
from flows.ops.deploy import set_up, take_down
from flows.ops.deployments import (
    ENVIRONMENT,
    Deployment,
    WorkPool,
    from_file,
    pools_of,
    usual,
)
from flows.ops.prefect_connection import DeployError, prefect_server
from flows.ops.prefect_yaml import prefect_yaml
from flows.ops.work_pools import Done, template_of
from tests.conftest import ROOT, command, write_config
from tests.flows.watching import watch_values

PLACEHOLDER = re.compile(r"^\{\{ (\w+) \}\}$")


def placeholders(value):
    if isinstance(value, dict):
        for each in value.values():
            yield from placeholders(each)
    elif isinstance(value, list):
        for each in value:
            yield from placeholders(each)
    elif isinstance(value, str) and "{{" in value and not value.endswith("}}-"):
        found = PLACEHOLDER.match(value)
        assert found is not None
        yield found[1]


def test_prefect_yaml_says_what_dpal_deploy_does():
    text = (ROOT / "prefect.yaml").read_text(encoding="utf-8")
    assert text == prefect_yaml(), "run: make deployments"
    said = yaml.safe_load(text)["deployments"]
    done = usual(pools_of({}, {}))
    assert len(said) == len(done)
    for one, other in zip(said, done, strict=True):
        pool = one["work_pool"]
        assert one["name"] == other.name
        assert one["entrypoint"] == other.entrypoint
        assert one["description"] == other.about
        assert (pool["name"], pool.get("work_queue_name")) == (other.pool, other.queue)
        assert pool["job_variables"]["env"] == ENVIRONMENT
        every = one.get("schedule", {}).get("interval")
        interval = other.schedule.interval if other.schedule else None
        assert every == (interval and interval / timedelta(seconds=1))


def test_every_deployed_flow_is_crashed_when_silent_and_told_of_when_lost():
    named = {deployment.entrypoint: deployment.flow for deployment in usual(pools_of({}, {}))}
    for entrypoint, name in named.items():
        module, _, function = entrypoint.rpartition(".")
        assert getattr(importlib.import_module(module), function).name == name
    for automation in (crash_silent_runs(), tell_people(uuid4())):
        assert isinstance(automation.trigger, EventTrigger)
        related = automation.trigger.match_related
        assert isinstance(related, ResourceSpecification)
        assert set(related.root["prefect.resource.name"]) == set(named.values())


@pytest.mark.parametrize("kind", ["docker", "kubernetes"])
def test_a_pool_template_fills_every_place_that_it_leaves_open(kind):
    template = template_of(kind)
    variables, wanted = template["variables"], set(placeholders(template["job_configuration"]))
    jsonschema.Draft202012Validator.check_schema(variables)
    assert wanted <= set(variables["properties"])
    defaults = {k: v["default"] for k, v in variables["properties"].items() if "default" in v}
    jsonschema.validate(defaults, variables)
    assert int(defaults["env"]["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]) == 30
    assert defaults["env"]["DPAL_ALLOW"] == "/state/allow.yaml"
    text = json.dumps(template)
    assert "/state" in text
    assert "/work" in text


def test_an_unknown_kind_of_pool_is_refused():
    with pytest.raises(DeployError, match="or kubernetes"):
        template_of("../docker")


def test_a_configuration_becomes_a_deployment_with_its_clock_and_pool(workplace):
    file = write_config(
        workplace / "c.yaml",
        runtime__cron="0 6 * * 1",
        runtime__timezone="Europe/Berlin",
        runtime__training_pool="a100",
    )
    one = from_file(file)
    assert one.full_name == "campaign/small"
    assert one.schedule is not None
    assert (one.schedule.cron, one.schedule.timezone) == ("0 6 * * 1", "Europe/Berlin")
    assert one.parameters["config"]["data"]["pool"] == "pool.parquet"
    assert [pool.name for pool in pools_of({}, {"a100": 3}, [one])] == ["campaigns", "gpu", "a100"]
    assert [pool.limit for pool in pools_of({}, {"a100": 3}, [one])] == [4, 1, 3]


def test_passwords_and_the_form_s_own_name_are_refused(workplace):
    file = write_config(workplace / "c.yaml", runtime__mlflow_uri="http://me:secret@mlflow")
    with pytest.raises(ConfigError, match="holds a password") as refused:
        from_file(file)
    assert "secret" not in str(refused.value)
    with pytest.raises(ConfigError, match="choose another name"):
        from_file(write_config(workplace / "c.yaml", name="campaign"))


def test_no_server_is_one_sentence(workplace, monkeypatch):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    dead = {PREFECT_API_URL: "http://127.0.0.1:9/api"}
    monkeypatch.setenv("PREFECT_CLIENT_MAX_RETRIES", "0")
    with (
        temporary_settings(updates=dead),
        pytest.raises(DeployError, match=r"not answer .*same again"),
        prefect_server() as client,
    ):
        client.read_work_pools()
    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.raises(DeployError, match="no Prefect server is named"),
        prefect_server(),
    ):
        pass


class Forbidding(BaseHTTPRequestHandler):
    """Whoever asks has a key, and may not do this: so say plans of an account."""

    def do_POST(self) -> None:
        said = b'{"detail": "PLAN-HAS-NONE"}'
        self.send_response(403)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def test_what_cloud_does_not_allow_is_told_in_its_words():
    from prefect.settings import (
        PREFECT_API_KEY,
        PREFECT_API_URL,
        PREFECT_CLOUD_API_URL,
        temporary_settings,
    )

    with ThreadingHTTPServer(("127.0.0.1", 0), Forbidding) as cloud:
        threading.Thread(target=cloud.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{cloud.server_port}/api"
        told = {PREFECT_CLOUD_API_URL: url, PREFECT_API_URL: f"{url}/accounts/a/workspaces/w",
                PREFECT_API_KEY: "pnu_ofATest"}  # fmt: skip
        with (
            temporary_settings(updates=told),
            pytest.raises(DeployError, match="PLAN-HAS-NONE"),
            prefect_server() as client,
        ):
            client.read_work_pools()
        cloud.shutdown()


def test_a_password_of_ones_own_server_is_not_sent_to_cloud():
    """Prefect's client sends it in place of the key."""
    from prefect.settings import (
        PREFECT_API_AUTH_STRING,
        PREFECT_API_URL,
        PREFECT_CLOUD_API_URL,
        temporary_settings,
    )

    cloud = "http://127.0.0.1:9/api"
    told = {PREFECT_CLOUD_API_URL: cloud, PREFECT_API_URL: f"{cloud}/accounts/a/workspaces/w",
            PREFECT_API_AUTH_STRING: "dpal:secret"}  # fmt: skip
    for connected in (prefect_server, starting_prefect):
        with (
            temporary_settings(updates=told),
            pytest.raises(DeployError, match="PREFECT_API_AUTH_STRING"),
            connected(),
        ):
            pytest.fail("it went on")


@pytest.mark.slow
def test_twice_changes_nothing_and_removing_leaves_nothing(orchestrated, workplace):
    own = [from_file(write_config(workplace / "c.yaml", name="dated", runtime__cron="0 6 * * 1"))]
    pools = pools_of({}, {}, own)
    first = make(own, pools, {})
    assert {one.done for one in first} == {Done.MADE}
    assert {one.name for one in first} >= {"campaigns", "gpu", "campaign/dated", SILENT}
    assert {one.done for one in make(own, pools, {})} == {Done.KEPT}
    with get_client(sync_client=True) as client:
        there = client.read_deployment_by_name("campaign/dated")
        assert there.pull_steps is not None
        assert there.pull_steps[0].popitem()[1] == {"directory": str(workplace)}
        client.update_deployment_schedule(there.id, there.schedules[0].id, active=False)
        # A person's choice survives, also where the rest has changed.
        moved = {one.name: one for one in make(own, pools, {"": workplace / "other"})}
        assert moved["campaign/dated"].done is Done.CHANGED
        assert not client.read_deployment_by_name("campaign/dated").schedules[0].active
        with pytest.raises(DeployError, match="type process, not docker"):
            set_up(client, [WorkPool(name="gpu", type="docker", limit=1)], [])
        with pytest.raises(DeployError, match="block slack-webhook/ops"):
            set_up(client, [], [], notify="slack-webhook/ops")
        limited = set_up(client, pools_of({}, {"gpu": 2, "campaigns": 7}), [])
        assert [one.done for one in limited[:2]] == [Done.CHANGED, Done.CHANGED]
        assert client.read_work_pool("gpu").concurrency_limit == 2
        assert take_down(client, own)[0].name == "campaign/dated"
        removed = take_down(client)
        assert {one.done for one in removed} == {Done.REMOVED}
        assert len(removed) == len(first) - 1
        assert take_down(client) == []


def test_what_a_wheel_deployed_is_removed_and_nothing_of_others(orchestrated):
    """In a wheel, flows lie in `dpal`; others may use our tag for flows of theirs."""
    places = {"wheel": "dpal.flows.audit.audit_run", "theirs": "other.flows.audit.audit_run"}
    with get_client(sync_client=True) as client:
        set_up(client, [WorkPool(name="gpu", limit=1)], [])
        flow = client.create_flow_from_name("audit")
        made = {
            name: client.create_deployment(
                flow_id=flow, name=name, entrypoint=place, tags=["dpal"], work_pool_name="gpu"
            )
            for name, place in places.items()
        }
        try:
            done = {change.name: change.done for change in take_down(client)}
            assert "audit/theirs" not in done
            assert (done["audit/wheel"], done["gpu"]) == (Done.REMOVED, Done.KEPT)
        finally:
            client.delete_deployment(made["theirs"])
            take_down(client)


@pytest.mark.slow
def test_looks_that_an_earlier_version_scheduled_are_taken_off_the_clock(orchestrated, workplace):
    """Else a run a minute would go on for ever beside the desk."""
    Path("watch.yaml").write_text(yaml.safe_dump(watch_values(name="clocked")))
    watch = from_file(Path("watch.yaml"))
    assert "every 5 minutes" in watch.about
    collect = next(one for one in usual([]) if one.flow == "collect-labels")
    since = datetime(2026, 1, 1, tzinfo=UTC)  # earlier versions gave their schedules no name
    every: SCHEDULE_TYPES = IntervalSchedule(
        interval=timedelta(minutes=1), anchor_date=since, timezone="UTC"
    )
    with get_client(sync_client=True) as client:
        pools = pools_of({}, {})
        earlier = [replace(one, folder=workplace) for one in (collect, watch)]
        set_up(client, pools, earlier)
        for one in (collect, watch):
            there = client.read_deployment_by_name(one.full_name)
            client.create_deployment_schedules(there.id, [(every, True)])
        make([watch], pools, {})
        for one in (collect, watch):
            assert client.read_deployment_by_name(one.full_name).schedules == []
        take_down(client)


@pytest.mark.slow
def test_schedules_that_a_person_made_stay_and_are_told(orchestrated, workplace):
    """Those of the settings are replaced by what they say now, and stay off where they were."""
    file = workplace / "c.yaml"
    dated = from_file(write_config(file, name="dated", runtime__cron="0 6 * * 1"))
    by_hand: list[SCHEDULE_TYPES] = [
        IntervalSchedule(interval=timedelta(minutes=90), timezone="Europe/Berlin"),
        RRuleSchedule(rrule="FREQ=WEEKLY;BYDAY=MO", timezone="Asia/Tokyo"),
    ]
    by_hand_told = "every 90 minutes (Europe/Berlin)"
    with get_client(sync_client=True) as client:

        def told(deployment: Deployment) -> str:
            [change] = [one for one in make([deployment], pools_of({}, {}), {})
                        if one.name == "campaign/dated"]  # fmt: skip
            return change.about

        told(dated)
        there = client.read_deployment_by_name("campaign/dated")
        client.update_deployment_schedule(there.id, there.schedules[0].id, active=False)
        client.create_deployment_schedules(there.id, [(each, True) for each in by_hand])
        same = told(dated)
        later = told(from_file(write_config(file, name="dated", runtime__cron="0 7 * * 1")))
        never = told(from_file(write_config(file, name="dated")))
        left = client.read_deployment_by_name("campaign/dated").schedules
        take_down(client)
    assert "by cron 0 6 * * 1 (UTC) (switched off)" in same and by_hand_told in same
    now, gone = later.split("; no longer ")
    assert "by cron 0 7 * * 1 (UTC) (switched off)" in now and by_hand_told in now
    assert "FREQ=WEEKLY;BYDAY=MO (Asia/Tokyo)" in now and "\n" not in now
    assert gone == "by cron 0 6 * * 1 (UTC) (switched off)"
    now, gone = never.split("; no longer ")
    assert gone == "by cron 0 7 * * 1 (UTC) (switched off)"
    assert by_hand_told in now and "cron" not in now
    assert {type(each.schedule) for each in left} == {IntervalSchedule, RRuleSchedule}


@pytest.mark.slow
def test_a_schedule_of_an_earlier_version_goes_with_its_settings(orchestrated, workplace):
    """It has no name; the deployment still says which settings asked for it."""
    file = workplace / "c.yaml"
    settings = [{"runtime__cron": "0 6 * * 1"}, {"runtime__cron": "0 7 * * 1"}, {}]
    earlier, later, never = (from_file(write_config(file, name="aged", **one)) for one in settings)
    with get_client(sync_client=True) as client:
        for wanted, left in ((later, ["0 7 * * 1"]), (never, [])):
            make([earlier], pools_of({}, {}), {})
            there = client.read_deployment_by_name("campaign/aged")
            [made] = there.schedules
            client.delete_deployment_schedule(there.id, made.id)
            client.create_deployment_schedules(there.id, [(made.schedule, True)])
            make([earlier], pools_of({}, {}), {})  # nothing to do, and still without a name
            make([wanted], pools_of({}, {}), {})
            now = client.read_deployment_by_name("campaign/aged").schedules
            assert [getattr(one.schedule, "cron", None) for one in now] == left
        take_down(client)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["docker", "kubernetes"])
def test_a_pool_template_is_what_its_worker_understands(kind):
    """By the worker's own classes, and by the models of the client that would be called."""
    worker = pytest.importorskip(
        f"prefect_{kind}.worker", reason=f"NO {kind.upper()} WORKER: pip install 'dpal[{kind}]'"
    )
    import asyncio
    from uuid import uuid4

    from prefect.client.schemas.objects import FlowRun

    chosen = {"docker": "DockerWorker", "kubernetes": "KubernetesWorker"}[kind]
    configuration = getattr(worker, chosen).job_configuration
    template = template_of(kind)
    assert set(template["job_configuration"]) <= set(configuration.model_fields)

    async def filled():
        made = await configuration.from_template_and_values(
            base_job_template=template, values={"env": {"MARK": "here"}}
        )
        made.prepare_for_flow_run(FlowRun(id=uuid4(), flow_id=uuid4(), name="digits-phase-0"))
        return made

    made = asyncio.run(filled())
    if kind == "docker":
        from docker.models.containers import _create_container_args

        arguments = _create_container_args(
            {
                "image": made.image,
                "command": made.command,
                "environment": made.env,
                "volumes": made.volumes,
                "version": "1.44",
                **made.container_create_kwargs,
                "device_requests": [{"count": 1, "capabilities": [["gpu"]]}],
            }
        )
        assert arguments["host_config"]["Binds"] == ["dpal-work:/work", "dpal-state:/state"]
        assert arguments["environment"]["MARK"] == "here"
        return
    check_manifest(made.job_manifest)
    container = made.job_manifest["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "MARK", "value": "here"} in container["env"]


def check_manifest(manifest):
    """Every key of a Job's manifest is one that the cluster's interface knows."""
    from kubernetes_asyncio.client import models

    def known(value, kind):
        if kind.startswith("list["):
            for each in value:
                known(each, kind[5:-1])
        elif kind.startswith("dict("):
            assert isinstance(value, dict)
        elif hasattr(models, kind):
            model = getattr(models, kind)
            names = {wire: kind_of for kind_of, wire in model.attribute_map.items()}
            assert set(value) <= set(names), (kind, set(value) - set(names))
            for key, each in value.items():
                known(each, model.openapi_types[names[key]])

    known(manifest, "V1Job")
    wrong = json.loads(json.dumps(manifest))
    wrong["spec"]["template"]["spec"]["parallelism"] = 1
    with pytest.raises(AssertionError, match="V1PodSpec"):
        known(wrong, "V1Job")


@pytest.mark.slow
@pytest.mark.timing
def test_a_run_whose_machine_is_gone_is_crashed_and_said_so(dpal, prefect_api, workplace):
    """SIGKILL for worker and run at once: nobody is left to tell Prefect."""
    write_config(workplace / "c.yaml", name="endless", schedule__epochs_per_phase=200_000)
    assert dpal("deploy", "c.yaml").returncode == 0
    environment = {**os.environ, "PREFECT_API_URL": prefect_api}
    prefect = [sys.executable, "-m", "prefect"]
    assert dpal("allow", "c.yaml").returncode == 0
    worker = subprocess.Popen([command(), "worker", "campaigns"], env=environment)
    try:
        start = [*prefect, "deployment", "run", "campaign/endless"]
        subprocess.run(start, env=environment, check=True)
        await_state(prefect_api, "RUNNING", 180)
        time.sleep(35)  # a heartbeat has been sent
    finally:
        for one in psutil.Process(worker.pid).children(recursive=True):
            one.kill()
        worker.kill()
        worker.wait()
    gone = time.monotonic()
    message = await_state(prefect_api, "CRASHED", 180)
    assert time.monotonic() - gone < 120
    assert "90 seconds" in message
    assert "same campaign" in message
    assert dpal("deploy", "--remove").returncode == 0


def await_state(api: str, state: str, seconds: float) -> str:
    import httpx

    wanted = {"deployments": {"name": {"any_": ["endless"]}}, "limit": 5, "sort": "START_TIME_DESC"}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        runs = httpx.post(f"{api}/flow_runs/filter", json=wanted, timeout=20).json()
        if runs and runs[0]["state"]["type"] == state:
            return runs[0]["state"]["message"] or ""
        time.sleep(2)
    raise AssertionError(f"no run was {state} within {seconds} s: {runs}")


def test_the_compose_file_names_what_it_uses():
    """Without an engine: every volume and config that is used is declared, and its file there."""
    folder = ROOT / "mlflow"
    said = yaml.safe_load((folder / "compose.yaml").read_text())
    for one in said["services"].values():
        assert {mount.partition(":")[0] for mount in one.get("volumes", [])} <= set(said["volumes"])
        assert {each["source"] for each in one.get("configs", [])} <= set(said["configs"])
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", []))
        secret = {k: v for k, v in (one.get("environment") or {}).items() if "PASSWORD" in k}
        assert all(value.startswith("${") for value in secret.values())
    for one in said["configs"].values():
        assert Path(folder, one["file"]).is_file()


def test_the_compose_files_doors_are_closed():
    """Servers are the guarded ones, workers are ours, and no worker has the administrator's key."""
    parts = yaml.safe_load((ROOT / "mlflow" / "compose.yaml").read_text())["services"]
    # The image has the package, in which the module's name begins so.
    guarded = ["python", "-m", f"dpal.{prefect_app.__name__}"]
    assert parts["prefect"]["command"][:3] == guarded
    accounts = ["python", "-m", f"dpal.{mlflow_accounts.__name__}"]
    assert parts["mlflow-accounts"]["command"] == accounts
    assert "--app-name=dpal" in " ".join(parts["mlflow"]["command"])
    for server, port in (("prefect", 4200), ("mlflow", 5000)):
        origins = parts[server]["environment"]["DPAL_WEB_ORIGINS"].split(",")
        assert f"http://{server}:{port}" in origins, "the name by which workers call it"
    for name in ("worker", "training-worker"):
        assert parts[name]["command"][:2] == ["dpal", "worker"]
        told = parts[name]["environment"]
        assert told["MLFLOW_TRACKING_USERNAME"] == "dpal-worker"
        assert not any("ADMIN" in value for value in told.values())
        assert Path(told["DPAL_ALLOW"]).parent == Path(told["XDG_STATE_HOME"])
