"""Keystream: the mask of a seed, over a ring of words (see `fedsel_app.wire.ring`)."""

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from fedsel_app.wire.ring import Words, words_of_bytes


def mask(seed: bytes, size: int, bits: int) -> Words:
    """The mask of a seed, (size,): the keystream of AES-128-CTR from counter 0."""
    stream = Cipher(AES(seed), CTR(bytes(16))).encryptor()
    return words_of_bytes(stream.update(bytes(size * (bits // 8))), bits)
