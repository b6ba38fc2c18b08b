import contextlib
import io
import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.wire.codec import WireError
from fedsel_app.wire.npy import read_array
from tests.support.hostile_replies import UNREADABLE, headed, saved

HONEST = saved(np.arange(6, dtype=np.float32).reshape(2, 3))
DTYPES = ("?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", ">i4", ">u8", ">f4", ">f8")
SHAPES = ((), (1,), (5,), (2, 3), (4, 1, 2), (0,), (3, 0), (0, 7, 2), (1,) * 32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_numpy_saves_is_read(dtype):
    for shape, order in itertools.product(SHAPES, "CF"):
        sent = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), dtype, order=order)
        found = read_array(saved(sent))
        assert found.dtype == np.dtype(dtype).newbyteorder("=")
        assert found.shape == shape
        assert found.tolist() == sent.tolist()


@pytest.mark.parametrize("name", UNREADABLE)
def test_all_else_is_refused_in_one_sentence(name):
    tensor = UNREADABLE[name](HONEST)
    with pytest.raises(WireError, match="NumPy's format") as refused:
        read_array(tensor)
    assert "\n" not in str(refused.value)


def test_no_part_of_an_array_is_an_array():
    for length in range(len(HONEST)):
        with pytest.raises(WireError):
            read_array(HONEST[:length])


def test_what_a_header_claims_is_not_allocated():
    claims = [headed(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**power},), }}\n") for power in range(60)]
    tracemalloc.start()
    try:
        for claim in claims:
            with pytest.raises(WireError, match=r"needs \d+ bytes of values, and 0 came"):
                read_array(claim)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_values_are_not_copied():
    large = saved(np.zeros(10**6, np.float32))
    tracemalloc.start()
    try:
        array = read_array(large)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert not array.flags.writeable


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_refused_or_an_array(junk, framed):
    with contextlib.suppress(WireError):
        read_array(headed(junk, b"abcd") if framed else junk)


@given(st.lists(st.tuples(st.integers(0, len(HONEST) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_array_is_refused_or_what_numpy_reads(damage):
    """Where this reader accepts an array, NumPy's own reader finds the same."""
    tensor = bytearray(HONEST)
    for place, value in damage:
        tensor[place] = value
    with contextlib.suppress(WireError):
        found = read_array(bytes(tensor))
        np.testing.assert_array_equal(found, np.load(io.BytesIO(tensor)))
