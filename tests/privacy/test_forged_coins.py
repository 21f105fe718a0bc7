"""Forged certificates and bundles of releases with coins: refused, or named as unproved.

The first forger edits the public file, the second the curator's. The third edits the curator's file
and writes the certificate anew with our own code, so that the two agree. The last has the records
against him.
"""

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.budget import Membership, Spent
from pacprivacy.errors import CertificateError, PacPrivacyError
from pacprivacy.mechanism import Descent
from pacprivacy.release import (
    AverageBundle,
    Certificate,
    CoinBundle,
    recompute_contributions,
    sums_bundle,
    verify,
    write_average_certificate,
    write_coin_certificate,
)
from pacprivacy.release.sums_bundle import contributions_digest

pytestmark = pytest.mark.claim("R-1")

Plain = dict[str, Any]
DATA = np.random.default_rng(0).normal(size=(500, 2))
UNITS = np.repeat(np.arange(250), 2)
KINDS = ("single", "session")
OTHER_KINDS = ("descent", "average")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("curator")
    chosen = {"sample": pac.Coins(), "units": UNITS}
    pac.privatize(np.std, DATA[:, 0], "membership<=0.7", **chosen).save(root / "single")
    with pac.Session(DATA[:, 0], budget="membership<=0.8", **chosen) as session:
        session.release(np.mean, share=0.3)
        session.release(np.std, share=0.3).save(root / "session")
    alone = {"sample": pac.Coins()}
    fit = Descent(n_steps=3, loss="squared")
    pac.privatize(fit, (DATA[:, :1], DATA[:, 1]), "membership<=0.7", **alone).save(root / "descent")
    pac.privatize(np.median, DATA[:, 0], "membership<=0.7", **alone).save(root / "average")
    pac.privatize(
        lambda x: x.mean(), DATA[:, 0], pac.Information(1), n_subsets=8, rule="waterfill"
    ).save(root / "pool")
    return root


def accepts(release: Path) -> bool:
    """Whether ``verify`` accepts a file; what it refuses, it refuses in one line."""
    try:
        verify(Certificate.read(release), release.parent / "curator.npz")
    except CertificateError as error:
        return "\n" in str(error)
    return True


def plain_of(folder: Path, kind: str) -> Plain:
    plain: Plain = json.loads((folder / kind / "release.json").read_text())["certificate"]
    return plain


@pytest.mark.parametrize("kind", [*KINDS, *OTHER_KINDS, "pool"])
def test_the_real_ones_are_verified(folder: Path, kind: str) -> None:
    assert accepts(folder / kind / "release.json")


# --- the public file was edited -------------------------------------------------------------


def put(name: str, value: Any) -> Callable[[Plain], Any]:
    return lambda plain: plain.update({name: value})


def within(name: str, key: str, value: Any) -> Callable[[Plain], Any]:
    return lambda plain: plain[name].update({key: value})


