"""What leaves: a value with certified noise, its certificate, and how to check it."""

from pacprivacy._certificates import Verified as Verified, verify as verify
from pacprivacy.release.answer_bundle import (
    AnswerBundle as AnswerBundle,
    certify_answer_bundle as certify_answer_bundle,
)
from pacprivacy.release.bundle import (
    Bundle as Bundle,
    Context as Context,
    SessionPart as SessionPart,
    bundle_of as bundle_of,
)
from pacprivacy.release.certificate import (
    Certificate as Certificate,
    NoiseSummary as NoiseSummary,
    certificate_charge as certificate_charge,
    certificate_epsilon as certificate_epsilon,
    certificate_learned_facts as certificate_learned_facts,
    certificate_success_bound as certificate_success_bound,
    certified_charges as certified_charges,
    certified_plan as certified_plan,
    write_certificate as write_certificate,
)
from pacprivacy.release.intervals import (
    NAMED as NAMED,
    ErrorBars as ErrorBars,
    Interval as Interval,
    Row as Row,
    drowned_note as drowned_note,
    ends_text as ends_text,
    measure as measure,
    plus_minus as plus_minus,
    warn_if_noisy as warn_if_noisy,
)
from pacprivacy.release.release import Release as Release, Sampler as Sampler, Secret as Secret
from pacprivacy.release.text import (
    TOLD_OUT as TOLD_OUT,
    open_parts as open_parts,
    trade_off_rows as trade_off_rows,
)
from pacprivacy.release.verification import load_bundle as load_bundle
