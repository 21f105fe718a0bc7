"""Options that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from pacprivacy._checks import suggestion
from pacprivacy._values import release_file
from pacprivacy.budget import AnyBudget, budget_limits, parse_budget
from pacprivacy.cli.console import (
    option,
    read_console_number,
    read_console_pair,
    switch,
    typed_option,
)
from pacprivacy.errors import BudgetError, CertificateError, DataError, LedgerError
from pacprivacy.mechanism import ISO
from pacprivacy.noise import RULES
from pacprivacy.sample import Balanced, Coins
from pacprivacy.statistics import POLICIES
from pacprivacy.tables import (
    MODELS,
    ModelOptions,
    Ranges as DeclaredRanges,
    Reading,
    Schema,
    StudyFile,
    find_model_name,
    survey_study,
)

SAMPLES: Final = ("coins", "pool")
_POOL_ONLY: Final = ("subsets", "rule", "jobs", "checkpoint")

DataFile = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Table with column names: .csv, .csv.gz, .parquet, .xlsx, .sav, .dta, .sas7bdat, or "
        "- for standard input.",
    ),
]
ModelName = Annotated[
    str,
    typed_option(
        "NAME",
        f"What to release: {', '.join(MODELS)}.",
        choices=MODELS,
        flags="--model --statistic",
    ),
]
Subsets = Annotated[
    int | None,
    typed_option(
        "N", "Candidate subsets, even; default 2000, or 256 for a model fitted one by one."
    ),
]
Fill = Annotated[float | None, typed_option("X", "Value reported for an empty group.")]
Name = Annotated[str | None, typed_option("TEXT", "Name of the release.")]
Jobs = Annotated[int | None, typed_option("N", "Worker processes.")]
Checkpoint = Annotated[Path | None, typed_option("FILE", "Go on from here after a stop.")]
Folder = Annotated[Path, typed_option("DIR", "Folder for the release files.", flags="--output -o")]
PublicKey = Annotated[
    Path | None,
    typed_option("FILE", "Refuse a release that its owner has not signed."),
]
BundleFile = Annotated[
    Path | None,
    typed_option("FILE", "The curator's bundle; curator.npz beside the release."),
]
LedgerPlace = Annotated[
    str | None,
    typed_option("PLACE", "Spend from a ledger: SQLite file or postgresql:// URL."),
]
Dataset = Annotated[
    str | None,
    typed_option("NAME", "Name in the ledger; by default the file's ('pac sql': default)."),
]
State = Annotated[
    Path | None,
    typed_option("FILE", "File of the session's secret; default beside the ledger."),
]

_WITH_STUDY: Final = (
    *("unit", "sample", "keep", "clip", "schema", "sheet", "header_row"),
    *("decimal", "delimiter", "encoding", "date_format"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """Options of a verb for reading a table; as typed."""

    decimal: str | None = option("MARK", "Decimal mark of the file, . or ,; needed if unclear.")
    delimiter: str | None = option("MARK", "Field separator of a CSV file; detected if omitted.")
    encoding: str | None = option("NAME", "Encoding of a CSV file; detected if omitted.")
    date_format: str | None = option("LIST", "How dates are written, if unclear: 'day=%d/%m/%Y'.")
    sheet: str | None = option("NAME", "Sheet of an Excel file; default the first.")
    header_row: int | None = option("N", "Row of the column names; default the first.", least=1)

    def typed(self, schema: Reading | None = None) -> Reading:
        """Return how the file is to be read; what is typed wins over a schema."""
        if self.decimal not in (None, ".", ","):
            raise DataError(
                f"--decimal must be . or ,; got {self.decimal!r}. Leave it out to find out."
            )
        mark = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        if mark is not None and len(mark) != 1:
            raise DataError(
                f"--delimiter must be one character; got {self.delimiter!r}. Try ; or tab."
            )
        before = Reading() if schema is None else schema
        formats = {} if self.date_format is None else _read_date_formats(self.date_format)
        return replace(
            before,
            decimal=self.decimal or before.decimal,
            delimiter=mark or before.delimiter,
            encoding=self.encoding or before.encoding,
            date_formats={**before.date_formats, **formats},
            sheet=self.sheet or before.sheet,
            header_row=self.header_row or before.header_row,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions(ReadingOptions):
    """Options of a verb for reading a table and choosing a model; as typed."""

    target: str | None = option(
        "COL", "Column to predict; for a model without one, the only column to describe."
    )
    columns: str | None = option("A,B", "Columns to use; default all.")
    unit: str | None = option("COL", "Column of the person, if people have several rows.")
    sample: str | None = option(
        "KIND", "coins: one for each person (default if possible); or pool.", choices=SAMPLES
    )
    keep: float | None = option(
        "P", "With coins: probability of being used; by default by the table's size."
    )
    clip: str | None = option(
        "R", "With coins: largest influence of one person, 1 being the tenth largest; auto or none."
    )
    subsets: Subsets = None
    rule: str | None = option(
        "NAME", "Noise rule; the least certified noise if absent.", choices=RULES
    )
    bins: int | None = option("N", "Number of histogram bins; a --study takes edges of your own.")
    ranges: str | None = option(
        "LIST", "Public ranges of columns: 0,120 or 'age=0,120;pay=0,1e6'. Histograms need them."
    )
    universe_facts: bool = switch(
        "--universe-facts",
        "Publish exact ranges, means and scales of all records; the certificate says so.",
    )
    clusters: int | None = option("N", "Number of clusters of kmeans.")
    components: int | None = option("N", "Directions that pca keeps.")
    cost: float | None = option("X", "Inverse regularisation of svm; less is stabler.", flags="--C")
    trees: int | None = option("N", "Of forest; default 3.")
    depth: int | None = option("N", "Of the forest's trees; default 3.")
    group_by: str | None = option("A,B", "One result for every level of categories.")
    where: str | None = option("TEXT", 'Condition on rows: "age >= 18".')
    weights: str | None = option("COL", "Column of weights.")
    levels: str | None = option(
        "LIST", "Levels of categories, public: 'region=north,south;sex=f,m'. Default: the data's."
    )
    categories: str | None = option(
        "A,B", "Columns whose entries are levels, whatever they look like."
    )
    missing: str = option(
        "HOW",
        "Gaps: drop, mean, category or error; of what is used.",
        choices=POLICIES,
        default="drop",
    )
    fill: Fill = None
    quantiles: str | None = option("LIST", "Probabilities of quantiles; default 0.25,0.5,0.75.")
    schema: Path | None = option("FILE", "Kinds of the columns, in TOML: see pac schema.")
    jobs: Jobs = None
    checkpoint: Checkpoint = None

    @property
    def described(self) -> Schema:
        return Schema() if self.schema is None else Schema.read(self.schema)

    def model(
        self, name: str, mi_nats: float | None = None, *, declared: bool = False
    ) -> ModelOptions:
        """Return the options of a model; those of the schema where none are typed.

        With ``declared``, the ranges of the schema are for any model.
        """
        schema, takes = self.described, find_model_name(name).takes
        columns = None if self.columns is None else split_option_names("--columns", self.columns)
        ranges: DeclaredRanges | None = None
        if self.ranges is not None:
            ranges = read_range_options("--ranges", self.ranges)
        elif (declared or "ranges" in takes) and not self.universe_facts:
            ranges = schema.ranges((self.target,) if self.target is not None else columns)
        return ModelOptions(
            target=self.target,
            columns=columns,
            unit=self.unit or schema.unit,
            bins=self.bins,
            ranges=ranges,
            universe_facts=self.universe_facts,
            clusters=self.clusters,
            components=self.components,
            C=self.cost,
            trees=self.trees,
            depth=self.depth,
            by=None if self.group_by is None else split_option_names("--group-by", self.group_by),
            where=self.where,
            weights=self.weights or (schema.weights if "weights" in takes else None),
            levels=schema.levels | ({} if self.levels is None else _read_levels(self.levels)),
            missing=self.missing,  # type: ignore[arg-type]
            fill=self.fill,
            q=None if self.quantiles is None else _read_numbers("--quantiles", self.quantiles),
            categories=split_option_names("--categories", self.categories)
            if self.categories
            else schema.categories,
            mi_nats=mi_nats,
        )

    def coins(self, model: str) -> Coins | None:
        """Return the chosen coins; refuse options of pools.

        None for a pool, and where nothing says which: the release then has coins if it can.
        """
        if self.sample not in (None, *SAMPLES):
            advice = suggestion(self.sample, SAMPLES, otherwise="Leave it out for coins.")
            raise DataError(f"--sample must be coins or pool; got {self.sample[:60]!r}. {advice}")
        of_coins = [name for name in ("keep", "clip") if getattr(self, name) is not None]
        if self.sample == "pool" and of_coins:
            raise DataError(
                f"--{of_coins[0]} must be left out with --sample pool; got a value. It belongs to "
                "--sample coins."
            )
        if self.sample != "coins" and not of_coins:
            return None
        known = [name for name, each in MODELS.items() if each.with_coins is not None]
        if model not in known:
            raise DataError(
                f"--model must be one of {', '.join(known)} with --sample coins; got {model!r}. "
                "Use --sample pool."
            )
        if self.keep == 1 and MODELS[model].with_coins == "alone":
            raise DataError(
                f"--keep must be below 1 for --model {model}: its promise is an average over coins;"
                " got 1. Leave it out."
            )
        for name in _POOL_ONLY:
            if getattr(self, name) is not None:
                raise DataError(
                    f"--{name} must be left out with --sample coins; got a value. It belongs to "
                    "--sample pool."
                )
        if self.missing == "mean":
            raise DataError(
                "--missing must be drop, category or error with --sample coins; got 'mean': what "
                "a gap is filled with would depend on who is used. Use drop, or --sample pool."
            )
        return Coins(keep=self.keep, clip=_read_clip(self.clip))

    def sampled(self, model: str) -> Coins | Balanced | None:
        """Return the chosen sample; None if no option names one."""
        pool = Balanced(folds="auto") if self.sample == "pool" else None
        return self.coins(model) or pool

    @property
    def pool_options(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in _POOL_ONLY}

    def reading(self, *, declared: bool = False) -> Reading:
        """Return how the file is read; what is typed wins over the schema.

        With ``declared``, formats of dates that the schema guessed are left out.
        """
        described = self.described
        return self.typed((described.without_guessed_dates() if declared else described).reading)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """Several statistics, or one of a survey; as typed, options of a verb each."""

    study: Path | None = option("FILE", "Several statistics in one release; TOML.")
    strata: str | None = option("COL", "Column of survey strata; widens or narrows the errors.")
    cluster: str | None = option("COL", "Column of survey clusters; widens the errors.")

    def file(self, model: str | None, table: TableOptions) -> StudyFile | None:
        """Return the study, if there is one; refuse what belongs into its file."""
        survey = self.strata is not None or self.cluster is not None
        if (model is None) == (self.study is None):
            got = "neither" if model is None else "both"
            raise DataError(f"--model or --study must be given; got {got}. Write --model mean.")
        if model is not None:
            design = {"strata": self.strata, "cluster": self.cluster}
            return survey_study(model, table.model(model), **design) if survey else None
        stated = [each.name for each in fields(table) if getattr(table, each.name) != each.default]
        stated = ["strata or --cluster"] * survey + [n for n in stated if n not in _WITH_STUDY]
        if stated:
            raise DataError(
                f"--{stated[0].replace('_', '-')} must be left out with --study; got a value. "
                "Options of tables belong into its file; a study has coins, and no pool."
            )
        assert self.study is not None
        return StudyFile.load(self.study, schema=table.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOptions:
    """The budget of a release, and the session that it belongs to; as typed."""

    budget: str | None = option(
        "TEXT", '"membership<=0.6", "mi<=1/64", "epsilon<=1", or several joined with "&".'
    )
    share: str | None = option(
        "PART", 'Instead, with --ledger: a part of what is left, 0.25 or "1 of 12".'
    )
    ledger: LedgerPlace = None
    dataset: Dataset = None
    principal: str | None = option("NAME", "Name in the ledger of the one who spends.")
    total: str | None = option("TEXT", "Budget of all releases together; the ledger's by default.")
    state: State = None

    def limits(self) -> AnyBudget | None:
        """Return the budget of the release; None if it is a share of the remaining budget."""
        if (self.budget is None) == (self.share is None):
            got = "neither" if self.budget is None else "both"
            raise BudgetError(
                f"one of --budget and --share must be given; got {got}. Write --budget "
                '"membership<=0.6".'
            )
        if self.budget is not None:
            return parse_budget(self.budget)
        if self.ledger is None:
            raise BudgetError(
                "--ledger must be given with --share; got none. Name the ledger, or use --budget."
            )
        return None

    @property
    def part(self) -> float | str | None:
        """The share as a session takes it: a number, or ``"1 of 12"``."""
        if self.share is None or " of " in self.share:
            return self.share
        return read_console_number("--share", self.share)

    def read_total(self) -> AnyBudget | None:
        """Return the total budget; refuse options of a session without its ledger."""
        total = None if self.total is None else parse_budget(self.total)
        for name in ("dataset", "principal", "state", "total"):
            if self.ledger is None and getattr(self, name) is not None:
                raise LedgerError(
                    f"--ledger must be given with --{name}; got none. "
                    "Name the ledger, for example --ledger study.db."
                )
        return total


def _read_clip(text: str | None) -> float | Literal["auto"] | None:
    if text is None or text == "auto":
        return "auto"
    if text == "none":
        return None
    try:
        radius = float(text)
    except ValueError:
        radius = 0.0
    if not 0 < radius < float("inf"):
        raise DataError(
            f"--clip must be auto, none or a positive number; got {text[:60]!r}. Leave it out for "
            "auto."
        )
    return radius


def check_coin_budget(
    budget: AnyBudget | None, *, name: str = "--budget", advice: str = ", or use --sample pool"
) -> None:
    """Refuse a budget that coins cannot meet: they limit membership."""
    limits = None if budget is None else budget_limits(budget, 2)
    if limits is not None and (limits.success_level is None or limits.mi_nats is not None):
        raise BudgetError(
            f"{name} must limit membership alone, as people have coins; got {budget}. Write "
            f'"membership<=0.6"{advice}.'
        )


def check_coin_session(
    model: str, account: AccountOptions, sample: Coins | Balanced | None
) -> None:
    """Refuse a model that cannot be part of a session with coins."""
    if not isinstance(sample, Coins):
        return
    if account.ledger is not None and MODELS[model].with_coins == "alone":
        joining = [name for name, each in MODELS.items() if each.with_coins == "session"]
        raise DataError(
            f"--ledger must be left out with --sample coins for --model {model}: its promise is an "
            f"average over coins, and joins no other release; got one. Sessions take "
            f"{', '.join(joining)}; a study (--study) takes ols, median and quantiles, too."
        )


def _read_date_formats(text: str) -> dict[str, str]:
    """Read ``COL=%d/%m/%Y`` for every column, separated by semicolons."""
    formats = _read_by_column(text)
    known = ("%" in written or written == ISO for written in formats.values())
    if not (all(formats) and all(known)):
        raise DataError(
            f"--date-format must be COL=FORMAT for every column; got {text[:60]!r}. "
            'Write it as "day=%d/%m/%Y;born=%d.%m.%y", or "day=ISO" for 2024-05-31.'
        )
    return formats


def _read_levels(text: str) -> dict[str, tuple[str, ...]]:
    """Read ``COL=A,B`` for every category, separated by semicolons."""
    levels: dict[str, tuple[str, ...]] = {}
    for column, listed in _read_by_column(text).items():
        names = tuple(level.strip() for level in listed.split(","))
        if not column or not all(names) or len(set(names)) != len(names):
            raise DataError(
                f"--levels must be COL=A,B for every category; got {f'{column}={listed}'[:60]!r}. "
                'Write it as "region=north,south;sex=f,m".'
            )
        levels[column] = names
    return levels


def _read_by_column(text: str) -> dict[str, str]:
    """Return what is written for each column, ``COL=TEXT;COL=TEXT``."""
    pieces = (piece.partition("=") for piece in text.split(";"))
    return {column.strip(): written.strip() for column, _, written in pieces}


def _read_numbers(name: str, text: str) -> tuple[float, ...]:
    return tuple(read_console_number(name, part) for part in text.split(","))


def read_range_options(name: str, text: str) -> DeclaredRanges:
    """Read ``LO,HI`` for all columns, or ``COL=LO,HI`` for each, separated by semicolons."""
    if "=" not in text:
        return read_console_pair(name, text)
    return {
        column: read_console_pair(f"{name} for {column!r}", pair)
        for column, pair in _read_by_column(text).items()
    }


def find_bundle_option(release: Path, bundle: Path | None, *, without: str = "") -> Path:
    """Return the file of the curator's bundle; if it is not there, say what holds without it."""
    path = release_file(release).parent / "curator.npz" if bundle is None else bundle
    if not path.is_file():
        raise CertificateError(
            f"bundle must be a file; got {path}, which is not there. Name it with --bundle, or ask "
            f"the curator to run this.{without}"
        )
    return path


def split_option_names(name: str, columns: str) -> tuple[str, ...]:
    """Read names with commas between, each once."""
    names = tuple(part.strip() for part in columns.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise DataError(
            f"{name} must be distinct names with commas between; got {columns!r}. "
            "Write it as age,income."
        )
    return names
