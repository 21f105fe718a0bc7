"""The mechanism's value on every subset of the pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy import mechanism as mechanisms
from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import coerce_seed
from pacprivacy._system import begin, expect, show_stages, single_threaded
from pacprivacy.errors import MechanismError
from pacprivacy.pool import Balanced, Pool
from pacprivacy.simulation.backends import (
    EVALUATING,
    Job,
    Notice,
    SubsetRun,
    coerce_for,
    collect_notices,
    seconds_after,
    show_notices,
)
from pacprivacy.simulation.checkpoint import read_header

SCHEMA_VERSION: Final = 1


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outputs:
    """Values of a mechanism on all subsets; ``values`` and ``seed`` are curator-only.

    Row ``k`` of ``values``, shape (m, d), is the flattened value on subset ``k``. ``public`` is
    what was computed from the whole universe or declared, ``published`` what of the universe the
    value shows. Each number was divided by its entry of ``scales``; see :func:`scale_outputs`. With
    ``rounds``, released numbers are counts. ``model`` says how the value is applied to new rows,
    ``own_units`` that its numbers are of several kinds.
    """

    values: npt.NDArray[np.float64] = field(repr=False)
    structure: mechanisms.Structure
    mechanism_name: str
    public: tuple[str, ...] = ()
    published: tuple[str, ...] = ()
    seed: int = field(repr=False)
    finish: Callable[[Any], Any] = field(default=_unchanged, repr=False)
    scales: Vector | None = field(default=None, repr=False)
    rounds: bool = field(default=False, repr=False)
    model: Mapping[str, Any] | None = field(default=None, repr=False)
    own_units: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        values = np.ascontiguousarray(self.values, dtype=np.float64).view()
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @property
    def n_subsets(self) -> int:
        """Number of subsets m."""
        return int(self.values.shape[0])

    @property
    def n_outputs(self) -> int:
        """Length d of the measured vector."""
        return int(self.values.shape[1])

    def restore(self, vector: npt.ArrayLike, *, exact: bool = False) -> Any:
        """Turn a released vector into the value the user sees (claim M-1).

        ``exact`` leaves counts as they are, unrounded.
        """
        numbers = np.asarray(vector, dtype=np.float64)
        if self.scales is not None and numbers.shape == self.scales.shape:
            numbers = numbers * self.scales
        if self.rounds and not exact:
            numbers = numbers.round() + 0.0  # no minus sign before a zero
        return self.finish(self.structure.restore(numbers))

    def to_public_dict(self) -> dict[str, Any]:
        """Return what may be published, as plain JSON types."""
        return {
            "schema_version": SCHEMA_VERSION,
            "mechanism": self.mechanism_name,
            "output": self.structure.describe(),
            "n_subsets": self.n_subsets,
            "n_outputs": self.n_outputs,
            "public": list(self.public),
        }


def value_on_all(mechanism: Any, data: mechanisms.Data) -> Vector:
    """Return the mechanism's value on all records, flattened; curator-only."""
    prepared = prepare(mechanism, data)
    batch = mechanisms.mechanism_batch(prepared)
    if batch is not None and mechanisms.is_data_streamed(data):
        bits = np.packbits(np.ones((2, data.n_rows), dtype=np.uint8), axis=1)
        law: dict[str, Any] = {"scheme": "all", "prior": 1.0, "independent": False, "folds": 1}
        with mechanisms.sums_made_by(_sums_of(data)):
            values: Matrix = batch(data, Pool(bits=bits, n_units=data.n_rows, **law))
        return np.asarray(values[0])
    everyone = data.take(np.arange(data.n_rows))
    return mechanisms.flatten(prepared.evaluate(everyone, np.random.default_rng(0)))[0]


def _sums_of(data: mechanisms.Data) -> Any:
    """Return who makes sums over subsets of the universe, where it is not this process."""
    first = data.parts[0]
    return first.subset_sums if isinstance(first, mechanisms.SparkDataset) else None


def prepare(mechanism: Any, data: mechanisms.Data) -> mechanisms.Mechanism:
    """Fix a mechanism with the universe; refuse one that cannot read it in passes but should."""
    given = mechanisms.as_mechanism(mechanism)
    whole = mechanisms.mechanism_batch(given) is not None and not mechanisms.mechanism_streams(
        given
    )
    if whole and mechanisms.is_data_streamed(data):
        raise MechanismError(
            f"a mechanism over a Dataset must read it in passes; got {given.name}, which needs "
            "all rows at once. Use Mean, Covariance, Histogram, Quantiles, JointRidge, "
            "OrthogonalRidge or LogisticFit, a function, or load the columns into memory."
        )
    return given.prepare(data)


_SAMPLE_ROWS: Final = 4096  # of files, on which batch and evaluate are compared
_TOLERANCE: Final = 1e-8  # far above rounding, far below any real difference in the formula


