"""Estimators of scikit-learn: released attributes, and the rebuilt estimator.

A fitted estimator holds far more than it shows: labels of the training rows, iteration counts,
support vectors. Only the attributes listed here are measured; everything else fitted is
dropped. Parameters and ``classes_`` must be equal for all subsets. ``random_state`` is dropped,
because a seed of the subset's own would name the subset.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np

from pacprivacy._checks import Array, Matrix, Vector, check_count, check_positive, fixed_mechanism
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import (
    CLASS_LABELS,
    Classes,
    Data,
    MatrixLike,
    Parts,
    Value,
    check_data_varying,
    code_data_labels,
    find_data_classes,
    read_data_columns,
    read_labelled_data,
)
from pacprivacy.mechanism.mechanism import Mechanism
from pacprivacy.mechanism.structure import (
    ContainerNode,
    Node,
    NodeReader,
    StaticNode,
    build_node,
    register_node_builder,
)

_STATIC: Final = ("classes_", "n_features_in_", "feature_names_in_")
_LINEAR: Final = ("coef_", "intercept_")
_DECLARED: Final = "_pac_released"  # set on one fitted estimator; clones do not have it

_RELEASED: Final[dict[str, tuple[str, ...]]] = {
    f"sklearn.{name}": names
    for names, group in {
        _LINEAR: (
            "LinearRegression Ridge RidgeCV RidgeClassifier RidgeClassifierCV Lasso LassoCV "
            "ElasticNet ElasticNetCV Lars LarsCV LassoLars LassoLarsCV BayesianRidge "
            "ARDRegression HuberRegressor TheilSenRegressor QuantileRegressor "
            "LogisticRegression LogisticRegressionCV SGDClassifier SGDRegressor Perceptron "
            "LinearSVC LinearSVR LinearDiscriminantAnalysis"
        ),
        ("cluster_centers_",): "KMeans MiniBatchKMeans",
        ("mean_", "components_", "explained_variance_"): "PCA",
        ("components_",): "TruncatedSVD",
        ("theta_", "var_", "class_prior_"): "GaussianNB",
        ("mean_", "scale_"): "StandardScaler",
        ("min_", "scale_"): "MinMaxScaler",
        ("center_", "scale_"): "RobustScaler",
        ("scale_",): "MaxAbsScaler",
        ("statistics_",): "SimpleImputer",
        (): "FunctionTransformer Normalizer OneHotEncoder OrdinalEncoder",
    }.items()
    for name in group.split()
}

# What fit would have set and predict reads, without any information on the data.
_CONSTANTS: Final[dict[str, dict[str, Any]]] = {
    "sklearn.KMeans": {"_n_threads": 1},
    "sklearn.MiniBatchKMeans": {"_n_threads": 1},
}

# What fit sets besides and transform reads; refused unless it is the same for every subset.
_LAYOUT: Final[dict[str, tuple[str, ...]]] = {
    "sklearn.SimpleImputer": ("_fit_dtype", "_fill_dtype", "indicator_"),
    "sklearn.OneHotEncoder": (
        "categories_",
        "drop_idx_",
        "_drop_idx_after_grouping",
        "_infrequent_enabled",
        "_n_features_outs",
    ),
    "sklearn.OrdinalEncoder": ("categories_", "_missing_indices", "_infrequent_enabled"),
    "sklearn.ColumnTransformer": (
        "_columns",
        "_transformer_to_input_indices",
        "_remainder",
        "sparse_output_",
        "output_indices_",
    ),
}

_POSITIVE: Final = ("scale_", "var_", "class_prior_", "explained_variance_")


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorNode(Node):
    """A fitted estimator: released attributes, static attributes and unfitted parameters."""

    kind: str
    parameters: str
    released: tuple[tuple[str, Node], ...]
    static: tuple[tuple[str, Node], ...]
    template: Any = field(compare=False, repr=False)

    @property
    def children(self) -> tuple[tuple[str, Node], ...]:
        attributes = [(f".{name}", node) for name, node in (*self.released, *self.static)]
        return ((".get_params()", StaticNode(value=self.parameters)), *attributes)

    def restore(self, reader: NodeReader) -> Value:
        estimator = _clone(self.template)
        values = {name: node.restore(reader) for name, node in self.released}
        if _is_a(estimator, "Pipeline"):
            estimator.steps = list(values.items())
            return estimator
        if _is_a(estimator, "ColumnTransformer"):
            static = dict(self.static)["transformers_"].restore(reader)
            estimator.transformers_ = [(n, values.get(n, step), cols) for n, step, cols in static]
            values = {}
        for name, value in values.items():
            setattr(estimator, name, _repair(value) if name in _POSITIVE else value)
        for name, value in _CONSTANTS.get(self.kind, {}).items():
            setattr(estimator, name, value)
        for name, node in self.static:
            if name != "transformers_":
                _set_static(estimator, name, node.restore(reader))
        return estimator

    def describe(self) -> str:
        inner = ", ".join(f"{name}: {node.describe()}" for name, node in self.released)
        return f"{self.kind.rpartition('.')[2]}({inner})"

    def as_record(self) -> Node:
        keys = tuple(name for name, _ in self.released)
        nodes = tuple(node.as_record() for _, node in self.released)
        return ContainerNode(kind=dict, keys=keys, nodes=nodes)


def declare_estimator_released(fitted: Any, names: Sequence[str]) -> None:
    """Mark, in place, which attributes of this one estimator, or of its last step, are released."""
    target = last_estimator_step(fitted)
    missing = [name for name in names if not hasattr(target, name)]
    if missing:
        raise MechanismError(
            f"released must name attributes that fit sets; got {missing[0]!r}, which a fitted "
            f"{type(target).__name__} does not have. Name those that predict or transform reads."
        )
    fixed = [name for name in names if _is_read_only(type(target), name)]
    if fixed:
        raise MechanismError(
            f"released must name attributes that can be set; got {fixed[0]!r}, which "
            f"{type(target).__name__} computes from others. Name those, or use another estimator."
        )
    setattr(target, _DECLARED, tuple(names))


def _is_read_only(cls: type, name: str) -> bool:
    attribute = getattr(cls, name, None)
    return isinstance(attribute, property) and attribute.fset is None


def last_estimator_step(estimator: Any) -> Any:
    """Return the last step of a pipeline, or the estimator itself."""
    while _is_a(estimator, "Pipeline"):
        estimator = estimator.steps[-1][1]
    return estimator


def is_estimator(value: Value) -> bool:
    return not isinstance(value, type) and hasattr(value, "fit") and hasattr(value, "get_params")


def build_estimator(value: Value, pieces: list[Vector], path: str) -> EstimatorNode:
    template, parameters = _unfitted(value, path)
    static: tuple[tuple[str, Node], ...] = ()
    if _is_a(value, "Pipeline"):
        released = tuple(
            (name, build_node(step, pieces, f"{path}.{name}")) for name, step in value.steps
        )
    elif _is_a(value, "ColumnTransformer"):
        fitted = [(name, step) for name, step, _ in value.transformers_ if is_estimator(step)]
        released = tuple(
            (name, build_node(step, pieces, f"{path}.{name}")) for name, step in fitted
        )
        places = tuple(
            (name, None if is_estimator(step) else step, cols)
            for name, step, cols in value.transformers_
        )
        static = (("transformers_", StaticNode(value=places)), *_build_statics(value))
    else:
        released = tuple(
            (name, build_node(_read(value, name, path), pieces, f"{path}.{name}"))
            for name in _released_names(value, path)
        )
        static = _build_statics(value)
    return EstimatorNode(
        kind=_key(type(value)),
        parameters=parameters,
        released=released,
        static=static,
        template=template,
    )


register_node_builder(is_estimator, build_estimator)


def _clone(estimator: Any) -> Any:
    # scikit-learn takes a second to import; only those who use its estimators pay for it.
    from sklearn.base import clone

    return clone(estimator)


def _is_a(value: Value, name: str) -> bool:
    """Whether a value is of a class of scikit-learn, which need not be loaded to know."""
    return any(_key(cls) == f"sklearn.{name}" for cls in type(value).__mro__)


def _key(cls: type) -> str:
    root = cls.__module__.partition(".")[0]
    return (
        f"sklearn.{cls.__name__}" if root == "sklearn" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _released_names(value: Value, path: str) -> tuple[str, ...]:
    declared: tuple[str, ...] | None = getattr(value, _DECLARED, None)
    if declared is not None:
        return declared
    if _is_a(value, "SimpleImputer") and value.strategy == "constant":
        return ()
    for cls in type(value).__mro__:
        if _key(cls) in _RELEASED:
            return _RELEASED[_key(cls)]
    kind = type(value).__name__
    if any(hasattr(value, name) for name in ("tree_", "estimators_", "_predictors")):
        raise MechanismError(
            f"{path} must be numbers that noise can be added to; got {kind}, which is made of "
            f"trees or other models. Use pac.PrivatePredictor({kind}()), which answers with noise."
        )
    raise MechanismError(
        f"{path} must be an estimator whose released attributes are known; got {kind}. "
        "Return the float arrays that predict needs, or name them in pac.PrivateEstimator("
        f"{kind}(), released=[...])."
    )


def _read(value: Value, name: str, path: str) -> Any:
    try:
        entries = getattr(value, name)
    except AttributeError as error:
        raise MechanismError(
            f"{path} must be fitted; got a {type(value).__name__} without {name}. "
            "Return the estimator after fit."
        ) from error
    if entries is not None and np.asarray(entries).dtype.kind != "f":
        raise MechanismError(
            f"{path}.{name} must hold floats; got {np.asarray(entries).dtype}. Labels, counts and "
            "row numbers cannot be released with noise: leave the attribute out."
        )
    return entries


def _unfitted(value: Value, path: str) -> tuple[Any, str]:
    import joblib  # slow to import, not always needed

    try:
        template = _clone(value)
        seeds = [
            name
            for name in template.get_params(deep=True)
            if name == "random_state" or name.endswith("__random_state")
        ]
        template.set_params(**dict.fromkeys(seeds))
        return template, str(joblib.hash(template))
    except Exception as error:
        raise MechanismError(
            f"{path} must be an estimator that can be cloned and pickled; got a "
            f"{type(value).__name__} that cannot ({type(error).__name__}). Return its arrays."
        ) from error


def _build_statics(value: Value) -> tuple[tuple[str, Node], ...]:
    names = [*_STATIC, *_LAYOUT.get(_key(type(value)), ())]
    if _is_a(value, "SimpleImputer") and value.strategy == "constant":
        names.append("statistics_")
    return tuple(
        (name, _build_static(getattr(value, name))) for name in names if hasattr(value, name)
    )


def estimator_takes_gaps(estimator: Any) -> bool:
    """Whether an estimator, or a pipeline up to its imputer, accepts gaps."""
    from sklearn.utils import get_tags

    inner = getattr(estimator, "estimator", None)
    if inner is not None:
        return estimator_takes_gaps(inner)
    for _, step in getattr(estimator, "steps", [("", estimator)]):
        if hasattr(step, "transformers") or "Imputer" in type(step).__name__:
            return True
        if step not in (None, "passthrough") and not get_tags(step).input_tags.allow_nan:
            return False
    return True


def estimator_takes_frames(estimator: Any) -> bool:
    """Whether an estimator picks its columns by name and may see text and gaps."""
    while _is_a(estimator, "Pipeline"):
        estimator = estimator.steps[0][1]
    kinds = ("ColumnTransformer", "SimpleImputer", "OneHotEncoder", "OrdinalEncoder")
    return any(_is_a(estimator, kind) for kind in kinds)


def _check_layout(estimator: Any) -> None:
    """Refuse steps whose output columns depend on the subset, with advice."""
    steps = [estimator, *estimator.get_params(deep=True).values()]
    for step in filter(is_estimator, steps):
        kind, requirement = type(step).__name__, ""
        if _is_a(step, "OneHotEncoder") or _is_a(step, "OrdinalEncoder"):
            if isinstance(step.categories, str):
                requirement = "categories declared: they may differ between subsets. Write "
                requirement += f"{kind}(categories=[['north', 'south'], ...], handle_unknown=...)"
            elif step.min_frequency is not None or step.max_categories is not None:
                requirement = (
                    "no min_frequency and no max_categories: what is rare may differ between "
                )
                requirement += "subsets. Leave rare categories out of the declared ones"
        elif _is_a(step, "SimpleImputer"):
            if step.add_indicator:
                requirement = (
                    "add_indicator=False: where gaps are may differ between subsets. Use a "
                )
                requirement += "category for gaps"
        elif _is_a(step, "KBinsDiscretizer"):
            requirement = "fixed edges. Bin the column before, at declared edges"
        if requirement:
            raise MechanismError(f"{kind} inside a private estimator must have {requirement}.")


def _build_static(value: Value) -> Node:
    if isinstance(value, np.ndarray):
        return StaticNode.of(value)
    if isinstance(value, list):
        return ContainerNode(kind=list, nodes=tuple(_build_static(item) for item in value))
    return StaticNode(value=value)


def _set_static(estimator: Any, name: str, value: Value) -> None:
    if name == "classes_" and type(estimator).__name__ in ("RidgeClassifier", "RidgeClassifierCV"):
        # They keep the classes inside a label binarizer, in some versions only there.
        from sklearn.preprocessing import LabelBinarizer

        estimator._label_binarizer = LabelBinarizer(pos_label=1, neg_label=-1).fit(value)
    if not isinstance(getattr(type(estimator), name, None), property):
        setattr(estimator, name, value)


def _repair(value: Value) -> Any:
    """Replace entries made non-positive by noise by the smallest positive entry."""
    array = np.asarray(value)
    if array.dtype.kind != "f" or (array > 0).all():
        return value
    positive = array[array > 0]
    return np.where(array > 0, array, positive.min() if positive.size else 1.0).astype(array.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorFit(Mechanism):
    """Fit a clone of an estimator on every subset; only the released attributes are measured.

    Where a ``random_state`` inside is None it becomes ``seed``, the same for all subsets: what two
    fits differ in is then the records alone. ``released`` names attributes of the last step of a
    pipeline; None looks them up by class. :meth:`prepare` sets ``classes``.
    """

    estimator: Any
    released: tuple[str, ...] | None = None
    seed: int = 0
    classes: Classes | None = None

    def __post_init__(self) -> None:
        if not is_estimator(self.estimator):
            got = getattr(self.estimator, "__name__", type(self.estimator).__name__)
            raise MechanismError(
                f"estimator must be an instance of a scikit-learn estimator; got {got}. "
                "Pass for example LinearSVC() with brackets."
            )
        _check_layout(self.estimator)

    @property
    def name(self) -> str:
        kind = type(self.estimator).__name__
        steps = getattr(self.estimator, "steps", None)
        if not isinstance(steps, list):
            return kind
        return f"{kind}({', '.join(type(step).__name__ for _, step in steps)})"

    @property
    def published(self) -> tuple[str, ...]:
        return () if self.classes is None else CLASS_LABELS

    def prepare(self, data: Data) -> Self:
        # scikit-learn takes a second to import; only those who fit with it pay for it.
        from sklearn.base import is_classifier

        if not is_classifier(self.estimator) or len(data.parts) != 2:
            return self
        return replace(self, classes=find_data_classes(np.asarray(data.parts[1]), self.name))

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Value:
        if self.classes is not None:
            code_data_labels(np.asarray(parts[1]), self.classes, self.name)
        model = _clone(self.estimator)
        params = model.get_params(deep=True).items()
        unset = [k for k, v in params if k.rpartition("__")[2] == "random_state" and v is None]
        model.set_params(**dict.fromkeys(unset, self.seed))
        sparse = [k for k, _ in params if k.rpartition("__")[2] == "sparse_threshold"]
        model.set_params(**dict.fromkeys(sparse, 0.0))  # else the share of zeros would decide
        model.fit(*parts)
        if self.released is not None:
            declare_estimator_released(model, self.released)
        return model


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearSVM(Mechanism):
    """Hyperplanes of a linear support vector machine, one against the rest.

    The value is a dict with ``coef``, shape (n_classes, p) or (1, p) for two classes, and
    ``intercept``, shape (n_classes,) or (1,); all of it is measured. The *released* value has
    ``classes`` besides. The intercept is regularised with the coefficients, as in
    ``sklearn.svm.LinearSVC``: scale the features before, with all records.

    Parameters
    ----------
    C : float > 0, public
        Inverse strength of the regularisation. A small ``C`` is the stabiliser: the hyperplanes
        move less between subsets and need less noise.
    classes : tuple, public, optional
        The classes in the order of the rows; by default the sorted labels of all records.
    tol, max_iter : float > 0 and int >= 1, public
        Where the solver stops: its distance from the optimum varies between subsets and costs
        noise.
    """

    name = "LinearSVM"
    C: float = 1.0
    classes: Classes | None = None
    tol: float = 1e-6
    max_iter: int = 10_000

    def __post_init__(self) -> None:
        check_positive("C", self.C, advice="Use 1, or less to stabilise.", error=MechanismError)
        check_positive("tol", self.tol, advice="Use about 1e-6.", error=MechanismError)
        check_count("max_iter", self.max_iter, 1, advice="Use about 10000.")

    @property
    def published(self) -> tuple[str, ...]:
        return CLASS_LABELS

    def prepare(self, data: Data) -> Self:
        X, y = read_labelled_data(data.parts, self.name)
        check_data_varying(X, self.name)
        return replace(self, classes=find_data_classes(y, self.name, self.classes))

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> dict[str, Matrix]:
        # scikit-learn takes a second to import; only those who fit with it pay for it.
        from sklearn.svm import LinearSVC

        X, y = read_labelled_data(parts, self.name)
        # The squared hinge loss is solved in the primal, without any randomness.
        model = LinearSVC(C=self.C, dual=False, tol=self.tol, max_iter=self.max_iter).fit(
            X, code_data_labels(y, fixed_mechanism(self.classes, "classes"), self.name)
        )
        return {
            "coef": np.asarray(model.coef_, dtype=np.float64),
            "intercept": np.asarray(model.intercept_, dtype=np.float64),
        }

    def finish(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {**value, "classes": np.asarray(fixed_mechanism(self.classes, "classes"))}

    def predict(self, value: Mapping[str, Any], X: MatrixLike) -> Array:
        """Return the class of every row by the *released* hyperplanes; this costs no privacy."""
        rows = read_data_columns((X,), self.name)
        scores = rows @ np.asarray(value["coef"]).T + np.asarray(value["intercept"])
        chosen = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        classes = value.get("classes", self.classes)
        named: Array = np.asarray(fixed_mechanism(classes, "classes"))[chosen]
        return named
