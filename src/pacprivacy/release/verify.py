"""Recompute a certificate from the curator's bundle."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from pacprivacy._random import public_generator
from pacprivacy.adversary.information import information_of_view
from pacprivacy.adversary.membership import noiseless_risk, risk_of_view
from pacprivacy.adversary.view import make_view, view_of
from pacprivacy.errors import CertificateError
from pacprivacy.noise.bounds import log_det_of_points
from pacprivacy.noise.iid import iid_log_det, iid_variances
from pacprivacy.noise.rules import Boxed, IidRule
from pacprivacy.release.bundle import Bundle
from pacprivacy.release.certificate import Certificate
from pacprivacy.theory.information import information_slack
from pacprivacy.theory.posterior import posterior_success

__all__ = ["verify"]

RELATIVE = 1e-6  # other processors round sums differently


def verify(certificate: Certificate, bundle: Bundle | str | Path) -> None:
    """Check that a certificate follows from the curator's bundle.

    Parameters
    ----------
    certificate : Certificate
        What is claimed.
    bundle : Bundle or path
        The curator's ``curator.npz``.

    Raises
    ------
    CertificateError
        Naming the first field that does not follow.

    Guarantee
    ---------
    Claim R-1. Returns only if the pool, the log-determinant bound, the information, the
    membership risk and the noise figures, recomputed from the bundle with the recorded draws,
    agree with the certificate.
    """
    found = bundle if isinstance(bundle, Bundle) else Bundle.load(bundle)
    _check_figures(certificate, found)
    _check_isometry(found)
    if found.iid_rule is not None:
        mi_upper = _check_iid_bound(certificate, found, found.iid_rule)
    else:
        _expect("kind", certificate.kind, "exact")
        mi_upper = _check_bound(certificate, found)
        mi_upper = min(mi_upper, _check_information(certificate, found))
        _check_membership(certificate, found)
    _expect("mi_upper_nats", certificate.mi_upper_nats, max(0.0, mi_upper))
    for prior, success in certificate.any_inference.items():
        _expect("any_inference", success, posterior_success(max(0.0, mi_upper), float(prior)))


def _check_figures(certificate: Certificate, bundle: Bundle) -> None:
    std = bundle.grid_step * bundle.units_per_std
    _expect("n_subsets", certificate.n_subsets, bundle.pool.n_subsets)
    _expect("n_subsets", certificate.n_subsets, len(bundle.outputs))
    _expect("n_units", certificate.n_units, bundle.pool.n_units)
    _expect("scheme", certificate.scheme, bundle.pool.scheme)
    _expect("dimension", certificate.dimension, bundle.outputs.shape[1])
    prior = bundle.pool.worst_prior if bundle.iid_rule is None else bundle.pool.prior
    _expect("prior", certificate.prior, prior)
    _expect("noise.n_directions", certificate.noise.n_directions, len(std))
    _expect("noise.total_variance", certificate.noise.total_variance, float(np.square(std).sum()))
    _expect("noise.largest_std", certificate.noise.largest_std, float(std.max(initial=0.0)))


def _check_isometry(bundle: Bundle) -> None:
    """Refuse lattice points that are not a projection of the outputs: no two further apart."""
    rng = public_generator(0, "verify-pairs")
    first, second = rng.integers(len(bundle.outputs), size=(2, 256))
    apart = np.linalg.norm(bundle.outputs[first] - bundle.outputs[second], axis=1)
    steps = (bundle.points[first] - bundle.points[second]) * bundle.grid_step
    room = 1e-6 * float(apart.max(initial=0.0)) + float(bundle.grid_step.sum())
    if (np.linalg.norm(steps, axis=1) > apart + room).any():
        raise CertificateError(
            "points must be a projection of the outputs; they are further apart. "
            "The bundle does not belong to this release."
        )


def _check_bound(certificate: Certificate, bundle: Bundle) -> float:
    weights = np.exp(bundle.log_p)
    bound = log_det_of_points(bundle.whitened(bundle.outputs), weights, bundle.groups)
    slack = information_slack(bundle.total_variation_slack, len(weights))
    bound = bound * (1 + 1e-12) + slack
    _expect("log_det_nats", certificate.log_det_nats, max(0.0, bound))
    return bound


def _check_iid_bound(certificate: Certificate, bundle: Bundle, rule: IidRule) -> float:
    """Recompute the bound of a confidence or empirical certificate."""
    _expect("kind", certificate.kind, "confidence" if isinstance(rule, Boxed) else "empirical")
    values = bundle.outputs
    if isinstance(rule, Boxed):
        values = np.clip(values, rule.low, rule.high)
    variances = iid_variances(values, rule)
    std = bundle.grid_step * bundle.units_per_std
    bound = iid_log_det(
        std, variances[variances > 0], bundle.total_variation_slack, bundle.pool.n_units
    )
    _expect("log_det_nats", certificate.log_det_nats, bound)
    success = posterior_success(bound, bundle.pool.prior)
    _expect("membership_bound", certificate.membership_bound, success)
    return bound


def _check_information(certificate: Certificate, bundle: Bundle) -> float:
    proof = next((p for p in bundle.proofs if p.claim == "information"), None)
    claimed = certificate.information
    if proof is None or claimed is None:
        if (proof is None) != (claimed is None) and len(bundle.units_per_std):
            raise _mismatch("information", claimed, proof)
        return math.inf
    view = view_of(bundle.outputs, bundle, bundle.log_p)
    rng = public_generator(proof.seed, proof.stream, proof.attempt)
    again = information_of_view(view, n_draws=proof.n_draws, gamma=proof.gamma, rng=rng)
    _expect("information.value", claimed.value, again.value)
    _expect("information.upper", claimed.upper, again.upper)
    return again.upper


def _check_membership(certificate: Certificate, bundle: Bundle) -> None:
    claimed = certificate.membership
    proof = next((p for p in bundle.proofs if p.claim == "membership"), None)
    if claimed is None:
        raise _mismatch("membership", claimed, "a figure")
    if proof is None:
        blind = np.zeros((len(bundle.outputs), 1))
        view = make_view(blind, bundle.log_p, groups=bundle.groups)
        _expect("membership.upper", claimed.upper, float(noiseless_risk(view, bundle.pool).max()))
    else:
        view = view_of(bundle.outputs, bundle, bundle.log_p)
        rng = public_generator(proof.seed, proof.stream, proof.attempt)
        again = risk_of_view(view, bundle.pool, n_draws=proof.n_draws, gamma=proof.gamma, rng=rng)
        _expect("membership.value", claimed.value, again.value)
        _expect("membership.upper", claimed.upper, again.upper)
    _expect("membership_bound", certificate.membership_bound, min(1.0, claimed.upper))


def _expect(name: str, claimed: Any, found: Any) -> None:
    if isinstance(claimed, float):
        same = math.isclose(claimed, found, rel_tol=RELATIVE, abs_tol=1e-12)
    else:
        same = claimed == found
    if not same:
        raise _mismatch(name, claimed, found)


def _mismatch(name: str, claimed: Any, found: Any) -> CertificateError:
    return CertificateError(
        f"certificate field {name} must follow from the bundle; it says {claimed!r}, the bundle "
        f"gives {found!r}. Do not rely on this certificate."
    )
