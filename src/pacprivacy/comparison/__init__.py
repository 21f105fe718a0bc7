"""PAC and differential privacy beside each other, at the same success of the best attacker."""

from pacprivacy.comparison.record import Comparison, ComparisonRow
from pacprivacy.comparison.rows import compare

__all__ = ["Comparison", "ComparisonRow", "compare"]
