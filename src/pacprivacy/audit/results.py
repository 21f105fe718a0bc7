"""What an attack achieved, beside what the certificate promised."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pacprivacy._plots import draw
from pacprivacy._rounding import percent_at_most
from pacprivacy.theory import Estimate

SCHEMA_VERSION: Final = 1

Verdict = Literal["holds", "VIOLATED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """Success of one attack on simulated releases, with its interval.

    Parameters
    ----------
    attack : str, public
        Name of the attack.
    question : str, public
        What it guesses.
    n_trials, successes : int, public
        Fresh releases attacked, and how many guesses were right.
    success : Estimate, public
        Rate of success with a Clopper-Pearson interval.
    prior : float, public
        Best blind success, without any release; an upper bound where a note says so.
    bound : float, public
        What the certificate promises for this question.
    notes : tuple of str, public
        What a reader must know to compare the two.
    unit : int or None, curator-only
        The unit attacked, chosen in training.

    Guarantee
    ---------
    Claim U-1. If the promise is true, the verdict is ``VIOLATED`` with probability at most
    ``1 - success.confidence``.
    """

    attack: str
    question: str
    n_trials: int
    successes: int
    success: Estimate
    prior: float
    bound: float
    notes: tuple[str, ...] = ()
    unit: int | None = None
    schema_version: int = SCHEMA_VERSION

    @property
    def verdict(self) -> Verdict:
        """``VIOLATED`` if even the lower end of the interval is above the bound."""
        return "VIOLATED" if self.success.lower > self.bound else "holds"

    def __repr__(self) -> str:
        return (
            f"AuditResult(attack={self.attack!r}, success={self.success}, "
            f"bound={self.bound:.6g}, verdict={self.verdict!r})"
        )

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the success beside the promise; a figure for a notebook, and a file if asked."""
        return draw("plot_audit", [self], path)

    def _repr_html_(self) -> str:
        return results_html([self])

    def to_public_dict(self) -> dict[str, Any]:
        """Return everything but the unit, as plain JSON types."""
        return {
            "schema_version": self.schema_version,
            "attack": self.attack,
            "question": self.question,
            "n_trials": self.n_trials,
            "successes": self.successes,
            "success": self.success.to_public_dict(),
            "prior": self.prior,
            "bound": self.bound,
            "verdict": self.verdict,
            "notes": list(self.notes),
        }


class AuditResults(tuple[AuditResult, ...]):
    """The results of several attacks: a tuple that can be printed, shown and drawn."""

    __slots__ = ()

    @property
    def holds(self) -> bool:
        """Whether no attack beat what it was promised to stay below."""
        return all(result.verdict == "holds" for result in self)

    def __str__(self) -> str:
        return results_text(self)

    def _repr_html_(self) -> str:
        return results_html(self)

    def plot(self, path: str | Path | None = None, *, title: str = "") -> Any:
        """Draw every attack beside the promise.

        Returns a figure, which a notebook shows; ``path`` is a file to write besides.
        """
        return draw("plot_audit", self, path, title=title)


def results_html(results: Sequence[AuditResult]) -> str:
    """Return several results as a table for a notebook; public."""
    names = ("attack", "question", "success", "interval", "blind", "promised", "verdict")
    head = "".join(f'<th style="text-align:left">{name}</th>' for name in names)
    body = "".join(_html_row(result) for result in results)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_row(result: AuditResult) -> str:
    found = result.success
    cells = (
        result.attack,
        result.question,
        f"{_digits(found.value)} %",
        f"{_digits(found.lower)} to {_digits(found.upper)} %",
        f"{_digits(result.prior)} %",
        f"{_bound(result.bound)} %",
        result.verdict,
    )
    style = "text-align:left" + (";font-weight:bold" if result.verdict == "VIOLATED" else "")
    return "<tr>" + "".join(f'<td style="{style}">{html.escape(c)}</td>' for c in cells) + "</tr>"


def results_text(results: Sequence[AuditResult]) -> str:
    """Return several results as a table for a terminal of 80 columns."""
    confidence = min((result.success.confidence for result in results), default=0.99)
    interval = f"{100 * confidence:.4g} % interval"
    lines = [f"{'attack':<25}{'success':>9}{interval:>15}{'blind':>7}{'promised':>10}  verdict"]
    lines += [_row(result) for result in results]
    return "\n".join(lines)


def _row(result: AuditResult) -> str:
    success = result.success
    interval = f"{_digits(success.lower)} to {_digits(success.upper)}"
    return (
        f"{result.attack:<25}{_digits(success.value) + ' %':>9}{interval:>15}"
        f"{_digits(result.prior) + ' %':>8}{_bound(result.bound) + ' %':>10}  {result.verdict}"
    )


def _digits(rate: float) -> str:
    percent = 100 * rate
    return f"{percent:.1f}" if percent >= 0.995 or percent == 0.0 else f"{percent:.2f}"


def _bound(rate: float) -> str:
    return percent_at_most(rate, 1 if rate >= 0.00995 or rate == 0.0 else 2)
