"""The packet layout, byte by byte, against Python's struct, through the same inline functions that the core uses."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.transport._native import ffi, lib

HEADER = struct.Struct(">BBHIIHBBIHHIHH")
ACK = struct.Struct(">BBHIIIIII16s")
VERSION = lib.DLCP_WIRE_VERSION
ELEMENT_BYTES = (4, 2, 2, 1, 1)
"""By dtype: float32, float16, bfloat16, uint8, and one that is not known."""


def decode(data: bytes) -> tuple[int, object]:
    header = ffi.new("struct dlcp_header *")
    # exactly as large as the datagram, so that a read beyond it shows under a sanitizer
    return lib.dlcp_header_decode(header, ffi.from_buffer(data) if data else ffi.NULL, len(data)), header


def data_packet(count: int = 360, **fields: int) -> bytes:
    values = {"flags": 3, "source": 7, "cookie": 0x01020304, "iteration": 9, "tensor": 11, "leg": 1, "magnitude": 77}
    values |= {"offset": 720, "count": count, "step": 5, "sequence": 0xFFFFFFFF, "contributors": 1234, "energy": 56789}
    values |= {"dtype": lib.DLCP_FLOAT32} | fields
    values["leg"] |= values.pop("dtype") << 4
    size = ELEMENT_BYTES[values["leg"] >> 4]
    return HEADER.pack(VERSION << 4 | lib.DLCP_DATA, *values.values()) + bytes(count * size)


# R1
def test_header_layout() -> None:
    header = ffi.new(
        "struct dlcp_header *",
        {
            "type": lib.DLCP_DATA,
            "flags": 3,
            "source": 7,
            "cookie": 0x01020304,
            "iteration": 9,
            "tensor": 11,
            "leg": 1,
            "magnitude": 77,
            "offset": 720,
            "count": 360,
            "step": 5,
            "sequence": 0xFFFFFFFF,
            "contributors": 1234,
            "energy": 56789,
            "dtype": lib.DLCP_BFLOAT16,
        },
    )
    out = ffi.new("uint8_t[]", lib.DLCP_HEADER_BYTES)
    lib.dlcp_header_encode(header, out)
    assert HEADER.size == lib.DLCP_HEADER_BYTES == 32
    assert ffi.buffer(out)[:] == data_packet(dtype=lib.DLCP_BFLOAT16)[:32]


# R2
def test_ack_layout() -> None:
    ack = ffi.new("struct dlcp_ack *")
    names = ("senders", "source", "cookie", "largest", "delay_us", "received", "ce", "overflow")
    for number, name in enumerate(names, 1):
        setattr(ack, name, number)
    ack.bitmap = bytes(range(16))
    out = ffi.new("uint8_t[]", lib.DLCP_ACK_BYTES)
    lib.dlcp_ack_encode(ack, out)
    assert ACK.size == lib.DLCP_ACK_BYTES == 44
    assert ffi.buffer(out)[:] == ACK.pack(VERSION << 4 | lib.DLCP_ACK, *range(1, 9), bytes(range(16)))
    back = ffi.new("struct dlcp_ack *")
    assert lib.dlcp_ack_decode(back, out, 44) == 0
    assert [getattr(back, name) for name in names] == list(range(1, 9))
    assert lib.dlcp_ack_decode(back, out, 43) == lib.DLCP_WIRE_LENGTH


# R3
def test_a_full_datagram_fits_ethernet() -> None:
    assert 20 + 8 + lib.DLCP_HEADER_BYTES + lib.DLCP_PAYLOAD_BYTES == 1500
    assert lib.DLCP_FRAME_OVERHEAD_BYTES == 14 + 20 + 8 + 32


uint = {bits: st.integers(0, 2**bits - 1) for bits in (8, 16, 32)}


@given(
    flags=uint[8],
    source=uint[16],
    cookie=uint[32],
    iteration=uint[32],
    tensor=uint[16],
    leg=st.integers(0, 1),
    magnitude=uint[8],
    offset=uint[32],
    step=uint[16],
    sequence=uint[32],
    contributors=uint[16],
    energy=uint[16],
    count=st.integers(1, 360),
    dtype=st.integers(0, 3),
)
def test_what_is_encoded_is_decoded(**fields: int) -> None:
    data = data_packet(**fields)
    code, header = decode(data)
    assert code == 0
    assert {name: getattr(header, name) for name in fields} == fields


# R4
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", lib.DLCP_WIRE_SHORT),
        (data_packet()[:31], lib.DLCP_WIRE_SHORT),
        (b"\x11" + data_packet()[1:], lib.DLCP_WIRE_VERSION_UNKNOWN),
        (bytes([VERSION << 4]) + data_packet()[1:], lib.DLCP_WIRE_TYPE_UNKNOWN),
        (bytes([VERSION << 4 | 7]) + data_packet()[1:], lib.DLCP_WIRE_TYPE_UNKNOWN),
        (data_packet()[:-1], lib.DLCP_WIRE_LENGTH),
        (data_packet() + b"\0", lib.DLCP_WIRE_LENGTH),
        (data_packet(leg=2), lib.DLCP_WIRE_FIELD),
        (data_packet(dtype=4), lib.DLCP_WIRE_FIELD),
        (data_packet(dtype=1)[:-1], lib.DLCP_WIRE_LENGTH),
        (data_packet(count=721, dtype=2), lib.DLCP_WIRE_FIELD),
        (data_packet(count=1441, dtype=3), lib.DLCP_WIRE_FIELD),
        (data_packet(count=0), lib.DLCP_WIRE_FIELD),
        (data_packet(count=361), lib.DLCP_WIRE_FIELD),
        (bytes([VERSION << 4 | lib.DLCP_DONE]) + data_packet(count=1)[1:], lib.DLCP_WIRE_LENGTH),
        (bytes([VERSION << 4 | lib.DLCP_STOP]) + data_packet(count=0)[1:], lib.DLCP_WIRE_LENGTH),
        (bytes([VERSION << 4 | lib.DLCP_NACK]) + data_packet(count=0)[1:], lib.DLCP_WIRE_LENGTH),
        (bytes([VERSION << 4 | lib.DLCP_PROBE]) + data_packet(count=1)[1:], lib.DLCP_WIRE_LENGTH),
    ],
)
def test_nothing_malformed_is_accepted(data: bytes, error: int) -> None:
    assert decode(data)[0] == error


@given(st.binary(max_size=1500))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    code, header = decode(data)
    if code == 0 and header.type == lib.DLCP_DATA:  # type: ignore[attr-defined]
        assert len(data) == 32 + ELEMENT_BYTES[header.dtype] * header.count  # type: ignore[attr-defined]


# R5
def test_a_nack_has_exactly_its_bitmap() -> None:
    nack = ffi.new("struct dlcp_nack *", {"first": 5, "packets": 17, "round": 2})
    out = ffi.new("uint8_t[]", 2048)
    size = lib.dlcp_nack_encode(nack, out)
    assert size == lib.DLCP_NACK_FIXED_BYTES + 3
    assert ffi.buffer(out)[32:44] == struct.pack(">III", 5, 17, 2)
    back = ffi.new("struct dlcp_nack *")
    assert lib.dlcp_nack_decode(back, out, size) == 0
    assert lib.dlcp_nack_decode(back, out, size + 1) == lib.DLCP_WIRE_LENGTH
    assert lib.dlcp_nack_decode(back, out, size - 1) == lib.DLCP_WIRE_LENGTH


def test_a_done_carries_its_energy_bit_by_bit() -> None:
    done = ffi.new("struct dlcp_done *", {"packets": 7, "round": 3, "energy": 0.1, "must_arrive": 2})
    out = ffi.new("uint8_t[]", lib.DLCP_DONE_BYTES)
    assert lib.dlcp_done_encode(done, out) == lib.DLCP_DONE_BYTES
    assert ffi.buffer(out)[32:52] == struct.pack(">IIdI", 7, 3, 0.1, 2)
    back = ffi.new("struct dlcp_done *")
    assert lib.dlcp_done_decode(back, out) == 0
    assert (back.packets, back.round, back.energy, back.must_arrive) == (7, 3, 0.1, 2)


# R7
@pytest.mark.parametrize("energy", [-1.0, float("nan"), float("-inf")])
def test_a_done_with_an_energy_that_cannot_be_is_refused(energy: float) -> None:
    out = ffi.from_buffer(bytes(40) + struct.pack(">dI", energy, 0))
    assert lib.dlcp_done_decode(ffi.new("struct dlcp_done *"), out) == lib.DLCP_WIRE_FIELD


# R29
@given(st.floats(2.0**-40, 2.0**23))
def test_a_magnitude_code_tells_the_root_mean_square_to_an_eighth(rms: float) -> None:
    assert lib.dlcp_code_energy(lib.dlcp_magnitude_code(rms)) ** 0.5 == pytest.approx(rms, rel=0.126)


# R29
def test_magnitude_codes_at_their_ends() -> None:
    code = lib.dlcp_magnitude_code
    assert [code(value) for value in (0.0, 1e-30, 2.0**-40, 1.25 * 2**23, 1e30)] == [0, 1, 1, 254, 254]
    assert {code(value) for value in (float("inf"), float("nan"))} == {lib.DLCP_CODE_NOT_FINITE}
    assert lib.dlcp_code_energy(0) == lib.dlcp_code_energy(lib.DLCP_CODE_NOT_FINITE) == 0


# R31
@given(st.floats(2.0**-100, 2.0**100))
def test_an_energy_code_is_never_too_little_and_at_most_a_256th_octave_too_much(energy: float) -> None:
    told = lib.dlcp_energy_decode(lib.dlcp_energy_code(energy))
    assert energy <= told <= energy * 2 ** (1.01 / 256)


def test_energy_codes_at_their_ends() -> None:
    code, decode = lib.dlcp_energy_code, lib.dlcp_energy_decode
    assert [code(0.0), code(1e-300), code(1e300), code(float("inf"))] == [0, 1, 65534, lib.DLCP_ENERGY_NOT_FINITE]
    assert (decode(0), decode(lib.DLCP_ENERGY_OF_ONE), decode(lib.DLCP_ENERGY_NOT_FINITE)) == (0, 1, float("inf"))
