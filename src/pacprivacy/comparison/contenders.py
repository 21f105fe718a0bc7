"""The models that are compared: their PAC mechanism, their DP methods, and how they are judged.

All of them see features that were mapped from declared ranges to [-1, 1], and clipped there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from pacprivacy import dp
from pacprivacy._checks import Matrix, Vector
from pacprivacy.design import JointRidge, LogisticFit
from pacprivacy.dp import DPRelease
from pacprivacy.statistics import Mean

# Of the methods, in squared norms of a row: none depends on the records.
OBJECTIVE_PENALTY: Final = 0.3
OUTPUT_PENALTY: Final = 5.0
N_STEPS: Final = 100
CLIP_NORM: Final = 0.35  # of the largest norm of a row
ROUNDED: Final = 1 + 1e-9  # the division by n is a rounded one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContenderRecords:
    """Mapped features, with a target coded as -1 and 1 or mapped to [-1, 1]; curator-only."""

    X: Matrix
    y: Vector | None
    delta: float

    @property
    def with_constant(self) -> Matrix:
        """The features and a column of ones, which stands for the intercept."""
        return np.column_stack([self.X, np.ones(len(self.X))])

    @property
    def x_bound(self) -> float:
        """Largest norm of a row with its constant."""
        return float(np.sqrt(self.X.shape[1] + 1))

    @property
    def parts(self) -> tuple[Any, ...]:
        """What a PAC mechanism reads."""
        return (self.X,) if self.y is None else (self.X, self.y)


Judged = Callable[[Vector, ContenderRecords], float]
Method = Callable[[ContenderRecords, float, int], DPRelease]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model with all ways to release it."""

    mechanism: Callable[[], Any]
    vector: Callable[[Any], Vector]
    judge: Judged
    metric: str
    larger_is_better: bool
    methods: Mapping[str, Method]
    target: str | None


def _mean_error(vector: Vector, test: ContenderRecords) -> float:
    return float(np.sqrt(np.mean(np.square(vector - test.X.mean(axis=0)))))


def _squared_error(vector: Vector, test: ContenderRecords) -> float:
    assert test.y is not None  # ridge has a target
    return float(np.mean(np.square(test.with_constant @ vector - test.y)))


def _accuracy(vector: Vector, test: ContenderRecords) -> float:
    assert test.y is not None  # logistic regression has a target
    return float(np.mean((test.with_constant @ vector > 0) == (test.y > 0)))


def _affine(value: Mapping[str, Any]) -> Vector:
    """Return coefficients and intercept as one vector."""
    return np.append(np.ravel(value["coef"]), np.ravel(value["intercept"]))


def _laplace_mean(records: ContenderRecords, epsilon: float, seed: int) -> DPRelease:
    n, d = records.X.shape
    total = [dp.sum_clipped(column[:, None], clip_norm=1.0)[0] for column in records.X.T]
    release = dp.laplace(
        np.array(total) / n,
        sensitivity=ROUNDED * d / n,
        epsilon=epsilon,
        neighbours="add_remove",
        simulate=seed,
    )
    # A record moves each mean by 1/n at most: as many runs on one number, not one that moves by
    # d/n at once, which is what the certificate of a sum of absolute values has to reckon with.
    each = dp.LaplaceEvent(noise_multiplier=d / epsilon, count=d, n_numbers=1)
    advantage = dp.advantage(each, neighbours="add_remove")
    certificate = replace(
        release.certificate,
        advantage=advantage,
        assumptions=(
            f"Each of {d} features is within a declared range, and moves its mean by 1/n at most.",
            *release.certificate.assumptions[1:],
        ),
    )
    return DPRelease(value=release.value, certificate=certificate)


def _gaussian_mean(records: ContenderRecords, epsilon: float, seed: int) -> DPRelease:
    n, d = records.X.shape
    bound = float(np.sqrt(d))
    total = dp.sum_clipped(records.X, clip_norm=bound)
    return dp.gaussian(
        total / n,
        sensitivity=ROUNDED * bound / n,
        epsilon=epsilon,
        delta=records.delta,
        neighbours="add_remove",
        simulate=seed,
    )


