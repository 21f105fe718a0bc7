"""Linear support vector machine and forest as private estimators."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy import special
from sklearn.base import ClassifierMixin

from pacprivacy.budget import AnyBudget, Information, Membership
from pacprivacy.design import (
    ClassFrame,
    Descent,
    DescentRun,
    LogisticFit,
    Objective,
    Shares,
    class_scores,
    descend,
)
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.estimators.base import PrivateModel, read_new, read_seed, read_supervised
from pacprivacy.mechanism import Forest, LinearSVM, check_classes, choose_pool, coerce_data
from pacprivacy.simulation import draw_candidates

Matrix = npt.NDArray[np.float64]

_DEFAULT: Final = Membership(0.6)


@dataclass(eq=False, repr=False)
class PrivateLinearSVC(ClassifierMixin, PrivateModel):  # type: ignore[misc]
    """Linear support vector machine, one against the rest, released with certified noise.

    Parameters
    ----------
    C : float
        Inverse strength of the regularisation. A small ``C`` needs less noise.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        What every attacker is held to.
    loss : {"squared_hinge", "hinge"}
        Loss function.
    tol, max_iter : float, int
        Where the solver stops.
    pool, n_subsets, rule, n_jobs, checkpoint, random_state, progress, simulate, target, levels
        As in :class:`~pacprivacy.estimators.base.PrivateBase`.

    Attributes
    ----------
    coef_, intercept_ : arrays of shapes (n_classes, n_features) and (n_classes,)
        Released hyperplanes; one if there are two classes.
    classes_ : array of shape (n_classes,)
        Labels that occur in the universe.
    certificate_, release_, n_features_in_, feature_names_in_
        As in :class:`~pacprivacy.PrivateEstimator`.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0], [9]], 100, axis=0)
    >>> y = np.repeat(["no", "yes"], 100)
    >>> model = PrivateLinearSVC(1e-3, pac.Information(0.5), n_subsets=32).fit(X - 4.5, y)
    >>> model.score(X - 4.5, y) > 0.9
    True
    """

    C: float = 1.0
    budget: AnyBudget = _DEFAULT
    _: KW_ONLY
    loss: Literal["squared_hinge", "hinge"] = "squared_hinge"
    tol: float = 1e-6
    max_iter: int = 10_000

    def decision_function(self, X: Any) -> Matrix:
        """Return the score of every class, or one score if there are two."""
        rows = read_new(self, X)
        value = {"coef": self.coef_, "intercept": self.intercept_}
        return self._mechanism().decide(value, rows)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class with the highest score."""
        scores = self.decision_function(X)
        chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        named: npt.NDArray[Any] = self.classes_[chosen]
        return named

    def _mechanism(self) -> LinearSVM:
        return LinearSVM(C=self.C, loss=self.loss, tol=self.tol, max_iter=self.max_iter)

    def _attributes(self, value: Any) -> dict[str, Any]:
        return {f"{name}_": array for name, array in value.items()}


