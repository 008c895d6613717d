"""Flags that carry a small syntax of their own: INPUT=axis,axis, AXIS=N, OP[=N]; and numbers, in words of our own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import typer

Value = TypeVar("Value")

_DIGITS = 18
"""No size is longer, and any number of that many fits into 64 bits."""


def number(text: str) -> float:
    """Reads a number. Raises typer.BadParameter: it is none."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"seen {text!r}; expected a number like 0.001") from None


def whole_number(text: str) -> int:
    """Reads a whole number. Raises typer.BadParameter: it is none."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"seen {text!r}; expected a whole number") from None


def count(text: str) -> int:
    """Reads a whole number from 1. Raises typer.BadParameter: it is none, or below 1."""
    found = whole_number(text)
    if found < 1:
        raise typer.BadParameter(f"seen {found}; expected a whole number from 1")
    return found


def parse_axes(flags: Sequence[str]) -> dict[str, list[int | str]]:
    """Reads `input_ids=batch,128`: the input's dimensions, each an axis name or a fixed size.

    Raises:
        typer.BadParameter: not of that form, a size below 1, or an input given twice.
    """

    def dimensions(text: str, flag: str) -> list[int | str]:
        return [_dimension(part.strip(), flag) for part in text.split(",")]

    return _pairs("--axes", "INPUT=axis,axis", flags, dimensions)


def parse_static(flags: Sequence[str]) -> dict[str, int]:
    """Reads `sequence=128`: an axis that gets a fixed size.

    Raises:
        typer.BadParameter: not of that form, a size below 1, or an axis given twice.
    """
    return _pairs("--static", "AXIS=N", flags, lambda text, flag: _at_least_one(text, flag, "--static", "AXIS=N"))


def parse_required_fusions(flags: Sequence[str]) -> dict[str, int]:
    """Reads `Attention=12` or `Attention`: the least number of fused nodes; without a number at least one.

    Raises:
        typer.BadParameter: not of that form, a count below 1, or an operator given twice.
    """
    form = "OP[=N]"
    complete = [flag if "=" in flag else f"{flag}=1" for flag in flags]
    return _pairs("--require-fusion", form, complete, lambda t, flag: _at_least_one(t, flag, "--require-fusion", form))


def _pairs(option: str, form: str, flags: Sequence[str], read: Callable[[str, str], Value]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for flag in flags:
        name, equals, text = (part.strip() for part in flag.partition("="))
        if not (name and equals and text):
            raise _refused(option, f"seen {flag!r}; expected {form}")
        if name in found:
            raise _refused(option, f"{name!r} is given twice; give it once")
        found[name] = read(text, flag)
    return found


def _dimension(part: str, flag: str) -> int | str:
    if part.lstrip("+-").isdecimal():
        return _at_least_one(part, flag, "--axes", "INPUT=axis,axis")
    if not part.isidentifier():
        raise _refused("--axes", f"seen {part!r} in {flag!r}; expected an axis name like 'sequence', or a size from 1")
    return part


def _at_least_one(text: str, flag: str, option: str, form: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
        raise _refused(option, f"seen {flag!r}; expected {form} with a whole number from 1")
    return int(text)


def _refused(option: str, message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint=option)
