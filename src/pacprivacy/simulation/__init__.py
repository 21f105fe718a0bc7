"""Run a mechanism on every subset of a pool: in parallel, restartable, reproducible."""

from pacprivacy.simulation.checkpoint import read_checkpoint_seed as read_checkpoint_seed
from pacprivacy.simulation.run import (
    EVALUATING as EVALUATING,
    PROVING as PROVING,
    SEARCHING as SEARCHING,
    WRITING as WRITING,
    Outputs as Outputs,
    run_mechanism as run_mechanism,
    run_on_all as run_on_all,
    scale_run_outputs as scale_run_outputs,
    train_subsets as train_subsets,
)
