"""The certificate: complete, public, readable, never rounding in its own favour."""

import importlib
import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier

import pacprivacy as pac
from pacprivacy.design import Descent, descend
from pacprivacy.errors import CertificateError
from pacprivacy.noise import calibrate
from pacprivacy.release import Certificate, PoolCertificate, Release, verify
from pacprivacy.release.certificate_text import LOOPHOLE, NOISE_LEVEL, SCOPE
from pacprivacy.theory import epsilon_equivalent, mi_for_membership, posterior_success

ASSESS = importlib.import_module("pacprivacy.release.pool_certificate")


@pytest.fixture(scope="module")
def release() -> Release:
    data = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ASSESS, "information_draws", lambda m: 20_000)
        patch.setattr(ASSESS, "membership_draws", lambda m: 20_000)
        return pac.privatize(
            lambda x: x.mean(axis=0), data, pac.Information(0.25), rule="waterfill", n_subsets=64
        )


@pytest.fixture
def certificate(release: Release) -> Certificate:
    return release.certificate


def test_it_states_everything_that_was_promised(certificate: Certificate) -> None:
    plain = certificate.to_public_dict()
    assert plain["schema_version"] == 2
    assert plain["kind"] == "exact"
    assert plain["budget"] == "mutual information <= 0.25 nats"
    assert plain["log_det_nats"] <= 0.25
    assert plain["information"]["lower"] <= plain["information"]["upper"]
    assert plain["mi_upper_nats"] == min(plain["log_det_nats"], plain["information"]["upper"])
    assert plain["any_inference"] == {
        "0.5": posterior_success(plain["mi_upper_nats"], 0.5),
        "0.01": posterior_success(plain["mi_upper_nats"], 0.01),
    }
    assert plain["membership"]["value"] >= plain["membership_mean"]["value"]
    assert [item["n_told"] for item in plain["side_knowledge"]] == [1, 2, 4]
    assert plain["epsilon_equivalent"] == epsilon_equivalent(plain["membership_bound"])
    assert (plain["scheme"], plain["n_subsets"], plain["n_units"]) == ("balanced", 64, 40)
    assert (plain["unit"], plain["dimension"]) == ("record", 2)
    assert plain["noise"]["n_directions"] == 2
    assert plain["noise"]["smallest_units_per_std"] >= 1024
    assert plain["software"] == pac.__version__
    assert SCOPE in plain["not_promised"]
    assert plain["public"]
    assert 1 - 1e-8 < plain["confidence"] < 1


def said(certificate: Certificate) -> str:
    """What a certificate says about facts of the universe."""
    [found] = [item for item in certificate.not_promised if item.startswith(LOOPHOLE)]
    return found.removeprefix(LOOPHOLE)


def test_what_is_computed_from_all_candidates_is_named() -> None:
    data = np.random.default_rng(0).normal(size=(24, 1))

    def release(function: Any, nats: float) -> str:
        options: Any = {"rule": "waterfill", "n_subsets": 8, "rng": 0}
        return said(pac.privatize(function, data, pac.Information(nats), **options).certificate)

    assert release(np.mean, 0.1) == f"; here: {NOISE_LEVEL}."
    tall = release(lambda x: np.outer(x.mean(axis=0), np.arange(1.0, 6.0)), 0.1)
    assert f"{NOISE_LEVEL}; the output outside the 1 of 5 directions that carry noise" in tall
    assert "the output, which leaves without noise; that it needed none" in release(np.mean, 9)
    assert "the output, on which all candidates agree" in release(lambda x: 3.0, 0.1)


def test_a_predictor_names_its_unanimous_answers_and_a_descent_its_noise() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = np.where(X[:, 0] > 0, 1, -1)
    model = pac.PrivatePredictor(DummyClassifier(), n_subsets=8).fit(X, y)
    assert "the answers on which all candidates agree" in said(model.certificate_)
    run = descend((X, y.astype(float)), pac.Information(1), Descent(n_steps=2), n_subsets=8, rng=0)
    assert run.certificate is not None
    assert "the noise level" in said(run.certificate)
    assert any("above ln 2" in item for item in run.certificate.not_promised)


def test_the_bound_is_the_smaller_of_the_measured_and_the_implied(certificate: Certificate) -> None:
    implied = posterior_success(certificate.mi_upper_nats, 0.5)
    assert certificate.membership is not None
    assert certificate.membership_bound == min(implied, certificate.membership.upper)


def test_a_wide_interval_does_not_break_an_implied_promise() -> None:
    """With a covariance rule the promise follows from the bound, whatever the draws say."""
    data = np.random.default_rng(0).normal(size=(40, 3))  # at rank 1 and 2 there are no draws
    budget = pac.Membership(0.5001)
    found = pac.privatize(
        lambda x: x.mean(axis=0), data, budget, rule="waterfill", n_subsets=32, rng=0
    )
    assert found.certificate.membership is not None
    assert found.certificate.membership.upper > 0.5001
    assert found.certificate.membership_bound <= 0.5005


