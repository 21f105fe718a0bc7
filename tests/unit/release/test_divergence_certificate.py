"""Divergences in the certificate: computed, printed, verified, in closed form without noise."""

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.adversary.exact import (
    information_divergences,
    noiseless_information_divergences,
)
from pacprivacy.adversary.view_and_belief import make_view


@pytest.mark.claim("RP-2")
def test_closed_form_without_noise_agrees_with_draws() -> None:
    groups = np.array([0, 0, 0, 1, 1, 2])
    view = make_view(np.zeros((6, 1)), None, groups=groups)
    rng = np.random.default_rng(0)
    drawn = information_divergences(view, n_draws=50_000, gamma=1e-6, rng=rng)
    for one, closed in zip(drawn, noiseless_information_divergences(view), strict=True):
        assert one.estimate.lower <= closed.estimate.value <= one.estimate.upper
        assert closed.estimate.confidence == 1.0


def test_certificates_name_other_distances() -> None:
    data = np.random.default_rng(0).normal(size=(40, 2))
    release = pac.privatize(
        lambda d: d.mean(axis=0), data, pac.Information(0.2), n_subsets=32, rng=0
    )
    certificate = release.certificate
    names = [item.name for item in certificate.divergences]
    assert names == ["total variation", "chi-square", "squared Hellinger"]
    assert "total variation at most" in " ".join(str(certificate).split())
    assert pac.Certificate.from_dict(certificate.to_public_dict()) == certificate
    pac.verify(certificate, release.bundle)
    variation = certificate.divergences[0].estimate
    assert variation.value**2 <= certificate.mi_upper_nats / 2  # Pinsker


def test_a_release_without_noise_has_them_in_closed_form() -> None:
    data = np.arange(40.0)
    release = pac.privatize(
        lambda d: float(len(d) > 0), data, pac.Information(0.2), n_subsets=16, rng=0
    )
    found = release.certificate.divergences
    assert [item.estimate.value for item in found] == [0.0, 0.0, 0.0]
    assert all(item.success["0.5"] == 0.5 for item in found)
    pac.verify(release.certificate, release.bundle)


@pytest.mark.claim("RP-2")
def test_candidates_that_are_all_but_ruled_out_leave_finite_bounds() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(8, 2))
    log_p = np.concatenate([[-742.0, -743.0], np.log(np.full(6, 1 / 6))])  # 1/p overflows
    faint = information_divergences(make_view(points, log_p), n_draws=4000, rng=0)
    # without these two the rest has the same law
    plain = information_divergences(make_view(points[2:], log_p[2:]), n_draws=4000, rng=0)
    for one, other in zip(faint, plain, strict=True):
        assert one.estimate.value == pytest.approx(other.estimate.value, abs=0.05)
        assert other.estimate.value <= one.estimate.upper <= len(log_p) - 1
