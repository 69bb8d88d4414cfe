"""Takes the pictures of the documentation from real pages, with headless Chromium.

Starts the local stack as `dpal serve` does, fills the form on Prefect's page, labels in Label
Studio, and writes docs/images/*.png on the way. Needs Debian's chromium and chromium-driver
(or CHROMIUM and CHROMEDRIVER naming them) and Label Studio (DPAL_LABEL_STUDIO).
Run it from the repository: python -m docs.take_screenshots
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.browser.chrome import browser, open_page, shoot
from tests.browser.life import Life, Wishes
from tests.browser.stack import served

IMAGES = Path(__file__).resolve().parent / "images"
WISHES = Wishes(
    name="digits", initial=700, queries=(300,), batch_size=600, epochs=16, model="tutorial_cnn"
)
_REPORT_HEIGHT = 2400


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder) / "home") as stack,
        browser() as chrome,
    ):
        life = Life(stack=stack, chrome=chrome, images=IMAGES, wishes=WISHES)
        run = life.start()
        for number in range(WISHES.asks):
            life.await_state(run, "Suspended")
            if number == 0:
                life.picture_run(run, "waiting", "Suspended")
                life.picture_label_studio()
            life.label()
            life.await_later_state(run)
        life.await_state(run, "Completed")
        life.picture_run(run, "finished", "Completed")
        life.picture_artifacts(run)
        life.picture_artifact(run, f"campaign-{WISHES.name}", "finished")
        life.picture_artifact(run, "budget", "ledger")
        life.picture_artifact(run, "plan", "adjacency")
        page = life.find_in_mlflow()
        life.picture_mlflow(page, "run", "validation_accuracy")
        life.picture_mlflow(page, "ledger", "phase-1/training", "/artifacts/ledger.json")
        life.picture_mlflow(page, "certificate", "adjacency", "/artifacts/certificate.json")
        open_page(chrome, (life.folder / "report.html").as_uri(), WISHES.name)
        shoot(chrome, IMAGES / "report.png", height=_REPORT_HEIGHT)
        for figure in ("accuracy.png", "budget.png"):
            shutil.copy(life.folder / "figures" / figure, IMAGES / figure)


if __name__ == "__main__":
    main()
