"""Keys of the clients of a run, the seeds and boxes that two of them share, the masks of seeds, and signatures.

A client makes an X25519 key for the run and signs it with its provisioned key (ECDSA, P-384), which the admin of the
federation has signed in a list of all identities (Ed25519).
"""

import base64
import json
from collections.abc import Iterable, Mapping

from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedsel_app.secure_sums.statement import SEED_BYTES
from fedsel_app.wire.ring import Words, bytes_of_words, words_of_bytes

NO_KEY = (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature)
NONCE = bytes(12)
"""Nonce of every box: each has a key of its own."""


class RunKey:
    """A client's key of one run.

    Parameters
    ----------
    private : its 32 bytes, if it was made before

    Attributes
    ----------
    private : the secret half, which never leaves the client
    public : bytes that the other clients get
    """

    def __init__(self, private: bytes = b"") -> None:
        self._key = X25519PrivateKey.from_private_bytes(private) if private else X25519PrivateKey.generate()
        self.private = self._key.private_bytes_raw()
        self.public = self._key.public_key().public_bytes_raw()

    def seed(self, other: bytes, context: bytes) -> bytes:
        """Seed of the mask that this client and the one with the key `other` share in this context."""
        return self._derived(other, b"fedsel mask " + context, SEED_BYTES)

    def seal(self, other: bytes, context: bytes, content: bytes) -> bytes:
        """Box that only the client with the key `other` can open, and only in this context; 16 bytes longer."""
        return self._cipher(other, self.public, other, context).encrypt(NONCE, content, context)

    def open(self, other: bytes, context: bytes, box: bytes) -> bytes:
        """Content of a box from the client with the key `other`. Raises ValueError if it cannot be opened."""
        try:
            return self._cipher(other, other, self.public, context).decrypt(NONCE, box, context)
        except InvalidTag as error:
            raise ValueError("the box cannot be opened") from error

    def _cipher(self, other: bytes, sender: bytes, receiver: bytes, context: bytes) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(self._derived(other, b"fedsel box " + sender + receiver + context, 32))

    def _derived(self, other: bytes, purpose: bytes, size: int) -> bytes:
        shared = self._key.exchange(X25519PublicKey.from_public_bytes(other))
        return HKDF(SHA256(), size, salt=None, info=purpose).derive(shared)


def sign_run_key(provisioned: bytes, run: bytes, client: int, public: bytes) -> bytes:
    """Signature of a client's key of a run with its `provisioned` private key, in OpenSSH's format.

    Raises one of `NO_KEY` if that is no key on an elliptic curve.
    """
    key = load_ssh_private_key(provisioned, None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError("another kind of key")
    return key.sign(_told(run, client, public), ECDSA(SHA384()))


def check_run_key(identity: str, run: bytes, client: int, public: bytes, signature: bytes) -> None:
    """Raise one of `NO_KEY` unless the client with this provisioned public key has signed a sound key of the run."""
    RunKey().seed(public, run)  # some points give all others the same seed
    key = load_ssh_public_key(identity.encode())
    if not isinstance(key, EllipticCurvePublicKey):
        raise ValueError("another kind of key")
    key.verify(signature, _told(run, client, public), ECDSA(SHA384()))


def _told(run: bytes, client: int, public: bytes) -> bytes:
    return b"fedsel run key\0%b\0%d\0%b" % (run, client, public)


def sign_identities(identities: Mapping[int, str], key: Ed25519PrivateKey) -> str:
    """List of all clients' provisioned public keys, by client, signed by the admin."""
    listed = {str(client): identity for client, identity in sorted(identities.items())}
    signature = key.sign(_listed(listed))
    return json.dumps({"identities": listed, "signature": base64.b64encode(signature).decode()}, indent=1)


def read_identities(text: str, signers: Iterable[str]) -> dict[int, str]:
    """The list that `sign_identities` wrote, if one of the `signers` has signed it. Raises one of `NO_KEY` if not."""
    content = json.loads(text)
    listed, signature = content["identities"], base64.b64decode(content["signature"])
    for signer in signers:
        key = load_ssh_public_key(signer.encode())
        if not isinstance(key, Ed25519PublicKey):
            continue
        try:
            key.verify(signature, _listed(listed))
        except InvalidSignature:
            continue
        return {int(client): str(identity) for client, identity in listed.items()}
    raise ValueError("none of the trusted signers has signed it")


def _listed(identities: Mapping[str, str]) -> bytes:
    return b"fedsel identities\0" + json.dumps(identities, sort_keys=True).encode()


def mask(seed: bytes, size: int, bits: int) -> Words:
    """The mask of a seed, (size,): the keystream of AES-128-CTR from counter 0."""
    stream = Cipher(AES(seed), CTR(bytes(16))).encryptor()
    return words_of_bytes(stream.update(bytes(bytes_of_words(size, bits))), bits, size)
