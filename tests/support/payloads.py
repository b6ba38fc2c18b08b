"""Payloads of the wire format: valid ones, and forged ones with a correct check sum."""

import struct
import zlib

import pytest

from fedsel_app.wire.codec import WireError, decode, encode

DENSE, RICE, SEEDED = range(3)
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


def every_change_is_noticed(payload, size):
    """Each flipped bit, each cut and each extension: with the old CRC, and with a new one, with which lengths tell."""
    changed = [int.from_bytes(payload, "little") ^ (1 << place) for place in range(8 * len(payload))]
    longer, whole = payload + bytes(range(20)), len(payload)
    lengths = [length for length in range(len(longer) + 1) if length != whole]
    refused = [number.to_bytes(whole, "little") for number in changed] + [longer[:length] for length in lengths]
    refused += [sealed(longer[:length]) for length in range(len(longer) + 1) if length != whole - 4]
    for forgery in refused:
        with pytest.raises(WireError):
            decode(forgery, size=size)
