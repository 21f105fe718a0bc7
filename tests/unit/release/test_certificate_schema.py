"""A certificate from elsewhere is checked field by field before anything is computed with it."""

import contextlib
import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.errors import CertificateError
from pacprivacy.release.bundle import Bundle

WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    math.nan,
    math.inf,
    10**30,
    "x",
    [],
    [[1]],
    {},
    {"a": 1},
)
# What a field may become without being wrong in itself; the bundle will tell.
POSSIBLE = {
    **dict.fromkeys(("membership", "membership_mean", "information"), (None,)),
    "epsilon_equivalent": (None,),
    "side_knowledge": (),
    "composition": (None, {}, {"a": 1}),
    "any_inference": ({},),
}


@pytest.fixture(scope="module")
def release() -> pac.Release:
    x = np.random.default_rng(0).normal(size=(40, 2))
    with pac.Session(x, budget=pac.Membership(0.7), n_subsets=16, rng=0) as session:
        return session.release(lambda d: d.mean(axis=0), pac.Membership(0.6))


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON document that is a value, a list or an object."""
    if path:
        yield path
    items = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for key, item in items:
        yield from leaves(item, (*path, key))


def with_value(plain: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(plain)
    inside: Any = changed
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return changed


def same_kind(old: Any, new: Any) -> bool:
    number = (int, float)
    if isinstance(old, bool) or isinstance(new, bool):
        return type(old) is type(new)
    return (isinstance(old, number) and isinstance(new, number)) or type(old) is type(new)


def is_possible(path: tuple[Any, ...], value: Any) -> bool:
    """Whether a field may be that, for all that can be told without the bundle."""
    return len(path) == 1 and any(
        value is item or (isinstance(item, dict) and value == item)
        for item in POSSIBLE.get(path[0], ())
    )


def test_values_of_another_kind_are_refused_everywhere(release: pac.Release) -> None:
    plain = json.loads(release.certificate.to_json())
    accepted, refused = [], 0
    for path in leaves(plain):
        old = plain
        for key in path:
            old = old[key]
        for value in WRONG:
            if old is None or same_kind(old, value) or is_possible(path, value):
                continue
            try:
                pac.Certificate.from_dict(with_value(plain, path, value))
                accepted.append((path, value))
            except CertificateError:
                refused += 1
    assert accepted == []
    assert refused > 500


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_subsets", 0),
        ("n_units", -3),
        ("prior", 1.01),
        ("prior", math.nan),
        ("mi_upper_nats", -0.1),
        ("mi_upper_nats", math.inf),
        ("membership_bound", 1.5),
        ("confidence", -0.1),
        ("kind", "certain"),
        ("any_inference", {"half": 0.5}),
        ("any_inference", {"0.5": 1.5}),
        ("any_inference", {"nan": 0.5}),
        ("membership", {"value": 0.6, "lower": 0.7, "upper": 0.8, "confidence": 1, "n_draws": 0}),
        ("composition", {"release_number": 0}),
        ("composition", {"anything": [1]}),
    ],
)
def test_figures_out_of_range_are_refused(release: pac.Release, field: str, value: Any) -> None:
    plain = release.certificate.to_public_dict() | {field: value}
    with pytest.raises(CertificateError, match=f"certificate field {field}"):
        pac.Certificate.from_dict(plain)


def test_messages_stay_short(release: pac.Release) -> None:
    plain = release.certificate.to_public_dict() | {"prior": "9" * 10_000}
    with pytest.raises(CertificateError) as caught:
        pac.Certificate.from_dict(plain)
    assert len(str(caught.value)) < 200


def test_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    path.write_text("[" * 100_000)
    with pytest.raises(CertificateError, match="not valid JSON"):
        pac.Certificate.read(path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("outputs", lambda a: a[:-1]),
        ("outputs", lambda a: a.astype(np.float32)),
        ("outputs", lambda a: a * np.nan),
        ("log_p", lambda a: a[:-1]),
        ("log_p", lambda a: a * np.inf),
        ("points", lambda a: a[:, :-1]),
        ("units_per_std", lambda a: -a),
        ("units_per_std", lambda a: a.astype(float)),
        ("grid_step", lambda a: 0 * a),
        ("grid_step", lambda a: a[:-1]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    release: pac.Release, tmp_path: Path, name: str, change: Any
) -> None:
    release.save(tmp_path)
    path = tmp_path / "curator.npz"
    with np.load(path) as archive:
        arrays = {key: archive[key] for key in archive.files}
    arrays[name] = change(arrays[name])
    np.savez(path, **arrays)
    with pytest.raises(CertificateError, match="damaged"):
        Bundle.load(path)


def test_flipped_bits_of_a_bundle_never_crash(release: pac.Release, tmp_path: Path) -> None:
    release.save(tmp_path)
    path = tmp_path / "curator.npz"
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(150):
        bad = bytearray(good)
        bad[rng.integers(len(bad))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        with contextlib.suppress(CertificateError):  # some bits of a zip file mean nothing
            Bundle.load(path)
