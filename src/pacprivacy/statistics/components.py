"""Principal components with a coin for every unit, from noisy means and second moments.

Noise goes to sums of columns and of their products, and is the least where it costs restoration:
on the products of a direction that is kept and one that is not. Components follow from the noisy
covariance matrix, which costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_count
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Data, fix_pca_signs, read_data_columns, symmetric_matrices
from pacprivacy.statistics.arrays import ArrayStatistic
from pacprivacy.statistics.formulas import MEAN_AND_COVARIANCE
from pacprivacy.statistics.unit_sums import UnitSums

MOST_COLUMNS: Final = 30  # whose sums and products one noise can be correlated over
READ_LESS: Final = 0.25  # weight of errors that do not change what is restored
LEAST_GAP: Final = 1 / 16  # between two eigenvalues, of the last one that is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalComponents(ArrayStatistic):
    """The leading principal components of up to 30 columns, with the mean and their variances.

    The released value is a dict with ``components`` (orthonormal rows, the largest variance first),
    ``mean``, ``explained_variance`` and ``explained_variance_ratio``, all functions of noisy sums.

    Parameters
    ----------
    n_components : int >= 1, public
        Number of components.

    Guarantee
    ---------
    Claim C-20. The value is a function of noisy sums over units, and of nothing else.
    """

    name = "PCA"
    formula = MEAN_AND_COVARIANCE
    has_errors: ClassVar[bool] = False
    n_components: int

    def __post_init__(self) -> None:
        advice = "Say how many directions to keep."
        check_count("n_components", self.n_components, 1, advice=advice)

    def prepare(self, data: Data) -> Self:
        """Check the number of columns."""
        n_columns = read_data_columns(data.parts, self.name).shape[1]
        if not self.n_components <= n_columns <= MOST_COLUMNS:
            raise MechanismError(
                f"PCA with coins must have at most {MOST_COLUMNS} columns, and as many as "
                f"components; got {n_columns} columns and n_components={self.n_components}. Use "
                "fewer, or a pool: pac.mechanism.PCA."
            )
        return self

    def output_slopes(self, contributions: UnitSums) -> npt.NDArray[np.float64]:
        """Return derivatives of the errors that matter to a restored row, in its own units."""
        total = contributions.total()
        moments = self.jacobian(total)[0]
        mean, covariance = _split_moments(self.value(total))
        n_columns, kept = len(mean), np.arange(len(mean)) < self.n_components
        variances, directions = _by_size(covariance)
        size = max(float(variances[0]), np.finfo(np.float64).tiny)
        least = max(float(variances[self.n_components - 1]), 1e-12 * size)
        first, second = np.triu_indices(n_columns)
        parted = kept[first] & ~kept[second]
        gaps = np.maximum(variances[first] - variances[second], LEAST_GAP * least)
        sizes = np.maximum(np.sqrt(np.abs(variances[first] * variances[second])), least)
        weights = np.where(parted, 1.0 / np.sqrt(gaps), READ_LESS / np.sqrt(sizes))
        turned = directions[first][:, first] * directions[second][:, second]
        turned += directions[first][:, second] * directions[second][:, first]
        turned[:, first == second] /= 2.0
        of_mean = np.where(kept, READ_LESS, 1.0)[:, None] * directions
        slopes = np.vstack(
            [of_mean @ moments[:n_columns], weights[:, None] * turned @ moments[n_columns:]]
        )
        return np.asarray(slopes[None])

    def finish(self, value: Any) -> dict[str, Any]:
        """Return the components of the released covariance matrix."""
        mean, covariance = _split_moments(np.asarray(value, dtype=np.float64))
        variances, directions = _by_size(covariance)
        variances = np.maximum(variances, 0.0)  # with noise some may be negative
        total = float(variances.sum())
        return {
            "components": fix_pca_signs(directions[: self.n_components]),
            "mean": mean,
            "explained_variance": variances[: self.n_components],
            "explained_variance_ratio": variances[: self.n_components] / (total or 1.0),
        }


def _split_moments(value: Vector) -> tuple[Vector, Matrix]:
    """Return means and covariance matrix, given means and an upper triangle."""
    n_columns = int((np.sqrt(9 + 8 * len(value)) - 3) / 2 + 0.5)
    return value[:n_columns], np.asarray(symmetric_matrices(value[None, n_columns:])[0])


def _by_size(covariance: Matrix) -> tuple[Vector, Matrix]:
    """Return eigenvalues, the largest first, and their directions, one a line."""
    rising, vectors = np.linalg.eigh(covariance)
    return rising[::-1], np.ascontiguousarray(vectors[:, ::-1].T)
