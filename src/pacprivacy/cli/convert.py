"""``pac convert``: translate between information, success rate and DP."""

import math
from typing import Any, Final

from pacprivacy import theory
from pacprivacy._rounding import at_least, at_most, percent_at_most
from pacprivacy.cli.console import (
    Screen,
    Verb,
    format_console_number,
    option,
    read_console_number,
    show,
    show_table,
)
from pacprivacy.errors import BudgetError

CAVEAT: Final = """\
Success is the most that a guess can reach after the release, where it is right
as often as its prior before. Membership success: used or left out, both being
equally likely; the advantage is twice what is above 1/2. Epsilon and mu allow
the same membership success; PAC privacy and differential privacy are different
promises. Membership(q) limits that one guess directly, with far less noise."""
SHOWN_PRIORS: Final = (0.5, 0.01)


def _information(option: str, value: float, *, prior: float, delta: float) -> float:
    if option == "--success":
        return theory.mi_for_success(value, prior)
    if option == "--epsilon":
        return theory.mi_for_membership(theory.success_for_epsilon(value, delta))
    if option == "--mu":
        return theory.mi_for_membership(theory.gaussian_success(value))
    return value


def _read_as_all(mi_nats: float, *, prior: float, delta: float) -> dict[str, Any]:
    """Read an information budget as success rates, as an epsilon and as Gaussian DP."""
    priors = [prior, *(p for p in SHOWN_PRIORS if p != prior)]
    reached = theory.membership_success(mi_nats)
    advantage = min(1.0, 2 * reached - 1)
    gaussian = theory.read_as_dp(reached, delta or theory.READ_AT_DELTA)
    return {
        "mi_nats": mi_nats,
        "success": {format_console_number(p): theory.posterior_success(mi_nats, p) for p in priors},
        "membership": {
            "success": reached,
            "advantage": advantage,
        },
        "epsilon_equivalent": _finite(theory.epsilon_equivalent(reached, delta)),
        "delta": delta,
        "gaussian": {
            "mu": _finite(gaussian.gaussian_mu),
            "epsilon": _finite(gaussian.gaussian_epsilon),
            "delta": gaussian.delta,
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _convert(
    *,
    mi: str | None = option("NATS", "Information budget, e.g. 1/64."),
    success: str | None = option("RATE", "Success rate at --prior, e.g. 0.588."),
    epsilon: str | None = option("EPS", "The epsilon of differential privacy."),
    mu: str | None = option("MU", "Sensitivity over noise of a Gaussian mechanism."),
    prior: str = option("RATE", "Success of the best guess without release.", default="1/2"),
    delta: str = option("DELTA", "The delta that goes with epsilon.", default="0"),
    screen: Screen,
) -> None:
    """Read a budget as a success rate, as epsilon and as Gaussian DP, and back."""
    options = {"--mi": mi, "--success": success, "--epsilon": epsilon, "--mu": mu}
    statements = [
        (name, read_console_number(name, text))
        for name, text in options.items()
        if text is not None
    ]
    if len(statements) != 1:
        raise BudgetError(
            f"one of --mi, --success, --epsilon and --mu must be given; got "
            f"{len(statements) or 'none'}. Try: pac convert --mi 1/64"
        )
    at_prior, at_delta = (
        read_console_number("--prior", prior),
        read_console_number("--delta", delta),
    )
    mi_nats = _information(*statements[0], prior=at_prior, delta=at_delta)
    readings = _read_as_all(mi_nats, prior=at_prior, delta=at_delta)
    screen.show(lambda: _show(readings), readings)


def _show(readings: dict[str, Any]) -> None:
    show_table(["Read as", "at most"], _rows(readings))
    show(f"\n{CAVEAT}")


def _rows(readings: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("mutual information", f"{at_least(readings['mi_nats'], significant=6)} nats")]
    rows += [
        (f"success of any guess, prior {100 * float(prior):.4g} %", f"{percent_at_most(rate, 3)} %")
        for prior, rate in readings["success"].items()
    ]
    one = readings["membership"]
    rows += [
        ("membership success", f"{percent_at_most(one['success'], 3)} %"),
        ("its advantage", at_most(one["advantage"], decimals=5)),
    ]
    delta, gaussian = readings["delta"], readings["gaussian"]
    worst = f"DP at delta {format_console_number(delta)}, worst case" if delta else "pure DP"
    at = format_console_number(gaussian["delta"])
    for name, value in (
        (f"{worst}: epsilon", readings["epsilon_equivalent"]),
        ("Gaussian DP: mu", gaussian["mu"]),
        (f"Gaussian DP: epsilon at delta {at}", gaussian["epsilon"]),
    ):
        rows.append((name, "none" if value is None else at_most(value, decimals=3)))
    return rows


convert = Verb(
    function=_convert,
    example="""\
  pac convert --mi 1/64
  pac convert --success 60% --prior 1/2
  pac convert --epsilon 1 --delta 1e-6 --prior 1%""",
)
