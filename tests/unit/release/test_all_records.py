"""Numbers are compared with those of all records: totals, bias, and what has no interval."""

import functools
import json
import math
import re

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy.errors import CertificateError, MechanismError, NoisyWarning

pytestmark = pytest.mark.usefixtures("few_draws")
X = np.random.default_rng(0).normal(50, 10, size=400)
FRAME = pd.DataFrame({"age": X, "pay": 1000 * X[::-1]})
HALVES = pac.Balanced(n_subsets=64)


def _release(function, data=X, **options):
    return pac.privatize(function, data, "membership<=0.75", sample=HALVES, rng=0, **options)


def _covers(release, goal):
    lower, upper = release.interval(0.9999)
    rounding = 1e-9 * np.abs(goal)  # an exact number has an interval of no width
    return np.all((lower - rounding <= goal) & (goal <= upper + rounding))


@pytest.mark.claim("R-11")
@pytest.mark.parametrize(
    ("function", "goal"),
    [
        (np.sum, X.sum()),
        (np.nansum, X.sum()),
        (sum, X.sum()),
        (math.fsum, X.sum()),
        (len, len(X)),
        (np.size, X.size),
        (np.count_nonzero, len(X)),
        (functools.partial(np.sum, axis=0), X.sum()),
    ],
)
def test_well_known_totals_are_estimates_for_all_records(function, goal):
    release = _release(function)
    assert _covers(release, goal)
    assert "estimates for all records" in str(release)


@pytest.mark.parametrize("function", [pd.DataFrame.sum, pd.DataFrame.count])
def test_totals_of_frames_are_recognised(function):
    release = _release(function, FRAME)
    assert _covers(release, function(FRAME))


@pytest.mark.claim("R-11")
@pytest.mark.parametrize("totals", [True, "sum", ["sum"]])
def test_a_declared_total_has_the_interval_of_all_records(totals):
    release = _release(lambda x: x.sum(), totals=totals)
    assert _covers(release, X.sum())
    assert release.std_error < X.sum() / 4


@pytest.mark.claim("R-11")
@pytest.mark.parametrize(
    "function",
    [lambda x: x.sum(), lambda x: x.shape[0], lambda x: len(np.unique(x))],
)
def test_what_is_no_estimate_has_no_interval_and_shows_no_value(function):
    with pytest.warns(NoisyWarning, match="value on all records differs") as seen:
        release = _release(function)
    with pytest.raises(CertificateError, match="totals=True"):
        release.interval()
    with pytest.raises(CertificateError, match="totals=True"):
        release.std_error  # noqa: B018
    said = " ".join([*(str(w.message) for w in seen), str(release), str(release.certificate)])
    assert re.search(r"no interval", said)
    for figure in (X.sum(), len(X)):
        assert f"{figure:.6g}" not in " ".join(str(w.message) for w in seen)
    json.dumps(release.to_public_dict(), allow_nan=False)


def test_totals_false_takes_a_candidate_as_it_is():
    with pytest.warns(NoisyWarning, match="differs"):
        release = _release(np.sum, totals=False)
    assert abs(release.value - X.sum() / 2) < X.sum() / 8


def test_a_value_of_the_size_of_the_subset_has_no_interval():
    with pytest.warns(NoisyWarning, match="no value of this shape"):
        release = pac.privatize(np.sort, X, pac.Information(50), sample=HALVES, rng=0)
    assert not release.error_bars.has_intervals


@pytest.mark.claim("R-11")
def test_one_line_of_a_description_is_a_total():
    with pytest.warns(NoisyWarning, match=re.escape("age[count]; pay[count]")):
        plain = _release(lambda d: d.describe(), FRAME)
    lower, _ = plain.interval(0.95)
    assert lower.loc["count"].isna().all()
    assert lower.drop("count").notna().all(axis=None)
    released = _release(lambda d: d.describe(), FRAME, totals="count")
    assert np.allclose(released.value.loc["count"], len(X))
    assert _covers(released, FRAME.describe())


@pytest.mark.parametrize("totals", ["counts", ["count", "nothing"]])
def test_totals_that_name_nothing_are_refused(totals):
    with pytest.raises(MechanismError, match="totals must name numbers of the value"):
        _release(lambda d: d.describe(), FRAME, totals=totals)


def test_totals_of_a_wrong_kind_are_refused():
    with pytest.raises(MechanismError, match="totals must be True, False or names"):
        _release(np.sum, totals=3)


def test_a_kind_is_not_taken_for_labelled_numbers():
    with pytest.raises(MechanismError, match="totals must name numbers"):
        _release(lambda x: {"mean": x.mean(), "n": len(x)}, totals="sum")


@pytest.mark.claim("R-11")
def test_bias_within_the_error_is_part_of_it(tmp_path):
    ages = np.random.default_rng(3).integers(18, 80, 400).astype(float)
    release = pac.privatize(np.max, ages + X / 1e3, "membership<=0.6", sample=HALVES, rng=0)
    bars = release.error_bars
    assert bars.bias is not None
    smaller = np.hypot(bars.spread, bars.noise_std)
    assert (bars.std_error() > smaller).all()
    release.save(tmp_path)
    read = pac.Release.load(tmp_path)
    assert np.array_equal(read.error_bars.std_error(), bars.std_error())


def test_files_keep_which_numbers_have_no_interval(tmp_path):
    with pytest.warns(NoisyWarning):
        release = _release(lambda d: d.describe(), FRAME)
    release.save(tmp_path)
    read = pac.Release.load(tmp_path)
    assert read.error_bars.no_interval == release.error_bars.no_interval != ()
    assert read.interval(0.95).lower.loc["count"].isna().all()


def test_a_session_takes_totals():
    with pac.Session(X, budget="mi<=2", sample=HALVES, rng=0) as session:
        release = session.release(lambda x: x.sum(), "mi<=1", totals=True)
        assert _covers(release, X.sum())
        planned = session.plan(np.sum, "mi<=1")
        assert planned.outputs.values.mean() == pytest.approx(X.sum())
