"""Scattering features of MNIST by our own wavelets: public, the same for every picture.

Two layers of Morlet wavelets (two scales, six directions), the modulus after each, averages over
squares of 4 x 4 pixels; then the main directions of the tuning rows, without their labels. Kept in
the cache of the papers' data once computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import fft

from contenders.tables import Split
from papers.datasets import cache_folder, load_mnist

SIZE, N_SCALES, N_DIRECTIONS, N_FEATURES = 32, 2, 6, 200
N_TUNING = 3333
CHUNK = 500  # pictures at a time
WIDTH = 3.2  # of an average, in pixels


def make_filters() -> list[list[Any]]:
    """Return Fourier transforms of wavelets by scale and direction."""
    place = np.fft.fftfreq(SIZE) * SIZE
    rows, columns = np.meshgrid(place, place, indexing="ij")
    wavelets = []
    for scale in range(N_SCALES):
        bank = []
        for direction in range(N_DIRECTIONS):
            angle = np.pi * direction / N_DIRECTIONS
            along = np.cos(angle) * rows + np.sin(angle) * columns
            across = -np.sin(angle) * rows + np.cos(angle) * columns
            width = 0.8 * 2**scale
            bell = np.exp(-(along**2 + (4.0 / N_DIRECTIONS * across) ** 2) / (2 * width**2))
            bell /= bell.sum()
            wave = bell * np.exp(1j * 3 * np.pi / 4 / 2**scale * along)
            wave = wave - bell * wave.sum()  # no constant passes
            bank.append(np.fft.fft2(wave).astype(np.complex64))
        wavelets.append(bank)
    return wavelets


def make_average(size: int) -> Any:
    """Return the matrix that takes lines of this many points to 8 averages around their places."""
    scale = SIZE / size
    points, places = scale * np.arange(size), 4 * np.arange(8) + 2
    bells = np.exp(-np.square(points - places[:, None]) / (2 * WIDTH**2))
    return (bells / bells.sum(axis=1, keepdims=True)).astype(np.float32)


def scatter(images: Any) -> Any:
    """Return the features of pictures, float32."""
    wavelets, fine, coarse = make_filters(), make_average(SIZE), make_average(SIZE // 2)
    edge = (SIZE - images.shape[1]) // 2
    padded = np.pad(images.astype(np.float32) / 255, ((0, 0), (edge, edge), (edge, edge)))
    spectrum = fft.fft2(padded)
    found = [fine @ padded @ fine.T]
    for scale, bank in enumerate(wavelets):
        for wave in bank:
            size = np.abs(fft.ifft2(spectrum * wave))
            found.append(fine @ size @ fine.T)
            if scale + 1 == N_SCALES:
                continue
            first = fft.fft2(size)
            for other in wavelets[scale + 1]:
                # Every second point: adding up the quarters of the spectrum.
                folded = (first * other).reshape(-1, 2, SIZE // 2, 2, SIZE // 2).mean(axis=(1, 3))
                found.append(coarse @ np.abs(fft.ifft2(folded)) @ coarse.T)
    return np.stack(found, axis=1).reshape(len(images), -1)


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
