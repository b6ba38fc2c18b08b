"""Public keys in OpenSSH's format, of any content."""

import base64
import struct


def public_key_line(point: bytes) -> bytes:
    """The line of a client's public key with this point, which may be none of the curve P-384."""
    parts = (b"ecdsa-sha2-nistp384", b"nistp384", point)
    content = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return b"ecdsa-sha2-nistp384 " + base64.b64encode(content) + b"\n"
