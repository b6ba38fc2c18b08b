"""A server that follows the protocol gets the sum; a server or a client that does not gets nothing else."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.masking import Masks
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.secure_sums.keys import sign_run_key
from fedsel_app.secure_sums.shares import parameters
from fedsel_app.secure_sums.statement import Masked, Question, RefusedError, SignedKey, Statement, read_told
from fedsel_app.wire.ring import RINGS
from strategies.round.unmasking import LostSumError, Sum
from tests.support.masked_cohort import RUN, Cohort, identity, provisioned


def answers(cohort: Cohort, total: Sum, of: list[int]) -> dict[int, bytes]:
    """Answers of clients to an honest question."""
    asked = total.statement.server_round, total.statement.attempt
    return {each: cohort.masks[each].answer(*asked, total.question(each)) for each in of}


def masked_sum(cohort: Cohort, statement: Statement, replied: list[int]) -> Sum:
    """The masked sum over those who replied."""
    return Sum(statement, {each: cohort.mask(each, statement) for each in replied}, cohort.size, cohort.bits)


def unmask(clients: int, bits: int, lost: int, silent: int) -> None:
    """Lose clients before the first exchange, and others during the second: the sum is that of those who replied."""
    cohort = Cohort(clients, bits)
    order = np.random.default_rng(clients + lost).permutation(clients).tolist()
    replied = sorted(order[lost:])
    total = masked_sum(cohort, cohort.statement(), replied)
    told = answers(cohort, total, sorted(order[lost + silent :]))
    assert total.unmasked(told).tolist() == cohort.total(replied)


@settings(max_examples=10)
@given(st.integers(3, 9), st.sampled_from(RINGS), st.data())
def test_the_unmasked_sum_is_the_integer_sum(clients: int, bits: int, drawn: st.DataObject) -> None:
    """For any ring, and as many lost clients as the threshold allows."""
    _, threshold = parameters(clients)
    lost = drawn.draw(st.integers(0, clients - max(threshold, 3)))
    unmask(clients, bits, lost, drawn.draw(st.integers(0, clients - lost - threshold)))


@pytest.mark.slow
@settings(max_examples=3)
@given(st.integers(57, 64), st.sampled_from(RINGS), st.integers(0, 3))
def test_the_unmasked_sum_over_a_graph_is_the_integer_sum(clients: int, bits: int, lost: int) -> None:
    """Of 57 clients or more each shares masks with 54 of the others."""
    assert parameters(clients)[0] == 54
    unmask(clients, bits, lost, 1)


def test_masks_that_the_server_expands() -> None:
    """Of ten clients with one gone: the own masks of nine, and their masks with the tenth."""
    cohort = Cohort(10)
    total = masked_sum(cohort, cohort.statement(), list(range(9)))
    assert total.unmasked(answers(cohort, total, list(range(9)))).tolist() == cohort.total(range(9))
    assert total.expanded == [18]


def test_masked_numbers_look_random() -> None:
    """Two clients with zeros alone send words that are spread over the ring, and differ."""
    cohort = Cohort(3, size=4096)
    cohort.numbers = dict.fromkeys(range(3), np.zeros(4096, np.int64))
    words = [np.frombuffer(cohort.mask(each, cohort.statement()).words, np.uint16) for each in range(3)]
    assert all(abs(float(each.mean()) / 65536 - 0.5) < 0.03 for each in words)
    assert (words[0] != words[1]).mean() > 0.99


def test_another_attempt_repeats_the_numbers_without_those_who_are_gone() -> None:
    """Too few replied for any question, so that the rest masks the same numbers once more."""
    cohort = Cohort(6)
    first = masked_sum(cohort, cohort.statement(), [0, 1, 2])
    assert first.short_of_holders() == [0, 1, 2]
    again = cohort.statement([0, 1, 2], attempt=1)
    total = Sum(again, {each: cohort.mask(each, again, again=True) for each in (0, 1, 2)}, cohort.size, 16)
    assert total.unmasked(answers(cohort, total, [0, 1])).tolist() == cohort.total([0, 1, 2])


def stated(**changes: object) -> Callable[[Cohort], object]:
    """A lie in the statement to client 0."""
    return lambda cohort: cohort.mask(0, replace(cohort.statement(), **changes))  # type: ignore[arg-type]


def asking_for_statistics(cohort: Cohort) -> object:
    """An instruction for statistics that states no range in which client 0 could mask them."""
    asked = TrainInstruction(1, "", 0.1, 0.1, 1.0, curvature=False, statistics=True, entries=b"", masks="")
    return cohort.masks[0].instructed(asked, [])


def with_key(key: Callable[[Cohort], SignedKey | None]) -> Callable[[Cohort], object]:
    """Another key of client 1, or none."""

    def lie(cohort: Cohort) -> object:
        other = key(cohort)
        cohort.keys = {each: signed for each, signed in cohort.keys.items() if each != 1}
        cohort.keys |= {} if other is None else {1: other}
        return cohort.mask(0, cohort.statement())

    return lie


def forged(cohort: Cohort) -> SignedKey:
    """A key that another client has signed."""
    own = Masks(replace(identity(2, 5), client=1), RUN, 3, {})
    return own.enrol()


def weak(cohort: Cohort) -> SignedKey:
    """A point of a small subgroup, which client 1 has signed."""
    return SignedKey(bytes(32), sign_run_key(provisioned(1)[0], RUN, 1, bytes(32)))


def asked(
    change: Callable[[Question], Question], *, times: int = 1, server_round: int = 1
) -> Callable[[Cohort], object]:
    """A lie in the question to client 0."""

    def lie(cohort: Cohort) -> object:
        total = masked_sum(cohort, cohort.statement(), [0, 1, 2, 3])
        for _ in range(times - 1):
            cohort.masks[0].answer(1, 0, total.question(0))
        return cohort.masks[0].answer(server_round, 0, change(total.question(0)))

    return lie


def replayed(**changes: object) -> Callable[[Cohort], object]:
    """A statement that follows an honest round 2."""

    def lie(cohort: Cohort) -> object:
        cohort.mask(0, cohort.statement(server_round=2))
        return cohort.mask(0, replace(cohort.statement(server_round=2), **changes))  # type: ignore[arg-type]

    return lie


def repeated_after_shares(cohort: Cohort) -> object:
    """Another attempt, after client 0 has told its shares."""
    total = masked_sum(cohort, cohort.statement(), [0, 1, 2, 3])
    answers(cohort, total, [0])
    return cohort.mask(0, cohort.statement([0, 1, 2], attempt=1), again=True)


def too_large(cohort: Cohort) -> object:
    """A sum that could leave the ring."""
    cohort.numbers[0] = np.full(cohort.size, 6554)
    return cohort.mask(0, cohort.statement())


LYING_SERVER: dict[str, tuple[Callable[[Cohort], object], str]] = {
    "overlapping lists": (asked(lambda told: told._replace(gone=(3, 4))), "overlap"),
    "incomplete lists": (asked(lambda told: told._replace(answered=(0, 1, 2))), "overlap, or are not the cohort"),
    "a sum over two": (asked(lambda told: told._replace(answered=(0, 1), gone=(2, 3, 4))), "sum over 2 clients"),
    "a sum that splits": (asked(lambda told: told._replace(answered=(1, 2, 3), gone=(0, 4))), "not client 0"),
    "a second question": (asked(lambda told: told, times=2), "second question in round 1"),
    "a question about another round": (asked(lambda told: told, server_round=2), "not the last one"),
    "a box of its own": (asked(lambda told: told._replace(boxes={**told.boxes, 1: bytes(118)})), "client 1.*be opened"),
    "a replayed round": (replayed(), r"round 2, attempt 0, after \[2, 0\]"),
    "an old round": (replayed(server_round=1), "a mask is used once"),
    "another attempt after shares": (repeated_after_shares, "of which client 0 has told its shares"),
    "a forged key": (with_key(forged), "key of client 1 is missing, or not signed"),
    "a key that gives all the same seed": (with_key(weak), "key of client 1 is missing, or not signed"),
    "a missing key": (with_key(lambda cohort: None), "key of client 1 is missing"),
    "a key of another run": (
        with_key(lambda cohort: Masks(identity(1, 5), b"run 6", 3, {}).enrol()),
        "key of client 1 is missing, or not signed",
    ),
    "a client that nobody signed": (stated(cohort=(0, 1, 2, 3, 9)), "the admin has not signed"),
    "an attempt without end": (lambda cohort: read_told("[Infinity,[],0,0,{}]", cohort.statement()), "cannot be read"),
    "a cohort without the client": (stated(cohort=(1, 2, 3, 4)), "lacks client 0"),
    "a cohort of two": (stated(cohort=(0, 1)), "cohort of 2, and 'least-cohort'"),
    "a threshold too small": (stated(threshold=2), "threshold 2 of 4 neighbours"),
    "too few neighbours": (stated(degree=2), "2 neighbours; 4 are the least"),
    "an overflow": (too_large, "could leave the ring of 16 bits"),
    "statistics without masks": (asking_for_statistics, "statistics or reports beside the update, which nothing"),
}


@pytest.mark.parametrize("lie", LYING_SERVER)
def test_a_client_refuses_a_server_that_lies(lie: str) -> None:
    """With a sentence, and without a word that it had not sent before."""
    act, sentence = LYING_SERVER[lie]
    with pytest.raises(RefusedError, match=sentence):
        act(Cohort(5))


def test_another_model_to_one_client_gives_noise() -> None:
    """Its masks do not cancel, so the server learns nothing of any client."""
    cohort = Cohort(5)
    statement = cohort.statement()
    masked = {each: cohort.mask(each, statement) for each in range(4)}
    masked[4] = cohort.mask(4, replace(statement, model=b"another model"))
    total = Sum(statement, masked, cohort.size, cohort.bits)
    told = {}
    for each in range(5):
        with pytest.raises(RefusedError, match=r"box of client 0|box of client 4"):
            told[each] = cohort.masks[each].answer(1, 0, total.question(each))
    assert not told


def with_garbage(masked: Masked) -> Masked:
    """Boxes that do not open."""
    return masked._replace(boxes=bytes(len(masked.boxes)))


def test_boxes_that_do_not_open_are_not_answered_and_the_round_is_repeated() -> None:
    """The others reveal nothing, name the liar, and mask again without it."""
    cohort = Cohort(5)
    statement = cohort.statement()
    masked = {each: cohort.mask(each, statement) for each in range(5)}
    masked[4] = with_garbage(masked[4])
    total = Sum(statement, masked, cohort.size, 16)
    for each in range(4):
        with pytest.raises(RefusedError, match=f"box of client 4 for client {each} cannot be opened"):
            cohort.masks[each].answer(1, 0, total.question(each))
    again = cohort.statement([0, 1, 2, 3], attempt=1)
    second = Sum(again, {each: cohort.mask(each, again, again=True) for each in range(4)}, cohort.size, 16)
    assert second.unmasked(answers(cohort, second, [0, 1, 2, 3])).tolist() == cohort.total(range(4))


def test_wrong_shares_are_found_and_left_out() -> None:
    """Two of ten send other shares; the seeds that were promised come from the shares of the others."""
    cohort = Cohort(10)
    total = masked_sum(cohort, cohort.statement(), list(range(9)))
    told = answers(cohort, total, list(range(9)))
    told[0] = bytes(len(told[0]))
    told[5] = told[5][::-1]
    told[7] = told[7][:-1]
    assert total.unmasked(told).tolist() == cohort.total(range(9))
    assert {0, 5, 7} <= total.suspects


def test_too_few_shares_lose_the_sum_with_a_reason() -> None:
    """Five of ten answer, and six must."""
    cohort = Cohort(10)
    total = masked_sum(cohort, cohort.statement(), list(range(10)))
    with pytest.raises(LostSumError, match="5 clients told their shares of client 0, and 6 must"):
        total.unmasked(answers(cohort, total, [0, 1, 2, 3, 4]))


def test_a_liars_numbers_beyond_the_bound_are_cut_down() -> None:
    """A sum of three clients is at most three times what each may send."""
    cohort = Cohort(3)
    statement = cohort.statement()
    masked = {each: cohort.mask(each, statement) for each in range(3)}
    words = np.frombuffer(masked[0].words, np.uint16) + np.uint16(32768)
    masked[0] = masked[0]._replace(words=words.tobytes())
    total = Sum(statement, masked, cohort.size, 16)
    assert np.abs(total.unmasked(answers(cohort, total, [0, 1, 2]))).max() <= 3 * (32767 // 3)
