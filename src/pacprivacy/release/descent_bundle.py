"""Evidence of a descent with coins: what the steps released, and what units paid."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pacprivacy._certificates import plain_value
from pacprivacy._checks import Integers, Vector
from pacprivacy._system import single_threaded
from pacprivacy.mechanism import steps_of
from pacprivacy.noise import LEAST_STEPS_PER_STD, DescentPlan, StepNoise, split_descent_units
from pacprivacy.release.coin_bundle import (
    RELATIVE,
    ROUNDING,
    Amount,
    CoinProof,
    Positive,
    Shape,
    check_amounts,
    records_of,
    unproved,
)
from pacprivacy.release.verification import compare_verified


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentBundle(CoinProof):
    """What every step released, its noise, and what every unit paid in all; curator-only.

    ``integers`` has shape (steps, features, scores), in steps of ``2^-bits``; before the draw there
    are none. ``spent`` is squared influence; ``rate`` of k-means is the number of its start. With
    the records, the steps can be replayed: they are a function of ``integers``.
    """

    KIND: ClassVar[str] = "descent"

    integers: Integers = field(repr=False)
    spent: Vector = field(repr=False)
    bits: Integers = field(repr=False)
    step_units: Integers = field(repr=False)
    n_features: Positive
    n_scores: Positive
    rate: Amount
    rows_digest: str

    def _shapes(self) -> dict[str, Shape]:
        n_steps = len(self.bits)
        return {
            "integers": (np.int64, (n_steps, self.n_features, self.n_scores)),
            "spent": (np.float64, (self.n_units,)),
            "bits": (np.int64, (n_steps,)),
            "step_units": (np.int64, (n_steps,)),
        }

    def _check_arrays(self) -> None:
        sensible = (self.step_units > 0).all() and (np.abs(self.bits) < 200).all()
        if not (len(self.bits) and sensible) or self.declaration is not None:
            raise ValueError("step_units")
        check_amounts(self.spent, self.n_units)

    @property
    def lattice(self) -> tuple[Vector, Integers]:
        """Grid step of every number with noise, and how many of them a deviation is."""
        n_numbers = self.n_features * self.n_scores
        return np.repeat(np.ldexp(1.0, -self.bits), n_numbers), np.repeat(
            self.step_units, n_numbers
        )

    @property
    def not_checkable(self) -> dict[str, str]:
        """Claims that need the records to check: the charges follow from the gradients."""
        return {
            "influence": "that clocks are those of the records: with the data, recompute_descent "
            "replays the steps"
        }

    def influence_text(self, largest: str) -> str:
        """Say whose influence was compared."""
        return f"the clock of every unit is at most at the square of {largest}"

    def check(self) -> None:
        """Refuse clocks above what the budget allows, and steps without their noise."""
        self._check_parameter()
        if not (self.step_units >= LEAST_STEPS_PER_STD).all():
            raise unproved("the noise has too few steps")
        limits = self.limits()
        self._check_session(limits)
        if not (self.spent <= np.square(limits) * ROUNDING).all():
            raise unproved("a unit paid more than is allowed")
        if len(self.integers) != len(self.bits):
            raise unproved("steps are missing")


def recompute_descent(
    bundle: DescentBundle | str | Path,
    mechanism: Any,
    data: Any,
    units: Any = None,
    *,
    value: Any = None,
) -> None:
    """Replay the steps of a descent from all records, and refuse a bundle that says otherwise.

    Takes the mechanism, the data and the units of the release, and its ``value``.

    Guarantee
    ---------
    Claim R-1. Returns only if features, targets and units are those of the digest, and the clock of
    every unit, computed again from its own gradients along the released steps, stays within what is
    allowed and is the one in the bundle, but for a millionth. A released value must follow from the
    steps, the last of which no clock shows.
    """
    held = DescentBundle.load(bundle) if isinstance(bundle, str | Path) else bundle
    held.check()
    prepared, records, codes = records_of(held, mechanism, data, units)
    steps = steps_of(prepared, records, codes)
    if steps is None:
        raise unproved("the mechanism is no descent")
    settings, records, codes = steps
    with single_threaded():
        problem = settings.problem(records.parts)
        plan = DescentPlan(
            settings=settings,
            batches=split_descent_units(problem, codes, held.n_units, settings.n_batches),
            rate=held.rate,
            noise=tuple(
                StepNoise(bits=int(bits), units_per_std=int(each))
                for bits, each in zip(held.bits, held.step_units, strict=True)
            ),
            keep=held.keep,
            parameter=held.parameter,
            allowed=np.square(held.limits()) * ROUNDING,
            rehearsed=np.zeros(problem.shape),
        )
        shape = (held.n_features, held.n_scores)
        if plan.rows_digest != held.rows_digest or problem.shape != shape:
            raise unproved("other features follow from these records")
        replayed = plan.replay(held.integers)
    if not np.allclose(replayed.spent, held.spent, rtol=RELATIVE, atol=1e-12):
        raise unproved("clocks are not those of the records")
    if value is not None:
        again = prepared.finish(replayed.weights)
        compare_verified(plain_value(value), plain_value(again), "value of the release")
