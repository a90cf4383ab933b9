"""Arithmetic in the dtypes of tensors, held to what numpy and PyTorch compute."""

from __future__ import annotations

import numpy as np
import pytest
from extras import needs

from dlcp.transport.contract.endpoint import Dtype, Values
from dlcp.transport.contract.values import add_into, divide, held_as, packet_elements, packets, rescale

DTYPES: list[Dtype] = ["float32", "float16", "bfloat16"]


def to_float(values: Values, dtype: Dtype) -> np.ndarray:
    if dtype == "bfloat16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def drawn(count: int, dtype: Dtype, seed: int) -> Values:
    found = np.random.default_rng(seed).standard_normal(count, np.float32)
    return (found.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bfloat16" else found.astype(dtype)


@needs("torch")
def test_bfloat16__adds_as_pytorch_does() -> None:
    import torch

    one, other = drawn(10_000, "bfloat16", 1), drawn(10_000, "bfloat16", 2)
    one[:2], other[:2] = (0x7F80, 0x7FC0), (0xFF80, 0x3F80)  # infinity - infinity, NaN + 1
    expected = (torch.from_numpy(one).view(torch.bfloat16) + torch.from_numpy(other).view(torch.bfloat16)).float()
    with np.errstate(invalid="ignore"):
        add_into(one, other, "bfloat16")
    np.testing.assert_array_equal(to_float(one, "bfloat16"), expected.numpy())


@pytest.mark.parametrize("dtype", DTYPES)
def test_divide__rounds_once(dtype: Dtype) -> None:
    found = drawn(5_000, dtype, 3)
    exact = to_float(found, dtype) / np.float32(3)
    divide(found, 3, dtype)
    assert found.dtype == held_as(dtype)
    digits = {"float32": 24, "float16": 11, "bfloat16": 8}[dtype]
    np.testing.assert_allclose(to_float(found, dtype), exact, rtol=2.0**-digits, atol=2.0**-24)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rescale__touches_only_packets_that_lack_contributors(dtype: Dtype) -> None:
    width = packet_elements(dtype)
    found = drawn(3 * width + 5, dtype, 4)
    before = to_float(found, dtype)
    assert packets(found.size, dtype) == 4
    rescale(found, np.array([4, 2, 0, 1], np.uint16), 4, dtype)
    factors = np.repeat([1, 2, 1, 4], [width, width, width, 5])
    np.testing.assert_array_equal(to_float(found, dtype), before * factors)
