"""The rows of AdaSSP in the ridge tables of [DESIGN]: the differentially private comparison.

The paper's protocol as far as it is known: the coordinates and the split of the ridge tables, the
bounds read off the training rows (which no real release may do), ``δ = 1/n²``. The same budget is
given as ``ε`` with equal membership success. Two bounds are run: the largest norm, which the
published figures agree with, and the typical norm ``sqrt d`` with clipping, which serves AdaSSP
far better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from pacprivacy._random import public_generator
from pacprivacy.dp import adassp
from pacprivacy.experiments.design_data import load_regression
from pacprivacy.experiments.design_rows import published_list

__all__ = ["AdasspRow", "adassp_rows"]

EPSILONS: Final = (1.64, 0.73, 0.36, 0.18, 0.09)

Bound = Literal["largest norm", "typical norm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdasspRow:
    """Mean squared test error of AdaSSP at one ``ε``."""

    dataset: str
    bound: Bound
    epsilon: float
    delta: float
    utility: float
    standard_error: float
    n_releases: int
    published: float | None


def adassp_rows(*, n_releases: int = 200, seed: int = 0, **options: Any) -> list[AdasspRow]:
    """Return the errors of AdaSSP on red and white wine; ``options`` go to :func:`adassp`."""
    rows = []
    bounds: tuple[Bound, ...] = ("largest norm", "typical norm")
    for dataset in ("wine_red", "wine_white"):
        split = load_regression(dataset)
        published = published_list("adassp_test_mse", dataset)
        n, d = split.Z.shape
        for bound in bounds:
            norm = float(np.linalg.norm(split.Z, axis=1).max()) if bound[0] == "l" else d**0.5
            for i, epsilon in enumerate(EPSILONS):
                rng = public_generator(seed, f"adassp {dataset} {bound}", i)
                fits = [
                    adassp(
                        split.Z,
                        split.target,
                        epsilon=epsilon,
                        delta=n**-2.0,
                        x_bound=norm,
                        y_bound=float(np.abs(split.target).max()),
                        simulate=rng,
                        **options,
                    ).coef
                    for _ in range(n_releases)
                ]
                errors = split.test_errors(np.array(fits))
                rows.append(
                    AdasspRow(
                        dataset=dataset,
                        bound=bound,
                        epsilon=epsilon,
                        delta=n**-2.0,
                        utility=float(errors.mean()),
                        standard_error=float(errors.std() / np.sqrt(n_releases)),
                        n_releases=n_releases,
                        published=None if published is None else published[i],
                    )
                )
    return rows
