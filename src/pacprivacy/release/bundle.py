"""The curator's bundle: everything needed to recompute a certificate, and nothing of the secret.

It holds outputs, the pool and the noise law, so it is for the curator alone. Neither the secret
index nor the noise that was drawn is in it.
"""

from __future__ import annotations

import io
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy.errors import CertificateError
from pacprivacy.noise.plan import NoisePlan, Proof
from pacprivacy.noise.rules import Boxed, Empirical, IidRule
from pacprivacy.pool import Pool
from pacprivacy.theory.information import lattice_total_variation

__all__ = ["Bundle"]

SCHEMA_VERSION: Final = 1
LARGEST_UNITS: Final = 2**62
MOST_DRAWS: Final = 10**8  # a proof of a certificate has a few hundred thousand at most
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bundle:
    """Outputs, pool, belief and lattice law of one release; curator-only.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> pac.privatize(np.mean, data, pac.Information(0.1), n_subsets=16).bundle
    Bundle(curator-only, 16 outputs of dtype float64)
    """

    outputs: Matrix
    pool: Pool
    log_p: Vector
    points: Integers
    units_per_std: Integers
    grid_step: Vector
    groups: Integers | None
    proofs: tuple[Proof, ...]
    seed: int = field(repr=False)
    simulation: bool
    iid_rule: IidRule | None = None

    def __post_init__(self) -> None:
        for array in (self.outputs, self.log_p, self.points, self.units_per_std, self.grid_step):
            freeze(array)

    def __repr__(self) -> str:
        return f"Bundle(curator-only, {len(self.outputs)} outputs of dtype {self.outputs.dtype})"

    @classmethod
    def of(
        cls,
        outputs: Matrix,
        pool: Pool,
        log_p: Vector,
        plan: NoisePlan,
        *,
        seed: int,
        simulation: bool,
    ) -> Self:
        """Collect what a certificate rests on."""
        return cls(
            outputs=outputs,
            pool=pool,
            log_p=log_p,
            points=plan.points,
            units_per_std=plan.units_per_std,
            grid_step=plan.grid_step,
            groups=None if plan.revealed is None else plan.revealed.groups,
            proofs=plan.proofs,
            seed=seed,
            simulation=simulation,
            iid_rule=plan.iid_rule,
        )

    @property
    def total_variation_slack(self) -> float:
        """Distance of the sampled law from the continuous one (claim L-2)."""
        return lattice_total_variation(len(self.units_per_std), self.units_per_std)

    def whitened(self, outputs: Matrix) -> Matrix:
        """Return each candidate's position in units of the noise."""
        scaled: Matrix = self.points / self.units_per_std
        return scaled

    def revealed_groups(self, outputs: Matrix) -> Integers | None:
        """Return the groups that the release reveals without noise."""
        return self.groups

    def save(self, path: str | Path) -> None:
        """Write the bundle to a file that only its owner can read."""
        pool_arrays, pool_metadata = self.pool.to_arrays()
        metadata = {
            "schema_version": SCHEMA_VERSION,
            "pool": pool_metadata,
            "seed": str(self.seed),
            "simulation": self.simulation,
            "iid_rule": self.iid_rule
            and {"name": self.iid_rule.name, "parameters": asdict(self.iid_rule)},
            "proofs": [{**asdict(proof), "seed": str(proof.seed)} for proof in self.proofs],
        }
        arrays: dict[str, npt.NDArray[Any]] = {
            "outputs": self.outputs,
            "log_p": self.log_p,
            "points": self.points,
            "units_per_std": self.units_per_std,
            "grid_step": self.grid_step,
            "metadata": np.frombuffer(json.dumps(metadata).encode(), dtype=np.uint8),
            **{f"pool_{name}": array for name, array in pool_arrays.items()},
        }
        if self.groups is not None:
            arrays["groups"] = self.groups
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        target = Path(path)
        target.unlink(missing_ok=True)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(buffer.getbuffer())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a bundle; refuse damaged files."""
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            metadata = json.loads(arrays.pop("metadata").tobytes())
            if metadata["schema_version"] != SCHEMA_VERSION:
                raise KeyError("schema_version")
            pool_arrays = {k.removeprefix("pool_"): v for k, v in arrays.items() if "pool_" in k}
            iid = metadata["iid_rule"]
            proofs = tuple(Proof(**{**p, "seed": int(p["seed"])}) for p in metadata["proofs"])
            found = cls(
                outputs=arrays["outputs"],
                pool=Pool.from_arrays(pool_arrays, metadata["pool"]),
                log_p=arrays["log_p"],
                points=arrays["points"],
                units_per_std=arrays["units_per_std"],
                grid_step=arrays["grid_step"],
                groups=arrays.get("groups"),
                proofs=proofs,
                seed=int(metadata["seed"]),
                simulation=bool(metadata["simulation"]),
                iid_rule=iid
                and {"boxed": Boxed, "empirical": Empirical}[iid["name"]](**iid["parameters"]),
            )
            _check_shapes(found)
            return found
        except OSError as error:
            reason = error.strerror or "not a bundle"
        except Exception:  # bytes from anywhere break the readers of zip and numpy in many ways
            reason = "damaged, or written by another version"
        raise CertificateError(
            f"{path} must be a readable curator bundle; {reason}. Pass the curator.npz that was "
            f"written beside the release."
        )


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
    if not (np.isfinite(bundle.outputs).all() and np.isfinite(bundle.log_p.max())):
        raise ValueError("outputs")
    if not (np.isfinite(bundle.grid_step) & (bundle.grid_step > 0)).all():
        raise ValueError("grid_step")
    if not ((bundle.units_per_std > 0) & (bundle.units_per_std <= LARGEST_UNITS)).all():
        raise ValueError("units_per_std")
    if bundle.groups is not None and not ((bundle.groups >= 0) & (bundle.groups < m)).all():
        raise ValueError("groups")
    for proof in bundle.proofs:
        whole = all(type(number) is int for number in (proof.n_draws, proof.attempt))
        if not whole or not (0 < proof.n_draws <= MOST_DRAWS and 0 < proof.gamma < 1):
            raise ValueError("proofs")
