"""A headless Chromium that a test, or whoever takes pictures, drives like a person."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
DRIVER = os.environ.get("CHROMEDRIVER", "/usr/bin/chromedriver")
PATIENCE = 120.0  # seconds for a page, on a busy machine
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_MOVING = (StaleElementReferenceException,)
_WIDTH, _HEIGHT = 1500, 1100


def require_browser() -> None:
    """Skips a test loudly where there is no browser; `make browser` has it fail then."""
    if not (Path(CHROMIUM).exists() and Path(DRIVER).exists()):
        if os.environ.get("DPAL_BROWSER") == "required":
            pytest.fail("NO BROWSER")
        pytest.skip("NO BROWSER: install chromium and chromium-driver, or name them")


@contextmanager
def browser(*flags: str) -> Iterator[Chrome]:
    """A browser of its own, in light colours, that notes every request."""
    options = Options()
    options.binary_location = CHROMIUM
    for flag in (*_FLAGS, *flags, f"--window-size={_WIDTH},{_HEIGHT}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    chrome = Chrome(options=options, service=Service(DRIVER))
    light = {"name": "prefers-color-scheme", "value": "light"}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [light]})
    try:
        yield chrome
    finally:
        chrome.quit()


def outside(chrome: Chrome) -> set[str]:
    """Hosts beyond this machine that pages have asked since the last call."""
    hosts = {place.rpartition(":")[0] or place for place in asked(chrome)}
    return hosts - {"127.0.0.1", "localhost"}


def asked(chrome: Chrome) -> set[str]:
    """Hosts and ports that pages have asked, or would have, since the last call."""
    places = set()
    for line in chrome.get_log("performance"):
        message = json.loads(line["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            places.add(urlsplit(message["params"]["request"]["url"]).netloc)
        elif message["method"] == "Network.webSocketCreated":
            places.add(urlsplit(message["params"]["url"]).netloc)
    return {place.rpartition("@")[2] for place in places} - {""}


def open_page(chrome: Chrome, url: str, text: str) -> None:
    """Opens a page and waits until it shows a text."""
    chrome.get("about:blank")  # a change behind the # alone would load nothing
    chrome.get(url)
    wait_for_text(chrome, text)


def wait_for_text(chrome: Chrome, text: str, *, patience: float = PATIENCE) -> None:
    """Waits until the page shows a text."""
    WebDriverWait(chrome, patience, ignored_exceptions=_MOVING).until(
        lambda page: text in page.find_element(By.TAG_NAME, "body").text,
        message=f"{chrome.current_url} never showed {text!r}",
    )


def click(chrome: Chrome, element: WebElement) -> None:
    """Clicks what may be below something else, or out of sight."""
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    chrome.execute_script("arguments[0].click()", element)


def press(chrome: Chrome, text: str) -> None:
    """Presses the last thing on the page that says just this."""
    click(chrome, chrome.find_elements(By.XPATH, f"//*[normalize-space()='{text}']")[-1])


def shoot(chrome: Chrome, image: Path, *, height: int = _HEIGHT, at_once: bool = False) -> None:
    """Saves a picture of the page.

    Args:
      chrome: that shows it.
      image: where to.
      height: more where a page is long.
      at_once: with a message that passes; else once the page has settled, without messages.
    """
    if at_once:
        time.sleep(0.7)  # it slides in
        image.parent.mkdir(parents=True, exist_ok=True)
        chrome.save_screenshot(str(image))
        return
    closing = "[aria-label='Close'], [aria-label='close']"
    for close in chrome.find_elements(By.CSS_SELECTOR, closing):
        chrome.execute_script("arguments[0].click()", close)  # MLflow opens an assistant
    chrome.set_window_size(_WIDTH, height)
    time.sleep(3)
    image.parent.mkdir(parents=True, exist_ok=True)
    chrome.save_screenshot(str(image))
    chrome.set_window_size(_WIDTH, _HEIGHT)
