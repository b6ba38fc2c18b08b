"""Masks of a client: it masks its whole numbers for a cohort, and answers one question a round for its shares.

Whatever the server states is checked first. What must outlive a message is in the client's memory of the run, which is
lost when the client restarts. Its key is lost with it, so that no mask is ever used twice.
"""

import json
import logging
import os
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.messages.answers import UnmaskAnswer
from fedsel_app.messages.instructions import MaskInstruction, TrainInstruction, UnmaskInstruction
from fedsel_app.messages.scalars import Report
from fedsel_app.secure_sums.keys import NO_KEY, RunKey, check_run_key, mask, read_identities, sign_run_key
from fedsel_app.secure_sums.shares import parameters, split
from fedsel_app.secure_sums.statement import (
    IDENTITIES,
    SEED_BYTES,
    ClosedBoxError,
    Masked,
    Question,
    RefusedError,
    SignedKey,
    Statement,
    box_bytes,
    model_hash,
    promise,
    read_shares,
    read_told,
    seed_number,
    shares_bytes,
)
from fedsel_app.wire.codec import Update
from fedsel_app.wire.ring import LOWEST, PLACES, Multiples, largest, one_hot, to_ring, words_as_bytes, words_of_bytes

Memory = MutableMapping[str, bytes | int | str]
LOGGER = logging.getLogger("fedsel")
LOSSES = frozenset({Report.INITIAL_LOSS, Report.RMS_LOSS, Report.EFFECTIVE_STEPS})
"""Reports that a client tells beside a masked update."""
KEY, TRUSTED = "key", "trusted.yaml"
"""Files of a client's folder: its provisioned key, and the signers that it trusts."""
AGAIN = "Nothing is sent, and this round is lost for this client."


@dataclass(frozen=True)
class Identity:
    """Who a client is, and who the others are.

    Attributes
    ----------
    client : partition id
    key : its provisioned private key, in OpenSSH's format
    others : client -> provisioned public key, of all clients, as the admin has signed them
    """

    client: int
    key: bytes
    others: Mapping[int, str]


def read_identity(folder: Path, client: int) -> Identity:
    """Identity of a client from its folder, in which the admin's list of identities is signed by a trusted signer.

    Raises ConfigError if a file is missing, or if no trusted signer has signed the list.
    """
    yaml: Any = import_module("yaml")
    try:
        signers = yaml.safe_load((folder / TRUSTED).read_text(encoding="utf-8")) or {}
        others = read_identities((folder / IDENTITIES).read_text(encoding="utf-8"), map(str, signers.values()))
        return Identity(client, (folder / KEY).read_bytes(), others)
    except (OSError, KeyError, AttributeError, *NO_KEY, yaml.YAMLError) as error:
        raise ConfigError(
            f"Copy {IDENTITIES} and {TRUSTED} again from where `fedsel provision` made them into {folder}: the "
            f"identities of the clients cannot be used ({error})."
        ) from error


