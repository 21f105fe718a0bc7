"""``pac schema``: what the columns of a table seem to hold, as a file to be checked by hand."""

from __future__ import annotations

from pacprivacy.cli import options
from pacprivacy.cli.console import Screen, Verb, show
from pacprivacy.tables import Schema, read_table, schema_notes


def _schema(
    *,
    data: options.DataFile,
    reading: options.ReadingOptions,
    screen: Screen,
) -> None:
    """Print a schema of a table in TOML: types, dates, levels, ranges, missing codes.

    Whatever was guessed from the records says so, and does not count as declared until it is taken
    out of "guessed". The file is for the curator: it holds levels and rough ranges of the records.
    """
    typed = reading.typed()
    table = read_table(data, typed)
    guess = Schema.guess(table, typed)
    if screen.as_json:
        screen.show("", guess.to_dict())
    else:
        show(guess.to_toml(notes=() if screen.quiet else schema_notes(table)))


schema = Verb(
    function=_schema,
    example="""\
  pac schema people.csv > people.toml
  pac release people.csv --schema people.toml --model mean --columns age \\
      --budget "membership<=0.6" -o out""",
)
