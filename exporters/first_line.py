"""What to tell of an error that another library raised: its messages may be pages long, or empty."""

from __future__ import annotations

_LONGEST = 400


def first_line(error: object) -> str:
    """Returns the first line of a message that says anything, of at most 400 characters; "no message" where none does.

    Args:
        error: an exception, or its text.
    """
    return next((line.strip()[:_LONGEST] for line in str(error).splitlines() if line.strip()), "no message")
