"""Linear models: least squares, logistic regression, linear classifiers, quantile regression.

A setting says how features are mapped (scaled or whitened by the tuning rows' covariance, without
their labels; clipped or not) and how much the weights are penalised. Values are pairs: the setting
of the features, and weights for them with a constant as their last row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtr

from contenders.coins import CoinMethod, Draw, plan_coins, plan_least_squares
from contenders.problem import DPMethod, Problem, Size
from contenders.statistics import Pinball
from contenders.tables import Split, load, with_constant
from pacprivacy import dp
from pacprivacy.mechanism import Descent, Mechanism
from pacprivacy.theory import gaussian_parameter, gaussian_success

INFINITE = float("inf")
LEAST_EIGENVALUE = 1e-5  # of whitening, relative to the largest


class Features(NamedTuple):
    """How features are mapped: ``whitened`` or scaled, clipped to so many deviations."""

    whitened: bool
    clip: float = INFINITE


@dataclass(frozen=True, eq=False)
class Mapping:
    """The maps of one split; what they need is computed from its tuning rows."""

    split: Split

    def __call__(self, X: Any, features: Features) -> Any:
        """Return mapped features with a constant."""
        clipped = np.clip(X, -features.clip, features.clip)
        if features.whitened:
            center, matrix = self._whitening(features.clip)
            clipped = (clipped - center) @ matrix
        return with_constant(clipped)

    @cache  # noqa: B019
    def _whitening(self, clip: float) -> tuple[Any, Any]:
        X = np.clip(self.split.X_tuning, -clip, clip)
        values, vectors = np.linalg.eigh(np.cov(X.T))
        kept = values > LEAST_EIGENVALUE * values[-1]
        return X.mean(axis=0), vectors[:, kept] / np.sqrt(values[kept])

    @cache  # noqa: B019
    def norm(self, features: Features, share: float) -> float:
        """Return the norm that this share of mapped tuning rows keeps."""
        norms = np.linalg.norm(self(self.split.X_tuning, features), axis=1)
        return float(f"{np.quantile(norms, share):.3g}")


# --- PAC: any convex loss of a linear score ---------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Derivatives of a loss in the scores, of shape (n, c); second ones may be (n, 1)."""

    slopes: Callable[[Any, Any], Any]
    curvature: Callable[[Any, Any], Any]


SQUARED = Loss(slopes=lambda s, y: s - y, curvature=lambda s, y: np.ones((len(s), 1)))
LOGISTIC = Loss(  # targets -1 and 1
    slopes=lambda s, y: -y * expit(-y * s),
    curvature=lambda s, y: expit(s) * expit(-s),
)


def smooth_quantile(level: float, width: float) -> Loss:
    """Return the pinball loss, smoothed by a normal kernel so that Newton's method works."""

    def density(s: Any, y: Any) -> Any:
        r = (s - y) / width
        return np.exp(-0.5 * r * r) / (width * np.sqrt(2 * np.pi))

    return Loss(slopes=lambda s, y: ndtr((s - y) / width) - level, curvature=density)


