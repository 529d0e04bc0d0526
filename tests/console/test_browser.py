"""The pages in a real browser: what a person sees and clicks, without an error in the browser's console.

`DELTARS_TEST_SCREENSHOTS=1` also writes the pictures of docs/console.md.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

import deltars
from deltars.console.server import ConsoleServer
from tests.console.day import TRAIN, live_through, spread
from tests.console.history import HOSTILE, fill, rows

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PICTURES = Path(__file__).parents[2] / "docs/pictures"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip

pytestmark = [
    pytest.mark.backends("sqlite"),
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no browser here: apt-get install chromium chromium-driver"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (*FLAGS, "--window-size=1280,900", f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def server(catalog: deltars.Catalog) -> Iterator[ConsoleServer]:
    fill(catalog)
    with serving(catalog) as server:
        yield server


@contextmanager
def serving(catalog: deltars.Catalog) -> Iterator[ConsoleServer]:
    server = ConsoleServer(catalog)
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=[ready.set])
    thread.start()
    ready.wait(10)
    yield server
    server.stop()
    thread.join(10)
    assert not thread.is_alive()


ACTIVE = """const at = document.activeElement;
return at.getAttribute("href") || at.name || at.id || at.textContent"""
"""What the keyboard has reached."""


def marks(browser: webdriver.Chrome) -> int:
    return len(browser.find_elements(By.CSS_SELECTOR, "#lanes a.mark"))


def wait(browser: webdriver.Chrome, number: int) -> None:
    WebDriverWait(browser, 15).until(lambda _: marks(browser) == number)


def take_picture(browser: webdriver.Chrome, name: str, root: Path) -> None:
    if os.environ.get("DELTARS_TEST_SCREENSHOTS"):
        # Where the test keeps its files is of no interest.
        browser.execute_script(SHORTEN, str(root))
        browser.save_screenshot(str(PICTURES / f"console-{name}.png"))


SHORTEN = """const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replace(arguments[0], "/lake");"""


def test_person_looks_around(browser: webdriver.Chrome, server: ConsoleServer, catalog: deltars.Catalog) -> None:
    browser.get(server.address)
    assert "token" not in browser.current_url
    assert [link.text for link in browser.find_elements(By.CSS_SELECTOR, "header nav a")] == [
        "Overview", "Transactions", "Conflicts", "Cuts", "Mirror", "Streams", "Maintenance",
    ]  # fmt: skip

    browser.find_element(By.LINK_TEXT, "Transactions").click()
    before = marks(browser)
    assert before == len(catalog.activity())

    # Pointing at a transaction says what it is; so does reaching it by the keyboard.
    detail = browser.find_element(By.CSS_SELECTOR, ".detail")
    assert detail.text == ""
    first = browser.find_element(By.CSS_SELECTOR, "#lanes a.mark")
    webdriver.ActionChains(browser).move_to_element(first.find_element(By.TAG_NAME, "circle")).perform()
    pointed = first.find_element(By.TAG_NAME, "title").get_attribute("textContent")
    WebDriverWait(browser, 15).until(lambda _: detail.text == pointed)
    other = browser.find_elements(By.CSS_SELECTOR, "#lanes a.mark")[-1]
    browser.execute_script("arguments[0].focus()", other)
    assert detail.text == other.find_element(By.TAG_NAME, "title").get_attribute("textContent") != pointed

    # The page follows new commits.
    catalog.write("labels", rows(1).append_column("note", [["x"]]))
    wait(browser, before + 1)

    # A zoom by key keeps the page, changes the address and ends the live mode.
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys("-")
    WebDriverWait(browser, 15).until(lambda _: "from=" in browser.current_url)
    assert not browser.find_element(By.ID, "live").is_selected()
    for _ in range(12):
        body.send_keys(Keys.ARROW_LEFT)
    wait(browser, 0)
    browser.find_element(By.LINK_TEXT, "last day").click()
    wait(browser, before + 1)

    # A click on a transaction, and from there to its table.
    derived = catalog.table(HOSTILE).history(1)[0].txn_id
    browser.find_element(By.CSS_SELECTOR, f'a[href="/transaction/{derived}"] circle').click()
    assert "`id` > 2" in browser.find_element(By.TAG_NAME, "main").text
    browser.find_element(By.LINK_TEXT, HOSTILE).click()
    assert browser.find_element(By.TAG_NAME, "h1").text == HOSTILE
    for name in ("Conflicts", "Cuts", "Mirror", "Streams", "Maintenance", "Overview"):
        browser.find_element(By.LINK_TEXT, name).click()
        assert browser.find_element(By.CSS_SELECTOR, "nav [aria-current]").text == name
    browser.find_element(By.LINK_TEXT, "features").click()
    logged = browser.get_log("browser")  # type: ignore[no-untyped-call]
    severe = [entry for entry in logged if entry["level"] == "SEVERE"]
    assert severe == []


def as_seen(browser: webdriver.Chrome, width: int, theme: str, media: str = "", height: int = 900) -> None:
    """Set the size of the window, exactly, and what the person prefers."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def brightness(browser: webdriver.Chrome, selector: str, name: str) -> float:
    value = browser.find_element(By.CSS_SELECTOR, selector).value_of_css_property(name)
    return sum(map(float, re.findall(r"[\d.]+", value)[:3])) / 3


