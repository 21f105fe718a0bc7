"""From a budget and the outputs on every subset to a noise plan."""

from pacprivacy.noise.calibrate import calibrate
from pacprivacy.noise.plan import NoisePlan
from pacprivacy.noise.rules import RULES, AutoConfidence, Basis, Rule

__all__ = ["RULES", "AutoConfidence", "Basis", "NoisePlan", "Rule", "calibrate"]
