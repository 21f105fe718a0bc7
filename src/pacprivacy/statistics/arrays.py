"""Means, variances, covariances, histograms and principal components of arrays."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Matrix, Vector, as_floats, check_count
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import (
    Data,
    fix_pca_signs,
    fixed_mechanism,
    read_data_columns,
    read_data_numbers,
    symmetric_matrices,
)
from pacprivacy.statistics.declared import Declaration, DeclaredColumn
from pacprivacy.statistics.unit_sums import (
    CORRELATION,
    MEAN,
    MEAN_AND_COVARIANCE,
    SUM,
    Formula,
    Sums,
    SumStatistic,
    UnitSums,
    bin_of,
    covariance_formula,
    round_centre,
    shape_block,
    slopes_of_block,
    value_of_block,
    variance_formula,
)

Edges = tuple[tuple[float, ...], ...]
_ROWS_AT_ONCE: Final = 1 << 12  # of a few columns: they stay in the cache
MOST_COLUMNS: Final = 30  # whose sums and products one noise can be correlated over
READ_LESS: Final = 0.25  # weight of errors that do not change what is restored
LEAST_GAP: Final = 1 / 16  # between two eigenvalues, of the last one that is kept


class ArrayStatistic(SumStatistic):
    """A formula of all columns of an array, without gaps or weights."""

    __slots__ = ()

    @property
    @abstractmethod
    def formula(self) -> Formula:
        """Summed features, and the function of the sums."""

    def _table(self, parts: tuple[Any, ...]) -> Matrix:
        return read_data_columns(parts, self.name)

    @np.errstate(over="ignore", invalid="ignore")  # what is too large is refused
    def contributions(self, data: Data, units: Integers | None = None) -> UnitSums:
        X = self._table(data.parts)
        mean, centre = X.mean(axis=0), np.zeros(X.shape[1])
        chunks = [slice(i, i + _ROWS_AT_ONCE) for i in range(0, len(X), _ROWS_AT_ONCE)]
        squares = np.zeros(X.shape[1])
        for rows in chunks:
            far = X[rows] - mean
            squares += np.einsum("ij,ij->j", far, far)
        deviations = np.sqrt(squares / len(X))
        if self.formula.centred:
            centre = round_centre(mean, deviations)
        width = shape_block(self.formula, X[:1] - centre, None, shared=True).shape[1]
        block = np.empty((len(X), width))
        for rows in chunks:
            block[rows] = shape_block(self.formula, X[rows] - centre, None, shared=True)
        return UnitSums.of_rows(
            block,
            units=units,
            centre=centre,
            scales=self._output_scales(np.where(deviations > 0, deviations, 1.0)),
        )

    def value(self, sums: Sums, keep: float = 1.0) -> Vector:
        n_columns = len(sums.centre)
        return value_of_block(self.formula, sums, n_columns, keep=keep, fill=None).ravel()

    def _output_scales(self, deviations: Vector) -> Vector | None:
        """Return the units in which errors of the outputs are compared; None: as they are."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistic(ArrayStatistic):
    """One number for every column, or one number for data of one column."""

    def _table(self, parts: tuple[Any, ...]) -> Matrix:
        X = read_data_numbers(parts, self.name)
        return X.reshape(len(X), -1)

    def shaped(self, numbers: Vector, data: Data) -> Any:
        row_shape = read_data_numbers(data.parts, self.name).shape[1:]
        return numbers.reshape(row_shape) if row_shape else float(numbers[0])

    def _output_scales(self, deviations: Vector) -> Vector | None:
        return deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(ColumnStatistic):
    """Mean over the rows: a number for one-dimensional data, else an array of one row's shape."""

    name = "Mean"
    formula = MEAN

    def jacobian(self, sums: Sums) -> npt.NDArray[np.float64]:
        return slopes_of_block(self.formula, sums, len(sums.centre))


