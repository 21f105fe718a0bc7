"""Error bars: their shape, their figures, what the file keeps, and how often they cover."""

from __future__ import annotations

import json
import warnings
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy._values import Row, row_texts, write_release
from pacprivacy.errors import BudgetError, CertificateError, NoisyWarning
from pacprivacy.mechanism import Mechanism, flatten
from pacprivacy.noise import NoisePlan, calibrate
from pacprivacy.release import ErrorBars, measure_error_bars
from pacprivacy.release.error_bars import _odd_tails, round_up_error_bars, spread_freedom
from pacprivacy.simulation import Outputs, run_mechanism
from pacprivacy.statistics import Covariance, Histogram, Mean

pytestmark = pytest.mark.usefixtures("few_draws")
RNG = np.random.default_rng(20)
X = RNG.normal([3.0, 5.0], 1.0, size=(200, 2))
Y = X @ [1.0, -2.0] + RNG.normal(size=200)
FRAME = pd.DataFrame({"region": RNG.choice(["north", "south"], 200), "x": X[:, 0]})
Pair = namedtuple("Pair", "first rest")

SHAPES: dict[str, tuple[Any, Any, list[str]]] = {
    "number": (np.mean, X[:, 0], ["value"]),
    "array": (lambda x: x.mean(axis=0), X, ["value[0]", "value[1]"]),
    "dict": (lambda x: {"b": x.mean(), "a": {"c": x.max()}}, X, ["a.c", "b"]),
    "named tuple": (
        lambda x: Pair(float(x.mean()), [x.std(axis=0)]),
        X,
        ["first", "rest[0][0]", "rest[0][1]"],
    ),
    "series": (lambda d: d.groupby("region")["x"].mean(), FRAME, ["x[north]", "x[south]"]),
    "frame": (
        lambda d: d.groupby("region")[["x"]].agg("mean"),
        FRAME,
        ["x[north]", "x[south]"],
    ),
    "estimator": (
        lambda a, b: LinearRegression().fit(a, b),
        (X, Y),
        ["coef_[0]", "coef_[1]", "intercept_"],
    ),
    "pipeline": (
        lambda a, b: make_pipeline(StandardScaler(with_mean=False), LinearRegression()).fit(a, b),
        (X, Y),
        [],
    ),
    "histogram": (Histogram(bins=3, ranges=(0.0, 9.0)), X[:, 0], []),
    "covariance": (Covariance(), X, [f"value[{i}, {j}]" for i in (0, 1) for j in (0, 1)]),
}


def release(what: str, **options: Any) -> pac.Release:
    mechanism, data, _ = SHAPES[what]
    chosen = {"n_subsets": 16, "rng": 3, "simulate": True, "rule": "waterfill", **options}
    return pac.privatize(mechanism, data, pac.Information(1.0), **chosen)


def numbers(bars: ErrorBars, value: Any) -> Any:
    return np.ravel(bars.numbers_of(value))


@pytest.mark.claim("R-8")
@pytest.mark.parametrize("what", SHAPES)
def test_bars_have_the_shape_of_the_value_and_survive_the_file(what: str, tmp_path: Path) -> None:
    made = release(what)
    bars = made.error_bars
    assert bars is not None
    lower, upper = made.interval(0.9)
    if hasattr(made.value, "fit"):
        assert isinstance(made.std_error, dict)
        assert isinstance(lower, dict)
    else:
        assert type(made.std_error) is type(made.value) is type(lower)
        if isinstance(made.value, pd.Series | pd.DataFrame):
            assert made.std_error.index.equals(made.value.index)
    names = [row.name for row in made.rows()]
    assert not SHAPES[what][2] or sorted(names) == sorted(SHAPES[what][2])
    half = stats.norm.ppf(0.95) * numbers(bars, made.std_error)
    assert numbers(bars, made.std_error).max() > 0
    np.testing.assert_allclose(numbers(bars, upper) - numbers(bars, lower), 2 * half)
    middle = (numbers(bars, upper) + numbers(bars, lower)) / 2
    if not isinstance(lower, dict) or isinstance(made.value, dict):
        np.testing.assert_allclose(middle, numbers(bars, made.value), atol=1e-12)
    elif what == "estimator":
        np.testing.assert_allclose((lower["coef_"] + upper["coef_"]) / 2, made.value.coef_)
    else:
        ends = lower["linearregression"], upper["linearregression"]
        np.testing.assert_allclose(sum(end["coef_"] for end in ends) / 2, made.value[-1].coef_)
    again = pac.Release.load(made.save(tmp_path))
    for of in ("records", "population"):
        ours, theirs = made.interval(of=of), again.interval(of=of)
        assert again.error_bars is not None
        mine = sorted(numbers(bars, ours.upper))
        np.testing.assert_array_equal(sorted(numbers(again.error_bars, theirs.upper)), mine)
    assert pac.verify(made.certificate, made.bundle).digest


