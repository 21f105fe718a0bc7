"""Verification: the real thing passes, and no figure can be changed unseen."""

import importlib
import math
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.errors import CertificateError
from pacprivacy.mechanism import flatten
from pacprivacy.noise import Boxed
from pacprivacy.noise.bounds import log_det_of_plan
from pacprivacy.noise.shape import Shape
from pacprivacy.noise.spread import spread_of
from pacprivacy.pool import Half, Pool
from pacprivacy.release import Bundle, Certificate, Context, Release, Secret, publish, verify
from pacprivacy.simulation import Outputs
from pacprivacy.theory.concentration import Estimate

ASSESS = importlib.import_module("pacprivacy.release.assess")
CERTIFY = importlib.import_module("pacprivacy.noise.certify")
DATA = np.random.default_rng(0).normal(size=(24, 2))


def mean(x: Any) -> Any:
    return x.mean(axis=0)


def release_with_a_revealed_part(other: Release) -> Release:
    """A release of two coordinates, the first of which is a coin and leaves without noise."""
    coin = np.repeat([-100.0, 100.0], 8)
    values = np.stack([coin, other.bundle.outputs[:, 1]], axis=1)
    log_p = np.full(16, -math.log(16))
    spread = spread_of(values, np.exp(log_p))
    inside = spread.coordinates - np.repeat(
        [spread.coordinates[:8].mean(axis=0), spread.coordinates[8:].mean(axis=0)], 8, axis=0
    )
    direction = np.linalg.svd(inside)[2][:1].T
    shape = Shape(rotation=direction, noise_var=np.array([0.3]), groups=np.repeat([0, 1], 8))
    plan = shape.plan(spread, rule="exact")
    plan = replace(plan, log_det_nats=log_det_of_plan(plan, np.exp(log_p)))
    _, structure = flatten(np.zeros(2))
    context = Context(
        outputs=Outputs(values=values, structure=structure, mechanism_name="coin", seed=0),
        pool=other.bundle.pool,
        budget=pac.Information(2),
        log_p=log_p,
        gamma=1e-9,
        seed=5,
        simulation=True,
    )
    source = SimulatedSource(0)
    return publish(plan, context, Secret(16, source), source)[0]


@pytest.fixture(scope="module", autouse=True)
def few_draws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ASSESS, "information_draws", lambda m: 8192)
        patch.setattr(ASSESS, "membership_draws", lambda m, n: 8192)
        patch.setattr(CERTIFY, "INFORMATION_COST", 10**6)
        patch.setattr(CERTIFY, "MEMBERSHIP_COST", 10**7)
        patch.setattr(CERTIFY, "POSTERIOR_COST", 10**6)
        yield


