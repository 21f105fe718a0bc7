"""What a comparison found: one row for each rule and each method, and how it is measured."""

import html
import textwrap
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from pacprivacy._checks import Matrix, Vector, as_floats
from pacprivacy._random import SimulatedSource, coerce_seed, public_generator
from pacprivacy.budget import Membership
from pacprivacy.comparison.advice import Advice, advise
from pacprivacy.comparison.contenders import MODELS, ContenderRecords, Model
from pacprivacy.dp import DPCertificate, calibrate_to_advantage
from pacprivacy.errors import BudgetError, DataError, PacPrivacyError
from pacprivacy.mechanism import Data, coerce_data
from pacprivacy.reporting import plot_comparison
from pacprivacy.session import Rehearsal
from pacprivacy.simulation import Outputs

WIDTH: Final = 80
LARGE: Final = (10.0, 1000.0)  # from here on two decimals, or four digits, are enough
SMALL: Final = 1e-3
PROMISES: Final = {
    "PAC": (
        "PAC bounds what anyone learns about *which half of a known universe* was used. It does "
        "not hide that a record is in the universe at all, and the noise is found by looking at "
        "the whole universe."
    ),
    "DP": (
        "DP bounds what anyone learns about *whether a record is in the data at all*, whatever "
        "the other records are and whoever knows them. It needs bounds that were fixed without "
        "looking at the data, and pays for the worst data set that they allow."
    ),
}


Family: TypeAlias = Literal["PAC", "DP"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One way to release a model, at the success that all rows share; public.

    ``utility`` is a mean over simulated releases; ``distance`` the root mean square distance of
    released parameters from the fit on all records. ``advantage`` is that of the best attacker on a
    method of differential privacy (``δ`` at ``ε = 0`` of its own privacy-loss distribution, or the
    best bound on it that is proved): at most ``2 success - 1``, and at least 99.9 % of it. ``note``
    says why a method could not be run, or what it needs.
    """

    family: Family
    method: str
    utility: float | None
    standard_error: float | None
    distance: float | None
    success: float
    mi_nats: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    advantage: float | None = None
    neighbours: str | None = None
    n_releases: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Rows for one data set and one model; made from simulations, for the curator's eyes."""

    model: str
    metric: str
    larger_is_better: bool
    without_privacy: float
    success: float
    n_records: int
    rows: tuple[ComparisonRow, ...]

    @property
    def advantage(self) -> float:
        """What the success is above a blind guess, of what it could be: ``2 success - 1``."""
        return 2.0 * self.success - 1.0

    @property
    def advice(self) -> Advice | None:
        """What was measured for this task on public data, tuned; None where nothing was."""
        return advise(self.model, success=self.success)

    def best(self, family: Family) -> ComparisonRow:
        """Return the row of a family with the best utility."""
        mine = [row for row in self.rows if row.family == family and row.utility is not None]
        sign = -1.0 if self.larger_is_better else 1.0
        return min(mine, key=lambda row: sign * float(row.utility or 0.0))

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the utility of every row; a figure for a notebook, and a file if asked."""
        return plot_comparison(self, path)

    def to_public_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON types."""
        advice = None if self.advice is None else self.advice.to_public_dict()
        return asdict(self) | {
            "advantage": self.advantage,
            "promises": PROMISES,
            "advice": advice,
        }

    def __str__(self) -> str:
        lines = [
            f"{self.model}, {self.n_records} records: {self.metric} "
            f"({self.without_privacy:.4g} without privacy),",
            f"at a guaranteed membership success of {100 * self.success:.2f} % (blind guess: 50 %)",
            "",
            f"{'':4}{'method':<22}{self.metric:>16}{'distance':>9}{'δ(0)':>8}  promise",
        ]
        for row in self.rows:
            family, method, utility, distance, advantage, promise = _cells(row)
            line = f"{family:<4}{method:<22}{utility:>16}"
            if not row.note:
                line += f"{distance:>9}{advantage:>8}"
            lines.append(f"{line}  {promise}")
        lines += [
            "",
            "δ(0): advantage of the best attacker on a DP method, by its own loss",
            f"distribution; it may be {self.advantage:.4f}.",
        ]
        if any(row.neighbours == "replace" for row in self.rows):
            lines.append("* about the content of a record; the number of records is public")
        lines += ["", "Simulated releases: seeded, they protect nobody."]
        for text in PROMISES.values():
            lines.append(textwrap.fill(text.replace("*", ""), WIDTH))
        return "\n".join(lines if self.advice is None else [*lines, "", str(self.advice)])

    def _repr_html_(self) -> str:
        names = ("", "method", self.metric, "distance", "δ(0)", "promise")
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in _cells(row))}</tr>"
            for row in self.rows
        )
        title = html.escape(
            f"{self.model} at {100 * self.success:.2f} % membership success; "
            f"{self.without_privacy:.4g} without privacy"
        )
        said = [*PROMISES.values(), *([] if self.advice is None else [str(self.advice)])]
        notes = "".join(f"<p>{html.escape(text)}</p>" for text in said)
        return f"<div><p><b>{title}</b></p><table><tr>{head}</tr>{body}</table>{notes}</div>"


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    """Return one line of the table."""
    distance = "" if row.distance is None else f"{row.distance:.3g}"
    advantage = "" if row.advantage is None else f"{row.advantage:.4f}"
    return row.family, row.method, _utility(row), distance, advantage, _promise(row)


