"""The Laplace mechanism: pure differential privacy for numbers of declared sensitivity."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pacprivacy.dp.advantage import noise_advantage
from pacprivacy.dp.composition import carried, noise_event
from pacprivacy.dp.noise import Perturbed, Sampler, add_laplace, check_neighbours, read_source
from pacprivacy.release import DPCertificate, DPRelease, Neighbours

EXACT: Final = "Noise is a whole number of grid steps, drawn exactly; rounding is paid for."


def laplace(
    values: Any,
    *,
    sensitivity: float,
    epsilon: float,
    neighbours: Neighbours,
    sampler: Sampler = "lattice",
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release numbers with Laplace noise.

    Parameters
    ----------
    values : float or array, curator-only
        What was computed from the records.
    sensitivity : float > 0, public
        How far neighbours can move all numbers together: sum of absolute changes. It must hold
        for every data set, so it comes from clipping, not from these data.
    epsilon : float > 0, public
        The promise.
    neighbours : {"add_remove", "replace"}, public
        Relation that ``sensitivity`` and the promise are about.
    sampler : {"lattice", "opendp"}, public
        Which exact sampler; ``opendp`` needs ``pacprivacy[dp]``.
    simulate : Generator or int, optional
        Seed of the noise, for experiments; such a release protects nobody.

    Returns
    -------
    DPRelease
        The value has the shape of ``values``.

    Guarantee
    ---------
    Claims DP-1 and DP-30. ``(epsilon, 0)``-differential privacy, if ``sensitivity`` is right.

    Examples
    --------
    >>> release = laplace(120.0, sensitivity=1.0, epsilon=0.5, neighbours="add_remove")
    >>> release.certificate.delta, round(release.certificate.noise["laplace scale"], 6)
    (0.0, 2.0)
    """
    check_neighbours(neighbours)
    source = read_source(simulate)
    noisy = add_laplace(
        values, sensitivity=sensitivity, epsilon=epsilon, source=source, sampler=sampler
    )
    certificate = DPCertificate(
        epsilon=float(epsilon),
        delta=0.0,
        neighbours=neighbours,
        advantage=noise_advantage(epsilon, 0.0, noisy.values.size),
        mechanism="Laplace mechanism: discrete Laplace noise on a grid",
        assumptions=(
            f"Neighbours move the numbers by at most {float(sensitivity):g} in the sum of "
            "absolute values.",
            EXACT,
        ),
        accounting={"method": "one Laplace mechanism"},
        noise={"laplace scale": noisy.noise_scale, "std": noisy.noise_std},
        events=carried(noise_event(epsilon, 0.0, noisy.values.size)),
        simulation=source.is_simulation,
    )
    return DPRelease(value=noisy_value(noisy), certificate=certificate)


def noisy_value(noisy: Perturbed) -> Any:
    """Return a float for one number, an array for several."""
    return noisy.values if noisy.values.ndim else float(noisy.values)
