"""PAC and differential privacy beside each other, at the same success of the best attacker."""

from pacprivacy.comparison.advice import Advice as Advice, Measured as Measured, advise as advise
from pacprivacy.comparison.comparison import Comparison as Comparison, compare as compare
