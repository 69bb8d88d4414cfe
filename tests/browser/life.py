"""A campaign's life as people see it: the form, the run, the labels, the results.

Used by the end-to-end test, and by whoever takes the pictures of the documentation.
"""

from __future__ import annotations

import base64
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from PIL import Image
from selenium.common.exceptions import TimeoutException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.chrome import PATIENCE, open_page, press, shoot, wait_for_text
from tests.browser.form import Form
from tests.browser.stack import PUBLISHED, Stack, wait_until

_PHASE_SECONDS = 900.0
_FORM_HEIGHT = 2300


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is typed into the form.

    Attributes:
      name: of the campaign.
      initial: labels at the start.
      queries: labels of each query.
      batch_size: expected.
      epochs: of each phase.
      model: architecture.
    """

    name: str
    initial: int
    queries: tuple[int, ...]
    batch_size: int
    epochs: int
    model: str

    @property
    def asks(self) -> int:
        """How often people are asked."""
        return 1 + len(self.queries)


@dataclass(frozen=True, kw_only=True)
class Life:
    """One campaign on a stack.

    Attributes:
      stack: where it runs.
      chrome: in which its pages are opened.
      images: where their pictures go.
      wishes: what is asked for.
    """

    stack: Stack
    chrome: Chrome
    images: Path
    wishes: Wishes

    @property
    def folder(self) -> Path:
        """The campaign's files."""
        return self.stack.home / "artifacts" / self.wishes.name

    def start(self) -> str:
        """Fills the form, corrects a mistake, and submits it; returns the flow run's id."""
        found = self.stack.ask_prefect(
            "deployments/filter",
            flows={"name": {"any_": ["campaign"]}},
            deployments={"name": {"any_": ["campaign"]}},
        )
        page = f"{self.stack.url('prefect')}/deployments/deployment/{found[0]['id']}"
        self.stack.log_in(self.chrome)
        open_page(self.chrome, f"{page}/run", "Who may see the selection")
        form, wishes = Form(self.chrome), self.wishes
        form.fill(wishes.name, "Name")
        form.choose("label_studio", "Labels", "Labeler")
        form.take("Set here", "Labels", "Label Studio")
        form.fill(self.stack.url("label-studio"), "Labels", "Label Studio", "Address")
        whose = "Whose validation records these are"
        form.take("Declared here", whose)
        form.switch_on(whose, "Public")
        form.fill(PUBLISHED["why"], whose, "Why")
        form.fill(wishes.initial, "Schedule", "Labels at the start")
        form.shorten("Schedule", "Labels of each query", to=list(wishes.queries))
        form.fill(wishes.batch_size, "Schedule", "Batch size")
        form.fill(wishes.epochs, "Schedule", "Epochs of each phase")
        form.choose(wishes.model, "Model", "Architecture")
        form.take("A work pool", "Where it runs", "Training pool")
        form.fill("gpu", "Where it runs", "Training pool")
        form.fill(-1, "Privacy", "Epsilon")
        press(self.chrome, "Submit")
        wait_for_text(self.chrome, "-1 is less than or equal to the minimum of 0")
        shoot(self.chrome, self.images / "prefect-form-refused.png", at_once=True)
        form.fill(8, "Privacy", "Epsilon")
        shoot(self.chrome, self.images / "prefect-form.png", height=_FORM_HEIGHT)
        press(self.chrome, "Submit")
        self._await_start()
        return str(self.runs()[0]["id"])

    def _await_start(self) -> None:
        """Waits for the run; presses once more where the page took the first time for a resize."""
        waiting = WebDriverWait(self.chrome, PATIENCE / 4)
        try:
            waiting.until(lambda _: self.runs())
        except TimeoutException:
            press(self.chrome, "Submit")
            shown = self.chrome.find_element(By.TAG_NAME, "body").text[-500:]
            waiting.until(lambda _: self.runs(), message=f"the form started nothing: {shown}")

    def runs(self) -> list[dict[str, object]]:
        """The campaign's flow runs that the form started."""
        known = self.stack.ask_prefect(
            "flow_runs/filter",
            flows={"name": {"any_": ["campaign"]}},
            sort="EXPECTED_START_TIME_DESC",
        )
        wanted = self.wishes.name
        return [one for one in known if one["parameters"]["config"]["name"] == wanted]

    def await_state(self, run: str, name: str) -> None:
        """Waits until the flow run is in a state, and no other that ends it."""

        def reached() -> bool:
            state = self._state(run)
            ended = state["type"] in ("FAILED", "CRASHED", "CANCELLED")
            assert not ended, f"{state['name']}: {state['message']}"
            return bool(state["name"] == name)

        wait_until(reached, patience=_PHASE_SECONDS, what=f"the campaign is {name}")

    def await_later_state(self, run: str) -> None:
        """Waits until the flow run has left its wait."""
        wait_until(
            lambda: self._state(run)["name"] != "Suspended",
            patience=_PHASE_SECONDS,
            what="the campaign goes on",
        )

    def message(self, run: str) -> object:
        """What the flow run's state says."""
        return self._state(run)["message"]

    def _state(self, run: str) -> dict[str, Any]:
        state: Any = self.stack.flow_run(run)["state"]
        return dict(state)

    def picture_run(self, run: str, name: str, text: str) -> None:
        """Takes the page of the flow run, and of what it shows."""
        page = f"{self.stack.url('prefect')}/runs/flow-run/{run}"
        open_page(self.chrome, page, self.wishes.name)
        wait_for_text(self.chrome, text)
        shoot(self.chrome, self.images / f"prefect-run-{name}.png")

    def story(self, run: str) -> dict[str, object]:
        """The artifact that tells the campaign."""
        key = f"campaign-{self.wishes.name}"
        known = self.stack.ask_prefect(
            "artifacts/filter", artifacts={"flow_run_id": {"any_": [run]}, "key": {"any_": [key]}}
        )
        assert len(known) == 1, "one story for a run, also after it was resumed"
        return known[0]

    def picture_artifact(self, run: str, key: str, text: str) -> None:
        """Takes the page of one of the run's artifacts."""
        known = self.stack.ask_prefect(
            "artifacts/filter", artifacts={"flow_run_id": {"any_": [run]}, "key": {"any_": [key]}}
        )
        page = f"{self.stack.url('prefect')}/artifacts/artifact/{known[0]['id']}"
        open_page(self.chrome, page, text)
        name = "story" if key.startswith("campaign-") else key
        shoot(self.chrome, self.images / f"prefect-{name}.png")

    def picture_artifacts(self, run: str) -> None:
        """Takes the list of what the flow run shows."""
        page = f"{self.stack.url('prefect')}/runs/flow-run/{run}"
        open_page(self.chrome, page, "Artifacts")
        press(self.chrome, "Artifacts")
        wait_for_text(self.chrome, f"campaign-{self.wishes.name}")
        shoot(self.chrome, self.images / "prefect-artifacts.png")

    def picture_label_studio(self) -> None:
        """Takes the page on which a person labels."""
        annotator, url = self.stack.annotator(), self.stack.url("label-studio")
        email, password = "dpal@example.org", self.stack.secret("label-studio-password")
        open_page(self.chrome, f"{url}/user/login", "Log in")
        self.chrome.find_element(By.NAME, "email").send_keys(email)
        self.chrome.find_element(By.NAME, "password").send_keys(password, "\n")
        wait_for_text(self.chrome, self.wishes.name)
        project = annotator.client.get("/api/projects").json()["results"][0]["id"]
        task = annotator.tasks(project)[0]["id"]
        open_page(self.chrome, f"{url}/projects/{project}/data?task={task}", "Submit")
        shoot(self.chrome, self.images / "label-studio.png")

    def label(self) -> int:
        """Answers what Label Studio asks, as an annotator who knows; returns how many answers."""
        annotator, known = self.stack.annotator(), self._truth()
        answered = 0
        for project in annotator.client.get("/api/projects").json()["results"]:
            for task in annotator.tasks(project["id"]):
                if not task["is_labeled"]:
                    annotator.answer(task["id"], known[_seen(task)])
                    answered += 1
        return answered

    def _truth(self) -> dict[str, str]:
        """The digit on each picture of the pool, by what a person sees."""
        table = pq.read_table(self.stack.home / "data" / "digits-pool.parquet")
        names = table.column("image").to_pylist()
        labels = table.column("label").to_pylist()
        return {_pixels(image): str(one) for image, one in zip(names, labels, strict=True)}

    def find_in_mlflow(self) -> str:
        """Opens MLflow, finds the run by its name, and returns the address of its page."""
        url = self.stack.url("mlflow")
        known = self._experiments()
        open_page(self.chrome, f"{url}/#/experiments/{known}/runs", self.wishes.name)
        shoot(self.chrome, self.images / "mlflow-experiment.png")
        links = self.chrome.find_elements(By.LINK_TEXT, self.wishes.name)
        return str(links[0].get_attribute("href"))

    def _experiments(self) -> str:
        found = self.stack.ask_mlflow("experiments/get-by-name", experiment_name="dpal")
        return str(found["experiment"]["experiment_id"])

    def picture_mlflow(self, page: str, name: str, text: str, place: str = "") -> None:
        """Takes a page of the campaign's MLflow run."""
        open_page(self.chrome, f"{page}{place}", text)
        shoot(self.chrome, self.images / f"mlflow-{name}.png")


def _seen(task: dict[str, Any]) -> str:
    """What a task shows: its picture is part of it."""
    shown = next(one for one in task["data"].values() if str(one).startswith("data:image"))
    return _pixels(base64.b64decode(shown.partition(",")[2]))


def _pixels(image: bytes) -> str:
    """A digest of a picture's pixels, however it is packed."""
    return hashlib.sha256(Image.open(io.BytesIO(image)).convert("L").tobytes()).hexdigest()
