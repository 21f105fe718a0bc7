"""The two simple ways that noise reduction is compared with: doubling, and trusting a theorem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pacprivacy.dp import read_source
from pacprivacy.dp.accuracy_first.output import OutputNR
from pacprivacy.dp.accuracy_first.ridge import CovNR
from pacprivacy.dp.accuracy_first.search import as_release, invert_theory, search_by_doubling
from pacprivacy.dp.certificate import DPRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class DoublingMethod:
    """Release afresh with twice the ``ε`` until a noisy test is passed.

    Parameters
    ----------
    method : CovNR or OutputNR, public
        The model, its bounds and the accuracy asked for; levels start at ``1/n``.

    Guarantee
    ---------
    Claim AF-7. Stopping at step ``k`` has ex-post loss ``2 k Δ ln(T/γ)/α + (2^k - 1) ε_1``; with
    probability ``1 - γ`` a model that was accepted has excess risk at most ``α``.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(20_000, 2))
    >>> ridge = CovNR(alpha=0.02, penalty=0.01, x_bound=1.0, y_bound=1.0)
    >>> release = DoublingMethod(method=ridge).release(X, X[:, 0], simulate=0)
    >>> release.certificate.kind
    'dp-ex-post'
    """

    method: CovNR | OutputNR

    def release(
        self, X: Any, y: Any, *, simulate: np.random.Generator | int | None = None
    ) -> DPRelease:
        """Return the coefficients, in the units of the data, and what they cost."""
        problem, source = self.method.prepare(X, y), read_source(simulate)
        alpha, gamma = self.method.alpha, self.method.gamma
        found = search_by_doubling(problem, alpha=alpha, gamma=gamma, source=source)
        return as_release(
            problem,
            found,
            alpha=alpha,
            gamma=gamma,
            method="doubling",
            simulation=source.is_simulation,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TheoryInversion:
    """Release once, with the ``ε`` that the utility theorem demands for the accuracy.

    Parameters
    ----------
    method : CovNR or OutputNR, public
        The model, its bounds and the accuracy asked for.

    Guarantee
    ---------
    Claims AF-8 and AF-9. The ``ε`` depends on the number of records and of features only, so the
    promise is ordinary differential privacy.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(20_000, 2))
    >>> ridge = CovNR(alpha=0.02, penalty=0.01, x_bound=1.0, y_bound=1.0)
    >>> release = TheoryInversion(method=ridge).release(X, X[:, 0], simulate=0)
    >>> release.certificate.kind
    'dp'
    """

    method: CovNR | OutputNR

    def release(
        self, X: Any, y: Any, *, simulate: np.random.Generator | int | None = None
    ) -> DPRelease:
        """Return the coefficients, in the units of the data, and what they cost."""
        problem, source = self.method.prepare(X, y), read_source(simulate)
        alpha, gamma = self.method.alpha, self.method.gamma
        epsilon = problem.theory_epsilon(alpha)
        found = invert_theory(problem, epsilon=epsilon, source=source)
        return as_release(
            problem,
            found,
            alpha=alpha,
            gamma=gamma,
            method="theory inversion",
            simulation=source.is_simulation,
        )
