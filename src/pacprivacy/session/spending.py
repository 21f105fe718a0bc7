"""What a notebook shows of a session: short, escaped, public."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pacprivacy._plots import draw
from pacprivacy._rounding import at_most, percent_at_most
from pacprivacy.adversary import Belief
from pacprivacy.budget import AnyBudget, Information, Limits, Membership
from pacprivacy.errors import BudgetError, BudgetExceededError
from pacprivacy.noise import Observation
from pacprivacy.pool import Pool
from pacprivacy.release import Bundle, Certificate, Spent, learned_facts

if TYPE_CHECKING:
    from pacprivacy.release import Release


class Shown:
    """The pictures of a session: its table and its plot."""

    if TYPE_CHECKING:

        @property
        def releases(self) -> tuple[Release, ...]:
            """The releases made through this object."""
            ...

        def odometer(self) -> Odometer:
            """Return what was spent."""
            ...

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw what was spent after each release, under the total.

        Returns a figure, which a notebook shows; ``path`` is a file to write besides.
        """
        return draw("plot_session", self.releases, path)

    def _repr_html_(self) -> str:
        names = [release.certificate.mechanism for release in self.releases]
        return self.odometer()._repr_html_() + _list_html(names)


def odometer_html(seen: dict[str, Any]) -> str:
    """Return an odometer as a table."""
    rows = [
        ("Releases", str(seen["n_releases"])),
        ("Information spent", _of(seen["spent_nats"], seen["total_nats"], "nats")),
        ("Really learned so far", f"{at_most(seen['learned_nats'], significant=4)} nats"),
    ]
    if seen["total_success"] is not None:
        spent, most = (percent_at_most(seen[name]) for name in ("spent_success", "total_success"))
        rows.append(("Membership spent", f"{spent} points, success at most {most} %"))
    rows.append(("Best guess about one unit now", f"{percent_at_most(seen['best_guess_now'])} %"))
    if seen["ever_used_prior"] is not None:
        rows.append(("Prior of ever being used", f"{100 * seen['ever_used_prior']:.4g} %"))
    cells = "".join(
        f'<tr><th style="text-align:left">{name}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<div><p><b>Session</b></p><table>{cells}</table></div>"


def _of(spent: float, total: float | None, unit: str) -> str:
    most = "" if total is None else f" of {at_most(total, significant=4)}"
    return f"{at_most(spent, significant=4)} {unit}{most}"


def _list_html(names: Sequence[str]) -> str:
    if not names:
        return ""
    items = "".join(f"<li>{html.escape(name)}</li>" for name in names)
    return f"<p>Released through this object:</p><ol>{items}</ol>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Odometer:
    """What has been spent in the worst case, and what has really been learned so far; public.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> with pac.Session(data, budget=pac.Information(1), n_subsets=16) as session:
    ...     _ = session.release(np.mean, pac.Information(1 / 4), rule="waterfill")
    >>> seen = session.odometer()
    >>> seen.n_releases, seen.spent_nats <= 1 / 4
    (1, True)
    """

    n_releases: int
    spent_nats: float
    total_nats: float | None
    spent_success: float
    total_success: float | None
    learned_nats: float
    best_guess_now: float
    ever_used_prior: float | None

    def _repr_html_(self) -> str:
        return odometer_html(asdict(self))


def read_odometer(
    spent: Spent, total: Limits, belief: Belief | None, pool: Pool | None, *, fresh: bool
) -> Odometer:
    """Return what was spent in the worst case and what was really learned."""
    n = spent.n_releases
    learned, guess = 0.0, 0.5
    if belief is not None and pool is not None:
        learned, guess = belief.learned_nats, float(belief.success_per_unit(pool).max())
    return Odometer(
        n_releases=n,
        spent_nats=spent.nats,
        total_nats=total.mi_nats,
        spent_success=spent.success,
        total_success=total.success,
        learned_nats=learned,
        best_guess_now=guess,
        ever_used_prior=1 - 2.0**-n if fresh and n else None,
    )


def with_belief(
    certificate: Certificate, bundle: Bundle, observation: Observation, belief: Belief, pool: Pool
) -> tuple[Certificate, Bundle]:
    """Add to a certificate what its readers can have learned by now, and to the bundle why."""
    part, facts = bundle.session, certificate.composition
    assert part is not None  # of a session
    assert facts is not None  # likewise
    return (
        replace(certificate, composition={**facts, **learned_facts(belief, pool)}),
        replace(bundle, session=replace(part, observation=observation)),
    )


ROUNDING: Final = 1e-9


def tighter(first: Limits, second: Limits) -> Limits:
    """Return limits that meet both, ``None`` being none."""

    def least(*values: float | None) -> float | None:
        return min((value for value in values if value is not None), default=None)

    return Limits(
        mi_nats=least(first.mi_nats, second.mi_nats), success=least(first.success, second.success)
    )


def check_left(name: str, wanted: float | None, left: float | None) -> None:
    """Refuse a share that is not left."""
    if left is not None and left <= ROUNDING:
        raise BudgetExceededError(
            f"the session's {name} budget is used up. Nothing was drawn or spent."
        )
    if wanted is not None and left is not None and wanted > left * (1 + ROUNDING):
        raise BudgetExceededError(
            f"{name} must be at most what is left, {left:.6g}; got {wanted:.6g}. Nothing was "
            f"drawn or spent. Ask for less or end the session."
        )


def share_of(asked: Limits, left: Limits, prior: float) -> Limits:
    """Return the limits of one release: what was asked, never more than what is left.

    ``success`` is a level in what is asked, an increment in what is left and in the result.
    """
    increment = None if asked.success is None else asked.success - prior
    check_left("information", asked.mi_nats, left.mi_nats)
    check_left("membership increment", increment, left.success)
    if increment is not None and increment <= 0:
        raise BudgetError(
            f"success must be above {prior:.4g}, the best guess that this pool allows before any "
            f"release; got {asked.success:.4g}. Use a Balanced pool or a larger success."
        )
    return tighter(Limits(mi_nats=asked.mi_nats, success=increment), left)


def as_budget(share: Limits) -> AnyBudget:
    """Return the information part of a share; increments travel as caps."""
    if share.mi_nats is not None:
        return Information(share.mi_nats)
    assert share.success is not None  # a share limits something
    return Membership(min(0.5 + share.success, 1 - 1e-12))
