"""Run a mechanism on every subset of a pool: in parallel, restartable, reproducible."""

from pacprivacy.simulation.backends import (
    EVALUATING as EVALUATING,
    PROVING as PROVING,
    SEARCHING as SEARCHING,
    WRITING as WRITING,
    seconds_after as seconds_after,
    train_subsets as train_subsets,
)
from pacprivacy.simulation.checkpoint import read_checkpoint_seed as read_checkpoint_seed
from pacprivacy.simulation.cost import Cost as Cost, predict_cost as predict_cost
from pacprivacy.simulation.run import (
    Outputs as Outputs,
    run_mechanism as run_mechanism,
    scale_outputs as scale_outputs,
    value_on_all as value_on_all,
)
from pacprivacy.simulation.workers import open_workers as open_workers
