"""`seqserve playground` in Chromium, in front of a real server."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys
from tests.support.process import MODELS, PATIENCE_S, ServerProcess, repeating, until

from .browser import Browser, browser_of

pytestmark = pytest.mark.slow

COFFEE = "The coffee tastes good."
KAFFEE = "Der Kaffee schmeckt gut."
WATCH = """
window.seen = [];
const answer = document.querySelector("#answer");
new MutationObserver(() => {
  if (answer.getAttribute("aria-busy") === "true") window.seen.push(answer.textContent);
}).observe(answer, { childList: true });
"""
COMPOSE = """
const source = document.querySelector("#source");
source.dispatchEvent(new CompositionEvent("compositionstart"));
source.value = arguments[0];
source.dispatchEvent(new InputEvent("input", { isComposing: true }));
source.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", isComposing: true }));
"""


class Rig:
    """A server with the shipped model, on a port that it keeps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.restart("0")

    def restart(self, port: str = "") -> None:
        port = port or self.server.target.rpartition(":")[2]
        options = ("--port", port, "--default-model", "en-de")
        self.server = ServerProcess(MODELS, self._folder, *options)
        self.server.wait_ready()


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("playground"))
    yield rig
    rig.server.kill()


@pytest.fixture(scope="module")
def address(rig: Rig) -> Iterator[str]:
    """Starts the playground as a user does, and ends it as one does."""
    command = [sys.executable, "-m", "seqserve", "playground"]
    arguments = ["--target", rig.server.target, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command + arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        yield process.stdout.readline().split()[3]
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        # It reports when the server is away and when it is back.
        lines = process.stderr.read().splitlines()
        assert [line for line in lines if not line.startswith("seqserve: ")] == []


@pytest.fixture(scope="module")
def chromium(address: str) -> Iterator[Browser]:
    with browser_of(address) as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser) -> Iterator[Browser]:
    chromium.open()
    yield chromium
    assert chromium.errors() == []


def answered(page: Browser, text: str, source: str = "") -> None:
    """Writes a source, if there is one, and waits for its answer."""
    if source:
        page.write(source)
    page.until(lambda: page.text("#answer") == text and bool(page.all("#answer button")))


@contextmanager
def slowed(engines: Sequence[int]) -> Iterator[None]:
    """Lets engines run for 1 ms in every 50, so that no answer arrives all at once."""

    def pause() -> None:
        for engine in engines:
            os.kill(engine, signal.SIGSTOP)
        time.sleep(0.05)
        for engine in engines:
            os.kill(engine, signal.SIGCONT)

    with repeating(pause, 0.001):
        yield


def test_typing_is_answered_with_its_times_and_its_code(page: Browser) -> None:
    page.one("#source").send_keys(COFFEE)
    answered(page, KAFFEE)
    assert "waited" in page.text("#latency") and len(page.all(".bar span")) == 4
    page.one("#code summary").click()
    assert f'"source": "{COFFEE}"' in page.text("pre")


def test_an_example_is_in_the_language_of_the_model_and_answered(page: Browser) -> None:
    page.until(lambda: page.text("#example").startswith("If I had more time"))
    page.one("#example").click()
    page.until(lambda: "Klavier" in page.text("#answer"))
    models = page.all("#model option")
    assert models[0].text == "English → German"
    names = {"Korean → English: ko-en/": "시간이", "German → English: de-en/": "Wenn ich mehr Zeit"}
    for name, begin in names.items():
        next(each for each in models if each.text.startswith(name)).click()
        page.until(lambda begin=begin: page.text("#example").startswith(begin))
    page.one("#example").click()
    page.until(lambda: "piano" in page.text("#answer"))


def test_send_asks_again_and_says_what_can_be_clicked(page: Browser) -> None:
    answered(page, KAFFEE, COFFEE)
    page.run(WATCH)
    page.one("#send").click()
    page.until(lambda: bool(page.run("return window.seen")))
    answered(page, KAFFEE)
    page.until(lambda: "Click a word" in page.text("#hint"))


