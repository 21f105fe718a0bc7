"""Every exception and warning the library raises.

A message reads: *name* must be *constraint*; got *value*. *What to do.* Values that only the
curator may see are described by shape and dtype, never printed.
"""


class PacPrivacyError(Exception):
    """Base class: something was refused and nothing was released or spent."""


class BudgetError(PacPrivacyError, ValueError):
    """A budget is malformed or cannot be met for this pool and output."""


class BudgetExceededError(PacPrivacyError):
    """A release would take a session over its total budget; it was refused."""


class DataError(PacPrivacyError, ValueError):
    """The data cannot be used: missing values, unequal lengths, unreadable file."""


class QueryError(PacPrivacyError, ValueError):
    """A query cannot be answered with noise; the message names the fragment and the reason."""


class UnansweredError(PacPrivacyError):
    """A principal's query failed on the data, for whatever reason; it was paid for (Q-4)."""

    def __init__(self) -> None:
        super().__init__("The query could not be answered on these data. It was paid for.")


class PoolError(PacPrivacyError, ValueError):
    """A pool of subsets is malformed or too small."""


class MechanismError(PacPrivacyError):
    """The mechanism failed, is not deterministic, or returned something unusable."""


class CheckpointError(PacPrivacyError):
    """A checkpoint file belongs to another run or is damaged."""


class CertificateError(PacPrivacyError):
    """A certificate does not follow from the curator's bundle."""


class AuditError(PacPrivacyError, ValueError):
    """An audit cannot be run: too few trials, an unknown attack, the wrong target."""


class LedgerError(PacPrivacyError):
    """The ledger cannot be used: not there, locked, read-only, full, damaged, of another run.

    Nothing was released; what had been reserved before stays spent.
    """


class SecretError(PacPrivacyError):
    """An operation would have exposed the secret index."""


class InterruptedRun(PacPrivacyError, KeyboardInterrupt):
    """The user stopped a run over the subsets; the message says how to resume."""


class NoisyWarning(UserWarning):
    """A release that is correct and private, and mostly noise; for the curator."""


class UnitWarning(UserWarning):
    """A column seems to identify units, repeats, and is not declared as the unit."""
