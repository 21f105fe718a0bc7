"""The papers' tables and figures, recomputed: a folder for each paper; see ``pac reproduce``.

Everything here is a simulation on public data. Secrets and noise are seeded, so that a page can
be made again; nothing that is written here protects anybody.

Below the papers is what they share: ``datasets`` (loaders of public data), ``run`` (papers,
sections and pieces of work), ``page`` and ``charts`` (how results look), ``published`` (figures to
compare with) and ``simulate`` (many releases at a time). The library does not know this package.
"""

from __future__ import annotations

__all__: list[str] = []  # every paper is a package of its own: they are slow to import together
