"""The report: what it shows, what it escapes, and what the public version leaves out."""

import html
import json
import pickle
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy._rounding import percent_at_most
from pacprivacy.audit import AuditResult
from pacprivacy.cli import app
from pacprivacy.errors import CertificateError, DataError
from pacprivacy.ledger import Ledger
from pacprivacy.release import Certificate, Release
from pacprivacy.reporting import (
    ReportData,
    page as page_module,
    plot_release,
    plot_session,
    render_page,
)
from pacprivacy.reporting.style import style_number
from pacprivacy.theory import clopper_pearson

HOSTILE = (
    "\x1b[31m\x01<script>alert('x')</script>\"'&<img src=http://example.org/x onerror=alert(1)>"
)
SIZE_LIMIT = 3 * 1024 * 1024


@pytest.fixture(scope="module", autouse=True)
def _same_picture_once() -> Iterator[None]:
    """Draw a picture of the same figures once: most pages here differ in their texts."""
    drawn: dict[bytes, str] = {}
    draw = page_module._picture

    def once(*what: Any, **size: Any) -> str:
        key = pickle.dumps((what, size))
        if key not in drawn:
            drawn[key] = draw(*what, **size)
        return drawn[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_module, "_picture", once)
        yield


def column_means(data: Any) -> Any:
    return data.mean(axis=0)


@pytest.fixture(scope="module")
def release() -> Release:
    data = np.random.default_rng(3).normal(size=(60, 2))
    return pac.privatize(column_means, data, pac.Membership(0.7), n_subsets=32, rng=1)


@pytest.fixture(scope="module")
def session_releases() -> tuple[Release, ...]:
    data = np.random.default_rng(4).normal(size=(40, 2))
    with pac.Session(data, budget=pac.Information(0.5), n_subsets=32, rng=0) as session:
        for nats in (0.125, 0.25):
            session.release(column_means, pac.Information(nats), rule="waterfill")
    return session.releases


def audit_result(successes: int) -> AuditResult:
    return AuditResult(
        attack="bayes",
        question="one unit: in or out",
        n_trials=1000,
        successes=successes,
        success=clopper_pearson(successes, 1000, gamma=0.01),
        prior=0.5,
        bound=0.6,
        unit=17,
    )


