"""Budgets: what is accepted, what is refused and in which words."""

import math
import pickle

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.budget import Combined, Spent, budget_limits, parse_budget
from pacprivacy.errors import BudgetError, PacPrivacyError


@pytest.mark.parametrize(
    "bad", [0, -1, math.inf, math.nan, "x", None, True, [], 10**400, -(10**400)]
)
def test_information_must_be_positive_and_finite(bad: object) -> None:
    with pytest.raises(BudgetError, match="mi_nats must be a positive finite number; got") as error:
        pac.Information(bad)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    assert "Use about 0.02" in str(error.value)


@pytest.mark.parametrize("bad", [0.5, 0.2, 1, 1.5, 60, -1, math.nan, None, False])
def test_membership_must_be_between_a_coin_and_certainty(bad: object) -> None:
    with pytest.raises(BudgetError, match=r"success must be .*; got") as error:
        pac.Membership(bad)  # type: ignore[arg-type]
    assert "0.6 for" in str(error.value)


@pytest.mark.parametrize("bad", [0, -0.1, 50, math.inf, "1.0.0"])
def test_epsilon_must_leave_some_doubt(bad: object) -> None:
    with pytest.raises(BudgetError, match="epsilon must"):
        pac.EpsilonEquivalent(bad)  # type: ignore[arg-type]


def test_epsilon_stands_for_a_membership_success() -> None:
    budget = pac.EpsilonEquivalent(1.0)
    assert budget.membership.success == pytest.approx(1 - 1 / (1 + math.e))
    assert budget_limits(budget) == Spent(success_level=budget.membership_success)
    assert "not a differential-privacy claim" in str(budget)


def test_budgets_join_and_the_tightest_counts() -> None:
    joined = (
        pac.Information(1) & pac.Membership(0.7) & pac.Information(0.5) & pac.EpsilonEquivalent(0.1)
    )
    assert isinstance(joined, Combined)
    assert len(joined.parts) == 4
    assert budget_limits(joined) == Spent(
        mi_nats=0.5, success_level=pac.EpsilonEquivalent(0.1).membership_success
    )
    nested = pac.Information(1) & (pac.Membership(0.7) & pac.Information(0.5))
    assert nested.parts == (pac.Information(1), pac.Membership(0.7), pac.Information(0.5))
    assert str(joined).count(" and ") == 3


@pytest.mark.parametrize("other", [3, None, "mi<=1"])
def test_only_budgets_join(other: object) -> None:
    with pytest.raises(BudgetError):
        pac.Information(1) & other  # type: ignore[operator]


def test_budgets_are_plain_frozen_values() -> None:
    budget = pac.Information(1)
    assert budget == pac.Information(1.0)
    assert hash(budget) == hash(pac.Information(1.0))
    assert pickle.loads(pickle.dumps(budget)) == budget
    with pytest.raises(AttributeError):
        budget.mi_nats = 2.0  # type: ignore[misc]


def test_something_else_is_no_budget() -> None:
    with pytest.raises(BudgetError, match="budget must be Information, Membership") as error:
        budget_limits(0.5)  # type: ignore[arg-type]
    assert isinstance(error.value, PacPrivacyError)
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("membership<=0.6", pac.Membership(0.6)),
        ("success = 60 %", pac.Membership(0.6)),
        (" MI : 1/64 ", pac.Information(1 / 64)),
        ("information<=2.5e-1", pac.Information(0.25)),
        ("eps<=1", pac.EpsilonEquivalent(1.0)),
        ("mi<=1/4, membership<=0.6", pac.Information(0.25) & pac.Membership(0.6)),
        ("mi<=1/4 and eps<=1", pac.Information(0.25) & pac.EpsilonEquivalent(1.0)),
    ],
)
def test_budgets_are_read_as_people_type_them(text: str, budget: object) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0.6",
        "membership",
        "membership<=",
        "privacy<=1",
        "mi<=1/0",
        "mi<=--1",
        "mi<=0",
        "membership<=0.5",
        "mi<=1 &",
        "mi<=1;eps<=1",
        "mi<=1/2/3",
        "membership<=60",
    ],
)
def test_other_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BudgetError) as error:
        parse_budget(text)
    assert "\n" not in str(error.value)
    assert "must" in str(error.value)


def test_residual_entropy_is_information_once_the_pool_is_known() -> None:
    share, nats = pac.ResidualEntropy(share=0.9), pac.ResidualEntropy(nats=5.0)
    assert share.on(1024).mi_nats == pytest.approx(0.1 * math.log(1024))
    assert nats.on(1024).mi_nats == pytest.approx(math.log(1024) - 5.0)
    assert budget_limits(share & pac.Information(0.1), 1024).mi_nats == 0.1
    assert pac.parse_budget("residual>=0.9 & mi<=1/4") == share & pac.Information(0.25)
    assert str(share & nats) == (
        "residual entropy >= 90 % of the secret's and residual entropy >= 5 nats"
    )
    release = pac.privatize(np.mean, np.arange(40.0), share, n_subsets=16, rng=0)
    assert release.certificate.mi_upper_nats <= 0.1 * math.log(16)
    assert release.certificate.budget.startswith("residual entropy >= 90 %")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pac.ResidualEntropy(), "only one of them"),
        (lambda: pac.ResidualEntropy(share=0.9, nats=1.0), "only one of them"),
        (lambda: pac.ResidualEntropy(share=1.0), "between 0 and 1"),
        (lambda: pac.ResidualEntropy(nats=-1.0), "positive finite"),
        (lambda: pac.ResidualEntropy(nats=9.0).on(64), "below that of the secret"),
        (lambda: budget_limits(pac.ResidualEntropy(share=0.9)), "how many candidates"),
        (lambda: pac.parse_budget("residual<=0.9"), "must look like"),
        (lambda: pac.parse_budget("mi>=0.9"), "must look like"),
    ],
)
def test_residual_entropy_that_makes_no_sense_is_refused(make: object, words: str) -> None:
    with pytest.raises(BudgetError, match=words):
        make()  # type: ignore[operator]