@dataclass(eq=False, repr=False)
class PrivateForestClassifier(ClassifierMixin, PrivateModel):  # type: ignore[misc]
    """Forest of complete trees, thresholds and leaf scores released with certified noise.

    Parameters
    ----------
    n_trees, depth : int
        Number of trees, and levels of each.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        What every attacker is held to.
    n_thresholds, neighbour_weight, neighbour_radius, pull, smoothing, reference
        As in :class:`pacprivacy.mechanism.Forest`: what keeps thresholds and scores stable.
    feature_seed : int
        Public seed of the order in which trees test the features; named in the certificate.
    pool, n_subsets, rule, n_jobs, checkpoint, random_state, progress, simulate, target, levels
        As in :class:`~pacprivacy.estimators.base.PrivateBase`.

    Attributes
    ----------
    thresholds_, leaves_ : arrays
        Released thresholds, breadth first, and scores of the leaves, from left to right.
    features_ : array of shape (n_trees, depth)
        The column that each tree tests on each level.
    classes_ : array of shape (n_classes,)
        Labels that occur in the universe.
    certificate_, release_, n_features_in_, feature_names_in_
        As in :class:`~pacprivacy.PrivateEstimator`.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0], [9]], 100, axis=0)
    >>> y = np.repeat(["no", "yes"], 100)
    >>> model = PrivateForestClassifier(3, pac.Information(0.5), depth=1, n_subsets=32).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    n_trees: int = 3
    budget: AnyBudget = _DEFAULT
    _: KW_ONLY
    depth: int = 3
    n_thresholds: int = 32
    neighbour_weight: float = 0.5
    neighbour_radius: int = 1
    pull: float = 0.1
    smoothing: float = 10.0
    reference: Literal["low", "middle", "universe"] = "middle"
    feature_seed: int = 0

    def predict_proba(self, X: Any) -> Matrix:
        """Return the mean leaf scores, moved to the nearest probabilities."""
        rows = read_new(self, X)
        names = ("thresholds", "leaves", "features", "classes")
        value = {name: getattr(self, f"{name}_") for name in names}
        return _nearest_probabilities(self._mechanism().scores(value, rows))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class with the highest score."""
        chosen = self.predict_proba(X).argmax(axis=1)
        named: npt.NDArray[Any] = self.classes_[chosen]
        return named

    def _mechanism(self) -> Forest:
        return Forest(
            n_trees=self.n_trees,
            depth=self.depth,
            n_thresholds=self.n_thresholds,
            neighbour_weight=self.neighbour_weight,
            neighbour_radius=self.neighbour_radius,
            pull=self.pull,
            smoothing=self.smoothing,
            reference=self.reference,
            seed=self.feature_seed,
        )

    def _attributes(self, value: Any) -> dict[str, Any]:
        return {f"{name}_": array for name, array in value.items()}


def _nearest_probabilities(scores: Matrix) -> Matrix:
    """Project every row to the simplex; the order within a row stays the same.

    Noise moves scores below zero or above one, so that clipping alone would make ties.
    """
    falling = -np.sort(-scores, axis=1)
    excess = np.cumsum(falling, axis=1) - 1.0
    places = np.arange(1, scores.shape[1] + 1)
    kept = np.count_nonzero(falling * places > excess, axis=1)
    shift = np.take_along_axis(excess, kept[:, None] - 1, axis=1) / kept[:, None]
    probabilities: Matrix = np.maximum(scores - shift, 0.0)
    return probabilities


