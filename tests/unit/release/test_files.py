"""Release files: what comes back, and that nothing in them can be changed unseen."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy._values import Row, read_release, row_texts, write_release
from pacprivacy.cli import app
from pacprivacy.errors import CertificateError

pytestmark = pytest.mark.usefixtures("few_draws")
BOTH = namedtuple("BOTH", "low high")
X = np.random.default_rng(0).normal(5, 1, (60, 2))
FRAME = pd.DataFrame(X, columns=["age", "pay"]).assign(region=["n", "s", "w"] * 20)


def release(function: Callable[[Any], Any], data: Any = X) -> pac.Release:
    budget = pac.Information(0.5)
    return pac.privatize(function, data, budget, n_subsets=16, rule="waterfill", rng=0)


def moments(frame: Any) -> Any:
    found = frame[["age", "pay"]].mean()
    return found.set_axis(pd.to_datetime(["2024-01-01", "2025-01-01"]))


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "number": (lambda x: float(x.mean()), X),
    "numpy number": (np.mean, X),
    "array": (lambda x: x.mean(axis=0), X),
    "matrix": (lambda x: np.cov(x.T), X),
    "single precision": (lambda x: x.mean(axis=0).astype(np.float32), X),
    "tuple": (lambda x: (x.mean(), [x.std(), "label"]), X),
    "named tuple": (lambda x: BOTH(x.min(), x.max(axis=0)), X),
    "dict": (lambda x: {"mean": x.mean(axis=0), "n": {"sd": float(x.std())}}, X),
    "keys": (lambda x: {10: x.mean(), 2: x.std(), ("a", 1): x.max()}, X),
    "ordered": (lambda x: OrderedDict(b=x.mean(), a=x.std()), X),
    "series": (lambda f: f[["age", "pay"]].mean(), FRAME),
    "params": (lambda f: f[["age", "pay"]].mean().rename("params"), FRAME),
    "frame": (lambda f: f.groupby("region").mean(), FRAME),
    "levels": (lambda f: f.groupby(["region", f.age > 0]).pay.mean(), FRAME),
    "moments": (moments, FRAME),
    "polars": (lambda f: pl.DataFrame({"m": [f.age.mean(), f.pay.mean()]}), FRAME),
    "polars series": (lambda f: pl.Series("m", [f.age.mean()]), FRAME),
    "nested frame": (lambda f: {"by": f.groupby("region").mean(), "all": f.age.mean()}, FRAME),
}


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other) or hasattr(one, "_fields")
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other)
    elif isinstance(one, pd.Series):
        pd.testing.assert_series_equal(one, other)
    elif isinstance(one, pl.DataFrame | pl.Series):
        assert one.equals(other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, tuple | list):
        assert getattr(one, "_fields", ()) == getattr(other, "_fields", ())
        for first, second in zip(one, other, strict=True):
            same(first, second)
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True)
    else:
        np.testing.assert_array_equal(one, other)  # also of NaN


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_value_comes_back_as_it_was_released(name: str, tmp_path: Path) -> None:
    found = release(*FUNCTIONS[name])
    loaded = pac.Release.load(found.save(tmp_path))
    same(found.value, loaded.value)
    same(found.std_error, loaded.std_error)
    same(found.interval(0.9).upper, loaded.interval(0.9).upper)
    for one, other in zip(found.rows(), loaded.rows(), strict=True):
        assert one.name == other.name
        assert one[1:] == pytest.approx(other[1:], rel=1e-6)  # single precision
    assert loaded.save(tmp_path / "again").read_bytes() == (tmp_path / "release.json").read_bytes()


def test_an_estimator_comes_back_as_its_attributes(tmp_path: Path) -> None:
    found = pac.privatize(
        lambda x, y: Ridge().fit(x, y),
        (X, X @ [1.0, 2.0]),
        pac.Information(0.5),
        n_subsets=16,
        rule="waterfill",
        rng=0,
    )
    loaded = pac.Release.load(found.save(tmp_path))
    np.testing.assert_array_equal(loaded.value["coef_"], found.value.coef_, strict=True)
    same(found.std_error, loaded.std_error)


def test_without_pandas_a_frame_is_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = release(lambda f: f.groupby("region").mean(), FRAME)
    path = found.save(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert pac.Release.load(path).value == found.value.to_numpy().tolist()


# --- nothing is changed unseen ----------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("signed")
    for name in ("key", "other"):
        key = ed25519.Ed25519PrivateKey.generate()
        raw = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        (place / f"{name}.pem").write_bytes(key.private_bytes(*raw, serialization.NoEncryption()))
        public = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        (place / f"{name}.pub").write_bytes(key.public_key().public_bytes(*public))
    found = release(lambda x: {"mean": x.mean(axis=0)})
    found.save(place, sign=place / "key.pem")
    found.save(place / "plain")
    return place


@pytest.mark.claim("R-10")
def test_one_changed_byte_is_refused(folder: Path, tmp_path: Path) -> None:
    content = (folder / "release.json").read_bytes()
    read_release(folder / "release.json")
    path = tmp_path / "release.json"
    rng = np.random.default_rng(0)
    ends = [0, len(content) - 1, content.index(b'"digest"') + 1, content.index(b'"value"') + 1]
    for place in [*ends, *rng.choice(len(content), 400, replace=False).tolist()]:
        other = content[place] ^ (1 << int(rng.integers(8)))
        path.write_bytes(content[:place] + bytes([other]) + content[place + 1 :])
        with pytest.raises(CertificateError, match=r"as it was written|readable JSON") as caught:
            read_release(path)
        assert "\n" not in str(caught.value)


@pytest.mark.claim("R-10")
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("  ", " "),
        lambda text: text + " ",
        lambda text: text.replace('"digest"', '"Digest"'),
        lambda text: text.replace('"certificate":', '"Certificate":'),
        lambda text: text.replace("{", '{"value": 1,', 1),
        lambda text: json.dumps({**json.loads(text), "value": {"mean": [1.0, float("nan")]}}),
    ],
)
def test_a_file_that_was_written_anew_is_refused(
    change: Callable[[str], str], folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "release.json"
    path.write_bytes(change((folder / "release.json").read_text()).encode())
    with pytest.raises(CertificateError, match="as it was written"):
        read_release(path)


HOSTILE: list[tuple[tuple[Any, ...], Any]] = [
    (("error_bars", "share"), 10**400),
    (("value",), 10**400),
    (("certificate", "published", 0), "\ud800"),
    (("certificate", "membership_mean"), None),
    (("certificate", "divergences", 0, "success"), {}),
    (("table",), []),
    (("table",), {"query": 1, "plan": 2, "columns": [[1, 2, 3]], "rows": [[10**9]]}),
]


@pytest.mark.parametrize(("place", "wrong"), HOSTILE)
def test_hostile_content_under_a_right_digest_is_refused_in_one_line(
    place: tuple[Any, ...], wrong: Any, folder: Path, tmp_path: Path
) -> None:
    content = json.loads((folder / "release.json").read_text())
    inner = content
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = wrong
    forged = {name: item for name, item in content.items() if name not in ("digest", "signature")}
    write_release(tmp_path / "release.json", forged)
    with pytest.raises(CertificateError):
        pac.report(tmp_path)  # a folder is that of its release.json


def test_numbers_that_cannot_be_written_to_the_decimal_of_their_error_are_shown() -> None:
    for value, error in ((1e308, 1e-12), (1.0, 1e-320)):
        assert row_texts(Row("x", value, error, 0, 0))[0] == f"{value:.4g}"


def test_the_verbs_check_it_first(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    text = (folder / "release.json").read_text()
    start = text.index("5.") if "5." in text else text.index("4.")
    path.write_text(text[:start] + "7" + text[start + 1 :])
    for words in (["verify"], ["report"], ["audit"], ["predict", "new.csv"]):
        result = CliRunner().invoke(app, [words[0], str(path), *words[1:]])
        assert result.exit_code == 2
        assert "must be as it was written" in result.stderr
        assert result.stderr.count("\n") == 1
    with pytest.raises(CertificateError, match="as it was written"):
        pac.Release.load(path)


@pytest.mark.claim("R-10")
def test_only_the_owner_of_the_key_can_sign(folder: Path, tmp_path: Path) -> None:
    signed, plain = folder / "release.json", folder / "plain" / "release.json"
    assert pac.Release.load(signed, public_key=folder / "key.pub").value["mean"].shape == (2,)
    with pytest.raises(CertificateError, match="signed by the owner"):
        pac.Release.load(signed, public_key=folder / "other.pub")
    with pytest.raises(CertificateError, match="must be signed"):
        pac.Release.load(plain, public_key=folder / "key.pub")
    content = json.loads(signed.read_text())
    for forged in (
        {**content, "value": {"mean": [9.0, 9.0]}},
        {**content, "signature": {**content["signature"], "value": "00" * 64}},
        {**content, "signature": 3},
    ):
        del forged["digest"]
        write_release(tmp_path / "release.json", forged)  # under a digest that is right
        read_release(tmp_path / "release.json")
        with pytest.raises(CertificateError, match="signed by the owner"):
            read_release(tmp_path / "release.json", public_key=folder / "key.pub")


def test_verify_says_who_signed(folder: Path) -> None:
    def verified(*words: object) -> str:
        result = CliRunner().invoke(app, ["verify", *map(str, words)])
        assert result.exit_code == 0, result.stderr
        return result.stdout

    key = folder / "key.pub"
    assert f"signed (by the owner of {key})" in verified(
        folder / "release.json", "--public-key", key
    )
    assert "signed (not checked: give --public-key)" in verified(folder / "release.json")
    assert "not signed" in verified(folder / "plain" / "release.json")


def test_verify_without_a_bundle_fails_and_says_what_it_checked(
    folder: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "release.json"
    alone.write_bytes((folder / "release.json").read_bytes())
    for key, code, says in (
        (folder / "key.pub", 2, f"signed (by the owner of {folder / 'key.pub'})"),
        (folder / "other.pub", 2, "must be signed by the owner"),
    ):
        result = CliRunner().invoke(app, ["verify", str(alone), "--public-key", str(key)])
        assert result.exit_code == code
        assert says in result.stderr
        assert ("All that was checked" in result.stderr) == (key.name == "key.pub")


def test_files_of_earlier_versions_are_read(folder: Path, tmp_path: Path) -> None:
    content = json.loads((folder / "plain" / "release.json").read_text())
    path = tmp_path / "release.json"
    path.write_text(json.dumps({k: v for k, v in content.items() if k not in ("digest", "types")}))
    assert len(pac.Release.load(path).value["mean"]) == 2
    path.write_text(json.dumps(content["certificate"]))
    assert pac.Release.load(path).value is None


def test_a_key_of_another_kind_is_refused(folder: Path, tmp_path: Path) -> None:
    key = x25519.X25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (tmp_path / "x.pem").write_bytes(key)
    (tmp_path / "no.pem").write_text("hello")
    (tmp_path / "data.csv").write_text("a\n" + "1\n2\n" * 20)
    words = ["release", "data.csv", "--model", "mean", "--budget", "mi<=1", "-o", tmp_path / "o"]
    words[1] = tmp_path / "data.csv"
    for name in ("x.pem", "no.pem", "missing.pem"):
        result = CliRunner().invoke(app, [*map(str, words), "--sign", str(tmp_path / name)])
        assert result.exit_code == 2
        assert "openssl genpkey -algorithm ed25519" in result.stderr
    with pytest.raises(CertificateError, match="openssl pkey"):
        read_release(folder / "release.json", public_key=folder / "key.pem")


def test_without_cryptography_it_says_what_to_install(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(CertificateError, match=r"pip install '\.\[sign\]'"):
        read_release(folder / "release.json", public_key=folder / "key.pub")
    pac.Release.load(folder / "release.json")


def _turned(content: Any, depth: int) -> Any:
    """Return the same content with the keys of the mappings at one depth in another order."""
    if isinstance(content, list):
        return [_turned(item, depth) for item in content]
    if not isinstance(content, dict):
        return content
    items = [(name, _turned(item, depth - 1)) for name, item in content.items()]
    return dict(reversed(items)) if depth == 0 else dict(items)


@pytest.mark.claim("R-10")
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("signed", [False, True])
def test_another_order_of_keys_is_refused(
    folder: Path, tmp_path: Path, depth: int, signed: bool
) -> None:
    content = json.loads(((folder if signed else folder / "plain") / "release.json").read_text())
    turned = _turned(content, depth)
    assert turned == content
    assert json.dumps(turned) != json.dumps(content)
    place = tmp_path / "release.json"
    place.write_text(json.dumps(turned, indent=2) + "\n")
    with pytest.raises(CertificateError, match="must be as it was written"):
        read_release(place)


@pytest.mark.claim("R-10")
def test_keys_are_written_in_one_order(tmp_path: Path) -> None:
    """Also names of the user's, whose order may follow the data."""
    data = np.random.default_rng(0).normal(size=(40, 3))

    def by_size(rows: Any) -> Any:
        means = {f"column {i}": {"z": float(m), "a": 1.0} for i, m in enumerate(rows.mean(axis=0))}
        return dict(sorted(means.items(), key=lambda item: -item[1]["z"]))

    found = pac.privatize(by_size, data, pac.Information(0.1), n_subsets=16)
    assert list(found.value) == ["column 0", "column 1", "column 2"]
    output = found.certificate.output
    assert output.index("'column 0'") < output.index("'column 1'") < output.index("'column 2'")
    text = found.save(tmp_path).read_text()

    def keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        assert names == sorted(names)
        return dict(pairs)

    json.loads(text, object_pairs_hook=keys)
    again = pac.Release.load(tmp_path)
    assert again.value == found.value
    assert str(again.certificate) == str(found.certificate)
    assert again.rows() == found.rows()