def test_a_space_that_is_a_token_belongs_to_the_next_word(page: Browser) -> None:
    answered(page, "Der Zug fährt um 15 Uhr ab.", "The train leaves at 3 pm.")
    page.until(lambda: bool(page.all("#map th button")))
    words = [each.text for each in page.all("#map th button")]
    assert words == ["Der", "Zug", "fährt", "um", "1", "5", "Uhr", "ab", ".", "end"]
    page.all("#map th button")[4].click()
    page.until(lambda: bool(page.all("#alternatives strong")))
    assert "um 15 Uhr" in page.text("#alternatives") and "␣" not in page.text("main")
    same = next(each for each in page.all("#alternatives button") if "um 15 Uhr" in each.text)
    assert same.find_element("css selector", "strong").text == "1"
    same.click()
    page.until(lambda: "fährt um 1”" in page.text("#prefix"))
    answered(page, "Der Zug fährt um 15 Uhr ab.")


def test_sentences_are_divided_and_the_beam_is_the_models_own(page: Browser) -> None:
    page.write("The coffee tastes good. We saw a good film.")
    page.until(lambda: len(page.all("#answer button")) == 2)
    assert "Click a sentence" in page.text("#click")
    page.one("#code summary").click()
    assert "beam_size" not in page.text("pre") and "segmentation" not in page.text("pre")
    page.all("#answer button")[1].click()
    page.until(lambda: "saw" in page.text("#map"))
    assert "coffee" not in page.text("#map")


def test_text_streams_in(page: Browser, rig: Rig) -> None:
    page.write("If I had more time, I would learn to play the piano.")
    page.until(lambda: bool(page.all("#answer button")))
    whole = page.text("#answer")
    page.run(WATCH)

    def streams() -> bool:
        page.one("#send").click()
        page.until(lambda: page.one("#answer").get_attribute("aria-busy") != "true")
        return any(0 < len(text) < len(whole) for text in page.run("return window.seen"))

    # While this process waits for a core, an engine may answer all at once.
    with slowed(rig.server.engines()):
        page.until(streams)
    assert [text for text in page.run("return window.seen") if not whole.startswith(text)] == []


def test_new_text_cancels_the_call_before(page: Browser, rig: Rig) -> None:
    # What the page of the test before still asked for is over.
    until(rig.server.is_idle)
    cancelled = rig.server.calls_by_code()["CANCELLED"]
    for engine in rig.server.engines():
        os.kill(engine, signal.SIGSTOP)
    page.write("We saw a good film.")
    page.until(lambda: page.one("#answer").get_attribute("aria-busy") == "true")
    page.write(COFFEE)
    page.until(lambda: rig.server.calls_by_code()["CANCELLED"] > cancelled)
    for engine in rig.server.engines():
        os.kill(engine, signal.SIGCONT)
    answered(page, KAFFEE)


def test_sentence_goes_on_from_an_alternative_by_keyboard(page: Browser) -> None:
    answered(page, KAFFEE, COFFEE)
    page.until(lambda: bool(page.all("#map th button")))
    _, _, schmeckt, *_ = page.all("#map th button")
    schmeckt.send_keys(Keys.ENTER)
    page.until(lambda: any("Kaffee ist gut" in each.text for each in page.all("#alternatives li")))
    chosen = next(each for each in page.all("#alternatives button") if "ist gut" in each.text)
    chosen.send_keys(Keys.ENTER)
    answered(page, "Der Kaffee ist gut.")
    assert "Der Kaffee ist" in page.text("#prefix")
    page.one("#prefix button").click()
    answered(page, KAFFEE)


def test_attention_is_a_map_of_a_layer_and_a_head_or_their_mean(page: Browser) -> None:
    page.write(COFFEE)
    page.until(lambda: "Kaffee" in page.text("#map"))
    titles = [each.get_attribute("title") or "" for each in page.all("#map td[title]")]
    kaffee = [each for each in titles if each.startswith("Kaffee ← ")]
    most = max(kaffee, key=lambda title: float(title.split(": ")[1].strip("< %")))
    assert most.startswith("Kaffee ← coffee: ")
    page.one("#head option[value='0']").click()
    of_head = [each.get_attribute("title") or "" for each in page.all("#map td[title]")]
    assert len(of_head) == len(titles) and of_head != titles


