"""The stack in a real browser: its own pages work, and a page of another origin gets nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from selenium.webdriver import Chrome

from tasks.tracking.server_app import ADMIN, WORKER
from tests.browser.chrome import (
    asked,
    browser,
    open_page,
    press,
    require_browser,
    shoot,
    wait_for_text,
)
from tests.browser.foreign import ForeignPage, foreign_page
from tests.browser.form import Form
from tests.browser.stack import PUBLISHED, Stack, served, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.browser]

REBOUND = "clinic.example.org"  # a name of somebody else's that comes to mean this machine
READ = "/api/flow_runs/filter"
EXPERIMENTS = "/api/2.0/mlflow/experiments"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    require_browser()
    with served(tmp_path_factory.mktemp("home") / "home", label_studio=False) as made:
        yield made


@pytest.fixture
def chrome(stack: Stack) -> Iterator[Chrome]:
    """A browser in which the person of the stack, its administrator, is logged in everywhere."""
    with browser() as opened:
        stack.log_in(opened, ADMIN)
        yield opened


def deployment(stack: Stack) -> str:
    found = stack.ask_prefect(
        "deployments/filter",
        flows={"name": {"any_": ["campaign"]}},
        deployments={"name": {"any_": ["campaign"]}},
    )
    return str(found[0]["id"])


def known(stack: Stack) -> tuple[int, set[str]]:
    """What an attack would add to: campaigns that were started, and experiments."""
    runs = stack.ask_prefect("flow_runs/count", flows={"name": {"any_": ["campaign"]}})
    experiments = stack.ask_mlflow("experiments/search", max_results="1000")["experiments"]
    return int(runs), {one["name"] for one in experiments}


def loot() -> str:
    """A run that sends everything away; its text has an = for the form."""
    runtime = {"store": "s3://mine/loot", "store_holds": "everything"}
    config = {"name": "stolen", "runtime": runtime, "labeler": {"trusted_page": True}}
    return json.dumps({"parameters": {"config": config}, "name": "a=b"})


def blocked(answer: dict[str, Any]) -> bool:
    """Whether a page was told nothing: no answer, or one that it cannot read."""
    return "blocked" in answer or answer.get("type") == "opaque"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_reads_nothing_and_starts_nothing(stack, chrome, name):
    """By 127.0.0.1 it is of the same site, so that the browser sends the password along."""
    start = f"{stack.url('prefect')}/api/deployments/{deployment(stack)}/create_flow_run"
    mlflow, before = stack.url("mlflow"), known(stack)
    with foreign_page(chrome, name) as page:
        for credentials in ("omit", "include"):
            send = {"method": "POST", "headers": JSON, "credentials": credentials}
            assert blocked(page.fetch(stack.url("prefect") + READ, body="{}", **send))
            assert blocked(page.fetch(start, body=loot(), **send))
            assert blocked(page.fetch(f"{mlflow}/version", credentials=credentials))
            search = f"{mlflow}{EXPERIMENTS}/search?max_results=5"
            assert blocked(page.fetch(search, credentials=credentials))
            made = json.dumps({"name": f"fetched-{name}-{credentials}"})
            assert blocked(page.fetch(f"{mlflow}{EXPERIMENTS}/create", body=made, **send))
            quiet = {"mode": "no-cors", "credentials": credentials}
            assert blocked(page.fetch(search, **quiet))
        for url, body in ((start, loot()), (f"{mlflow}{EXPERIMENTS}/create", '{"name": "a=b"}')):
            assert blocked(page.post_untyped(url, body))
            page.submit(url, body)
            page.open()
        assert listened(page, stack) == []
        assert page.frame(f"{stack.url('prefect')}/runs") == ""
        assert page.frame(mlflow) == ""
    assert known(stack) == before


def listened(page: ForeignPage, stack: Stack) -> list[str]:
    """What web sockets told a page that knows no password."""
    told = []
    for path in ("events/out", "events/in", "logs/out"):
        url = f"{stack.url('prefect').replace('http', 'ws')}/api/{path}"
        for protocols in ([], ["prefect"]):
            hello = [json.dumps({"type": "auth", "token": None}), json.dumps({"type": "filter"})]
            answer = page.listen(url, protocols, hello)
            told += [f"{path}: {answer}"] if "blocked" not in answer else []
    return told


def test_a_name_that_comes_to_mean_this_machine_is_not_answered(stack):
    """DNS rebinding: the page and the server are of one origin, by the name of somebody else."""
    with browser(f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1") as chrome:
        stack.log_in(chrome, ADMIN)
        for server, path in (("prefect", "/api/health"), ("mlflow", "/version")):
            chrome.get(f"http://{REBOUND}:{stack.ports[server]}{path}")
            wait_for_text(chrome, "was called by another name")


def test_mlflow_makes_no_version_of_files_elsewhere(stack):
    """It would read them with its own rights, for whoever asks."""
    login = (WORKER, stack.secret("mlflow-worker"))
    url = f"{stack.url('mlflow')}/api/2.0/mlflow"
    made = httpx.post(f"{url}/registered-models/create", json={"name": "q"}, auth=login, timeout=60)
    assert made.is_success
    source = {"name": "q", "source": "s3://bucket/dpal/confidential/clinic"}
    refused = httpx.post(f"{url}/model-versions/create", json=source, auth=login, timeout=60)
    assert refused.status_code == 400
    assert "version source" in refused.text


def test_only_the_stacks_own_hosts_are_asked_and_its_pages_work(stack, chrome, tmp_path):
    """From the form to the artifacts in MLflow; every request of every page is looked at."""
    own = {f"127.0.0.1:{stack.ports[server]}" for server in ("prefect", "mlflow")}
    prefect, mlflow, images = stack.url("prefect"), stack.url("mlflow"), tmp_path / "images"
    for path, text in {
        "dashboard": "Dashboard",
        "runs": "Runs",
        "flows": "campaign",
        "deployments": "campaign",
        "work-pools": "campaigns",
        "work-pools/work-pool/gpu": "gpu",
        "blocks": "Blocks",
        "variables": "Variables",
        "automations": "dpal: crash silent runs",
        "events": "Event",
        "concurrency-limits": "Concurrency",
        "settings": "Server Settings",
    }.items():
        open_page(chrome, f"{prefect}/{path}", text)
        assert asked(chrome) <= own, path
    run = started_by_form(stack, chrome)
    wait_until(lambda: ended(stack, run), patience=900, what="the campaign has ended")
    state = stack.flow_run(run)["state"]
    assert state["type"] == "COMPLETED", state["message"]
    open_page(chrome, f"{prefect}/runs/flow-run/{run}", "Completed")
    shoot(chrome, images / "prefect-run.png")
    press(chrome, "Artifacts")
    wait_for_text(chrome, "campaign-small")
    for old in ("v2", "v2/runs", "v2/dashboard", "docs", "redoc"):  # of Prefect's other pages
        chrome.get(f"{prefect}/{old}")
    chrome.add_cookie({"name": "prefect_ui_version", "value": "v2"})  # of a person who liked them
    open_page(chrome, prefect, "Dashboard")
    assert asked(chrome) <= own
    experiment = stack.ask_mlflow("experiments/get-by-name", experiment_name="dpal")["experiment"]
    number, view = experiment["experiment_id"], "workflowType=machine_learning"
    open_page(chrome, f"{mlflow}/#/experiments?{view}", "dpal")
    open_page(chrome, f"{mlflow}/#/experiments/{number}/runs?{view}", "small")
    shoot(chrome, images / "mlflow-runs.png")
    assert "Sessions" not in chrome.find_element("tag name", "body").text, "language models' page"
    found = chrome.find_elements("link text", "small")[0].get_attribute("href")
    page = str(found).partition("?")[0]
    open_page(chrome, page, "validation_accuracy")
    open_page(chrome, f"{page}/model-metrics", "cohort_0")
    for artifact, text in (
        ("ledger.json", "phase-0/training"),
        ("certificate.json", "adjacency"),
        ("figures/spent.png", "spent.png"),
    ):
        open_page(chrome, f"{page}/artifacts/{artifact}", text)
    open_page(chrome, f"{page}/artifacts/report.html", "report.html")
    wait_until(lambda: "epsilon" in framed(chrome), patience=60, what="the report is shown")
    shoot(chrome, images / "mlflow-report.png")
    open_page(chrome, f"{mlflow}/#/models", "dpal-small")
    chrome.get(mlflow)
    wait_for_text(chrome, "Welcome to MLflow")
    assert asked(chrome) <= own


def started_by_form(stack: Stack, chrome: Chrome) -> str:
    """Fills the form of a campaign as a person does, and submits it."""
    page = f"{stack.url('prefect')}/deployments/deployment/{deployment(stack)}"
    open_page(chrome, f"{page}/run", "Who may see the selection")
    form, before = Form(chrome), known(stack)[0]
    form.fill("small", "Name")
    whose = "Whose validation records these are"
    form.take("Declared here", whose)
    form.switch_on(whose, "Public")
    form.fill(PUBLISHED["why"], whose, "Why")
    form.fill(200, "Schedule", "Labels at the start")
    form.shorten("Schedule", "Labels of each query", to=[])
    form.fill(100, "Schedule", "Batch size")
    form.fill(2, "Schedule", "Epochs of each phase")
    form.choose("logistic", "Model", "Architecture")
    press(chrome, "Submit")
    wait_until(lambda: known(stack)[0] == before + 1, patience=60, what="the form starts a run")
    runs = stack.ask_prefect(
        "flow_runs/filter",
        flows={"name": {"any_": ["campaign"]}},
        sort="EXPECTED_START_TIME_DESC",
    )
    return str(runs[0]["id"])


def ended(stack: Stack, run: str) -> bool:
    return stack.flow_run(run)["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def framed(chrome: Chrome) -> str:
    """What the frames of a page show."""
    texts = []
    for frame in chrome.find_elements("css selector", "iframe"):
        chrome.switch_to.frame(frame)
        texts.append(chrome.find_element("tag name", "body").text)
        chrome.switch_to.default_content()
    return " ".join(texts)


def test_a_program_with_the_password_is_answered(stack):
    """And one without is not, whatever it says about itself."""
    api, login = f"{stack.url('prefect')}/api", stack.secret("prefect").split(":")
    assert httpx.get(f"{api}/admin/version", auth=httpx.BasicAuth(*login)).is_success
    for wrong in (None, ("dpal", "dpal"), (login[0], "")):
        assert httpx.get(f"{api}/admin/version", auth=wrong).status_code == 401
