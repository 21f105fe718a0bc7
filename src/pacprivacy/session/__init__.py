"""Many releases of one secret: the only pipeline, the belief it leaves, what was spent, answers."""

from pacprivacy.session.account import Left as Left
from pacprivacy.session.answerer import Answerer as Answerer, Reply as Reply
from pacprivacy.session.default_sample import (
    FEWEST_UNITS as FEWEST_UNITS,
    pool_reason as pool_reason,
)
from pacprivacy.session.keeper import Reading as Reading
from pacprivacy.session.leases import KINDS as KINDS, NOBODY as NOBODY, Leases as Leases
from pacprivacy.session.query_release import (
    QueryAnswer as QueryAnswer,
    QueryRelease as QueryRelease,
    coins_for_query as coins_for_query,
    query_answer as query_answer,
)
from pacprivacy.session.refinement import Accuracy as Accuracy, GradualRelease as GradualRelease
from pacprivacy.session.rehearsal import (
    SUBSETS_BATCHED as SUBSETS_BATCHED,
    Rehearsal as Rehearsal,
)
from pacprivacy.session.secret import Plan as Plan
from pacprivacy.session.session import Session as Session
