"""A misspelt column or model: the message names the one that was meant."""

from pathlib import Path

import pytest

from pacprivacy.errors import DataError
from pacprivacy.tables import ModelOptions, check_table_columns, find_model, read_table


def test_columns(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("age,Income\n1,2\n3,4\n")
    table = read_table(tmp_path / "people.csv")
    with pytest.raises(DataError, match="Did you mean 'Income'"):
        check_table_columns(table, ["income"])
    with pytest.raises(DataError, match="case-sensitive"):
        check_table_columns(table, ["zip"])


def test_models() -> None:
    with pytest.raises(DataError, match="Did you mean 'median'"):
        find_model("mediam", ModelOptions())
    with pytest.raises(DataError, match="Choose one"):
        find_model("zzz", ModelOptions())
