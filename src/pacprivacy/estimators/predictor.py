"""A private model that never leaves: it answers queries, and every answer is a release."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Self

import joblib
import numpy as np
import numpy.typing as npt
import sklearn
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from pacprivacy import ledger as ledgers
from pacprivacy._checks import Array
from pacprivacy._random import BitSource, coerce_seed, fresh_seed, public_generator, secret_source
from pacprivacy._sklearn import Fitted, read_new, read_seed
from pacprivacy._system import open_regular, single_threaded, write_atomically
from pacprivacy._values import write_release
from pacprivacy.budget import BudgetLike, Information, as_budget, budget_limits
from pacprivacy.errors import (
    BudgetError,
    LedgerError,
    MechanismError,
    SecretError,
)
from pacprivacy.estimators.private_estimator import read_estimator_input

# The ledger is imported on first use, through its package: SQLAlchemy takes a while.
from pacprivacy.mechanism import (
    Data,
    EstimatorFit,
    MatrixLike,
    UnitLabels,
    check_data_classes,
    choose_data_pool,
    estimator_takes_gaps,
    is_data_table,
    read_data_table,
    split_data_units,
)
from pacprivacy.release import AnswerBundle, certify_answer_bundle
from pacprivacy.sample import Pool, PoolStrategy
from pacprivacy.session import DEFAULT_PRINCIPAL, Leases, Odometer, Remaining, Reply, Responder
from pacprivacy.simulation import train_subsets

if TYPE_CHECKING:
    from pacprivacy.ledger import Ledger

Output = Literal["one_hot", "score"]
SCHEMA_VERSION: Final = 1
_QUERY: Final = Information(2.0**-20)
_TOTAL: Final = Information(2.0**-4)


@dataclass(eq=False, repr=False)
class PrivatePredictor(ClassifierMixin, Fitted):  # type: ignore[misc]
    """Train one classifier per candidate subset; let a secret one of them answer queries.

    The models never leave. Every answer is a separate release about one and the same secret,
    calibrated to the belief that all earlier answers leave. Where the models agree, the answer
    is exact and free.

    Parameters
    ----------
    estimator : scikit-learn classifier or pipeline
        Estimator trained on every subset. It is cloned, never fitted itself.
    query_budget : Information
        Budget of one answer.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        Budget of all answers together; then queries are refused. A limit on membership
        is charged unit by unit (claim H-3).
    output : {"one_hot", "score"}
        Whether the vote of a model is released or its class probabilities. Votes need far less
        noise on average, because models mostly agree on them.
    sample, n_subsets, n_jobs, random_state, simulate
        As in :class:`PrivateEstimator`.

    Attributes
    ----------
    certificate_ : Certificate
        Promise about all answers together.
    bundle_ : AnswerBundle, curator-only
        The pool and the terms that :func:`pacprivacy.verify` checks the certificate against.
    classes_, n_features_in_
        As in scikit-learn.

    Notes
    -----
    ``predict``, ``predict_proba``, ``answer`` and ``distil`` all spend: asking twice costs twice.
    There is no ``score``, which would spend unseen. The predictor lives in its process; once
    fitted it cannot be pickled or copied, and does not answer in a fork. :meth:`save` hands it over
    to a file and a ledger, from which one process at a time goes on: ``pac serve`` for example.

    Guarantee
    ---------
    Claim F-2. All answers together give away at most ``budget`` about which subset was used.
    Claim R-4. A fork of the process answers nothing and spends nothing.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PrivatePredictor(
    ...     DecisionTreeClassifier(max_depth=2), n_subsets=16, query_budget=pac.Information(1e-3)
    ... ).fit(X, y)
    >>> model.predict(X[:40]).shape
    (40,)
    """

    estimator: Any
    _: KW_ONLY
    n_subsets: int = 128
    query_budget: Information | str = _QUERY
    budget: BudgetLike = _TOTAL
    output: Output = "one_hot"
    sample: Pool | PoolStrategy | None = None
    n_jobs: int | None = None
    random_state: Any = None
    simulate: bool = False

    def fit(self, X: MatrixLike, y: MatrixLike, *, units: UnitLabels = None) -> Self:
        """Train a model on every candidate subset, then draw the secret one."""
        self._forget()
        X, units = split_data_units(X, units)
        features, y = read_estimator_input(self, X, y, gaps=estimator_takes_gaps(self.estimator))
        check_data_classes(y)
        seed = read_seed(self.random_state)
        root = coerce_seed(seed)
        parts = (X if is_data_table(X) else features, y)
        data = Data(parts=parts, n_rows=len(y), single=False)  # checked above, gaps included
        pool = self._draw_pool(y, units, root)
        self._check_settings()
        mechanism = EstimatorFit(
            estimator=clone(self.estimator, safe=False),
            seed=int(public_generator(root, "estimator").integers(2**31)),
        ).prepare(data)
        classes = np.unique(y)
        bundle = AnswerBundle(
            pool=pool,
            budget=as_budget(self.budget),
            query_budget=self._check_settings(),
            mechanism=f"answers of {mechanism.name}",
            output=f"{self.output} of {len(classes)} classes",
            n_classes=len(classes),
            simulation=self.simulate,
            public=tuple(mechanism.public),
            published=mechanism.published,
        )
        certificate = certify_answer_bundle(bundle)  # first: it refuses a budget that cannot be met
        models = train_subsets(mechanism.evaluate, data, pool, n_jobs=self.n_jobs, rng=root)
        self._models, self.classes_ = models, classes
        self._responder = _responder_of(bundle, secret_source(root, simulate=self.simulate))
        self.bundle_, self.certificate_ = bundle, certificate
        return self

    def save_certificate(self, folder: str | Path) -> Path:
        """Write ``release.json`` (public, returned) and ``curator.npz`` for ``pac verify``."""
        check_is_fitted(self)
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        self.bundle_.save(target / "curator.npz")  # first: no public file without its proof
        public = target / "release.json"
        plain = {"certificate": self.certificate_.to_public_dict()}
        write_release(public, plain)
        return public

    def save(
        self,
        path: str | Path,
        *,
        ledger: str | Path | Ledger,
        dataset: str | None = None,
        principal: str = DEFAULT_PRINCIPAL,
        state: str | Path | None = None,
    ) -> Path:
        """Hand the predictor over to a file and a ledger, for :meth:`load`; this object closes.

        The models are in ``path``, which must not be there yet; the secret, the belief and the
        balances in ``state``, a file beside the ledger. Both have mode 0600 and are for the curator
        alone.

        Parameters
        ----------
        ledger : path, postgresql:// URL or Ledger
            Ledger for all spends from now on, and the amount spent so far.
        dataset, principal : str
            Whose budget it is, the file's name by default, and who spent so far. Where the ledger
            has no total for the dataset, ``budget`` becomes that.

        Guarantee
        ---------
        Claim V-2. There is one secret, which never leaves its promise: it goes on from this file
        and its latest state, in one process at a time, or not at all.
        """
        check_is_fitted(self)
        self._responder.check_process()
        target = Path(path)
        if self.simulate or self._saved:
            raise SecretError(
                "a predictor must be real and new to be saved; got one that is simulated, or that "
                "was loaded, whose file is up to date at every moment. Fit another."
            )
        if target.exists():
            raise LedgerError(f"{target} must not be there yet; it is. Choose another path.")
        if not self._models:
            raise SecretError("predictor must be open; it is closed. Fit it again.")
        content = _to_bytes(self)
        digest = hashlib.sha256(content).hexdigest()
        leases = Leases(
            ledger, digest, dataset=dataset or target.stem, principal=principal, state=state
        )
        try:
            limits = budget_limits(self.bundle_.budget, self.bundle_.pool.n_subsets)
            write_atomically(target, content, mode=0o600)
            leases.begin(limits, self._responder.spent)
            self._responder.hand_over(leases)
        finally:
            leases.close()
        self._models = ()
        return target

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        ledger: str | Path | Ledger,
        dataset: str | None = None,
        principal: str = DEFAULT_PRINCIPAL,
        state: str | Path | None = None,
    ) -> Self:
        """Go on with a predictor that was saved: the same secret, belief and balances.

        Parameters as in :meth:`save`; ``principal`` is who asks from here on. Refused, with nothing
        spent, if it is open elsewhere, if the state is not the latest, or if the file was changed.
        """
        target = Path(path)
        content = _read_models(target)
        record = _from_bytes(target, content, ledger)
        predictor = cls(**record["params"])
        for name, value in record["fitted"].items():
            setattr(predictor, name, value)
        bundle: AnswerBundle = predictor.bundle_
        predictor.certificate_ = certify_answer_bundle(bundle)
        digest = hashlib.sha256(content).hexdigest()
        leases = Leases(
            ledger, digest, dataset=dataset or target.stem, principal=principal, state=state
        )
        try:
            predictor._book = leases
            predictor._responder = _responder_of(
                bundle,
                secret_source(0, simulate=False),
                leases,
            )
        except BaseException:
            leases.close()
            raise
        return predictor

    @property
    def _saved(self) -> bool:
        return hasattr(self, "_book")

    @property
    def is_open(self) -> bool:
        return bool(self._models) and not self._responder.is_closed

    def left_for(self, principal: str, *, fresh: bool = False) -> tuple[Remaining, Remaining]:
        """Return the remaining budget and the limits of a principal, with a ledger."""
        check_is_fitted(self)
        return self._book.left_for(principal, fresh=fresh), self._book.limits_for(principal)

    def answer_each(
        self, X: MatrixLike, parts: Sequence[tuple[str, int]]
    ) -> list[Reply | Exception]:
        """Answer several principals in one pass of the models.

        ``X`` has the questions of all of them, in sequence; ``parts`` says who asks, and
        how many rows. Returns for each a reply, or the ``BudgetExceededError`` for which nothing
        was drawn or spent.

        Guarantee
        ---------
        Claim V-1. The cost of the replies, and the belief after them, are on the disk.
        """
        table = self._tabulate(X)
        replies: list[Reply | Exception] = []
        start = 0
        try:
            for principal, count in parts:
                try:
                    replies.append(self._reply(table[:, start : start + count], principal))
                except Exception as refused:
                    replies.append(refused)
                start += count
        finally:
            self._responder.flush()
        return replies

    def _reply(self, table: Array, principal: str | None = None) -> Reply:
        if self.output == "score":
            return self._responder.reply_scores(table, payer=principal)
        n_classes = len(self.classes_)
        return self._responder.reply_votes(table, n_classes=n_classes, payer=principal)

    def answer(self, X: MatrixLike) -> npt.NDArray[np.float64]:
        """Release one noisy vector per row, shape (n_queries, n_classes); all rows or none."""
        reply = self._reply(self._tabulate(X))
        self._responder.flush()
        return np.array(reply.values)

    def predict(self, X: MatrixLike) -> Any:
        """Return the class with the largest released value, for every row; spends."""
        return self.classes_[self.answer(X).argmax(axis=1)]

    def predict_proba(self, X: MatrixLike) -> npt.NDArray[np.float64]:
        """Return the nearest probabilities to the released vector, for every row; spends."""
        return project_to_simplex(self.answer(X))

    def distil(self, student: Any, X_public: MatrixLike) -> Any:
        """Train another model on private answers to public questions, and return it.

        The student was trained on answered labels alone: it may be published, pickled and used
        without limit. Spends one answer per row of ``X_public``.
        """
        return clone(student).fit(X_public, self.predict(X_public))

    @property
    def score(self) -> NoReturn:
        """There is none: scoring would spend unseen."""
        raise AttributeError(
            "score must not spend, and every answer of a PrivatePredictor does. Score its answers: "
            "accuracy_score(y, predictor.predict(X)), or a student that it has taught."
        )

    def odometer(self) -> Odometer:
        check_is_fitted(self)
        return self._responder.odometer()

    def close(self) -> None:
        """Forget the secret and the models; the certificate and the odometer stay."""
        check_is_fitted(self)
        self._responder.close()
        self._models = ()

    def _tabulate(self, X: MatrixLike) -> Array:
        """Ask every model every question: labels (m, q) or probabilities (m, q, c)."""
        check_is_fitted(self)
        self._responder.check_process()
        gaps = estimator_takes_gaps(self.estimator)
        checked = read_new(self, X, dtype="numeric", gaps=gaps)
        if not self._models:
            raise SecretError("predictor must be open; it is closed. Fit it again.")
        first, where = _distinct_rows(checked)
        questions = read_data_table(X)[first].to_native() if is_data_table(X) else checked[first]
        wants_scores = self.output == "score"
        try:
            with single_threaded():
                answers = joblib.Parallel(n_jobs=self.n_jobs, prefer="threads")(
                    joblib.delayed(_ask)(model, questions, self.classes_, wants_scores)
                    for model in self._models
                )
            return np.stack(answers)[:, where]
        except Exception as error:  # its message may quote a record
            raise MechanismError(
                f"every model must answer every question; one stopped with {type(error).__name__}. "
                f"Nothing was drawn or spent. Ask something else."
            ) from error

    def _draw_pool(self, y: MatrixLike, units: UnitLabels, seed: int) -> Pool:
        if isinstance(self.sample, Pool):
            if units is not None:
                raise MechanismError("units must be None with a ready pool. Draw it with units.")
            return self.sample
        strategy: PoolStrategy = self.sample or replace(choose_data_pool(y, units), folds=2)
        if strategy.n_subsets is None:
            strategy = strategy.with_subsets(self.n_subsets)
        return strategy.draw(len(y), rng=seed, units=units, strata=y)

    def _check_settings(self) -> Information:
        if self.output not in ("one_hot", "score"):
            raise MechanismError(
                f"output must be 'one_hot' or 'score'; got {self.output!r}. Use 'one_hot'."
            )
        query = as_budget(self.query_budget)
        if not isinstance(query, Information):
            raise BudgetError(
                f"query_budget must be Information; got {type(self.query_budget).__name__}. "
                f"Use pac.Information(2**-20)."
            )
        return query

    def _forget(self) -> None:
        super()._forget()
        for name in vars(self).keys() & {"_models", "_responder", "_book"}:
            delattr(self, name)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = estimator_takes_gaps(self.estimator)
        return tags

    def __getstate__(self) -> dict[str, Any]:
        if hasattr(self, "_responder"):
            raise SecretError(
                "a fitted predictor must stay in its process; got a request to pickle or copy it. "
                "Distil it into a model that may leave."
            )
        return dict(super().__getstate__())


def _responder_of(
    bundle: AnswerBundle, source: BitSource, leases: Leases | None = None
) -> Responder:
    """Return the responder under the terms of a bundle; with leases, as it was left."""
    return Responder(
        bundle.pool,
        query_nats=bundle.query_nats,
        total_nats=bundle.total_nats,
        advantage=bundle.advantage,
        two_votes=bundle.two_votes,
        source=source,
        book=leases,
        state=None if leases is None else leases.resume(bundle.pool.n_subsets),
    )


def _versions() -> dict[str, str]:
    python = ".".join(map(str, sys.version_info[:2]))
    return {"python": python, "numpy": np.__version__, "scikit-learn": sklearn.__version__}


def _to_bytes(predictor: PrivatePredictor) -> bytes:
    """Return the file of a predictor's models: a line with its kind, then a pickle."""
    import cloudpickle

    names = ("_models", "classes_", "bundle_", "n_features_in_", "feature_names_in_")
    fitted = {name: getattr(predictor, name) for name in names if hasattr(predictor, name)}
    record = {"params": predictor.get_params(deep=False), "fitted": fitted}
    header = {
        "schema_version": SCHEMA_VERSION,
        "versions": _versions(),
        "name": f"{fresh_seed():x}",
    }
    return json.dumps(header).encode() + b"\n" + bytes(cloudpickle.dumps(record))


