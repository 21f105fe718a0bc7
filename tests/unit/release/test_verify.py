"""Verification: the real thing passes, and no figure can be changed unseen."""

import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.budget import Spent
from pacprivacy.errors import CertificateError
from pacprivacy.mechanism import flatten
from pacprivacy.noise import Boxed, make_plan, spread_of
from pacprivacy.noise.plan import Revealed, SpreadFrame, log_det_of_plan
from pacprivacy.release import (
    Bundle,
    Certificate,
    Context,
    PoolCertificate,
    Release,
    bundle_of,
    certified_plan,
    verify,
    write_certificate,
)
from pacprivacy.release.bundle import BundleSession
from pacprivacy.release.certificate import compare_verified
from pacprivacy.release.pool_proof import _check_points, rebuild_verified
from pacprivacy.sample import Half, Pool
from pacprivacy.session import ReleaseSecret
from pacprivacy.simulation import Outputs
from pacprivacy.theory import Estimate

ASSESS = importlib.import_module("pacprivacy.release.pool_certificate")
CERTIFY = importlib.import_module("pacprivacy.noise.proof")
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
    groups = np.repeat([0, 1], 8)
    outside = spread.coordinates[[0, 8]] @ (np.eye(spread.rank) - direction @ direction.T)
    bases = np.stack([spread.center + spread.expand(row) for row in outside])
    plan = make_plan(
        rule="exact",
        frame=SpreadFrame(spread=spread, rotation=direction),
        center=spread.center,
        noise_std=np.sqrt([0.3]),
        values=values,
        revealed=Revealed(groups=groups, bases=bases),
    )
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
    plan = certified_plan(plan, context)
    bundle = bundle_of(plan, context)
    value = plan.value_of(ReleaseSecret(16, source).observe(plan, source))
    return Release(value=value, certificate=write_certificate(bundle, plan), proof=bundle)


@pytest.fixture(scope="module", autouse=True)
def few_draws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ASSESS, "information_draws", lambda m: 8192)
        patch.setattr(ASSESS, "membership_draws", lambda m: 8192)
        for name in ("DIVERGENCE_COST", "SIDE_COST", "TRADE_OFF_COST"):
            patch.setattr(ASSESS, name, 1)  # the fewest draws
        patch.setattr(CERTIFY, "INFORMATION_COST", 10**6)
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
                               sample=Half(n_subsets=32), simulate=True),
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


