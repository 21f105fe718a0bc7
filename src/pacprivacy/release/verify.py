"""Recompute a certificate from the curator's bundle."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pacprivacy._random import public_generator
from pacprivacy.adversary.information import information_of_view
from pacprivacy.adversary.membership import risk_of_view
from pacprivacy.adversary.view import view_of
from pacprivacy.errors import CertificateError
from pacprivacy.noise.bounds import log_det_of_points
from pacprivacy.noise.iid import iid_log_det, iid_variances
from pacprivacy.noise.rules import Boxed, IidRule
from pacprivacy.release.assess import (
    blind_success,
    divergences_of,
    finite_epsilon,
    noise_summary,
    noiseless_membership,
    side_knowledge_of,
    unit_name,
)
from pacprivacy.release.bundle import Bundle
from pacprivacy.release.certificate import Certificate
from pacprivacy.theory.concentration import Estimate
from pacprivacy.theory.information import information_slack
from pacprivacy.theory.posterior import posterior_success

__all__ = ["verify"]

RELATIVE = 1e-6  # other processors round sums differently
DISTANCE = 1e-4  # shifts within a group below a millionth of the spread are not released at all
RULED_OUT = 1e-9
N_PAIRS = 256


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

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> release = pac.privatize(np.mean, data, pac.Information(0.1), n_subsets=16)
    >>> pac.verify(release.certificate, release.bundle)
    """
    if "target" in (certificate.composition or {}):
        raise CertificateError(
            "certificate must be that of one observation; got the sum of a release that was "
            "refined until a target. Verify its steps, each in a folder of its own."
        )
    found = bundle if isinstance(bundle, Bundle) else Bundle.load(bundle)
    _check_figures(certificate, found)
    _check_points(found)
    if found.iid_rule is not None:
        mi_upper = _check_iid_bound(certificate, found, found.iid_rule)
    else:
        _expect("kind", certificate.kind, "exact")
        mi_upper = _check_bound(certificate, found)
        mi_upper = min(mi_upper, _check_information(certificate, found))
        _check_membership(certificate, found)
        _check_side_knowledge(certificate, found)
        _check_divergences(certificate, found)
    _check_conclusions(certificate, found, max(0.0, mi_upper))


def _check_conclusions(certificate: Certificate, bundle: Bundle, mi_upper: float) -> None:
    """Compare what follows from the information and the membership risk by formula."""
    _expect("mi_upper_nats", certificate.mi_upper_nats, mi_upper)
    for prior, success in certificate.any_inference.items():
        _expect("any_inference", success, posterior_success(mi_upper, float(prior)))
    upper = 1.0 if certificate.membership is None else certificate.membership.upper
    blind = blind_success(bundle.pool, bundle.log_p, kind=certificate.kind)
    bound = min(upper, posterior_success(mi_upper, blind))
    _expect("membership_bound", certificate.membership_bound, bound)
    _expect("epsilon_equivalent", certificate.epsilon_equivalent, finite_epsilon(bound))
    failure = sum(proof.gamma for proof in bundle.proofs)
    failure += sum(1 - item.estimate.confidence for item in certificate.divergences)
    if isinstance(bundle.iid_rule, Boxed):
        failure = bundle.iid_rule.gamma
    elif bundle.iid_rule is not None:
        failure = 1.0
    if not 0 <= certificate.confidence <= 1 - failure + 1e-15:
        raise _mismatch("confidence", certificate.confidence, 1 - failure)


def _check_figures(certificate: Certificate, bundle: Bundle) -> None:
    _expect("n_subsets", certificate.n_subsets, bundle.pool.n_subsets)
    _expect("n_subsets", certificate.n_subsets, len(bundle.outputs))
    _expect("n_units", certificate.n_units, bundle.pool.n_units)
    _expect("scheme", certificate.scheme, bundle.pool.scheme)
    _expect("dimension", certificate.dimension, bundle.outputs.shape[1])
    prior = bundle.pool.worst_prior if bundle.iid_rule is None else bundle.pool.prior
    _expect("prior", certificate.prior, prior)
    _expect("unit", certificate.unit, unit_name(bundle.pool))
    _expect("simulation", certificate.simulation, bundle.simulation)
    _expect_fields(
        "noise", certificate.noise, noise_summary(bundle.grid_step, bundle.units_per_std)
    )