class Page(HTMLParser):
    """The tags, ids and addresses of a page; fails on tags that are not closed in order."""

    VOID = frozenset({"meta", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "action", "data", "srcset", "poster"):
                self.addresses.append(value)
            if name.startswith("on"):
                self.handlers.append(name)
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.fixture(scope="module")
def full(release: Release) -> ReportData:
    """A report with an audit."""
    return ReportData(
        release.certificate,
        values=tuple(release.rows()),
        audit=[audit_result(570)],
    )


# --- content --------------------------------------------------------------------------------


def test_page_says_what_is_promised_and_what_is_not(full: ReportData) -> None:
    page = render_page(full)
    certificate = full.certificate
    found = Page(page)
    assert len(set(found.ids)) == len(found.ids)
    wanted = ["values", "promise", "not-hidden", "odds", "trade-off", "noise", "audit"]
    wanted += ["side", "published", "not-promised", "details", "assumptions", "json"]
    assert [name for name in found.ids if name in wanted] == wanted
    assert page.count(certificate.promise) == page.count(certificate.not_hidden) == 1
    for item in certificate.not_promised:
        assert item.split("'")[0] in page
    assert "holds" in page
    assert "VIOLATED" not in page


def test_certificate_on_the_page_is_the_certificate(release: Release) -> None:
    page = render_page(ReportData(release.certificate))
    body = re.search(r'<pre id="certificate"[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert body is not None
    again = Certificate.from_dict(json.loads(html.unescape(body[1])))
    assert again == release.certificate


def test_page_needs_nothing_but_itself(full: ReportData) -> None:
    page = render_page(full)
    found = Page(page)
    assert found.addresses == []
    assert found.handlers == []
    assert not re.search(r"https?:|//[a-z]|@import|url\(", page)
    assert "default-src 'none'" in html.unescape(page)
    assert len(page.encode()) < SIZE_LIMIT


def test_broken_promise_is_said(release: Release) -> None:
    page = render_page(ReportData(release.certificate, audit=[audit_result(900)]))
    assert "VIOLATED" in page
    assert 'class="broken-text"' in page
    assert "var(--orange)" in page.split("</style>")[1]


def test_hostile_names_stay_text(release: Release, full: ReportData) -> None:
    hostile = replace(
        release.certificate,
        mechanism=HOSTILE,
        output=HOSTILE,
        budget=HOSTILE,
        rule=HOSTILE,
        scheme=HOSTILE,
        unit=HOSTILE,
        software=HOSTILE,
        notes=(HOSTILE,),
        public=(HOSTILE,),
        not_promised=(HOSTILE,),
        composition={
            "release_number": 1,
            "spent_nats_so_far": 0.1,
            "total_nats": 1.0,
            "session_success_bound": 0.7,
        },
    )
    attack = replace(audit_result(570), attack=HOSTILE, question=HOSTILE)
    page = render_page(replace(full, certificate=hostile, audit=(attack,)))
    found = Page(page)
    assert found.tags.count("script") == 1
    assert "img" not in found.tags
    assert found.handlers == []
    assert HOSTILE not in page
    assert "<script>" not in hostile._repr_html_()
    assert "<img" not in replace(release, certificate=hostile)._repr_html_()


def test_epsilon_is_a_detail(full: ReportData) -> None:
    first, details = render_page(full).split('id="details"')
    assert "epsilon" not in first
    assert "epsilon" in details


def test_many_values_are_folded(release: Release) -> None:
    row = release.rows()[0]
    rows = tuple(row._replace(name=f"number {i}") for i in range(30))
    page = render_page(ReportData(release.certificate, values=rows))
    first = page.split("<details>")[0].split("<svg")[0]
    assert "number 9<" in first
    assert "number 10<" not in first
    assert "20 more numbers" in page
    assert "number 29<" in page
    assert page.index("number 0<") < page.index('id="promise"')
    plain = render_page(ReportData(release.certificate, value_text='{"model": "tree"}'))
    assert "{&#34;model&#34;: &#34;tree&#34;}" in plain


def test_a_unit_is_called_by_its_column(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 9, 80), "Person_ID": np.arange(80) // 2})
    made = pac.privatize(
        lambda f: {"mean age": f["age"].mean()},
        frame,
        pac.Membership(0.8),
        units="Person_ID",
        n_subsets=32,
    )
    assert made.certificate.unit == "person"
    saved = made.save(tmp_path)
    pac.verify(Certificate.read(saved), tmp_path / "curator.npz")
    page = pac.report(saved).read_text(encoding="utf-8")
    assert "Take a person who is equally likely" in page
    assert "Of 40 people" in page
    assert "group" not in page.split("</style>")[1]


@pytest.mark.parametrize(
    ("unit", "units"),
    [
        ("record", "records"),
        ("group of rows", "groups of rows"),
        ("person", "people"),
        ("country", "countries"),
        ("day", "days"),
        ("bus", "buses"),
    ],
)
def test_plurals(unit: str, units: str, release: Release) -> None:
    assert replace(release.certificate, unit=unit).units == units


def test_who_what_and_when_are_said_and_are_text(release: Release, tmp_path: Path) -> None:
    said = {"title": "Ages", "by": "A. Curator", "dataset": "people.csv", "date": "May 2026"}
    page = pac.report(release, tmp_path / "page.html", **said).read_text(encoding="utf-8")
    head = page.split("</header>")[0].split("<header>")[1]
    assert all(text in head for text in said.values())
    assert "column_means of 60 records in <b>people.csv</b>" in head
    today = pac.report(release, tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.search(r"20\d\d-\d\d-\d\d", today.split("</header>")[0])
    hostile = pac.report(release, tmp_path / "page.html", title=HOSTILE, by=HOSTILE, date=HOSTILE)
    assert HOSTILE not in hostile.read_text(encoding="utf-8")


def test_the_officers_page_has_the_whole_promise_and_a_glossary(full: ReportData) -> None:
    page, cert = render_page(full, officer=True), full.certificate
    assert {"promise", "not-hidden", "figures", "glossary"} <= set(Page(page).ids)
    said = html.unescape(page)
    for item in (cert.promise, cert.not_hidden, *cert.not_promised, *cert.published, cert.digest):
        assert item in said
    assert "<svg" not in page
    assert page.count("<dt>") >= 8


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "empirical", "membership": None, "membership_mean": None}, 'id="empirical"'),
        ({"simulation": True}, 'id="simulation"'),
    ],
)
def test_what_is_no_proof_says_so(release: Release, changes: Any, said: str) -> None:
    plain = render_page(ReportData(release.certificate))
    weaker = render_page(ReportData(replace(release.certificate, **changes)))
    assert said not in plain
    assert said in weaker
    assert ("In a thousand guesses" in weaker) == ("kind" not in changes)