def run_at_once(
    batch: mechanisms.Batch, job: Job, pool: Pool
) -> tuple[Matrix, mechanisms.Structure]:
    """Return the values of all subsets and their structure, which is that of ``evaluate``.

    The shape, the finiteness, and the value on the first subset are checked; of files, the value
    on half of a few thousand rows from all over them.
    """
    with mechanisms.sums_made_by(_sums_of(job.data)):
        values = np.asarray(batch(job.data, pool), dtype=np.float64)
    first = values[0]
    if mechanisms.is_data_streamed(job.data):
        rows = np.arange(0, job.data.n_rows, -(-job.data.n_rows // _SAMPLE_ROWS))
        parts = job.data.take(rows)
        sample = mechanisms.Data(parts=parts, n_rows=len(rows), single=job.data.single)
        few = Balanced(n_subsets=2).draw(len(rows), rng=0)
        first = np.asarray(batch(sample, few), dtype=np.float64)[0]
        vector, structure = replace(job, data=sample).evaluate(0, few.rows(0))
    else:
        vector, structure = job.evaluate(0, pool.rows(0))
    if values.shape != (pool.n_subsets, vector.size):
        raise MechanismError(
            f"batch must return shape {(pool.n_subsets, vector.size)}; got {values.shape}. "
            "It must agree with evaluate."
        )
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if bad.size:
        raise MechanismError(
            f"the mechanism failed on subset {bad[0]}: value must be finite; got NaN or infinite "
            "entries. Use more records per subset or a mechanism that is defined on few."
        )
    agreement = getattr(job.mechanism, "agreement", _TOLERANCE)  # of what is not double precision
    tolerance = agreement * float(np.abs(vector).max())
    if np.abs(vector - first).max() > tolerance:
        raise MechanismError(
            "batch must agree with evaluate; got another value on subset 0. "
            "Compute the same function in both."
        )
    return values, structure


def run_mechanism(
    mechanism: Any,
    data: Any,
    pool: Pool,
    *,
    n_jobs: int | None = None,
    backend: str | None = None,
    checkpoint: str | Path | None = None,
    rng: np.random.Generator | int | None = None,
    progress: bool | None = None,
) -> Outputs:
    """Evaluate a mechanism on all subsets of a pool; none is left out.

    ``n_jobs``, ``backend``, ``checkpoint`` and ``progress`` are those of
    :func:`pacprivacy.privatize`. ``rng`` seeds the mechanism's public streams; None draws a fresh
    seed, or takes that of the checkpoint. Mechanisms that
    evaluate all subsets at once write no checkpoint.

    Guarantee
    ---------
    Claim M-2. Assumes that the mechanism is a function of its subset and of ``rng``. The result
    does not depend on workers, on batches or on restarts, to the last bit.
    """
    universe = coerce_for(pool, data)
    path = None if checkpoint is None else Path(checkpoint)
    prepared = prepare(mechanism, universe)
    header = None if path is None or rng is not None else read_header(path)
    seed = coerce_seed(rng) if header is None else header.seed
    job = Job(mechanism=prepared, data=universe, seed=seed)
    run = SubsetRun(job=job, pool=pool, path=path)
    own: list[Notice] = []
    try:
        with show_stages(progress), collect_notices(own), single_threaded():
            batch = mechanisms.mechanism_batch(prepared)
            if batch is not None:
                expect({EVALUATING: 1.0, **seconds_after(pool.n_subsets, pool.n_units)})
                begin(EVALUATING)
                values, structure = run_at_once(batch, job, pool)
            else:
                values, structure = run.execute(n_jobs=n_jobs, backend=backend)
    except BaseException:
        with suppress(Warning):  # a filter that makes warnings errors must not hide this one
            show_notices([*own, *run.notices])
        raise
    show_notices([*own, *run.notices])
    totals, said = mechanisms.mechanism_totals(prepared), prepared.public
    if totals is not None:
        share = pool.share
        values = values / share
        said = (*said, TOTALS[totals].format(share=f"{share:.4g}"))
    return Outputs(
        values=values,
        structure=structure,
        mechanism_name=prepared.name,
        public=said,
        published=mechanisms.mechanism_published(prepared),
        seed=seed,
        finish=prepared.finish,
        rounds=totals == "count",
        model=mechanisms.mechanism_model(prepared),
        own_units=mechanisms.mechanism_own_units(prepared),
    )


TOTALS: Final = {
    "sum": "sums are estimates for all records: those of a candidate divided by {share}, its share",
    "count": "counts are estimates for all records: those of a candidate divided by {share}, its "
    "share, and rounded to whole numbers",
}
DISPARATE: Final = 100.0  # spreads that differ by less share one unit of noise
ALIKE: Final = 2.0  # the same, where numbers are of several kinds
OWN_SCALE: Final = 64  # numbers of a larger array are of one kind, and share a scale
SHOWN_SCALES: Final = 8
FLAT: Final = 1e-12  # a spread below this share of the number's size is rounding error


def scale_outputs(outputs: Outputs) -> Outputs:
    """Give outputs of very different size a unit each, so that none drowns in another's noise.

    The noise rules make the *total* noise small. Where spreads over the pool differ by more than
    100, or than 2 where a mechanism has numbers of several kinds, each number is divided by its
    own spread, rounded to a power of two (exact in floating point); arrays of more than 64 numbers
    have one unit. The released value is in its own units again. The scales are the same for all
    candidates, and the certificate names them.
    """
    values = outputs.values
    spread, size = np.ptp(values, axis=0), np.abs(values).max(axis=0)
    spread = np.where(spread > FLAT * size, values.std(axis=0), 0.0)
    for part in outputs.structure.parts():
        if part.stop - part.start > OWN_SCALE:
            spread[part] = np.sqrt(np.square(spread[part]).mean())
    moves = spread[spread > 0]
    shared = ALIKE if outputs.own_units else DISPARATE
    if not moves.size or moves.max() <= shared * moves.min():
        return outputs
    scales = np.exp2(np.round(np.log2(np.where(spread > 0, spread, moves.max()))))
    listed = f"from {scales.min():.3g} to {scales.max():.3g}"
    if len(scales) <= SHOWN_SCALES:
        listed = ", ".join(f"{scale:.3g}" for scale in scales)
    said = (
        "units of the noise: every number divided by its spread over the pool, rounded to a power "
        f"of two ({listed}); noise figures are in these units"
    )
    listed_too = (*outputs.published, said)
    return replace(outputs, values=values / scales, scales=scales, published=listed_too)
