"""A small real graph: token ids and a mask in, hidden states and their masked sum out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.verify import AxisRange, Case, GraphContract, OrtRunner, Recorded, Subject, TensorSpec, Tolerance

OPSETS = {"": 17}
BuildGraph = Callable[..., onnx.ModelProto]


def _weights() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    table = rng.normal(0, 0.3, (16, 4)).astype(np.float32)
    return table, rng.normal(0, 0.3, (4, 4)).astype(np.float32)


@pytest.fixture
def build() -> BuildGraph:
    """Builds the graph; every argument makes it differ from what the contract promises, or from the reference.

    `hidden` and `pooled` are nodes that make these outputs from `states` [batch, sequence, 4] and `weight_mask`
    [batch, sequence, 1].
    """

    def build(
        *,
        scale: float = 1.0,
        perturb: float = 0.0,
        hidden: Sequence[onnx.NodeProto] = (),
        axes: Sequence[str | int] = ("batch", "sequence"),
        inputs: Sequence[str] = ("input_ids", "attention_mask"),
        outputs: Sequence[str] = ("hidden", "pooled"),
        opsets: dict[str, int] = OPSETS,
        ir_version: int = 8,
        initializers: Sequence[onnx.TensorProto] = (),
    ) -> onnx.ModelProto:
        table, weight = _weights()
        weight = weight * np.float32(scale)
        weight[0, 0] += perturb
        nodes = [
            helper.make_node("Gather", ["table", "input_ids"], ["embedded"]),
            helper.make_node("MatMul", ["embedded", "weight"], ["states"]),
            helper.make_node("Cast", ["attention_mask"], ["float_mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["float_mask", "last"], ["weight_mask"]),
            *(hidden or [helper.make_node("Identity", ["states"], ["hidden"])]),
            helper.make_node("Mul", ["states", "weight_mask"], ["kept"]),
            helper.make_node("ReduceSum", ["kept", "first"], ["pooled"], keepdims=0),
        ]
        values = {
            "hidden": helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [*axes, 4]),
            "pooled": helper.make_tensor_value_info("pooled", TensorProto.FLOAT, [axes[0], 4]),
            "float_mask": helper.make_tensor_value_info("float_mask", TensorProto.FLOAT, [*axes]),
        }
        graph = helper.make_graph(
            nodes,
            "tiny",
            [helper.make_tensor_value_info(name, TensorProto.INT64, [*axes]) for name in inputs],
            [values[name] for name in outputs],
            [
                numpy_helper.from_array(table, "table"),
                numpy_helper.from_array(weight, "weight"),
                numpy_helper.from_array(np.array([-1]), "last"),
                numpy_helper.from_array(np.array([1]), "first"),
                *initializers,
            ],
        )
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)

    return build


@pytest.fixture
def contract() -> GraphContract:
    tokens = ("batch", "sequence")
    return GraphContract(
        inputs=(
            TensorSpec(name="input_ids", dtype="int64", shape=tokens),
            TensorSpec(name="attention_mask", dtype="int64", shape=tokens),
        ),
        outputs=(
            TensorSpec(name="hidden", dtype="float32", shape=(*tokens, 4)),
            TensorSpec(name="pooled", dtype="float32", shape=("batch", 4)),
        ),
        axes={"batch": AxisRange(), "sequence": AxisRange()},
        opsets=OPSETS,
    )


@pytest.fixture
def cases() -> list[Case]:
    rng = np.random.default_rng(3)

    def case(name: str, mask: list[list[int]]) -> Case:
        array = np.array(mask, dtype=np.int64)
        return Case(name, {"input_ids": rng.integers(0, 16, array.shape), "attention_mask": array}, "attention_mask")

    return [case("plain", [[1, 1, 1], [1, 1, 1]]), case("padded", [[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])]


@pytest.fixture
def save(tmp_path: Path) -> Callable[[onnx.ModelProto, str], Path]:
    def save(model: onnx.ModelProto, name: str = "model.onnx") -> Path:
        path = tmp_path / name
        onnx.save(model, path)
        return path

    return save


@pytest.fixture
def reference(build: BuildGraph, cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """What the unchanged graph gives for every case."""
    path = tmp_path_factory.mktemp("reference") / "reference.onnx"
    onnx.save(build(), path)
    with OrtRunner(path, threads=1) as runner:
        return Recorded("reference", {case.name: runner.run(case) for case in cases})


@pytest.fixture
def subject_of(contract: GraphContract) -> Callable[..., Subject]:
    def subject_of(path: Path, **changes: object) -> Subject:
        fields: dict[str, object] = {
            "component": "model",
            "variant": "base",
            "path": path,
            "contract": contract,
            "criterion": Tolerance(rtol=1e-3, atol=1e-4),
            "session_options": {"intra_op_num_threads": "1"},
        }
        return Subject(**{**fields, **changes})

    return subject_of
