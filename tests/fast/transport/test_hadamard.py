"""The randomised Hadamard transform: a rotation that can be undone, that spreads what is lost."""

from __future__ import annotations

import numpy as np
import pytest

from dlcp.transport.aggregation.hadamard import Rotation, transform
from dlcp.transport.contract.endpoint import Floats


def vector(elements: int) -> Floats:
    return np.random.default_rng(elements).standard_normal(elements, np.float32)


def code_of(rotation: Rotation, values: Floats) -> Floats:
    code = np.empty_like(values)
    rotation.encode(values, code)
    return code


@pytest.mark.parametrize("size", [1, 2, 8, 32])
def test_transform__is_sylvester_s_matrix(size: int) -> None:
    matrix = np.array([[1.0]])
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    values = vector(size)
    expected = matrix @ values / np.sqrt(size)
    transform(values)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


def test_transform__of_no_power_of_two_is_refused() -> None:
    with pytest.raises(ValueError, match="12 values are no power of two"):
        transform(np.zeros(12, np.float32))


@pytest.mark.parametrize("elements", [1, 2, 3, 360, 1023, 1024, 1025, 10_000])
def test_round_trip__of_any_length_keeps_values_and_energy(elements: int) -> None:
    values, rotation = vector(elements), Rotation(elements, seed=3)
    code = code_of(rotation, values)
    assert np.dot(code, code) == pytest.approx(float(np.dot(values, values)), rel=1e-4)
    rotation.decode(code)
    np.testing.assert_allclose(code, values, atol=1e-5)


def test_code__is_linear_so_sums_of_codes_are_codes_of_sums() -> None:
    a, b, rotation = vector(5000), vector(5000)[::-1].copy(), Rotation(5000, seed=1)
    total = code_of(rotation, a) + code_of(rotation, b)
    rotation.decode(total)
    np.testing.assert_allclose(total, a + b, atol=1e-4)


def test_seed__decides_the_rotation() -> None:
    values = vector(1000)
    same, other = Rotation(1000, seed=1), Rotation(1000, seed=2)
    np.testing.assert_array_equal(code_of(Rotation(1000, seed=1), values), code_of(same, values))
    assert not np.allclose(code_of(other, values), code_of(same, values))


@pytest.mark.parametrize("elements", [8192, 10_000, 12_288, 16_000])
def test_spreading__a_lost_stretch_harms_all_values_a_little(elements: int) -> None:
    """One loud packet of 360 values among quiet ones. Lost as it is, nearly all of the energy is gone. Lost from the
    code, wherever it lies, not much more is gone than its share of the bytes."""
    values = vector(elements) * np.float32(0.01)
    values[720:1080] += 1.0
    rotation = Rotation(elements, seed=5)
    code = code_of(rotation, values)
    energy = float(np.dot(values, values))
    for packet in range(elements // 360):
        holed = code.copy()
        holed[packet * 360 : (packet + 1) * 360] = 0
        rotation.decode(holed)
        error = holed - values
        assert float(np.dot(error, error)) / energy < 4 * 360 / elements
        assert np.abs(error).max() < 0.75, "no value is lost altogether: the loud ones are 1"
    holed = values.copy()
    holed[720:1080] = 0
    assert float(np.dot(holed - values, holed - values)) / energy > 0.9
