"""The page of [DESIGN]: every section with tiny settings, its figures, and kept results."""

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pacprivacy.adversary import Belief
from pacprivacy.cli import app
from pacprivacy.design import Objective
from pacprivacy.design.descent import subset_gradient_variance
from pacprivacy.design.ridge import noise_ratio
from pacprivacy.errors import BudgetError
from pacprivacy.noise.plan import log_det_of_plan
from papers.design import DESIGN, gain
from papers.design.data import (
    NAMES,
    BinarySplit,
    RegressionSplit,
)
from papers.design.decomposition import decomposition_rows
from papers.design.descent import N_STEPS, StepSizes, train_fresh
from papers.design.secret import secret_row, uniform_plan
from papers.page import Page
from papers.run import Job, Settings

pytestmark = pytest.mark.usefixtures("few_draws")
Require = Callable[..., None]
TINY = Settings(mi_budgets=(1 / 4,), n_subsets=16, n_releases=40, n_trials=6, n_repeats=2, seed=3)
PNG = b"\x89PNG\r\n\x1a\n"
MODULES = ("decomposition", "descent", "gain", "pool", "ridge", "secret")


def regression(name: str) -> RegressionSplit:
    rng = np.random.default_rng(1)
    Z, noise = rng.laplace(size=(400, 4)), rng.normal(size=400)
    Z = Z / np.sqrt(np.square(Z).mean(axis=0))
    truth = np.array([1.0, -0.5, 0.1, 0.03])
    return RegressionSplit(
        name=name,
        Z=Z,
        target=Z @ truth + noise,
        offset=float(truth @ truth + 1.0),
        linear=truth,
        quadratic=np.eye(4),
    )


def binary(name: str) -> BinarySplit:
    rng = np.random.default_rng(2)
    y = np.where(rng.random(500) < 0.5, 1.0, -1.0)
    X = rng.normal(size=(500, 4)) + 0.8 * y[:, None] * [1.0, -1.0, 0.5, 0.0]
    return BinarySplit(
        name=name,
        objective=Objective(penalty=0.1),
        has_constant=False,
        X=X[:300].copy(),
        y=y[:300].copy(),
        X_test=X[300:].copy(),
        y_test=y[300:].copy(),
    )


@pytest.fixture(scope="module")
def small_data() -> Iterator[None]:
    """Put small problems in the place of the data."""
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            place = f"papers.design.{module}"
            patch.setattr(f"{place}.load_binary", binary, raising=False)
            patch.setattr(f"{place}.load_regression", regression, raising=False)
        yield


