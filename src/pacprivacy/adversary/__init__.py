"""The optimal adversary on a finite pool, in closed form.

Whoever knows the universe, the pool, the mechanism and the noise law can do no better than the
posterior computed here, so its success is a certificate and not the result of one attack.
"""

from pacprivacy.adversary.belief import Belief
from pacprivacy.adversary.information import (
    DEFAULT_GAMMA,
    Divergence,
    divergences,
    divergences_of_view,
    exact_information,
    information_draws,
    information_of_view,
    noiseless_divergences,
    pilot_of_view,
)
from pacprivacy.adversary.membership import (
    Candidates,
    MembershipRisk,
    SignBlocks,
    criterion_success,
    membership_draws,
    membership_risk,
    noiseless_risk,
    risk_of_view,
)
from pacprivacy.adversary.side_knowledge import SideKnowledge, side_knowledge
from pacprivacy.adversary.view import (
    Observable,
    View,
    draw_releases,
    log_ratios,
    make_view,
    view_of,
)

__all__ = [
    "DEFAULT_GAMMA",
    "Belief",
    "Candidates",
    "Divergence",
    "MembershipRisk",
    "Observable",
    "SideKnowledge",
    "SignBlocks",
    "View",
    "criterion_success",
    "divergences",
    "divergences_of_view",
    "draw_releases",
    "exact_information",
    "information_draws",
    "information_of_view",
    "log_ratios",
    "make_view",
    "membership_draws",
    "membership_risk",
    "noiseless_divergences",
    "noiseless_risk",
    "pilot_of_view",
    "risk_of_view",
    "side_knowledge",
    "view_of",
]