def _read_models(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            if os.name != "nt" and mode & 0o077:
                raise SecretError(
                    f"{path} must be readable by its owner alone (mode 0600); got {mode:04o}. Run: "
                    f"chmod 600, if nobody had access to the models."
                )
            return file.read()
    except OSError as error:
        raise LedgerError(
            f"{path} must be a predictor that was saved; {error.strerror}. Choose another path."
        ) from None


def _from_bytes(path: Path, content: bytes, ledger: str | Path | Ledger) -> dict[str, Any]:
    """Read a predictor's models, after a check against the ledger."""
    try:
        line, _, pickled = content.partition(b"\n")
        header = json.loads(line)
        version, versions = header["schema_version"], dict(header["versions"])
    except (ValueError, KeyError, TypeError):
        raise LedgerError(f"{path} must be a predictor that was saved; it is not.") from None
    if version != SCHEMA_VERSION or versions != _versions():
        raise LedgerError(
            f"{path} must be loaded with the versions that it was saved with, {versions}; got "
            f"{_versions()}. Install those, or fit again under a budget of its own."
        )
    book = ledgers.Ledger(ledger, create=False) if isinstance(ledger, str | Path) else ledger
    if not book.mark(hashlib.sha256(content).hexdigest()):
        raise LedgerError(
            f"{path} must be as it was saved under ledger {book.label}; its digest is not known "
            f"there. Restore the file, or name its own ledger."
        )
    record: dict[str, Any] = pickle.loads(pickled)  # our own bytes: the digest says so
    return record


def _distinct_rows(
    X: Array,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct rows, which models are asked about once, and the place of every row."""
    rows = np.ascontiguousarray(X)
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, where = np.unique(whole, return_index=True, return_inverse=True)
    return first.astype(np.int64), where.astype(np.int64)


def _ask(model: Any, X: MatrixLike, classes: Array, wants_scores: bool) -> Array:
    if wants_scores:
        scores: Array = np.asarray(model.predict_proba(X), dtype=np.float64)
        return scores
    labels: Array = np.searchsorted(classes, model.predict(X)).astype(np.int16)
    return labels


def project_to_simplex(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the nearest point with entries >= 0 that sum to 1, for every row."""
    ordered = np.sort(vectors, axis=1)[:, ::-1]
    excess = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, vectors.shape[1] + 1)
    n_kept = (ordered > excess).sum(axis=1)
    shift = excess[np.arange(len(vectors)), np.maximum(n_kept, 1) - 1]
    projected: npt.NDArray[np.float64] = np.maximum(vectors - shift[:, None], 0.0)
    return projected
