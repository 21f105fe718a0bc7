import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
people = pl.read_csv("people.csv", separator=";", decimal_comma=True, try_parse_dates=True)
people = people.lazy().select("region", "income").drop_nulls("income")
context = dp.Context.compositor(
    data=people,
    privacy_unit=dp.unit_of(contributions=1),
    privacy_loss=dp.loss_of(epsilon=1.0),
    split_evenly_over=1,
    margins=[dp.polars.Margin(by=["region"], max_length=200_000, max_groups=4, invariant="keys")],
)
query = (
    context.query()
    .group_by("region")
    .agg(dp.len(), pl.col("income").fill_null(0).fill_nan(0).dp.sum((0, 200_000)))
)
bars = query.summarize(alpha=0.05)
count_bar, sum_bar = bars["accuracy"]
for region, count, total in sorted(query.release().collect().iter_rows()):
    mean = total / count
    print(region, mean, (sum_bar + mean * count_bar) / count)
