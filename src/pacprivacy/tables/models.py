"""Models of the command line: name, options, mechanism, and the names of its value.

A new model is one entry in :data:`MODELS`: a statistic of :mod:`pacprivacy.stats`, or a model of
numbers alone. For the latter, categories become columns of zeros and ones, and every candidate
leaves out rows with gaps or fills them. In a session the data are the rows of the file, so releases
of different models share one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np

from pacprivacy import ledger as ledgers, stats
from pacprivacy._checks import Array, Mask, Vector, quoted, suggestion
from pacprivacy.adversary import cap_success, session_cap
from pacprivacy.budget import AnyBudget, Information, Membership, Spent
from pacprivacy.design import OrthogonalRidge, RidgePenalty
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.mechanism import (
    PCA,
    Condition,
    Data,
    FilledMechanism,
    Forest,
    KMeans,
    LinearSVM,
    Mechanism,
    MechanismScaling,
    Named,
    NamedMechanism,
    RowsMechanism,
    Scaling,
    Value,
    check_data_classes,
    choose_data_pool,
    coerce_data,
    identity_warning,
)
from pacprivacy.sample import Balanced, Coins, Pool
from pacprivacy.session import LedgerPlace, SampleOptions, Session, pool_reason
from pacprivacy.statistics import Covariance, Histogram
from pacprivacy.tables.cells import Reading
from pacprivacy.tables.table import (
    STDIN,
    Table,
    check_table_columns,
    check_table_finite,
    read_table,
    table_identities,
    table_unit_labels,
)
from pacprivacy.tables.terms import (
    Categories,
    ModelOptions,
    Ranges,
    categories_as_fields,
    category_gap_notes,
    category_range_notes,
    category_rows_where,
    check_category_numbers,
    check_category_rows,
)

WithCoins = Literal["session", "alone"]  # functions of sums join a session, others stand alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of numbers.

    ``mechanism`` makes the model from options and names of columns; ``describe`` is that of
    :class:`NamedMechanism`; ``scaling`` uses all records (:class:`MechanismScaling`).
    ``predicts`` is the kind of the target. A model that ``learns`` keeps the target apart from the
    columns; for others the target is the only column. ``with_coins`` says whether coins are
    possible, in a session or alone. ``takes`` names options that other models refuse, ``needs``
    required options. ``kind`` is the key by which :func:`pacprivacy.tables.predict` applies it.
    """

    mechanism: Callable[[ModelOptions, tuple[str, ...]], Mechanism]
    describe: Callable[[MechanismScaling, Value], Named]
    scaling: Scaling = "none"
    predicts: Literal["class", "number"] | None = None
    learns: bool = True
    with_coins: WithCoins | None = None
    takes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    kind: str | None = None

    def build(self, table: Table, options: ModelOptions) -> Built:
        used = (learned_model_columns if self.learns else described_model_columns)(table, options)
        check_table_columns(table, used)
        categories = Categories.find(table, used, options, reference=self.predicts is not None)
        names, X = categories.expand(table, used)
        check_table_finite(X, names)
        gaps, kept = np.isnan(X).any(axis=1), category_rows_where(table, options.where)
        y = None
        if self.predicts is not None:
            assert options.target is not None  # find_model asks for it
            check_table_columns(table, [options.target])
            missing = table.columns[options.target].gaps
            kept, gaps = kept & ~missing, gaps & ~missing
            read = _class_labels if self.predicts == "class" else model_numbers
            y = read(table, options.target)
        complete = kept & ~gaps
        fills = options.missing == "mean" and bool((kept & gaps).any())
        kept = kept if fills else complete
        check_category_rows(complete)
        exact = options.universe_facts
        columns = MechanismScaling.of(names, X[complete], self.scaling, exact=exact)
        Z = (X[kept] - columns.centre) / columns.scales
        inner = self.mechanism(options, names)
        parts = (Z,) if y is None else (Z, y[kept])
        data = Data(parts=parts, n_rows=len(Z), single=y is None)
        mechanism: Mechanism = NamedMechanism(
            inner=FilledMechanism(inner=inner) if fills else inner,
            columns=columns,
            describe=self.describe,
            declarations=categories.declarations,
            facts=categories.facts,
            applied=self._applied(columns, categories, used, options),
        )
        return Built(
            mechanism=mechanism,
            data=data if fills else coerce_data(parts[0] if y is None else parts),
            kept=kept,
            notes=category_gap_notes(
                table,
                (*used, *((options.target,) if y is not None else ())),
                kept,
                where=options.where,
            )
            + categories.rare_notes(table),
        )

    def _applied(
        self,
        columns: MechanismScaling,
        categories: Categories,
        used: tuple[str, ...],
        options: ModelOptions,
    ) -> dict[str, Any] | None:
        if self.kind is None:
            return None
        return {
            "kind": self.kind,
            "target": options.target,
            "terms": [list(term) for term in categories.terms(used)],
            "levels": {
                name: list(categories.levels[name]) for name in used if name in categories.levels
            },
            "scales": columns.scales.tolist(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticModel:
    """A statistic of :mod:`pacprivacy.stats` on the command line.

    ``statistic`` makes it from options, columns and shared keyword arguments. ``described`` chooses
    the columns; None takes those of the options. The rest is as in :class:`Model`.
    """

    statistic: Callable[[ModelOptions, tuple[str, ...], dict[str, Any]], Mechanism]
    described: Callable[[Table, ModelOptions], tuple[str, ...]] | None = None
    takes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    with_coins: WithCoins | None = None
    predicts: None = None

    def build(self, table: Table, options: ModelOptions) -> Built:
        columns = options.columns or ()
        if self.described is not None:
            columns = self.described(table, options)
        condition = None if options.where is None else Condition(options.where)
        by, read = options.by or (), () if condition is None else condition.columns
        apart = [name for name in (options.target, options.weights) if name is not None]
        used = tuple(dict.fromkeys((*columns, *by, *apart, *read)))
        check_table_columns(table, used)
        shown = tuple(dict.fromkeys((*columns, *by)))
        categories = Categories.find(table, shown, options, grouped=by)
        numbers = [options.weights] if options.weights is not None else []
        check_category_numbers(table, numbers)
        shared = {
            name: getattr(options, name) for name in ("by", "where", "weights", "missing", "fill")
        }
        shared["levels"] = {name: options.levels[name] for name in options.levels if name in used}
        shared["categories"] = tuple(name for name in options.categories if name in used)
        dates = (name for name in read if table.columns[name].is_date)
        shared["ranges"] = self._ranges(table, columns, options)
        shared["date_formats"] = {name: table.columns[name].date_formats[0] for name in dates}
        data = categories_as_fields(table, used, options.levels) if used else np.zeros(table.n_rows)
        return Built(
            mechanism=self.statistic(options, columns, shared),
            data=coerce_data(data),
            kept=np.ones(table.n_rows, dtype=np.bool_),
            notes=category_gap_notes(
                table,
                used,
                category_rows_where(table, options.where),
                dropped=False,
                where=options.where,
            )
            + categories.rare_notes(table),
        )

    def _ranges(
        self, table: Table, columns: tuple[str, ...], options: ModelOptions
    ) -> dict[str, tuple[float, float]] | None:
        if options.ranges is None:
            return None
        coded = {*options.levels, *options.categories}
        names = tuple(
            name
            for name in columns
            if name not in coded and table.columns[name].numbers is not None
        )
        if isinstance(options.ranges, tuple):
            return dict.fromkeys(names, options.ranges)
        used = (*names, options.weights) if options.weights in options.ranges else names
        known = {name: pair for name, pair in options.ranges.items() if name not in table.names}
        model_ranges({**known, **_ranges_of(options.ranges, used)}, used)
        return _ranges_of(options.ranges, used)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Built:
    """A model of a table: its mechanism, its rows, and notes for the curator."""

    mechanism: Mechanism
    data: Data = field(repr=False)
    kept: Mask = field(repr=False)
    notes: tuple[str, ...] = field(repr=False)


def described_model_columns(table: Table, options: ModelOptions) -> tuple[str, ...]:
    """Return the columns to describe: the target, named columns, or all but the unit's."""
    if options.target is not None and options.columns is not None:
        raise DataError(
            "--target and --columns must not be given together for this model; got both. "
            "--target describes that one column alone."
        )
    if options.target is not None:
        return (options.target,)
    if options.columns is not None:
        return options.columns
    apart = (options.unit, options.weights, *(options.by or ()))
    names = tuple(name for name in table.names if name not in apart)
    if not names:
        raise DataError("the file must have a column besides the unit; got none. Add columns.")
    return names


def learned_model_columns(table: Table, options: ModelOptions) -> tuple[str, ...]:
    """Return the columns to learn from: named columns, or all but target, unit and weights."""
    names = options.columns
    if names is None:
        apart = (options.target, options.unit, options.weights)
        names = tuple(name for name in table.names if name not in apart)
    elif options.target in names:
        raise DataError(
            f"--columns must leave out the target; got {options.target!r} in both. Drop it there."
        )
    if not names:
        raise DataError("the file must have a column to learn from; got none. Add columns.")
    return names


def _ranges_of(
    ranges: Mapping[str, tuple[float, float]], names: tuple[str | None, ...]
) -> dict[str, tuple[float, float]]:
    return {name: pair for name, pair in ranges.items() if name in names}


def model_ranges(ranges: Ranges, names: tuple[str, ...]) -> tuple[tuple[float, float], ...]:
    """Return the declared range of every column; a single pair is for all columns."""
    if isinstance(ranges, tuple):
        return (ranges,) * len(names)
    missing = [name for name in names if name not in ranges]
    unknown = [name for name in ranges if name not in names]
    if missing or unknown:
        wrong = f"none for {missing[0]!r}" if missing else f"one for {unknown[0]!r}, unknown"
        raise DataError(
            f"--ranges must hold one range for every column that is used; got {wrong}. "
            f"The columns are {', '.join(names[:8])}."
        )
    return tuple(ranges[name] for name in names)


def _class_labels(table: Table, target: str) -> Array:
    column = table.columns[target]
    if column.numbers is None:
        return np.array([label or "" for label in column.labels])
    numbers = np.where(column.gaps, 0.0, column.numbers)
    if not np.isfinite(numbers).all() or (numbers % 1 != 0).any():
        raise DataError(
            f"column {target!r} must hold classes: text or whole numbers; got other numbers. "
            "Use --model ridge or ols to predict a quantity."
        )
    return numbers.astype(np.int64)


def model_numbers(table: Table, name: str) -> Vector:
    """Return a column of numbers, NaN for gaps."""
    check_category_numbers(table, [name])
    numbers = table.columns[name].numbers
    assert numbers is not None
    check_table_finite(numbers[:, None], [name])
    return numbers


def _crosstab(names: tuple[str, ...], shared: dict[str, Any]) -> Mechanism:
    if len(names) != 2:
        raise DataError(
            f"--columns must name two categories for --model crosstab; got {len(names)}. "
            "Write it as region,smoker."
        )
    del shared["by"]
    return stats.crosstab(*names, **shared)


def _count(declared: int | None, default: int) -> int:
    return default if declared is None else declared


def _declared(options: ModelOptions, names: tuple[str, ...]) -> Any:
    return None if options.ranges is None else model_ranges(options.ranges, names)


def _summary(
    make: Callable[..., Mechanism], *takes: str, with_coins: WithCoins = "session"
) -> StatisticModel:
    return StatisticModel(
        statistic=lambda _, names, shared: make(names, **shared),
        described=described_model_columns,
        takes=takes,
        with_coins=with_coins,
    )


def _regression(
    make: Callable[..., Mechanism], with_coins: WithCoins = "session"
) -> StatisticModel:
    return StatisticModel(
        statistic=lambda options, names, shared: make(str(options.target), names, **shared),
        described=learned_model_columns,
        takes=("weights",),
        needs=("target",),
        with_coins=with_coins,
    )


MODELS: Final[dict[str, Model | StatisticModel]] = {
    "mean": _summary(stats.mean, "by", "weights", "fill", "ranges"),
    "sum": _summary(stats.sum, "by", "weights", "ranges"),
    "count": StatisticModel(
        statistic=lambda o, names, shared: stats.count(names or None, **shared),
        takes=("by", "weights", "ranges"),
        with_coins="session",
    ),
    "median": _summary(stats.median, "by", "fill", with_coins="alone"),
    "quantiles": StatisticModel(
        statistic=lambda o, names, shared: stats.quantiles(
            names, q=(0.25, 0.5, 0.75) if o.q is None else o.q, **shared
        ),
        described=described_model_columns,
        takes=("by", "fill", "q"),
        with_coins="alone",
    ),
    "variance": _summary(stats.variance, "by", "fill", "ranges"),
    "crosstab": StatisticModel(
        statistic=lambda o, names, shared: _crosstab(names, shared),
        takes=("weights",),
        needs=("columns",),
        with_coins="session",
    ),
    "ols": _regression(stats.ols, "alone"),
    "logistic": _regression(stats.logistic),
    "poisson": _regression(stats.poisson),
    "covariance": Model(
        mechanism=lambda *_: Covariance(),
        describe=MechanismScaling.matrix,
        scaling="scale",
        learns=False,
        with_coins="session",
    ),
    "histogram": Model(
        mechanism=lambda o, names: Histogram(
            bins=_count(o.bins, 10),
            ranges=_declared(o, names),
            universe_facts=o.universe_facts,
        ),
        describe=MechanismScaling.counts,
        learns=False,
        with_coins="session",
        takes=("bins", "ranges"),
        needs=("ranges",),
    ),
    "kmeans": Model(
        mechanism=lambda o, _: KMeans(n_clusters=o.clusters),
        describe=MechanismScaling.centres,
        scaling="standardise",
        takes=("clusters",),
        needs=("clusters",),
        kind="kmeans",
    ),
    "pca": Model(
        mechanism=lambda o, _: PCA(n_components=_count(o.components, 0)),
        describe=MechanismScaling.components,
        scaling="standardise",
        takes=("components",),
        needs=("components",),
        kind="pca",
    ),
    "svm": Model(
        mechanism=lambda o, _: LinearSVM(C=1.0 if o.C is None else o.C),
        describe=MechanismScaling.planes,
        scaling="standardise",
        predicts="class",
        takes=("C",),
        needs=("target",),
        kind="svm",
    ),
    "forest": Model(
        mechanism=lambda o, names: Forest(
            n_estimators=_count(o.trees, 3),
            max_depth=_count(o.depth, 3),
            ranges=_declared(o, names),
            universe_facts=o.universe_facts,
        ),
        describe=MechanismScaling.plain,
        predicts="class",
        takes=("trees", "depth", "ranges"),
        needs=("target",),
        kind="forest",
    ),
    "ridge": Model(
        mechanism=lambda o, _: OrthogonalRidge(
            penalty=RidgePenalty(mi_nats=o.mi_nats),
            transform="whitening",
            universe_facts=o.universe_facts,
        ),
        describe=MechanismScaling.plain,
        predicts="number",
        with_coins="alone",
        needs=("target",),
        kind="ridge",
    ),
}

MEANINGS: Final = {
    "clusters": "Say how many clusters, for example --clusters 3.",
    "components": "Say how many directions to keep, for example --components 2.",
    "ranges": "Say where the bins may lie, for example --ranges 0,120 or 'age=0,120;pay=0,1e6'; "
    "--universe-facts publishes the exact minimum and maximum instead.",
    "target": "Name the column to predict.",
    "columns": "Name two categories, for example --columns region,smoker.",
}
OPTION_NAMES: Final = {"by": "group-by", "q": "quantiles"}  # where they differ from the field


def find_model_name(name: str) -> Model | StatisticModel:
    """Return the model of that name; refuse unknown ones."""
    model = MODELS.get(name)
    if model is None:
        advice = suggestion(name, MODELS, otherwise="Choose one.")
        raise DataError(f"--model must be one of {', '.join(MODELS)}; got {name!r}. {advice}")
    return model


def find_model(name: str, options: ModelOptions) -> Model | StatisticModel:
    """Return the model of a name; refuse unknown names and unfitting options."""
    model = find_model_name(name)
    for option in (option for other in MODELS.values() for option in other.takes):
        if getattr(options, option) is not None and option not in model.takes:
            owners = ", ".join(n for n, m in MODELS.items() if option in m.takes)
            study = " A --study takes weights for all of its tables." if option == "weights" else ""
            raise DataError(
                f"--{OPTION_NAMES.get(option, option)} must be left out for --model {name}; "
                f"got a value. It belongs to --model {owners}.{study}"
            )
    for option in model.needs:
        if option == "ranges" and options.universe_facts:
            continue
        if getattr(options, option) is None:
            raise DataError(
                f"--{option} must be given for --model {name}; got nothing. {MEANINGS[option]}"
            )
    return model


# --- a model on a file ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStudy:
    """A mechanism with its data and units; curator-only but for the mechanism.

    ``name`` is the file's name in the ledger and ``digest`` its SHA-256. ``units`` has the unit of
    every row; ``sample`` None is that of the session; ``notes`` are for the curator.
    """

    name: str
    built: Built = field(repr=False)
    digest: bytes = field(repr=False)
    units: Any = field(repr=False)
    sample: Balanced | Coins | None
    notes: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(
        cls,
        source: Path,
        table: Table,
        built: Built,
        *,
        unit: str | None,
        sample: Balanced | Coins | None,
        notes: tuple[str, ...] = (),
    ) -> Self:
        warned = () if unit is not None else table_identities(table)
        if warned:
            notes = (f"{identity_warning(warned)} Add --unit {quoted(warned[:1])}.", *notes)
        return cls(
            name="stdin" if source == STDIN else source.name.partition(".")[0],
            built=built,
            digest=table.digest,
            units=None if unit is None else table_unit_labels(table, unit),
            sample=sample,
            notes=(*table.notes, *notes),
        )

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism to run; dropped rows are dropped inside each candidate."""
        return self.built.mechanism if self.built.kept.all() else self.of_rows()

    @property
    def universe(self) -> Data:
        """All rows of the file, including those dropped later."""
        return self.built.data if self.built.kept.all() else self.rows()

    def pool_reason(self, budget: AnyBudget, options: Mapping[str, Any]) -> str | None:
        """Return the reason for a pool by default; None if a release has coins."""
        return pool_reason(self.mechanism, self.universe, self.units, budget, options=options)

    def with_default_sample(self, budget: AnyBudget, options: Mapping[str, Any]) -> ModelStudy:
        """Return the study with coins if no sample was chosen and coins are possible."""
        if self.sample is not None or self.pool_reason(budget, options) is not None:
            return self
        return replace(self, sample=Coins())

    def of_rows(self) -> RowsMechanism:
        """Return the mechanism in the form that :meth:`open_session` releases."""
        return RowsMechanism(
            inner=self.built.mechanism, records=self.built.data, kept=self.built.kept
        )

    def rows(self) -> Data:
        """Return an identifier of the rows, which changes with the file or the units."""
        mark = np.frombuffer(self.digest, dtype=np.uint64)
        n_rows = len(self.built.kept)
        parts = [np.arange(n_rows), np.tile(mark, (n_rows, 1))]
        if self.units is not None:
            parts.append(np.asarray(self.units))
        return coerce_data(tuple(parts))

    def open_session(
        self, place: LedgerPlace, total: AnyBudget | None, options: SampleOptions
    ) -> Session:
        """Open or resume the session; without a total, the ledger's budget is the total."""
        rows = self.rows()
        if total is None:
            assert isinstance(place.ledger, str | Path)  # of the command line
            book = ledgers.Ledger(place.ledger, create=False)
            try:
                return Session.with_options(rows, None, options, place)
            except BudgetError:  # there is no session to resume
                limits = _limits_of(book, place.dataset, place.principal)
                pools_alone = (limits.mi_nats, limits.success_increment) != (None, None)
                if options.sample is None and limits.mu_squared is not None and not pools_alone:
                    options = replace(options, sample=Coins())
                total = _total_of(limits, coins=isinstance(options.sample, Coins))
                if total is None:
                    raise
        return Session.with_options(rows, total, options, place)


def read_model_study(
    source: Path,
    model: str,
    options: ModelOptions,
    reading: Reading | None = None,
    *,
    sample: Balanced | Coins | None = None,
) -> ModelStudy:
    """Read the file and build the model; the pool of a classifier halves every class."""
    chosen = find_model(model, options)
    reading = reading or Reading()
    reading = replace(reading, levels={**reading.levels, **options.levels})
    table = read_table(source, reading)
    built = chosen.build(table, options)
    notes = (*built.notes, *category_range_notes(table, options))
    study = ModelStudy.of(source, table, built, unit=options.unit, sample=sample, notes=notes)
    if chosen.predicts != "class":
        return study
    check_data_classes(built.data.parts[1])
    labels = _strata(built)
    pool = choose_data_pool(labels, study.units)
    halves = _Stratified(stratify=pool.stratify, folds=pool.folds, labels=labels)
    return replace(study, sample=halves)


def _strata(built: Built) -> Any:
    """Return the class of every row; dropped rows are one more class."""
    codes = np.unique(built.data.parts[1], return_inverse=True)[1]
    kept = built.kept
    strata = np.full(len(kept), codes.max() + 1)
    strata[kept] = codes
    if np.count_nonzero(~kept) == 1:  # nobody can be hidden in a class of one
        strata[~kept] = codes[0]
    return strata


def _limits_of(book: ledgers.Ledger, dataset: str, principal: str) -> Spent:
    balances = book.balance(dataset, principal)
    return reduce(Spent.tightest, (balance.limits for balance in balances), Spent())


def _total_of(limits: Spent, *, coins: bool) -> AnyBudget | None:
    """Return the total that limits of a ledger allow a session, rounded down."""
    if coins and limits.mu_squared is not None:
        success = cap_success(limits.mu_squared)
        while session_cap(success) > limits.mu_squared:
            success -= 1e-12
        return Membership(success)
    nats, increment = limits.mi_nats, limits.success_increment
    information = None if coins or nats is None else Information(nats)
    if coins or increment is None:
        return information
    membership = Membership(min(1.0, 0.5 + increment))
    return membership if information is None else membership & information


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stratified(Balanced):
    """A pool that is stratified by its own labels."""

    labels: Any = field(repr=False)

    def draw(
        self, n_records: int, *, rng: Any = None, units: Any = None, strata: Any = None
    ) -> Pool:
        return Balanced.draw(self, n_records, rng=rng, units=units, strata=self.labels)