@pytest.fixture(scope="module")
def page(small_data: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("design")
    sections = tuple(section for section in DESIGN.sections if section.name != "responses")
    small = replace(DESIGN, sections=sections)
    return small.reproduce(folder, quick=True, n_jobs=1, settings=TINY)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


# --- every section, tiny ---------------------------------------------------------------------


def test_sections_name_the_tables_of_the_paper() -> None:
    covers = {section.name: section.covers for section in DESIGN.sections}
    assert covers["ridge"].startswith("Tables 1 and 3 ")
    assert covers["descent"].startswith("Tables 2 and 4 ")


@pytest.mark.parametrize("name", [s.name for s in DESIGN.sections if s.name != "responses"])
def test_section_writes_a_table_a_picture_and_a_part_of_the_page(page: Path, name: str) -> None:
    assert read_csv(page.with_name(f"design_{name}.csv"))
    content = page.with_name(f"design_{name}.png").read_bytes()
    assert content.startswith(PNG)
    assert len(content) > 10_000
    section = next(section for section in DESIGN.sections if section.name == name)
    text = page.read_text(encoding="utf-8")
    assert f"## {section.title}\n" in text
    assert f"(design_{name}.png)" in text
    assert section.covers in text


def test_page_has_the_four_columns(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "**simulations**" in text
    for column in (
        "published conscious",
        "paper's rule, conscious",
        "`exact`, same MI",
        "`risk`, same success",
    ):
        assert f" {column} |" in text
    assert "83.79 %" in text


def test_ours_stand_in_their_own_file(page: Path) -> None:
    rows = read_csv(page.with_name("design_ridge_pool.csv"))
    rules = {(row["rule"], float(row["mi_nats"])) for row in rows}
    names = ("exact", "risk")
    assert rules == {(rule, mi) for rule in names for mi in TINY.mi_budgets}
    for row in rows:
        if row["rule"] == "exact":
            assert float(row["mi_upper_nats"]) <= float(row["mi_nats"])
    assert {row["rule"] for row in read_csv(page.with_name("design_descent_pool.csv"))} == {
        "exact",
        "risk",
    }
    assert read_csv(page.with_name("design_ridge_adassp.csv"))


def test_full_run_has_every_data_set_and_setting() -> None:
    jobs = {
        section.name: [job.name for job in section.jobs(DESIGN.full, quick=False)]
        for section in DESIGN.sections
    }
    for dataset in NAMES.values():
        assert any(job.startswith(dataset) for job in jobs["ridge"] + jobs["descent"])
    assert jobs["responses"] == ["answers, adult", "answers, bank"]
    assert len(jobs["descent"]) == 3 * (4 + 5) + 3 * 4  # and as printed
    assert DESIGN.full.n_trials == 500


def test_command_refuses_other_groups(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "design", "--only", "x", "-o", str(tmp_path)])
    assert result.exit_code == 2
    assert "decomposition" in result.stderr


# --- what the figures show ---------------------------------------------------------------------


@pytest.mark.claim("D-1")
def test_parts_of_the_error_add_up_to_that_of_releases(small_data: None) -> None:
    rows = decomposition_rows((1 / 4, 1 / 64), n_subsets=500, n_releases=2000)
    off = [abs(row.total - row.measured) / row.standard_error for row in rows]
    assert max(off) < 5.0  # 34 cells
    best = {}
    for mi_nats in (1 / 4, 1 / 64):
        own = [row for row in rows if row.mi_nats == mi_nats]
        best[mi_nats] = min(own, key=lambda row: row.total)
        # A half varies half as much as the formula's fresh data: the grid's best is one or two
        # powers of two below what the formula chooses.
        assert 1.0 <= own[0].chosen / best[mi_nats].multiple <= 8.0
    assert best[1 / 64].multiple > best[1 / 4].multiple


def test_ratio_of_bounds_has_the_known_values() -> None:
    assert round(1 / gain._bound_ratio(1, 1.0, 1 / 4), 2) == 8.61
    assert round(1 / gain._bound_ratio(10, 1.0, 1 / 4), 2) == 2.75
    assert round(1 / gain._bound_ratio(1, 1.0, 1 / 64), 1) == 122.1
    assert round(1 / gain._bound_ratio(10, 1.0, 1 / 64), 2) == 21.39


def test_gains_are_measured_where_they_are_predicted(small_data: None) -> None:
    rows = [row for row in gain.gain_rows(n_subsets=1000) if row.kind == "ridge"]
    assert len({row.case for row in rows}) == 3
    for row in rows:
        assert row.measured is not None
        assert 0.9 < row.measured / row.predicted < 2.5


@pytest.mark.claim("D-7")
def test_attackers_of_one_secret_stay_under_their_bounds(small_data: None) -> None:
    row = secret_row(mi_nats=1 / 2, n_trials=64, n_subsets=16)
    error = 4 * np.sqrt(0.25 / row.n_trials)
    assert row.named <= row.named_bound + error
    assert row.membership <= row.membership_bound
    assert row.membership > 0.52, "the attack is real"
    assert abs(row.accuracy - row.fresh_accuracy) < 0.03


def test_batched_trials_follow_the_law_of_drawn_subsets() -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(24, 3)) * np.linspace(2.0, 0.5, 3)
    y = np.where(X @ np.ones(3) + generator.logistic(size=24) > 0, 1.0, -1.0)
    X, objective = X - X.mean(axis=0), Objective(penalty=0.3)
    ratios = np.full(4, float(noise_ratio(0.8, n_dimensions=3, n_steps=4)))

    def descend_one_by_one() -> np.ndarray:
        weights = np.zeros(3)
        for ratio in ratios:
            gradients = objective.slopes(X @ weights, y)[:, None] * X
            variance = subset_gradient_variance(gradients.var(axis=0, ddof=1), 24)
            subsets = generator.random((24, 3)) < 0.5
            means = np.where(subsets, gradients, 0.0).sum(axis=0) / subsets.sum(axis=0)
            noise = np.sqrt(ratio * variance) * generator.normal(size=3)
            weights = weights - 0.2 * (means + noise + objective.penalty * weights)
        return weights

    one_by_one = np.array([descend_one_by_one() for _ in range(400)])
    batched = train_fresh(
        X,
        y,
        objective,
        np.full(3, 0.2),
        ratios,
        n_trials=20_000,
        rng=np.random.default_rng(0),
    )
    errors = one_by_one.std(axis=0) / np.sqrt(400)
    assert (np.abs(one_by_one.mean(axis=0) - batched.mean(axis=0)) < 5 * errors).all()
    # Relative standard error of a standard deviation: 1/sqrt(2 * 400) = 3.5 %.
    np.testing.assert_allclose(one_by_one.std(axis=0), batched.std(axis=0), rtol=0.16)