@dataclass(frozen=True, kw_only=True)
class LinearFit(Mechanism):
    """Weights that minimise mean loss plus ``penalty/2 |w|²`` on a subset; no bounds.

    All candidates are found by Newton's method from the universe's minimiser with their own second
    derivative there. The minimiser is unique: where the search starts changes how long it takes.
    """

    name = "LinearFit"
    loss: Loss
    features: Features
    penalty: float
    mapping: Mapping = field(repr=False)
    n_steps: int = 2
    start: Any = field(default=None, repr=False)

    def prepare(self, data: Any) -> Any:
        """Find where candidates begin, by Newton's method with shorter steps where needed."""
        Z, Y = self._read(data.parts)
        weights = np.zeros((Z.shape[1], Y.shape[1]))
        slope = self._slope(Z, Y, weights)
        for _ in range(60):
            move, length = solve(self._bend(Z, Y, weights, 1e-6), slope), 1.0
            while True:
                trial = self._slope(Z, Y, weights - length * move)
                if np.linalg.norm(trial) < np.linalg.norm(slope) or length < 1e-4:
                    break
                length /= 2
            weights, slope = weights - length * move, trial
            if np.linalg.norm(slope) < 1e-10 * len(Z):
                break
        return replace(self, start=weights)

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the weights of one subset."""
        Z, Y = self._read(parts)
        bend, weights = self._bend(Z, Y, self.start), self.start
        for _ in range(1 if self.loss is SQUARED else self.n_steps):
            weights = weights - solve(bend, self._slope(Z, Y, weights))
        return weights

    def batch(self, data: Any, pool: Any) -> Any:
        """Return the weights of all subsets: sums over all rows, less those that are out."""
        Z, Y = self._read(data.parts)
        scores = Z @ self.start
        slopes = self.loss.slopes(scores, Y)
        weight = self.loss.curvature(scores, Y)
        whole_bend, whole_slope = second(Z, weight), Z.T @ slopes
        ridge, found = self._ridge(Z.shape[1]), []
        for k in range(pool.n_subsets):
            inside = pool.mask(k)
            out, size = np.flatnonzero(~inside), inside.sum()
            far = Z[out]
            bend = whole_bend - second(far, weight[out]) + size * ridge
            slope = whole_slope - far.T @ slopes[out] + size * ridge @ self.start
            weights = self.start - solve(bend, slope)
            for _ in range(self.n_steps - 1 if self.loss is not SQUARED else 0):
                pull = self.loss.slopes(Z @ weights, Y)
                pull[out] = 0.0
                weights = weights - solve(bend, Z.T @ pull + size * ridge @ weights)
            found.append(weights.ravel())
        return np.array(found)

    def finish(self, value: Any) -> Any:
        """Return the weights with the map of their features."""
        return self.features, np.asarray(value).reshape(self.start.shape)

    def _read(self, parts: tuple[Any, ...]) -> tuple[Any, Any]:
        Y = parts[1]
        return self.mapping(parts[0], self.features), Y if Y.ndim == 2 else Y[:, None]

    def _ridge(self, size: int) -> Any:
        ridge = self.penalty * np.eye(size)
        ridge[-1, -1] = 1e-9
        return ridge

    def _bend(self, Z: Any, Y: Any, weights: Any, more: float = 0.0) -> Any:
        weight = self.loss.curvature(Z @ weights, Y) + more
        return second(Z, weight) + len(Z) * self._ridge(Z.shape[1])

    def _slope(self, Z: Any, Y: Any, weights: Any) -> Any:
        pull = Z.T @ self.loss.slopes(Z @ weights, Y)
        return pull + len(Z) * self._ridge(Z.shape[1]) @ weights


def second(Z: Any, weight: Any) -> Any:
    """Return weighted second moments of the rows, one matrix for each column of weights."""
    return np.stack([(Z * column[:, None]).T @ Z for column in weight.T])


def solve(bend: Any, slope: Any) -> Any:
    """Solve for every column with its own matrix, or all with one."""
    if len(bend) == 1:
        return np.linalg.solve(bend[0], slope)
    return np.linalg.solve(bend, slope.T[:, :, None])[:, :, 0].T


# --- DP --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rival:
    """Methods of differential privacy on one split; ``y`` is coded as they read it."""

    split: Split
    mapping: Mapping
    y: Any

    def told(self, release: Any) -> float:
        """Return the advantage of the best attacker."""
        return 2 * release.certificate.membership_bound - 1

    def rows(self, features: Features, share: float) -> dict[str, Any]:
        """Return what every method is given."""
        return {
            "X": self._mapped(features),
            "y": self.y,
            "x_bound": self.mapping.norm(features, share),
            "delta": self.split.delta,
        }

    @cache  # noqa: B019
    def _mapped(self, features: Features) -> Any:
        return self.mapping(self.split.X, features)

    def adassp(self, setting: Any, epsilon: float, seed: int) -> tuple[Any, float]:
        features, share, y_bound = setting
        found = dp.adassp(
            y_bound=y_bound, epsilon=epsilon, simulate=seed, **self.rows(features, share)
        )
        return (features, found.value["coef"][:, None]), self.told(found)

    def moments(self, setting: Any, epsilon: float, seed: int) -> tuple[Any, float]:
        features, share, y_bound, penalty = setting
        found = dp.regression_from_statistics(
            y_bound=y_bound,
            epsilon=epsilon,
            penalty=penalty * len(self.y),
            simulate=seed,
            **self.rows(features, share),
        )
        return (features, found.value["coef"][:, None]), self.told(found)

    def objective(self, setting: Any, epsilon: float, seed: int) -> tuple[Any, float]:
        features, share, penalty = setting
        given = self.rows(features, share)
        least = 1.05 * dp.least_penalty(epsilon, x_bound=given["x_bound"])
        found = dp.objective_perturbation(
            classes=(-1.0, 1.0),
            penalty=max(penalty * len(self.y), least),
            epsilon=epsilon,
            simulate=seed,
            **given,
        )
        return (features, found.value[:, None]), self.told(found)

    def descent(self, loss: Any) -> Any:
        """Return gradient descent on all records; without a rate, the library's way to go."""

        def release(setting: Any, epsilon: float, seed: int) -> tuple[Any, float]:
            features, share, n_steps, rate, clip = setting
            ahead = {"momentum": 0.9, "squares": 0.99 if isinstance(loss, dp.Squared) else 0.0}
            steps = dp.Steps(n_steps=n_steps, clip_norm=clip, **ahead)
            if rate is not None:
                steps = dp.Steps(n_steps=n_steps, clip_norm=clip, learning_rate=rate)
            found = dp.dp_sgd(
                loss=loss,
                epsilon=epsilon,
                batch=dp.FullBatch(n_public=len(self.y)),
                steps=steps,
                simulate=seed,
                **self.rows(features, share),
            )
            weights = found.value if found.value.ndim == 2 else found.value[None]
            return (features, weights.T), self.told(found)

        return release


