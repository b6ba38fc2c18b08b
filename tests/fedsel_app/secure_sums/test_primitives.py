"""The parts of secure sums give the values of the study, and of a calculation by hand."""

import pytest

from fedsel_app.secure_sums.keys import RunKey, mask
from fedsel_app.secure_sums.shares import PRIME, SHARE_BYTES, combine, evaluate, neighbours_of, parameters, split
from fedsel_app.secure_sums.statement import bundle_bytes, masked_sizes
from fedsel_app.wire.ring import PLACES


@pytest.mark.parametrize(
    ("bits", "words"), [(16, [59750, 54347, 35567, 15148]), (24, [4974950, 9105364, 8928044, 5896780])]
)
def test_a_mask_is_the_keystream_of_aes(bits: int, words: list[int]) -> None:
    """The keystream of AES-128-CTR with key and counter 0, as little-endian words."""
    assert mask(bytes(16), 4, bits).tolist() == words


def test_shares_of_a_line() -> None:
    """1 + 5 x at 1, 2, 3 is 6, 11, 16, and any two of them give 1."""
    assert evaluate([1, 5], (1, 2, 3)) == [6, 11, 16]
    assert {combine(pair) for pair in ({1: 6, 2: 11}, {1: 6, 3: 16}, {3: 16, 2: 11})} == {1}


def test_as_many_shares_as_the_threshold_give_the_secret_and_fewer_do_not() -> None:
    """The largest secret of the field, shared among six with the threshold 4."""
    shares = dict(zip(range(1, 7), split(PRIME - 1, 4, range(1, 7)), strict=True))
    assert combine({point: shares[point] for point in (6, 2, 5, 3)}) == PRIME - 1
    assert combine({point: shares[point] for point in (6, 2, 5)}) != PRIME - 1


@pytest.mark.parametrize(("neighbours", "size"), [(9, 1674), (54, 51_354), (74, 95_534)])
def test_bytes_of_the_boxes(neighbours: int, size: int) -> None:
    """A box has a share of 17 bytes for each seed, and a tag of 16."""
    assert bundle_bytes(neighbours) == size


def test_a_client_of_ten_sends_at_most_0_11_bytes_a_parameter() -> None:
    """Of 10^6 parameters 5% in 16 bits, with the vector of its exponent, boxes, promises, and the shares it tells."""
    sent = sum(masked_sizes(9, 50_000 + PLACES, 16)) + 10 * SHARE_BYTES
    assert 0.10 < sent / 10**6 <= 0.11


@pytest.mark.parametrize(
    ("clients", "expected"), [(3, (2, 2)), (10, (9, 6)), (20, (19, 11)), (100, (54, 28)), (1000, (74, 45))]
)
def test_neighbours_and_threshold(clients: int, expected: tuple[int, int]) -> None:
    """With a fifth of the clients corrupt and a tenth gone."""
    assert parameters(clients) == expected


def test_the_graph_is_regular_and_follows_from_the_context() -> None:
    """Each has as many neighbours, who have it too; another context gives others."""
    cohort = list(range(0, 80, 2))
    graph = neighbours_of(cohort, 6, b"one")
    assert {len(others) for others in graph.values()} == {6}
    assert all(client in graph[other] for client, others in graph.items() for other in others)
    assert graph == neighbours_of(cohort, 6, b"one") != neighbours_of(cohort, 6, b"two")


def test_two_clients_share_a_seed_and_only_the_receiver_opens_a_box() -> None:
    """The seed is the same on both sides and another in another context; a changed box does not open."""
    one, two, third = RunKey(), RunKey(), RunKey()
    assert one.seed(two.public, b"round 1") == two.seed(one.public, b"round 1") != one.seed(two.public, b"round 2")
    box = one.seal(two.public, b"round 1", b"share")
    assert len(box) == 5 + 16
    assert RunKey(two.private).open(one.public, b"round 1", box) == b"share"
    for opener, sender, context in ((third, one, b"round 1"), (two, one, b"round 2"), (two, third, b"round 1")):
        with pytest.raises(ValueError, match="cannot be opened"):
            opener.open(sender.public, context, box)