@dataclass(eq=False, repr=False)
class PrivateLogisticRegression(ClassifierMixin, PrivateModel):  # type: ignore[misc]
    """Logistic regression, one against the rest, released with certified noise.

    Parameters
    ----------
    l2 : float
        Penalty on the weights of the standardised features. More of it needs less noise.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        What every attacker is held to; ``method="descent"`` takes Information only.
    method : {"fit", "descent"}
        Release the fitted weights once (default), or every gradient of a descent with step sizes
        that know of the noise, all iterates included.
    n_steps : int
        Steps of the fit or of the descent.
    step : {"conscious", "post-hoc"} or float
        Step sizes of the descent.
    shares, split
        How the descent spreads its budget over steps and directions, as in
        :class:`pacprivacy.design.Descent`.
    pool, n_subsets, rule, n_jobs, checkpoint, random_state, progress, simulate, target, levels
        As in :class:`~pacprivacy.estimators.base.PrivateBase`; ``rule`` is for the fit.

    Attributes
    ----------
    coef_, intercept_ : arrays of shapes (n_classes, n_features) and (n_classes,)
        Released weights of the features as they were given; one row if there are two classes.
    classes_ : array of shape (n_classes,)
        Labels that occur in the universe.
    certificate_, n_features_in_, feature_names_in_
        As in :class:`~pacprivacy.PrivateEstimator`; also ``release_`` for the fit.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0], [3]], 100, axis=0)
    >>> y = np.repeat(["no", "yes"], 100)
    >>> model = PrivateLogisticRegression(budget=pac.Information(0.5), n_subsets=32).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    l2: float = 0.1
    budget: AnyBudget = _DEFAULT
    _: KW_ONLY
    method: Literal["fit", "descent"] = "fit"
    n_steps: int = 50
    step: Literal["conscious", "post-hoc"] | float = "conscious"
    shares: Shares = "uniform"
    split: Literal["waterfill", "uniform"] = "waterfill"

    def fit(self, X: Any, y: Any = None, *, units: Any = None) -> Self:
        """Release the weights of a secret half of the records, with noise.

        Parameters
        ----------
        X : array or frame of shape (n_records, n_features)
            The universe of records.
        y : array of shape (n_records,)
            Labels.
        units : array of shape (n_records,), optional
            Group label of each record, when a person has several records.

        Raises
        ------
        DataError, PoolError, MechanismError, BudgetError
            Nothing was released.
        """
        if self.method == "fit":
            return super().fit(X, y, units=units)
        if self.method != "descent":
            raise MechanismError(
                f"method must be 'fit' or 'descent'; got {self.method!r}. Use 'fit'."
            )
        self._forget()
        if self.target is not None:
            raise BudgetError(
                "target must be None for method='descent', whose steps share the budget out "
                "beforehand. Use method='fit'."
            )
        if not isinstance(self.budget, Information):
            raise BudgetError(
                f"budget must be Information for method='descent'; got "
                f"{type(self.budget).__name__}. Use method='fit'."
            )
        run, frame = self._descend(read_supervised(self, X, y), units)
        assert run.certificate is not None  # descend always writes one
        self.certificate_ = run.certificate
        self._adopt(frame.finish(run.weights))
        return self

    def decision_function(self, X: Any) -> Matrix:
        """Return the score of every class, or one score if there are two."""
        rows = read_new(self, X)
        names = ("coef", "intercept", "classes")
        return class_scores({name: getattr(self, f"{name}_") for name in names}, rows)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class with the highest score."""
        scores = self.decision_function(X)
        chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        named: npt.NDArray[Any] = self.classes_[chosen]
        return named

    def predict_proba(self, X: Any) -> Matrix:
        """Return probabilities of the classes; with many classes each one's share of the sum."""
        chances: Matrix = special.expit(self.decision_function(X))
        if chances.ndim == 1:
            return np.column_stack([1.0 - chances, chances])
        # With heavy noise every class may have probability 0: then none is preferred.
        total = chances.sum(axis=1, keepdims=True)
        even = np.full_like(chances, 1.0 / chances.shape[1])
        shares: Matrix = np.divide(chances, total, out=even, where=total > 0)
        return shares

    def _descend(self, data: tuple[Any, Any], units: Any) -> tuple[DescentRun, ClassFrame]:
        """Train by private descent on a pool that is drawn for the labels."""
        assert isinstance(self.budget, Information)  # checked by fit
        check_classes(data[1])
        universe = coerce_data(data)
        frame = ClassFrame.of(universe, None, "logistic regression")
        seed = read_seed(self.random_state)
        pool, notes = draw_candidates(
            self._mechanism(),
            universe,
            choose_pool(data[1], units) if self.pool is None else self.pool,
            n_subsets=self.n_subsets,
            units=units,
            rng=seed,
        )
        descent = Descent(
            objective=Objective(loss="logistic", penalty=self.l2),
            n_steps=self.n_steps,
            step=self.step,
            shares=self.shares,
            split=self.split,
        )
        run = descend(
            frame.read(data, "logistic regression"),
            self.budget,
            descent,
            pool=pool,
            rng=seed,
            simulate=self.simulate,
            public=(*frame.describe(), *notes),
        )
        return run, frame

    def _mechanism(self) -> LogisticFit:
        return LogisticFit(penalty=self.l2, n_steps=self.n_steps)

    def _attributes(self, value: Any) -> dict[str, Any]:
        return {f"{name}_": array for name, array in value.items()}
