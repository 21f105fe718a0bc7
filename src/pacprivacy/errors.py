"""Every exception and warning the library raises.

A message reads: *name* must be *constraint*; got *value*. *What to do.* Values that only the
curator may see are described by shape and dtype, never printed.
"""

from __future__ import annotations

__all__ = [
    "AuditError",
    "BudgetError",
    "BudgetExceededError",
    "CertificateError",
    "CheckpointError",
    "CostWarning",
    "DataError",
    "InterruptedRun",
    "LedgerError",
    "MechanismError",
    "PacPrivacyError",
    "PoolError",
    "SecretError",
]


class PacPrivacyError(Exception):
    """Base class: something was refused and nothing was released or spent.

    Examples
    --------
    >>> from pacprivacy import errors
    >>> issubclass(errors.BudgetError, errors.PacPrivacyError)
    True
    """


class BudgetError(PacPrivacyError, ValueError):
    """A budget is malformed or cannot be met for this pool and output.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> pac.Membership(1.5)
    Traceback (most recent call last):
        ...
    pacprivacy.errors.BudgetError: success must be above 1/2 ...
    """


class BudgetExceededError(PacPrivacyError):
    """A release would take a session over its total budget; it was refused.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> with pac.Session(np.arange(40.0), budget=pac.Information(1 / 8), n_subsets=16) as session:
    ...     session.release(np.mean, pac.Information(1))
    Traceback (most recent call last):
        ...
    pacprivacy.errors.BudgetExceededError: information must be at most what is left, ...
    """


class DataError(PacPrivacyError, ValueError):
    """The data cannot be used: missing values, unequal lengths, unreadable file.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> pac.privatize(np.mean, [1.0, 2.0, 3.0, float("nan")], pac.Information(1))
    Traceback (most recent call last):
        ...
    pacprivacy.errors.DataError: data must be finite everywhere; got NaN or infinite entries. ...
    """


class PoolError(PacPrivacyError, ValueError):
    """A pool of subsets is malformed or too small.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> pac.Balanced(n_subsets=7).draw(20)
    Traceback (most recent call last):
        ...
    pacprivacy.errors.PoolError: n_subsets must be an even integer of at least 2; got 7. ...
    """


class MechanismError(PacPrivacyError):
    """The mechanism failed, is not deterministic, or returned something unusable.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> pac.privatize(lambda x: "text", np.arange(40.0), pac.Information(1), n_subsets=16)
    Traceback (most recent call last):
        ...
    pacprivacy.errors.MechanismError: the mechanism failed on subset 0: ...
    """


class CheckpointError(PacPrivacyError):
    """A checkpoint file belongs to another run or is damaged.

    Examples
    --------
    >>> import tempfile
    >>> from pacprivacy.simulation import read_checkpoint_seed
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"something else")
    ...     file.flush()
    ...     read_checkpoint_seed(file.name)
    Traceback (most recent call last):
        ...
    pacprivacy.errors.CheckpointError: checkpoint must be a checkpoint file or a new path; ...
    """


class CertificateError(PacPrivacyError):
    """A certificate does not follow from the curator's bundle.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> pac.Certificate.from_dict({"schema_version": 1, "prior": 2.0})
    Traceback (most recent call last):
        ...
    pacprivacy.errors.CertificateError: certificate field prior must be a number ...
    """


class AuditError(PacPrivacyError, ValueError):
    """An audit cannot be run as asked: too few trials, an unknown attack, the wrong target.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> from pacprivacy.audit import audit
    >>> release = pac.privatize(np.mean, np.arange(40.0), pac.Information(1), n_subsets=16)
    >>> audit(release, n_trials=5)
    Traceback (most recent call last):
        ...
    pacprivacy.errors.AuditError: n_trials must be at least 100; got 5. ...
    """


class LedgerError(PacPrivacyError):
    """The ledger cannot be used: not there, locked, read-only, full, damaged, of another run.

    Nothing was released; what had been reserved before stays spent.

    Examples
    --------
    >>> from pacprivacy.ledger import Ledger
    >>> Ledger("no such folder/study.db")
    Traceback (most recent call last):
        ...
    pacprivacy.errors.LedgerError: ledger no such folder/study.db must be a file in ...
    """


class SecretError(PacPrivacyError):
    """An operation would have exposed the secret index.

    Examples
    --------
    >>> import pickle
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> with pac.Session(np.arange(40.0), budget=pac.Information(1)) as session:
    ...     pickle.dumps(session)
    Traceback (most recent call last):
        ...
    pacprivacy.errors.SecretError: a session must stay in its process; ...
    """


class InterruptedRun(PacPrivacyError, KeyboardInterrupt):
    """The user stopped a simulation; the message says how to resume.

    Examples
    --------
    >>> issubclass(InterruptedRun, KeyboardInterrupt)  # Ctrl-C still ends a program
    True
    """


class CostWarning(UserWarning):
    """The run will be slow or the answer noisy; the guarantee is unaffected.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", CostWarning)  # for those who know what they do
    """
