"""Many releases of one secret: the pipeline, the attacker's belief, the amounts spent, answers."""

from pacprivacy.session.account import LedgerPlace as LedgerPlace, Remaining as Remaining
from pacprivacy.session.coin_secret import ReleaseCoins as ReleaseCoins
from pacprivacy.session.dry_run import (
    FEWEST_UNITS as FEWEST_UNITS,
    SUBSETS_BATCHED as SUBSETS_BATCHED,
    DryRun as DryRun,
    pool_reason as pool_reason,
)
from pacprivacy.session.leases import (
    DEFAULT_PRINCIPAL as DEFAULT_PRINCIPAL,
    KINDS as KINDS,
    Leases as Leases,
)
from pacprivacy.session.pool_secret import ReleaseSecret as ReleaseSecret
from pacprivacy.session.query_release import (
    QueryAnswer as QueryAnswer,
    QueryRelease as QueryRelease,
    query_answer as query_answer,
    released_query as released_query,
)
from pacprivacy.session.refinement import Accuracy as Accuracy, GradualRelease as GradualRelease
from pacprivacy.session.responder import Reply as Reply, Responder as Responder
from pacprivacy.session.secret import (
    Odometer as Odometer,
    Plan as Plan,
    SampleOptions as SampleOptions,
)
from pacprivacy.session.session import Session as Session, SingleSession as SingleSession