@pytest.mark.claim("R-8")
def test_the_figures_are_those_of_the_pool_and_the_noise_rounded_up() -> None:
    x = X * [1.0, 50.0]
    found = pac.plan(lambda d: d.mean(axis=0), x, pac.Information(0.5), n_subsets=64, rng=0)
    bars = found.error_bars
    assert bars is not None
    spread = found.outputs.values.std(axis=0)
    noise = np.sqrt(np.diag(found.noise.noise_covariance()))
    for said, true in ((bars.spread, spread), (bars.noise_std, noise)):
        assert (said >= true * (1 - 1e-12)).all()
        assert (said <= 1.1 * true).all()
        assert all(
            len(f"{figure:.6e}".split("e")[0].rstrip("0").replace(".", "")) <= 2 for figure in said
        )
    np.testing.assert_allclose(bars.std_error() ** 2, bars.spread**2 + bars.noise_std**2)
    np.testing.assert_allclose(
        bars.std_error("population") ** 2, 2 * bars.spread**2 + bars.noise_std**2
    )


@pytest.mark.parametrize("figure", [1.0, 0.30000001, 99.01, 1.2345e-7, 3e12, 0.0])
def test_rounding_is_upwards_to_two_digits(figure: float) -> None:
    (rounded,) = round_up_error_bars(np.array([figure]))
    assert figure <= rounded <= 1.1 * figure
    assert float(f"{rounded:.1e}") == rounded


@pytest.mark.claim("R-8")
def test_errors_of_numbers_whose_squares_vanish_do_not() -> None:
    r = pac.privatize(
        lambda x: x.mean(axis=0) * [1.0, 1e-170], X, pac.Information(0.5), n_subsets=8, rng=0
    )
    error, bars = r.std_error, r.error_bars
    assert bars is not None
    assert error[1] == pytest.approx(np.hypot(bars.spread[1], bars.noise_std[1]), abs=0)
    assert bars.spread[1] > 0 < error[1] < 1e-168


def test_uniform_weights_in_a_session_not_the_beliefs() -> None:
    with pac.Session(X, budget=pac.Information(4), n_subsets=16, rng=0, simulate=True) as session:
        first = session.release(lambda d: d.mean(axis=0), pac.Information(2))
        second = session.release(lambda d: d.mean(axis=0), pac.Information(1))
    assert first.error_bars is not None
    assert second.error_bars is not None
    assert np.ptp(second.bundle.log_p) > 0
    np.testing.assert_array_equal(second.error_bars.spread, first.error_bars.spread)


@pytest.mark.claim("R-8")
def test_a_linear_description_is_followed_exactly() -> None:
    """A covariance matrix is built from its triangle: every number keeps its own bars."""
    made = release("covariance")
    bars, outputs = made.error_bars, made.bundle.outputs
    assert bars is not None
    spread = bars.structure.restore(bars.spread)
    expected = round_up_error_bars(outputs.std(axis=0))
    np.testing.assert_array_equal(spread[np.triu_indices(2)], expected)
    np.testing.assert_array_equal(spread, spread.T)


class Foreign(Mean):
    """Post-processing of a user's own, which must not see what was not released."""

    seen: ClassVar[list[Any]] = []

    def finish(self, value: Any) -> Any:
        """Note that it was called."""
        self.seen.append(value)
        return value


@pytest.mark.claim("R-8")
def test_a_users_own_finish_sees_the_released_value_alone() -> None:
    made = pac.privatize(Foreign(), X, pac.Information(1.0), n_subsets=16)
    assert len(Foreign.seen) == 1
    assert Foreign.seen[0] is made.value
    with pytest.raises(CertificateError, match="error bars must have been measured"):
        made.interval()
    assert made.rows() == []


@pytest.mark.claim("R-8")
@pytest.mark.parametrize("what", ["spread", "noise_std", "std_error", "share"])
def test_bars_are_bound_to_the_certificate(what: str, tmp_path: Path) -> None:
    path = release("array").save(tmp_path)
    content = json.loads(path.read_text())
    assert any(text.startswith("error bars") for text in content["certificate"]["published"])
    bars = content["error_bars"]
    bars[what] = 0.25 if what == "share" else [0.5 * bars[what][0], bars[what][1]]
    del content["digest"]
    write_release(path, content)  # under a digest that is right
    with pytest.raises(CertificateError, match="error_bars must be those"):
        pac.Release.load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"confidence": 95}, "confidence must be"), ({"of": "people"}, "of must be")],
)
def test_wrong_questions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        release("number").interval(**options)


