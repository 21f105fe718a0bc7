"""The service's page in a real browser, with a real server: ask, see budgets, be refused."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from tests.contract.test_report_browser import Browser, browser as offline, flaws  # noqa: F401
from tests.serving import Folder, Running, people

ENTER = """(() => {{
  document.getElementById("token").value = {token};
  document.getElementById("enter").requestSubmit();
}})()"""
ASK = """(() => {{
  document.getElementById("rows").value = {rows};
  document.getElementById("ask").requestSubmit();
}})()"""
NETWORK = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}


@pytest.fixture
def browser(offline: Browser):  # noqa: F811
    offline.call("Network.emulateNetworkConditions", offline=False, **NETWORK)
    return offline


def until(browser: Browser, expression: str) -> None:
    end = time.monotonic() + 60
    while not browser.run(expression):
        assert time.monotonic() < end, (expression, browser.run("document.body.innerText"))
        time.sleep(0.05)


class Page:
    """The page of a server, as ``Browser.open`` takes it."""

    def __init__(self, port: int) -> None:
        self._port = port

    def as_uri(self) -> str:
        return f"http://127.0.0.1:{self._port}/"


def test_the_page_shows_budgets_answers_and_certificates(browser: Browser, tmp_path: Path) -> None:
    folder = Folder.make(tmp_path, budget="membership<=0.6", query=1e-5)
    server = Running(folder)
    try:
        browser.open(Page(server.port))  # type: ignore[arg-type]
        browser.run(ENTER.format(token='"nobody"'))
        until(browser, 'document.getElementById("message").textContent.startsWith("401")')
        assert browser.run('document.getElementById("inside").hidden')
        browser.run(ENTER.format(token=json.dumps(folder.tokens["ann"])))
        until(browser, '!document.getElementById("inside").hidden')
        text = browser.run("document.body.innerText")
        assert "60 times in 100" in text
        assert "Budget of ann" in text
        assert "membership, points above 50" in text
        assert browser.run('document.getElementById("token").value') == ""
        assert "digest" in browser.run('document.getElementById("certificate").textContent')
        left = 'document.querySelector("#budget td.number").textContent'
        before = browser.run(left)
        assert before == "10"
        asked = people(40, seed=3)[0].round(3)
        agreed = np.ptp(server.model._tabulate(asked), axis=0) == 0
        rows = [*asked[agreed][:2].tolist(), *asked[~agreed][:2].tolist()]
        lines = "\n".join(", ".join(map(str, row)) for row in rows)
        browser.run(ASK.format(rows=json.dumps(lines)))
        until(browser, 'document.getElementById("answers").tBodies[0].rows.length === 4')
        until(browser, f'{left} !== "10"')
        assert float(browser.run(left)) < 10
        shown = browser.run('document.getElementById("answers").innerText')
        assert shown.count("(fact)") == 2
        browser.run(ASK.format(rows='"1, x, 3, 4"'))
        until(browser, 'document.getElementById("message").textContent.startsWith("Every")')
        browser.run(ASK.format(rows='"1, 2"'))
        until(browser, 'document.getElementById("message").textContent.startsWith("400")')
        called = {url.split("/", 3)[2] for url in browser.requests() if url.startswith("http")}
        assert called == {f"127.0.0.1:{server.port}"}  # nothing from elsewhere
        thrown = [said for said in browser.complaints() if "exceptionDetails" in said]
        assert not thrown
        for screen in ("desktop", "phone", "dark", "dark phone"):
            browser.screen(screen)
            wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            assert not browser.run(wide), screen
            assert flaws(browser) == [], screen
    finally:
        server.stop()
