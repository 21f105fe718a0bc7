"""Samples: coins, and pools of candidate subsets, one of which is secretly used."""

from pacprivacy.sample.coins import (
    KEY_BYTES as KEY_BYTES,
    MARK_BYTES as MARK_BYTES,
    Coins as Coins,
    Roster as Roster,
    canonical_unit_ids as canonical_unit_ids,
    check_exact_ids as check_exact_ids,
    code_units as code_units,
    draw_coins as draw_coins,
    keyed_coins as keyed_coins,
)
from pacprivacy.sample.pool import (
    Pool as Pool,
    encode_pool_labels as encode_pool_labels,
    named_pool_units as named_pool_units,
    pool_unit_name as pool_unit_name,
)
from pacprivacy.sample.strategies import (
    DEFAULT_SUBSETS as DEFAULT_SUBSETS,
    Balanced as Balanced,
    Half as Half,
    Poisson as Poisson,
    PoolStrategy as PoolStrategy,
    strategy_fold_choices as strategy_fold_choices,
)
