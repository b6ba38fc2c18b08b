"""`python -m tests.bench aggregate`: the bytes that a sum must touch, and its table."""

from fedsel_app.wire.codec import Update
from simulation.laboratory.bench import codec
from tests.bench import aggregate


def test_the_sum_must_touch_every_index_value_and_entry():
    sparse, dense = codec.drawn(1000, 0.2), codec.drawn(1000, 1.0)
    assert isinstance(dense, Update)
    assert dense.indices is None
    # 8 bytes of the sum each way; 200 of 8 bytes and 1000 of 4.
    assert aggregate.touched_bytes(1000, (sparse, dense)) == 16_000 + 1_600 + 4_000