def _utility(row: ComparisonRow) -> str:
    if row.utility is None:
        return "not run"
    if row.utility >= LARGE[1]:
        return f"{row.utility:.4g}"
    if 0 < row.utility < SMALL:
        return f"{row.utility:.1e} ± {row.standard_error or 0:.0e}"
    digits = 2 if row.utility >= LARGE[0] else 4
    return f"{row.utility:.{digits}f} ± {row.standard_error or 0:.{digits}f}"


def _promise(row: ComparisonRow) -> str:
    if row.note:
        return row.note
    if row.epsilon is not None:
        other = " *" if row.neighbours == "replace" else ""
        return f"ε {row.epsilon:.3g}, δ {row.delta or 0.0:.1g}{other}"
    return f"{row.mi_nats:.3g} nats" if row.mi_nats is not None else ""


RULES: Final = ("diagonal", "waterfill", "exact", "risk")
TEST_SHARE: Final = 0.25


def compare(
    X: Any,
    y: Any = None,
    *,
    model: str,
    success: float,
    ranges: tuple[Any, Any],
    target_range: tuple[float, float] | None = None,
    test: tuple[Any, Any] | None = None,
    delta: float | None = None,
    rules: tuple[str, ...] = RULES,
    n_subsets: int = 256,
    n_releases: int = 200,
    n_dp_releases: int = 20,
    rng: np.random.Generator | int | None = None,
) -> Comparison:
    """Release one model in every way the library knows, at equal guaranteed membership success.

    Parameters
    ----------
    X, y : arrays of shapes (n, d) and (n,)
        Records; the target is left out for ``model="mean"``.
    model : {"mean", "ridge", "logistic"}
        What is fitted.
    success : float in (1/2, 1)
        The best attacker's success at guessing one record's membership, for every row: a PAC
        budget ``Membership(success)``, and for each method of differential privacy the ``ε`` at
        which its own advantage is ``2 success - 1``.
    ranges : pair of numbers or of arrays of length d
        Least and largest value of every feature. Features are clipped to them; they must be known
        without these records, since DP rests on them.
    target_range : pair of numbers, optional
        The same for the target of ``ridge``.
    test : pair of arrays, optional
        Rows on which the models are judged; by default a quarter of the records is kept out.
    delta : float, optional
        Where the ``ε`` of a method is read; ``1/n^1.5`` by default. The noise follows from the
        success; ``delta`` has next to no part in it.
    rules : tuple of str
        PAC noise rules.
    n_subsets, n_releases, n_dp_releases : int
        Candidates of the pool, and simulated releases of every row.
    rng : Generator or int, optional
        Seed of everything: a comparison protects nobody.

    Returns
    -------
    Comparison
        For the curator: it was computed from the records without a promise.

    Guarantee
    ---------
    Claim DP-30. ``δ(0)`` of every row of differential privacy is at most ``2 success - 1``, and at
    least 99.9 % of it: none is given more noise than the success asks for.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(200, 2))
    >>> found = compare(X, model="mean", success=0.7, ranges=(-1, 1), n_subsets=16)
    >>> found.rows[0].family, found.metric
    ('PAC', 'rms error')
    """
    if model not in MODELS:
        raise DataError(f"model must be one of {', '.join(MODELS)}; got {model!r}. Use 'logistic'.")
    chosen, promise, seed = MODELS[model], Membership(success), coerce_seed(rng)
    declared = (ranges, target_range)
    train, judged = _read(X, y, chosen, declared, test=test, delta=delta, seed=seed)
    task = _Task(model=chosen, train=train, judged=judged, promise=promise, seed=seed)
    rows = task.pac_rows(rules, n_subsets, n_releases)
    rows += [task.dp_row(name, n_dp_releases) for name in chosen.methods]
    return Comparison(
        model=model,
        metric=chosen.metric,
        larger_is_better=chosen.larger_is_better,
        without_privacy=chosen.judge(task.goal, judged),
        success=promise.success,
        n_records=len(train.X),
        rows=tuple(rows),
    )


