"""The certificate of differential privacy, and that it is never taken for PAC's."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.dp import DPCertificate, DPRelease
from pacprivacy.errors import BudgetError, CertificateError


def certificate(**changes: object) -> DPCertificate:
    fields: dict[str, object] = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "neighbours": "add_remove",
        "mechanism": "sum with Gaussian noise",
        "assumptions": ("Values are clipped to [0, 1].",),
        "accounting": {"method": "analytic Gaussian", "events": 1},
        "noise": {"std": 3.5},
    }
    return DPCertificate(**(fields | changes))  # type: ignore[arg-type]


def test_round_trip_through_a_file(tmp_path: Path) -> None:
    release = DPRelease(value=np.arange(3.0), certificate=certificate())
    path = release.save(tmp_path)
    assert DPCertificate.read(path) == release.certificate
    assert json.loads(path.read_text())["value"] == [0.0, 1.0, 2.0]


def test_success_is_that_of_the_exact_trade_off() -> None:
    # With (ε, δ) the best test at prior 1/2 succeeds with (e^ε + δ)/(1 + e^ε).
    expected = (math.e + 1e-6) / (1 + math.e)
    assert certificate().membership_bound == pytest.approx(expected, rel=1e-12)
    assert certificate(epsilon=math.inf).membership_bound == 1.0


def test_a_known_loss_distribution_says_more_than_epsilon_and_delta() -> None:
    own = certificate(epsilon=1.75, delta=1e-5, advantage=0.176)
    assert own.membership_bound == pytest.approx(0.588)
    assert "more than 58.8 times in 100; 50 without the release" in own.promise
    text = " ".join(str(own).split())
    assert "at most 58.80 %, by the mechanism's own loss distribution" in text
    assert "epsilon and delta alone would allow 85.20 %" in text
    assert "pure DP with epsilon 0.356" in text
    assert "Gaussian DP with mu 0.445 (epsilon 1.75 at delta 1e-05)" in text
    alone = certificate(epsilon=0.1, advantage=0.9)  # never above what epsilon and delta allow
    assert alone.membership_bound == certificate(epsilon=0.1).membership_bound
    assert "by epsilon and delta alone" in " ".join(str(certificate()).split())
    assert DPCertificate.from_dict(json.loads(own.to_json())) == own
    old = certificate().to_public_dict()
    del old["advantage"]  # files from before there was one
    assert DPCertificate.from_dict(old) == certificate()
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(BudgetError, match="advantage must be between 0 and 1"):
            certificate(advantage=wrong)
    with pytest.raises(CertificateError, match="right types"):
        DPCertificate.from_dict(own.to_public_dict() | {"advantage": "small"})


def test_an_infinite_epsilon_survives_json() -> None:
    written = json.loads(certificate(epsilon=math.inf).to_json())
    assert DPCertificate.from_dict(written).epsilon == math.inf


def test_text_names_the_relation_and_the_assumptions() -> None:
    text = str(certificate())
    assert "one record more" in text
    assert "clipped to [0, 1]" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "SIMULATION" in str(certificate(simulation=True))
    assert "Ex post" in certificate(kind="dp-ex-post").promise
    assert "analytic Gaussian" in certificate()._repr_html_()


def test_pac_and_dp_certificates_are_not_read_as_each_other() -> None:
    release = pac.privatize(np.mean, np.arange(40.0), pac.Information(0.1), n_subsets=16)
    with pytest.raises(CertificateError, match="PAC certificate"):
        DPCertificate.from_dict(release.certificate.to_public_dict())
    with pytest.raises(CertificateError, match="schema version"):
        pac.Certificate.from_dict(certificate().to_public_dict())


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"epsilon": 0.0}, BudgetError),
        ({"epsilon": math.nan}, BudgetError),
        ({"delta": 1.0}, BudgetError),
        ({"delta": -1e-9}, BudgetError),
        ({"neighbours": "both"}, BudgetError),
        ({"kind": "exact"}, CertificateError),
    ],
)
def test_bad_fields_are_refused(changes: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        certificate(**changes)


@pytest.mark.parametrize(
    "forged",
    [
        {"notes": None},
        {"notes": "text"},
        {"assumptions": [1]},
        {"accounting": 5},
        {"noise": {"std": "small"}},
        {"mechanism": 7},
        {"events": "none"},
        {"epsilon": "1"},
        {"epsilon": True},
        {"delta": None},
        {"neighbours": "friends"},
        {"simulation": 0},
        {"promise": "everything"},
    ],
)
def test_a_forged_file_is_refused(forged: dict[str, object]) -> None:
    plain = certificate().to_public_dict()
    del plain["notes"]
    with pytest.raises(CertificateError, match="all its fields"):
        DPCertificate.from_dict(plain)
    with pytest.raises(CertificateError, match="all its fields"):
        DPCertificate.from_dict(certificate().to_public_dict() | forged)


def test_dp_is_imported_without_its_heavy_companions() -> None:
    script = "import sys, pacprivacy.dp; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    heavy = {"jax", "matplotlib", "sklearn", "joblib"}
    assert not heavy & set(found.stdout.split())