class Masks:
    """Masks of a client in a run.

    Parameters
    ----------
    run : id of the run, from the client's own connection
    least_cohort : least number of clients in a sum
    memory : what the client remembers of this run; changes
    """

    def __init__(self, identity: Identity, run: bytes, least_cohort: int, memory: Memory) -> None:
        self._identity, self._run, self._least, self._memory = identity, run, least_cohort, memory

    def enrol(self) -> SignedKey:
        """The client's signed key of this run, which it makes the first time."""
        if "key" not in self._memory:
            self._memory["key"] = RunKey().private
        public = self._key().public
        client = self._identity.client
        return SignedKey(public, sign_run_key(self._identity.key, self._run, client, public))

    def check(self, statement: Statement, keys: Mapping[int, SignedKey]) -> None:
        """Raise RefusedError for a statement with which the server could learn more than the sum over a cohort.

        `keys` has the keys of the client's neighbours.
        """
        own, cohort, others = self._identity.client, statement.cohort, self._identity.others
        degree, threshold = parameters(len(cohort))
        if list(cohort) != sorted(set(cohort)) or own not in cohort:
            raise RefusedError(f"The server states a cohort that is not sorted, or lacks client {own}. {AGAIN}")
        if len(cohort) < self._least:
            raise RefusedError(
                f"The server states a cohort of {len(cohort)}, and 'least-cohort' of this client is {self._least}: a "
                f"sum over so few would tell too much. {AGAIN}"
            )
        if strangers := sorted(set(cohort) - others.keys()):
            raise RefusedError(f"The cohort has clients that the admin has not signed: {strangers[:5]}. {AGAIN}")
        if 2 * statement.threshold <= statement.degree + 1 or statement.threshold < threshold:
            raise RefusedError(
                f"The server states the threshold {statement.threshold} of {statement.degree} neighbours, and a cohort "
                f"of {len(cohort)} needs {threshold} of {degree}: fewer could unmask single clients. {AGAIN}"
            )
        if statement.degree < degree or (statement.degree % 2 and statement.degree != len(cohort) - 1):
            raise RefusedError(f"The server states {statement.degree} neighbours; {degree} are the least. {AGAIN}")
        stated = [statement.server_round, statement.attempt]
        if stated <= self._last():
            raise RefusedError(
                f"The server asks for round {stated[0]}, attempt {stated[1]}, after {self._last()}: a mask is used "
                f"once. {AGAIN}"
            )
        if self._memory.get("asked") == statement.server_round:
            raise RefusedError(
                f"The server repeats round {stated[0]}, of which client {own} has told its shares. {AGAIN}"
            )
        for other in statement.neighbours[own]:
            try:
                signed = keys[other]
                check_run_key(others[other], self._run, other, *signed)
            except (KeyError, *NO_KEY) as error:
                raise RefusedError(f"The key of client {other} is missing, or not signed by it. {AGAIN}") from error

    def instructed(
        self, instruction: TrainInstruction, arrays: Sequence[NDArray[Any]]
    ) -> tuple[Statement, dict[int, SignedKey]]:
        """The checked statement of an instruction to train from the model in `arrays`, and the neighbours' keys.

        Raises RefusedError as `check` does, and for an instruction that asks for more than a masked update.
        """
        if instruction.masks is None or instruction.entries is None:
            raise RefusedError(
                "The server asks for an update without a mask. This client sends none: its 'secure-sums' is masks."
            )
        masked = not instruction.statistics or instruction.buffers_exponent in range(LOWEST, LOWEST + PLACES)
        if not masked or instruction.metrics or not LOSSES.issuperset(instruction.reports):
            raise RefusedError("The server asks for statistics or reports beside the update, which nothing masks.")
        model = model_hash([array.tobytes() for array in arrays])
        base = Statement(self._run, instruction.server_round, 0, model, (), 0, 0, instruction.summed)
        statement, keys = read_told(instruction.masks, base)
        self.check(statement, keys)
        return statement, keys

    def masked(
        self, statement: Statement, keys: Mapping[int, SignedKey], update: Update, further: NDArray[np.int64]
    ) -> list[NDArray[np.uint8]]:
        """What the client sends of an update in whole numbers, and of `further` ones: its `Masked`, part by part."""
        multiples = update.quantised
        if not isinstance(multiples, Multiples):
            raise RefusedError("Set 'compressor' to common-k: only whole numbers can be masked.")
        numbers = np.concatenate([multiples.integers.astype(np.int64), one_hot(multiples.exponent), further])
        return _arrays(self.mask(statement, keys, numbers, multiples.bits))

    def again(self, instruction: MaskInstruction) -> list[NDArray[np.uint8]]:
        """What the client sends in a later attempt: the same numbers, masked for another cohort."""
        last = self.statement()
        if last is None or last.server_round != instruction.server_round:
            raise RefusedError(f"The server repeats round {instruction.server_round}, of which nothing is known here.")
        return _arrays(self.mask(*read_told(instruction.masks, last), None, 0))

    def unmasking(self, instruction: UnmaskInstruction) -> UnmaskAnswer:
        """The client's answer to the question for its shares. A box that does not open is named, and nothing told."""
        try:
            answered, gone = (
                tuple(map(int, filter(None, names.split(",")))) for names in (instruction.answered, instruction.gone)
            )
        except ValueError as error:
            raise RefusedError("The server's lists of who has answered and who is gone cannot be read.") from error
        statement, own = self.statement(), self._identity.client
        boxes: dict[int, bytes] = {}
        if statement is not None and own in statement.cohort:
            senders = [each for each in statement.neighbours[own] if each in answered]
            size = box_bytes(len(statement.neighbours[senders[0]])) if senders else 0
            content = instruction.boxes or b""
            boxes = {each: content[place * size : (place + 1) * size] for place, each in enumerate(senders)}
        try:
            question = Question(answered, gone, boxes)
            return UnmaskAnswer(self.answer(instruction.server_round, instruction.attempt, question))
        except ClosedBoxError as error:
            LOGGER.warning("%s", error)
            return UnmaskAnswer(closed=error.owner)

    def mask(
        self, statement: Statement, keys: Mapping[int, SignedKey], multiples: NDArray[np.int64] | None, bits: int
    ) -> Masked:
        """Mask whole numbers, int64 (L,), after `check`; None: those of the attempt before.

        Raises RefusedError as `check` does, for numbers whose sum could leave the ring, or if there are none to repeat.
        """
        self.check(statement, keys)
        own, memory = self._identity.client, self._memory
        if multiples is None:
            if self._last()[0] != statement.server_round:
                raise RefusedError(f"Client {own} has no numbers of round {statement.server_round} to repeat. {AGAIN}")
            bits, count = int(memory["bits"]), int(memory["count"])
            words = words_of_bytes(_bytes(memory["words"]), bits, count)
        else:
            if np.abs(multiples).max(initial=0) > largest(bits, len(statement.cohort)):
                raise RefusedError(f"A sum of so large numbers could leave the ring of {bits} bits. {AGAIN}")
            words = to_ring(multiples, bits)
        key, neighbours = self._key(), statement.neighbours[own]
        seeds = [os.urandom(SEED_BYTES), *(key.seed(keys[other].public, statement.digest) for other in neighbours)]
        masked = words + mask(seeds[0], words.size, bits)
        for other, seed in zip(neighbours, seeds[1:], strict=True):
            shared = mask(seed, words.size, bits)
            masked = masked + shared if own < other else masked - shared
        holders = statement.holders(own)
        points = [holder + 1 for holder in holders]
        dealt = [split(seed_number(seed), statement.threshold, points) for seed in seeds]
        shares = {holder: shares_bytes([each[place] for each in dealt]) for place, holder in enumerate(holders)}
        boxes = b"".join(key.seal(keys[other].public, statement.digest, shares[other]) for other in neighbours)
        memory.update({"statement": statement.text, "bits": bits, "count": words.size, "shares": shares[own]})
        memory["words"] = words_as_bytes(words, bits)
        memory["keys"] = json.dumps({other: keys[other].public.hex() for other in neighbours})
        return Masked(words_as_bytes(masked, bits), boxes, b"".join(map(promise, seeds)))

    def answer(self, server_round: int, attempt: int, question: Question) -> bytes:
        """The client's shares for a sum, in the order of `Statement.wanted`.

        Raises RefusedError for a second question in a round, one about another attempt, lists that overlap or are not
        the cohort, or with which single clients could be unmasked, and for a box that cannot be opened.
        """
        statement, own = self.statement(), self._identity.client
        if statement is None or [server_round, attempt] != [statement.server_round, statement.attempt]:
            raise RefusedError(f"The server asks about round {server_round}, attempt {attempt}, not the last one.")
        if self._memory.get("asked") == server_round:
            raise RefusedError(f"The server asks a second question in round {server_round}, which could unmask us.")
        answered, gone = set(question.answered), set(question.gone)
        if answered & gone or sorted([*question.answered, *question.gone]) != list(statement.cohort):
            raise RefusedError("The server's lists of who has answered and is gone overlap, or are not the cohort.")
        if own not in answered or len(answered) < self._least:
            raise RefusedError(
                f"The server asks about a sum over {len(answered)} clients: too few, or not client {own}."
            )
        if not sound(statement, answered):
            raise RefusedError("The server asks about a sum in which single clients could be unmasked.")
        keys = {int(other): bytes.fromhex(key) for other, key in json.loads(str(self._memory["keys"])).items()}
        told: list[int] = []
        for owner, seeds in statement.wanted(own, answered).items():
            content = _bytes(self._memory["shares"])
            if owner != own:
                try:
                    content = self._key().open(keys[owner], statement.digest, question.boxes.get(owner, b""))
                except ValueError as error:
                    raise ClosedBoxError(owner, own) from error
            shares, others = read_shares(content), statement.neighbours[owner]
            if len(shares) != len(others) + 1:
                raise ClosedBoxError(owner, own)
            told += [shares[0 if of is None else 1 + others.index(of)] for of in seeds]
        self._memory["asked"] = server_round
        return shares_bytes(told)

    def statement(self) -> Statement | None:
        """The statement of the last attempt; None before the first."""
        return Statement.of_text(str(self._memory["statement"])) if "statement" in self._memory else None

    def _key(self) -> RunKey:
        if "key" not in self._memory:
            raise RefusedError(f"Client {self._identity.client} has no key of this run: it has restarted.")
        return RunKey(_bytes(self._memory["key"]))

    def _last(self) -> list[int]:
        last = self.statement()
        return [-1, -1] if last is None else [last.server_round, last.attempt]


def _arrays(masked: Masked) -> list[NDArray[np.uint8]]:
    return [np.frombuffer(part, np.uint8) for part in masked]


def sound(statement: Statement, answered: set[int]) -> bool:
    """True if each of the `answered` has enough others among them, and all are connected by shared masks."""
    if any(len(answered.intersection(statement.holders(owner))) < statement.threshold for owner in answered):
        return False
    reached, ahead = set[int](), [min(answered)]
    while ahead:
        client = ahead.pop()
        if client not in reached:
            reached.add(client)
            ahead += answered.intersection(statement.neighbours[client])
    return reached == answered


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("the client's memory of its masks is damaged")
    return value
