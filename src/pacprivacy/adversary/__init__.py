"""The optimal adversary on a finite pool, in closed form.

Whoever knows the universe, the pool, the mechanism and the noise law can do no better than the
posterior computed here, so its success is a certificate and not the result of one attack.
"""

from pacprivacy.adversary.belief import Belief
from pacprivacy.adversary.information import Divergence, divergences, exact_information
from pacprivacy.adversary.membership import MembershipRisk, criterion_success, membership_risk
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
