"""Draw the pictures of ``docs/images`` that show plots and pages.

Usage: python benchmarks/pictures.py [NAME ...]

Makes releases of an invented table, draws each kind of ``plot()``, writes the pages and takes a
picture of each, wide and narrow, in headless Chromium. The site is drawn where ``make docs`` has
built it. Noise is fresh in every run. Takes two minutes on two cores.
"""

from __future__ import annotations

import io
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

import pacprivacy as pac
from pacprivacy.ledger import Ledger

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 60_000
WIDE, NARROW = (1000, 1180), (390, 1180)
BUDGET = "membership<=0.6"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def patients() -> pd.DataFrame:
    """Return an invented table: 6,000 patients with several visits each."""
    rng = np.random.default_rng(7)
    n = 20_000
    age = rng.integers(18, 95, n)
    smoker = rng.choice(["no", "yes"], n, p=[0.7, 0.3])
    return pd.DataFrame(
        {
            "patient": rng.integers(0, 6000, n),
            "region": rng.choice(["east", "north", "south", "west"], n, p=[0.3, 0.4, 0.2, 0.1]),
            "smoker": smoker,
            "age": age,
            "cost": rng.gamma(2, 300, n) + 4 * age,
            "pressure": 95 + 0.5 * age + 4 * (smoker == "yes") + rng.normal(0, 12, n),
        }
    )


def save(image: Image.Image, name: str) -> None:
    """Write a picture with as many colours as fit into the limit."""
    for colours in (64, 32, 16, 8):
        buffer = io.BytesIO()
        image.convert("RGB").quantize(colours).save(buffer, "PNG", optimize=True)
        if buffer.tell() <= MOST_BYTES:
            break
    (IMAGES / f"{name}.png").write_bytes(buffer.getvalue())
    print(f"{name}.png  {image.width} x {image.height}, {buffer.tell() / 1000:.0f} kB")


def plots(releases: dict[str, Any]) -> None:
    """Draw each kind of ``plot()``."""
    for name, drawn in releases.items():
        buffer = io.BytesIO()
        drawn.plot().savefig(buffer, format="png", dpi=100)
        save(Image.open(buffer), f"plot-{name}")


def trim(image: Image.Image) -> Image.Image:
    """Return a picture without the empty space below a short page."""
    pixels = np.asarray(image.convert("RGB"))
    used = np.flatnonzero((pixels != pixels[-1, 0]).any(axis=(1, 2)))
    return image.crop((0, 0, image.width, min(image.height, int(used[-1]) + 40)))


def shoot(url: str, name: str) -> None:
    """Take a picture of the first screen of a page, wide and narrow."""
    program = next(filter(None, map(shutil.which, BROWSERS)))
    for width, height in (WIDE, NARROW):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "page.png"
            subprocess.run(
                [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                 f"--screenshot={file}", f"--window-size={width},{height}",
                 "--virtual-time-budget=4000", url],
                check=True, capture_output=True, timeout=120,
            )  # fmt: skip
            save(trim(Image.open(file)), f"{name}-{'wide' if width == WIDE[0] else 'narrow'}")


def release_all(people: pd.DataFrame) -> dict[str, Any]:
    """Return one release for each kind of picture."""
    statistics = {
        "groups": pac.stats.mean("cost", by="region"),
        "histogram": pac.stats.histogram("age", ranges=(0, 100), bins=10),
        "crosstab": pac.stats.crosstab("region", "smoker"),
        "coefficients": pac.stats.ols("pressure", ["age", "smoker"]),
        "quantiles": pac.stats.quantiles("pressure", q=(0.1, 0.25, 0.5, 0.75, 0.9)),
    }
    return {
        name: pac.privatize(statistic, people, BUDGET, units="patient")
        for name, statistic in statistics.items()
    }


def run_session(people: pd.DataFrame, folder: Path) -> Any:
    """Return a session of four releases, whose ledger stays in the folder."""
    place = folder / "study.db"
    session = pac.Session(
        people,
        ledger=place,
        budget="membership<=0.7",
        units="patient",
        dataset="visits",
        sample=pac.Coins(),
    )
    with session:
        for column in ("cost", "age", "pressure"):
            session.release(pac.stats.mean(column), share="1 of 6")
        session.release(pac.stats.crosstab("region", "smoker"), share="1 of 6")
    return session


def pages(releases: dict[str, Any], folder: Path) -> None:
    """Write the pages and take their pictures."""
    texts = {"title": "Cost of a visit, by region", "by": "A. Curator", "dataset": "visits 2025"}
    page = pac.report(releases["groups"], folder / "report.html", **texts)
    shoot(page.as_uri(), "report")
    page = pac.report(releases["groups"], folder / "officer.html", officer=True, **texts)
    shoot(page.as_uri(), "officer")
    command = [sys.executable, "-m", "pacprivacy", "ledger", "report", "study.db"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    shoot((folder / "ledger.html").as_uri(), "ledger")


def serve(people: pd.DataFrame, folder: Path) -> None:
    """Take pictures of the page of ``pac serve``, before a token is typed."""
    (folder / "tables").mkdir()
    people.to_csv(folder / "tables" / "visits.csv", index=False)
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    Ledger(folder / "serve.db")
    pac_serve = [sys.executable, "-m", "pacprivacy", "serve"]
    tokens = ["--tokens", str(folder / "tokens.json")]
    subprocess.run([*pac_serve, "--grant", "ann", *tokens], check=True, capture_output=True)
    options = ["--tables", str(folder / "tables"), "--unit", "visits.patient", "--total", BUDGET]
    options += ["--ledger", str(folder / "serve.db"), "--port", str(port), *tokens]
    process = subprocess.Popen([*pac_serve, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        while "Serving" not in process.stdout.readline():
            time.sleep(0.1)
        shoot(f"http://127.0.0.1:{port}/", "serve")
    finally:
        process.terminate()
        process.wait()


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *args: object) -> None:
        pass


def site() -> None:
    """Take pictures of the first page of the site, if it is built."""
    folder = ROOT / "site"
    if not folder.is_dir():
        print("site: not built; run make docs")
        return
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        series = ".".join(pac.__version__.split(".")[:2])
        shoot(f"http://127.0.0.1:{server.server_port}/{series}/", "site")
        server.shutdown()


def main(names: list[str]) -> int:
    people = patients()
    chosen = names or ["plots", "pages", "serve", "site"]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if {"plots", "pages"} & set(chosen):
            releases, session = release_all(people), run_session(people, folder)
        if "plots" in chosen:
            plots({**releases, "session": session})
        if "pages" in chosen:
            pages(releases, folder)
        if "serve" in chosen:
            serve(people, folder)
    if "site" in chosen:
        site()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
