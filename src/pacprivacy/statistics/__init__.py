"""Every statistic, once: as sums over rows and a function of them, as quantiles, as regressions."""

from pacprivacy.statistics.arrays import (
    MOST_COLUMNS as MOST_COLUMNS,
    Correlation as Correlation,
    Covariance as Covariance,
    Histogram as Histogram,
    Mean as Mean,
    PrincipalComponents as PrincipalComponents,
)
from pacprivacy.statistics.binned import (
    TableHistogram as TableHistogram,
    quantile_grid as quantile_grid,
    quantile_slopes as quantile_slopes,
    read_quantiles as read_quantiles,
    shaping_counts as shaping_counts,
    step_deviations as step_deviations,
)
from pacprivacy.statistics.declared import (
    Declaration as Declaration,
    first_rows as first_rows,
)
from pacprivacy.statistics.influence import (
    AveragedStatistic as AveragedStatistic,
    CoinUnits as CoinUnits,
    InfluencedValue as InfluencedValue,
    SampleValue as SampleValue,
    check_influence as check_influence,
)
from pacprivacy.statistics.least_squares import (
    LeastSquaresValue as LeastSquaresValue,
    row_lengths as row_lengths,
)
from pacprivacy.statistics.numpy_functions import (
    coin_obstacle as coin_obstacle,
    declared_sums as declared_sums,
    refuse_obstacles as refuse_obstacles,
    statistic_with_coins as statistic_with_coins,
)
from pacprivacy.statistics.official import (
    Compare as Compare,
    OfficialTable as OfficialTable,
    TableRate as TableRate,
    round_to_base as round_to_base,
)
from pacprivacy.statistics.quantiles import (
    OrderStatistics as OrderStatistics,
    RankedSet as RankedSet,
    TableQuantiles as TableQuantiles,
    UnitQuantiles as UnitQuantiles,
    quantile_places as quantile_places,
)
from pacprivacy.statistics.regressions import (
    OLS as OLS,
    LogisticRegression as LogisticRegression,
    Poisson as Poisson,
    Ridge as Ridge,
)
from pacprivacy.statistics.study import Study as Study
from pacprivacy.statistics.sums import (
    TableCount as TableCount,
    TableMean as TableMean,
    TableSum as TableSum,
    TableVariance as TableVariance,
)
from pacprivacy.statistics.table import (
    MOST_LEVELS as MOST_LEVELS,
    POLICIES as POLICIES,
    Missing as Missing,
    Statistic as Statistic,
    number_cells as number_cells,
)
from pacprivacy.statistics.unit_sums import (
    COUNT_STD as COUNT_STD,
    DERIVATIVE_STEP as DERIVATIVE_STEP,
    MEAN as MEAN,
    SUM as SUM,
    WIDEST_BLOCK as WIDEST_BLOCK,
    Formula as Formula,
    Sums as Sums,
    SumStatistic as SumStatistic,
    UnitSums as UnitSums,
    bin_of as bin_of,
    round_centre as round_centre,
)
