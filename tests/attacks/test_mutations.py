"""Attacks by mutation: damaged payloads with a correct check sum.

No crash, no hang, and nothing accepted that is unsound. The quick test decodes a small sample.
"""

import pytest

from tests.support.mutated_payloads import MOST_S, decode_mutated

PAIRS = 27
"""Nine codings of values, three of indices."""


@pytest.mark.parametrize("count", [3000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_mutated_payloads(count):
    """Each within five seconds of processor time."""
    found = decode_mutated(count, seed=0)
    assert (found["tried"], found["pairs"]) == (count, PAIRS)
    assert found["rarest"] > count / PAIRS / 2
    assert 0 < found["accepted"] < count / 2
    assert found["slowest_s"] < MOST_S