def test_page_without_noise(release: Release) -> None:
    none = replace(
        release.certificate.noise,
        total_variance=0.0,
        smallest_std=0.0,
        largest_std=0.0,
        n_directions=0,
    )
    page = render_page(ReportData(replace(release.certificate, noise=none)))
    assert "No noise was added" in page


def test_session_is_a_staircase(session_releases: tuple[Release, ...]) -> None:
    first, second = (release.certificate for release in session_releases)
    data = ReportData(second, session=[first])
    assert data.session_figures is not None
    assert [step.number for step in data.session_figures.steps] == [1, 2]
    assert data.session_figures.steps[0].spent < data.session_figures.steps[1].spent
    page = render_page(data)
    assert "session" in Page(page).ids
    assert percent_at_most(data.session_figures.success_bound) in page
    assert ReportData(replace(second, composition=None)).session_figures is None


def test_the_page_shows_the_digest_that_the_ledger_records(tmp_path: Path) -> None:
    with pac.Session(
        np.arange(40.0), budget=pac.Information(1), n_subsets=16, ledger=tmp_path / "study.db"
    ) as session:
        made = session.release(np.mean, pac.Information(1 / 4), rule="waterfill")
    recorded = Ledger(tmp_path / "study.db").entries()[-1].certificate
    assert recorded == made.certificate.digest
    assert recorded in render_page(ReportData(made.certificate))


def test_estimates_are_written_with_three_digits() -> None:
    assert [style_number(x) for x in (0.0, 1e-9, 0.012345, 123456.0)] == [
        "0",
        "1e-9",
        "0.0123",
        "1.23e5",
    ]


# --- only what is public -----------------------------------------------------------------

CURATOR_WORDS = ("curator", "per unit", "per_unit", "outputs", "seed")


def test_the_page_has_no_curator_field(full: ReportData) -> None:
    assert full.audit[0].unit == 17
    other = replace(full, audit=(replace(full.audit[0], unit=None),))
    page = render_page(full)
    assert render_page(other) == page
    body = page.split("</style>")[1].lower()
    for word in CURATOR_WORDS:
        assert word not in body, word


@pytest.mark.claim("R-9")
def test_the_public_page_is_a_function_of_the_public_file(release: Release, tmp_path: Path) -> None:
    saved = release.save(tmp_path)
    bundle = tmp_path / "curator.npz"
    with_bundle = pac.report(saved, date="").read_bytes()
    officer = pac.report(saved, officer=True, date="").read_bytes()
    bundle.write_bytes(b"not even a bundle")
    assert pac.report(saved, date="").read_bytes() == with_bundle
    assert pac.report(saved, officer=True, date="").read_bytes() == officer
    bundle.unlink()
    assert pac.report(saved, date="").read_bytes() == with_bundle


# --- the function and the verb --------------------------------------------------------------


def test_a_release_in_memory_is_reported(
    release: Release, session_releases: tuple[Release, ...], tmp_path: Path
) -> None:
    page = pac.report(release, tmp_path / "page.html", audit=[audit_result(900)])
    assert page == tmp_path / "page.html"
    assert release.certificate.promise in page.read_text(encoding="utf-8")
    assert "VIOLATED" in page.read_text(encoding="utf-8")
    first, second = session_releases
    saved = first.save(tmp_path / "first")
    both = pac.report(second, tmp_path / "session.html", session=[saved])
    assert "<td>1</td>" in both.read_text(encoding="utf-8")
    assert "<td>2</td>" in both.read_text(encoding="utf-8")


