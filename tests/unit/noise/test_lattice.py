"""The exact sampler: its integer branch, its error interval, its edges."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from pacprivacy._random import SimulatedSource, SystemSource
from pacprivacy.errors import BudgetError
from pacprivacy.noise import lattice
from pacprivacy.noise.lattice import sample_discrete_gaussian

ALL_ONES = 2**64 - 1


class ScriptedSource:
    """Yields the given words in order and fails when they run out."""

    is_simulation = True

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, size: int) -> npt.NDArray[np.uint64]:
        assert size <= len(self.left), "the sampler asked for more bits than the script has"
        given, self.left = self.left[:size], self.left[size:]
        return np.array(given, dtype=np.uint64)


def decimal_exp(gamma: Fraction) -> Decimal:
    return (-(Decimal(gamma.numerator) / Decimal(gamma.denominator))).exp()


@pytest.mark.claim("L-1")
@pytest.mark.parametrize("bits", [8, 64, 96, 300])
@pytest.mark.parametrize(
    "gamma",
    [
        Fraction(1, 2**62),
        Fraction(1, 3),
        Fraction(2**31 - 1, 2**31),
        Fraction(1),
        Fraction(7, 2),
        Fraction(64),
        Fraction(1000, 7),
        Fraction((45 * 2**31) ** 2, 2 * (2**31 - 1) ** 2),
    ],
)
def test_enclosure_holds_the_exponential_and_is_tight(gamma: Fraction, bits: int) -> None:
    lower, upper = lattice._enclose_exp(gamma, bits)
    with localcontext() as context:
        context.prec = 120
        truth = decimal_exp(gamma) * 2**bits
        assert lower <= truth <= upper
    assert upper - lower <= 2


@pytest.mark.claim("L-1")
@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(2), Fraction(99, 7), Fraction(60)])
def test_lazy_uniform_decides_ties_with_further_bits(gamma: Fraction) -> None:
    with localcontext() as context:
        context.prec = 120
        cell = int(decimal_exp(gamma) * 2**64)
        beyond = int(decimal_exp(gamma) * 2**128) % 2**64

    def is_below(word: int, *more: int) -> tuple[bool, int]:
        source = ScriptedSource(*more)
        return lattice._LazyUniform(word, source).is_below_exp(gamma), len(source.left)

    assert is_below(cell + 1) == (False, 0)
    if cell:
        assert is_below(cell - 1) == (True, 0)
    assert is_below(cell, 0) == (True, 0)
    assert is_below(cell, ALL_ONES) == (False, 0)
    assert is_below(cell, beyond - 1) == (True, 0)
    assert is_below(cell, beyond + 1) == (False, 0)
    # The second word ties as well: a third one is asked for, and decides.
    assert is_below(cell, beyond, 0) == (True, 0)
    assert is_below(cell, beyond, ALL_ONES) == (False, 0)


@pytest.mark.claim("L-1")
def test_certain_coin_needs_no_bits() -> None:
    assert lattice._LazyUniform(ALL_ONES, ScriptedSource()).is_below_exp(Fraction(0))


@pytest.mark.claim("L-1")
def test_geometric_thresholds_are_exact() -> None:
    thresholds = lattice._exp_thresholds()
    with localcontext() as context:
        context.prec = 80
        expected = [int(Decimal(-k).exp() * 2**64) for k in range(1, len(thresholds) + 1)]
    assert [int(word) for word in thresholds] == expected[::-1]
    assert expected[-1] == 0 < expected[-2]


@pytest.mark.claim("L-1")
@pytest.mark.parametrize("k", [1, 2, 10, 44])
def test_geometric_around_a_threshold(k: int) -> None:
    threshold = int(lattice._exp_thresholds()[-k])
    assert lattice._geometric(1, ScriptedSource(threshold + 1)) == [k - 1]
    assert lattice._geometric(1, ScriptedSource(threshold, ALL_ONES)) == [k - 1]
    assert lattice._geometric(1, ScriptedSource(threshold, 0)) == [k]
    if threshold > 1:
        assert lattice._geometric(1, ScriptedSource(threshold - 1)) == [k]


@pytest.mark.claim("L-1")
def test_geometric_beyond_the_table_looks_further() -> None:
    """Sixty-four zeros: the count goes on in the following words, without a cap."""
    with localcontext() as context:
        context.prec = 80
        word = int(Decimal(-60).exp() * 2**128)
    assert word < 2**64
    assert lattice._geometric(1, ScriptedSource(0, word - 1)) == [60]
    assert lattice._geometric(1, ScriptedSource(0, word + 1)) == [59]


@pytest.mark.claim("L-1")
def test_uniform_rejects_the_surplus_words() -> None:
    # 2^64 = 1 modulo 3, so one word must go; 2^64 = 0 modulo 4, so none.
    source = ScriptedSource(0, 4, ALL_ONES - 1)
    np.testing.assert_array_equal(
        lattice.uniform_lattice_integers(np.array([3, 3]), source), [2, 1]
    )
    assert not source.left
    np.testing.assert_array_equal(
        lattice.uniform_lattice_integers(np.array([4, 1]), ScriptedSource(0, ALL_ONES)), [0, 0]
    )


@pytest.mark.claim("L-1")
@pytest.mark.parametrize("s", [1, 3, 30, 2**20 + 7, 2**31 - 1, 2**31])
def test_float_rate_is_well_inside_its_error_interval(s: int) -> None:
    """The analysis beside the constants: 2^-44 is promised, 2^-40 is allowed."""
    generator = np.random.default_rng(s)
    digits = generator.integers(0, s, size=60)
    excess = generator.integers(-s, 10 * s, size=60)
    exact = [Fraction(int(u), s) for u in digits] + [
        Fraction(int(x) ** 2, 2 * s**2) for x in excess
    ]
    rates = np.concatenate([np.exp(-(digits / s)), np.exp(-(0.5 * (excess / s) ** 2))])
    with localcontext() as context:
        context.prec = 60
        for rate, gamma in zip(rates, exact, strict=True):
            truth = decimal_exp(gamma)
            assert abs(Decimal(float(rate)) - truth) <= truth / 2**44


@pytest.mark.claim("L-1")
@pytest.mark.parametrize("s", [2, 30, 2**31])
def test_integer_branch_makes_the_same_choices(s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a useless error interval every coin is decided by integers, all with the same fate."""
    units = np.full(400, s)
    fast = sample_discrete_gaussian(units, SimulatedSource(11))
    calls: list[Fraction] = []
    enclose = lattice._enclose_exp

    def counted(gamma: Fraction, bits: int) -> tuple[int, int]:
        calls.append(gamma)
        return enclose(gamma, bits)

    monkeypatch.setattr(lattice, "_RELATIVE_SLACK", 1.0)
    monkeypatch.setattr(lattice, "_ABSOLUTE_SLACK", 1.0)
    monkeypatch.setattr(lattice, "_enclose_exp", counted)
    np.testing.assert_array_equal(sample_discrete_gaussian(units, SimulatedSource(11)), fast)
    assert len(calls) >= units.size


