"""Information and balanced success at any share: claim T-6 against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from pacprivacy.errors import BudgetError
from pacprivacy.theory import (
    bernoulli_kl,
    membership_success,
    mi_for_membership,
    mi_for_success,
    posterior_success,
)

SHARES = (0.02, 0.1, 0.5, 0.6, 0.9, 0.99)


def information(inside: np.ndarray, pin: np.ndarray, pout: np.ndarray) -> np.ndarray:
    """Return the mutual information of an in-or-out secret with what a channel says."""
    mixture = inside * pin + (1 - inside) * pout
    beliefs = np.minimum(inside * pin / mixture, 1.0)
    return (mixture * bernoulli_kl(beliefs, np.broadcast_to(inside, beliefs.shape))).sum(axis=1)


@pytest.mark.claim("T-6")
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("advantage", [0.01, 0.176, 0.5, 0.9])
def test_least_information_for_an_advantage(share: float, advantage: float) -> None:
    # the binary channels with this total variation, one by one
    wrong = np.linspace(0, 1 - advantage, 20001)[1:-1, None]
    pin, pout = (np.concatenate([x, 1 - x], axis=1) for x in (wrong + advantage, wrong))
    least = float(information(np.array(share), pin, pout).min())
    found = mi_for_membership((1 + advantage) / 2, share)
    assert found <= least
    assert found == pytest.approx(least, rel=1e-4)  # the grid of channels
    assert membership_success(found, share) <= (1 + advantage) / 2
    assert membership_success(found, share) == pytest.approx((1 + advantage) / 2, abs=1e-9)


@pytest.mark.claim("T-6")
def test_no_channel_does_better() -> None:
    rng = np.random.default_rng(0)
    n, answers = 4000, 4
    share, inside = rng.uniform(0.02, 0.98, (2, n, 1))
    inside[: n // 2] = share[: n // 2]
    pin, pout = rng.dirichlet(np.full(answers, 0.7), (2, n))
    near = rng.uniform(0, 1, (n, 1))  # channels that tell little as well
    pout = near * pin + (1 - near) * pout
    mixture = inside * pin + (1 - inside) * pout
    tilt = (mixture * np.abs(inside * pin / mixture - share)).sum(axis=1) / (
        2 * share * (1 - share)
    )[:, 0]
    nats = information(inside, pin, pout)
    bounds = membership_success(nats, share[:, 0], inside[:, 0])
    assert (0.5 + 0.5 * tilt <= bounds).all()
    # a prior of one half in the place of the share would be too low a bound
    wrong = posterior_success(nats[: n // 2], 0.5)
    assert (0.5 + 0.5 * tilt[: n // 2] > wrong).any()


@pytest.mark.claim("T-6")
def test_at_one_half_it_is_what_it_was() -> None:
    nats = np.array([0.0, 1e-12, 1 / 64, 0.25, 3.0])
    half = np.full(5, 0.5)
    assert (membership_success(nats, half) == posterior_success(nats, half)).all()
    assert mi_for_membership(0.588) == mi_for_success(0.588)
    near = membership_success(nats[2:], np.full(3, 0.5 + 1e-9))
    assert near == pytest.approx(posterior_success(nats[2:], half[2:]), abs=1e-7)


@pytest.mark.claim("T-6")
def test_the_ends() -> None:
    assert membership_success(0.0, 0.9) == pytest.approx(0.5, abs=1e-6)
    assert membership_success(5.0, 0.9) == 1.0
    known = membership_success(0.1, np.array([0.9, 0.9]), np.array([0.0, 1.0]))
    assert known == pytest.approx([0.5 + 0.5 / 0.2, 0.5 + 0.5 / 1.8])
    shares = np.array(SHARES)
    apart = np.abs(shares - 0.5)
    order = np.argsort(apart, kind="stable")
    # the share furthest from one half allows most: one unit stands for all
    assert (np.diff(membership_success(0.02, shares)[order]) > -1e-9).all()
    with pytest.raises(BudgetError, match="share must be"):
        membership_success(0.1, 1.0)
    with pytest.raises(BudgetError, match="known before"):
        mi_for_membership(0.6, 0.9, 0.5)
