"""Payloads of the wire format: valid ones, and forged ones with a correct check sum."""

import struct
import zlib

from fedsel_app.wire.codec import encode

DENSE, BITMAP, RICE, SEEDED = range(4)
"""Codings of the indices."""


def payload_of(update, **seeded):
    """Payload of client 3 in round 9."""
    return encode(update, client=3, server_round=9, **seeded)


def sealed(body):
    """The body and a correct CRC-32 after it, as a forger would make it."""
    return body + struct.pack("<I", zlib.crc32(body))


def forged_payload(section, *, value_coding, coding, size, count, parameter=0, start=b"FSEL\x01"):
    """A payload of client 3 in round 9 with a correct CRC-32 around any header and section."""
    return sealed(start + struct.pack("<BBBIIII", value_coding, coding, parameter, size, count, 3, 9) + section)
