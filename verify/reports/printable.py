"""Text from anywhere (names in a graph, messages of other libraries), made safe to print in any format."""

from __future__ import annotations

import math
import re
from typing import Any

# What XML 1.0 and HTML cannot hold, C1 controls, lone surrogates, and the characters that turn the direction of text:
# those would let a name of a tensor rearrange the line that it is quoted in.
_UNPRINTABLE = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Returns the text with characters that cannot be shown written as `\x00` or `\u202e`. Line breaks stay."""
    return _UNPRINTABLE.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def single_line(text: str) -> str:
    """Returns the printable text with every run of white space as one space."""
    return " ".join(printable(text).split())


def number(value: Any, digits: int = 4) -> str:
    """Returns a count in full ("1,024"), another number with `digits` significant digits, anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return single_line(str(value))
    if isinstance(value, int):
        return f"{value:,}"
    if math.isfinite(value):
        return f"{value:.{digits}g}"
    return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"


def typeset(formula: str) -> str:
    """Returns an ASCII formula with the signs of mathematics."""
    return formula.replace("<=", "≤").replace(">=", "≥").replace(" * ", " · ")
