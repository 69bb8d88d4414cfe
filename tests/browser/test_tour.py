"""A stranger's tour in a real browser: form, training, labels, ledger, new data, a champion.

Every page is kept as a picture below the test's folder, for whoever judges them by eye.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.chrome import (
    PATIENCE,
    browser,
    click,
    open_page,
    outside,
    press,
    require_browser,
    shoot,
    wait_for_text,
)
from tests.browser.form import Form
from tests.browser.life import Life, Wishes
from tests.browser.stack import PUBLISHED, Stack, served, wait_until
from tests.conftest import ROOT
from tests.labeling.annotators import command as label_studio

pytestmark = [pytest.mark.slow, pytest.mark.browser]

WISHES = Wishes(
    name="people", initial=200, queries=(200,), batch_size=150, epochs=60, model="tutorial_cnn"
)
WATCH: dict[str, Any] = {
    "name": "clinic",
    "folder": "inbox",
    "dataset": "clinic",
    "every_minutes": 0.2,
    "settle_seconds": 0,
    "campaign": {
        "data": {"validation": "data/digits-validation.parquet"},
        "validation": PUBLISHED,
        "privacy": {"selection": "visible", "epsilon": 3, "delta": 1e-4},
        "schedule": {"initial": 150, "queries": [], "batch_size": 75, "epochs_per_phase": 3},
        "model": {"name": "logistic"},
        "training": {"optimizer": "sgd", "learning_rate": 0.5},
    },
}
WORK = {"campaign", "public", "pate", "vote", "train-phase", "train-repeatable"}
SHORT = ("campaign", "public", "pate", "vote")  # kinds of runs
MOST_CONTROLS, MOST_SCREENS, SCREEN = 15, 2, 1100
MOST_CLICKS = 2  # from where MLflow opens, to what was spent


def test_a_strangers_tour(tmp_path):
    """What is measured on the way is printed, and stands in docs/operations.md."""
    label_studio()
    require_browser()
    bring(tmp_path, "january", 0, 700)
    with served(tmp_path, watch=WATCH) as stack, browser() as chrome:
        images = tmp_path / "images"
        life = Life(stack=stack, chrome=chrome, images=images, wishes=WISHES)
        run = life.start()
        told: dict[str, Any] = {"long form": Form(chrome_form(life, "campaign")).size()}
        short = {}
        for kind in SHORT:
            short[kind] = Form(chrome_form(life, f"new-{kind}")).size()
            shoot(chrome, images / f"prefect-short-form-{kind}.png", height=1900)
        life.await_state(run, "Suspended")
        life.picture_run(run, "waiting", "Suspended")
        assert life.label() > 0
        watched = watch_training(life, run)
        life.await_state(run, "Suspended")
        clicks = spent_in_mlflow(life, "running")
        assert life.label() > 0
        life.await_later_state(run)
        life.await_state(run, "Completed")
        assert str(life.message(run)).startswith("finished: validation accuracy")
        life.picture_run(run, "finished", "Completed")
        story = str(life.story(run)["data"])
        page = life.find_in_mlflow()
        assert page in story, "the story leads to the run in MLflow"
        open_page(chrome, f"{page}/artifacts/ledger.json", "phase-1/training")
        shoot(chrome, images / "mlflow-ledger.png")
        open_page(chrome, f"{page}/artifacts/certificate.json", "adjacency")
        shoot(chrome, images / "mlflow-certificate.png")
        open_page(chrome, (life.folder / "report.html").as_uri(), WISHES.name)
        shoot(chrome, images / "report.png", height=2400)
        certificate = json.loads((life.folder / "certificate.json").read_text())
        assert certificate["promise"]["epsilon"] == 8
        versions(stack, chrome, images)
        told |= {"short form": short, "progress": watched, "clicks": clicks, "runs": runs(stack)}
        print(json.dumps(told))  # noqa: T201  figures are what they are for
        for controls, height in short.values():
            assert controls <= MOST_CONTROLS and height <= MOST_SCREENS * SCREEN
        assert 0 < watched < 100
        assert clicks <= MOST_CLICKS
        assert sum(runs(stack)[name] for name in WORK) / runs(stack).total() >= 0.95
        assert outside(chrome) == set(), "no page asks a host outside"


def chrome_form(life: Life, deployment: str) -> Chrome:
    """The browser, with the form of a deployment open as it is found."""
    found = life.stack.ask_prefect(
        "deployments/filter", deployments={"name": {"any_": [deployment]}}
    )
    page = f"{life.stack.url('prefect')}/deployments/deployment/{found[0]['id']}/run"
    open_page(life.chrome, page, "Name")
    return life.chrome


def watch_training(life: Life, run: str) -> float:
    """Opens the page of a training on the pool while it trains; returns how far it was, in %."""
    stack, chrome = life.stack, life.chrome
    found: list[dict[str, Any]] = []

    def trains() -> bool:
        assert stack.flow_run(run)["state"]["type"] not in ("FAILED", "CRASHED"), life.message(run)
        known = stack.ask_prefect("flow_runs/filter", flows={"name": {"any_": ["train-phase"]}})
        ours = [one["id"] for one in known if one["work_pool_name"] == "gpu"]  # the watch has none
        wanted = {"flow_run_id": {"any_": ours}, "key": {"any_": ["phase-0-training"]}}
        found[:] = stack.ask_prefect("artifacts/filter", artifacts=wanted) if ours else []
        return bool(found) and float(found[0]["data"]) > 0

    wait_until(trains, patience=600, what="a worker of the pool trains")
    trainer = str(found[0]["flow_run_id"])
    page = f"{stack.url('prefect')}/runs/flow-run/{trainer}"
    open_page(chrome, page, "Artifacts")
    press(chrome, "Artifacts")
    wait_for_text(chrome, "phase-0-training")
    shoot(chrome, life.images / "prefect-training.png")
    return float(found[0]["data"])


def spent_in_mlflow(life: Life, state: str) -> int:
    """Follows links from where MLflow opens to what was spent; returns how many were clicked."""
    stack, chrome = life.stack, life.chrome
    open_page(chrome, f"{stack.url('mlflow')}/#/experiments?workflowType=machine_learning", "dpal")
    shoot(chrome, life.images / "mlflow-home.png")
    follow(chrome, "dpal")
    wait_for_text(chrome, life.wishes.name)
    shoot(chrome, life.images / "mlflow-experiment.png")
    follow(chrome, life.wishes.name)
    wait_for_text(chrome, "Spent:")
    wait_for_text(chrome, "left")
    shoot(chrome, life.images / f"mlflow-run-{state}.png")
    return 2


def follow(chrome: Chrome, text: str) -> None:
    """Clicks a link as soon as it is there."""
    link = WebDriverWait(chrome, PATIENCE).until(
        lambda page: page.find_elements(By.LINK_TEXT, text), message=f"no link says {text}"
    )
    click(chrome, link[0])


def versions(stack: Stack, chrome: Chrome, images: Path) -> None:
    """A file arrives, a second version comes of it, and the champion moves there and back."""
    model = "models:/dpal-clinic"
    wait_until(lambda: versions_of(stack) == 1, patience=600, what="the first version is there")
    stack.dpal("promote", f"{model}/1", "--reason", "the first one")
    bring(stack.home, "february", 700, 1100)
    wait_until(lambda: versions_of(stack) == 2, patience=600, what="the second version is there")
    page = f"{stack.url('mlflow')}/#/models/dpal-clinic"
    for words, number in (
        ((f"{model}/2", "--reason", "more records"), 2),
        ((model, "--back", "--reason", "as a test of the way back"), 1),
    ):
        stack.dpal("promote", *words)
        assert champion_of(stack) == str(number)
        open_page(chrome, page, "champion")
        shoot(chrome, images / f"mlflow-champion-{number}.png")
    open_page(chrome, f"{page}/versions/2", "adjacency")
    shoot(chrome, images / "mlflow-version-2.png", height=1600)


def versions_of(stack: Stack) -> int:
    found = stack.ask_mlflow("model-versions/search", filter="name='dpal-clinic'")
    return len(found.get("model_versions", []))


def champion_of(stack: Stack) -> str:
    found = stack.ask_mlflow("registered-models/alias", name="dpal-clinic", alias="champion")
    return str(found["model_version"]["version"])


def bring(home: Path, name: str, first: int, last: int) -> None:
    """Puts some records into the watched folder, at once; none that the form's campaign is on."""
    table = pq.read_table(ROOT / "data" / "digits-public.parquet").slice(first, last - first)
    (home / "inbox").mkdir(parents=True, exist_ok=True)
    pq.write_table(table, home / f"{name}.tmp")
    shutil.move(home / f"{name}.tmp", home / "inbox" / f"{name}.parquet")


def runs(stack: Stack) -> Counter[str]:
    """What stands in Prefect's list of runs, by flow."""
    names = {one["id"]: one["name"] for one in stack.ask_prefect("flows/filter")}
    return Counter(names[one["flow_id"]] for one in stack.ask_prefect("flow_runs/filter"))