def test_a_saved_release_is_reported_as_the_one_in_memory(release: Release, tmp_path: Path) -> None:
    saved = release.save(tmp_path / "out")
    page = pac.report(saved)
    assert page == tmp_path / "out" / "report.html"
    other = pac.report(release, tmp_path / "page.html")
    assert page.read_text(encoding="utf-8") == other.read_text(encoding="utf-8")
    with pytest.raises(DataError, match="a folder that is not there"):
        pac.report(release, tmp_path / "nowhere" / "page.html")


def run_pac(*args: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result


def test_report_verb(release: Release, tmp_path: Path) -> None:
    public = release.save(tmp_path)
    audit = tmp_path / "audit.json"
    audit.write_text(json.dumps({"results": [audit_result(570).to_public_dict()]}))
    shown = json.loads(run_pac("report", public, "--audit", audit, "--json").stdout)
    assert shown["version"] == "public"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert shown["bytes"] == len(page.encode())
    assert "Attacks against the promise" in page
    assert run_pac("report", public, "--quiet").stdout == ""


def test_report_works_without_a_bundle(release: Release, tmp_path: Path) -> None:
    public = release.save(tmp_path)
    (tmp_path / "curator.npz").unlink()
    run_pac("report", public, "--title", "Means", "--by", "me")
    assert 'id="bound"' not in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (
        json.loads(run_pac("report", public, "--officer", "--json").stdout)["version"] == "officer"
    )
    assert "Glossary" in (tmp_path / "officer.html").read_text(encoding="utf-8")


def test_report_refuses_what_does_not_belong(release: Release, tmp_path: Path) -> None:
    public = release.save(tmp_path / "one")
    broken = tmp_path / "broken.json"
    broken.write_text('{"results": [{"attack": 3}]}')
    assert "audit must be" in run_pac("report", public, "--audit", broken, code=2).stderr
    refused = run_pac("report", public, "-o", tmp_path, code=2).stderr
    assert "must be a file in an existing folder" in refused


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", "sure"), ("prior", "x"), ("noise", None), ("any_inference", [1]), ("unit", None)],
)
def test_report_refuses_figures_of_the_wrong_kind(
    field: str, value: Any, release: Release, tmp_path: Path
) -> None:
    plain = {**release.certificate.to_public_dict(), field: value}
    path = tmp_path / "release.json"
    path.write_text(json.dumps({"certificate": plain}))
    result = CliRunner().invoke(app, ["report", str(path)])
    assert result.exit_code in ((0, 2) if field == "unit" else (2,)), result.output
    assert "Traceback" not in result.stderr


# --- plan and pictures ----------------------------------------------------------------------


@pytest.fixture
def people(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    rows = [
        f"{rng.integers(18, 90)},{rng.normal(5, 2):.3f},{'yes' if i % 3 else 'no'}"
        for i in range(60)
    ]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["age,income,smoker", *rows]) + "\n")
    return path


def test_plan_shows_the_cost_of_budgets(people: Path, tmp_path: Path) -> None:
    args = ["plan", people, "--model", "mean", "--columns", "age,income", "--subsets", 32]
    args += ["--budgets", "60%, 80%, mi<=1/4", "--seed", 1]
    found = json.loads(run_pac(*args, "--json").stdout)
    without = found["without_noise"]["numbers"]
    for i, name in enumerate(("age", "income")):
        numbers = [row["numbers"][i] for row in found["rows"]]
        assert {number["name"] for number in (without[i], *numbers)} == {name}
        assert numbers[0]["noise"] > numbers[1]["noise"] > 0
        assert all(number["distance"] > without[i]["distance"] for number in numbers)
    text = run_pac(*args, "--rule", "waterfill").stdout
    assert "success <= 60 %" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert sorted(path.name for path in tmp_path.iterdir()) == ["people.csv"]


@pytest.mark.parametrize("budgets", ["", "60%,,70%", "half", "mi<=x", "40%"])
def test_plan_refuses_bad_budgets(people: Path, budgets: str) -> None:
    result = run_pac("plan", people, "--model", "mean", "--budgets", budgets, code=2)
    assert result.stderr.startswith("pac: error: ")


MODELS = {
    "kmeans": (["--clusters", 2, "--columns", "age,income"], {"columns", "centres"}),
    "pca": (
        ["--components", 1, "--columns", "age,income"],
        {"columns", "components", "mean", "scales"},
    ),
    "svm": (["--target", "smoker", "--C", 0.1], {"columns", "coef", "intercept", "classes"}),
    "forest": (
        ["--target", "smoker", "--trees", 1, "--depth", 1],
        {"columns", "thresholds", "leaves", "features", "classes"},
    ),
    "ridge": (["--target", "income", "--columns", "age"], {"columns", "coef", "intercept"}),
}


