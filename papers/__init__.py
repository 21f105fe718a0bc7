"""The papers' tables and figures, recomputed: one file per figure group; see ``pac reproduce``.

Everything here is a simulation on public data. Secrets and noise are seeded, so that a page can
be made again; nothing that is written here protects anybody.
"""

from __future__ import annotations

__all__: list[str] = []  # every paper is a module of its own: they are slow to import together
