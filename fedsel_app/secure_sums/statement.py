"""Statement of a masked round: what all clients of its cohort must have been told alike, and what they send.

The seeds of all masks follow from it. So a client that was told something else adds noise to the sum, and no number.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from fedsel_app.secure_sums.shares import SHARE_BYTES, neighbours_of, parameters
from fedsel_app.wire.ring import bytes_of_words

SEED_BYTES = 16
"""Bytes of a seed: a key of AES-128, which makes one mask."""
IDENTITIES = "identities.json"
"""File with the provisioned public keys of all clients, signed by the admin."""
TAG_BYTES = 16
"""Bytes by which a sealed box is longer than its content, and bytes of the promise of a seed."""


class RefusedError(ValueError):
    """A client refuses to mask, or to help to unmask: the server could learn more than the sum over a cohort."""


class ClosedBoxError(RefusedError):
    """A box that cannot be opened, or lacks shares. Nothing is told then.

    Attributes
    ----------
    owner : the client that sent it
    """

    def __init__(self, owner: int, client: int) -> None:
        super().__init__(f"The box of client {owner} for client {client} cannot be opened. Nothing is told.")
        self.owner = owner


class SignedKey(NamedTuple):
    """A client's public key of a run, and its signature with the client's provisioned key."""

    public: bytes
    signature: bytes


@dataclass(frozen=True)
class Statement:
    """Statement of one attempt of a round.

    Attributes
    ----------
    run : id of the run, as each client knows it from its own connection
    server_round, attempt : round 1..T; attempt 0, or a later one that repeats it with the same numbers
    model : hash of the model from which the clients train
    cohort : clients, ascending
    degree, threshold : number of neighbours of each client, and of shares that give a seed
    sum : what is summed: ring, grid and entries
    """

    run: bytes
    server_round: int
    attempt: int
    model: bytes
    cohort: tuple[int, ...]
    degree: int
    threshold: int
    sum: str

    def among(self, cohort: Iterable[int], attempt: int = 0) -> "Statement":
        """The statement with this cohort, and the neighbours and the threshold that it needs."""
        clients = tuple(sorted(cohort))
        degree, threshold = parameters(len(clients))
        return replace(self, attempt=attempt, cohort=clients, degree=degree, threshold=threshold)

    @cached_property
    def text(self) -> str:
        """All of this as text."""
        entries = [self.run.hex(), self.server_round, self.attempt, self.model.hex(), self.cohort]
        return json.dumps([*entries, self.degree, self.threshold, self.sum])

    @classmethod
    def of_text(cls, text: str) -> "Statement":
        """The statement with this `text`."""
        run, server_round, attempt, model, cohort, *others = json.loads(text)
        return cls(bytes.fromhex(run), server_round, attempt, bytes.fromhex(model), tuple(cohort), *others)

    @cached_property
    def digest(self) -> bytes:
        """Hash of the `text`."""
        return hashlib.sha256(self.text.encode()).digest()

    @cached_property
    def neighbours(self) -> dict[int, list[int]]:
        """Neighbours of each client of the cohort, ascending."""
        return neighbours_of(self.cohort, self.degree, self.digest)

    def holders(self, client: int) -> list[int]:
        """Clients with a share of a client's seeds: itself and its neighbours, ascending."""
        return sorted([client, *self.neighbours[client]])

    def wanted(self, client: int, answered: Collection[int]) -> dict[int, list[int | None]]:
        """Owner -> the seeds of which `client` tells its share, if the `answered` are in the sum.

        A seed is None, the owner's own, or the neighbour with whom the owner shares it, who is gone. All owners are in
        the sum.
        """
        owners = [owner for owner in self.holders(client) if owner in answered]
        return {owner: [None, *(each for each in self.neighbours[owner] if each not in answered)] for owner in owners}


def run_name(run_id: int) -> bytes:
    """Id of a run from Flower's number of it, which may be negative on one side."""
    return str(run_id % (1 << 64)).encode()


def stated(statement: Statement, keys: Mapping[int, SignedKey], client: int) -> str:
    """What one client is told of a statement, with the keys of its neighbours; the rest it knows from elsewhere."""
    signed = {str(each): [part.hex() for part in keys[each]] for each in statement.neighbours[client]}
    return json.dumps([statement.attempt, statement.cohort, statement.degree, statement.threshold, signed])


