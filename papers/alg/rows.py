"""The record behind every table and figure: one measured cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Metric", "Row", "Rule"]

Metric = Literal["accuracy", "restoration error"]
Rule = Literal["diagonal", "isotropic_max", "pool diagonal", "exact", "risk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What simulated releases of one model under one noise rule and budget are worth.

    Attributes
    ----------
    task, dataset, model : str
        The experiment, its data and the model with its parameter.
    metric : str
        What ``utility`` is: accuracy (higher is better) or restoration error (lower is better),
        on the test rows.
    rule : str
        ``diagonal`` and ``isotropic_max`` follow the paper's protocol: variances estimated on
        independent halves, releases of fresh halves. ``pool diagonal`` is the paper's formula on
        our pool, ``exact`` and ``risk`` are our rules on that pool.
    mi_nats : float
        The budget of the row.
    success : float
        Guaranteed bound on the success of guessing one record's membership: what the budget
        implies, or for ``risk`` what was asked for and proved.
    mi_upper_nats : float
        Proved bound on the information that the release gives away; for the paper's protocol,
        which proves nothing, the budget itself.
    utility, standard_error : float
        Mean over the simulated releases, and its standard error.
    no_noise : float
        The same model without noise, on the same halves.
    noise_variance : float
        Total variance of the noise.
    n_subsets, n_releases : int
        Halves that the noise was calibrated on; releases that were simulated.
    published : float or None
        The published figure of this cell, where it is known.
    """

    task: str
    dataset: str
    model: str
    metric: Metric
    rule: Rule
    mi_nats: float
    success: float
    mi_upper_nats: float
    utility: float
    standard_error: float
    no_noise: float
    noise_variance: float
    n_subsets: int
    n_releases: int
    published: float | None = None