# --- counts --------------------------------------------------------------------------------------


def test_counts_are_for_all_records_whole_and_said_to_be() -> None:
    made = release("histogram")
    counts = made.value["counts"]
    assert (counts == counts.round()).all()
    assert abs(counts.sum() - 200) < 60
    assert any("divided by 0.5" in text and "rounded" in text for text in made.certificate.public)
    assert (made.std_error["edges"] == 0).all()
    bars = made.error_bars
    assert bars is not None
    assert bars.rounds
    raw = bars.spread**2 + bars.noise_std**2
    moves = raw > 0
    np.testing.assert_allclose(bars.std_error()[moves] ** 2, (raw + 1 / 12)[moves])


# --- scales --------------------------------------------------------------------------------------


def line(x: Any, y: Any) -> Any:
    return np.linalg.lstsq(np.c_[np.ones_like(x), x], y, rcond=None)[0]


def test_a_slope_beside_its_intercept_is_useful() -> None:
    x = RNG.normal(1e5, 2e4, size=400)
    y = 3.0 + 1e-4 * x + RNG.normal(size=400)
    options: dict[str, Any] = {"n_subsets": 64, "rng": 0}
    ours = pac.plan(line, (x, y), pac.Information(0.25), **options)
    plain = pac.plan(line, (x, y), pac.Information(0.25), rule="exact", **options)
    assert ours.error_bars is not None
    assert plain.error_bars is not None
    relative = ours.error_bars.noise_std / ours.error_bars.spread
    assert relative[1] < 3 * relative[0]
    assert ours.error_bars.noise_std[1] < 0.1 * plain.error_bars.noise_std[1]
    assert any("units of the noise" in text for text in ours.certificate.published)
    assert not any("units of the noise" in text for text in plain.certificate.published)
    np.testing.assert_array_equal(ours.error_bars.spread, plain.error_bars.spread)
    made = pac.privatize(line, (x, y), pac.Information(0.25), simulate=True, **options)
    assert (abs(made.value - line(x, y)) < 5 * made.std_error).all()
    assert pac.verify(made.certificate, made.bundle).digest


def test_outputs_of_like_size_keep_their_units() -> None:
    found = pac.plan(lambda d: d.mean(axis=0), X * [1, 50], pac.Information(0.5), n_subsets=16)
    assert found.outputs.scales is None


def test_rounding_errors_are_not_blown_up() -> None:
    """A number that is constant but for its last bits must not get a unit of its own."""
    found = pac.plan(
        lambda d: np.array([d.mean(), 1 + 1e-16 * d.sum(), 1e3 * d.max()]),
        RNG.normal(size=50),
        pac.Information(0.5),
        n_subsets=16,
    )
    if found.outputs.scales is not None:
        assert found.outputs.scales[1] == found.outputs.scales.max()


# --- warnings ------------------------------------------------------------------------------------


def test_an_outlier_is_warned_of() -> None:
    # Even steps around the median, whose law over a pool then has no lumps of its own.
    incomes = np.append(stats.lognorm(0.4, scale=np.exp(10)).ppf((np.arange(199) + 0.5) / 199), 5e6)
    with pytest.warns(NoisyWarning) as seen:
        made = pac.privatize(np.mean, incomes, pac.Membership(0.6), n_subsets=128, rng=0)
    said = ("noise exceeds the signal", "noise is most of the error")  # as the noise falls
    assert any(words in str(item.message) for item in seen for words in said)
    assert any("heavy tails" in str(item.message) for item in seen)
    assert any("a robust statistic" in note for note in made.certificate.notes)
    assert "heavy tails" not in json.dumps(made.to_public_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoisyWarning)
        calm = pac.privatize(np.median, incomes, pac.Membership(0.75), n_subsets=128, rng=0)
    assert not any("a robust statistic" in note for note in calm.certificate.notes)


