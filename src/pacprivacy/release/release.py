"""The release: a value that may leave, and its certificate."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from pacprivacy._certificates import plain_value, release_html
from pacprivacy._plots import draw
from pacprivacy._random import BitSource, ProcessBound, uniform_below
from pacprivacy.errors import SecretError
from pacprivacy.release.bundle import Bundle
from pacprivacy.release.certificate import SCHEMA_VERSION, Certificate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """What may leave, and the proof of how little it tells.

    Parameters
    ----------
    value : Any, public
        Same structure that the mechanism returned, with certified noise.
    certificate : Certificate, public
        What is promised, to whom, how it was proved.
    bundle : Bundle, curator-only
        Everything needed to recompute the certificate; never published.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=(40, 3))
    >>> release = pac.privatize(lambda x: x.mean(axis=0), data, pac.Information(0.1), n_subsets=16)
    >>> release.value.shape
    (3,)
    >>> sorted(release.to_public_dict())
    ['certificate', 'schema_version', 'value']
    """

    value: Any
    certificate: Certificate
    bundle: Bundle = field(repr=False)

    def _repr_html_(self) -> str:
        return release_html(repr(self.value), self.certificate._repr_html_())

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw what is promised and the noise per direction, for the curator.

        Returns a figure, which a notebook shows; ``path`` is a file to write besides.
        """
        return draw("plot_release", self, path)

    def to_public_dict(self) -> dict[str, Any]:
        """Return value and certificate as plain JSON types."""
        return {
            "schema_version": SCHEMA_VERSION,
            "value": plain_value(self.value),
            "certificate": self.certificate.to_public_dict(),
        }

    def save(self, folder: str | Path) -> Path:
        """Write ``release.json`` (public) and ``curator.npz`` (mode 0600) into a folder.

        Returns
        -------
        Path
            The public file.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        public = target / "release.json"
        text = json.dumps(self.to_public_dict(), indent=2, allow_nan=False)
        self.bundle.save(target / "curator.npz")  # first: no public file without its proof
        public.write_text(text + "\n", encoding="utf-8")
        return public


Seen_co = TypeVar("Seen_co", covariant=True)


class Sampler(Protocol[Seen_co]):
    """Something that draws what leaves, given the secret index: a noise plan, or many at once."""

    def observe(self, index: int, source: BitSource) -> Seen_co:
        """Draw the noise around the output of candidate ``index``."""
        ...


class Secret(ProcessBound):
    """The index of the subset that is really used. It cannot be printed, copied or forked."""

    __slots__ = ("_index", "_n_subsets")
    KIND = "the secret"
    INSTEAD = "Save the release, not the session."

    def __init__(self, n_subsets: int, source: BitSource, *, first: int = 0) -> None:
        self._index = first + uniform_below(source, n_subsets - first)
        self._n_subsets = n_subsets

    def __repr__(self) -> str:
        return f"Secret(one of {self._n_subsets})"

    def to_storage(self) -> int:
        """Return the index, for the session's own file (mode 0600) and nothing else."""
        self.check_process()
        return self._index

    @classmethod
    def from_storage(cls, index: int, n_subsets: int) -> Self:
        """Rebuild the secret of a session that goes on."""
        if not 0 <= index < n_subsets:
            raise SecretError("the stored secret must be of this pool. Restore the session's file.")
        secret = cls.__new__(cls)
        secret._index, secret._n_subsets = index, n_subsets
        return secret

    def observe(self, plan: Sampler[Seen_co], source: BitSource) -> Seen_co:
        """Draw the noise around the secret's output; refuse in a fork."""
        self.check_process()
        return plan.observe(self._index, source)
