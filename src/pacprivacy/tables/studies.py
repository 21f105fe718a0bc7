"""Study files: several statistics of a table, in TOML, for one release.

Options above the tables hold for all of them: weights, the design of a survey, levels, a condition.
Every table names a statistic and its own options. The same file serves again when the data grow.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy import stats
from pacprivacy._checks import suggestion
from pacprivacy.errors import DataError
from pacprivacy.mechanism import Condition, Mechanism, coerce_data
from pacprivacy.sample import Balanced, Coins
from pacprivacy.statistics import Study
from pacprivacy.tables.cells import Reading
from pacprivacy.tables.models import MODELS, Built, ModelStudy, StatisticModel
from pacprivacy.tables.schema import Schema
from pacprivacy.tables.table import (
    Table,
    check_table_columns,
    read_table,
)
from pacprivacy.tables.terms import (
    GAPS,
    ModelOptions,
    categories_as_fields,
    category_gap_notes,
    check_category_numbers,
)

Spec = Mapping[str, Any]

_SHARED: Final = ("where", "levels", "missing", "fill", "categories", "ranges")
_WHOLE: Final = ("schema", "unit", "weights", "strata", "cluster", "suppress", "tables")
_OFFICIAL: Final = ("standard", "compare", "how", "margins", "base")
_OWN: Final = ("statistic", "columns", "by", "target", "q", "bins", "per", "importance")
_BY_COLUMN: Final = {
    "levels": '{ region = ["north", "south"] }',
    "ranges": "{ age = [0, 120] }",
    "standard": '{ age = { "0-39" = 50, "40+" = 50 } }',
}
_TEXTS: Final = (
    "schema",
    "where",
    "missing",
    "target",
    "unit",
    "weights",
    "strata",
    "cluster",
    "statistic",
)

_AS_MODELS: Final = ("mean", "sum", "count", "variance", "median", "quantiles", "ols")
_BY_SPEC: Final[dict[str, Callable[[Spec, tuple[str, ...], dict[str, Any]], Mechanism]]] = {
    "crosstab": lambda spec, names, shared: stats.count(**{**shared, "by": names}),
    "rate": lambda spec, names, shared: stats.rate(
        *_exactly(2, names), per=spec.get("per", 1.0), **shared
    ),
    "histogram": lambda spec, names, shared: stats.histogram(
        *_exactly(1, names),
        bins=spec.get("bins", 10),
        ranges=shared["ranges"].get(names[0]) if shared["ranges"] else None,
        by=shared["by"],
        where=shared["where"],
        levels=shared["levels"],
    ),
}
_STATISTICS: Final = (*_AS_MODELS, *_BY_SPEC)


def _exactly(number: int, names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) != number:
        raise DataError(f"columns must be {number} for this statistic; got {len(names)}.")
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFile:
    """The options of a study file: ``whole`` for all tables, and those of each table.

    ``schema`` is the file that describes the columns; the options of the study win over it.
    """

    whole: Spec
    tables: Mapping[str, Spec] = field(default_factory=dict)
    schema: Path | None = None

    @classmethod
    def load(cls, path: Path, *, schema: Path | None = None) -> StudyFile:
        """Read and check a study file; the path of its schema starts at its folder."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"--study must be a file in TOML; got {path}: {reason}.") from None
        if schema is None and isinstance(content.get("schema"), str):
            schema = path.parent / content["schema"]
        study = cls.of(content)
        if schema is None:
            return study
        described = Schema.read(schema)
        whole = {name: getattr(described, name) for name in ("unit", "weights")}
        whole = {name: text for name, text in whole.items() if text is not None} | dict(study.whole)
        whole["levels"] = described.levels | dict(study.whole.get("levels", {}))
        whole["categories"] = (*described.categories, *study.whole.get("categories", ()))
        return cls(whole=whole, tables=study.tables, schema=schema)

    @classmethod
    def of(cls, content: Spec) -> StudyFile:
        _check_options("the study", content, (*_WHOLE, *_SHARED))
        tables = content.get("tables")
        if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
            raise DataError('a study must have tables; got none. Write [tables."mean income"].')
        for name, table in tables.items():
            _check_options(f"table {name!r}", table, (*_OWN, *_OFFICIAL, *_SHARED, "weights"))
            kind = table.get("statistic")
            if kind not in _STATISTICS:
                advice = suggestion(str(kind), _STATISTICS, otherwise="Choose one.")
                raise DataError(
                    f"statistic of table {name!r} must be one of {', '.join(_STATISTICS)}; got "
                    f"{kind!r}. {advice}"
                )
            if kind != "count" and not {"columns", "target"} & {*table, *content}:
                raise DataError(
                    f"columns of table {name!r} must be named in a study or a survey; got none. "
                    'Write columns = "income", or --columns income.'
                )
        return cls(whole={k: v for k, v in content.items() if k != "tables"}, tables=tables)

    def options(self, spec: Spec, unit: str | None) -> ModelOptions:
        stated = {name: self.whole[name] for name in _SHARED if name in self.whole}
        stated |= {
            name: spec[name] for name in (*_SHARED, "weights", "target", "q") if name in spec
        }
        for name in ("columns", "by", "categories"):
            if name in {**stated, **spec}:
                stated[name] = _names({**stated, **spec}[name])
        stated["levels"] = {
            name: tuple(map(str, levels)) for name, levels in stated.get("levels", {}).items()
        }
        if "ranges" in stated:
            stated["ranges"] = {
                name: (float(a), float(b)) for name, (a, b) in stated["ranges"].items()
            }
        return ModelOptions(unit=unit, **stated)

    def columns(self, unit: str | None) -> tuple[str, ...]:
        names = [self.whole.get(name) for name in ("weights", "strata", "cluster")]
        for spec in self.tables.values():
            options = self.options(spec, unit)
            where = () if options.where is None else Condition(options.where).columns
            names += [*(options.columns or ()), *(options.by or ()), *where]
            names += [options.target, options.weights]
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def build(self, table: Table, unit: str | None) -> Built:
        names = self.columns(unit)
        check_table_columns(table, names)
        if (weights := self.whole.get("weights")) is not None:
            check_category_numbers(table, [weights])
        statistics: dict[str, Mechanism] = {}
        notes: list[str] = []
        for name, spec in self.tables.items():
            model = _statistic_model(spec)
            built = model.build(table, self.options(spec, unit))
            statistics[name] = built.mechanism
            notes += [note for note in built.notes if not note.startswith(GAPS)]
        levels, kept = self.options({}, unit).levels, np.ones(table.n_rows, dtype=np.bool_)
        study = Study(
            statistics,
            importance={n: s["importance"] for n, s in self.tables.items() if "importance" in s},
            weights=weights,
            strata=self.whole.get("strata"),
            cluster=self.whole.get("cluster"),
            suppress=self.whole.get("suppress"),
        )
        return Built(
            mechanism=study,
            data=coerce_data(categories_as_fields(table, names, levels)),
            kept=kept,
            notes=(*category_gap_notes(table, names, kept), *dict.fromkeys(notes)),
        )


