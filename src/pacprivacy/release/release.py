"""The release: a value that may leave, and its certificate."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from pacprivacy._plots import draw
from pacprivacy._random import BitSource, ProcessBound, uniform_below
from pacprivacy._threads import few_threads
from pacprivacy.errors import SecretError
from pacprivacy.noise import NoisePlan, Observation
from pacprivacy.release.bundle import Bundle
from pacprivacy.release.certificate import SCHEMA_VERSION, Certificate
from pacprivacy.release.certify import Context, assess, bundle_of, write_certificate
from pacprivacy.release.text import release_html


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


def plain_value(value: Any) -> Any:
    """Turn a released value into JSON types: lists, numbers, text, dictionaries."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain_value(item) for item in value]
    if hasattr(value, "steps") and hasattr(value, "get_params"):
        return {"estimator": "Pipeline", "steps": {n: plain_value(step) for n, step in value.steps}}
    if hasattr(value, "get_params"):
        fitted = {k: plain_value(v) for k, v in vars(value).items() if k.endswith("_")}
        return {"estimator": type(value).__name__, "attributes": fitted}
    return np.asarray(value).tolist()


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


def _nothing() -> None:
    """Spend nothing: for a release outside any account."""


def _unchanged(
    observation: Observation, certificate: Certificate, bundle: Bundle
) -> tuple[Certificate, Bundle]:
    """Remember nothing: for a release outside any account."""
    return certificate, bundle


def publish(
    plan: NoisePlan,
    context: Context,
    secret: Secret,
    source: BitSource,
    *,
    spend: Callable[[], None] = _nothing,
    keep: Callable[[Observation, Certificate, Bundle], tuple[Certificate, Bundle]] = _unchanged,
) -> tuple[Release, Observation]:
    """Write the certificate, then draw the noise and build the released value.

    ``spend`` is called before the secret is used: a session books the charge there, so that
    whatever fails before costs nothing and whatever fails after stays spent. ``keep`` is called
    with what was seen, before any code of the user's is: a session stores the belief there, and
    returns certificate and bundle with what their readers can have learned.

    Guarantee
    ---------
    Claim R-2. The certificate is complete before the secret is touched; the value is a function
    of the observation, the pool's outputs and the structure that all subsets share.
    Claim R-4. In a fork of the process that drew the secret, nothing is spent or drawn.
    """
    with few_threads(context.pool.n_subsets * context.pool.n_units):
        plan = assess(plan, context)
        bundle = bundle_of(plan, context)
        certificate = write_certificate(bundle, plan)
    secret.check_process()
    spend()
    observation = secret.observe(plan, source)
    certificate, bundle = keep(observation, certificate, bundle)
    value = context.outputs.restore(plan.value_of(observation))
    return Release(value=value, certificate=certificate, bundle=bundle), observation
