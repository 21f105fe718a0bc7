"""What the fields of a certificate may hold: a file from elsewhere is checked before it is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pacprivacy.errors import CertificateError
from pacprivacy.release.text import KINDS
from pacprivacy.theory.posterior import DIVERGENCES

__all__ = ["check_fields"]

Check = Callable[[str, Any], None]

LARGEST_COUNT: Final = 2**63 - 1
LONGEST_TEXT: Final = 100_000
ROUNDING: Final = 1e-9  # a sum of probabilities may come out above one


def check_fields(plain: Mapping[str, Any]) -> None:
    """Refuse a certificate whose fields are of the wrong kind or out of range.

    Fields that are missing or unknown are left to the constructor, which knows their names.

    Examples
    --------
    >>> check_fields({"n_subsets": 64, "prior": 0.5})
    >>> check_fields({"prior": "half"})
    Traceback (most recent call last):
        ...
    pacprivacy.errors.CertificateError: certificate field prior must be a number ...
    """
    for name, value in plain.items():
        if name in FIELDS:
            FIELDS[name](name, value)


def _refuse(name: str, constraint: str, value: Any) -> CertificateError:
    shown = repr(value) if isinstance(value, bool | int | float | str) else type(value).__name__
    return CertificateError(
        f"certificate field {name} must be {constraint}; got {shown[:60]}. "
        "Use the file as it was written."
    )


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise _refuse(name, "text", value)


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise _refuse(name, "true or false", value)


def _kind(name: str, value: Any) -> None:
    if not isinstance(value, str) or value not in KINDS:
        raise _refuse(name, f"one of {', '.join(KINDS)}", value)


def _count(low: int = 0) -> Check:
    def check(name: str, value: Any) -> None:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not low <= value <= LARGEST_COUNT:
            raise _refuse(name, f"a whole number of at least {low}", value)

    return check


def _number(low: float = -math.inf, high: float = math.inf) -> Check:
    limits = f" between {low:g} and {high:g}" if math.isfinite(high) else ""
    limits = limits or (f" of at least {low:g}" if math.isfinite(low) else "")

    def check(name: str, value: Any) -> None:
        real = isinstance(value, int | float) and not isinstance(value, bool)
        too_long = isinstance(value, int) and abs(value) > LARGEST_COUNT  # for a float
        if not real or too_long or not (math.isfinite(value) and low <= value <= high):
            raise _refuse(name, f"a number{limits}", value)

    return check


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _list(check: Check) -> Check:
    def check_all(name: str, value: Any) -> None:
        if not isinstance(value, list | tuple):
            raise _refuse(name, "a list", value)
        for item in value:
            check(name, item)

    return check_all


def _record(
    fields: Mapping[str, Check], *, complete: bool = True, later: Sequence[str] = ()
) -> Check:
    """Take an object; the fields in ``later`` are missing, all of them, in files of version 0.1."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise _refuse(name, "an object", value)
        if complete and set(value) not in (set(fields), set(fields) - set(later)):
            raise _refuse(name, f"an object of {', '.join(fields)}", sorted(map(str, value)))
        for key, item in value.items():
            fields.get(key, _fact)(f"{name}.{str(key)[:40]}", item)

    return check


def _fact(name: str, value: Any) -> None:
    """Take what a session may say about itself: a text, a number, or nothing."""
    if value is not None and not isinstance(value, bool):
        (_text if isinstance(value, str) else _number())(name, value)


def _inferences(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise _refuse(name, "an object", value)
    for prior, success in value.items():
        try:
            read = float(prior)
        except (TypeError, ValueError):
            read = math.nan
        _number(0.0, 1.0)(f"{name}, prior", read)
        _number(0.0, 1.0)(name, success)


def _estimate(name: str, value: Any) -> None:
    _ESTIMATE(name, value)
    in_order = value["lower"] <= value["value"] <= value["upper"]
    if not in_order or value["confidence"] == 0:
        raise _refuse(name, "a value within its interval, at a confidence above 0", "another")


def _divergence_name(name: str, value: Any) -> None:
    if not isinstance(value, str) or value not in DIVERGENCES:
        raise _refuse(name, f"one of {', '.join(DIVERGENCES)}", value)


_SHARE: Final = _number(0.0, 1.0 + ROUNDING)
_AMOUNT: Final = _number(0.0)
_ESTIMATE: Final = _record(
    {
        "value": _number(),
        "lower": _number(),
        "upper": _number(),
        "confidence": _SHARE,
        "n_draws": _count(),
    }
)
_TOLD: Final = _record(
    {
        "n_told": _count(),
        "mean_success": _SHARE,
        "worst_success": _SHARE,
        "mean_without_release": _SHARE,
        "worst_without_release": _SHARE,
        "n_sets": _count(),
        "mean_increment": _SHARE,
        "largest_increment": _SHARE,
    },
    later=("mean_increment", "largest_increment"),
)
_DIVERGENCE: Final = _record(
    {"name": _divergence_name, "estimate": _estimate, "success": _inferences}
)
_NOISE: Final = _record(
    {
        "total_variance": _AMOUNT,
        "smallest_std": _AMOUNT,
        "largest_std": _AMOUNT,
        "n_directions": _count(),
        "smallest_grid_step": _AMOUNT,
        "smallest_units_per_std": _count(),
    }
)
_SESSION: Final = _record(
    {
        "release_number": _count(1),
        "secrets": _text,
        "spent_nats_so_far": _AMOUNT,
        "total_nats": _optional(_AMOUNT),
        "membership_increment": _SHARE,
        "spent_increments_so_far": _AMOUNT,
        "total_success": _SHARE,
        "session_success_bound": _SHARE,
        "prior_of_ever_used": _SHARE,
        "learned_nats": _AMOUNT,
        "best_guess_now": _SHARE,
    },
    complete=False,
)
FIELDS: Final[Mapping[str, Check]] = {
    "kind": _kind,
    **dict.fromkeys(("budget", "rule", "mechanism", "output", "scheme", "unit", "software"), _text),
    "n_subsets": _count(1),
    "n_units": _count(1),
    "prior": _SHARE,
    "dimension": _count(),
    "log_det_nats": _AMOUNT,
    "information": _optional(_estimate),
    "mi_upper_nats": _AMOUNT,
    "any_inference": _inferences,
    "membership": _optional(_estimate),
    "membership_mean": _optional(_estimate),
    "membership_bound": _SHARE,
    "epsilon_equivalent": _optional(_AMOUNT),
    "side_knowledge": _list(_TOLD),
    "divergences": _list(_DIVERGENCE),
    "noise": _NOISE,
    "confidence": _SHARE,
    **dict.fromkeys(("public", "not_promised", "notes"), _list(_text)),
    "simulation": _flag,
    "composition": _optional(_SESSION),
}
