"""Takes the pictures of the documentation from real pages, with headless Chromium.

Runs the demo campaign against a Prefect server of its own, starts the MLflow server on the
result, opens both in a browser and writes docs/images/*.png. Needs Debian's chromium and
chromium-driver, or CHROMIUM and CHROMEDRIVER naming them.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
}


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        prefect_port, mlflow_port = free_port(), free_port()
        environment = {**os.environ, **QUIET, "PREFECT_HOME": str(home / "prefect")}
        api = f"http://127.0.0.1:{prefect_port}/api"
        environment["PREFECT_SERVER_UI_API_URL"] = api  # where the page looks for its data
        prefect = [sys.executable, "-m", "prefect", "server", "start", "--port", str(prefect_port)]
        store = f"sqlite:///{home / 'artifacts' / 'mlflow.sqlite'}"
        mlflow = [sys.executable, "-m", "mlflow", "server", "--port", str(mlflow_port)]
        mlflow += ["--backend-store-uri", store]
        with serving(prefect, f"{api}/health", environment, home):
            run_demo({**environment, "PREFECT_API_URL": api}, home / "artifacts")
            with (
                serving(mlflow, f"http://127.0.0.1:{mlflow_port}/health", environment, home),
                browser() as chrome,
            ):
                picture_mlflow(chrome, f"http://127.0.0.1:{mlflow_port}", store)
                picture_prefect(chrome, f"http://127.0.0.1:{prefect_port}", api)
        for figure in ("accuracy.png", "budget.png"):
            shutil.copy(home / "artifacts" / "digits" / "figures" / figure, IMAGES / figure)


def run_demo(environment: dict[str, str], artifacts: Path) -> None:
    settings = ["--set", f"runtime.artifacts={artifacts}"]
    settings += ["--set", f"runtime.dvc_remote={artifacts / 'remote'}"]
    command = [str(Path(sys.executable).with_name("dpal")), "run", "flows/configs/digits.yaml"]
    subprocess.run([*command, *settings], cwd=ROOT, env=environment, check=True)


def picture_mlflow(chrome: webdriver.Chrome, url: str, store: str) -> None:
    import mlflow

    mlflow.set_tracking_uri(store)
    runs = mlflow.search_runs(experiment_names=["dpal"], output_format="list")
    parent = next(run for run in runs if run.data.tags["dpal.phase"] == "all")
    place = f"{url}/#/experiments/{parent.info.experiment_id}/runs/{parent.info.run_id}"
    shoot(chrome, place, "validation_accuracy", IMAGES / "mlflow-run.png")
    shoot(
        chrome, f"{place}/artifacts/ledger.json", "phase-3/training", IMAGES / "mlflow-ledger.png"
    )


def picture_prefect(chrome: webdriver.Chrome, url: str, api: str) -> None:
    latest = {"sort": "START_TIME_DESC", "limit": 1}
    run = httpx.post(f"{api}/flow_runs/filter", json=latest).json()[0]["id"]
    kept = httpx.post(
        f"{api}/artifacts/filter", json={"artifacts": {"flow_run_id": {"any_": [run]}}}
    ).json()
    ids = {artifact["key"]: artifact["id"] for artifact in kept}
    page = f"{url}/runs/flow-run/{run}"
    shoot(chrome, page, "plan certified", IMAGES / "prefect-run.png")
    shoot(chrome, page, "plan certified", IMAGES / "prefect-artifacts.png", tab="Artifacts")
    for key in ("plan", "budget"):
        place = f"{url}/artifacts/artifact/{ids[key]}"
        shoot(
            chrome, place, "adjacency" if key == "plan" else "ledger", IMAGES / f"prefect-{key}.png"
        )


def shoot(
    chrome: webdriver.Chrome, url: str, text: str, image: Path, *, tab: str | None = None
) -> None:
    """Opens a page, waits until it shows a text and has settled, and saves a picture."""
    chrome.get(url)
    WebDriverWait(chrome, 60).until(
        lambda page: text in page.find_element(By.TAG_NAME, "body").text
    )
    time.sleep(4)
    for close in chrome.find_elements(
        By.CSS_SELECTOR, "[aria-label='Close'], [aria-label='close']"
    ):
        chrome.execute_script("arguments[0].click()", close)  # MLflow opens an assistant
    if tab:
        labels = chrome.find_elements(By.XPATH, f"//*[normalize-space()='{tab}']")
        chrome.execute_script("arguments[0].click()", labels[-1])
    time.sleep(3)
    chrome.save_screenshot(str(image))
    print(f"{image.relative_to(ROOT)}  from {url}")


@contextmanager
def browser() -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1600,1150",
    ):
        options.add_argument(flag)
    service = Service(os.environ.get("CHROMEDRIVER", "/usr/bin/chromedriver"))
    chrome = webdriver.Chrome(options=options, service=service)
    try:
        yield chrome
    finally:
        chrome.quit()


@contextmanager
def serving(
    command: list[str], health: str, environment: dict[str, str], home: Path
) -> Iterator[None]:
    with (home / "server.log").open("a") as log:
        server = subprocess.Popen(command, env=environment, cwd=home, stdout=log, stderr=log)
        try:
            for _ in range(240):
                try:
                    if httpx.get(health, timeout=2).is_success:
                        break
                except httpx.HTTPError:
                    time.sleep(0.5)
            yield
        finally:
            server.terminate()
            server.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
