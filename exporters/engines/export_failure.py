"""What went wrong in torch.export, in one line: its exceptions are pages long and chain several errors."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import onnx_ir
import onnxscript
import torch
from torch import nn

from onnxport.exporters.first_line import first_line

_LIBRARIES = tuple(str(Path(str(library.__file__)).parent) for library in (torch, onnxscript, onnx_ir))
_DATA = re.compile("data-dependent|DataDependent|is not tracked with proxy|meta tensors cannot|unbacked", re.IGNORECASE)
_FIXED = re.compile(r"inferred a static shape of (\d+) for dimension \w+.*?\['?(?:in_)?(\w+)'?\]\.shape\[(\d+)\]")
"""The input is a number, or `transformers_exporters`' neutral name with that number."""
_UNKNOWN_OPERATOR = re.compile(r"No ONNX function found for .*?op='([\w.:]+)', overload='(\w+)'")
_PLACE = re.compile(r'File "?(?P<file>[^"\s:]+)"?(?:, line |:)(?P<line>\d+),? in (?P<function>\w+)')
_TRANSLATING = re.compile(r"translating node .*?target=(?:torch\.ops\.)?([\w.]+)")
_COLOUR = re.compile(r"\x1b\[\d+m")


def describe_failure(error: BaseException, module: nn.Module, inputs: tuple[str, ...]) -> str:
    """Returns the first line of the error that started it, the module and source line it comes from, and what to do.

    Args:
        error: what an exporter raised.
        module: the exported module, whose parts are named.
        inputs: names of the graph's inputs, in order.
    """
    causes = list(_causes(error))
    cause = causes[-1]
    text = _COLOUR.sub("", str(cause))
    if fixed := _FIXED.search(text):
        size, which, position = fixed.groups()
        name = inputs[int(which)] if which.isdecimal() and int(which) < len(inputs) else which
        return (
            f"dimension {position} of {name} is dynamic, but forward holds for its size of {size} only; write forward "
            "without the number, or fix the axis with --static"
        )
    for other in causes:
        if unknown := _UNKNOWN_OPERATOR.search(str(other)):
            operator = ".".join(unknown.groups()).replace("::", ".")
            return f"operator {operator} has no translation to ONNX{_told_place(causes)}"
    operator = next((found[1] for c in causes if (found := _TRANSLATING.search(str(c)))), "")
    named = f"operator {operator}: " if operator else ""
    place = _raised_at(cause, module) or _told_place(causes)
    told = f"{named}{type(cause).__name__}: {first_line(text)}{place}"
    if _DATA.search(f"{type(cause).__name__} {text}"):
        return (
            f"the module decides by what its inputs hold, which a graph cannot: {told}. Write it with tensor "
            "operations (torch.where, masks), or move it out of forward"
        )
    return told


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, the first of all last."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)


def _raised_at(error: BaseException, module: nn.Module) -> str:
    """The innermost line of the traceback outside torch, and the module in whose forward it is."""
    names = {
        id(part): f"{name or 'the module itself'} ({type(part).__name__})" for name, part in module.named_modules()
    }
    where = within = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        part = frame.f_locals.get("self")
        if id(part) in names and frame.f_code.co_name != "__call__":
            within = f", in {names[id(part)]}"
        file = frame.f_code.co_filename
        if within and not file.startswith((*_LIBRARIES, "<")):
            where = f", {Path(file).name} line {line}"
    return within + where


def _told_place(causes: list[BaseException]) -> str:
    """The innermost source line outside torch that an error's own text names: translation has no traceback of it."""
    for cause in reversed(causes):
        places = [
            place
            for place in _PLACE.finditer(str(cause))
            if place["function"] != "<lambda>" and not place["file"].startswith(_LIBRARIES)
        ]
        if places:
            return f", {Path(places[-1]['file']).name} line {places[-1]['line']}, in {places[-1]['function']}"
    return ""