# --- coins -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Coins:
    """Methods with coins on one split; ``y`` is coded as they read it."""

    split: Split
    mapping: Mapping
    y: Any

    def least_squares(self, setting: Any, level: float, seed: int) -> Draw:
        features, penalty = setting
        rows = self.mapping(self.split.X, features)
        draw = plan_least_squares(rows, self.y, penalty, level, seed)
        return lambda number: (features, draw(number)[:, None])

    def descent(self, loss: str, **options: Any) -> Callable[[Any, float, int], Draw]:
        """Return descent with settings (features, names and values of options)."""

        def plan(setting: Any, level: float, seed: int) -> Draw:
            features, more = setting
            rows = self.mapping(self.split.X, features)[:, :-1]
            # Features are clipped already, and the value is a function of mapped features.
            mechanism = Descent(loss=loss, clip=None, **options, **dict(more))
            draw = plan_coins(mechanism, (rows, self.y), level, seed)

            def release(number: int) -> Any:
                value = draw(number)
                return features, np.vstack([value["coef"].T, value["intercept"]])

            return release

        return plan


def settings_of(features: Features, *options: dict[str, Any]) -> tuple[Any, ...]:
    """Return settings of descent for one way of mapping features."""
    return tuple((features, tuple(each.items())) for each in options)


def as_dp(n_steps: int, rates: tuple[float, ...], radii: tuple[float, ...]) -> Any:
    """Return the settings of DP-GD: plain steps along shortened gradients, and the last weights.

    Rates are those of DP times the curvature of the loss; one more is the library's own choice.
    """
    return [
        {"n_steps": n_steps, "rate": rate, "radius": radius, "momentum": 0.0, "average": 0.0}
        for rate, radius in product((*rates, "auto"), radii)
    ]