def _statistic_model(spec: Spec) -> StatisticModel:
    """Return the model of a table, as an official table if its options say so."""

    def make(options: ModelOptions, names: tuple[str, ...], shared: dict[str, Any]) -> Mechanism:
        kind, model = spec["statistic"], MODELS.get(spec["statistic"])
        if kind in _BY_SPEC:
            statistic = _BY_SPEC[kind](spec, names, shared)
        else:
            assert isinstance(model, StatisticModel)
            statistic = model.statistic(options, names, shared)
        worked = {name: spec[name] for name in _OFFICIAL if name in spec}
        if "compare" in worked:
            worked["compare"] = _exactly(2, _names(worked["compare"]))
        return stats.official(statistic, **worked) if worked else statistic

    return StatisticModel(statistic=make)


def _names(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _check_options(where: str, options: Spec, known: tuple[str, ...]) -> None:
    for name, value in options.items():
        if name not in known:
            advice = suggestion(name, known, otherwise=f"Known are {', '.join(known)}.")
            if isinstance(value, dict):
                advice = 'Write a table as [tables.NAME], and columns in a schema: schema = "FILE".'
            raise DataError(f"{where} must have known options; got {name!r}. {advice}")
        if name in _TEXTS and not isinstance(value, str):
            raise DataError(f"{name} of {where} must be text; got {value!r}. Write it in quotes.")
        listed = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if name in ("columns", "by", "categories", "compare") and not (
            listed or isinstance(value, str)
        ):
            raise DataError(f'{name} of {where} must name columns; got {value!r}. Write ["age"].')
        if name in _BY_COLUMN and not isinstance(value, dict):
            raise DataError(
                f"{name} of {where} must be a table by column; got {value!r}. "
                f"Write {name} = {_BY_COLUMN[name]}."
            )


def read_study(
    source: Path,
    study: StudyFile,
    *,
    unit: str | None = None,
    reading: Reading | None = None,
    sample: Balanced | Coins | None = None,
) -> ModelStudy:
    """Read the data of a study and build it."""
    unit = study.whole.get("unit") if unit is None else unit
    reading = reading or Reading()
    reading = replace(reading, levels={**reading.levels, **study.options({}, unit).levels})
    table = read_table(source, reading)
    built = study.build(table, unit)
    return ModelStudy.of(source, table, built, unit=unit, sample=sample, notes=built.notes)


def survey_study(model: str, options: ModelOptions, **design: str | None) -> StudyFile:
    """Return the study of one statistic of a survey."""
    spec: dict[str, Any] = {"statistic": model, "bins": options.bins}
    for name in ("columns", "by", "q", "target", "where", "fill", "missing", "levels"):
        spec[name] = getattr(options, name)
    spec["categories"] = options.categories or None
    if options.ranges is not None:
        pairs = options.ranges
        if isinstance(pairs, tuple):
            pairs = dict.fromkeys(options.columns or (), pairs)
        spec["ranges"] = {name: list(pair) for name, pair in pairs.items()}
    listed = {k: list(v) if isinstance(v, tuple) else v for k, v in spec.items() if v is not None}
    whole = {"unit": options.unit, "weights": options.weights, **design}
    stated = {name: text for name, text in whole.items() if text is not None}
    return StudyFile.of({**stated, "tables": {model: listed}})
