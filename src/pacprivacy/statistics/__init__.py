"""Every statistic, once: as sums over rows and a function of them, as quantiles, as regressions."""

from pacprivacy.statistics.arrays import (
    Covariance as Covariance,
    Histogram as Histogram,
    Mean as Mean,
    Quantiles as Quantiles,
)
from pacprivacy.statistics.regressions import (
    OLS as OLS,
    LogisticRegression as LogisticRegression,
    Poisson as Poisson,
)
from pacprivacy.statistics.sums import (
    Count as Count,
    Sum as Sum,
    SummedStatistic as SummedStatistic,
    TableMean as TableMean,
    TableQuantiles as TableQuantiles,
    Variance as Variance,
)
from pacprivacy.statistics.table import (
    DATES as DATES,
    MOST_LEVELS as MOST_LEVELS,
    POLICIES as POLICIES,
    Missing as Missing,
    Statistic as Statistic,
)
