"""The report in a real browser: no errors, no network, what is seen first, on paper, and by axe.

The browser is driven over its debugging pipe, so nothing but the browser itself is needed.
``PACPRIVACY_TEST_BROWSER`` names one that is not on the path.
"""

import base64
import json
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from pacprivacy._values import Row
from pacprivacy.audit import AuditResult
from pacprivacy.release import Certificate
from pacprivacy.reporting import (
    About,
    ReportData,
    render_page,
)
from pacprivacy.theory import clopper_pearson

CERTIFICATE = Path(__file__).parents[1] / "golden" / "data" / "report_certificate.json"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0
INJECTED = "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"


class Browser:
    """A headless browser with one tab, spoken to in its debugging protocol."""

    def __init__(self, program: str, folder: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = 'exec "$@" 3<&"$IN" 4>&"$OUT"'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", program, *FLAGS, f"--user-data-dir={folder}"],
            env={**os.environ, "IN": str(theirs_in), "OUT": str(theirs_out)},
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, path: Path) -> None:
        """Open a file and wait until it is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def run(self, expression: str) -> Any:
        """Return the value of an expression on the page."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screen(self, name: str) -> None:
        """Show the page on a desktop, a phone, a dark desktop or a dark phone."""
        width, height = (390, 844) if "phone" in name else (1280, 800)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if "dark" in name else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", mobile="phone" in name, **size)

    def n_printed_pages(self) -> int:
        """Print the page and count the sheets."""
        self.call("Emulation.clearDeviceMetricsOverride")
        self.call("Emulation.setEmulatedMedia", media="", features=[])
        printed = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed["data"])))

    def press(self, key: str) -> None:
        """Press a key."""
        code = {"Home": 36, "End": 35, "ArrowRight": 39}[key]
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
            )

    def complaints(self) -> list[str]:
        """What the console, the log and uncaught exceptions said."""
        return [
            json.dumps(event["params"])
            for event in self.events
            if event.get("method")
            in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        ]

    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._in, 1 << 16) if ready else b""
            assert chunk, "the browser does not answer"
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(message))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    names = (os.environ.get("PACPRIVACY_TEST_BROWSER"), *BROWSERS)
    program = next((found for name in names if name and (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser on the path: none of {', '.join(BROWSERS)}")
    opened = Browser(program, tmp_path_factory.mktemp("browser"))
    opened.call(
        "Network.emulateNetworkConditions",
        offline=True,
        latency=0,
        downloadThroughput=0,
        uploadThroughput=0,
    )
    yield opened
    opened.close()


ROWS = tuple(
    Row(f"mean income of region {i}", 31_400.0 + i, 650.0, 30_126.0, 32_674.0, 250.0, 600.0)
    for i in range(20)
)
ATTACK = AuditResult(
    attack="bayes",
    question="one unit: in or out",
    n_trials=1000,
    successes=570,
    success=clopper_pearson(570, 1000, gamma=0.01),
    prior=0.5,
    bound=0.6,
)


def data(**changes: Any) -> ReportData:
    """Return a page with everything on it, and long lists of what real certificates say."""
    certificate = Certificate.read(CERTIFICATE)
    changes = {
        "published": [f"{certificate.not_promised[0][:110]} {i}" for i in range(5)],
        "not_promised": 5 * certificate.not_promised,
        "unit": "person",
    } | changes
    return ReportData(
        replace(certificate, **changes),
        about=About(title="Incomes by region", by="A. Curator", dataset="people.csv"),
        values=ROWS,
        audit=[ATTACK],
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    public = render_page(data())
    hostile = replace(data(mechanism=INJECTED, notes=(INJECTED,)), values=(), audit=())
    contents = {
        "public": public,
        "officer": render_page(data(), officer=True),
        "hostile": render_page(hostile),
        # What a flaw in escaping would let through must still not run.
        "injected": public.replace("</h1>", f"</h1>{INJECTED}"),
        "flawed": public.replace('role="img" aria-label=', 'role="img" data-label='),
    }
    for name, content in contents.items():
        (folder / f"{name}.html").write_text(content, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in contents}


@pytest.mark.parametrize("version", ["public", "hostile"])
def test_no_complaints_and_no_network(
    browser: Browser, pages: dict[str, Path], version: str
) -> None:
    browser.open(pages[version])
    assert browser.run("document.querySelectorAll('svg').length") >= 3
    assert browser.complaints() == []
    assert browser.requests() == [pages[version].as_uri()]
    assert browser.run("window.hit") is None


def test_errors_would_be_seen(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["injected"])
    browser.run("document.title")
    assert browser.complaints() != []
    assert browser.run("window.hit") is None


def test_certificate_is_copied(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["public"])
    assert not browser.run("document.getElementById('certificate').checkVisibility()")
    browser.run("document.getElementById('json').open = true")
    browser.run("document.getElementById('copy').scrollIntoView()")
    box = browser.run(
        "(r => [r.x + r.width / 2, r.y + r.height / 2])"
        "(document.getElementById('copy').getBoundingClientRect())"
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.call(
            "Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1
        )
    later = "setTimeout(() => done(document.getElementById('copy').innerText), 300)"
    label = browser.run(f"new Promise(done => {later})")
    assert label == "Copied"
    assert json.loads(browser.run("document.getElementById('certificate').textContent")) == (
        data().certificate.to_public_dict()
    )


SCREENS = ("desktop", "phone", "dark desktop", "dark phone")


def test_light_dark_and_paper(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["public"])
    paper = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for name in SCREENS:
        browser.screen(name)
        seen[name] = browser.run(paper)
    assert len(set(seen.values())) == 2
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.call("Emulation.setEmulatedMedia", media="print", features=features)
    assert browser.run(paper) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("name", SCREENS)
def test_values_are_in_the_first_screen(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    """Every value of the first table, with its interval, before anything is scrolled."""
    browser.screen(name)
    browser.open(pages["public"])
    cells = "[...document.querySelectorAll('#values .numbers td, #values .numbers th[scope=row]')]"
    boxes = browser.run(
        f"{cells}.map(c => c.getBoundingClientRect()).map(r => [r.right, r.bottom])"
    )
    assert len(boxes) == 4 * 10
    width, height = browser.run("[innerWidth, innerHeight]")
    assert max(right for right, _ in boxes) <= width
    assert max(bottom for _, bottom in boxes) <= height
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_what_is_not_hidden_is_as_large_as_the_promise(
    browser: Browser, pages: dict[str, Path]
) -> None:
    sizes = "['promise', 'not-hidden'].map(i => document.querySelector(`#${i} p`))"
    sizes += ".map(p => getComputedStyle(p)).map(s => [s.fontSize, s.fontWeight, s.color])"
    boxes = "['promise', 'not-hidden'].map(i => document.getElementById(i).getBoundingClientRect())"
    for name in SCREENS:
        browser.screen(name)
        browser.open(pages["public"])
        promise, hidden = browser.run(sizes)
        assert promise == hidden
        one, other = browser.run(f"{boxes}.map(b => [b.width, b.height, b.top])")
        assert one[0] == other[0]
        if "desktop" in name:
            assert one[1:] == other[1:]


@pytest.mark.parametrize(("version", "most"), [("public", 2), ("officer", 1)])
def test_sheets_of_paper(browser: Browser, pages: dict[str, Path], version: str, most: int) -> None:
    browser.open(pages[version])
    assert 1 <= browser.n_printed_pages() <= most
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    browser.run("document.body.insertAdjacentHTML('beforeend', '<p>x</p>'.repeat(400))")
    assert browser.n_printed_pages() > 3  # they are counted


def flaws(browser: Browser) -> list[str]:
    """What axe finds on the page, everything unfolded."""
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    browser.run(resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8"))
    found = browser.run("axe.run().then(found => JSON.stringify(found.violations))")
    return [f"{flaw['id']}: {flaw['nodes'][0]['html'][:200]}" for flaw in json.loads(found)]


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize("version", ["public", "officer"])
def test_axe_finds_no_flaw(
    browser: Browser, pages: dict[str, Path], version: str, name: str
) -> None:
    browser.screen(name)
    browser.open(pages[version])
    assert flaws(browser) == []


def test_axe_would_find_one(browser: Browser, pages: dict[str, Path]) -> None:
    browser.screen("dark desktop")
    browser.open(pages["flawed"])
    browser.run("document.querySelector('.legend').style.color = '#333'")
    found = {flaw.partition(":")[0] for flaw in flaws(browser)}
    assert {"color-contrast", "svg-img-alt"} <= found


CONTRAST = """
(() => {
  const light = text => {
    const canvas = document.createElement('canvas').getContext('2d');
    canvas.fillStyle = text;
    const parts = canvas.fillStyle.slice(1).match(/../g).map(part => parseInt(part, 16) / 255);
    const linear = parts.map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const style = getComputedStyle(document.documentElement);
  const read = name => light(style.getPropertyValue(`--${name}`).trim());
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  return ['ink', 'soft', 'blue', 'green', 'orange'].flatMap(
    name => ['card', 'paper'].map(behind => ratio(read(name), read(behind))));
})()
"""


@pytest.mark.parametrize("name", [*SCREENS[1:3], "paper"])
def test_texts_in_pictures_stand_out(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """Axe does not look at texts in pictures; their colours are those of the style sheet."""
    browser.screen(name)
    browser.open(pages["public"])
    if name == "paper":
        browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    found = browser.run(CONTRAST)
    assert len(found) == 10
    assert min(found) >= 4.5
    sizes = browser.run(
        "[...document.querySelectorAll('svg text')].filter(t => t.checkVisibility())"
        ".map(t => t.getBoundingClientRect().height)"
    )
    assert name == "paper" or min(sizes) >= 9