def _settings(records: ContenderRecords, epsilon: float, seed: int) -> dict[str, Any]:
    """Return what every method of regression is told."""
    return {
        "X": records.with_constant,
        "y": records.parts[1],
        "x_bound": records.x_bound,
        "epsilon": epsilon,
        "delta": records.delta,
        "simulate": seed,
    }


def _adassp(records: ContenderRecords, epsilon: float, seed: int) -> DPRelease:
    found = dp.adassp(y_bound=1.0, **_settings(records, epsilon, seed))
    return DPRelease(value=found.value["coef"], certificate=found.certificate)


def _descent(
    records: ContenderRecords, epsilon: float, seed: int, *, loss: Any, batch: Any
) -> DPRelease:
    # Rates follow from the noise; but squares do not flatten out, and long steps overshoot there.
    steps = dp.Steps(
        n_steps=N_STEPS,
        clip_norm=CLIP_NORM * records.x_bound,
        momentum=0.9,
        squares=0.99 if isinstance(loss, dp.Squared) else 0.0,
    )
    return dp.dp_sgd(loss=loss, batch=batch, steps=steps, **_settings(records, epsilon, seed))


def _statistics(records: ContenderRecords, epsilon: float, seed: int) -> DPRelease:
    found = dp.regression_from_statistics(y_bound=1.0, **_settings(records, epsilon, seed))
    return DPRelease(value=found.value["coef"], certificate=found.certificate)


def _ridge_output(records: ContenderRecords, epsilon: float, seed: int) -> DPRelease:
    return dp.ridge_output_perturbation(y_bound=1.0, **_settings(records, epsilon, seed))


def _output(records: ContenderRecords, epsilon: float, seed: int) -> DPRelease:
    penalty = OUTPUT_PENALTY * max(1.0, 2.5 / epsilon) * records.x_bound**2
    settings = _settings(records, epsilon, seed)
    return dp.output_perturbation(classes=(-1.0, 1.0), penalty=penalty, **settings)


def _objective(records: ContenderRecords, epsilon: float, seed: int) -> DPRelease:
    least = dp.least_penalty(epsilon, x_bound=records.x_bound)
    penalty = max(OBJECTIVE_PENALTY * records.x_bound**2, 6 * least)
    settings = _settings(records, epsilon, seed)
    return dp.objective_perturbation(classes=(-1.0, 1.0), penalty=penalty, **settings)


def _gradient_descent(loss: Any) -> Method:
    return lambda records, epsilon, seed: _descent(
        records, epsilon, seed, loss=loss, batch=dp.FullBatch(n_public=len(records.X))
    )


def _stochastic_descent(loss: Any) -> Method:
    def run(records: ContenderRecords, epsilon: float, seed: int) -> DPRelease:
        n = len(records.X)
        batch = dp.PoissonBatch(size=max(1.0, n / 10), n_public=n)
        return _descent(records, epsilon, seed, loss=loss, batch=batch)

    return run


_LOGISTIC: Final = dp.Logistic(classes=(-1.0, 1.0))
_SQUARED: Final = dp.Squared(y_bound=1.0)

MODELS: Final[dict[str, Model]] = {
    "mean": Model(
        mechanism=Mean,
        vector=np.ravel,
        judge=_mean_error,
        metric="rms error",
        larger_is_better=False,
        methods={"Laplace": _laplace_mean, "Gaussian": _gaussian_mean},
        target=None,
    ),
    "ridge": Model(
        mechanism=JointRidge,
        vector=_affine,
        judge=_squared_error,
        metric="squared error",
        larger_is_better=False,
        methods={
            "AdaSSP": _adassp,
            "noisy statistics": _statistics,
            "output perturbation": _ridge_output,
            "DP-GD": _gradient_descent(_SQUARED),
            "DP-SGD": _stochastic_descent(_SQUARED),
        },
        target="numbers",
    ),
    "logistic": Model(
        mechanism=LogisticFit,
        vector=_affine,
        judge=_accuracy,
        metric="accuracy",
        larger_is_better=True,
        methods={
            "output perturbation": _output,
            "objective perturbation": _objective,
            "DP-GD": _gradient_descent(_LOGISTIC),
            "DP-SGD": _stochastic_descent(_LOGISTIC),
        },
        target="two classes",
    ),
}
