"""What leaves: a value with certified noise, its certificate, and how to check it."""

from pacprivacy._certificates import Verified as Verified, verify as verify
from pacprivacy.release.answers import (
    AnswerBundle as AnswerBundle,
    certify_answers as certify_answers,
)
from pacprivacy.release.bundle import Bundle as Bundle, SessionPart as SessionPart
from pacprivacy.release.certificate import (
    Certificate as Certificate,
    NoiseSummary as NoiseSummary,
    finite_epsilon as finite_epsilon,
)
from pacprivacy.release.certify import (
    Context as Context,
    assess as assess,
    bundle_of as bundle_of,
    charge_of as charge_of,
    learned_facts as learned_facts,
    noise_summary as noise_summary,
    noiseless_membership as noiseless_membership,
    paid as paid,
    success_bound as success_bound,
    times_least as times_least,
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
