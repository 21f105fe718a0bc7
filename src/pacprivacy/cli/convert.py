"""``pac convert``: information budget, success rate and epsilon, each read as the others."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

import typer

from pacprivacy._rounding import at_least, at_most, percent_at_most
from pacprivacy.cli.console import AsJson, Quiet, Verb, show, show_json, show_table
from pacprivacy.cli.numbers import format_number, read_number
from pacprivacy.errors import BudgetError
from pacprivacy.theory.posterior import (
    epsilon_equivalent,
    mi_for_success,
    posterior_success,
    success_for_epsilon,
)

__all__ = ["convert", "convert_budget"]

CAVEAT: Final = """\
Success is the most that any guess with this prior can reach once the release is
seen. Epsilon matches the success of guessing one record's membership at prior
1/2 and nothing else: PAC privacy and differential privacy are different
promises. Membership(q) bounds that one guess directly, with far less noise."""
SHOWN_PRIORS: Final = (0.5, 0.01)


def convert_budget(
    *,
    mi_nats: float | None = None,
    success: float | None = None,
    epsilon: float | None = None,
    prior: float = 0.5,
    delta: float = 0.0,
) -> dict[str, Any]:
    """Read one of a budget, a success rate at a prior, or an epsilon as all three.

    The information budget is what the others are computed from: the largest one that keeps the
    success at what was given.

    Examples
    --------
    >>> found = convert_budget(mi_nats=1 / 64)
    >>> round(found["success"]["0.5"], 5), round(found["epsilon_equivalent"], 2)
    (0.58816, 0.36)
    """
    given = [name for name in (mi_nats, success, epsilon) if name is not None]
    if len(given) != 1:
        raise BudgetError(
            f"one of --mi, --success and --epsilon must be given; got {len(given)} of them. "
            "Try: pac convert --mi 1/64"
        )
    if success is not None:
        mi_nats = mi_for_success(success, prior)
    elif epsilon is not None:
        mi_nats = mi_for_success(success_for_epsilon(epsilon, delta))
    assert mi_nats is not None  # one of the three is given
    priors = [prior, *(p for p in SHOWN_PRIORS if p != prior)]
    equivalent = epsilon_equivalent(posterior_success(mi_nats), delta)
    return {
        "mi_nats": mi_nats,
        "success": {format_number(p): posterior_success(mi_nats, p) for p in priors},
        "epsilon_equivalent": equivalent if math.isfinite(equivalent) else None,
        "delta": delta,
    }


def _convert(
    mi: Annotated[
        str | None, typer.Option("--mi", metavar="NATS", help="Information budget, e.g. 1/64.")
    ] = None,
    success: Annotated[
        str | None,
        typer.Option("--success", metavar="RATE", help="Success rate at --prior, e.g. 0.588."),
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option("--epsilon", metavar="EPS", help="The epsilon of differential privacy."),
    ] = None,
    prior: Annotated[
        str,
        typer.Option("--prior", metavar="RATE", help="Success of the best guess without release."),
    ] = "1/2",
    delta: Annotated[
        str, typer.Option("--delta", metavar="DELTA", help="The delta that goes with epsilon.")
    ] = "0",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Read a budget as a success rate and as epsilon, and back."""
    texts = {"mi_nats": mi, "success": success, "epsilon": epsilon}
    names = {"mi_nats": "--mi", "success": "--success", "epsilon": "--epsilon"}
    found = convert_budget(
        **{k: None if t is None else read_number(names[k], t) for k, t in texts.items()},
        prior=read_number("--prior", prior),
        delta=read_number("--delta", delta),
    )
    if as_json:
        show_json(found)
    elif not quiet:
        show_table(["Read as", "at most"], _rows(found))
        show(f"\n{CAVEAT}")


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("mutual information", f"{at_least(found['mi_nats'], significant=6)} nats")]
    rows += [
        (f"success of any guess, prior {100 * float(prior):.4g} %", f"{percent_at_most(rate, 3)} %")
        for prior, rate in found["success"].items()
    ]
    epsilon, delta = found["epsilon_equivalent"], found["delta"]
    name = "epsilon-equivalent" + (f", delta {format_number(delta)}" if delta else "")
    rows.append((name, "none" if epsilon is None else at_most(epsilon, decimals=3)))
    return rows


convert = Verb(
    function=_convert,
    example="""\
  pac convert --mi 1/64
  pac convert --success 60% --prior 1/2
  pac convert --epsilon 1 --delta 1e-6 --prior 1%""",
)
