"""A clinic that grows by 5 % a month: its tables, and one release of a session about it.

``python -m tests.monthly FOLDER MONTH`` makes the release of a month, in a process of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pacprivacy as pac

N_MONTHS = 12
FIRST = 400  # people in the first month
TOTAL = "membership<=0.6"
LATE = "p0500"  # comes in month 7
BUSY = "p0003"  # whose visits change every month
AWAY = "p0005"  # is not in the tables of months 4 to 8
TEXT = "SELECT region, count(*) AS n, avg(cost) AS cost FROM visits JOIN people USING (person)"


def frames_of_month(month: int) -> dict[str, pd.DataFrame]:
    """Return people and visits of a month from 1 on; visits of earlier months stay."""
    rng = np.random.default_rng(5)
    names = np.array([f"p{i:04d}" for i in range(1000)])
    n = int(FIRST * 1.05 ** (month - 1))
    here = np.arange(1000) < n
    here[500] = month >= 7
    here[5] = not 4 <= month <= 8
    people = pd.DataFrame({"person": names, "region": rng.choice(["north", "south"], 1000)})
    visits = pd.DataFrame(
        {"person": rng.choice(names, 3000), "cost": rng.gamma(9, 5, 3000).round(2)}
    )
    visits.loc[visits.person == BUSY, "cost"] += month
    kept = names[here]
    parts = {"people": people, "visits": visits}
    return {
        name: part[part.person.isin(kept)].sample(frac=1, random_state=month)
        for name, part in parts.items()
    }


def tables_of_month(month: int) -> pac.Tables:
    frames: Any = frames_of_month(month)
    return pac.Tables(frames, unit="people.person", via={"visits": "person"})


def release_month(folder: Path, month: int) -> None:
    """Make the release of a month, and save it."""
    options: dict[str, Any] = {"ledger": folder / "study.db"}
    if month == 1:
        options |= {"budget": TOTAL, "sample": pac.Coins()}
    with pac.Session(tables_of_month(month), **options) as session:
        release = session.sql(
            f"{TEXT} GROUP BY region",
            share=f"1 of {N_MONTHS - month + 1}",
            keys={"region": ["north", "south"]},
            fill=0.0,
        )
    release.save(folder / f"{month:02d}")


if __name__ == "__main__":
    release_month(Path(sys.argv[1]), int(sys.argv[2]))
