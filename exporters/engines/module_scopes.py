"""What torch.export's nodes say of the modules they come from: kept in the graph for `onnxport localize`.

torch writes on each node which modules it was called in, its Python stack and more. The stack holds paths of the
exporting machine and the rest nothing that the graph does not show, so the modules alone stay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import onnx
import onnx.version_converter

if TYPE_CHECKING:
    import onnx_ir

_KEY = "pkg.torch.onnx.name_scopes"
_ROOT = ""
"""What torch calls the module that it was given, in which all others are."""


def module_scopes(node: onnx.NodeProto) -> tuple[str, ...]:
    """Returns the full names of the modules around a node, the outermost first, and the name of its own operation.

    Several nodes may be of one operation. Empty: the node does not say.
    """
    for entry in node.metadata_props:
        if entry.key == _KEY:
            return _parsed(entry.value)
    return ()


def keep_module_scopes(program: onnx_ir.Model) -> None:
    """Drops what nodes, graphs and functions say about themselves, but for the modules of each node."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass  # the other engines do without onnx_ir

    scopes = {node: node.metadata_props.get(_KEY, "") for node in program.graph.all_nodes()}
    ClearMetadataAndDocStringPass()(program)
    for node, written in scopes.items():
        if _parsed(written):
            node.metadata_props[_KEY] = written


def drop_other_metadata(node: onnx.NodeProto) -> None:
    """Drops what a node says about itself, but for its modules."""
    kept = [entry for entry in node.metadata_props if entry.key == _KEY]
    del node.metadata_props[:]
    node.metadata_props.extend(kept)


@contextmanager
def metadata_survives_conversion() -> Iterator[None]:
    """Makes onnx's converter between opsets, which torch calls for those below 18, hand on the metadata of nodes.

    It drops them; values keep their names, by which they are given back.
    """
    convert = onnx.version_converter.convert_version

    def convert_and_keep(model: onnx.ModelProto, target_version: int) -> onnx.ModelProto:
        said = {value: node.metadata_props for node in model.graph.node for value in node.output if value}
        converted = convert(model, target_version)
        for node in converted.graph.node:
            if not node.metadata_props:
                node.metadata_props.extend(next((said[value] for value in node.output if value in said), ()))
        return converted

    onnx.version_converter.convert_version = convert_and_keep
    try:
        yield
    finally:
        onnx.version_converter.convert_version = convert


def _parsed(written: str) -> tuple[str, ...]:
    """torch writes the `repr` of a list; what is none, or of a node outside of all modules, tells nothing."""
    try:
        names = ast.literal_eval(written)
    except (ValueError, SyntaxError):
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or names[:1] != [_ROOT]:
        return ()
    return tuple(names[1:])