def _check_points(bundle: Bundle) -> None:
    """Refuse lattice points that do not place the outputs where they are.

    Two candidates of one group must be as far apart on the lattice as their outputs are: less,
    and the noise would hide less than is claimed. Candidates of different groups are told apart
    anyway; on the lattice they may be closer but not further apart. Candidates that are all but
    ruled out do not count, since no noise was chosen for them.
    """
    outputs, points = bundle.outputs, bundle.points
    if isinstance(bundle.iid_rule, Boxed):
        outputs = np.clip(outputs, bundle.iid_rule.low, bundle.iid_rule.high)
    groups = np.zeros(len(points), dtype=np.int64) if bundle.groups is None else bundle.groups
    alive = np.flatnonzero(bundle.log_p >= bundle.log_p.max() + math.log(RULED_OUT))
    order = alive[np.argsort(groups[alive], kind="stable")]
    pairs = public_generator(0, "verify-pairs").choice(alive, size=(N_PAIRS, 2))
    first = np.concatenate([order, pairs[:, 0]])
    second = np.concatenate([np.roll(order, 1), pairs[:, 1]])
    apart, steps = np.empty(len(first)), np.empty(len(first))
    for i, (j, k) in enumerate(zip(first, second, strict=True)):
        apart[i] = np.linalg.norm(outputs[j] - outputs[k])
        steps[i] = np.linalg.norm((points[j] - points[k]) * bundle.grid_step)
    room = DISTANCE * float(apart.max(initial=0.0)) + float(bundle.grid_step.sum())
    together = groups[first] == groups[second]
    if (steps > apart + room).any() or (apart > steps + room)[together].any():
        raise CertificateError(
            "points must lie as far apart as the outputs; they do not. "
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
    moving = variances[variances > 0]
    bound = iid_log_det(bundle.grid_step, bundle.units_per_std, moving, bundle.pool.n_units)
    _expect("log_det_nats", certificate.log_det_nats, bound)
    return bound


def _check_information(certificate: Certificate, bundle: Bundle) -> float:
    proof = next((p for p in bundle.proofs if p.claim == "information"), None)
    claimed = certificate.information
    if len(bundle.units_per_std) == 0 and proof is None:
        if bundle.groups is not None:
            nats = certificate.log_det_nats
            closed = Estimate(value=nats, lower=nats, upper=nats, confidence=1.0, n_draws=0)
            _expect_fields("information", claimed, closed)
        return math.inf
    if proof is None or claimed is None:
        raise _mismatch("information", claimed, proof)
    view = view_of(bundle.outputs, bundle, bundle.log_p)
    rng = public_generator(proof.seed, proof.stream, proof.attempt)
    again = information_of_view(view, n_draws=proof.n_draws, gamma=proof.gamma, rng=rng)
    _expect_fields("information", claimed, again)
    return again.upper


def _check_membership(certificate: Certificate, bundle: Bundle) -> None:
    claimed = certificate.membership
    proof = next((p for p in bundle.proofs if p.claim == "membership"), None)
    if claimed is None or (proof is None and len(bundle.units_per_std)):
        raise _mismatch("membership", claimed, proof)
    if proof is None:
        again = noiseless_membership(bundle.pool, bundle.log_p, bundle.groups)
    else:
        view = view_of(bundle.outputs, bundle, bundle.log_p)
        rng = public_generator(proof.seed, proof.stream, proof.attempt)
        again = risk_of_view(view, bundle.pool, n_draws=proof.n_draws, gamma=proof.gamma, rng=rng)
    _expect_fields("membership", claimed, again.worst)
    _expect_fields("membership_mean", certificate.membership_mean, again.mean)


def _check_side_knowledge(certificate: Certificate, bundle: Bundle) -> None:
    again = side_knowledge_of(
        bundle.outputs, bundle.pool, bundle, log_p=bundle.log_p, seed=bundle.seed
    )
    _expect("side_knowledge", len(certificate.side_knowledge), len(again))
    for claimed, found in zip(certificate.side_knowledge, again, strict=True):
        _expect_fields("side_knowledge", claimed, found)


def _check_divergences(certificate: Certificate, bundle: Bundle) -> None:
    """Compare every divergence that is claimed; a certificate may claim none."""
    if not certificate.divergences:
        return
    again = divergences_of(bundle.outputs, bundle, log_p=bundle.log_p, seed=bundle.seed)
    _expect("divergences", len(certificate.divergences), len(again))
    for claimed, found in zip(certificate.divergences, again, strict=True):
        _expect("divergences.name", claimed.name, found.name)
        _expect_fields(f"divergences.{found.name}", claimed.estimate, found.estimate)
        _expect("divergences.success", set(claimed.success), set(found.success))
        for prior, success in found.success.items():
            _expect(f"divergences.{found.name}.success", claimed.success[prior], success)


def _expect_fields(name: str, claimed: Any, found: Any) -> None:
    if claimed is None:
        raise _mismatch(name, claimed, "a figure")
    for key, value in asdict(found).items():
        _expect(f"{name}.{key}", getattr(claimed, key), value)


def _expect(name: str, claimed: Any, found: Any) -> None:
    if isinstance(claimed, float) and isinstance(found, float):
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
