"""Run a mechanism on every subset of a pool: in parallel, restartable, reproducible."""

from __future__ import annotations

from pacprivacy.simulation.candidates import draw_candidates
from pacprivacy.simulation.checkpoint import read_checkpoint_seed
from pacprivacy.simulation.outputs import Outputs
from pacprivacy.simulation.run import run_mechanism
from pacprivacy.simulation.threads import few_threads

__all__ = ["Outputs", "draw_candidates", "few_threads", "read_checkpoint_seed", "run_mechanism"]
