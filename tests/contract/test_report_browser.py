"""The report in a real browser: no errors, a slider that moves numbers, no network.

The browser is driven over its debugging pipe, so nothing but the browser itself is needed.
``PACPRIVACY_TEST_BROWSER`` names one that is not on the path.
"""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pacprivacy.release import Certificate
from pacprivacy.reporting import (
    CuratorFigures,
    CurvePoint,
    ReportData,
    UtilityCurve,
    build_report,
    render_page,
)

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


def data(**changes: Any) -> ReportData:
    certificate = replace(Certificate.read(CERTIFICATE), **changes)
    variances = {0.55: 0.0324, 0.60: 0.0121, 0.75: 0.0016}
    points = tuple(
        CurvePoint(success=success, total_variance=variance, noise_rms=variance**0.5 / 2)
        for success, variance in variances.items()
    )
    figures = CuratorFigures(
        noise_std=(0.0775, 0.05),
        n_directions=2,
        unit_success_edges=(0.5, 0.55, 0.6),
        unit_success_counts=(90, 60),
        typical_errors=(0.11, 0.08, 0.06),
        sampling_error=0.055,
    )
    plain = build_report(certificate)
    return replace(plain, curve=UtilityCurve(points=points, start=1), curator=figures)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    contents = {
        "public": render_page(data().to_public()),
        "curator": render_page(data()),
        "hostile": render_page(data(mechanism=INJECTED, notes=(INJECTED,))),
        # What a flaw in escaping would let through must still not run.
        "injected": render_page(data().to_public()).replace("</h1>", f"</h1>{INJECTED}"),
    }
    for name, content in contents.items():
        (folder / f"{name}.html").write_text(content, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in contents}


@pytest.mark.parametrize("version", ["public", "curator", "hostile"])
def test_no_complaints_and_no_network(
    browser: Browser, pages: dict[str, Path], version: str
) -> None:
    browser.open(pages[version])
    assert browser.run("document.querySelectorAll('svg').length") >= 4
    assert browser.complaints() == []
    assert browser.requests() == [pages[version].as_uri()]
    assert browser.run("window.hit") is None


def test_errors_would_be_seen(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["injected"])
    browser.run("document.title")
    assert browser.complaints() != []
    assert browser.run("window.hit") is None


def read(browser: Browser) -> dict[str, str]:
    names = ["bound-text", "noise-text", "variance-text", "error-text"]
    found = browser.run(
        f"{json.dumps(names)}.map(n => (document.getElementById(n) || {{}}).textContent)"
    )
    marker = browser.run("document.getElementById('marker').getAttribute('cx')")
    return dict(zip([*names, "marker"], [*found, marker], strict=True))


def test_slider_moves_the_numbers(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["curator"])
    browser.run("document.getElementById('bound').focus()")
    seen = [read(browser)]
    for key in ("Home", "ArrowRight", "End"):
        browser.press(key)
        seen.append(read(browser))
    assert [state["bound-text"] for state in seen] == ["≤ 60 %", "≤ 55 %", "≤ 60 %", "≤ 75 %"]
    assert [state["noise-text"] for state in seen] == ["0.055", "0.09", "0.055", "0.02"]
    assert [state["error-text"] for state in seen] == ["0.08", "0.11", "0.08", "0.06"]
    assert float(seen[1]["marker"]) < float(seen[0]["marker"]) < float(seen[3]["marker"])
    assert seen[2] == seen[0]
    assert browser.complaints() == []


def test_public_slider_has_no_curator_reading(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["public"])
    assert browser.run("document.getElementById('error-text')") is None
    assert "curator" not in browser.run("document.body.innerText").lower()


def test_certificate_is_copied(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["public"])
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


def test_light_dark_paper_and_narrow(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["curator"])
    paper = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.call("Emulation.setEmulatedMedia", media="", features=features)
        seen[scheme] = browser.run(paper)
    assert seen["light"] != seen["dark"]
    browser.call("Emulation.setEmulatedMedia", media="print", features=features)
    assert browser.run(paper) == "rgb(255, 255, 255)"
    assert browser.run("getComputedStyle(document.getElementById('bound')).display") == "none"
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=400,
        height=800,
        deviceScaleFactor=1,
        mobile=True,
    )
    assert browser.run("document.documentElement.scrollWidth") <= 400
    browser.call("Emulation.clearDeviceMetricsOverride")
