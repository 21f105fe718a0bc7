"""PAC and differential privacy beside each other, at the same success of the best attacker."""

from pacprivacy.comparison.record import Comparison as Comparison
from pacprivacy.comparison.rows import compare as compare
