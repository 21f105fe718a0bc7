"""Every field of a certificate is recomputed by ``verify``, or named as what it cannot show."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy.cli import app
from pacprivacy.noise import Boxed
from pacprivacy.release import CoinCertificate, PoolCertificate, Verified, verify
from pacprivacy.release.certificate import fields_on_trust
from pacprivacy.release.pool_proof import ON_TRUST_ANSWERS, ON_TRUST_IID

FIELDS = {field.name for field in fields(PoolCertificate)}
DATA = np.random.default_rng(0).normal(size=(24, 1))


def one_release() -> Any:
    return pac.privatize(np.mean, DATA, pac.Information(9), n_subsets=8)


def a_session() -> Any:
    with pac.Session(DATA, budget=pac.Information(9), n_subsets=8) as session:
        return session.release(np.mean, pac.Information(9))


def boxed() -> Any:
    return pac.privatize(
        np.mean, DATA, pac.Information(1), sample=pac.Half(n_subsets=32), rule=Boxed(low=-1, high=1)
    )


def checked(release: Any) -> Verified:
    return verify(release.certificate, release.bundle)


def predictor() -> Verified:
    model = pac.PrivatePredictor(DummyClassifier(), n_subsets=8).fit(DATA, np.arange(24) % 2)
    return verify(model.certificate_, model.bundle_)


@pytest.mark.parametrize(
    "table", [fields_on_trust(PoolCertificate), ON_TRUST_IID, ON_TRUST_ANSWERS]
)
def test_the_tables_name_fields_and_reasons(table: dict[str, str]) -> None:
    assert set(table) <= FIELDS, "a field that no certificate has"
    assert all(len(reason) > 15 for reason in table.values())
    # The promise itself is never taken on trust.
    assert not set(table) & {
        "kind", "membership_bound", "mi_upper_nats", "any_inference", "confidence", "not_promised",
        "membership", "information", "divergences", "side_knowledge", "epsilon_equivalent",
    }  # fmt: skip


@pytest.mark.parametrize("in_session", [False, True])
def test_every_field_of_a_release_with_coins_is_in_exactly_one_of_the_two(in_session: bool) -> None:
    many, coins = np.random.default_rng(0).normal(size=400), pac.Coins()
    if in_session:
        with pac.Session(many, budget="membership<=0.6", sample=coins) as session:
            made = session.release(np.mean, share=0.5)
    else:
        made = pac.privatize(np.mean, many, "membership<=0.6", sample=coins)
    found = checked(made)
    assert set(found.recomputed) | set(found.not_checkable) == {
        field.name for field in fields(CoinCertificate)
    }
    assert not set(found.recomputed) & set(found.not_checkable)
    assert ("composition" in found.not_checkable) == in_session
    assert {"influence", "hits", "groups", "success_at_keep", "membership_bound"} <= set(
        found.recomputed
    )


@pytest.mark.parametrize("make", [one_release, a_session, boxed, predictor])
def test_every_field_is_in_exactly_one_of_the_two(make: Any) -> None:
    made = make()
    found = made if isinstance(made, Verified) else checked(made)
    assert set(found.recomputed) | set(found.not_checkable) == FIELDS
    assert not set(found.recomputed) & set(found.not_checkable)
    assert ("composition" in found.not_checkable) == (make is a_session)
    assert ("prior" in found.not_checkable) == (make is boxed)


def test_pac_verify_prints_the_list(tmp_path: Path) -> None:
    release = a_session()
    path = release.save(tmp_path)
    shown = CliRunner().invoke(app, ["verify", str(path)])
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split("Not checked")[1].split())
    for name, reason in checked(release).not_checkable.items():
        assert f"{name} {reason}" in text
    assert "the released value" in text