def test_json_survives_the_way_there_and_back(certificate: Certificate, tmp_path: Path) -> None:
    again = Certificate.from_dict(json.loads(certificate.to_json()))
    assert again == certificate
    path = tmp_path / "certificate.json"
    path.write_text(certificate.to_json())
    assert Certificate.read(path) == certificate


def test_a_release_file_holds_its_certificate(release: Release, tmp_path: Path) -> None:
    path = release.save(tmp_path / "out")
    assert Certificate.read(path) == release.certificate
    assert (tmp_path / "out" / "curator.npz").stat().st_mode & 0o077 == 0
    content = json.loads(path.read_text())
    named = {"schema_version", "value", "types", "error_bars", "certificate", "digest"}
    assert set(content) == named
    np.testing.assert_array_equal(content["value"], release.value)


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"schema_version": 2}', "{}"])
def test_other_files_are_refused_in_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "release.json"
    path.write_text(content)
    with pytest.raises(CertificateError, match="must") as error:
        Certificate.read(path)
    assert "\n" not in str(error.value)


def test_missing_files_and_fields_are_refused(certificate: Certificate, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="must be a readable JSON file"):
        Certificate.read(tmp_path / "none.json")
    for field in fields(PoolCertificate):
        plain = certificate.to_public_dict()
        del plain[field.name]
        if field.name in (
            "divergences",
            "published",
            "trade_off",
        ):  # files of version 0.1 do not have them
            assert getattr(Certificate.from_dict(plain), field.name) == ()
            continue
        with pytest.raises(CertificateError):
            Certificate.from_dict(plain)
    with pytest.raises(CertificateError):
        Certificate.from_dict({**certificate.to_public_dict(), "extra": 1})


def test_a_file_of_version_0_1_has_no_increments_and_stays_as_it_is(
    certificate: Certificate,
) -> None:
    """Its digest may be in a ledger: what was not recorded is not invented."""
    plain = certificate.to_public_dict()
    for item in plain["side_knowledge"]:
        del item["mean_increment"], item["largest_increment"]
    old = Certificate.from_dict(plain)
    assert json.loads(old.to_json()) == plain
    assert "not recorded" in str(old)
    del plain["side_knowledge"][0]["n_sets"]
    with pytest.raises(CertificateError, match="side_knowledge"):
        Certificate.from_dict(plain)
    half = certificate.to_public_dict()
    del half["side_knowledge"][0]["mean_increment"]
    with pytest.raises(CertificateError, match="side_knowledge"):
        Certificate.from_dict(half)


def test_increments_are_at_least_the_differences_of_the_best_guesses(
    certificate: Certificate,
) -> None:
    """The unit that is guessed best afterwards gained at least what the best guess gained."""
    for item in certificate.side_knowledge:
        assert item.mean_increment is not None
        assert item.largest_increment is not None
        assert item.mean_success - item.mean_without_release <= item.mean_increment + 1e-12
        assert 0 < item.mean_increment <= item.largest_increment <= 0.5
    assert "any one unit" in " ".join(str(certificate).split())


def test_the_text_fits_a_terminal_and_says_the_essentials(certificate: Certificate) -> None:
    text = str(certificate)
    assert max(map(len, text.splitlines())) <= 80
    joined = " ".join(text.split())
    for phrase in (
        "Whoever studies this release, by any method, guesses which at most",
        "exact: the secret is uniform over a finite pool",
        "mutual information <= 0.25 nats",
        "not a DP claim",
        "told 1:",
        "64 subsets of 40 units",
        "need differential privacy",
        "knows the secret without any release",
        "pacprivacy",
    ):
        assert phrase in joined
    assert "SIMULATION" not in text


@pytest.mark.parametrize("bound", [0.600001, 0.58811, 0.5 + 1e-9, 0.999999])
def test_printed_bounds_are_rounded_up(certificate: Certificate, bound: float) -> None:
    changed = replace(
        certificate,
        membership_bound=bound,
        mi_upper_nats=bound,
        log_det_nats=bound,
        any_inference={"0.5": bound, "0.01": bound},
    )
    joined = " ".join(str(changed).split())
    headline = re.search(r"at most ([0-9.]+) times in 100", joined)
    nats = re.search(r"at most ([0-9.]+) nats", joined)
    guesses = re.findall(r"-> ([0-9.]+) %, prior 1 % -> ([0-9.]+) %", joined)
    assert headline is not None
    assert nats is not None
    assert bound <= float(headline[1]) / 100 <= bound + 1.1e-3
    assert bound <= float(nats[1]) + 1e-12
    assert all(bound <= float(guess) / 100 + 1e-12 for guess in guesses[0])


def test_a_bound_of_certainty_is_no_promise(certificate: Certificate) -> None:
    plain = replace(certificate, membership_bound=1.0, composition=None)
    assert plain.promise.startswith("Nothing is promised about guessing whether one given")
    session = replace(plain, composition={"session_success_bound": 1.0})
    assert session.promise.startswith("Nothing is promised over the whole session about guessing")


