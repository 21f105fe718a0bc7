"""Who might be in: the pool of candidate subsets, one of which is secretly used."""

from pacprivacy.pool.pool import (
    Pool as Pool,
    encode_labels as encode_labels,
    named as named,
    unit_name as unit_name,
)
from pacprivacy.pool.strategies import (
    DEFAULT_SUBSETS as DEFAULT_SUBSETS,
    Balanced as Balanced,
    Half as Half,
    Poisson as Poisson,
    PoolStrategy as PoolStrategy,
    fold_choices as fold_choices,
)