def test_humps_are_told_from_chance() -> None:
    """A median beside a gap on 400 pools of halves, and outputs with one record in or out."""
    rng, records, warned, m = np.random.default_rng(0), np.linspace(0, 1, 200), 0, 128
    records[100:] += 0.02
    for _ in range(400):
        order = np.argsort(rng.random((m // 2, 200)), axis=1)
        halves = np.concatenate([order[:, :100], order[:, 100:]])
        warned += _odd_tails(np.median(records[halves], axis=1)[:, None])
    assert warned <= 4  # 60 where an excess of -1 is compared without a margin
    humps = rng.choice([-1.0, 1.0], size=(m, 500)) + 0.3 * rng.normal(size=(m, 500))
    assert _odd_tails(humps) > 480


def test_noise_below_the_value_is_not_said_to_exceed_it() -> None:
    with pytest.warns(NoisyWarning, match="noise is most of the error in 1 of 1 numbers"):
        pac.privatize(np.mean, RNG.normal(40, 20, 200), pac.Information(1 / 64), n_subsets=64)


def test_warnings_call_numbers_as_the_screen_does() -> None:
    ages, bins = RNG.uniform(0, 100, 400), Histogram(bins=4, ranges=(0, 100))
    with pytest.warns(NoisyWarning, match=r"of 4 numbers: 0 to under 25 \(noise") as caught:
        release = pac.privatize(bins, ages, pac.Information(1 / 64), n_subsets=64)
    assert not any("counts[" in str(item.message) for item in caught)
    assert any("of 4 numbers" in note for note in release.certificate.notes)

    def sum_and_mean(x: Any) -> list[float]:
        return [float(x.sum()), float(x.mean())]

    options: dict[str, Any] = {"budget": "membership<=0.75", "n_subsets": 64}
    with pytest.warns(NoisyWarning, match=r"^value\[0\]: the value on all records"):
        pac.privatize(sum_and_mean, ages, **options)
    declared = pac.privatize(sum_and_mean, ages, totals=["value[0]"], **options)
    assert [row.name for row in declared.rows()] == ["value[0]", "value[1]"]
    assert all(np.isfinite(row.std_error) for row in declared.rows())


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "error", "written"),
    [
        (50.234, 0.4, ("50.2", "0.4")),
        (0.4987, 0.0431, ("0.50", "0.05")),
        (23462.0, 36017.0, ("23,000", "37,000")),
        (1234.5, 1.23, ("1,234.5", "1.3")),
        (7.0, 0.0, ("7", "0")),
        (1.683e10, 1.8e11, ("2e+10", "1.8e+11")),
    ],
)
def test_value_and_error_end_at_the_same_decimal(
    value: float, error: float, written: tuple[str, str]
) -> None:
    assert row_texts(Row("x", value, error, 0.0, 0.0)) == written


def test_notebooks_show_a_table() -> None:
    shown = release("series")._repr_html_()
    assert "x[north]" in shown
    assert "95 % interval" in shown


# --- coverage ------------------------------------------------------------------------------------

N_UNIVERSES = 200  # fewer would not tell 95 from 85 per cent


def draw(plan: NoisePlan, outputs: Outputs, rng: np.random.Generator) -> Any:
    index = int(rng.integers(outputs.n_subsets))
    return plan.value_of(plan.observe(index, SimulatedSource(rng)))


@pytest.mark.claim("R-8")
@pytest.mark.parametrize("folds", [2, 5])
def test_nominal_95_per_cent_intervals_cover(folds: int) -> None:
    """Mean and median, records and population, 200 universes of a thousand records.

    Binomial bounds at one in ten thousand around 95 %. Intervals from the noise alone, or without
    the factor 1/(1-f) for the population, cover far less (next lines) and would be refused.
    """

    class Both(Mechanism):
        name = "both"

        def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
            return np.array([parts[0].mean(), np.median(parts[0])])

    rng, covered = np.random.default_rng(folds), np.zeros((4, 2))
    for _ in range(N_UNIVERSES):
        x = rng.normal(size=1000)
        pool = pac.Balanced(n_subsets=60, folds=folds).draw(1000, rng=rng)
        outputs = run_mechanism(Both(), x, pool, rng=0)
        plan = calibrate(outputs, pac.Information(1.5), rule="waterfill", pool=pool)
        bars = measure_error_bars(outputs, plan, pool)
        assert bars is not None
        y, truth = draw(plan, outputs, rng), np.array([x.mean(), np.median(x)])
        z = 1.96
        covered[0] += abs(y - truth) <= z * bars.std_error()
        covered[1] += abs(y) <= z * bars.std_error("population")
        covered[2] += abs(y - truth) <= z * bars.noise_std
        covered[3] += abs(y) <= z * bars.std_error()
    least, most = stats.binom.ppf([5e-5, 1 - 5e-5], N_UNIVERSES, 0.95)
    assert ((least <= covered[:2]) & (covered[:2] <= most)).all(), covered
    assert (covered[2:] < least).all(), covered


def leave_out(rng: np.random.Generator, n: int, folds: int, m: int) -> Any:
    """Masks of candidates that leave one fold out, shape (m, n)."""
    partitions = [rng.permutation(n) % folds for _ in range(m // folds)]
    return np.array([fold != k for fold in partitions for k in range(folds)])


@pytest.mark.claim("R-8")
def test_degrees_of_freedom_are_those_of_the_gaps() -> None:
    """How the variance moves with the size of every gap, by small steps."""
    rng = np.random.default_rng(0)
    gaps, places = rng.exponential(size=9), rng.binomial(9, 0.5, size=300)

    def column(gaps: Any) -> Any:
        return np.append(0.0, np.cumsum(gaps))[places]

    step = 1e-6
    moves = [
        np.log(column(gaps * (1 + step * (np.arange(9) == i))).var() / column(gaps).var()) / step
        for i in range(9)
    ]
    assert sum(moves) == pytest.approx(2, abs=1e-4)
    (found,) = spread_freedom(column(gaps)[:, None])  # type: ignore[misc]
    assert found >= np.floor(4 / np.square(moves).sum())  # more where gaps vary less than records'
    assert found < 2 * 9 + 2  # no more than two for each gap, and a little
    even = column(np.full(9, 0.1))[:, None]
    assert spread_freedom(even) is None


@pytest.mark.claim("R-8")
def test_smooth_numbers_and_counts_have_the_normal_law() -> None:
    rng = np.random.default_rng(1)
    masks = leave_out(rng, 600, 20, 400).astype(float)
    columns = np.column_stack([rng.normal(size=600), rng.random(600) < 0.4])
    assert spread_freedom(masks @ columns / masks.sum(axis=1, keepdims=True)) is None
    assert spread_freedom(np.ones((64, 2))) is None


@pytest.mark.claim("R-8")
def test_population_intervals_of_quantiles_cover_when_few_are_left_out() -> None:
    """The 90 % quantile of 200 records of which 10 are left out: 200 universes.

    Binomial bounds at one in ten thousand; the normal law covers too seldom.
    """
    rng, covered, n = np.random.default_rng(2), np.zeros(2), 200
    truth = float(stats.gamma(4).ppf(0.9))
    pool = pac.Balanced(n_subsets=400, folds=20).draw(200, rng=0)
    for _ in range(n):
        outputs = run_mechanism(pac.stats.quantiles(q=[0.9]), rng.gamma(4.0, size=200), pool, rng=0)
        plan = calibrate(outputs, pac.Information(1.5), rule="waterfill", pool=pool)
        bars = measure_error_bars(outputs, plan, pool)
        assert bars is not None
        y = np.atleast_1d(draw(plan, outputs, rng))
        for place, tried in enumerate((bars, replace(bars, freedom=None))):
            lower, upper = tried.interval(y, 0.95, "population")
            covered[place] += lower[0] <= truth <= upper[0]
    least, most = stats.binom.ppf([5e-5, 1 - 5e-5], n, 0.95)
    assert least <= covered[0] <= most
    assert covered[1] < least


@pytest.mark.claim("R-8")
def test_degrees_of_freedom_are_kept_in_the_file() -> None:
    bars = ErrorBars(
        structure=flatten(np.zeros(2))[1],
        spread=np.array([1.0, 1.0]),
        noise_std=np.array([0.0, 10.0]),
        share=0.95,
        freedom=np.array([4.0, 4.0]),
    )
    plain = json.loads(json.dumps(bars.to_public_dict()))
    again = ErrorBars.from_dict(plain, named=[bars.sentence])
    np.testing.assert_array_equal(again.freedom, [4.0, 4.0])
    del plain["freedom"]
    with pytest.raises(CertificateError):
        ErrorBars.from_dict(plain, named=[bars.sentence])
    reach = bars.interval(np.zeros(2), 0.95, "population")[1] / bars.std_error("population")
    # Satterthwaite: noise of five times the sampling variance is known
    assert reach == pytest.approx(stats.t([4, 4 * 6**2]).ppf(0.975))
    normal = bars.interval(np.zeros(2), 0.95, "records")[1] / bars.std_error()
    assert normal == pytest.approx(stats.norm.ppf(0.975))


def test_figures_are_rounded_up_as_they_are_written() -> None:
    figures = np.exp(np.random.default_rng(0).uniform(-45, 45, size=4000))
    found = round_up_error_bars(figures)
    assert (found >= figures * (1 - 1e-15)).all()
    assert (found <= figures * 1.11).all()
    assert all(value == float(f"{value:.1e}") for value in found)
    extreme = round_up_error_bars(np.array([0.0, 1.234e-300, 9.99, 1.51e200]))
    assert extreme.tolist() == [0.0, 1.3e-300, 10.0, 1.6e200]
