"""The end of a message about a name that does not exist: the nearest that does, and all of them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the name in `known` that `name` was probably meant to be, or None."""
    by_lower_case = {one.lower(): one for one in known}
    matches = get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.6)
    return by_lower_case[matches[0]] if matches else None


def expected_one_of(name: str, known: Iterable[str]) -> str:
    """Returns "expected base, optimized or fp16; did you mean 'fp16'?" for a `name` that is not in `known`."""
    names = list(known)
    if not names:
        return "nothing of that kind is known here"
    listed = names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" or {names[-1]}"
    guess = nearest(name, names)
    return f"expected {listed}" + (f"; did you mean {guess!r}?" if guess else "")
