"""Records in the place of a name, a number or an option: no message may show an entry of them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import pacprivacy as pac
from pacprivacy import dp

NUMBER, TEXT = 987654.125, "zqsecret"
MARKS = ("98765", TEXT)
N = 24
FRAME = pd.DataFrame({"age": np.full(N, NUMBER), "name": [TEXT] * N})
PLANTED = {
    "series": FRAME["age"],
    "texts": FRAME["name"],
    "frame": FRAME,
    "array": FRAME["age"].to_numpy(),
}
ALWAYS = ("n_subsets", "n_jobs")  # given although they have defaults: a call that runs is short
SPACES = {"pac": pac, "pac.stats": pac.stats, "pac.dp": dp}
# What is plausible in the other places, so that a call comes as far as it can.
USUAL: dict[str, Any] = {
    "mechanism": np.mean,
    "data": np.arange(40.0),
    "budget": "membership<=0.75",
    "columns": "age",
    "column": "age",
    "rows": "sex",
    "target": "age",
    "table": "people",
    "bins": 4,
    "q": (0.5,),
    "X": np.arange(80.0).reshape(40, 2),
    "y": np.arange(40) % 2,
    "epsilon": 1.0,
    "delta": 1e-6,
    "estimator": LogisticRegression(),
    "n_subsets": 16,
    "query": "SELECT count(*) FROM people",
    "tables": {"people": pd.DataFrame({"id": range(40), "age": range(40)})},
    "unit": "people.id",
    "success": 0.75,
    "text": "membership<=0.75",
    "values": np.arange(40.0),
    "statistic": "mean",
    "ranges": (0.0, 100.0),
    "x_bound": 1.0,
    "y_bound": 1.0,
    "clip_norm": 1.0,
    "sensitivity": 1.0,
    "model": "mean",
}


# The user's own function fails on the frame, and its error is the curator's to read.
OWN_ERRORS = {("pac.privatize", "data"), ("pac.plan", "data")}


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    for space, module in SPACES.items():
        names = [name for name in dir(module) if not name.startswith("_")]
        for name in names:
            found = getattr(module, name)
            if callable(found) and getattr(found, "__module__", "").startswith("pacprivacy"):
                yield f"{space}.{name}", found
                for method in ("fit",) if hasattr(found, "fit") else ():
                    yield f"{space}.{name}.{method}", _fit_of(found)


def _fit_of(kind: Any) -> Callable[..., Any]:
    def fit(X: Any, y: Any, units: Any = None) -> Any:
        parameters = signature_of(kind)
        made = kind(**{k: v for k, v in USUAL.items() if k in parameters and k != "columns"})
        return made.fit(X, y, **({} if units is None else {"units": units}))

    return fit


def signature_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        found = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}
    options = ("by", "where", "weights", "levels", "missing", "fill", "categories")
    if "options" in found and getattr(function, "__module__", "") == "pacprivacy.stats":
        more = (*options, "date_formats", "table", "unknown")
        found |= {n: inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in more}
    return {name: p for name, p in found.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


def told_by(function: Callable[..., Any], arguments: dict[str, Any]) -> Iterator[str]:
    """Yield what a call says: its warnings, its error, and those that a traceback shows before."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function(**arguments)
        except Exception as error:
            shown: BaseException | None = error
            while shown is not None:
                yield f"{type(shown).__name__}: {shown}"
                hidden = shown.__suppress_context__
                shown = shown.__cause__ or (None if hidden else shown.__context__)
    yield from (str(warning.message) for warning in caught)


CALLS = dict(public_callables())


@pytest.mark.parametrize("called", CALLS)
def test_no_message_shows_a_record(called: str) -> None:
    function = CALLS[called]
    parameters = signature_of(function)
    usual = {
        name: USUAL[name]
        for name, parameter in parameters.items()
        if name in USUAL and (parameter.default is inspect.Parameter.empty or name in ALWAYS)
    }
    leaks = []
    for name in (name for name in parameters if (called, name) not in OWN_ERRORS):
        for what, planted in PLANTED.items():
            for message in told_by(function, {**usual, name: planted}):
                if any(mark in message for mark in MARKS):
                    leaks.append(f"{called}({name}={what}): {message[:200]}")
    assert not leaks, "\n".join(leaks)


def test_the_walk_finds_the_names_that_users_know() -> None:
    known = {"pac.privatize", "pac.Session", "pac.stats.mean", "pac.dp.private_mean"}
    assert known <= CALLS.keys()
    assert len(CALLS) > 80
