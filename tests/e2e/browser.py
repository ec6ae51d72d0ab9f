"""A headless Chromium, and what a reader does with the playground in it."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from tests.support.process import until

_FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")


class Browser:
    """The page of a playground, found by selectors of CSS."""

    def __init__(self, driver: Chrome, address: str) -> None:
        self.driver, self._address = driver, address

    def open(self, width: int = 1280) -> None:
        """Loads the page into a window of this width, and waits for the models."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get(self._address)
        self.until(lambda: "ready" in self.text("#server"))

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return self.one(selector).text

    def write(self, text: str) -> None:
        """Replaces the source at once; a slow machine would answer what is typed so far."""
        self.one("#source").clear()
        self.run("document.querySelector('#source').focus()")
        self.driver.execute_cdp_cmd("Input.insertText", {"text": text})

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Waits for a state of the page, which may be drawn anew meanwhile."""

        def is_there() -> bool:
            try:
                return is_so()
            except StaleElementReferenceException:
                return False

        until(is_there)

    def errors(self) -> list[str]:
        """Returns what the page wrote to its console as an error since the last time."""
        entries = self.driver.get_log("browser")
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]


@contextmanager
def browser_of(address: str) -> Iterator[Browser]:
    """Starts Chromium; skips the test where it is not installed."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("the playground was NOT tried: chromium and chromium-driver are not installed")
    options = ChromeOptions()
    options.binary_location = chromium
    for flag in _FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=Service(driver))
    try:
        yield Browser(chrome, address)
    finally:
        chrome.quit()