def test_step_sizes_follow_the_variance_at_every_step() -> None:
    """Twice the variance, another step; a fixed rule and its constant steps train alike."""
    sizes = StepSizes(start_error=np.array([1.0, 0.1]), convexity=0.5, ratio=3.0, largest=0.4)
    steps = sizes.at(np.array([[0.1, 10.0], [0.1, 10.0]]))
    assert steps.shape == (2, 2)
    assert (steps[:, 1] < steps[:, 0]).all()
    assert (steps <= 0.4).all()
    generator = np.random.default_rng(0)
    X = generator.normal(size=(40, 2))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    capped = StepSizes(start_error=np.full(2, 1e9), convexity=0.5, ratio=0.0, largest=0.2)
    ends = [
        train_fresh(
            X,
            y,
            Objective(penalty=0.5),
            steps,
            np.full(N_STEPS, 2.0),
            n_trials=50,
            rng=np.random.default_rng(1),
        )
        for steps in (capped, np.full(2, 0.2))
    ]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-5)


# --- work that is kept -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    number: float
    text: str
    missing: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """A section that says how often it was run."""

    calls: list[int]
    last: int = 0
    name: str = "counting"
    title: str = "Counting"
    covers: str = "nothing"
    notes: tuple[str, ...] = ()

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        count = partial(_count, self.calls)
        count.__module__, count.__qualname__ = "tests", "count"  # type: ignore[attr-defined]
        return (Job(name="Count, please", function=count, arguments=(self.last,), kind=Line),)

    def write(self, page: Page, rows: list[Line], stem: Path) -> None:
        page.text(repr(rows))


def _count(calls: list[int], last: int) -> list[Line]:
    calls.append(last)
    return [
        Line(number=0.1 + last, text="ä", missing=None),
        Line(number=np.nan, text="", missing=2.0),
    ]


def test_full_run_goes_on_where_it_was(tmp_path: Path) -> None:
    section = Counting(calls=[])
    paper = replace(DESIGN, sections=(section,))
    first = paper.reproduce(tmp_path, n_jobs=1).read_text(encoding="utf-8").split("##")[-1]
    again = paper.reproduce(tmp_path, n_jobs=1).read_text(encoding="utf-8").split("##")[-1]
    assert section.calls == [0]
    assert first == again
    assert "number=0.1, text='ä', missing=None" in first
    other = replace(paper, sections=(replace(section, last=1),))
    other.reproduce(tmp_path, n_jobs=1)
    assert section.calls == [0, 1], "other arguments are other work"
    kept = sorted((tmp_path / "checkpoints").iterdir())
    assert [path.suffix for path in kept] == [".json", ".json"]
    assert json.loads(kept[0].read_text(encoding="utf-8"))
    paper.reproduce(tmp_path, quick=True, n_jobs=1)
    assert section.calls == [0, 1, 0], "a quick run keeps nothing"


def test_uniform_plan_gives_every_coordinate_the_same_share() -> None:
    generator = np.random.default_rng(4)
    values = generator.normal(size=(64, 4)) * [1.0, 5.0, 0.1, 0.0]
    belief = Belief.uniform(64).updated(generator.normal(size=64))
    weights = np.exp(belief.log_p)
    for mi_nats in (1e-4, 0.02, 0.5):
        plan = uniform_plan(values, belief.log_p, mi_nats)
        variance = weights @ (values - weights @ values) ** 2
        np.testing.assert_allclose(plan.noise_std**2, variance[:3] * 3 / (2 * mi_nats), rtol=1e-5)
        assert plan.log_det_nats == log_det_of_plan(plan, weights) <= mi_nats
        # By Hadamard and ln(1+x) <= x the bound is not far below: the noise is not too much.
        assert plan.log_det_nats > 0.5 * mi_nats
    wide = generator.normal(size=(64, 200))
    tiny = uniform_plan(wide, belief.log_p, 1e-7)  # the lattice's slack is felt here
    assert 0.5e-7 < tiny.log_det_nats <= 1e-7
    with pytest.raises(BudgetError, match="lattice of 200 directions"):
        uniform_plan(wide, belief.log_p, 1e-13)
    still = uniform_plan(np.ones((8, 2)), Belief.uniform(8).log_p, 0.1)
    assert still.is_noiseless
    assert still.log_det_nats == 0.0
