"""From the form to the certificate, in a real browser, on the local stack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.browser.chrome import CHROMIUM, DRIVER, browser, open_page, outside, wait_for_text
from tests.browser.life import Life, Wishes
from tests.browser.stack import served
from tests.labelers.annotators import command as label_studio

pytestmark = [pytest.mark.slow, pytest.mark.browser]

WISHES = Wishes(
    name="people", initial=200, queries=(200,), batch_size=150, epochs=3, model="logistic"
)


def test_a_campaign_from_the_form_to_the_certificate(tmp_path):
    label_studio()  # skips loudly where it is not installed
    if not (Path(CHROMIUM).exists() and Path(DRIVER).exists()):
        pytest.skip("NO BROWSER: install chromium and chromium-driver, or name them")
    with served(tmp_path) as stack, browser() as chrome:
        life = Life(stack=stack, chrome=chrome, images=tmp_path / "images", wishes=WISHES)
        run = life.start()
        for _ in range(WISHES.asks):
            life.await_state(run, "Suspended")
            life.picture_run(run, "waiting", "Suspended")
            assert "people" in str(life.story(run)["data"])
            assert life.label() > 0
            life.await_later_state(run)
        life.await_state(run, "Completed")
        assert str(life.message(run)).startswith("finished: validation accuracy")
        trained = stack.ask_prefect("flow_runs/filter", flows={"name": {"any_": ["train-phase"]}})
        assert [one["work_pool_name"] for one in trained] == ["gpu"] * WISHES.asks
        told = str(life.story(run)["data"])
        page = life.find_in_mlflow()
        assert page in told, "the story leads to the run in MLflow"
        open_page(chrome, f"{page}/artifacts/ledger.json", "phase-1/training")
        open_page(chrome, f"{page}/artifacts/certificate.json", "adjacency")
        open_page(chrome, (life.folder / "report.html").as_uri(), WISHES.name)
        wait_for_text(chrome, "epsilon")
        certificate = json.loads((life.folder / "certificate.json").read_text())
        assert certificate["promise"]["epsilon"] == 8
        assert outside(chrome) == set(), "no page asks a host outside"