@pytest.mark.parametrize("model", MODELS)
def test_fitted_models_are_released(model: str, people: Path, tmp_path: Path) -> None:
    extra, keys = MODELS[model]
    args = ["--budget", "mi<=1", "--rule", "waterfill", "--subsets", 16, "-o", tmp_path / "out"]
    run_pac("release", people, "--model", model, *extra, *args, "--quiet")
    content = json.loads((tmp_path / "out" / "release.json").read_text())
    assert set(content["value"]) == keys
    stratified = content["certificate"]["scheme"] == "balanced-stratified"
    assert stratified == (model in ("svm", "forest"))
    if "classes" in keys:
        assert content["value"]["classes"] == ["no", "yes"]


def test_centres_are_in_the_units_of_the_file(people: Path, tmp_path: Path) -> None:
    args = ["--clusters", 1, "--columns", "age,income", "--budget", "mi<=4", "--subsets", 16]
    run_pac("release", people, "--model", "kmeans", *args, "-o", tmp_path / "o", "-q")
    centres = json.loads((tmp_path / "o" / "release.json").read_text())["value"]["centres"]
    table = np.genfromtxt(people, delimiter=",", skip_header=1, usecols=(0, 1))
    assert np.abs(centres[0] - table.mean(axis=0)).max() < 3 * table.std(axis=0).max()
    assert centres[0][0] > 20


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--model", "svm"], "--target must be given"),
        (["--model", "kmeans"], "--clusters must be given"),
        (["--model", "mean", "--C", 1], "--C must be left out"),
        (["--model", "svm", "--target", "income", "--columns", "age"], "must hold classes"),
        (["--model", "ridge", "--target", "smoker", "--columns", "age"], "must hold numbers"),
        (["--model", "svm", "--target", "smoker", "--columns", "age,smoker"], "leave out the"),
        (["--model", "forest", "--target", "smoker", "--trees", 0], "n_estimators"),
    ],
)
def test_models_refuse_what_does_not_fit(
    args: list[Any], said: str, people: Path, tmp_path: Path
) -> None:
    budget = ["--budget", "mi<=1", "-o", tmp_path / "out"]
    assert said in run_pac("release", people, *args, *budget, code=2).stderr
    assert not (tmp_path / "out").exists()


def test_pictures(release: Release, session_releases: tuple[Release, ...], tmp_path: Path) -> None:
    assert len(plot_release(release, tmp_path / "release.svg").axes) == 2
    assert len(plot_session(session_releases).axes) == 1
    values, promise = plot_release(release).axes
    assert [label.get_text() for label in values.get_yticklabels()] == ["value[0]", "value[1]"]
    assert any("promised: at most" in text.get_text() for text in promise.texts)
    assert plot_release(release)._repr_png_().startswith(b"\x89PNG")
    assert (tmp_path / "release.svg").stat().st_size > 1000
    with pytest.raises(CertificateError, match="must be those of a session"):
        plot_session([release])
    with pytest.raises(DataError, match="must end in"):
        plot_release(release, tmp_path / "release.exe")


def test_notebook_form_is_short_and_public(release: Release) -> None:
    shown = release._repr_html_()
    assert release.certificate.promise in shown
    assert len(shown) < 4000
    assert len(replace(release, value=np.zeros(5000).tolist())._repr_html_()) < 4000


def test_the_page_needs_no_matplotlib_and_a_plot_says_what_to_install(
    full: ReportData, release: Release, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn = render_page(full)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # type: ignore[arg-type]
    plain = render_page(full)
    assert drawn.count("<svg") > plain.count("<svg") == 0
    for part in ('id="trade-off"', 'id="audit"', "Attacks against the promise"):
        assert part in plain
    assert 'id="slider"' not in plain
    with pytest.warns(UserWarning, match=r"no pictures: .* pip install '\.\[plot\]'"):
        pac.report(release, tmp_path / "report.html")
    with pytest.raises(DataError, match=r"pip install '\.\[plot\]'"):
        plot_release(release)
