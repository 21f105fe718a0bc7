"""PATE as an estimator: teachers on blocks of records vote, and questions are paid for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.dummy import DummyClassifier

from pacprivacy import dp
from pacprivacy._checks import Array, Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy._sklearn import read_new, read_seed
from pacprivacy.dp.estimators.base import (
    DPBase,
    dp_estimator_label_notes,
    read_dp_estimator_classes,
    read_dp_estimator_input,
)
from pacprivacy.dp.noise import check_epsilon_delta, dp_noise_source
from pacprivacy.errors import BudgetError


@dataclass(eq=False, repr=False)
class PATEClassifier(ClassifierMixin, DPBase):  # type: ignore[misc]
    """Train teachers on disjoint records; release a student taught by their noisy majorities.

    Parameters
    ----------
    estimator : scikit-learn classifier
        What every teacher is.
    student : scikit-learn classifier, optional
        What the student is; the same as a teacher by default.
    n_estimators : int
        Number of teachers, each with a block of records. More of them drown the noise, with
        rougher votes.
    n_questions : int
        How many public questions are answered; the promise covers all of them.
    classes : sequence or "public"
        The labels, declared; records with others are left out. ``"public"`` says that everybody
        knows those that occur.
    box : tuple of two floats or arrays, optional
        Where no public questions are given to ``fit``, they are drawn uniformly between these
        ends, which must not be read off the data.
    n_jobs : int, optional
        Worker processes, through joblib.
    epsilon, delta, neighbours, random_state, simulate
        As in :class:`~pacprivacy.dp.estimators.DPBase`.

    Attributes
    ----------
    student_ : classifier
        Trained on public questions and released answers.
    data_dependent_ : DataDependentLoss
        Loss for the votes that were cast. Curator-only: it is not private itself, and is left out
        when the estimator is pickled or copied.
    certificate_, release_, classes_, n_features_in_, feature_names_in_
        What is promised, the answers, and as in scikit-learn.

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

    _curator_only: ClassVar[tuple[str, ...]] = ("data_dependent_",)

    def fit(self, X: Any, y: Any, *, public: Any = None) -> Self:
        """Train teachers, release their answers, and teach the student.

        Parameters
        ----------
        X, y : arrays of shapes (n_records, n_features) and (n_records,)
            Features and labels of the records.
        public : array of shape (n, n_features), optional
            Questions: features that are not about these records. The first ``n_questions`` are
            asked.
        """
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
        std = (release.certificate.noise or {})["std of votes"]
        self.data_dependent_: dp.DataDependentLoss = dp.pate_data_dependent_loss(
            votes, noise_std=std, delta=self.delta
        )
        self.student_ = self._teach(questions, self.classes_[release.value])
        return self

    def predict(self, X: Any) -> Array:
        """Return the student's predictions."""
        rows = read_new(self, X)
        return np.asarray(self.student_.predict(rows))

    def __getstate__(self) -> dict[str, Any]:
        """Return what may leave."""
        state = dict(super().__getstate__())
        for name in self._curator_only:
            state.pop(name, None)
        return state

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
