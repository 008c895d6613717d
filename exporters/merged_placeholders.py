"""What stands in a merged decoder of Optimum's for the cache of cross-attention: empty constants, in further steps.

Those who run such a file keep the cache of the first step. There is nothing that these outputs could be compared with.
"""

from __future__ import annotations

from pathlib import Path

from onnxport.exporters.choice import Choice
from onnxport.verify.model_file import read_model


def placeholders(path: Path, choice: Choice) -> list[str]:
    """Returns the outputs that a step with a cache should pass on and that are constants in the file.

    Raises:
        ModelFileError: the file is no ONNX model.
    """
    found = []
    for node in read_model(path).proto.graph.node:
        if node.op_type != "If" or choice.condition not in node.input:
            continue
        (branch,) = (attribute.g for attribute in node.attribute if attribute.name == "then_branch")
        constants = {name for inner in branch.node if inner.op_type == "Constant" for name in inner.output}
        constants |= {tensor.name for tensor in branch.initializer}
        made = zip(node.output, branch.output, strict=True)
        found += [name for name, inner in made if inner.name in constants and name in choice.passed]
    return found
