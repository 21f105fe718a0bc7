"""An accelerator: 512 networks side by side.

Usage: python benchmarks/cluster/device.py [mnist.npz] [--out file.json] [--small]

``mnist.npz`` holds ``X`` of shape (60000, 28, 28), uint8, and ``y`` of shape (60000,), integers, as
``numpy.savez_compressed(path, X=X, y=y)`` writes those of ``papers.datasets.load_mnist()``. Without
it images of random numbers are trained on, and the result says so. ``--small`` is for machines
without an accelerator, whose figures are not kept.

Needs jax and numpy. Where other packages that pacprivacy imports are missing, the module that is
measured is loaded from the checkout alone.
"""

from __future__ import annotations

import json
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "cluster_device.json"
NETWORKS, HIDDEN, BATCH, RATE = 512, 32, 500, 0.5
MOST_SECONDS = 2.0


class Halves:
    """Random halves and their complements, as far as the measured modules ask."""

    folds, row_units = 2, None

    def __init__(self, n_units: int, n_subsets: int) -> None:
        rng = np.random.default_rng(0)
        self.n_units, self.n_subsets = n_units, n_subsets
        first = np.stack([rng.permutation(n_units) < n_units // 2 for _ in range(n_subsets // 2)])
        self._bits = np.packbits(np.concatenate([first, ~first]), axis=1)

    def inside(self, units: Any) -> Any:
        units = np.arange(self.n_units)[units]
        return (self._bits[:, units >> 3] >> (7 - (units & 7)).astype(np.uint8)) & 1

    def sizes(self) -> Any:
        return np.array([len(self.rows(k)) for k in range(self.n_subsets)])

    def rows(self, k: int) -> Any:
        return np.flatnonzero(np.unpackbits(self._bits[k], count=self.n_units))


def measured_module() -> tuple[Any, bool]:
    """Return ``vmap``, and whether the package could be imported whole."""
    sys.path.insert(0, str(ROOT / "src"))
    try:
        from pacprivacy.mechanism import vmap
    except ImportError as error:
        print(f"{error.name} is missing: the module is loaded alone.", flush=True)
    else:
        return vmap, True
    for name in [name for name in sys.modules if name.startswith("pacprivacy")]:
        del sys.modules[name]

    def stand_in(name: str, **contents: Any) -> None:
        module = types.ModuleType(f"pacprivacy{name}")
        folder = ROOT / "src" / "pacprivacy" / name.lstrip(".").replace(".", "/")
        module.__path__ = [str(folder)] if folder.is_dir() else []
        vars(module).update(contents)
        sys.modules[module.__name__] = module

    def flatten(value: Any) -> tuple[Any, None]:
        leaves = value.values() if isinstance(value, dict) else [value]
        return np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in leaves]), None

    stand_in("")
    stand_in("._checks", Matrix=Any, Vector=Any, check_count=lambda *_, **__: None)
    stand_in(".errors", MechanismError=RuntimeError)
    stand_in(".pool", Pool=Halves)
    stand_in(".mechanism")
    stand_in(".mechanism.mechanism", Mechanism=object)
    stand_in(".mechanism.data", Data=Any)
    stand_in(".mechanism.structure", flatten=flatten)

    stand_in(".mechanism.sums", subset_sizes=Halves.sizes)
    from pacprivacy.mechanism import vmap

    return vmap, False


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def networks(vmap: Any, X: Any, y: Any, n_subsets: int) -> dict[str, Any]:
    """One epoch of many networks with one hidden layer, each on a half of the images."""
    import jax
    import jax.numpy as jnp

    def train(X: Any, y: Any, key: Any) -> Any:
        first, second = jax.random.split(key)
        start = {
            "w": jax.random.normal(first, (X.shape[1], HIDDEN)) / 28,
            "v": jax.random.normal(second, (HIDDEN, 10)) / HIDDEN**0.5,
        }

        def loss(weights: Any, images: Any, labels: Any) -> Any:
            scores = jax.nn.relu((images / 255.0) @ weights["w"]) @ weights["v"]
            picked = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1)
            return -picked.mean()

        def step(i: Any, weights: Any) -> Any:
            images = jax.lax.dynamic_slice_in_dim(X, i * BATCH, BATCH)
            labels = jax.lax.dynamic_slice_in_dim(y, i * BATCH, BATCH)
            slopes = jax.grad(loss)(weights, images.astype(jnp.float32), labels)
            return jax.tree.map(lambda w, slope: w - RATE * slope, weights, slopes)

        return jax.lax.fori_loop(0, len(y) // BATCH, step, start)

    data = types.SimpleNamespace(parts=(X.reshape(len(X), -1), y.astype(np.int32)))
    pool, mechanism = Halves(len(y), n_subsets), vmap.VmapMechanism(train=train)
    compiling, _ = seconds_of(lambda: mechanism.batch(data, pool))
    training, values = seconds_of(lambda: mechanism.batch(data, pool))
    assert np.isfinite(values).all()
    v, w = values[0][: HIDDEN * 10].reshape(HIDDEN, 10), values[0][HIDDEN * 10 :]
    if v.size + w.size != values.shape[1]:
        raise AssertionError("the weights of a network must be all that comes back")
    hidden = np.maximum(data.parts[0][:2000] / 255.0 @ w.reshape(-1, HIDDEN), 0)
    accuracy = float(((hidden @ v).argmax(axis=1) == y[:2000]).mean())
    return {
        "networks": n_subsets,
        "images": len(y) // 2,
        "numbers": int(values.shape[1]),
        "first_seconds": round(compiling, 2),
        "seconds": round(training, 2),
        "accuracy_of_the_first": accuracy,
    }


def main() -> int:
    words = sys.argv[1:]
    out = Path(words[words.index("--out") + 1]) if "--out" in words else RESULTS
    files = [word for word in words if word.endswith(".npz")]
    try:
        import jax
    except ImportError:
        print("device.py needs jax, which is not installed: nothing was measured.")
        return 1
    small = "--small" in words
    if jax.default_backend() == "cpu" and not small:
        print("no accelerator is here: nothing was measured. --small tries the code.")
        return 0
    vmap, whole = measured_module()
    if files:
        stored = np.load(files[0])
        X, y = stored["X"], stored["y"]
    else:
        rng = np.random.default_rng(0)
        X, y = rng.integers(256, size=(60000, 28, 28), dtype=np.uint8), rng.integers(10, size=60000)
    if small:
        X, y = X[:4000], y[:4000]
    result: dict[str, Any] = {
        "device": f"{jax.default_backend()}: {jax.devices()[0].device_kind}",
        "jax": jax.__version__,
        "package_imported_whole": whole,
        "images": "MNIST" if files else "random numbers",
        "networks": networks(vmap, X, y, 16 if small else NETWORKS),
        "seconds_most": MOST_SECONDS,
    }
    result["ok"] = result["networks"]["seconds"] <= MOST_SECONDS
    print(json.dumps(result, indent=2))
    if not small:
        out.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
