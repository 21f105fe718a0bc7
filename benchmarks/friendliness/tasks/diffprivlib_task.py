import pandas as pd
from diffprivlib.tools import nanmean

people = pd.read_csv("people.csv", sep=";", decimal=",")
for region in ("east", "north", "south", "west"):
    income = people.loc[people["region"] == region, "income"]
    print(region, nanmean(income, epsilon=1.0, bounds=(0, 200_000)))
