"""Filling a form of the Prefect page, field by field, as a person finds them: by their titles."""

from __future__ import annotations

from functools import partial

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.browser.chrome import PATIENCE, click

_FIELD = (
    ".//span[contains(@class, 'schema-form-property__label')]"
    "[normalize-space()='{0}' or normalize-space()='{0} (Optional)']"
    "/ancestor::div[contains(concat(' ', @class, ' '), ' schema-form-property ')][1]"
)
_INPUT = "textarea, input, select.p-native-select__control:not([class*='placeholder'])"


class Form:
    """The parameters of a deployment, as its page shows them."""

    def __init__(self, chrome: Chrome) -> None:
        self._chrome = chrome

    def field(self, *titles: str) -> WebElement:
        """A field by its title, after those of the sections that it is in."""
        place: WebElement | Chrome = self._chrome
        for title in titles:
            find = partial(place.find_element, By.XPATH, _FIELD.format(title))
            place = WebDriverWait(self._chrome, PATIENCE).until(lambda _: find())  # noqa: B023
        assert isinstance(place, WebElement)
        return place

    def fill(self, value: object, *titles: str) -> None:
        """Types a value in place of the one that is there."""
        self._type(self.field(*titles).find_element(By.CSS_SELECTOR, _INPUT), value)

    def choose(self, option: str, *titles: str) -> None:
        """Chooses one of a list."""
        box = self.field(*titles).find_element(By.CSS_SELECTOR, _INPUT)
        Select(box).select_by_visible_text(option)

    def take(self, way: str, *titles: str) -> None:
        """Takes one of the ways in which a field may be given."""
        button = self.field(*titles).find_element(
            By.XPATH, f".//button[contains(@class, 'p-button-group__button')][.='{way}']"
        )
        click(self._chrome, button)

    def switch_on(self, *titles: str) -> None:
        """Says yes to what is no."""
        box = self.field(*titles).find_element(By.CSS_SELECTOR, "input[type=checkbox]")
        click(self._chrome, box)

    def size(self) -> tuple[int, int]:
        """How many controls the form has, as it is opened, and its height in pixels."""
        form = self._chrome.find_element(By.CSS_SELECTOR, "form")
        controls = form.find_elements(
            By.CSS_SELECTOR, f"{_INPUT.replace(', ', ', form ')}, .p-button-group"
        )
        return len([one for one in controls if one.is_displayed()]), int(form.size["height"])

    def shorten(self, *titles: str, to: list[object]) -> None:
        """Makes a list as long as wanted, from its end, and fills it."""

        def rows() -> list[WebElement]:
            return self.field(*titles).find_elements(By.CSS_SELECTOR, "input")

        def has_left(count: int, _: Chrome) -> bool:
            return len(rows()) == count

        def typed(number: int, value: object, _: Chrome) -> bool:
            return self._type(rows()[number], value)

        stale = (StaleElementReferenceException,)
        waiting = WebDriverWait(self._chrome, PATIENCE, ignored_exceptions=stale)
        for count in range(len(rows()), len(to), -1):
            # The first button behind a row takes it away; the page then makes all rows anew.
            waiting.until(lambda _: self._press_behind(rows()[-1]))
            waiting.until(partial(has_left, count - 1))
        for number, value in enumerate(to):
            waiting.until(partial(typed, number, value))

    def _press_behind(self, row: WebElement) -> bool:
        click(self._chrome, row.find_element(By.XPATH, "following::button[1]"))
        return True

    def _type(self, box: WebElement, value: object) -> bool:
        box.send_keys(Keys.CONTROL, "a")
        box.send_keys(str(value))
        return True
