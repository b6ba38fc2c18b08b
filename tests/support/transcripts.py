"""Transcripts: compares what a page shows with what a command prints, here or on another processor."""

import re

NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
SHARE = 0.01
"""Relative difference from a page's number that is allowed on another processor; see docs/python.md."""


def alike(shown: str, printed: str) -> bool:
    """True if a line of a page is a line of the output: the same words, and numbers within `SHARE`.

    Numbers with a decimal point may also differ by 1 in their last digit. Measured seconds may have any value. "..."
    stands for any end of a line.
    """
    whole, cut = shown.removesuffix("...").rstrip(), shown.endswith("...")
    pattern, words = NUMBER.sub("#", whole), NUMBER.sub("#", printed)
    if not (words.startswith(pattern) if cut else words == pattern):
        return False
    measured = re.findall(rf"({NUMBER.pattern})(?= measured s)", whole)
    for mine, other in zip(NUMBER.findall(whole), NUMBER.findall(printed), strict=False):
        number, digits = float(mine.replace(",", "")), len(mine.partition(".")[2])
        allowed = max(SHARE * number, 1.001 * 10.0**-digits if digits else 0.0)
        if mine not in measured and abs(number - float(other.replace(",", ""))) > allowed:
            return False
    return True
