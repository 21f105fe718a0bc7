"""Files for the curator alone: arrays and a record in one archive, mode 0600; those of pools."""

from __future__ import annotations

import io
import math
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from pacprivacy import _version, budget as budgets
from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._system import check_unpacked, open_regular, write_atomically
from pacprivacy.adversary import Balances, Belief, Heat, View, ViewTilts, make_view
from pacprivacy.budget import AnyBudget
from pacprivacy.errors import CertificateError
from pacprivacy.noise import (
    Boxed,
    Empirical,
    IidRule,
    Kind,
    NoisePlan,
    Observation,
    Proof,
)
from pacprivacy.sample import Pool
from pacprivacy.simulation import Outputs
from pacprivacy.theory import lattice_total_variation_bound

SCHEMA_VERSION: Final = 2
RELATIVE: Final = 1e-6  # other processors round sums differently
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Record: TypeAlias = dict[str, Any]  # of plain JSON types
Held = TypeVar("Held", bound="CuratorBundle")
_BUDGETS: Final = {
    "information": budgets.Information,
    "membership": budgets.Membership,
    "epsilon": budgets.EpsilonEquivalent,
    "residual": budgets.ResidualEntropy,
}


PACKED = 1 << 20  # bytes of masks that are not compressed any more


def write_bundle_archive(path: str | Path, kind: str, arrays: Arrays, record: Record) -> None:
    """Write arrays and a record of plain JSON types to a file that only its owner can read."""
    metadata = msgspec.json.encode({"schema_version": SCHEMA_VERSION, "kind": kind, **record})
    content = {**arrays, "metadata": np.frombuffer(metadata, dtype=np.uint8)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in content.items():  # as np.savez_compressed, in a fifth of its time
            entry = zipfile.ZipInfo(f"{name}.npy")
            # Masks and the last digits of integers are as good as random.
            packed = array.dtype in (np.uint8, np.int32) and array.nbytes > PACKED
            entry.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    write_atomically(Path(path), buffer.getvalue(), mode=0o600, error=CertificateError)


def read_bundle_archive(path: str | Path, kinds: Mapping[str, type[Held]]) -> Held:
    """Read a bundle of one of these kinds; refuse others, and damaged ones, in one line."""
    try:
        with open_regular(path) as file, np.load(file, allow_pickle=False) as archive:
            check_unpacked(archive.zip)
            arrays = {name: archive[name] for name in archive.files}
        record = msgspec.json.decode(arrays.pop("metadata").tobytes())
        version, kind = record["schema_version"], str(record["kind"])[:20]
        if version == SCHEMA_VERSION and kind in kinds:
            return kinds[kind].from_archive(arrays, record)
        reason = f"it is of kind {kind}, not of a release"
        if version != SCHEMA_VERSION:
            reason = f"it has schema version {str(version)[:20]}, not {SCHEMA_VERSION}"
    except OSError as error:
        reason = error.strerror or "not a bundle"
    except Exception:  # bytes from anywhere break readers and constructors in many ways
        reason = "damaged, or of another kind"
    raise CertificateError(
        f"{path} must be a readable curator bundle; {reason}. Pass the curator.npz that was "
        f"written beside the release."
    )


def plain_bundle_budget(budget: budgets.AnyBudget) -> list[Record]:
    """Return a budget as plain JSON types."""
    parts = budget.parts if isinstance(budget, budgets.Combined) else (budget,)
    names = {kind: name for name, kind in _BUDGETS.items()}
    return [{"kind": names[type(part)], **asdict(part)} for part in parts]


def read_bundle_budget(plain: list[Record]) -> budgets.AnyBudget:
    """Rebuild a budget; whatever is wrong with it raises."""
    parts: tuple[Any, ...] = tuple(msgspec.convert(item, _BUDGETS[item["kind"]]) for item in plain)
    return parts[0] if len(parts) == 1 else budgets.Combined(parts)


ARRAYS: Final = ("outputs", "log_p", "points", "units_per_std", "grid_step")
LARGEST_UNITS: Final = 2**62
MOST_DRAWS: Final = 10**8  # a proof of a certificate has a few hundred thousand at most
Integers = npt.NDArray[np.int64]


class CuratorBundle(ABC):
    """Everything that a certificate follows from, for the curator alone; registered by its kind."""

    __slots__ = ()
    KINDS: ClassVar[dict[str, type[CuratorBundle]]] = {}
    KIND: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.KIND:
            CuratorBundle.KINDS[cls.KIND] = cls

    @abstractmethod
    def to_archive(self) -> tuple[Arrays, Record]:
        """Return the arrays, and a record of plain JSON types."""

    @classmethod
    @abstractmethod
    def from_archive(cls, arrays: Arrays, record: Record) -> Self:
        """Rebuild a bundle; whatever does not fit together raises."""

    def save(self, path: str | Path) -> None:
        """Write the bundle to a file that only its owner can read."""
        write_bundle_archive(path, self.KIND, *self.to_archive())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a bundle; refuse damaged files."""
        return read_bundle_archive(path, {cls.KIND: cls})


def load_bundle(path: str | Path) -> CuratorBundle:
    """Read the curator's file of a release or of a predictor; refuse damaged ones."""
    return read_bundle_archive(path, CuratorBundle.KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratorStatements:
    """Fields of a certificate on the curator's word, without proof in the bundle; public."""

    rule: str
    mechanism: str
    output: str
    public: tuple[str, ...]
    notes: tuple[str, ...]
    software: str
    published: tuple[str, ...] = ()

    @classmethod
    def about(
        cls,
        outputs: Outputs,
        *,
        rule: str,
        public: Sequence[str] = (),
        published: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> Self:
        """Return the description of a mechanism, with additions."""
        return cls(
            rule=rule,
            mechanism=outputs.mechanism_name,
            output=outputs.structure.describe(),
            public=(*outputs.public, *public),
            published=(*outputs.published, *published),
            notes=tuple(notes),
            software=_version.__version__,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleSession:
    """Where a release stands in its session; public but for the arrays and the observation.

    ``share`` is the budget of this release. Where membership is limited, ``balances`` are those
    before the release, ``allowed`` the most that each unit may pay, ``part`` how much of the
    reserve is taken. With ``fresh``, every release has a separate secret. ``observation`` are the
    released integers.
    """

    total: budgets.Spent
    before: budgets.Spent
    share: budgets.Spent
    fresh: bool
    balances: Balances | None = None
    allowed: Vector | None = None
    part: float = 1.0
    observation: Observation | None = None

    def heat(self, pool: Pool, log_p: Vector) -> Heat | None:
        """Return the limits of the release, unit by unit; None where nothing limits it."""
        if self.balances is None or self.allowed is None:
            return None
        before = ViewTilts(pool).before(log_p, np.arange(pool.n_units))
        return self.balances.heat(before, self.allowed, self.part)


class _IidRule(msgspec.Struct):
    name: Literal["boxed", "empirical"]
    parameters: Record


class _Record(msgspec.Struct, kw_only=True):
    """Fields of a file besides its arrays; seeds are text there, for readers of short integers."""

    pool: Record
    seed: int
    gamma: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    simulation: bool
    stated: CuratorStatements
    session: BundleSession | None
    iid_rule: _IidRule | None
    proofs: tuple[Proof, ...]
    worst_unit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bundle(CuratorBundle):
    """Outputs, pool, belief and lattice law of one release; curator-only.

    The certificate is a function of this record and of the simulated draws that its proofs name.
    ``worst_unit``, whose trade-off is shown, is recorded because another machine may round
    otherwise.
    """

    KIND: ClassVar[str] = "release"

    outputs: Matrix
    pool: Pool
    log_p: Vector
    points: Integers
    units_per_std: Integers
    grid_step: Vector
    groups: Integers | None
    proofs: tuple[Proof, ...]
    seed: int = field(repr=False)
    gamma: float
    simulation: bool
    budget: budgets.AnyBudget
    stated: CuratorStatements
    iid_rule: IidRule | None = None
    session: BundleSession | None = None
    worst_unit: int | None = None

    def __post_init__(self) -> None:
        for name in ARRAYS:
            freeze(getattr(self, name))

    def __repr__(self) -> str:
        return f"Bundle(curator-only, {len(self.outputs)} outputs of dtype {self.outputs.dtype})"

    @property
    def kind(self) -> Kind:
        """Which of the three kinds of certificate the noise law supports."""
        return "exact" if self.iid_rule is None else self.iid_rule.kind

    @property
    def is_noiseless(self) -> bool:
        return len(self.units_per_std) == 0

    @property
    def total_variation_slack(self) -> float:
        """Distance of the sampled law from the continuous one (claim L-2)."""
        return lattice_total_variation_bound(len(self.units_per_std), self.units_per_std)

    @property
    def whitened(self) -> Matrix:
        """Each candidate's position in units of the noise."""
        scaled: Matrix = self.points / self.units_per_std
        return scaled

    @property
    def view(self) -> View:
        """Outputs that the attacker compares."""
        slack = self.total_variation_slack
        return make_view(self.whitened, self.log_p, groups=self.groups, slack=slack)

    @property
    def heat(self) -> Heat | None:
        """Limits on the release, unit by unit; None without limits."""
        return None if self.session is None else self.session.heat(self.pool, self.log_p)

    def belief_after(self, observation: Observation) -> Belief:
        """Return the belief after an observation."""
        offset = (observation.integers - self.points) / self.units_per_std
        log_likelihood: Vector = -0.5 * np.einsum("kq,kq->k", offset, offset)
        if self.groups is not None and observation.group is not None:
            log_likelihood[self.groups != observation.group] = -np.inf
        return Belief(log_p=self.log_p).updated(log_likelihood)

    def to_archive(self) -> tuple[Arrays, Record]:
        pool_arrays, pool_metadata = self.pool.to_arrays()
        arrays: Arrays = {
            **{name: getattr(self, name) for name in ARRAYS},
            **{f"pool_{name}": array for name, array in pool_arrays.items()},
        }
        if self.groups is not None:
            arrays["groups"] = self.groups
        part, rule, session = self.session, self.iid_rule, None
        if part is not None:
            seen, balances = part.observation, part.balances
            session = asdict(replace(part, observation=None, balances=None, allowed=None))
            session["group"] = None if seen is None else seen.group
            if seen is not None:
                arrays["observed"] = seen.integers
            if balances is not None:
                arrays |= {"balances": balances.per_unit, "allowed": np.asarray(part.allowed)}
                session |= {"advantage": balances.advantage, "reserve": balances.reserve}
        record = {
            "pool": pool_metadata,
            "seed": str(self.seed),
            "gamma": self.gamma,
            "simulation": self.simulation,
            "stated": {**asdict(self.stated), "budget": plain_bundle_budget(self.budget)},
            "session": session,
            "iid_rule": rule and {"name": rule.family, "parameters": asdict(rule)},
            "proofs": [{**asdict(proof), "seed": str(proof.seed)} for proof in self.proofs],
            "worst_unit": self.worst_unit,
        }
        return arrays, record

    @classmethod
    def from_archive(cls, arrays: Arrays, record: Record) -> Self:
        pool_arrays = {k.removeprefix("pool_"): v for k, v in arrays.items() if "pool_" in k}
        part = record["session"]
        if part is not None and "observed" in arrays:
            part["observation"] = {"integers": arrays["observed"], "group": part["group"]}
        if part is not None and "balances" in arrays:
            part["balances"] = part | {"per_unit": arrays["balances"]}
            part["allowed"] = arrays["allowed"]
        read = msgspec.convert(record, _Record, strict=False)
        rule: IidRule | None = None
        if read.iid_rule is not None:
            kind: type[IidRule] = Boxed if read.iid_rule.name == "boxed" else Empirical
            rule = msgspec.convert(read.iid_rule.parameters, kind)
        bundle = cls(
            **{name: arrays[name] for name in ARRAYS},
            pool=Pool.from_arrays(pool_arrays, read.pool),
            groups=arrays.get("groups"),
            proofs=read.proofs,
            seed=read.seed,
            gamma=read.gamma,
            simulation=read.simulation,
            budget=read_bundle_budget(record["stated"]["budget"]),
            stated=read.stated,
            iid_rule=rule,
            session=read.session,
            worst_unit=read.worst_unit,
        )
        _check_shapes(bundle)
        return bundle


def _check_shapes(bundle: Bundle) -> None:
    """Refuse arrays that do not fit together; what they say is for ``verify`` to judge."""
    m, d = bundle.pool.n_subsets, len(bundle.units_per_std)
    arrays = {
        "outputs": (bundle.outputs, np.float64, (m, bundle.outputs.shape[-1])),
        "log_p": (bundle.log_p, np.float64, (m,)),
        "points": (bundle.points, np.int64, (m, d)),
        "units_per_std": (bundle.units_per_std, np.int64, (d,)),
        "grid_step": (bundle.grid_step, np.float64, (d,)),
    }
    if bundle.groups is not None:
        arrays["groups"] = (bundle.groups, np.int64, (m,))
    for name, (array, kind, shape) in arrays.items():
        if array.dtype != kind or array.shape != shape:
            raise ValueError(name)
    groups, part = bundle.groups, bundle.session
    sound = {
        "outputs": np.isfinite(bundle.outputs).all() and np.isfinite(bundle.log_p.max()),
        "grid_step": (np.isfinite(bundle.grid_step) & (bundle.grid_step > 0)).all(),
        "units_per_std": _all_between(bundle.units_per_std, 1, LARGEST_UNITS),
        "groups": groups is None or _all_between(groups, 0, m - 1),
        "proofs": all(
            1 < p.n_draws <= MOST_DRAWS and 0 < p.gamma < 1 and min(p.seed, p.attempt) >= 0
            for p in bundle.proofs
        ),
        "worst_unit": bundle.worst_unit is None or 0 <= bundle.worst_unit < bundle.pool.n_units,
        "session": part is None or _is_sound(part, bundle.pool.n_units, (m, d)),
    }
    for name, holds in sound.items():
        if not holds:
            raise ValueError(name)


def _all_between(array: npt.NDArray[Any], least: int, most: int) -> bool:
    return bool(((array >= least) & (array <= most)).all())


def _is_sound(part: BundleSession, n_units: int, shape: tuple[int, int]) -> bool:
    """Whether balances and observation fit a pool of ``shape`` (candidates, directions)."""
    balances, seen = part.balances, part.observation
    if balances is not None:
        for array in (balances.per_unit, np.asarray(part.allowed)):
            if array.dtype != np.float64 or array.shape != (n_units,):
                return False
            if not (np.isfinite(array) & (array >= 0)).all():  # no limit would hold nan
                return False
        if not all(0 <= x <= 1 for x in (balances.advantage, balances.reserve, part.part)):
            return False
    if seen is None:
        return True
    known = seen.group is None or 0 <= seen.group < shape[0]
    return known and seen.integers.dtype == np.int64 and seen.integers.shape == shape[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Fields of a certificate besides the plan."""

    outputs: Outputs
    pool: Pool
    budget: AnyBudget
    log_p: Vector
    gamma: float
    seed: int
    simulation: bool
    notes: tuple[str, ...] = ()
    session: BundleSession | None = None


def bundle_of(plan: NoisePlan, context: Context) -> Bundle:
    """Collect everything that a certificate says or rests on, for the curator."""
    outputs = context.outputs
    return Bundle(
        outputs=outputs.values,
        pool=context.pool,
        log_p=context.log_p,
        points=plan.points,
        units_per_std=plan.units_per_std,
        grid_step=plan.grid_step,
        groups=plan.groups,
        proofs=plan.proofs,
        seed=context.seed,
        gamma=context.gamma,
        simulation=context.simulation,
        budget=context.budget,
        stated=CuratorStatements.about(
            outputs, rule=plan.rule, notes=(*plan.notes, *context.notes)
        ),
        iid_rule=plan.iid_rule,
        session=context.session,
        worst_unit=None if plan.membership is None else plan.membership.worst_unit,
    )


# --- answers -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _AnswerTerms:
    """Statements of a certificate on the curator's word."""

    mechanism: str
    output: str
    n_classes: Annotated[int, msgspec.Meta(ge=1)]
    simulation: bool
    public: tuple[str, ...] = ()
    published: tuple[str, ...] = ()
    software: str = _version.__version__


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnswerBundle(_AnswerTerms, CuratorBundle):
    """The pool and the terms that the certificate of a responder follows from; curator-only.

    ``budget`` is what all answers together may give away, ``query_budget`` what one may. An answer
    has ``n_classes`` numbers.
    """

    KIND: ClassVar[str] = "answers"

    pool: Pool
    budget: budgets.AnyBudget
    query_budget: budgets.Information

    def __repr__(self) -> str:
        return f"AnswerBundle(curator-only, pool of {self.pool.n_subsets})"

    @property
    def query_nats(self) -> float:
        """Most that one answer may reveal, in nats."""
        return self.query_budget.mi_nats

    @property
    def advantage(self) -> float | None:
        """Promised advantage about one unit; each unit is charged on its own."""
        level = budgets.budget_limits(self.budget, self.pool.n_subsets).success_level
        return None if level is None else 2 * level - 1

    @property
    def two_votes(self) -> bool:
        """Whether all answers are votes between two classes."""
        return self.n_classes == 2 and self.output.startswith("one_hot ")

    @property
    def total_nats(self) -> float:
        """Most that all answers may reveal, in nats; infinite under a membership budget alone."""
        nats = budgets.budget_limits(self.budget, self.pool.n_subsets).mi_nats
        return math.inf if nats is None else nats

    def to_archive(self) -> tuple[Arrays, Record]:
        pool_arrays, pool_metadata = self.pool.to_arrays()
        record = {
            "pool": pool_metadata,
            "budget": plain_bundle_budget(self.budget),
            "query_budget": plain_bundle_budget(self.query_budget),
            **{item.name: getattr(self, item.name) for item in fields(_AnswerTerms)},
        }
        return pool_arrays, record

    @classmethod
    def from_archive(cls, arrays: Arrays, record: Record) -> Self:
        query = read_bundle_budget(record["query_budget"])
        if not isinstance(query, budgets.Information):
            raise TypeError("query_budget")
        return cls(
            pool=Pool.from_arrays(arrays, record["pool"]),
            budget=read_bundle_budget(record["budget"]),
            query_budget=query,
            **asdict(msgspec.convert(record, _AnswerTerms)),
        )