def _read(
    X: Any,
    y: Any,
    model: Model,
    declared: tuple[Any, Any],
    *,
    test: tuple[Any, Any] | None,
    delta: float | None,
    seed: int,
) -> tuple[ContenderRecords, ContenderRecords]:
    """Map features and target to [-1, 1]; return the records, and the rows that judge."""
    ranges, target_range = declared
    features = _mapped(X, ranges, "ranges")
    target = _target(y, len(features), model, target_range)
    kept = 1 / len(features) ** 1.5 if delta is None else delta
    if not 0.0 < kept < 1.0:
        raise BudgetError(f"delta must be between 0 and 1; got {delta!r}. Use below 1/n.")
    whole = ContenderRecords(X=features, y=target, delta=kept)
    if target is None:
        return whole, whole
    if test is not None:
        others = _mapped(test[0], ranges, "ranges")
        judged = _target(test[1], len(others), model, target_range, like=y)
        return whole, ContenderRecords(X=others, y=judged, delta=kept)
    order = public_generator(seed, "split").permutation(len(features))
    cut = int(TEST_SHARE * len(features))
    parts = [
        ContenderRecords(X=features[i], y=target[i], delta=kept) for i in (order[cut:], order[:cut])
    ]
    return parts[0], parts[1]


def _mapped(values: Any, declared: tuple[Any, Any], name: str) -> Matrix:
    """Clip to a declared range and map it to [-1, 1]."""
    array = as_floats("values", values)
    array = array[:, None] if array.ndim == 1 else array
    low, high = (as_floats(name, end) for end in declared)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise DataError(
            f"{name} must be two finite ends, the first below the second. Declare what the "
            "values can be, without looking at them."
        )
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise DataError("X must be a table of finite numbers. Drop or fill missing entries.")
    if low.ndim and low.shape != (array.shape[1],):
        raise DataError(
            f"{name} must have one pair for each of {array.shape[1]} features; got {low.size}. "
            "Give one pair of numbers to use it for all."
        )
    mapped: Matrix = 2 * (np.clip(array, low, high) - low) / (high - low) - 1
    return mapped


def _target(
    y: Any, n: int, model: Model, target_range: tuple[float, float] | None, like: Any = None
) -> Vector | None:
    if model.target is None:
        return None
    if y is None or len(y) != n:
        raise DataError(f"y must hold one target for each of {n} records. Pass X and y.")
    if model.target == "numbers":
        if target_range is None:
            raise DataError(
                "target_range must be declared for ridge; got None. Give the least and the "
                "largest value that a target can have."
            )
        return np.asarray(_mapped(y, target_range, "target_range")[:, 0], dtype=np.float64)
    labels = np.unique(np.asarray(y if like is None else like))
    if len(labels) != 2 or not np.isin(np.asarray(y), labels).all():
        raise DataError(
            f"y must have two classes for logistic; got {len(labels)}. "
            "Compare one class against the rest."
        )
    return np.where(np.asarray(y) == labels[1], 1.0, -1.0)


