"""Discrete noise from OpenDP's exact samplers, if it is installed."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import BudgetError


def draw_with_opendp(
    shape: tuple[int, ...], units: int, *, law: Literal["laplace", "gaussian"], simulation: bool
) -> npt.NDArray[np.int64]:
    """Draw discrete Laplace or Gaussian numbers of a whole scale from OpenDP."""
    if simulation:
        raise BudgetError(
            "sampler must be 'lattice' in a simulation; got 'opendp', which cannot be seeded. "
            "Leave out one of the two."
        )
    opendp = _import_opendp()
    domain = opendp.vector_domain(opendp.atom_domain(T="i64"))
    if law == "laplace":
        measure = opendp.m.make_laplace(domain, opendp.l1_distance(T="i64"), scale=float(units))
    else:
        measure = opendp.m.make_gaussian(domain, opendp.l2_distance(T="f64"), scale=float(units))
    size = int(np.prod(shape))
    return np.asarray(measure([0] * size), dtype=np.int64).reshape(shape)


def _import_opendp() -> Any:
    try:
        import opendp.prelude as opendp
    except ImportError:
        raise BudgetError(
            "sampler must be 'lattice' without OpenDP; got 'opendp'. Install pacprivacy[dp]."
        ) from None
    opendp.enable_features("contrib")
    return opendp
