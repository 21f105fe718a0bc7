"""Scattering features of MNIST by our own wavelets: public, the same for every picture.

Two layers of Morlet wavelets (two scales, six directions), the modulus after each, averages over
squares of 4 x 4 pixels; then the main directions of the tuning rows, without their labels. Kept in
the cache of the papers' data once computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from contenders.tables import Split
from papers.datasets import cache_folder, load_mnist

SIZE, N_SCALES, N_DIRECTIONS, N_FEATURES = 32, 2, 6, 200
N_TUNING = 3333
CHUNK = 1000


def make_filters() -> tuple[list[list[Any]], Any]:
    """Return Fourier transforms of wavelets by scale and direction, and of the average."""
    place = np.fft.fftfreq(SIZE) * SIZE
    rows, columns = np.meshgrid(place, place, indexing="ij")

    def envelope(std: float, slant: float = 1.0, angle: float = 0.0) -> Any:
        along = np.cos(angle) * rows + np.sin(angle) * columns
        across = -np.sin(angle) * rows + np.cos(angle) * columns
        bell = np.exp(-(along**2 + (slant * across) ** 2) / (2 * std**2))
        return bell / bell.sum(), along

    wavelets = []
    for scale in range(N_SCALES):
        bank = []
        for direction in range(N_DIRECTIONS):
            angle = np.pi * direction / N_DIRECTIONS
            bell, along = envelope(0.8 * 2**scale, 4.0 / N_DIRECTIONS, angle)
            wave = bell * np.exp(1j * 3 * np.pi / 4 / 2**scale * along)
            wave = wave - bell * wave.sum()  # no constant passes
            bank.append(np.fft.fft2(wave).astype(np.complex64))
        wavelets.append(bank)
    return wavelets, np.fft.fft2(envelope(0.8 * 2 ** (N_SCALES - 1) * 2)[0]).astype(np.complex64)


def scatter(images: Any) -> Any:
    """Return the features of pictures, float32."""
    wavelets, average = make_filters()
    edge = (SIZE - images.shape[1]) // 2
    padded = np.pad(images.astype(np.float32) / 255, ((0, 0), (edge, edge), (edge, edge)))

    def smooth(spectrum: Any) -> Any:
        return np.fft.ifft2(spectrum * average).real[:, 2::4, 2::4].reshape(len(images), -1)

    spectrum = np.fft.fft2(padded).astype(np.complex64)
    found = [smooth(spectrum)]
    for scale, bank in enumerate(wavelets):
        for wave in bank:
            first = np.fft.fft2(np.abs(np.fft.ifft2(spectrum * wave))).astype(np.complex64)
            found.append(smooth(first))
            for coarser in wavelets[scale + 1 :]:
                for other in coarser:
                    second = np.fft.fft2(np.abs(np.fft.ifft2(first * other)))
                    found.append(smooth(second.astype(np.complex64)))
    return np.concatenate(found, axis=1).astype(np.float32)


def load_scattering(*, most: int | None = None) -> Split:
    """Return MNIST in the main directions of its scattering features."""
    mnist = load_mnist()
    path = cache_folder() / "scattering" / f"mnist-{N_SCALES}-{N_DIRECTIONS}-{N_FEATURES}.npz"
    order = np.random.default_rng(0).permutation(len(mnist.X_test))
    tuning, test = order[:N_TUNING], order[N_TUNING:]
    if path.is_file():
        with np.load(path) as kept:
            train, others = kept["train"], kept["test"]
    else:
        public = np.concatenate([scatter(mnist.X_test[rows]) for rows in np.array_split(tuning, 4)])
        center = public.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov((public - center).T))
        basis = (vectors[:, -N_FEATURES:] / np.sqrt(values[-N_FEATURES:])).astype(np.float32)

        def project(images: Any) -> Any:
            parts = [images[start : start + CHUNK] for start in range(0, len(images), CHUNK)]
            return np.concatenate([(scatter(part) - center) @ basis for part in parts])

        train, others = project(mnist.X), project(mnist.X_test)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, train=train, test=others)
    return Split(
        X=train[:most].astype(np.float64),
        y=mnist.y[:most],
        X_tuning=others[tuning].astype(np.float64),
        y_tuning=mnist.y_test[tuning],
        X_test=others[test].astype(np.float64),
        y_test=mnist.y_test[test],
    )
