"""What the Gaussian bound overcharges is not charged by a session."""

import numpy as np
import pytest

import pacprivacy as pac


@pytest.mark.claim("S-1")
def test_a_closed_form_release_is_charged_its_exact_information() -> None:
    """What the Gaussian bound charges beyond the truth goes back to the session."""
    votes = np.repeat([0.0, 1.0], 32)
    with pac.Session(votes, budget=pac.Information(2.0), n_subsets=64, rng=0) as session:
        release = session.release(
            lambda x: float(x.mean() > 0.5), pac.Information(0.6), rule="waterfill"
        )
        certificate = release.certificate
        assert certificate.log_det_nats > 0.55
        assert certificate.mi_upper_nats < 0.95 * certificate.log_det_nats
        assert session.odometer().spent.mi_nats == certificate.mi_upper_nats
        pac.verify(certificate, release.bundle)
