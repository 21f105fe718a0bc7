import pandas as pd
import snsql

people = pd.read_csv("people.csv", sep=";", decimal=",")[["region", "income"]]
columns = {
    "row_privacy": True,
    "region": {"type": "string"},
    "income": {"type": "float", "lower": 0.0, "upper": 200_000.0},
}
meta = {"": {"s": {"people": columns}}}
privacy = snsql.Privacy(epsilon=1.0, delta=1e-6)
reader = snsql.from_df(people, privacy=privacy, metadata=meta)
query = "SELECT region, AVG(income) AS income FROM s.people GROUP BY region"
for row in reader.execute(query):
    print(row)
