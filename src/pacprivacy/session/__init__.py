"""Many releases of one secret: the only pipeline, the belief it leaves, what was spent, answers."""

from pacprivacy.session.answers import AnswerOdometer, Responder
from pacprivacy.session.refinement import Accuracy, GradualRelease, Look
from pacprivacy.session.session import Session
from pacprivacy.session.spending import Odometer

__all__ = [
    "Accuracy",
    "AnswerOdometer",
    "GradualRelease",
    "Look",
    "Odometer",
    "Responder",
    "Session",
]