# --- the cells -------------------------------------------------------------------------------


def squared_error(X: Any, y: Any, mapping: Mapping) -> Any:
    """Return the mean squared error of a value on some rows; 1 is that of the mean."""
    mapped = cache(lambda features: mapping(X, features))
    return lambda value: float(np.mean(np.square(mapped(value[0]) @ value[1] - y[:, None])))


def accuracy(X: Any, y: Any, mapping: Mapping) -> Any:
    """Return the accuracy of a value: the sign of one score, or the largest of several."""
    mapped = cache(lambda features: mapping(X, features))

    def score(value: Any) -> float:
        scores = mapped(value[0]) @ value[1]
        chosen = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
        return float(np.mean(chosen == y))

    return score


def make_least_squares(name: str, size: Size) -> Problem:
    """Return least squares, with a penalty where that is better."""
    split = load(name, most=size.most)
    mapping = Mapping(split)
    rival, coins = Rival(split, mapping, split.y), Coins(split, mapping, split.y)
    y_bound = float(np.quantile(np.abs(split.y_tuning), 0.999))
    white, scaled = Features(True, 4.0), Features(False, 4.0)
    open_white = Features(True)

    def make(setting: Any) -> LinearFit:
        features, penalty = setting
        return LinearFit(loss=SQUARED, features=features, penalty=penalty, mapping=mapping)

    data = (split.X, split.y)
    return Problem(
        data=data,
        n_records=len(split.y),
        delta=split.delta,
        tuning=squared_error(split.X_tuning, split.y_tuning, mapping),
        test=squared_error(split.X_test, split.y_test, mapping),
        larger_is_better=False,
        pac_make=make,
        pac_settings=((open_white, 1e-6), (white, 1e-6), (white, 1e-2), (scaled, 1e-1)),
        folds=(5, 10),
        n_subsets=size.subsets(1000),
        dp_methods=(
            DPMethod(
                name="AdaSSP",
                settings=tuple(product((white,), (0.8, 0.97), (y_bound,))),
                release=rival.adassp,
            ),
            DPMethod(
                name="noisy statistics",
                settings=tuple(product((white,), (0.97,), (y_bound,), (0.03, 0.1))),
                release=rival.moments,
            ),
            DPMethod(
                name="DP-GD",
                settings=tuple(product((white,), (0.97,), (40,), (0.5, None), (1.0, 3.0))),
                release=rival.descent(dp.Squared(y_bound=y_bound)),
            ),
        ),
        coin_methods=(
            CoinMethod(
                name="coins, least squares",
                settings=tuple(product((scaled, Features(False)), (0.0, 30.0))),
                plan=coins.least_squares,
                needs="nothing; clipping of features was tried",
            ),
            CoinMethod(
                name="coins, descent",
                settings=settings_of(
                    white,
                    *({"n_steps": n, "penalty": p} for n, p in product((20, 40), (0.0, 1e-2))),
                ),
                plan=coins.descent("squared"),
                needs="nothing; features in units of public rows",
            ),
        ),
        n_tuning_draws=4,
        pac_needs="nothing; clipping of features was tried",
        dp_needs="bounds of rows and target, clipping (tuned)",
    )