def told_degree(text: str) -> int:
    """Number of neighbours of each client in what was `stated`."""
    return int(json.loads(text)[2])


def masked_sizes(degree: int, size: int, bits: int) -> tuple[int, int, int]:
    """Bytes of the parts of `Masked`, of a client with this number of neighbours and `size` numbers of `bits`."""
    return bytes_of_words(size, bits), bundle_bytes(degree), (degree + 1) * TAG_BYTES


def read_told(text: str, base: Statement) -> tuple[Statement, dict[int, SignedKey]]:
    """The statement that was `stated`, with the rest of `base`, and the keys. Raises RefusedError if malformed."""
    try:
        attempt, cohort, degree, threshold, signed = json.loads(text)
        keys = {int(each): SignedKey(*map(bytes.fromhex, parts)) for each, parts in signed.items()}
        stated = replace(base, attempt=int(attempt), degree=int(degree), threshold=int(threshold))
        return replace(stated, cohort=tuple(map(int, cohort))), keys
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise RefusedError(f"The server's statement of the masks cannot be read: {error}.") from error


def model_hash(arrays: Sequence[bytes]) -> bytes:
    """Hash of a model's arrays."""
    return hashlib.sha256(b"".join(hashlib.sha256(array).digest() for array in arrays)).digest()


def promise(seed: bytes) -> bytes:
    """Promise of a seed, by which the server recognises it: a hash."""
    return hashlib.sha256(b"fedsel promise" + seed).digest()[:TAG_BYTES]


def box_bytes(neighbours: int) -> int:
    """Bytes of a box: shares of the client's own seed and of those with its neighbours, and the tag."""
    return SHARE_BYTES * (neighbours + 1) + TAG_BYTES


def bundle_bytes(neighbours: int) -> int:
    """Bytes of the boxes that a client sends, one for each neighbour."""
    return neighbours * box_bytes(neighbours)


class Masked(NamedTuple):
    """What a client sends of its numbers.

    Attributes
    ----------
    words : the masked numbers, words of the ring
    boxes : a sealed box for each neighbour, ascending
    promises : those of its own seed, and of the seed with each neighbour, ascending
    """

    words: bytes
    boxes: bytes
    promises: bytes

    def box(self, statement: Statement, owner: int, client: int) -> bytes:
        """The box of `owner`, who sent this, for its neighbour `client`."""
        place, size = statement.neighbours[owner].index(client), box_bytes(len(statement.neighbours[owner]))
        return self.boxes[place * size : (place + 1) * size]

    def promised(self, statement: Statement, owner: int, of: int | None) -> bytes:
        """The promise of a seed of `owner`, as in `Statement.wanted`."""
        place = 0 if of is None else 1 + statement.neighbours[owner].index(of)
        return self.promises[place * TAG_BYTES : (place + 1) * TAG_BYTES]


class Question(NamedTuple):
    """Question for the shares that unmask a sum: who is in it, who is gone, and the boxes for this client by owner."""

    answered: tuple[int, ...]
    gone: tuple[int, ...]
    boxes: Mapping[int, bytes]


def shares_bytes(shares: Sequence[int]) -> bytes:
    """Shares as bytes."""
    return b"".join(share.to_bytes(SHARE_BYTES, "little") for share in shares)


def read_shares(content: bytes) -> list[int]:
    """The shares that `shares_bytes` wrote. Raises ValueError if their bytes are no whole number of shares."""
    if len(content) % SHARE_BYTES:
        raise ValueError("no whole number of shares")
    starts = range(0, len(content), SHARE_BYTES)
    return [int.from_bytes(content[start : start + SHARE_BYTES], "little") for start in starts]


def seed_number(seed: bytes) -> int:
    """A seed as the secret of shares."""
    return int.from_bytes(seed, "little")


def seed_of(number: int) -> bytes:
    """The seed of a secret. Raises ValueError if the number is none."""
    try:
        return number.to_bytes(SEED_BYTES, "little")
    except OverflowError as error:
        raise ValueError("the secret is no seed") from error
