"""Tables 1 to 4 of [DESIGN] as printed: pairs (post-hoc, conscious) at 1/4 .. 1/1024 nats.

The cells of the credit data are not here: they were made with the target column among the features.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["ADASSP", "BUDGETS", "DESCENT", "RIDGE", "Mode", "printed_cell"]

Mode = Literal["post-hoc", "conscious"]
Pairs = tuple[tuple[float, float], ...]

BUDGETS: Final = tuple(4.0**-power for power in range(1, 6))

RIDGE: Final[dict[str, dict[str, Pairs]]] = {
    "wine_red": {
        "oracle": ((0.49, 0.46), (0.75, 0.53), (1.88, 0.61), (6.23, 0.64), (23.71, 0.65)),
        "SNR10": ((0.52, 0.52), (0.90, 0.88), (2.46, 2.18), (8.53, 5.84), (31.85, 9.53)),
        "SNR1": ((0.52, 0.51), (0.90, 0.80), (2.33, 1.28), (8.48, 1.32), (32.30, 0.96)),
        "SNR0.1": ((0.52, 0.49), (0.88, 0.58), (2.42, 0.64), (8.26, 0.65), (32.28, 0.66)),
    },
    "wine_white": {
        "oracle": ((0.61, 0.59), (0.75, 0.62), (1.31, 0.68), (3.51, 0.73), (12.54, 0.76)),
        "SNR10": ((0.63, 0.63), (0.80, 0.81), (1.52, 1.50), (4.34, 3.81), (15.78, 9.14)),
        "SNR1": ((0.63, 0.63), (0.81, 0.78), (1.52, 1.21), (4.32, 1.74), (15.40, 1.58)),
        "SNR0.1": ((0.63, 0.62), (0.80, 0.69), (1.51, 0.76), (4.32, 0.78), (15.23, 0.78)),
    },
    "housing": {
        "oracle": ((0.57, 0.57), (0.60, 0.58), (0.73, 0.60), (1.25, 0.67), (3.35, 0.84)),
        "SNR10": ((0.63, 0.62), (0.87, 0.82), (1.65, 1.27), (5.50, 2.15), (20.87, 4.43)),
        "SNR1": ((0.63, 0.60), (0.86, 0.67), (1.81, 0.84), (5.13, 1.36), (20.83, 2.25)),
        "SNR0.1": ((0.62, 0.57), (0.83, 0.61), (1.58, 0.72), (4.84, 0.94), (16.36, 1.17)),
    },
}

DESCENT: Final[dict[str, dict[str, Pairs]]] = {
    "mnist_0v7": {
        "oracle": ((0.97, 0.99), (0.86, 0.98), (0.72, 0.98), (0.67, 0.92), (0.57, 0.78)),
        "e0=0.01": ((0.97, 0.96), (0.90, 0.89), (0.72, 0.76), (0.63, 0.64), (0.55, 0.58)),
        "e0=0.1": ((0.95, 0.99), (0.81, 0.97), (0.67, 0.83), (0.63, 0.67), (0.58, 0.58)),
        "e0=1": ((0.92, 0.97), (0.77, 0.93), (0.67, 0.80), (0.58, 0.66), (0.56, 0.57)),
    },
    "mnist_7v9": {
        "oracle": ((0.76, 0.89), (0.64, 0.85), (0.57, 0.76), (0.54, 0.65), (0.53, 0.58)),
        "e0=0.01": ((0.82, 0.76), (0.70, 0.64), (0.59, 0.57), (0.54, 0.53), (0.52, 0.52)),
        "e0=0.1": ((0.76, 0.89), (0.64, 0.74), (0.56, 0.60), (0.54, 0.54), (0.52, 0.52)),
        "e0=1": ((0.70, 0.83), (0.61, 0.73), (0.56, 0.63), (0.53, 0.56), (0.51, 0.53)),
    },
}

# At epsilon 1.64, 0.73, 0.36, 0.18 and 0.09, with delta = 1e-5.
ADASSP: Final[dict[str, tuple[float, ...]]] = {
    "wine_red": (0.60, 0.63, 0.65, 0.66, 0.66),
    "wine_white": (0.76, 0.77, 0.77, 0.77, 0.78),
    "housing": (1.26, 1.29, 1.30, 1.31, 1.31),
}


def printed_cell(
    table: dict[str, dict[str, Pairs]], dataset: str, setting: str, *, mi_nats: float, mode: Mode
) -> float | None:
    """Return a printed figure, if there is one."""
    pairs = table.get(dataset, {}).get(setting)
    if pairs is None or mi_nats not in BUDGETS:
        return None
    return pairs[BUDGETS.index(mi_nats)][mode == "conscious"]
