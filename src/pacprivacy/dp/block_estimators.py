"""Estimators on disjoint blocks: teachers that vote (PATE), a private middle of fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final, Literal, Self, TypeVar

import numpy as np
from sklearn.base import ClassifierMixin, clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from pacprivacy import dp
from pacprivacy._checks import Array, Vector
from pacprivacy._random import coerce_seed, own_generators, public_generator
from pacprivacy._sklearn import read_new, read_seed
from pacprivacy.dp.aggregate import fit_aggregate_block
from pacprivacy.dp.estimators import (
    DPBase,
    dp_estimator_label_notes,
    read_dp_estimator_classes,
    read_dp_estimator_input,
)
from pacprivacy.dp.noise import check_epsilon_delta, dp_noise_source
from pacprivacy.dp.records import (
    encode_record_labels,
)
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.mechanism import Structure, declare_estimator_released, flatten


@dataclass(eq=False, repr=False)
class PATEClassifier(ClassifierMixin, DPBase):  # type: ignore[misc]
    """Train teachers on disjoint records; release a student taught by their noisy majorities.

    Parameters
    ----------
    estimator, student : scikit-learn classifiers
        What every teacher is, and the student: the same by default.
    n_estimators, n_questions : int
        Number of teachers, each with a block of records; of public questions that are answered. The
        promise covers all of them.
    classes : sequence or "public"
        The labels, declared; records with others are left out.
    box : tuple of two floats or arrays, optional
        Where no public questions are given to ``fit``, they are drawn uniformly between these
        ends, which must not be read off the data.

    Attributes
    ----------
    student_ : classifier
        Trained on public questions and released answers.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, public = rng.normal(size=(5000, 2)), rng.normal(size=(100, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> model = PATEClassifier(LogisticRegression(), n_estimators=100, classes=(0, 1), epsilon=3.0)
    >>> model.fit(X, y, public=public).score(X, y) > 0.8
    True
    """

    estimator: Any
    _: KW_ONLY
    student: Any = None
    n_estimators: int = 50
    n_questions: int = 100
    classes: Sequence[Any] | str | None = None
    box: tuple[Any, Any] | None = None
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any, *, public: Any = None) -> Self:
        """Train teachers, release their answers to rows of ``public``, and teach the student."""
        self._forget()
        check_epsilon_delta(self.epsilon, self.delta)
        features, target = read_dp_estimator_input(self, X, y)
        self.classes_: Array = read_dp_estimator_classes(self.classes, target)
        questions = self._questions(public, features.shape[1])
        seed = self._noise_seed()
        votes = dp.count_pate_votes(
            self.estimator,
            features,
            target,
            questions,
            classes=self.classes_.tolist(),
            n_teachers=self.n_estimators,
            neighbours=self.neighbours,
            source=dp_noise_source(seed),
            n_jobs=self.n_jobs,
        )
        release = dp.label_by_votes(
            votes,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.neighbours,
            simulate=None if seed is None else seed + 1,
        )
        self._keep(release, *dp_estimator_label_notes(self.classes))
        self.student_ = self._teach(questions, self.classes_[release.value])
        return self

    def predict(self, X: Any) -> Array:
        """Return the student's predictions."""
        rows = read_new(self, X)
        return np.asarray(self.student_.predict(rows))

    def _questions(self, public: Any, n_features: int) -> Vector:
        if self.n_questions < 1:
            raise BudgetError(f"n_questions must be at least 1; got {self.n_questions}. Use 100.")
        if public is not None:
            return np.asarray(public, dtype=np.float64)[: self.n_questions]
        if self.box is None:
            raise BudgetError(
                "public must be given, or box, from which questions are drawn; got neither. Pass "
                "rows that are not about these records."
            )
        lower, upper = (np.broadcast_to(np.asarray(end), (n_features,)) for end in self.box)
        rng = public_generator(coerce_seed(read_seed(self.random_state)), "questions")
        return rng.uniform(lower, upper, size=(self.n_questions, n_features))

    def _teach(self, questions: Any, answers: Any) -> Any:
        if len(np.unique(answers)) == 1:
            return DummyClassifier(strategy="constant", constant=answers[0]).fit(questions, answers)
        return clone(self.estimator if self.student is None else self.student).fit(
            questions, answers
        )


_TEMPLATE_ROWS: Final = 20


Method = TypeVar("Method", bound=Callable[..., Any])


def _if_it_has(name: str) -> Callable[[Method], Method]:
    """Show a method only where the estimator has one of that name."""

    def exists(self: SubsampleAggregate) -> bool:
        getattr(self.estimator, name)  # raises an AttributeError that names the estimator
        return True

    decorator: Callable[[Method], Method] = available_if(exists)
    return decorator


@dataclass(eq=False, repr=False)
class SubsampleAggregate(DPBase):
    """Fit an estimator on disjoint blocks of the records; release a private middle of the fits.

    Parameters
    ----------
    estimator : scikit-learn classifier or regressor
        Cloned for every block, with a seed of its own. Its ``released`` attributes are aggregated;
        they are known for linear models and Gaussian naive Bayes.
    n_estimators : int
        Number of blocks, of which each has a fit. More blocks mean less noise and rougher fits.
    aggregator : {"mean", "median"}
        Mean of parameters scaled down to length ``bound``, or medians on a grid over
        ``[-bound, bound]``; the bound must not be read off the data.
    classes : sequence or "public"
        As in :class:`PATEClassifier`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(4000, 2))
    >>> model = SubsampleAggregate(
    ...     LogisticRegression(), n_estimators=100, bound=4.0, classes=(0, 1), epsilon=2.0
    ... ).fit(X, (X[:, 0] > 0).astype(int))
    >>> model.score(X, X[:, 0] > 0) > 0.9
    True
    """

    estimator: Any
    _: KW_ONLY
    n_estimators: int = 50
    aggregator: Literal["mean", "median"] = "mean"
    bound: float | None = None
    classes: Sequence[Any] | str | None = None
    released: Sequence[str] | None = None
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Fit on every block and release the aggregate."""
        self._forget()
        if self.bound is None:
            raise BudgetError(
                "bound must be given; got None. Use a length that parameters rarely exceed, known "
                "beforehand."
            )
        sorts = is_classifier(self.estimator)
        features, target = read_dp_estimator_input(self, X, y, numeric=not sorts)
        known: Array | None = None
        if sorts:
            self.classes_: Array = read_dp_estimator_classes(self.classes, target)
            known = self.classes_
            target = encode_record_labels(target, tuple(known.tolist()), len(target))
        released = None if self.released is None else tuple(self.released)
        template = _FitBlock(estimator=self.estimator, released=released, classes=known)
        structure = template.structure_of(features.shape[1])
        release = dp.subsample_aggregate(
            replace(template, structure=structure),
            (features, target),
            n_blocks=self.n_estimators,
            size=structure.size,
            aggregator=self._aggregator(),
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.neighbours,
            n_jobs=self.n_jobs,
            simulate=self._noise_seed(),
        )
        self._keep(release, *(dp_estimator_label_notes(self.classes) if sorts else ()))
        self.estimator_ = structure.restore(release.value)
        return self

    def predict(self, X: Any) -> Any:
        """Return predictions of the released estimator."""
        rows = read_new(self, X)
        return self.estimator_.predict(rows)

    @_if_it_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Return probabilities of the classes, by the released estimator."""
        rows = read_new(self, X)
        return self.estimator_.predict_proba(rows)

    @_if_it_has("decision_function")
    def decision_function(self, X: Any) -> Any:
        """Return scores of the classes, by the released estimator."""
        rows = read_new(self, X)
        return self.estimator_.decision_function(rows)

    def score(self, X: Any, y: Any) -> float:
        """Return accuracy or R² of the released estimator."""
        measure = accuracy_score if is_classifier(self.estimator) else r2_score
        return float(measure(y, self.predict(X)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "target_tags"):
            setattr(tags, name, getattr(inner, name))
        tags.target_tags.multi_output = False
        return tags

    def _aggregator(self) -> dp.MeanAggregator | dp.MedianAggregator:
        assert self.bound is not None
        if self.aggregator == "mean":
            return dp.MeanAggregator(clip_norm=self.bound)
        if self.aggregator == "median":
            return dp.MedianAggregator(bounds=(-abs(self.bound), abs(self.bound)))
        raise MechanismError(
            f"aggregator must be 'mean' or 'median'; got {self.aggregator!r}. Use 'mean'."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FitBlock:
    """Fit one block and return its parameters; a class of its own so that workers can load it."""

    estimator: Any
    released: tuple[str, ...] | None
    classes: Array | None
    structure: Structure | None = None

    def structure_of(self, n_features: int) -> Structure:
        """Find the shape of the parameters on made-up records, so that it is public."""
        rng = public_generator(0, "template")
        rows = rng.normal(size=(max(_TEMPLATE_ROWS, 4 * n_features), n_features))
        target: Any = rng.normal(size=len(rows))
        if self.classes is not None:
            target = np.arange(len(rows)) % len(self.classes)
        with own_generators(0):  # public, and the caller's are left alone
            return flatten(self.train(rows, target))[1]

    def train(self, rows: Any, target: Any) -> Any:
        if self.classes is not None:
            known = target >= 0
            rows, target = rows[known], self.classes[target[known]]
        model = fit_aggregate_block(self.estimator, rows, target)
        if self.released is not None:
            declare_estimator_released(model, self.released)
        return model

    def __call__(self, rows: Any, target: Any) -> Any:
        vector, structure = flatten(self.train(rows, target))
        same = self.structure is not None and self.structure.difference(structure) is None
        return vector if same else None
