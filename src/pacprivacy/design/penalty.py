"""How strongly to regularise: by a number, or from a signal-to-noise ratio and the budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from pacprivacy._checks import Matrix, Vector, check_positive, freeze
from pacprivacy.errors import MechanismError
from pacprivacy.theory.design import noise_ratio, ridge_penalty

__all__ = ["Oracle", "Penalty", "Snr", "joint_penalty", "penalty_per_coordinate"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Oracle:
    """Coefficients and target noise known from elsewhere: a theory, or other, public data.

    Parameters
    ----------
    signal : array of shape (d,), public
        Coefficients, in the coordinates that are regressed on.
    noise_var : float > 0, public
        Variance of the target around the regression.

    Examples
    --------
    >>> import numpy as np
    >>> Penalty(snr=Oracle(signal=np.array([1.0, 2.0]), noise_var=0.5)).mi_nats is None
    True
    """

    signal: Vector
    noise_var: float

    def __post_init__(self) -> None:
        signal = np.array(self.signal, dtype=np.float64).reshape(-1)
        if not np.isfinite(signal).all():
            raise MechanismError(
                f"signal must be finite numbers; got an array of shape {signal.shape} with others. "
                "Pass one coefficient for each coordinate."
            )
        check_positive("noise_var", self.noise_var, advice="Pass a variance.", error=MechanismError)
        freeze(signal)
        object.__setattr__(self, "signal", signal)


Snr: TypeAlias = Literal["universe"] | float | Oracle


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalty:
    """Regularisation that knows of the noise to come.

    Parameters
    ----------
    mi_nats : float, public, optional
        The information budget of the release; the penalty is ``1 + d/2B`` times the one that is
        best without privacy (claim D-2). None gives the latter, the *post-hoc* penalty.
    snr : "universe", float or Oracle, public
        Squared coefficient over target noise: estimated on the whole universe (default; the
        certificate says so), one constant for every coordinate, or known from elsewhere.

    Examples
    --------
    >>> Penalty(mi_nats=0.5).ratio(4), Penalty().ratio(4)
    (4.0, 0.0)
    """

    mi_nats: float | None = None
    snr: Snr = field(default="universe")

    def __post_init__(self) -> None:
        if self.mi_nats is not None:
            check_positive("mi_nats", self.mi_nats, advice="Use the budget of the release.")
        if isinstance(self.snr, str) and self.snr != "universe":
            raise MechanismError(
                f"snr must be 'universe', a positive number or an Oracle; got {self.snr!r}. "
                "Leave it out to estimate it on the universe."
            )
        if not isinstance(self.snr, str | Oracle):
            check_positive("snr", self.snr, advice="Use about 1.", error=MechanismError)

    def ratio(self, n_outputs: int) -> float:
        """Return the noise ratio ``C`` that the penalty prepares for."""
        if self.mi_nats is None:
            return 0.0
        return float(noise_ratio(self.mi_nats, n_dimensions=n_outputs))

    def describe(self) -> str:
        """Return one public sentence for the certificate."""
        source = {
            True: "a signal-to-noise ratio estimated on the whole universe",
            False: "a signal-to-noise ratio given from outside",
        }[self.snr == "universe"]
        aim = "without regard to the noise" if self.mi_nats is None else "for the noise to come"
        return f"ridge penalty: chosen {aim}, from {source}; it does not depend on the secret"


def penalty_per_coordinate(penalty: Penalty | float, Z: Matrix, target: Vector) -> Vector:
    """Return one penalty for each orthogonal coordinate; infinite where there is no signal.

    Parameters
    ----------
    penalty : Penalty or float, public
        A number is used for every coordinate.
    Z, target : arrays of shapes (n, d) and (n,), curator-only
        The universe in orthogonal coordinates, and its centred target.
    """
    d = Z.shape[1]
    if not isinstance(penalty, Penalty):
        return np.full(d, check_penalty(penalty))
    if isinstance(penalty.snr, Oracle):
        signal, noise_var = _matching(penalty.snr, d), penalty.snr.noise_var
    elif penalty.snr == "universe":
        signal = Z.T @ target / np.square(Z).sum(axis=0)
        noise_var = _residual_variance(target - Z @ signal, d)
    else:
        signal, noise_var = np.full(d, np.sqrt(float(penalty.snr))), 1.0
    return ridge_penalty(signal, noise_var, ratio=penalty.ratio(d))


def joint_penalty(penalty: Penalty | float, Z: Matrix, target: Vector) -> float:
    """Return one penalty for a ridge regression on correlated, standardised coordinates.

    The mean squared coefficient stands for ``w²``: ``(1+C) d σ²/|w|²``.
    """
    d = Z.shape[1]
    if not isinstance(penalty, Penalty):
        return check_penalty(penalty)
    if isinstance(penalty.snr, Oracle):
        signal, noise_var = _matching(penalty.snr, d), penalty.snr.noise_var
    elif penalty.snr == "universe":
        signal = np.asarray(np.linalg.lstsq(Z, target, rcond=None)[0], dtype=np.float64)
        noise_var = _residual_variance(target - Z @ signal, d)
    else:
        signal, noise_var = np.full(d, np.sqrt(float(penalty.snr))), 1.0
    power = float(np.mean(np.square(signal)))
    found = float(ridge_penalty(np.sqrt(power), noise_var, ratio=penalty.ratio(d)))
    if not np.isfinite(found):
        raise MechanismError(
            "snr must be above 0 for a joint ridge regression; got a target without signal. "
            "Give the penalty as a number."
        )
    return found


def check_penalty(value: float) -> float:
    """Return a penalty as a float; refuse negative, infinite and missing ones."""
    number = float(value)
    if not 0.0 <= number < np.inf:
        raise MechanismError(
            f"penalty must be a number of at least 0, or a Penalty; got {value!r}. Use about 1."
        )
    return number


def _matching(oracle: Oracle, d: int) -> Vector:
    if len(oracle.signal) != d:
        raise MechanismError(
            f"signal must have one coefficient for each of {d} coordinates; got "
            f"{len(oracle.signal)}. Give it in the coordinates that are regressed on."
        )
    return oracle.signal


def _residual_variance(residuals: Vector, d: int) -> float:
    """Return the variance around the regression; a target without noise counts as rounding."""
    left = max(1, len(residuals) - d - 1)
    return max(float(residuals @ residuals) / left, float(np.finfo(np.float64).tiny))
