"""From a budget and the outputs on every subset to a noise plan."""

from pacprivacy.noise.calibration import calibrate
from pacprivacy.noise.iid import calibrate_iid
from pacprivacy.noise.plan import NoisePlan
from pacprivacy.noise.rules import (
    RULES,
    AutoConfidence,
    Basis,
    Boxed,
    Empirical,
    Exact,
    Protect,
    Rule,
    Shaped,
    contrasts,
)

__all__ = [
    "RULES",
    "AutoConfidence",
    "Basis",
    "Boxed",
    "Empirical",
    "Exact",
    "NoisePlan",
    "Protect",
    "Rule",
    "Shaped",
    "calibrate",
    "calibrate_iid",
    "contrasts",
]
