"""Files for the curator alone: arrays and a record in one archive, mode 0600."""

from __future__ import annotations

import io
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy.budget import (
    AnyBudget,
    Combined,
    EpsilonEquivalent,
    Information,
    Membership,
    ResidualEntropy,
)
from pacprivacy.errors import CertificateError

__all__ = [
    "Arrays",
    "plain_budget",
    "read_archive",
    "read_budget",
    "refuse_archive",
    "write_archive",
]

SCHEMA_VERSION: Final = 2
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
_BUDGETS: Final = {
    "information": Information,
    "membership": Membership,
    "epsilon": EpsilonEquivalent,
    "residual": ResidualEntropy,
}


def write_archive(path: str | Path, kind: str, arrays: Arrays, record: dict[str, Any]) -> None:
    """Write arrays and a record of plain JSON types to a file that only its owner can read."""
    metadata = json.dumps({"schema_version": SCHEMA_VERSION, "kind": kind, **record})
    content = {**arrays, "metadata": np.frombuffer(metadata.encode(), dtype=np.uint8)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **content)
    target = Path(path)
    target.unlink(missing_ok=True)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(buffer.getbuffer())


def read_archive(path: str | Path) -> tuple[str, Arrays, dict[str, Any]]:
    """Read the kind, the arrays and the record of a file; refuse others in one line."""
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        record = json.loads(arrays.pop("metadata").tobytes())
        version, kind = record["schema_version"], str(record["kind"])
        if version != SCHEMA_VERSION:
            raise KeyError("schema_version")
        return kind, arrays, record
    except OSError as error:
        reason = error.strerror or "not a bundle"
    except Exception:  # bytes from anywhere break the readers of zip and numpy in many ways
        reason = "damaged, or written by another version"
    raise refuse_archive(path, reason)


def refuse_archive(
    path: str | Path, reason: str = "damaged, or written by another version"
) -> CertificateError:
    """Return the error that refuses a file."""
    return CertificateError(
        f"{path} must be a readable curator bundle; {reason}. Pass the curator.npz that was "
        f"written beside the release."
    )


def plain_budget(budget: AnyBudget) -> list[dict[str, Any]]:
    """Return a budget as plain JSON types.

    Examples
    --------
    >>> plain_budget(Membership(0.6) & Information(1))
    [{'kind': 'membership', 'success': 0.6}, {'kind': 'information', 'mi_nats': 1.0}]
    """
    parts = budget.parts if isinstance(budget, Combined) else (budget,)
    names = {kind: name for name, kind in _BUDGETS.items()}
    return [{"kind": names[type(part)], **asdict(part)} for part in parts]


def read_budget(plain: list[dict[str, Any]]) -> AnyBudget:
    """Rebuild a budget; whatever is wrong with it raises.

    Examples
    --------
    >>> read_budget([{"kind": "membership", "success": 0.6}])
    Membership(success=0.6)
    """
    parts = [
        _BUDGETS[item["kind"]](**{name: value for name, value in item.items() if name != "kind"})
        for item in plain
    ]
    return parts[0] if len(parts) == 1 else Combined(tuple(parts))
