"""Printed bounds are never below what was proved, and read the same everywhere."""

import ast
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import pacprivacy as pac
from pacprivacy._rounding import at_least, at_most, failure_text, percent_at_most
from pacprivacy.dp import DPCertificate
from pacprivacy.release import Certificate
from pacprivacy.reporting import ReportData, render_page

SOURCE = Path(pac.__file__).parent


@pytest.mark.claim("R-5")
@given(st.floats(min_value=-1e12, max_value=1e12, allow_nan=False), st.integers(1, 9))
def test_no_bound_is_printed_on_the_wrong_side(value: float, digits: int) -> None:
    exact = Decimal(repr(value))
    for kind in ({"significant": digits}, {"decimals": digits}):
        assert Decimal(at_least(value, **kind)) <= exact <= Decimal(at_most(value, **kind))
        assert Decimal(at_most(value, percent=True, **kind)) >= 100 * exact
    room = Decimal(10) ** -digits
    assert Decimal(at_most(value, decimals=digits)) - exact <= room


@pytest.mark.claim("R-5")
def test_one_more_bit_is_one_more_digit() -> None:
    """What is barely above a round figure is not printed as that figure."""
    for rate in (0.55, 0.588, 0.6, 0.75):
        assert percent_at_most(rate) == f"{100 * rate:.2f}"
        assert float(percent_at_most(float(np.nextafter(rate, 1)))) > 100 * rate + 0.005
    assert at_most(0.1, decimals=6) == "0.100000"
    assert at_most(float(np.nextafter(0.1, 1)), decimals=6) == "0.100001"
    assert [at_most(x, significant=4) for x in (0.0, 0.75, 2.32411, 123.44)] == [
        "0", "0.75", "2.325", "123.5",
    ]  # fmt: skip
    assert at_most(float("inf"), decimals=2) == "inf"
    assert at_most(-1e-9, decimals=2) == "0.00"
    with pytest.raises(TypeError):
        at_most(1.0)


def test_a_failure_probability_is_rounded_up_and_not_blurred_by_one_minus() -> None:
    for gamma in (1e-9, 2e-9, 3e-9, 1e-6, 0.5):
        assert failure_text(1 - gamma) == f"{gamma:.1g}"
    assert failure_text(1 - 1.1e-9) == "2e-09"
    assert failure_text(1.0) == "0"


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    data = np.random.default_rng(0).normal(size=40)
    found = pac.privatize(np.mean, data, pac.Information(0.1), n_subsets=16, rule="waterfill")
    # Just above a figure that the reader would see if it were rounded to the nearest.
    barely = {
        "membership_bound": 0.588004,
        "mi_upper_nats": 0.1000004,
        "epsilon_equivalent": 0.3551,
    }
    return replace(found.certificate, **barely)


@pytest.mark.claim("R-5")
def test_text_page_and_notebook_round_the_same_bound_alike(certificate: Certificate) -> None:
    page = render_page(ReportData(certificate))
    shown = {"text": str(certificate), "notebook": certificate._repr_html_(), "page": page}
    for where, text in shown.items():
        assert "58.9 times in 100" in text, where
        assert "58.8 times" not in text, where
        assert "58.80 %" not in text, where
    assert "58.81 %" in shown["text"]
    assert "58.81 %" in shown["page"]
    assert "0.100001 nats" in shown["text"]
    assert "0.100001 nats" in shown["page"]
    assert "0.356" in shown["text"]
    assert "0.356" in shown["page"]


def test_a_dp_promise_is_not_rounded_down() -> None:
    found = DPCertificate(
        epsilon=0.70000049, delta=1.0004e-6, neighbours="replace", mechanism="mean"
    )
    assert "(0.700001, 1.01e-06)" in found.promise


def test_budgets_in_words_do_not_ask_for_less_than_they_allow() -> None:
    assert str(pac.Membership(0.588)) == "membership success <= 58.8 %"
    assert str(pac.Membership(0.58804)) == "membership success <= 58.81 %"
    assert str(pac.Information(0.12345678)) == "mutual information <= 0.123457 nats"
    assert str(pac.Information(0.12345611)) == "mutual information <= 0.123457 nats"
    assert str(pac.ResidualEntropy(share=0.90009)).startswith("residual entropy >= 90 %")


def test_nobody_else_rounds_bounds_up() -> None:
    """``math.ceil`` of a figure times a power of ten, to be printed, belongs to one module."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "ceil(" in text else ():
            if isinstance(node, ast.FormattedValue) and re.search(
                r"ceil\(.*1(0|e)", ast.unparse(node.value)
            ):
                found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert not found, f"use pacprivacy._rounding: {found}"