def changes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every way to change one part of a certificate, whatever parts it has."""
    if isinstance(value, Estimate):
        yield from estimate_changes(name, value)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            inside = f"{name}.{field.name}".lstrip(".")
            for what, changed in changes(inside, getattr(value, field.name)):
                yield what, replace(value, **{field.name: changed})
    elif isinstance(value, dict):
        yield f"{name} emptied", {}
        yield f"{name} with more", {**value, "more": 0.5}
        for key, item in value.items():
            yield f"{name} without {key}", {k: v for k, v in value.items() if k != key}
            for what, changed in changes(f"{name}.{key}", item):
                yield what, {**value, key: changed}
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield f"{name} without item {i}", (*value[:i], *value[i + 1 :])
            for what, changed in changes(f"{name}[{i}]", item):
                yield what, (*value[:i], changed, *value[i + 1 :])
        if value:
            yield f"{name} emptied", ()
            yield f"{name} said twice", (*value, value[0])
        yield f"{name} with more", (*value, "more")
    elif value is None:
        yield f"{name} made up", 0.5
    else:
        yield name, nudge(value)
        if name == "confidence":
            yield f"{name} a little better", value + 1e-10


def estimate_changes(name: str, value: Estimate) -> Iterator[tuple[str, Any]]:
    yield f"{name} left out", None
    for part in ("value", "lower", "upper", "n_draws"):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        parts[part] = nudge(parts[part])
        parts["lower"] = min(parts["lower"], parts["value"])
        parts["upper"] = max(parts["upper"], parts["value"])
        yield f"{name}.{part}", Estimate(**parts)
    sure = {1.0, value.confidence / 2, 1 - (1 - value.confidence) / 2} - {value.confidence}
    for confidence in sure:
        yield f"{name}.confidence {confidence}", replace(value, confidence=confidence)


@pytest.mark.claim("R-1")
@pytest.mark.parametrize("name", NAMES)
def test_no_part_can_be_changed_unseen(releases: dict[str, Release], name: str) -> None:
    """Every number and every sentence, at any depth, of whatever fields there are."""
    certificate, again = releases[name].certificate, rebuild_verified(releases[name].bundle)
    compare_verified(certificate, again)
    seen = set()
    for what, changed in changes("", certificate):
        if changed != certificate:
            with pytest.raises(CertificateError, match="must follow from the bundle") as error:
                compare_verified(changed, again)
            assert "\n" not in str(error.value), what
            seen.add(what.split(".")[0].split(" ")[0].split("[")[0])
    assert seen == {field.name for field in fields(PoolCertificate)}


@pytest.mark.claim("R-1")
@pytest.mark.parametrize("name", ["waterfill", "boxed", "session"])
def test_verify_itself_refuses_a_change(releases: dict[str, Release], name: str) -> None:
    release = releases[name]
    for part in ("budget", "membership_bound", "confidence", "notes", "not_promised"):
        for what, changed in changes(part, getattr(release.certificate, part)):
            if changed == getattr(release.certificate, part):
                continue
            forged = replace(release.certificate, **{part: changed})
            assert is_refused(forged, release.bundle), f"{what} was changed and nobody noticed"
            break


def test_a_field_that_is_added_one_day_is_compared() -> None:
    @dataclass(frozen=True)
    class Later:
        known: float
        added: tuple[str, ...]

    compare_verified(Later(0.5, ("a",)), Later(0.5, ("a",)))  # type: ignore[arg-type]
    with pytest.raises(CertificateError, match="added"):
        compare_verified(Later(0.5, ()), Later(0.5, ("a",)))  # type: ignore[arg-type]


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
            # Of every proof: at rank 1 and 2 membership is integrated, and has no draws.
            others = tuple(replace(proof, seed=proof.seed + 1) for proof in bundle.proofs)
            yield "other draws", replace(bundle, proofs=others)
            yield "no proofs", replace(bundle, proofs=())
    if bundle.groups is not None:
        yield "one group", replace(bundle, groups=np.zeros_like(bundle.groups))
    log_p = np.linspace(0.0, 3.0, len(bundle.log_p))
    log_p -= math.log(np.exp(log_p).sum())
    yield "another belief", replace(bundle, log_p=log_p)
    yield "a real release", replace(bundle, simulation=not bundle.simulation)
    yield "surer than its proofs", replace(bundle, gamma=bundle.gamma / 100)
    for field in ("rule", "mechanism", "output", "software"):
        if field != "rule" or bundle.iid_rule is None:
            yield field, replace(bundle, stated=replace(bundle.stated, **{field: "another"}))
    for field in ("public", "notes"):
        more = (*getattr(bundle.stated, field), "more")
        yield field, replace(bundle, stated=replace(bundle.stated, **{field: more}))
    for budget in (pac.Information(3), pac.Information(1e-3)):
        yield str(budget), replace(bundle, budget=budget)
    if (part := bundle.session) is not None:
        yield from session_changes(bundle, part)


def session_changes(bundle: Bundle, part: BundleSession) -> Iterator[tuple[str, Bundle]]:
    assert part.observation is not None
    seen = part.observation.integers + bundle.units_per_std
    for what, changed in {
        "another total": replace(part, total=Spent(mi_nats=2.5)),
        "a total that is used up": replace(part, total=Spent(mi_nats=0.1)),
        "less spent before": replace(part, before=replace(part.before, mi_nats=0.0)),
        "an earlier number": replace(part, before=replace(part.before, n_releases=0)),
        "fresh secrets": replace(part, fresh=True),
        "a smaller share": replace(part, share=Spent(mi_nats=0.01)),
        "something else was seen": replace(
            part, observation=replace(part.observation, integers=seen)
        ),
        "nothing was seen": replace(part, observation=None),
    }.items():
        yield what, replace(bundle, session=changed)
    yield "no session", replace(bundle, session=None)


@pytest.mark.claim("R-1")
@pytest.mark.parametrize("name", [n for n in NAMES if n != "boxed"])
def test_no_bundle_can_be_changed_unseen(releases: dict[str, Release], name: str) -> None:
    release = releases[name]
    for what, changed in bundle_changes(release.bundle):
        if what == "surer than its proofs" and not release.bundle.proofs:
            continue  # closed form: nothing can fail
        assert is_refused(release.certificate, changed), f"{what}: nobody noticed"


@pytest.mark.claim("R-1")
def test_a_certificate_computed_from_nearer_points_is_refused(releases: dict[str, Release]) -> None:
    """A consistent lie: points on top of each other and a certificate that follows from them."""
    release = releases["waterfill"]
    silent = replace(release.bundle, points=np.zeros_like(release.bundle.points))
    with pytest.raises(CertificateError, match="points must lie as far apart as the outputs"):
        verify(release.certificate, silent)


@pytest.mark.claim("R-1")
def test_a_machine_that_rounds_otherwise_verifies_too(
    releases: dict[str, Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two units as good as equal: sums in another order put the other one first."""
    release = releases["risk"]
    verification = importlib.import_module("pacprivacy.release.pool_proof")
    again, unit = verification.prove_verified_again, release.bundle.worst_unit

    def rounded(bundle: Bundle) -> Any:
        found = again(bundle)
        lower = found.membership.lower_per_unit.copy()
        lower[(unit + 1) % len(lower)] = lower[unit] + 1e-9
        return replace(found, membership=replace(found.membership, lower_per_unit=lower))

    monkeypatch.setattr(verification, "prove_verified_again", rounded)
    assert "trade_off" in pac.verify(release.certificate, release.bundle).recomputed
    found_again = replace(release.bundle, worst_unit=None)
    with pytest.raises(CertificateError, match="trade_off"):
        pac.verify(release.certificate, found_again)


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


@pytest.mark.claim("R-1")
def test_every_pair_of_points_is_compared() -> None:
    """Each candidate in turn is mirrored at the line through two others: few distances change."""
    made = pac.privatize(
        lambda x: x.mean(axis=0),
        np.random.default_rng(0).normal(size=(50, 2)),
        pac.Information(1),
        n_subsets=600,
        rule="waterfill",
        rng=0,
    )
    bundle = made.bundle
    _check_points(bundle)
    for place in range(1, 599, 13):
        points = bundle.points.copy()
        first, second = (points[place + step] * bundle.grid_step for step in (-1, 1))
        along = (second - first) / np.linalg.norm(second - first)
        moved = points[place] * bundle.grid_step - first
        mirrored = first + 2 * (moved @ along) * along - moved
        points[place] = np.rint(mirrored / bundle.grid_step).astype(np.int64)
        with pytest.raises(CertificateError, match="as far apart as the outputs"):
            _check_points(replace(bundle, points=points))