def test_hypotheses_are_listed_and_chosen(page: Browser) -> None:
    page.one("#count").send_keys(Keys.BACKSPACE, Keys.DELETE, "3")
    page.write(COFFEE)
    page.until(lambda: len(page.all("#hypotheses button")) == 3)
    second = page.all("#hypotheses button")[1]
    text = second.find_elements("css selector", "span")[1].text
    second.click()
    assert page.text("#answer") == text


def test_terms_are_kept_without_a_beam(page: Browser) -> None:
    page.one("#terms").send_keys("coffee = Espresso")
    page.write(COFFEE)
    page.until(lambda: bool(page.all("#answer button")))
    assert "Espresso" in page.text("#answer")
    assert not page.one("#beam").get_attribute("value")


def test_nothing_is_asked_while_a_syllable_is_composed(page: Browser) -> None:
    answered(page, KAFFEE, COFFEE)
    page.run(COMPOSE, "We saw a good film.")
    # Longer than the pause after which typing is answered.
    page.driver.set_script_timeout(PATIENCE_S)
    page.driver.execute_async_script("setTimeout(arguments[0], 400)")
    assert page.text("#answer") == KAFFEE
    page.run("document.querySelector('#source').dispatchEvent(new Event('compositionend'))")
    page.until(lambda: "Film" in page.text("#answer"))


def test_markup_of_a_source_is_text_and_marked_as_kept(page: Browser) -> None:
    markup = "<img src=x onerror=document.title=1>"
    page.write(f"{markup} coffee")
    page.until(lambda: bool(page.all("#answer mark")))
    assert page.text("#answer mark") == markup
    assert "kept: " in (page.one("#answer mark").get_attribute("title") or "")
    assert page.all("main img") == []
    assert page.driver.title == "seqserve playground"


def test_narrow_screen_needs_no_sideways_scrolling(page: Browser) -> None:
    page.open(width=390)
    page.write("If I had more time, I would learn to play the piano.")
    page.until(lambda: bool(page.all("#map th button")))
    page.all("#map th button")[1].click()
    page.until(lambda: bool(page.all("#alternatives button")))
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")


def test_page_of_the_calls_tries_one_and_opens_the_fields(page: Browser, address: str) -> None:
    page.driver.get(f"{address}/docs")
    assert page.run("return document.documentElement.scrollHeight") < 2500
    page.one("#try button").click()
    page.until(lambda: KAFFEE in page.text("#try .answer"))
    page.run("document.querySelector('#try textarea').value = '{'")
    page.one("#try button").click()
    page.until(lambda: page.text("#try [role=status]") == "Status 400")
    # What went wrong is in the console too.
    assert all("400" in error for error in page.errors())
    page.one("section details summary").click()
    page.one("section details a[href='#GenerateRequest']").click()
    page.until(lambda: "The text to generate from" in page.text("#GenerateRequest"))
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")


def test_load_of_the_server_is_shown(page: Browser, rig: Rig) -> None:
    page.until(
        lambda: re.search(r"\b0 of \d+ places busy, 0 waiting", page.text("#server")) is not None
    )
    command = [sys.executable, "-m", "seqserve", "generate", "--target", rig.server.target]
    long = ["--temperature", "1", "--num-hypotheses", "16", "--min-decoding-length", "120"]
    with subprocess.Popen(
        [*command, *long], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"A sentence that takes long.\n" * 2000)
        process.stdin.close()
        page.until(lambda: re.search(r"[1-9]\d* of \d+ places", page.text("#server")) is not None)
        process.kill()
    page.until(lambda: ", 0 waiting" in page.text("#server"))


def test_stopped_server_is_shown_and_recovered_from(page: Browser, rig: Rig) -> None:
    rig.server.kill()
    page.write(COFFEE)
    page.until(lambda: "No answer from the server" in page.text("#outage"))
    assert "seqserve serve" in page.text("#outage")
    # The console has the answers with 503.
    rig.restart()
    answered(page, KAFFEE)
    assert page.text("#outage") == ""
    assert page.text("#failure") == ""
    assert all("503" in error for error in page.errors())