@pytest.mark.claim("L-1")
def test_integer_branch_is_right_when_the_first_words_are_blurred(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forget all but the first four bits of every coin: the others are drawn when needed.

    The law must not notice. Chi-square on the 12 middle values at s = 2.
    """

    class Blurred(lattice._LazyUniform):
        __slots__ = ()

        def __init__(self, word: int, source: SimulatedSource) -> None:
            super().__init__(word, source)
            self._value, self._bits = word >> 60, 4

    monkeypatch.setattr(lattice, "_RELATIVE_SLACK", 1.0)
    monkeypatch.setattr(lattice, "_ABSOLUTE_SLACK", 1.0)
    monkeypatch.setattr(lattice, "_LazyUniform", Blurred)
    draws = sample_discrete_gaussian(np.full(8000, 2), SimulatedSource(12))
    values = np.arange(-6, 7)
    weights = np.exp(-(np.arange(-60, 61) ** 2) / 8.0)
    expected = 8000 * np.exp(-(values**2) / 8.0) / weights.sum()
    observed = np.array([(draws == value).sum() for value in values])
    assert ((observed - expected) ** 2 / expected).sum() < 65  # 13 terms: false alarm 1e-8


def test_shapes_and_types() -> None:
    source = SimulatedSource(1)
    assert sample_discrete_gaussian(np.zeros(0, dtype=np.int64), source).shape == (0,)
    assert sample_discrete_gaussian(np.zeros((3, 0), dtype=np.int64), source).shape == (3, 0)
    draws = sample_discrete_gaussian(np.full((2, 5), 1024, dtype=np.uint32), source)
    assert draws.shape == (2, 5)
    assert draws.dtype == np.int64
    assert sample_discrete_gaussian(np.asarray(7), source).shape == ()


def test_every_element_has_its_own_scale() -> None:
    units = np.tile([1, 2**31], 500)
    draws = sample_discrete_gaussian(units, SimulatedSource(2)).reshape(500, 2)
    assert np.abs(draws[:, 0]).max() < 10
    assert math.isclose(draws[:, 1].std(), 2**31, rel_tol=0.2)


def test_blocks_do_not_change_the_shape_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lattice, "_BLOCK", 7)
    draws = sample_discrete_gaussian(np.full(40, 2**20), SimulatedSource(3))
    assert draws.shape == (40,)
    assert np.all(draws != 0)  # a skipped element would stay 0; chance 40 · 2^-21
    assert np.unique(draws).size == 40


def test_a_seed_repeats_and_the_system_does_not() -> None:
    units = np.full(50, 2**31)
    first, second = (sample_discrete_gaussian(units, SimulatedSource(4)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    system = [sample_discrete_gaussian(units, SystemSource()) for _ in range(2)]
    assert not np.array_equal(*system)


@pytest.mark.parametrize(
    "units",
    [
        np.array([0]),
        np.array([5, -1]),
        np.array([2**31 + 1]),
        np.array([2**63 + 5], dtype=np.uint64),
        np.array([1024.0]),
        np.array([True]),
        np.array(["7"]),
    ],
)
def test_scales_are_checked(units: npt.NDArray[np.int64]) -> None:
    with pytest.raises(BudgetError, match=r"units_per_std must be integers from 1 to 2\*\*31"):
        sample_discrete_gaussian(units, SimulatedSource(1))
