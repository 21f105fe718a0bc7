"""Table 3 of [DESIGN]: AdaSSP, the differentially private comparison, on wine.

The paper's protocol as far as it is known: the coordinates and the split of the ridge tables, the
bounds read off the training rows (which no real release may do), ``δ = 1/n²``. Two bounds are run:
the largest norm, which the published figures agree with, and the typical norm ``sqrt d`` with
clipping, which serves AdaSSP far better. Both are run at two ``ε``. The paper's is that of pure
differential privacy with the membership success of the PAC budget; AdaSSP's noise is Gaussian, so
its own success is far below at that ``ε``. *Equal success* is the ``ε`` at which its own success
is that of the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final, Literal

import numpy as np

from pacprivacy._random import public_generator
from pacprivacy.dp import AdaSSP, adassp, calibrate_to_advantage
from pacprivacy.experiments.design_data import load_regression
from pacprivacy.experiments.design_rows import published_list
from pacprivacy.theory.posterior import success_for_epsilon

__all__ = ["AdasspRow", "adassp_rows"]

EPSILONS: Final = (1.64, 0.73, 0.36, 0.18, 0.09)

Bound = Literal["largest norm", "typical norm"]
Calibration = Literal["paper's epsilon", "equal success"]
BOUNDS: Final[tuple[Bound, ...]] = ("largest norm", "typical norm")
CALIBRATIONS: Final[tuple[Calibration, ...]] = ("paper's epsilon", "equal success")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdasspRow:
    """Mean squared test error of AdaSSP at one budget.

    ``pure_epsilon`` is the paper's ``ε`` and names the budget, ``success`` what it allows;
    ``epsilon`` is what AdaSSP was told, ``own_success`` what its noise allows.
    """

    dataset: str
    bound: Bound
    calibration: Calibration
    pure_epsilon: float
    success: float
    epsilon: float
    delta: float
    own_success: float
    utility: float
    standard_error: float
    n_releases: int
    published: float | None


def adassp_rows(*, n_releases: int = 200, seed: int = 0, **options: Any) -> list[AdasspRow]:
    """Return the errors of AdaSSP on red and white wine; ``options`` go to :func:`adassp`."""
    rows = []
    for dataset in ("wine_red", "wine_white"):
        split = load_regression(dataset)
        found = published_list("adassp_test_mse", dataset)
        published: list[float | None] = [*found] if found else [None] * len(EPSILONS)
        n, d = split.Z.shape
        largest = float(np.linalg.norm(split.Z, axis=1).max())
        for bound in BOUNDS:
            fit = partial(
                adassp,
                split.Z,
                split.target,
                delta=n**-2.0,
                x_bound=largest if bound == "largest norm" else d**0.5,
                y_bound=float(np.abs(split.target).max()),
                **options,
            )
            for calibration, (i, pure) in product(CALIBRATIONS, enumerate(EPSILONS)):
                told = pure if calibration == "paper's epsilon" else _equal_success(fit, pure, n)
                rng = public_generator(seed, f"adassp {dataset} {bound}", i)
                fits = [fit(epsilon=told, simulate=rng) for _ in range(n_releases)]
                errors = split.test_errors(np.array([found.coef for found in fits]))
                rows.append(
                    AdasspRow(
                        dataset=dataset,
                        bound=bound,
                        calibration=calibration,
                        pure_epsilon=pure,
                        success=success_for_epsilon(pure),
                        epsilon=told,
                        delta=n**-2.0,
                        own_success=fits[0].certificate.membership_bound,
                        utility=float(errors.mean()),
                        standard_error=float(errors.std() / np.sqrt(n_releases)),
                        n_releases=n_releases,
                        published=published[i] if calibration == "paper's epsilon" else None,
                    )
                )
    return rows


def _equal_success(fit: Callable[..., AdaSSP], pure: float, n_records: int) -> float:
    """Return the ``ε`` at which AdaSSP's own success is what pure privacy allows at another."""
    return calibrate_to_advantage(
        lambda epsilon: 2.0 * fit(epsilon=epsilon, simulate=0).certificate.membership_bound - 1.0,
        2.0 * success_for_epsilon(pure) - 1.0,
        delta=n_records**-2.0,
    )
