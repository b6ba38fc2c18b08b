"""Clients with signed keys of a run, without messages between them and a server."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from numpy.typing import NDArray

from clients.masking import Identity, Masks
from fedsel_app.secure_sums.statement import Masked, SignedKey, Statement

RUN = b"run 7"


@cache
def provisioned(client: int) -> tuple[bytes, str]:
    """Private and public key of a client, in OpenSSH's format."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), public.decode()


def identity(client: int, clients: int) -> Identity:
    """Identity of one of `clients` clients."""
    return Identity(client, provisioned(client)[0], {each: provisioned(each)[1] for each in range(clients)})


class Cohort:
    """Clients 0, 1, ... of a run, which have enrolled, and whole numbers of each, int64 (size,)."""

    def __init__(self, clients: int, bits: int = 16, size: int = 40, least: int = 3) -> None:
        self.bits, self.size = bits, size
        self.masks = {each: Masks(identity(each, clients), RUN, least, {}) for each in range(clients)}
        self.keys: dict[int, SignedKey] = {each: masks.enrol() for each, masks in self.masks.items()}
        most = ((1 << (bits - 1)) - 1) // clients
        rng = np.random.default_rng(3)
        self.numbers: dict[int, NDArray[np.int64]] = {each: rng.integers(-most, most + 1, size) for each in self.masks}

    def statement(self, cohort: Sequence[int] = (), server_round: int = 1, attempt: int = 0) -> Statement:
        """What an honest server states for a cohort; by default for all."""
        return Statement(RUN, server_round, 0, b"model", (), 0, 0, "grid").among(cohort or self.masks, attempt)

    def mask(self, client: int, statement: Statement, *, again: bool = False) -> Masked:
        """What a client sends; `again`: in a later attempt of a round."""
        return self.masks[client].mask(statement, self.keys, None if again else self.numbers[client], self.bits)

    def total(self, clients: Sequence[int]) -> list[int]:
        """Sum of the numbers of these clients."""
        return np.sum([self.numbers[each] for each in clients], axis=0).tolist()
