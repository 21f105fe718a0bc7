"""Releases: a value with certified noise, its certificate, and how to check it."""

from pacprivacy._values import Verified as Verified, verify as verify
from pacprivacy.release.bundle import (
    AnswerBundle as AnswerBundle,
    Bundle as Bundle,
    BundleSession as BundleSession,
    Context as Context,
    CuratorBundle as CuratorBundle,
    CuratorStatements as CuratorStatements,
    bundle_of as bundle_of,
    load_bundle as load_bundle,
)
from pacprivacy.release.certificate import (
    Certificate as Certificate,
    CertificateNoise as CertificateNoise,
    certificate_epsilon as certificate_epsilon,
)
from pacprivacy.release.certificate_text import (
    TOLD_OUT as TOLD_OUT,
    open_parts_text as open_parts_text,
    plural_text as plural_text,
    trade_off_text_rows as trade_off_text_rows,
)
from pacprivacy.release.coin_bundle import (
    AverageBundle as AverageBundle,
    CoinEvidence as CoinEvidence,
    CoinSession as CoinSession,
    DescentBundle as DescentBundle,
    recompute_average as recompute_average,
    recompute_descent as recompute_descent,
)
from pacprivacy.release.coin_certificate import (
    AverageCertificate as AverageCertificate,
    CoinCertificate as CoinCertificate,
    write_average_certificate as write_average_certificate,
    write_coin_certificate as write_coin_certificate,
)
from pacprivacy.release.error_bars import (
    NAMED as NAMED,
    NO_INTERVALS as NO_INTERVALS,
    ErrorBars as ErrorBars,
    error_bar_notes as error_bar_notes,
    error_bar_rows as error_bar_rows,
    measure_coin_error_bars as measure_coin_error_bars,
    measure_error_bars as measure_error_bars,
    measure_shifted_error_bars as measure_shifted_error_bars,
    warn_of_error_bars as warn_of_error_bars,
)
from pacprivacy.release.pool_certificate import (
    PoolCertificate as PoolCertificate,
    as_pool_certificate as as_pool_certificate,
    certificate_charge as certificate_charge,
    certificate_learned_facts as certificate_learned_facts,
    certificate_success_bound as certificate_success_bound,
    certified_charges as certified_charges,
    certified_plan as certified_plan,
    certify_answer_bundle as certify_answer_bundle,
    write_certificate as write_certificate,
)
from pacprivacy.release.pool_proof import rebuild_verified as rebuild_verified
from pacprivacy.release.release import (
    Release as Release,
)
from pacprivacy.release.sums_bundle import (
    CoinBundle as CoinBundle,
    StoredContributions as StoredContributions,
    recompute_contributions as recompute_contributions,
)
