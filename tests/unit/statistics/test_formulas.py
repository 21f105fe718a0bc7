"""Formulas: against numpy, in the units of the columns, and one for all who use it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pacprivacy import statistics
from pacprivacy.dp import statistics as declared
from pacprivacy.statistics import unit_sums as formulas

RNG = np.random.default_rng(0)
X = RNG.normal([100.0, -3.0, 0.5], [1.0, 20.0, 0.1], size=(50, 3))
WEIGHTS = RNG.integers(1, 4, size=50).astype(float)
CENTRE, SCALE = np.array([90.0, 5.0, 0.0]), np.array([2.0, 10.0, 0.5])
REPEATED = np.repeat(X, WEIGHTS.astype(int), axis=0)

WANTED = {
    "sum": (formulas.SUM, REPEATED.sum(axis=0)),
    "mean": (formulas.MEAN, REPEATED.mean(axis=0)),
    "variance": (formulas.VARIANCE, REPEATED.var(axis=0, ddof=1)),
    "covariance": (
        formulas.covariance_formula(1),
        np.cov(REPEATED, rowvar=False)[np.triu_indices(3)],
    ),
}


def sums(formula: formulas.Formula, rows: Any) -> tuple[Any, list[Any]]:
    number = np.full((1, 1), WEIGHTS.sum())
    return number, [WEIGHTS[None] @ moment for moment in formula.moments(rows)]


@pytest.mark.parametrize("name", WANTED)
def test_values_are_those_of_numpy(name: str) -> None:
    formula, wanted = WANTED[name]
    number, moments = sums(formula, X)
    np.testing.assert_allclose(formula.value(number, *moments)[0], wanted, rtol=1e-9)


@pytest.mark.parametrize("name", ["sum", "mean", "variance"])
def test_units_are_put_back(name: str) -> None:
    formula, wanted = WANTED[name]
    centre = CENTRE if formula.centred else 0.0
    number, moments = sums(formula, (X - centre) / SCALE)
    restored = formula.restore(formula.value(number, *moments), centre, SCALE)
    np.testing.assert_allclose(restored[0], wanted, rtol=1e-12)


@pytest.mark.parametrize("formula", [formulas.SUM, formulas.MEAN])
def test_slopes_are_derivatives(formula: formulas.Formula) -> None:
    assert formula.slopes is not None
    number, total, step = np.array([40.0]), np.array([30.0]), 1e-5
    for i, slope in enumerate(formula.slopes(number, total)):
        ends = []
        for sign in (-1, 1):
            moved = [number.copy(), total.copy()]
            moved[i] += sign * step
            ends.append(formula.value(*moved))
        np.testing.assert_allclose(slope, (ends[1] - ends[0]) / (2 * step), atol=1e-8)


def test_arrays_tables_and_declared_ranges_share_a_formula() -> None:
    assert statistics.Mean().formula is statistics.TableMean.formula is declared.FORMULAS["mean"]
    assert statistics.TableSum.formula is declared.FORMULAS["sum"]
    assert statistics.TableCount.formula is declared.FORMULAS["count"]