def make_logistic(
    name: str, size: Size, *, n_subsets: int, folds: tuple[int, ...], few: bool = False
) -> Problem:
    """Return logistic regression of two classes."""
    split = load(name, most=size.most)
    mapping = Mapping(split)
    signs = np.where(split.y == 1, 1.0, -1.0)
    rival, coins = Rival(split, mapping, signs), Coins(split, mapping, signs)
    white, scaled = Features(True, 4.0), Features(False, 4.0)

    def make(setting: Any) -> LinearFit:
        features, penalty = setting
        return LinearFit(loss=LOGISTIC, features=features, penalty=penalty, mapping=mapping)

    data = (split.X, signs)
    return Problem(
        data=data,
        n_records=len(signs),
        delta=split.delta,
        tuning=accuracy(split.X_tuning, split.y_tuning == 1, mapping),
        test=accuracy(split.X_test, split.y_test == 1, mapping),
        larger_is_better=True,
        pac_make=make,
        pac_settings=((white, 1e-2), (white, 1e-1))
        if few
        else ((white, 1e-3), (white, 1e-2), (white, 1e-1), (scaled, 1e-2)),
        folds=folds,
        n_subsets=size.subsets(n_subsets),
        dp_methods=(
            DPMethod(
                name="objective perturbation",
                settings=tuple(product((white,) if few else (white, scaled), (0.8, 0.97), (1e-3,))),
                release=rival.objective,
            ),
            DPMethod(
                name="DP-GD",
                settings=tuple(product((white,), (0.97,), (20,), (16.0, None), (1.0,)))
                if few
                else tuple(product((white,), (0.97,), (50,), (4.0, None), (1.0, 3.0))),
                release=rival.descent(dp.Logistic(classes=(-1.0, 1.0))),
            ),
        ),
        coin_methods=(
            CoinMethod(
                name="coins, descent",
                settings=settings_of(
                    white,  # a large radius leaves the loss as it is, like objective perturbation
                    *({"n_steps": n, "radius": 8.0} for n in (20, 40)),
                )
                if few
                else settings_of(
                    white,
                    *({"n_steps": n, "penalty": p} for n, p in product((20, 50), (0.0, 1e-2))),
                ),
                plan=coins.descent("logistic"),
                needs="nothing; features in units of public rows",
            ),
            CoinMethod(
                name="coins, steps of DP-GD",
                settings=settings_of(
                    white, *(as_dp(20, (4.0,), (1.0,)) if few else as_dp(50, (1.0,), (1.0, 3.0)))
                ),
                plan=coins.descent("logistic"),
                needs="nothing; features in units of public rows",
            ),
        ),
        n_tuning_draws=2 if few else 4,
        pac_needs="nothing; clipping of features was tried",
        dp_needs="bounds of rows, clipping norm, steps and rate (tuned)",
    )


def make_classifier(
    split: Split, size: Size, *, n_subsets: int, options: dict[str, Any]
) -> Problem:
    """Return a linear classifier of several classes: one against the rest, softmax for DP."""
    mapping = Mapping(split)
    n_classes = int(split.y.max()) + 1
    rival, coins = Rival(split, mapping, split.y), Coins(split, mapping, split.y)
    white = Features(True, 5.0)
    Y = np.where(split.y[:, None] == np.arange(n_classes), 1.0, -1.0)

    def make(setting: Any) -> LinearFit:
        features, penalty = setting
        loss = options["loss"]
        return LinearFit(loss=loss, features=features, penalty=penalty, mapping=mapping)

    data = (split.X, Y)
    return Problem(
        data=data,
        n_records=len(Y),
        delta=split.delta,
        tuning=accuracy(split.X_tuning, split.y_tuning, mapping),
        test=accuracy(split.X_test, split.y_test, mapping),
        larger_is_better=True,
        pac_make=make,
        n_subsets=size.subsets(n_subsets),
        dp_methods=(
            DPMethod(
                name="DP-GD, softmax",
                settings=tuple(product((white,), (0.97,), *options["dp"])),
                release=rival.descent(dp.Softmax(classes=tuple(range(n_classes)))),
            ),
        ),
        coin_methods=(
            CoinMethod(
                name="coins, descent",
                settings=settings_of(white, *options["coins"]),
                plan=coins.descent("softmax"),
                needs="nothing; features in units of public rows",
            ),
        ),
        pac_settings=tuple(product((white,), options["pac"])),
        folds=options["folds"],
        n_tuning_draws=options["draws"],
        pac_needs="nothing; features in units of public rows",
        dp_needs="clipping norm, steps and rate (tuned)",
    )


