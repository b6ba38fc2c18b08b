"""Seconds and bits that the schedules expect, against the codec and by hand."""

import numpy as np
import pytest

from fedsel_app.config import CompressionConfig
from fedsel_app.wire.codec import Update, encode
from strategies.selection_math.client_time import client_seconds, fitting_fractions, update_bits
from tests.support.contexts import make_roster

TOP_K = CompressionConfig()


@pytest.mark.parametrize("fraction", [0.01, 0.08, 0.2, 0.5, 1.0])
def test_bits_are_what_the_codec_writes(fraction):
    size, rng = 50_000, np.random.default_rng(1)
    kept = np.sort(rng.choice(size, int(fraction * size), replace=False)).astype(np.uint32)
    update = Update(size, None if fraction == 1 else kept, rng.normal(size=kept.size).astype(np.float32))
    assert update_bits(size, fraction, TOP_K) == pytest.approx(
        8 * len(encode(update, client=0, server_round=1)), rel=0.03
    )


def test_bits_of_the_other_compressors():
    assert update_bits(100, 0.25, CompressionConfig(compressor="rand-k")) == 800
    assert update_bits(100, 0.25, CompressionConfig(compressor="none")) == 3200


def test_seconds_of_training_and_upload():
    roster = make_roster(3)
    roster.uplink_bits_per_s[:] = [1e6, 2e6, 4e6]
    roster.step_s[:] = [0.1, 0.2, 0.3]
    compute_s, upload_s = client_seconds(roster, np.array([0, 2]), 1000, 1.0, TOP_K)
    np.testing.assert_allclose(compute_s, [5.0, 15.0])
    np.testing.assert_allclose(upload_s, [0.032, 0.008])
    # A quarter costs 8 bits for each entry of the model, and the entropy of 1/4: 4 times that for all of them.
    _, upload_s = client_seconds(roster, np.array([0, 2]), 1000, 0.25, TOP_K)
    np.testing.assert_allclose(upload_s, [0.004 * 8.811278, 0.001 * 8.811278], rtol=1e-6)


def test_fractions_fill_the_time_until_the_deadline():
    fractions = fitting_fractions(10.0, np.array([9.0, 5.0, 2.0, 11.0]), np.array([4.0, 5.0, 4.0, 1.0]), 0.05)
    assert fractions.tolist() == [0.25, 1.0, 1.0, 0.05]
    assert fitting_fractions(np.inf, np.array([9.0]), np.array([4.0]), 0.05).tolist() == [1.0]
