"""One number is promised about a session, and every text, page and picture says that one."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy._rounding import percent_at_most
from pacprivacy._values import times_in_100

DATA = np.random.default_rng(0).normal(size=(60, 2))
LEARNED = "learned in this run (for the curator)"


def mean(rows: Any) -> Any:
    return rows.mean(axis=0)


@pytest.fixture(scope="module", params=["membership<=0.65", "membership<=0.65 & mi<=1", "mi<=0.2"])
def session(request: pytest.FixtureRequest) -> Any:
    with pac.Session(DATA, budget=request.param, n_subsets=32, rng=0) as made:
        for _ in range(2):
            made.release(mean, share=0.4)
        yield made


def shown(page: Path) -> str:
    """What a reader sees of a page, without the part for machines."""
    text = page.read_text(encoding="utf-8").partition('id="json"')[0]
    text = re.sub(r"<(style|script).*?</\1>", "", text, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def words(figure: Any) -> str:
    texts = [text.get_text() for text in figure.findobj(lambda item: hasattr(item, "get_text"))]
    return "\n".join(texts)


def own_figures(release: Any) -> set[str]:
    """Figures of one release, given the values of the earlier ones: none of them is promised."""
    cert = release.certificate
    figures = {cert.membership_bound, cert.composition["best_guess_now"]}
    for estimate in (cert.membership, cert.membership_mean):
        if estimate is not None:
            figures |= {estimate.value, estimate.lower, estimate.upper}
    level = re.search(r"success <= ([\d.]+) %", cert.budget)
    texts = {percent_at_most(figure) for figure in figures} | ({level[1]} if level else set())
    return texts - {percent_at_most(cert.promised_success)}


@pytest.mark.claim("R-12")
def test_the_promise_is_the_same_everywhere(session: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    release = session.releases[-1]
    first, last = (made.save(tmp_path / str(n)) for n, made in enumerate(session.releases))
    promised = percent_at_most(release.certificate.promised_success)
    pac.report(last, tmp_path / "page.html", session=[first])
    pac.report(last, tmp_path / "officer.html", session=[first], officer=True)
    texts = {
        "certificate": str(release.certificate),
        "html": release.certificate._repr_html_(),
        "page": shown(tmp_path / "page.html"),
        "officer": shown(tmp_path / "officer.html"),
        "plot": words(release.plot()),
    }
    for name, text in texts.items():
        frequency = times_in_100(release.certificate.promised_success)
        assert f"{promised} %" in text or frequency in text, name
        for figure in own_figures(release):
            assert not re.search(rf"(?<![\d.]){re.escape(figure)} ?%", text), (name, figure)
        assert "learned" not in text.lower(), name
        assert "est guess now" not in text, name
    assert release.certificate.dp_readings.pure_epsilon == pytest.approx(
        np.log(release.certificate.promised_success / (1 - release.certificate.promised_success))
    )


@pytest.mark.claim("R-12")
def test_what_was_learned_is_the_curators_and_is_called_that(session: Any) -> None:
    pytest.importorskip("matplotlib")
    reading, release = session.odometer(), session.releases[-1]
    promised = percent_at_most(release.certificate.promised_success)
    guess = percent_at_most(reading.best_guess_now)
    for text in (str(reading), reading._repr_html_(), session._repr_html_()):
        assert "Promised membership success" in text
        assert f"at most {promised} %" in text
        assert text.lower().index(LEARNED) < text.index(f"best guess about one unit {guess} %")
    drawn = words(session.plot())
    assert "learned" not in drawn
    if session.odometer().total.success_level is not None:
        assert "membership success at most 65.00 %" in drawn