@pytest.fixture(scope="module")
def releases() -> dict[str, Release]:
    made = {
        "waterfill": pac.privatize(mean, DATA, pac.Information(0.25), rule="waterfill", rng=0,
                                   n_subsets=16),
        "diagonal": pac.privatize(mean, DATA, pac.Membership(0.7), rule="diagonal", rng=0,
                                  n_subsets=16),
        "risk": pac.privatize(mean, DATA, pac.Membership(0.7), rng=0, n_subsets=16),
        "both": pac.privatize(mean, DATA, pac.Membership(0.8) & pac.Information(0.1), rng=0,
                              n_subsets=16),
        "free": pac.privatize(mean, DATA, pac.Information(9), rng=0, n_subsets=16),
        "units": pac.privatize(mean, DATA, pac.Information(0.2), rule="spectral", rng=0,
                               n_subsets=16, units=np.arange(24) // 3),
        "tall": pac.privatize(lambda x: np.outer(x.mean(axis=0), np.arange(50.0)), DATA,
                              pac.Information(0.2), rule="waterfill", rng=0, n_subsets=16),
        "boxed": pac.privatize(mean, DATA, pac.Information(0.2), rule=Boxed(low=-1, high=1), rng=0,
                               pool=Half(n_subsets=32), simulate=True),
    }  # fmt: skip
    made["revealed"] = release_with_a_revealed_part(made["waterfill"])
    with pac.Session(DATA, budget=pac.Information(2), n_subsets=16, rng=1, simulate=True) as s:
        s.release(mean, pac.Information(0.7))
        made["session"] = s.release(lambda x: x.std(axis=0), pac.Information(0.7))
    return made


NAMES = [
    "waterfill", "diagonal", "risk", "both", "revealed", "free", "units", "tall", "boxed", "session"
]  # fmt: skip


@pytest.mark.claim("R-1")
@pytest.mark.parametrize("name", NAMES)
def test_a_real_certificate_is_verified(
    releases: dict[str, Release], name: str, tmp_path: Path
) -> None:
    release = releases[name]
    verify(release.certificate, release.bundle)
    public = release.save(tmp_path)
    verify(Certificate.read(public), tmp_path / "curator.npz")
    assert (release.bundle.groups is not None) == (name in ("revealed", "free"))


def is_refused(certificate: Certificate, bundle: Bundle) -> bool:
    try:
        verify(certificate, bundle)
    except CertificateError as error:
        return "\n" not in str(error)
    return False


# --- a changed certificate ------------------------------------------------------------------

# Facts about the run that the bundle cannot know, or text.
FREE_TEXT = {
    "budget", "rule", "mechanism", "output", "public", "not_promised", "notes", "composition",
    "software", "schema_version",
}  # fmt: skip


def nudge(value: Any) -> Any:
    """A value of the same kind that is a little different, where it can be."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 1.001 * value + 0.00137
    if isinstance(value, str):
        return value + "!"
    raise TypeError(value)


def divergence_changes(certificate: Certificate) -> Iterator[tuple[str, Certificate]]:
    if not certificate.divergences:
        return
    first, *others = certificate.divergences
    estimate = first.estimate
    for changed in (
        replace(first, name="kl"),
        replace(first, estimate=replace(estimate, upper=estimate.upper + 0.01)),
        replace(first, estimate=replace(estimate, n_draws=estimate.n_draws + 1)),
        replace(first, success={"0.5": 0.51, "0.01": 0.011}),
        replace(first, success={}),
    ):
        yield "divergences", replace(certificate, divergences=(changed, *others))
    yield "divergences", replace(certificate, divergences=(first,))


def changes(certificate: Certificate) -> Iterator[tuple[str, Certificate]]:
    """Every certificate that differs in one figure."""
    for field in fields(certificate):
        value = getattr(certificate, field.name)
        if field.name in FREE_TEXT:
            continue
        if value is None:
            continue
        if isinstance(value, Estimate):
            for part in ("value", "lower", "upper", "n_draws", "confidence"):
                parts = {f.name: getattr(value, f.name) for f in fields(value)}
                parts[part] = parts[part] / 2 if part == "confidence" else nudge(parts[part])
                parts["lower"] = min(parts["lower"], parts["value"])
                parts["upper"] = max(parts["upper"], parts["value"])
                changed = Estimate(**parts)
                if changed != value:
                    yield f"{field.name}.{part}", replace(certificate, **{field.name: changed})
            yield field.name, replace(certificate, **{field.name: None})
        elif field.name == "noise":
            for part in fields(value):
                changed = replace(value, **{part.name: nudge(getattr(value, part.name))})
                yield f"noise.{part.name}", replace(certificate, noise=changed)
        elif field.name == "any_inference":
            yield field.name, replace(certificate, any_inference={"0.5": 0.51, "0.01": 0.011})
        elif field.name == "side_knowledge":
            if value:
                yield field.name, replace(certificate, side_knowledge=value[1:])
                for part in fields(value[0]):
                    first = replace(value[0], **{part.name: nudge(getattr(value[0], part.name))})
                    yield (
                        f"side_knowledge.{part.name}",
                        replace(certificate, side_knowledge=(first, *value[1:])),
                    )
        elif field.name == "divergences":
            yield from divergence_changes(certificate)
        elif field.name == "confidence":
            yield field.name, replace(certificate, confidence=value + 1e-9)
        else:
            yield field.name, replace(certificate, **{field.name: nudge(value)})


@pytest.mark.claim("R-1")
@pytest.mark.parametrize("name", NAMES)
def test_no_figure_can_be_changed_unseen(releases: dict[str, Release], name: str) -> None:
    release = releases[name]
    seen = []
    for field, changed in changes(release.certificate):
        assert is_refused(changed, release.bundle), f"{field} was changed and nobody noticed"
        seen.append(field)
    assert {"n_subsets", "log_det_nats", "mi_upper_nats", "membership_bound"} <= set(seen)
    assert any(field.startswith("noise.") for field in seen)


# --- a changed bundle -----------------------------------------------------------------------


def with_other_bits(pool: Pool) -> Pool:
    bits = pool.bits.copy()
    bits[[0, 1]] = bits[[1, 0]]
    half = pool.n_subsets // 2
    bits[[half, half + 1]] = bits[[half + 1, half]]
    return replace(pool, bits=bits)


def bundle_changes(bundle: Bundle) -> Iterator[tuple[str, Bundle]]:
    yield "pool bits", replace(bundle, pool=with_other_bits(bundle.pool))
    if len(bundle.units_per_std):
        yield "all points nearer", replace(bundle, points=bundle.points // 2)
        yield "no points at all", replace(bundle, points=np.zeros_like(bundle.points))
        moved = bundle.points.copy()
        moved[3] += bundle.units_per_std
        yield "one point moved", replace(bundle, points=moved)
        yield "twice the noise", replace(bundle, units_per_std=2 * bundle.units_per_std)
        yield "a finer grid", replace(bundle, grid_step=bundle.grid_step / 2)
        yield "wider outputs", replace(bundle, outputs=1.1 * bundle.outputs)
        other = bundle.outputs.copy()
        other[2] = other[9] + 0.5
        yield "one output replaced", replace(bundle, outputs=other)
        if bundle.proofs:
            first = replace(bundle.proofs[0], seed=bundle.proofs[0].seed + 1)
            yield "other draws", replace(bundle, proofs=(first, *bundle.proofs[1:]))
            yield "no proofs", replace(bundle, proofs=())
    if bundle.groups is not None:
        yield "one group", replace(bundle, groups=np.zeros_like(bundle.groups))
    log_p = np.linspace(0.0, 3.0, len(bundle.log_p))
    log_p -= math.log(np.exp(log_p).sum())
    yield "another belief", replace(bundle, log_p=log_p)
    yield "a real release", replace(bundle, simulation=not bundle.simulation)


@pytest.mark.claim("R-1")
@pytest.mark.parametrize("name", [n for n in NAMES if n != "boxed"])
def test_no_bundle_can_be_changed_unseen(releases: dict[str, Release], name: str) -> None:
    release = releases[name]
    for what, changed in bundle_changes(release.bundle):
        if what == "another belief" and name == "free":
            continue  # every output differs: nothing in the certificate depends on the belief
        assert is_refused(release.certificate, changed), f"{what}: nobody noticed"


@pytest.mark.claim("R-1")
def test_a_certificate_computed_from_nearer_points_is_refused(releases: dict[str, Release]) -> None:
    """A consistent lie: points on top of each other and a certificate that follows from them."""
    release = releases["waterfill"]
    silent = replace(release.bundle, points=np.zeros_like(release.bundle.points))
    with pytest.raises(CertificateError, match="points must lie as far apart as the outputs"):
        verify(release.certificate, silent)


@pytest.mark.claim("R-1")
def test_a_figure_without_a_proof_is_refused(releases: dict[str, Release]) -> None:
    """Without a proof of membership the risk of silence must not be taken for that of noise."""
    release = releases["waterfill"]
    kept = tuple(proof for proof in release.bundle.proofs if proof.claim == "information")
    half = Estimate(value=0.5, lower=0.5, upper=0.5, confidence=1.0, n_draws=0)
    forged = replace(release.certificate, membership=half, membership_mean=half)
    with pytest.raises(CertificateError, match="membership"):
        verify(forged, replace(release.bundle, proofs=kept))


# --- files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04broken"])
def test_damaged_bundles_are_refused_in_one_line(
    releases: dict[str, Release], tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "curator.npz"
    path.write_bytes(content)
    with pytest.raises(CertificateError, match="must be a readable curator bundle") as error:
        verify(releases["waterfill"].certificate, path)
    assert "\n" not in str(error.value)


def test_missing_and_altered_bundle_files_are_refused(
    releases: dict[str, Release], tmp_path: Path
) -> None:
    certificate = releases["waterfill"].certificate
    with pytest.raises(CertificateError, match="must be a readable curator bundle"):
        verify(certificate, tmp_path / "none.npz")
    path = tmp_path / "curator.npz"
    releases["waterfill"].bundle.save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["pool_bits"] = arrays["pool_bits"] ^ 1
    np.savez(path, **arrays)
    with pytest.raises(CertificateError):
        verify(certificate, path)
    del arrays["points"]
    np.savez(path, **arrays)
    with pytest.raises(CertificateError, match="damaged"):
        verify(certificate, path)


def test_saving_again_replaces_the_file_and_keeps_it_private(
    releases: dict[str, Release], tmp_path: Path
) -> None:
    path = tmp_path / "curator.npz"
    path.write_bytes(b"old")
    path.chmod(0o644)
    releases["risk"].bundle.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    verify(releases["risk"].certificate, path)
