"""What differentially private estimators share: the promise, the seed, how input is read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from pacprivacy import dp
from pacprivacy._checks import Array, Vector
from pacprivacy._random import fresh_seed
from pacprivacy._sklearn import Fitted, read_seed
from pacprivacy.dp.records import read_record_numbers, read_records, record_array
from pacprivacy.errors import BudgetError, DataError

PUBLIC: Final = "public"
PUBLIC_LABELS: Final = "The set of labels that occur in y is public."
COLUMN: Final = "A column-vector y was passed when a 1d array was expected; it was taken as one."


@dataclass(eq=False, repr=False, kw_only=True)
class DPBase(Fitted):
    """Settings of differentially private estimators.

    Parameters
    ----------
    epsilon, delta : float
        The promise.
    neighbours : {"add_remove", "replace"}
        What counts as a difference of one record.
    random_state : int, Generator or RandomState, optional
        Seed of what is public, and with ``simulate`` of the noise too.
    simulate : bool
        Draw everything secret from ``random_state``. For experiments: the certificate says that
        such a fit protects nobody.

    Attributes
    ----------
    certificate_ : DPCertificate
        What is promised, about which neighbours, on which assumptions.
    release_ : DPRelease
        The released value with its certificate; all of it may leave.
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    neighbours: dp.Neighbours = "add_remove"
    random_state: Any = None
    simulate: bool = False

    def _noise_seed(self) -> int | None:
        """Return the seed of the noise, or None for the operating system's randomness."""
        if not self.simulate:
            return None
        seed = read_seed(self.random_state)
        return fresh_seed() if seed is None else seed

    def _keep(self, release: dp.DPRelease, *notes: str) -> None:
        """Keep the release; assumptions that were made before it go into its certificate."""
        certificate = release.certificate
        noted = replace(certificate, assumptions=(*notes, *certificate.assumptions))
        self.release_: dp.DPRelease = replace(release, certificate=noted)
        self.certificate_: dp.DPCertificate = noted


def read_dp_estimator_input(
    estimator: Any, X: Any, y: Any, *, numeric: bool = False
) -> tuple[Vector, Array]:
    """Return features and target of ``fit``, and note number and names of the features.

    What is refused is public: the number of axes and of columns, and their types. Odd records are
    not refused: entries that are no numbers become NaN, and what follows leaves them out.
    """
    if y is None:
        raise DataError(
            f"y must be given: {type(estimator).__name__} requires y to be passed, but the target "
            "y is None."
        )
    if sparse.issparse(X):
        raise DataError("X must be dense; got a sparse matrix. Use X.toarray().")
    if "c" in {getattr(getattr(part, "dtype", None), "kind", None) for part in (X, y)}:
        raise DataError("X and y must hold real numbers. Complex data not supported.")
    if getattr(X, "shape", (0, 1))[1:] == (0,):  # in scikit-learn's words, without the number
        raise DataError("X has 0 feature(s) (shape=(, 0)) while a minimum of 1 is required.")
    rows = read_records(X)
    validate_data(estimator, X if hasattr(X, "columns") else rows, skip_check_array=True)
    target = record_array(y)
    if target.ndim == 2 and target.shape[1] == 1:
        warnings.warn(COLUMN, DataConversionWarning, stacklevel=3)
        target = target[:, 0]
    if numeric:
        return rows, read_record_numbers(target, len(rows))
    if target.shape != (len(rows),):
        raise DataError("y must have one label for each row of X. Pass a vector of labels.")
    return rows, target


def read_dp_estimator_classes(classes: Sequence[Any] | str | None, y: Array) -> Array:
    """Return the declared labels in order; refuse to find them in the data unasked."""
    if classes is None:
        raise BudgetError(
            "classes must be declared, because labels found in the data are a release without "
            "noise; got None. List all labels, or say classes='public' if they are."
        )
    if isinstance(classes, str) and classes != PUBLIC:
        raise BudgetError(f"classes must be a sequence of labels or 'public'; got {classes!r}.")
    known = _occurring(y) if isinstance(classes, str) else np.asarray(classes)
    if known.ndim != 1 or len(np.unique(known)) != len(known) or len(known) < 2:
        raise DataError(
            f"classes must hold two or more different labels; got {len(np.unique(known))} class. "
            "Declare every label that may occur."
        )
    return np.sort(known)


def _occurring(y: Array) -> Array:
    """Return the labels that occur, which are public; what is refused depends on them alone."""
    plain = np.array(y.tolist()) if y.dtype.kind == "O" else y
    labels = np.unique(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that they are many for so few records
        check_classification_targets(labels)
    return labels


def dp_estimator_label_notes(classes: Sequence[Any] | str | None) -> tuple[str, ...]:
    """Return what the certificate says about labels that were not listed."""
    return (PUBLIC_LABELS,) if isinstance(classes, str) else ()