def make_quantile_regression(name: str, size: Size, level: float) -> Problem:
    """Return quantile regression: what DP has to build by hand."""
    split = load(name, most=size.most)
    mapping = Mapping(split)
    rival, coins = Rival(split, mapping, split.y), Coins(split, mapping, split.y)
    y_bound = float(np.quantile(np.abs(split.y_tuning), 0.999))
    white = Features(True, 4.0)
    loss = smooth_quantile(level, 0.1)

    def make(setting: Any) -> LinearFit:
        features, penalty = setting
        return LinearFit(loss=loss, features=features, penalty=penalty, mapping=mapping, n_steps=5)

    def pinball(X: Any, y: Any) -> Any:
        mapped = cache(lambda features: mapping(X, features))

        def score(value: Any) -> float:
            r = y - (mapped(value[0]) @ value[1])[:, 0]
            return float(np.mean(np.where(r > 0, level * r, (level - 1) * r)))

        return score

    def aggregate(setting: Any, epsilon: float, seed: int) -> tuple[Any, float]:
        n_blocks, clip = setting
        Z = rival._mapped(white)

        def fit(rows: Any, target: Any) -> Any:
            return fit_quantile(rows, target, level)

        found = dp.subsample_aggregate(
            fit,
            (Z, split.y),
            n_blocks=n_blocks,
            size=Z.shape[1],
            aggregator=dp.MeanAggregator(clip_norm=clip),
            epsilon=epsilon,
            delta=split.delta,
            n_jobs=1,
            simulate=seed,
        )
        spent = gaussian_parameter(epsilon, split.delta)  # the mean of the blocks is Gaussian
        return (white, found.value[:, None]), 2 * gaussian_success(spent) - 1

    data = (split.X, split.y)
    return Problem(
        data=data,
        n_records=len(split.y),
        delta=split.delta,
        tuning=pinball(split.X_tuning, split.y_tuning),
        test=pinball(split.X_test, split.y_test),
        larger_is_better=False,
        pac_make=make,
        pac_settings=((white, 1e-6), (white, 1e-2)),
        folds=(5, 10),
        n_subsets=size.subsets(1000),
        dp_methods=(
            DPMethod(
                name="sample and aggregate",
                settings=((30, 2.0), (100, 2.0)),
                release=aggregate,
            ),
            DPMethod(
                name="DP-GD, pinball loss",
                settings=tuple(product((white,), (0.97,), (60,), (0.5, 2.0), (3.0,))),
                release=rival.descent(Pinball(level=level, y_bound=y_bound)),
            ),
        ),
        coin_methods=(
            CoinMethod(
                name="coins, descent",
                settings=settings_of(
                    white,
                    *({"n_steps": n, "average": a} for n, a in product((30, 60), (0.5, 0.9))),
                ),
                plan=coins.descent("quantile", level=level),
                needs="nothing; features in units of public rows",
            ),
        ),
        n_tuning_draws=2,
        pac_needs="nothing; clipping of features was tried",
        dp_needs="a loss written by hand; bounds, steps and rate (tuned)",
    )


def fit_quantile(Z: Any, y: Any, level: float) -> Any:
    """Return weights of a smoothed quantile regression on few rows."""
    loss, weights = smooth_quantile(level, 0.3), np.zeros((Z.shape[1], 1))
    for _ in range(15):
        scores = Z @ weights
        bend = (Z * loss.curvature(scores, y[:, None])[:, None]).T @ Z
        slope = Z.T @ loss.slopes(scores, y[:, None])
        bend += 1e-2 * len(Z) * np.eye(Z.shape[1])
        weights = weights - np.linalg.solve(bend, slope + 1e-2 * len(Z) * weights)
    return weights[:, 0]