@dataclass(frozen=True, kw_only=True)
class _Task:
    """What all rows share: the model, the records, and the success that is promised."""

    model: Model
    train: ContenderRecords
    judged: ContenderRecords
    promise: Membership
    seed: int

    @cached_property
    def data(self) -> Data:
        """What a PAC mechanism is given."""
        parts = self.train.parts
        return coerce_data(parts if len(parts) > 1 else parts[0])

    @cached_property
    def goal(self) -> Vector:
        """The parameters of the fit on all records, without any privacy."""
        mechanism = self.model.mechanism().prepare(self.data)
        fitted = mechanism.evaluate(self.data.parts, public_generator(0, "fit"))
        return self.model.vector(mechanism.finish(fitted))

    def pac_rows(
        self, rules: tuple[str, ...], n_subsets: int, n_releases: int
    ) -> list[ComparisonRow]:
        """Return one row for each rule; all rules see the same candidates."""
        rehearsal = Rehearsal(self.data, n_subsets=n_subsets, rng=self.seed, progress=False)
        outputs = rehearsal.run(self.model.mechanism())
        return [self._pac_row(rule, rehearsal, outputs, n_releases) for rule in rules]

    def _pac_row(
        self, rule: str, rehearsal: Rehearsal, outputs: Outputs, n_releases: int
    ) -> ComparisonRow:
        try:
            plan = rehearsal.calibrate(outputs, self.promise, rule=rule)
        except BudgetError as error:
            return self._refused("PAC", rule, error)
        rng = public_generator(self.seed, "releases")
        source = SimulatedSource(rng)
        found = [
            self.model.vector(outputs.restore(plan.value_of(plan.observe(int(secret), source))))
            for secret in rng.integers(outputs.n_subsets, size=n_releases)
        ]
        return replace(self._row("PAC", rule, found), mi_nats=plan.mi_upper)

    def dp_row(self, name: str, n_releases: int) -> ComparisonRow:
        """Return the row of a method, at the ``ε`` where its own advantage is what is asked."""
        method, train = self.model.methods[name], self.train
        try:
            epsilon = calibrate_to_advantage(
                lambda trial: _advantage(method(train, trial, self.seed).certificate),
                2.0 * self.promise.success - 1.0,
                delta=train.delta,
            )
            releases = [method(train, epsilon, self.seed + 1 + k) for k in range(n_releases)]
        except PacPrivacyError as error:
            return self._refused("DP", name, error)
        spent = releases[0].certificate
        return replace(
            self._row("DP", name, [np.ravel(release.value) for release in releases]),
            epsilon=spent.epsilon,
            delta=spent.delta,
            advantage=_advantage(spent),
            neighbours=spent.neighbours,
        )

    def _refused(self, family: Family, name: str, error: Exception) -> ComparisonRow:
        """Return the row of a method that cannot keep the promise on these records."""
        return ComparisonRow(
            family=family,
            method=name,
            utility=None,
            standard_error=None,
            distance=None,
            success=self.promise.success,
            note=f"refused ({type(error).__name__})",
        )

    def _row(self, family: Family, name: str, found: list[Vector]) -> ComparisonRow:
        utilities = np.array([self.model.judge(vector, self.judged) for vector in found])
        errors = [np.square(vector - self.goal).sum() for vector in found]
        return ComparisonRow(
            family=family,
            method=name,
            utility=float(utilities.mean()),
            standard_error=float(utilities.std(ddof=1) / np.sqrt(len(found))),
            distance=float(np.sqrt(np.mean(errors))),
            success=self.promise.success,
            n_releases=len(found),
        )


def _advantage(certificate: DPCertificate) -> float:
    return 2.0 * certificate.membership_bound - 1.0
