"""The pages in a real browser: what a person sees and clicks, without an error in the browser's console.

`DELTARS_TEST_SCREENSHOTS=1` also writes the pictures of docs/console.md.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

import deltars
from deltars.console.server import ConsoleServer
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
    server = ConsoleServer(catalog)
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=[ready.set])
    thread.start()
    ready.wait(10)
    yield server
    server.stop()
    thread.join(10)
    assert not thread.is_alive()


def marks(browser: webdriver.Chrome) -> int:
    return len(browser.find_elements(By.CSS_SELECTOR, "#lanes a.mark"))


def wait(browser: webdriver.Chrome, number: int) -> None:
    WebDriverWait(browser, 15).until(lambda _: marks(browser) == number)


def take_picture(browser: webdriver.Chrome, name: str) -> None:
    if os.environ.get("DELTARS_TEST_SCREENSHOTS"):
        browser.save_screenshot(str(PICTURES / f"console-{name}.png"))


def test_person_looks_around(browser: webdriver.Chrome, server: ConsoleServer, catalog: deltars.Catalog) -> None:
    browser.get(server.address)
    assert "token" not in browser.current_url
    assert [link.text for link in browser.find_elements(By.CSS_SELECTOR, "header nav a")] == [
        "Overview", "Transactions", "Conflicts", "Cuts", "Mirror", "Streams", "Maintenance",
    ]  # fmt: skip
    take_picture(browser, "overview")

    browser.find_element(By.LINK_TEXT, "Transactions").click()
    before = marks(browser)
    assert before == len(catalog.activity())
    take_picture(browser, "transactions")

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
    take_picture(browser, "transaction")
    browser.find_element(By.LINK_TEXT, HOSTILE).click()
    assert browser.find_element(By.TAG_NAME, "h1").text == HOSTILE
    for name in ("Conflicts", "Cuts", "Mirror", "Streams", "Maintenance", "Overview"):
        browser.find_element(By.LINK_TEXT, name).click()
        assert browser.find_element(By.CSS_SELECTOR, "nav [aria-current]").text == name
        if name == "Conflicts":
            take_picture(browser, "conflicts")
    browser.find_element(By.LINK_TEXT, "features").click()
    take_picture(browser, "table")
    logged = browser.get_log("browser")  # type: ignore[no-untyped-call]
    severe = [entry for entry in logged if entry["level"] == "SEVERE"]
    assert severe == []


@pytest.mark.parametrize("width", [400, 1280])
def test_pages_fit_their_window(browser: webdriver.Chrome, server: ConsoleServer, width: int) -> None:
    browser.set_window_size(width, 900)
    browser.get(server.address)
    for page in ("/", "/transactions", "/table?name=features", "/conflicts", "/cuts", "/mirror", "/maintenance"):
        browser.get(f"http://127.0.0.1:{server.port}{page}")
        # Wide tables scroll inside their own frame.
        over = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
        assert over <= 0, (page, over)


def test_lost_server_is_said(browser: webdriver.Chrome, server: ConsoleServer) -> None:
    browser.get(server.address)
    browser.find_element(By.LINK_TEXT, "Transactions").click()
    server.stop()
    summary = "The server does not answer."
    WebDriverWait(browser, 15).until(lambda _: browser.find_element(By.CSS_SELECTOR, "#lanes .summary").text == summary)
