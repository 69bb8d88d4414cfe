"""Labels that a person gives in Prefect's own dialog, in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from dpal.data.labeling_state import read_labels, read_selection
from dpal.files.artifacts import CampaignFolder
from tests.browser.chrome import (
    PATIENCE,
    browser,
    open_page,
    outside,
    press,
    require_browser,
    wait_for_text,
)
from tests.browser.form import Form
from tests.conftest import ROOT
from tests.flows.test_labeling import deployed, execute, run_of

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.usefixtures("orchestrated")]

TINY = {"initial": 3, "queries": [], "batch_size": 2, "epochs_per_phase": 1}


def test_pictures_are_seen_and_labeled_in_the_dialog(small, workplace, orchestrated):
    require_browser()
    for part in ("pool", "validation"):
        shutil.copy(ROOT / "data" / f"digits-{part}.parquet", f"{part}.parquet")
    run = deployed(small(labeler={"kind": "form", "trusted_page": True}, schedule=TINY))
    folder = CampaignFolder(Path("artifacts/small"))
    assert execute(run) == "Suspended"
    with browser() as chrome:
        page = f"{orchestrated.removesuffix('/api')}/runs/flow-run/{run}"
        open_page(chrome, page, "Suspended")
        press(chrome, "Resume")
        wait_for_text(chrome, "Record 3")
        sizes = WebDriverWait(chrome, PATIENCE).until(lambda page: widths(page))
        chrome.save_screenshot("dialog.png")
        assert sizes == [28, 28, 28], "each picture is decoded and drawn"
        form = Form(chrome)
        for number in (1, 2, 3):
            form.choose(str(number), f"Record {number}")
        press(chrome, "Submit")
        WebDriverWait(chrome, PATIENCE).until(lambda _: run_of(run).state.name == "Resuming")
        assert outside(chrome) == set(), "no page asks a host outside"
    assert execute(run) == "Completed"
    labels = read_labels(folder.phase(0).labels)
    assert [labels[name] for name in read_selection(folder.phase(0).selection)] == [1, 2, 3]


def widths(page):
    """Pixels of each picture that a record has."""
    pictures = page.find_elements(By.CSS_SELECTOR, "img[src^='data:image/png']")
    return [int(one.get_property("naturalWidth")) for one in pictures]
