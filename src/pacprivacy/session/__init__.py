"""Many releases of one secret: the only pipeline, the belief it leaves, what was spent, answers."""

from pacprivacy.session.answers import Responder
from pacprivacy.session.keeper import Reading
from pacprivacy.session.refinement import Accuracy, GradualRelease, Look
from pacprivacy.session.rehearsal import Rehearsal
from pacprivacy.session.session import Plan, Session

__all__ = [
    "Accuracy",
    "GradualRelease",
    "Look",
    "Plan",
    "Reading",
    "Rehearsal",
    "Responder",
    "Session",
]