def test_pages_fit_their_window_in_light_dark_and_print(browser: webdriver.Chrome, server: ConsoleServer) -> None:
    browser.get(server.address)
    pages = ("/", "/transactions", "/table?name=features", "/conflicts", "/cuts?before=q3", "/mirror", "/streams")
    for page in (*pages, "/maintenance", "/nowhere"):
        for width, theme, media in ((400, "light", ""), (1280, "dark", ""), (780, "dark", "print")):
            as_seen(browser, width, theme, media)
            browser.get(f"http://127.0.0.1:{server.port}{page}")
            # Wide tables scroll inside their own frame.
            over = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
            assert over <= 0, (page, width, over)
            is_dark = theme == "dark" and not media  # Paper is white.
            ink, paper = brightness(browser, "body", "color"), brightness(browser, "body", "background-color")
            assert (ink > 200, paper < 50) == (is_dark, is_dark), (page, width, ink, paper)
            assert browser.find_element(By.CSS_SELECTOR, "header nav").is_displayed() == (not media)
    as_seen(browser, 1280, "light")


def test_everything_can_be_reached_by_the_keyboard(browser: webdriver.Chrome, server: ConsoleServer) -> None:
    as_seen(browser, 1280, "light")
    browser.get(server.address)
    browser.get(f"http://127.0.0.1:{server.port}/transactions")
    seen: list[str] = []
    for _ in range(60):
        webdriver.ActionChains(browser).send_keys(Keys.TAB).perform()
        seen.append(browser.execute_script(ACTIVE))
        if seen[-1].startswith("/transaction/"):
            break
    assert seen[0] == "#content"  # past the navigation
    for name in ("/conflicts", "table", "operation", "Filter", "live", "/table?name=features"):
        assert name in seen, seen
    # The live update replaces the drawing, and not what the keyboard has reached.
    browser.execute_script("document.getElementById('lanes').dataset.old = 'yes'")
    WebDriverWait(browser, 15).until(lambda _: not browser.find_elements(By.CSS_SELECTOR, "#lanes[data-old]"))
    assert browser.execute_script(ACTIVE) == seen[-1]
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    WebDriverWait(browser, 15).until(lambda _: seen[-1] in browser.current_url)


def test_pictures_of_the_documentation(browser: webdriver.Chrome, catalog: deltars.Catalog, tmp_path: Path) -> None:
    """A day of a lake, as the pictures in docs/console.md show it."""
    live_through(catalog)
    spread(catalog)
    train = next(one for one in catalog.activity() if one.committer == TRAIN)
    with serving(catalog) as server:
        browser.get(server.address)
        for name, page, height in (
            ("overview", "/", 900),
            ("transactions", "/transactions", 820),
            ("transaction", f"/transaction/{train.txn_id}", 1240),
            ("table", "/table?name=labels", 1120),
            ("conflicts", "/conflicts", 840),
            ("cuts", "/cuts?before=release-3", 960),
        ):
            as_seen(browser, 1280, "light", height=height)
            browser.get(f"http://127.0.0.1:{server.port}{page}")
            assert browser.find_elements(By.CSS_SELECTOR, "main svg"), page
            take_picture(browser, name, tmp_path)


def test_lost_server_is_said(browser: webdriver.Chrome, server: ConsoleServer) -> None:
    browser.get(server.address)
    browser.find_element(By.LINK_TEXT, "Transactions").click()
    server.stop()
    summary = "The server does not answer."
    WebDriverWait(browser, 15).until(lambda _: browser.find_element(By.CSS_SELECTOR, "#lanes .summary").text == summary)


def test_lost_database_is_said_and_comes_back(
    browser: webdriver.Chrome, server: ConsoleServer, catalog: deltars.Catalog, tmp_path: Path
) -> None:
    browser.get(server.address)
    browser.find_element(By.LINK_TEXT, "Transactions").click()
    [file] = tmp_path.glob("*.db")
    catalog.close()
    file.rename(tmp_path / "gone")

    def summary(_: object) -> str:
        return str(browser.execute_script("return document.querySelector('#lanes .summary').textContent"))

    # The live update says so, and goes on when the database is back.
    WebDriverWait(browser, 15).until(lambda _: "The catalog does not answer" in summary(_))
    browser.find_element(By.LINK_TEXT, "Mirror").click()
    assert browser.find_element(By.TAG_NAME, "h1").text == "This page cannot be shown"
    catalog.close()
    (tmp_path / "gone").rename(file)
    browser.refresh()
    assert browser.find_element(By.TAG_NAME, "h1").text == "Mirror"
