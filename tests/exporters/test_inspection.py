"""Inspection of a bundle and of bare files, built here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.exporters.bundle import seal, variant_entry
from onnxport.exporters.errors import BundleError
from onnxport.exporters.graph import Variant
from onnxport.exporters.inspection import inspect
from onnxport.exporters.manifest import Component, Manifest, Preprocessing
from onnxport.verify.contract import AxisRange, TensorSpec
from onnxport.verify.errors import ModelFileError


def gelu() -> onnx.ModelProto:
    """x float32 [batch, 8] -> y float32 [rows, 8], through a contrib Gelu."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Gelu", ["z"], ["y"], domain="com.microsoft")],
        "gelu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 8])],
        [numpy_helper.from_array(np.ones((8, 8), np.float32), "w")],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, producer_name="test")
    model.ir_version = 8
    return model


@pytest.fixture
def root(tmp_path: Path, make_manifest: Callable[..., Manifest]) -> Path:
    root = tmp_path / "bundle"
    root.mkdir()
    onnx.save(gelu(), root / "model.onnx", save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    (root / "model.ort").write_bytes(b"\x10\0\0\0ORTM" + bytes(56))
    (root / "config.json").write_text("{}")
    variants = (
        Variant("base", root / "model.onnx", root / "model.onnx_data", "float32", "none"),
        Variant(
            "ort",
            root / "model.ort",
            None,
            "float32",
            "extended",
            portable=False,
            fusions={"com.microsoft:Gelu": 1},
            notes=("nothing to fuse",),
            facts_path=root / "model.onnx",
        ),
    )
    component = Component(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 8)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 8)),),
        axes={"batch": AxisRange(proven=(1, 3))},
        engine="torchscript",
        variants={variant.name: variant_entry(variant, root) for variant in variants},
    )
    preprocessing = Preprocessing(files=("config.json",), padding_side="right")
    seal(root, make_manifest(component, preprocessing=preprocessing))
    return root


def test_a_bundle(root: Path) -> None:
    seen = inspect(root)
    assert (seen.kind, seen.path) == ("bundle", str(root))
    assert seen.source is not None
    assert seen.source.model == "tiny"
    assert seen.toolchain is not None
    assert seen.verification is not None
    assert seen.verification.verdict == "skip"
    assert seen.preprocessing is not None
    assert seen.preprocessing.padding_side == "right"
    assert seen.manifest_intact
    assert seen.size_bytes == sum(file.stat().st_size for file in root.iterdir())
    assert seen.files == ("config.json", "model.onnx", "model.onnx_data", "model.ort")

    component = seen.components["model"]
    assert component.axes == {"batch": AxisRange(proven=(1, 3))}
    assert component.outputs[0].shape == ("batch", 8)
    base, ort = component.variants["base"], component.variants["ort"]
    assert base.external_data == ("model.onnx_data",)
    assert base.opsets == {"": 17, "com.microsoft": 1}
    assert base.ops == {"ai.onnx:MatMul": 1, "com.microsoft:Gelu": 1}
    assert base.weights is not None
    assert base.weights.bytes_by_dtype == {"float32": 256}
    assert base.size_bytes == sum((root / f"model.onnx{end}").stat().st_size for end in ("", "_data"))
    assert (base.precision, base.min_onnxruntime, base.producer) == ("float32", "1.12", "test")
    assert (ort.weights, ort.portable, ort.size_bytes) == (None, False, 64)
    assert (ort.ops, ort.fusions) == (base.ops, {"com.microsoft:Gelu": 1})
    assert ort.notes == ("nothing to fuse",)


def test_says_what_the_file_is_and_not_what_the_manifest_claims(root: Path) -> None:
    model = gelu()
    model.graph.node[1].op_type = "FastGelu"
    (root / "model.onnx").write_bytes(model.SerializeToString())
    assert inspect(root).components["model"].variants["base"].ops == {"ai.onnx:MatMul": 1, "com.microsoft:FastGelu": 1}


def test_notices_an_edited_manifest(root: Path) -> None:
    path = root / "bundle.json"
    path.write_text(path.read_text().replace('"verdict": "skip"', '"verdict": "pass"'))
    assert inspect(root).manifest_intact is False


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some.onnx"
    path.write_bytes(gelu().SerializeToString())
    seen = inspect(path)
    assert (seen.kind, seen.source, seen.verification, seen.manifest_intact) == ("onnx", None, None, None)
    assert seen.size_bytes == path.stat().st_size
    component = seen.components["some"]
    assert component.inputs[0].shape == ("batch", 8)
    assert component.axes == {"batch": AxisRange()}
    variant = component.variants["file"]
    assert variant.fusions == {"com.microsoft:Gelu": 1}
    assert (variant.precision, variant.level) == (None, None)


def test_a_file_without_its_data(root: Path) -> None:
    (root / "model.onnx_data").unlink()
    variant = inspect(root / "model.onnx").components["model"].variants["file"]
    assert variant.missing_data == ("model.onnx_data",)


def test_unnamed_dimensions_are_no_axes(tmp_path: Path) -> None:
    model = gelu()
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    component = inspect(path).components["model"]
    assert component.inputs[0].shape == ("?x.0", 8)
    assert component.axes == {}


def test_is_json(root: Path) -> None:
    for path in (root, root / "model.onnx"):
        document = json.loads(json.dumps(inspect(path).model_dump(mode="json")))
        assert document["components"]["model"]["variants"]


def test_refusals(root: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="does not exist"):
        inspect(tmp_path / "nowhere")
    with pytest.raises(BundleError, match=r"has no bundle\.json"):
        inspect(tmp_path)
    with pytest.raises(ModelFileError, match=r"bundle\.json"):
        inspect(root / "bundle.json")
    (root / "model.onnx").unlink()
    with pytest.raises(ModelFileError, match=r"model\.onnx cannot be read"):
        inspect(root)


def test_a_deployment_machine_needs_neither_torch_nor_a_session(root: Path) -> None:
    code = "import sys; from onnxport.exporters.inspection import inspect; inspect(sys.argv[1]); "
    code += "assert not {'torch', 'transformers', 'optimum', 'onnxruntime'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)