def test_round_numbers_stay_as_they_are(certificate: Certificate) -> None:
    for bound in (0.6, 0.588, 0.7, 0.55):
        text = " ".join(str(replace(certificate, membership_bound=bound)).split())
        assert f"guesses which at most {100 * bound:.3g} times in 100; 50 without" in text


def test_text_has_both_readings_of_differential_privacy(certificate: Certificate) -> None:
    text = " ".join(str(replace(certificate, membership_bound=0.588)).split())
    assert "pure DP with epsilon 0.356" in text
    assert "Gaussian DP with mu 0.445 (epsilon 1.75 at delta 1e-05)" in text
    assert "not a DP claim" in text
    certain = " ".join(str(replace(certificate, membership_bound=1.0)).split())
    assert "no finite epsilon" in certain


def test_certain_success_has_no_epsilon(certificate: Certificate) -> None:
    data = np.random.default_rng(2).normal(size=12)
    free = pac.privatize(np.mean, data, pac.Information(50), n_subsets=16, rng=0).certificate
    assert free.membership_bound == 1.0
    assert free.epsilon_equivalent is None
    assert free.confidence == 1.0
    assert "closed form, no failure probability" in str(free)
    assert free.noise.total_variance == 0.0
    assert any("no noise was added" in note for note in free.notes)
    json.loads(free.to_json())


def test_what_more_information_allows_is_said(certificate: Certificate) -> None:
    """A membership budget may allow more than ln 2 nats: then any guess may succeed."""
    data = np.random.default_rng(1).normal(size=(200, 40))
    found = pac.privatize(
        lambda x: x.mean(axis=0), data, pac.Membership(0.75), n_subsets=64, rng=0
    ).certificate
    assert found.mi_upper_nats > math.log(2)
    assert any("above ln 2" in item for item in found.not_promised)
    assert not any("above ln 2" in item for item in certificate.not_promised)


# --- pools that leave a fold out ------------------------------------------------------------


@pytest.fixture(scope="module")
def of_folds() -> Release:
    data = np.random.default_rng(0).normal(size=(60, 2))
    pool = pac.Balanced(n_subsets=200, folds=10)
    return pac.privatize(
        lambda x: x.mean(axis=0), data, pac.Membership(0.6), sample=pool, rng=0, simulate=True
    )


@pytest.mark.claim("A-2")
@pytest.mark.claim("A-7")
def test_a_certificate_of_folds_speaks_of_even_odds(of_folds: Release) -> None:
    cert = of_folds.certificate
    assert cert.prior == 0.9
    assert cert.membership_bound <= 0.6
    assert cert.advantage == 2 * cert.membership_bound - 1
    assert cert.success_at(0.9) == pytest.approx(0.9 + 0.1 * cert.advantage)
    assert cert.success_at(0.5) == cert.membership_bound
    assert [item.false_positives for item in cert.trade_off] == [0.001, 0.01, 0.1]
    assert all(i.true_positives < i.false_positives + cert.advantage for i in cert.trade_off)
    text = " ".join(str(cert).split())
    for said in (
        "equally likely to have been used or left out",
        "at the pool's own prior of 90 % success is at most",
        "for the unit placed worst",
        "told 1 out:",
        "told 1 in:",
        "about 3 units that are out knows the secret",
    ):
        assert said in text
    assert verify(cert, of_folds.bundle).digest == cert.digest
    assert Certificate.from_dict(json.loads(cert.to_json())) == cert


@pytest.mark.claim("R-1")
def test_a_rosier_trade_off_is_refused(of_folds: Release) -> None:
    first, *rest = of_folds.certificate.trade_off
    rosier = replace(first, true_positives=first.true_positives / 2)
    forged = replace(of_folds.certificate, trade_off=(rosier, *rest))
    with pytest.raises(CertificateError, match="trade_off"):
        verify(forged, of_folds.bundle)


def test_halves_are_told_as_before(release: Release) -> None:
    assert [row.n_told for row in release.certificate.side_knowledge] == [1, 2, 4]
    assert "told 1 out" not in str(release.certificate)


@pytest.mark.claim("A-2")
def test_who_is_told_that_others_are_out_knows_most(of_folds: Release) -> None:
    rows = {(r.n_told, r.direction): r for r in of_folds.certificate.side_knowledge}
    assert set(rows) == {(1, "out"), (2, "out"), (1, "in"), (2, "in"), (4, "in")}
    out, told_in = rows[2, "out"], rows[2, "in"]
    assert out.mean_without_release > told_in.mean_without_release
    assert out.mean_increment > told_in.mean_increment


@pytest.mark.claim("T-6")
def test_information_is_turned_into_success_at_the_share_of_the_pool() -> None:
    pool = pac.Balanced(n_subsets=100, folds=10).draw(60, rng=0)
    outputs = np.random.default_rng(0).normal(size=(100, 2))
    for rule in ("waterfill", "diagonal"):
        plan = calibrate(outputs, pac.Membership(0.6), pool=pool, rule=rule, rng=0)
        assert plan.log_det_nats <= mi_for_membership(0.6, 0.9) * (1 + 1e-9)
    assert mi_for_membership(0.6, 0.9) < 0.4 * mi_for_membership(0.6)