@dataclass(frozen=True, slots=True, kw_only=True)
class Total(ColumnStatistic):
    """Sums of columns."""

    name = "Total"
    formula = SUM


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(ColumnStatistic):
    """Number of rows."""

    name = "Count"
    formula = SUM

    def _table(self, parts: tuple[Any, ...]) -> Matrix:
        return np.ones((len(parts[0]), 1))

    def shaped(self, numbers: Vector, data: Data) -> Any:
        return float(numbers[0])

    def _output_scales(self, deviations: Vector) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread(ColumnStatistic):
    """Variances of columns with the divisor n - ddof, or with ``root`` standard deviations."""

    name = "Spread"
    ddof: int = 0
    root: bool = False

    @property
    def formula(self) -> Formula:
        return variance_formula(self.ddof, root=self.root)

    def _output_scales(self, deviations: Vector) -> Vector | None:
        return deviations if self.root else np.square(deviations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Covariance(ArrayStatistic):
    """Covariance matrix of the columns.

    The measured vector is the upper triangle, row by row; the released value is the symmetric
    matrix. With noise it need not be positive semi-definite.

    Parameters
    ----------
    ddof : int, public
        The divisor is the number of rows of the subset minus ``ddof``; 1 as in ``numpy.cov``.
    """

    name = "Covariance"
    ddof: int = 1

    @property
    def formula(self) -> Formula:
        return covariance_formula(self.ddof)

    def finish(self, value: Any) -> Matrix:
        return np.asarray(symmetric_matrices(np.asarray(value, dtype=np.float64)[None])[0])

    def _output_scales(self, deviations: Vector) -> Vector | None:
        left, right = np.triu_indices(len(deviations))
        return np.asarray(deviations[left] * deviations[right])


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation(ArrayStatistic):
    """Correlation matrix of the columns; a constant column has correlation 0 with others.

    The measured vector is the upper triangle without the diagonal, row by row; the released value
    is the symmetric matrix with ones.
    """

    name = "Correlation"
    formula = CORRELATION

    def finish(self, value: Any) -> Matrix:
        triangle = np.asarray(value, dtype=np.float64).ravel()
        size = int((1 + np.sqrt(1 + 8 * len(triangle))) / 2 + 0.5)
        matrix = np.eye(size)
        left, right = np.triu_indices(size, 1)
        matrix[left, right] = matrix[right, left] = np.clip(triangle, -1.0, 1.0)
        return matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(ArrayStatistic):
    """Counts per bin, one histogram per column, as estimates for all records.

    As in ``numpy.histogram``, bins are half-open but the last one, and rows outside the range
    are not counted. The counts of a candidate are measured; a release divides them by the
    candidate's share of the units and rounds them.

    Parameters
    ----------
    bins : int or sequence of float, public
        Number of bins of equal width, or the edges themselves (the same for every column).
    ranges : pair of float, sequence of pairs, or None, public
        Lowest and highest edge, for all columns or for each; needed unless ``bins`` gives the
        edges.
    universe_facts : bool, public
        Take the exact minimum and maximum of every column over *all records* where there
        are no ranges; they leave with the edges, and the certificate says so.
    edges : optional
        Set by :meth:`prepare`.
    """

    name = "Histogram"
    formula = SUM
    bins: int | Sequence[float] = 10
    ranges: tuple[float, float] | Sequence[tuple[float, float]] | None = None
    totals: ClassVar[Literal["count"]] = "count"
    universe_facts: bool = False
    edges: Edges | None = None

    def __post_init__(self) -> None:
        if isinstance(self.bins, int | np.integer):
            if self.bins < 1:
                raise MechanismError(f"bins must be at least 1; got {self.bins}. Use about 10.")
            if self.ranges is None and not self.universe_facts:
                raise MechanismError(
                    "ranges must be given with a number of bins; got None. Write ranges=(0, 120), "
                    "or universe_facts=True to publish the exact minimum and maximum."
                )
        else:
            if self.ranges is not None:
                raise MechanismError(
                    "ranges must be None when bins gives the edges; got both. Drop one of them."
                )
            object.__setattr__(self, "bins", _check_edges(self.bins))

    @property
    def public(self) -> tuple[str, ...]:
        return () if self.published else ("histogram edges: declared by the curator",)

    @property
    def published(self) -> tuple[str, ...]:
        if self.ranges is None and isinstance(self.bins, int | np.integer):
            return ("histogram range: minimum and maximum of every column over all records",)
        return ()

    def prepare(self, data: Data) -> Self:
        X = read_data_columns(data.parts, self.name)
        return replace(self, edges=self._column_edges(X))

    @property
    def fixed_edges(self) -> Edges:
        """Edges by column, as :meth:`prepare` has set them."""
        return fixed_mechanism(self.edges, "edges")

    def contributions(self, data: Data, units: Integers | None = None) -> UnitSums:
        """Return the contribution of every unit to every bin, each of which is a cell."""
        X, edges = self._table(data.parts), np.asarray(self.fixed_edges)
        n_bins = edges.shape[1] - 1
        of_row = np.arange(len(X)) if units is None else units
        cells = [bin_of(X[:, j], each) for j, each in enumerate(edges)]
        return UnitSums.of_rows(
            np.ones((len(X) * len(edges), 1)),
            units=np.tile(of_row, len(edges)),
            cells=np.concatenate(
                [np.where(bins < n_bins, j * n_bins + bins, -1) for j, bins in enumerate(cells)]
            ),
            n_cells=len(edges) * n_bins,
            centre=np.zeros(len(edges)),
        )

    def declare(self, rows_per_unit: int) -> tuple[Self, Declaration]:
        edges = self.fixed_edges
        if self.published:
            raise MechanismError(
                "a histogram must have declared ranges where presence is hidden; got edges of the "
                "records. Write ranges=(0, 120)."
            )
        columns = tuple(
            DeclaredColumn(name=f"column {j}", low=each[0], high=each[-1])
            for j, each in enumerate(edges)
        )
        declaration = Declaration(
            statistic="histogram",
            columns=columns,
            n_cells=len(edges) * (len(edges[0]) - 1),
            rows_per_unit=rows_per_unit,
        )
        return self, declaration

    def value(self, sums: Sums, keep: float = 1.0) -> Vector:
        return np.asarray(sums.values.ravel() / keep)

    def jacobian(self, sums: Sums) -> npt.NDArray[np.float64]:
        return np.ones((len(sums.values), 1, 1))

    def shaped(self, numbers: Vector, data: Data) -> Any:
        row_shape = read_data_numbers(data.parts, self.name).shape[1:]
        return numbers.reshape(-1, len(self.fixed_edges[0]) - 1) if row_shape else numbers

    def finish(self, value: Any) -> dict[str, Any]:
        edges = np.asarray(self.fixed_edges)
        return {"counts": value, "edges": edges[0] if np.ndim(value) == 1 else edges}

    def _column_edges(self, X: Matrix) -> Edges:
        if not isinstance(self.bins, int | np.integer):
            edges = tuple(float(edge) for edge in self.bins)
            return (edges,) * int(X.shape[1])
        lows, highs = _limits(self.ranges, X)
        return tuple(
            tuple(np.linspace(low, high, int(self.bins) + 1).tolist())
            for low, high in zip(lows, highs, strict=True)
        )


def _limits(limits: Any, X: Matrix) -> tuple[Matrix, Matrix]:
    if limits is None:
        lows, highs = X.min(axis=0), X.max(axis=0)
        flat = lows == highs
        return np.where(flat, lows - 0.5, lows), np.where(flat, highs + 0.5, highs)
    pairs = np.asarray(limits, dtype=np.float64)
    if pairs.shape == (2,):
        pairs = np.tile(pairs, (X.shape[1], 1))
    if pairs.shape != (X.shape[1], 2) or not np.isfinite(pairs).all():
        raise MechanismError(
            f"ranges must be one pair (low, high) or one for each of {X.shape[1]} columns; got "
            f"shape {pairs.shape}. Write ranges=(0, 120)."
        )
    if not (pairs[:, 0] < pairs[:, 1]).all():
        raise MechanismError("ranges must have low < high; got an empty range. Swap the two.")
    return pairs[:, 0], pairs[:, 1]


def _check_edges(bins: Sequence[float]) -> tuple[float, ...]:
    edges = as_floats("bins", bins)
    if edges.ndim != 1 or len(edges) < 2 or not np.isfinite(edges).all():
        raise MechanismError(
            f"bins must be a count or at least two finite edges; got shape {edges.shape}. "
            "Write bins=10 or bins=[0, 1, 2]."
        )
    if not (np.diff(edges) > 0).all():
        raise MechanismError("bins must increase; got edges out of order. Sort them.")
    return tuple(edges.tolist())


# --- principal components ------------------------------------------------------------------------
#
# Noise goes to sums of columns and of their products, and is the least where it costs restoration:
# on the products of a direction that is kept and one that is not. Components follow from the noisy
# covariance matrix, which costs no privacy.


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
