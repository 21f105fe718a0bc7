"""Pictures and tables of records, as a notebook shows them."""

import json
from pathlib import Path

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.errors import CertificateError


@pytest.fixture(scope="module")
def session() -> pac.Session:
    x = np.random.default_rng(0).normal(size=(48, 2))
    budget = pac.Information(1) & pac.Membership(0.9)
    with pac.Session(x, budget=budget, n_subsets=32, rng=0) as session:
        session.release(lambda d: d.mean(axis=0), pac.Information(1 / 4) & pac.Membership(0.7))
        session.release(lambda d: d.std(axis=0), pac.Information(1 / 4) & pac.Membership(0.7))
    return session


def test_every_record_can_be_drawn(session: pac.Session, tmp_path: Path) -> None:
    assert len(session.releases[0].plot(tmp_path / "release.svg").axes) == 2
    assert session.plot(tmp_path / "session.png").axes[0].get_legend() is None
    assert {path.name for path in tmp_path.iterdir()} == {"release.svg", "session.png"}


def test_a_session_without_releases_cannot(tmp_path: Path) -> None:
    with (
        pac.Session(np.arange(40.0), budget=pac.Information(1)) as session,
        pytest.raises(CertificateError, match="Release something first"),
    ):
        session.plot()


def test_a_session_is_a_table(session: pac.Session) -> None:
    page = session._repr_html_()
    assert "of 1" in page  # nats of the total
    assert "90.00 %" in page
    assert page.count("<li>") == 2
    assert "best guess about one unit" in session.odometer()._repr_html_()


def test_names_in_a_table_are_text() -> None:
    def odd(x: np.ndarray) -> float:
        return float(x.mean())

    odd.__qualname__ = "<script>alert(1)</script>"
    with pac.Session(np.arange(40.0), budget=pac.Information(1), n_subsets=16) as session:
        session.release(odd, pac.Information(1 / 2))
        assert "<script>" not in session._repr_html_()
        assert "alert(1)" in session._repr_html_()


# --- what was really learned ------------------------------------------------------------------


def test_certificates_say_what_was_learned_so_far(session: pac.Session) -> None:
    seen = session.odometer()
    facts = [release.certificate.composition or {} for release in session.releases]
    assert facts[-1]["learned_nats"] == seen.learned_nats
    assert facts[-1]["best_guess_now"] == seen.best_guess_now
    assert facts[0]["learned_nats"] != facts[1]["learned_nats"]
    plain = json.loads(session.releases[-1].certificate.to_json())
    assert pac.Certificate.from_dict(plain) == session.releases[-1].certificate


def test_what_was_learned_follows_from_what_left(session: pac.Session) -> None:
    """Whoever has the pool, the outputs, the noise law and the value finds the same figures."""
    first = session.releases[0]
    bundle = first.bundle
    noise_std = bundle.grid_step * bundle.units_per_std
    # Coordinates of the released value along the noise directions, from public relations only.
    steps = bundle.points * bundle.grid_step
    basis = np.linalg.lstsq(
        bundle.outputs - bundle.outputs.mean(axis=0), steps - steps.mean(axis=0), rcond=None
    )[0]
    seen = (first.value - bundle.outputs.mean(axis=0)) @ basis + steps.mean(axis=0)
    log_p = -0.5 * np.square((seen - steps) / noise_std).sum(axis=1)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    learned = np.log(len(p)) + np.sum(p * np.log(np.maximum(p, 1e-300)))
    inside = p @ bundle.pool.masks()
    facts = first.certificate.composition or {}
    assert facts["learned_nats"] == pytest.approx(learned, rel=1e-3)
    assert facts["best_guess_now"] == pytest.approx(np.maximum(inside, 1 - inside).max(), rel=1e-3)