EDITS: dict[str, Callable[[Plain], Any]] = {
    "a lower bound": put("membership_bound", 0.501),
    "no bound": lambda plain: plain.pop("membership_bound"),
    "a bound that is no number": put("membership_bound", "low"),
    "a bound that is not a number": put("membership_bound", float("nan")),
    "another budget": put("budget", "membership success <= 51 %"),
    "less influence": put("influence", 1e-3),
    "no influence": put("influence", 0.0),
    "infinite influence": put("influence", float("inf")),
    "another keep": put("keep", 0.5),
    "keep above one": put("keep", 1.5),
    "everybody was used": put("sampling", "everybody"),
    "a pool": put("sampling", "pool"),
    "no sampling": lambda plain: plain.pop("sampling"),
    "more units": put("n_units", 10**6),
    "no units": put("n_units", 0),
    "fewer hits": within("hits", "0.001", 0.0),
    "no hits": put("hits", {}),
    "hits at another rate": put("hits", {"0.5": 0.6}),
    "a safer pair": within("groups", "2", 0.5),
    "no groups": put("groups", {}),
    "a larger group": within("groups", "100", 0.6),
    "a lower guess at keep": put("success_at_keep", 0.5),
    "more noise": within("noise", "total_variance", 1e6),
    "more directions": within("noise", "n_directions", 99),
    "another dimension": put("dimension", 7),
    "a smaller epsilon": put("epsilon_equivalent", 1e-3),
    "nothing is left out": put("not_promised", []),
    "a promise among what is not promised": lambda plain: plain["not_promised"].append("x"),
    "nothing is published": put("published", []),
    "a note": put("notes", ["Audited and approved."]),
    "a real one": put("simulation", True),
    "the headline": put("composition", {"session_success_bound": 0.5001}),
    "another version": put("software", "9.9"),
    "one more field": put("approved", True),
    "a field of pools": put("n_subsets", 1000),
    "certainty of another kind": put("kind", "empirical"),
    "confidence": put("confidence", 0.5),
}
OF_SESSION: dict[str, Callable[[Plain], Any]] = {
    "no session": put("composition", None),
    "a smaller total": within("composition", "total_success", 0.6),
    "a smaller promise": within("composition", "session_success_bound", 0.6),
    "less total influence": within("composition", "total_influence", 0.1),
    "less was spent": within("composition", "spent_influence_so_far", 0.01),
    "the first release": within("composition", "release_number", 1),
    "fresh secrets": within("composition", "secrets", "fresh for every release"),
    "no headline": lambda plain: plain["composition"].pop("session_success_bound"),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [*((kind, name) for kind in KINDS for name in EDITS), *(("session", n) for n in OF_SESSION)],
)
def test_an_edited_certificate_is_refused(
    folder: Path, tmp_path: Path, kind: str, name: str
) -> None:
    plain = plain_of(folder, kind)
    forged = copy.deepcopy(plain)
    (EDITS | OF_SESSION)[name](forged)
    assert forged != plain, "nothing was forged"
    assert not accepts(laid(folder, kind, tmp_path, forged))


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_edited_certificates_of_other_evidence_are_refused(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    plain, n_refused = plain_of(folder, kind), 0
    for name, change in EDITS.items():
        forged = copy.deepcopy(plain)
        with suppress(KeyError):  # a field that it does not have
            change(forged)
        if forged != plain:
            assert not accepts(laid(folder, kind, tmp_path, forged)), name
            n_refused += 1
    assert n_refused > 20


def laid(folder: Path, kind: str, target: Path, plain: Plain) -> Path:
    (target / "curator.npz").write_bytes((folder / kind / "curator.npz").read_bytes())
    path = target / "release.json"
    path.write_text(json.dumps({"certificate": plain}))
    return path


@pytest.mark.parametrize("kind", [*KINDS, *OTHER_KINDS])
def test_no_field_can_be_left_out_or_borrowed(folder: Path, tmp_path: Path, kind: str) -> None:
    plain, other = plain_of(folder, kind), plain_of(folder, KINDS[kind != "session"])
    for name in plain:
        swapped = {**plain, name: other.get(name)}
        without = {key: value for key, value in plain.items() if key != name}
        for forged in (swapped, without):
            if forged != plain:
                assert not accepts(laid(folder, kind, tmp_path, forged)), name


@pytest.mark.parametrize(("one", "other"), [("single", "pool"), ("pool", "single")])
def test_the_bundle_of_another_kind_is_refused(
    folder: Path, tmp_path: Path, one: str, other: str
) -> None:
    assert not accepts(laid(folder, other, tmp_path, plain_of(folder, one)))


# --- the curator's file was edited ------------------------------------------------------------

Arrays = dict[str, Any]


def array(name: str, change: Callable[[Any], Any]) -> Callable[[Arrays, Plain], Any]:
    return lambda arrays, record: arrays.update({name: change(arrays[name])})


def record(name: str, value: Any) -> Callable[[Arrays, Plain], Any]:
    return lambda arrays, plain: plain.update({name: value})


def first(value: Any) -> Callable[[Any], Any]:
    def change(numbers: Any) -> Any:
        whole = numbers.dtype.kind == "i"  # small ones are stored in fewer bytes
        changed = numbers.astype(np.int64) if whole else numbers.copy()
        changed.flat[0] = value
        return changed

    return change


FILES: dict[str, Callable[[Arrays, Plain], Any]] = {
    "one integer": array("integers", first(12345)),
    "larger integers": array("integers", lambda x: 2 * x),
    "smaller integers": array("integers", lambda x: x // 2),
    "huge integers": array("integers", first(2**62)),
    "the least integer": array("integers", first(-(2**63))),
    "floats": array("integers", lambda x: x.astype(np.float64)),
    "an entry less": array("integers", lambda x: x[:-1]),
    "a direction less": array("integers", lambda x: x[:, :-1]),
    "flat integers": array("integers", lambda x: x.ravel()),
    "other units": array("units", lambda x: x[::-1].copy()),
    "a unit outside": array("units", first(10**6)),
    "a negative unit": array("units", first(-1)),
    "fewer units": array("units", lambda x: x[:-1]),
    "other starts": array("starts", lambda x: x + 1),
    "no starts": array("starts", lambda x: x[:0]),
    "a finer grid": array("grid", lambda x: x / 2),
    "no grid": array("grid", lambda x: x * 0),
    "a grid of nothing": array("grid", lambda x: x * np.nan),
    "an endless grid": array("grid", lambda x: x * np.inf),
    "more noise": array("units_per_std", lambda x: 2 * x),
    "less noise": array("units_per_std", lambda x: x // 2),
    "hardly any noise": array("units_per_std", lambda x: x * 0 + 1),
    "no noise": array("units_per_std", lambda x: x * 0),
    "negative noise": array("units_per_std", lambda x: -x),
    "more influence": record("parameter", 10.0),
    "less influence": record("parameter", 1e-9),
    "negative influence": record("parameter", -1.0),
    "influence of another type": record("parameter", "1"),
    "another keep": record("keep", 0.5),
    "keep of two": record("keep", 2.0),
    "one unit": record("n_units", 1),
    "a unit more": record("n_units", 251),
    "entries that are not there": record("n_entries", 10**7),
    "fewer entries": record("n_entries", 1),
    "another digest": record("contributions_digest", "0" * 64),
    "a wider budget": record("success", 0.9),
    "a stricter budget": record("success", 0.501),
    "no budget": record("success", None),
    "another kind": record("kind", "release"),
    "an unknown kind": record("kind", "dice"),
    "another schema": record("schema_version", 99),
    "a simulation": record("simulation", True),
    "another unit": record("unit", "row"),
    "another dimension": record("dimension", 3),
    "nothing stated": record("stated", {}),
    "no integers": lambda arrays, plain: arrays.pop("integers"),
    "no record": lambda arrays, plain: plain.clear(),
}
FILES_OF_SESSION: dict[str, Callable[[Arrays, Plain], Any]] = {
    "smaller allowances": array("allowed", lambda x: x / 2),
    "allowances of nothing": array("allowed", lambda x: x * np.nan),
    "endless allowances": array("allowed", lambda x: x * np.inf),
    "larger allowances": array("allowed", lambda x: x + 1),
    "fewer allowances": array("allowed", lambda x: x[:-1]),
    "no allowances": lambda arrays, plain: arrays.pop("allowed"),
    "clocks at the cap": array("clocks", lambda x: x + 10.0),
    "negative clocks": array("clocks", lambda x: x - 1.0),
    "clocks of others": array("clocks", lambda x: x[:7]),
    "clocks in half precision": array("clocks", lambda x: x.astype(np.float16)),
    "no clocks": lambda arrays, plain: arrays.pop("clocks"),
    "no total": lambda arrays, plain: plain.update(total=None),
    "a total of another kind": lambda arrays, plain: plain["total"].update(mu_squared=None),
    "a smaller total": lambda arrays, plain: plain["total"].update(mu_squared=0.01),
    "a larger total": lambda arrays, plain: plain["total"].update(mu_squared=9.0),
    "a total that is not a number": lambda arrays, plain: plain["total"].update(mu_squared="9"),
    "less was charged": lambda arrays, plain: plain["charge"].update(mu_squared=1e-9),
    "more was charged": lambda arrays, plain: plain["charge"].update(mu_squared=9.0),
    "nothing was charged": lambda arrays, plain: plain["charge"].update(mu_squared=None),
    "two releases at once": lambda arrays, plain: plain["charge"].update(n_releases=2),
    "more was spent before": lambda arrays, plain: plain["before"].update(mu_squared=5.0),
    "less was spent before": lambda arrays, plain: plain["before"].update(mu_squared=0.0),
}


FILES_OF_OTHERS: dict[str, dict[str, Callable[[Arrays, Plain], Any]]] = {
    "descent": {
        "floats": array("integers", lambda x: x.astype(np.float64)),
        "a step less": array("integers", lambda x: x[:-1]),
        "flat integers": array("integers", lambda x: x.ravel()),
        "no integers": lambda arrays, plain: arrays.pop("integers"),
        "integers in the record": lambda arrays, plain: plain.update(
            integers=arrays.pop("integers").tolist()
        ),
        "coarser bits": array("bits", lambda x: x - 1),
        "endless bits": array("bits", lambda x: x * 0 + 500),
        "fewer bits": array("bits", lambda x: x[:-1]),
        "less noise": array("step_units", lambda x: x // 4),
        "no noise": array("step_units", lambda x: x * 0),
        "a unit that paid more": array("spent", first(9.0)),
        "a unit that paid less than nothing": array("spent", first(-1.0)),
        "a unit that paid nobody knows what": array("spent", first(np.nan)),
        "fewer units": array("spent", lambda x: x[:-1]),
        "no features": record("n_features", 0),
        "more influence": record("parameter", 10.0),
        "a rate of another type": record("rate", "fast"),
        "a digest of another type": record("rows_digest", 7),
        "hidden presence": record("declaration", {"rows_per_unit": 1}),
        "half a session": record("total", {"mu_squared": 1.0}),
    },
    "average": {
        "a finer grid": array("grid", lambda x: x / 2),
        "no grid": array("grid", lambda x: x * 0),
        "a grid of nothing": array("grid", lambda x: x * np.nan),
        "an empty grid": array("grid", lambda x: x[:0]),
        "two axes": array("grid", lambda x: x[None]),
        "less noise": array("units_per_std", lambda x: x // 2),
        "no noise": array("units_per_std", lambda x: x * 0),
        "half of an integer": array("units_per_std", lambda x: x / 2),
        "records that are no numbers": array("proof_values", lambda x: x * np.nan),
        "records far apart": array("proof_values", lambda x: 1e3 * x),
        "fewer records": array("proof_values", lambda x: x[:-1]),
        "other ranks": array("proof_ranks", lambda x: x.astype(np.float64)),
        "no ranks": lambda arrays, plain: arrays.pop("proof_ranks"),
        "another proof": record("proof", "draws"),
        "an unknown proof": record("proof", "faith"),
        "everybody": record("keep", 1.0),
        "a session": lambda arrays, plain: arrays.update(clocks=np.zeros(500)),
    },
}
IN_EVERY_FILE: dict[str, Callable[[Arrays, Plain], Any]] = {
    name: FILES[name]
    for name in (
        *("another keep", "keep of two", "one unit", "a stricter budget", "no budget", "no record"),
        *("another kind", "an unknown kind", "another schema", "a simulation", "another unit"),
        *("another dimension", "nothing stated"),
    )
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_edited_bundles_of_other_evidence_are_refused(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    path = laid(folder, kind, tmp_path, plain_of(folder, kind))
    assert accepts(path)
    for name, change in (FILES_OF_OTHERS[kind] | IN_EVERY_FILE).items():
        edit(folder / kind / "curator.npz", tmp_path / "curator.npz", change)
        assert not accepts(path), name


def edit(source: Path, target: Path, change: Callable[[Arrays, Plain], Any]) -> None:
    with np.load(source) as archive:
        arrays = {name: archive[name] for name in archive.files}
    plain = json.loads(arrays.pop("metadata").tobytes())
    change(arrays, plain)
    metadata = np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8)
    np.savez(target, metadata=metadata, **arrays)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, name) for kind in KINDS for name in FILES),
        *(("session", name) for name in FILES_OF_SESSION),
    ],
)
def test_an_edited_bundle_is_refused(folder: Path, tmp_path: Path, kind: str, name: str) -> None:
    path = laid(folder, kind, tmp_path, plain_of(folder, kind))
    change = (FILES | FILES_OF_SESSION)[name]
    edit(folder / kind / "curator.npz", tmp_path / "curator.npz", change)
    assert not accepts(path)


def test_clocks_without_a_session_are_refused(folder: Path, tmp_path: Path) -> None:
    path = laid(folder, "session", tmp_path, plain_of(folder, "session"))
    nothing = {"total": None, "before": None, "charge": None}
    edit(
        folder / "session" / "curator.npz",
        tmp_path / "curator.npz",
        lambda arrays, plain: plain.update(nothing),
    )
    assert not accepts(path)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused(folder: Path, tmp_path: Path, part: float) -> None:
    path = laid(folder, "single", tmp_path, plain_of(folder, "single"))
    content = (tmp_path / "curator.npz").read_bytes()
    (tmp_path / "curator.npz").write_bytes(content[: int(part * len(content))])
    assert not accepts(path)


# --- both files were edited, and agree --------------------------------------------------------


def lie(bundle: CoinBundle, target: Path) -> Path:
    """Write a bundle and the certificate that our own code writes from it, as a forger would."""
    bundle.save(target / "curator.npz")
    path = target / "release.json"
    plain = write_coin_certificate(bundle).to_public_dict()
    path.write_text(json.dumps({"certificate": plain}))
    return path


def with_digest(bundle: CoinBundle) -> CoinBundle:
    digest = contributions_digest(bundle.units, bundle.starts, [bundle.integers])
    return replace(bundle, contributions_digest=digest)


def in_session(**changes: Any) -> Callable[[CoinBundle], CoinBundle]:
    def change(bundle: CoinBundle) -> CoinBundle:
        assert bundle.session is not None
        made = {name: value(bundle.session) for name, value in changes.items()}
        return replace(bundle, session=replace(bundle.session, **made))

    return change


def in_halves(bundle: CoinBundle) -> CoinBundle:
    """Every entry twice, each half of it: squares add up to half, so the noise seems enough."""
    half = bundle.integers // 2
    return with_digest(
        replace(
            bundle,
            integers=np.stack([half, bundle.integers - half], axis=1).reshape(-1, half.shape[1]),
            units=np.repeat(bundle.units, 2),
            starts=2 * bundle.starts,
            n_entries=2 * bundle.n_entries,
            units_per_std=(bundle.units_per_std / 1.4).astype(np.int64),
        )
    )


LIES: dict[str, tuple[str, Callable[[CoinBundle], CoinBundle]]] = {
    "larger integers": ("single", lambda b: with_digest(replace(b, integers=3 * b.integers))),
    "two units in one": ("single", lambda b: with_digest(replace(b, units=b.units // 2))),
    "less noise for entries in halves": ("single", in_halves),
    "half the noise": ("single", lambda b: replace(b, units_per_std=b.units_per_std // 2)),
    "a stricter budget": ("single", lambda b: replace(b, budget=Membership(0.55))),
    "less influence": ("single", lambda b: replace(b, parameter=b.parameter / 2)),
    "more influence": ("single", lambda b: replace(b, parameter=2 * b.parameter)),
    "some units are not there": (
        "single",
        lambda b: replace(
            b, integers=b.integers[:9], units=b.units[:9], starts=np.array([0, 9])
        ),
    ),
    "a stricter share": ("session", lambda b: replace(b, budget=Membership(0.51))),
    "a smaller total": (
        "session",
        in_session(total=lambda part: Spent(mu_squared=part.charge.mu_squared / 2)),
    ),
    "no total": ("session", in_session(total=lambda part: Spent())),
    "a cheaper release": (
        "session", in_session(charge=lambda part: Spent(n_releases=1, mu_squared=1e-6))
    ),
    "clocks that were used up": (
        "session", in_session(clocks=lambda part: part.clocks * 0 + part.total.mu_squared)
    ),
    "allowances that nobody has": ("session", in_session(allowed=lambda part: part.allowed + 1)),
    "somebody away who was busier than all": (
        "session",
        in_session(
            absent=lambda part: 2 * part.total.mu_squared,
            charge=lambda part: Spent(n_releases=1, mu_squared=0.0),
        ),
    ),
    "all was spent before": (
        "session", in_session(before=lambda part: replace(part.before, mu_squared=9.0))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_a_bundle_that_contradicts_itself_is_refused(
    folder: Path, tmp_path: Path, name: str
) -> None:
    kind, change = LIES[name]
    bundle = CoinBundle.load(folder / kind / "curator.npz")
    assert not accepts(lie(change(bundle), tmp_path))


def test_a_number_without_records_around_it_is_refused(folder: Path, tmp_path: Path) -> None:
    """Nothing is known of it, and nothing was said of it: noise of any size was verified."""
    bundle = AverageBundle.load(folder / "average" / "curator.npz")
    nothing = replace(bundle.proof, windows=(), cells=())  # type: ignore[type-var]
    second = {
        "grid": np.repeat(bundle.grid, 2),
        "units_per_std": np.repeat(bundle.units_per_std, 2),
    }
    for forged in (replace(bundle, proof=nothing), replace(bundle, **second)):
        forged.save(tmp_path / "curator.npz")
        with pytest.raises(CertificateError, match="a unit shows more than is allowed"):
            verify(write_average_certificate(forged), tmp_path / "curator.npz")


def test_a_descent_in_a_session_is_held_to_clocks_and_charge(tmp_path: Path) -> None:
    data = (DATA[:, :1], DATA[:, 1])
    with pac.Session(data, budget="membership<=0.8", sample=pac.Coins()) as session:
        bundle = session.release(Descent(n_steps=3, loss="squared"), share=0.3).bundle
    assert accepts(lie(bundle, tmp_path))
    for name in ("a smaller total", "a cheaper release", "clocks that were used up"):
        assert not accepts(lie(LIES[name][1](bundle), tmp_path)), name


NAMED: dict[str, tuple[str, str, Callable[[CoinBundle], CoinBundle]]] = {
    "a wider budget": ("budget", "single", lambda b: replace(b, budget=Membership(0.9))),
    "another keep": ("keep", "single", lambda b: replace(b, keep=0.5)),
    "units that add nothing": ("n_units", "single", lambda b: replace(b, n_units=9 * b.n_units)),
    "a finer grid": ("noise", "single", lambda b: replace(b, grid=b.grid / 4)),
    "another statistic": (
        "mechanism", "single", lambda b: replace(b, stated=replace(b.stated, mechanism="count"))
    ),
    "less was spent before": (
        "composition", "session",
        in_session(before=lambda part: replace(part.before, mu_squared=0.0)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_what_a_consistent_forger_can_change_is_named(
    folder: Path, tmp_path: Path, name: str
) -> None:
    field, kind, change = NAMED[name]
    path = lie(change(CoinBundle.load(folder / kind / "curator.npz")), tmp_path)
    found = verify(Certificate.read(path), tmp_path / "curator.npz")
    assert found.not_checkable[field]
    assert field not in found.recomputed


# --- the records are there ------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_contributions_are_recomputed_from_the_records(folder: Path, kind: str) -> None:
    recompute_contributions(folder / kind / "curator.npz", np.std, DATA[:, 0], UNITS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("mechanism", "data", "units"),
    [
        (np.mean, DATA[:, 0], UNITS),
        (np.std, DATA[:, 1], UNITS),
        (np.std, DATA[::-1, 0], UNITS),
        (np.std, DATA[:, 0], None),
        (np.std, DATA[:, 0], np.roll(UNITS, 1)),
        (np.std, np.zeros(500), UNITS),
    ],
)
def test_other_records_or_another_statistic_are_refused(
    folder: Path, kind: str, mechanism: Any, data: Any, units: Any
) -> None:
    with pytest.raises(CertificateError, match="bundle must prove the budget"):
        recompute_contributions(folder / kind / "curator.npz", mechanism, data, units)


def test_integers_of_a_consistent_forger_do_not_survive_the_records(
    folder: Path, tmp_path: Path
) -> None:
    bundle = CoinBundle.load(folder / "single" / "curator.npz")
    forged = with_digest(replace(bundle, integers=bundle.integers // 2))
    assert accepts(lie(forged, tmp_path))  # nothing in the files shows it
    with pytest.raises(CertificateError, match="other contributions follow"):
        recompute_contributions(tmp_path / "curator.npz", np.std, DATA[:, 0], UNITS)


def test_large_bundles_hold_the_largest_units_and_say_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sums_bundle, "MAX_STORED_NUMBERS", 600)
    monkeypatch.setattr(sums_bundle, "STORED_UNITS", 40)
    made = pac.privatize(np.mean, DATA[:, 0], "membership<=0.7", sample=pac.Coins())
    made.save(tmp_path)
    held = CoinBundle.load(tmp_path / "curator.npz")
    assert (held.n_stored, held.is_whole, len(held.integers), held.n_entries) == (
        40,
        False,
        40,
        500,
    )
    found = verify(made.certificate, tmp_path / "curator.npz")
    assert "460 of 500 units" in found.not_checkable["influence"]
    recompute_contributions(held, np.mean, DATA[:, 0])
    with pytest.raises(CertificateError, match=r"other contributions|does not follow"):
        recompute_contributions(held, np.mean, DATA[:, 1])
    # Leaving out units that a file could hold is refused.
    for forged in (
        replace(held, n_entries=300),
        replace(
            held, integers=held.integers[1:], units=held.units[1:], starts=held.starts - [0, 1]
        ),
    ):
        assert not accepts(lie(forged, tmp_path))
    # Fewer units than are stored anyway are all stored.
    monkeypatch.setattr(sums_bundle, "STORED_UNITS", 1000)
    again = pac.privatize(np.mean, DATA[:, 0], "membership<=0.7", sample=pac.Coins())
    assert again.bundle.is_whole


def test_no_other_error_comes_out_of_random_damage(folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    content = bytearray((folder / "session" / "curator.npz").read_bytes())
    path = laid(folder, "session", tmp_path, plain_of(folder, "session"))
    certificate, n_refused = Certificate.read(path), 0
    for _ in range(60):
        damaged = content.copy()
        for place in rng.integers(len(damaged), size=4):
            damaged[place] ^= int(rng.integers(1, 256))
        (tmp_path / "curator.npz").write_bytes(damaged)
        try:
            verify(certificate, tmp_path / "curator.npz")
        except PacPrivacyError:
            n_refused += 1
    assert n_refused > 50
