"""The optimal adversary on a finite pool, in closed form.

Whoever knows the universe, the pool, the mechanism and the noise law can do no better than the
posterior computed here, so its success is a certificate and not the result of one attack.
"""

from pacprivacy.adversary.belief import Belief
from pacprivacy.adversary.criterion import criterion_success
from pacprivacy.adversary.divergence import Divergence, divergences
from pacprivacy.adversary.information import exact_information
from pacprivacy.adversary.membership import MembershipRisk, membership_risk
from pacprivacy.adversary.side_knowledge import SideKnowledge, side_knowledge
from pacprivacy.adversary.view import View, view_of

__all__ = [
    "Belief",
    "Divergence",
    "MembershipRisk",
    "SideKnowledge",
    "View",
    "criterion_success",
    "divergences",
    "exact_information",
    "membership_risk",
    "side_knowledge",
    "view_of",
]
