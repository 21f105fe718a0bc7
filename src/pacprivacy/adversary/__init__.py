"""The optimal adversary on a finite pool, in closed form.

Whoever knows the universe, the pool, the mechanism and the noise law can do no better than the
posterior computed here, so its success is a certificate and not the result of one attack.
"""

from pacprivacy.adversary.advantage import Candidates, Tilts, is_line, line_posteriors, success_room
from pacprivacy.adversary.information import (
    DEFAULT_GAMMA,
    Divergence,
    divergences,
    exact_information,
    information_draws,
    noiseless_divergences,
    pilot_of_view,
)
from pacprivacy.adversary.membership import (
    Belief,
    MembershipRisk,
    SideKnowledge,
    criterion_success,
    membership_draws,
    membership_risk,
    noiseless_risk,
    side_knowledge,
)
from pacprivacy.adversary.view import (
    View,
    draw_releases,
    log_ratios,
    make_view,
)

__all__ = [
    "DEFAULT_GAMMA",
    "Belief",
    "Candidates",
    "Divergence",
    "MembershipRisk",
    "SideKnowledge",
    "Tilts",
    "View",
    "criterion_success",
    "divergences",
    "draw_releases",
    "exact_information",
    "information_draws",
    "is_line",
    "line_posteriors",
    "log_ratios",
    "make_view",
    "membership_draws",
    "membership_risk",
    "noiseless_divergences",
    "noiseless_risk",
    "pilot_of_view",
    "side_knowledge",
    "success_room",
]
