"""The dynamo engine against PyTorch: sizes that were not traced, what it refuses, tied weights, its own fusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import plain_modules
import pytest
import torch
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

from onnxport.exporters import export
from onnxport.exporters.engines.dynamo import export_graph
from onnxport.exporters.engines.export_failure import describe_failure
from onnxport.exporters.engines.module_scopes import module_scopes
from onnxport.exporters.errors import EngineError, ReadBackError
from onnxport.exporters.exportable import Arrays, Exportable, to_tensors
from onnxport.exporters.graph import Graph
from onnxport.exporters.manifest import Source
from onnxport.exporters.onnx_writer import write_model
from onnxport.exporters.read_back import check_written
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.signature import probe_contract
from onnxport.exporters.variants import VariantBuilder
from onnxport.verify import OrtRunner
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, Dim, GraphContract
from zoo import randomise

Inputs = Mapping[str, tuple[Dim, ...]]


def exportable(
    module: nn.Module, inputs: Inputs, example: Mapping[str, int], sample: Callable[..., Arrays] | None = None
) -> Exportable:
    """An exportable made by hand; without `sample`, every input is drawn from N(0, 1)."""

    def normal(sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        shapes = {name: [sizes.get(str(dim), dim) for dim in dims] for name, dims in inputs.items()}
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    return Exportable(
        module=module.eval(),
        inputs=inputs,
        axes={axis: AxisRange(min=0 if axis.startswith("past") else 1) for axis in example},
        example=example,
        sample=sample or normal,
        cases=lambda suite: [],
        source=Source(model="made by hand", architecture=type(module).__name__, task="t", weights_sha256="0" * 64),
    )


def write(source: Exportable, path: Path, opset: int = 18) -> GraphContract:
    contract = probe_contract(source, opset)
    traced = export_graph(source, contract)
    write_model(traced.skeleton, traced.weights, path, external_data="always")
    check_written(path, contract)
    return contract


def assert_same(source: Exportable, path: Path, *sizes: Mapping[str, int]) -> None:
    runner = OrtRunner(path)
    for at in sizes:
        inputs = source.sample(at, np.random.default_rng(7))
        with torch.inference_mode():
            expected = source.run(to_tensors(inputs))
        found = runner.run(Case("case", inputs))
        assert list(found) == list(expected)
        for name, tensor in expected.items():
            assert float(tensor.std()) > 0.01
            np.testing.assert_allclose(found[name], tensor.numpy(), rtol=1e-3, atol=1e-4, err_msg=f"{name} at {at}")


class Decoder(nn.Module):
    """One attention layer over a cache: the mask is as long as what is cached and what is new."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.project = nn.Linear(16, 48)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past_key: Tensor) -> dict[str, Tensor]:
        query, key, value = self.project(self.embed(input_ids)).chunk(3, dim=-1)
        key = torch.cat([past_key, key], dim=1)
        value = torch.cat([past_key * 2, value], dim=1)
        bias = (1 - attention_mask[:, None, None, :].float()) * -1e4
        heads = (tensor[:, None] for tensor in (query, key, value))
        attended = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=bias)[:, 0]
        return {"logits": attended, "present_key": key}


def decoder() -> Exportable:
    def sample(sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        batch, new, past = sizes["batch"], sizes["sequence"], sizes["past_sequence"]
        mask = np.ones((batch, past + new), np.int64)
        mask[0, : (past + new) // 2] = 0
        return {
            "input_ids": rng.integers(0, 50, (batch, new)),
            "attention_mask": mask,
            "past_key": rng.standard_normal((batch, past, 16)).astype(np.float32),
        }

    inputs: Inputs = {
        "input_ids": ("batch", "sequence"),
        "attention_mask": ("batch", "past_sequence+sequence"),
        "past_key": ("batch", "past_sequence", 16),
    }
    return exportable(Decoder(), inputs, {"batch": 2, "sequence": 5, "past_sequence": 3}, sample)


def test_a_sum_of_axes_is_no_axis_of_its_own_and_the_past_may_be_empty(tmp_path: Path) -> None:
    source, path = decoder(), tmp_path / "model.onnx"
    contract = write(source, path)
    assert contract.outputs[1].shape == ("batch", "past_sequence+sequence", 16)
    assert_same(
        source,
        path,
        {"batch": 1, "sequence": 1, "past_sequence": 9},
        {"batch": 3, "sequence": 7, "past_sequence": 0},
    )


def test_convolutions_and_outputs_in_order(tmp_path: Path) -> None:
    module = plain_modules.ConvNet()
    source = exportable(module, {"pixels": ("batch", 3, "height", "width")}, {"batch": 2, "height": 16, "width": 20})
    write(source, tmp_path / "model.onnx")
    assert_same(source, tmp_path / "model.onnx", {"batch": 5, "height": 31, "width": 18})


def test_a_recurrent_net_at_any_length(tmp_path: Path) -> None:
    source = exportable(plain_modules.Tagger(), {"features": ("batch", "steps", 6)}, {"batch": 2, "steps": 5})
    write(source, tmp_path / "model.onnx")
    assert_same(source, tmp_path / "model.onnx", {"batch": 1, "steps": 1}, {"batch": 3, "steps": 11})


class ByName(nn.Module):
    """Layers one after the other, and what belongs to none of them."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.names = tuple(layers)
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, pixels: Tensor) -> Tensor:
        for name in self.names:
            pixels = self.get_submodule(name)(pixels)
        return pixels.abs().sqrt()


@pytest.mark.parametrize("opset", [17, 18])  # below 18, onnx's own converter is at work, which drops metadata
def test_nodes_keep_their_modules_and_no_path_of_this_machine(opset: int, tmp_path: Path) -> None:
    layers = {"conv": nn.Conv2d(3, 8, 3), "act": nn.GELU(), "flat": nn.Flatten(), "head": nn.Linear(128, 5)}
    source = exportable(ByName(layers), {"pixels": ("batch", 3, 6, 6)}, {"batch": 2})
    files = [tmp_path / "one.onnx", tmp_path / "two.onnx"]
    for file in files:
        write(source, file, opset)
    nodes = onnx.load(files[0]).graph.node
    assert {entry.key for node in nodes for entry in node.metadata_props} == {"pkg.torch.onnx.name_scopes"}
    by_operator = {node.op_type: module_scopes(node)[:-1] for node in nodes}
    assert by_operator["Conv"] == ("model", "model.conv")
    assert by_operator["Gemm"] == ("model", "model.head")
    assert by_operator["Erf"] == ("model", "model.act")
    assert by_operator["Sqrt"] == ("model",)
    assert b".py" not in files[0].read_bytes()
    assert files[0].read_bytes() == files[1].read_bytes().replace(b"two.onnx", b"one.onnx")


@pytest.mark.parametrize(
    "written", ["", "[1]", "('', 'model')", "['_empty_nn_module_stack', 'add']", "__import__('os')"]
)
def test_what_is_no_list_of_modules_tells_nothing(written: str) -> None:
    node = onnx.helper.make_node("Add", ["a", "b"], ["c"])
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=written)
    assert module_scopes(node) == ()


def test_inputs_are_bound_by_name(tmp_path: Path) -> None:
    source = exportable(plain_modules.Swapped(), {"a": ("batch", 3), "b": ("batch", 3)}, {"batch": 2})
    write(source, tmp_path / "model.onnx")
    assert_same(source, tmp_path / "model.onnx", {"batch": 4})


class Aliases(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        doubled = x * 2
        return {"same": x, "doubled": doubled, "again": doubled}


def test_an_output_may_be_an_input_or_another_output(tmp_path: Path) -> None:
    source = exportable(Aliases(), {"x": ("batch", 4)}, {"batch": 3})
    write(source, tmp_path / "model.onnx")
    assert_same(source, tmp_path / "model.onnx", {"batch": 2})


def test_a_vision_transformer(tmp_path: Path) -> None:
    config = ViTConfig(
        image_size=16,
        patch_size=8,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
    )
    module = randomise(ViTForImageClassification(config))
    source = exportable(module, {"pixel_values": ("batch", 3, 16, 16)}, {"batch": 2})
    write(source, tmp_path / "model.onnx")
    assert_same(source, tmp_path / "model.onnx", {"batch": 1}, {"batch": 5})


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (plain_modules.Gated(), r"decides by what its inputs hold.*in gate \(Gate\), plain_modules.py line \d+"),
        (plain_modules.BranchEqual(), r"decides by what its inputs hold.*BranchEqual\), plain_modules.py line \d+"),
    ],
)
def test_what_depends_on_data_is_refused_with_its_place(module: nn.Module, told: str) -> None:
    dims: tuple[Dim, ...] = (3, 4) if isinstance(module, plain_modules.BranchEqual) else ("batch", 4)
    source = exportable(module, {"x": dims}, {} if dims[0] == 3 else {"batch": 3})
    with pytest.raises(EngineError, match=told) as caught:
        export_graph(source, probe_contract(source, 18))
    assert "\n" not in str(caught.value)
    assert not any(part.training for part in module.modules())


def test_an_axis_that_forward_fixes_is_refused(tmp_path: Path) -> None:
    source = exportable(plain_modules.OnlySixteen(), {"x": ("n",)}, {"n": 16})
    contract = GraphContract.model_validate(
        {
            "inputs": [{"name": "x", "dtype": "float32", "shape": ["n"]}],
            "outputs": [{"name": "output", "dtype": "float32", "shape": [4, 4]}],
            "axes": {"n": {}},
            "opsets": {"": 18},
        }
    )
    with pytest.raises(EngineError, match="dimension 0 of x is dynamic, but forward holds for its size of 16 only"):
        export_graph(source, contract)


@pytest.mark.parametrize("where", ["inputs['inputs'][1].shape[2]", "inputs['in_1'].shape[2]"])
def test_a_fixed_axis_is_told_by_the_name_of_its_input(where: str) -> None:
    seen = "- Received user-specified dim hint Dim.DYNAMIC(min=None, max=None), but tracing inferred a static shape of "
    error = ValueError(f"Found the following conflicts:\n{seen}7 for dimension {where}.")
    assert describe_failure(error, nn.Identity(), ("a", "b")).startswith("dimension 2 of b is dynamic, but forward")


class Unknown(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.eigvalsh(x @ x.transpose(1, 2))


def test_an_operator_that_onnx_lacks_is_named() -> None:
    source = exportable(Unknown(), {"x": ("batch", 3, 3)}, {"batch": 2})
    with pytest.raises(EngineError, match=r"operator aten\._linalg_eigh\.\w+ has no translation to ONNX"):
        export_graph(source, probe_contract(source, 18))


@pytest.mark.parametrize("sizes", [{"batch": 1, "steps": 5}, {"batch": 5, "steps": 5}])
def test_sizes_that_tell_nothing_are_refused(sizes: Mapping[str, int]) -> None:
    source = exportable(plain_modules.Tagger(), {"features": ("batch", "steps", 6)}, sizes)
    with pytest.raises(EngineError, match=r"the example has batch \d, steps 5; .*--static batch="):
        export_graph(source, probe_contract(source, 18))


def test_an_opset_that_torch_silently_replaces_is_refused() -> None:
    source = exportable(nn.LayerNorm(4), {"input": ("batch", 4)}, {"batch": 3})
    with pytest.raises(ReadBackError, match="wrote opset 18, asked 16"):
        export_graph(source, probe_contract(source, 16))


class Keeps(nn.Module):
    """Keeps a tensor from call to call, as rotary embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.last = torch.arange(x.shape[0])
        return self.layer(x) + self.last[:, None]


def test_a_trace_leaves_nothing_on_the_module(tmp_path: Path) -> None:
    source = exportable(Keeps(), {"x": ("batch", 4)}, {"batch": 3})
    contract = probe_contract(source, 18)
    kept = source.module.last
    export_graph(source, contract)
    assert source.module.last is kept
    assert not any(part.training for part in source.module.modules())


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, make_checkpoint: Callable[..., Path]) -> Path:
    """A bundle of a masked language model, whose decoder shares the word embedding."""
    out = tmp_path_factory.mktemp("dynamo") / "out"
    export(make_checkpoint("bert", "fill-mask"), out, recipe=Recipe(engine="dynamo", external_data="always"))
    return out


def test_the_whole_flow_at_the_default_opset(exported: Path) -> None:
    model = onnx.load(exported / "model.onnx", load_external_data=False)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]
    assert [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim] == ["batch", "sequence"]


def test_tied_weights_are_stored_once_and_streamed(exported: Path) -> None:
    for name in ("model.onnx", "model_optimized.onnx"):
        model = onnx.load(exported / name)
        embedding = next(tensor for tensor in model.graph.initializer if "word_embeddings" in tensor.name or
                         "decoder.weight" in tensor.name)  # fmt: skip
        same = [t for t in model.graph.initializer if sorted(t.dims) == sorted(embedding.dims)]
        values = {np.sort(onnx.numpy_helper.to_array(t), axis=None).tobytes() for t in same}
        assert len(values) == len(same)
    model = onnx.load(exported / "model.onnx", load_external_data=False)
    assert all(len(tensor.raw_data) < 1024 for tensor in model.graph.initializer)


@pytest.mark.skipif(
    find_spec("transformers.exporters") is None,
    reason="the fusions of attention come with transformers.exporters, from transformers 5 on",
)
def test_its_own_fusions_match_with_any_padding(exported: Path) -> None:
    # That the numbers are PyTorch's, left-padded batches among them, was verified in the export.
    counts = Counter(node.op_type for node in onnx.load(exported / "model_optimized.onnx").graph.node)
    assert counts["Attention"] == 2
    assert counts["SkipLayerNormalization"] == 4
    assert counts["BiasGelu"] == 3


class BroadcastSum(nn.Module):
    """A sum whose first addend broadcasts, before a norm: onnxscript may take it for a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(1, 6, 8))
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.positions + x)


def test_a_sum_that_broadcasts_is_no_residual_connection(tmp_path: Path) -> None:
    source = exportable(BroadcastSum(), {"x": ("batch", 6, 8)}, {"batch": 3})
    contract = write(source, tmp_path / "model.onnx")
    builder = VariantBuilder(Graph("model", tmp_path / "model.onnx", contract), tmp_path / "out", tmp_path)
    variant = builder.build("optimized")
    assert "com.microsoft:SkipLayerNormalization" not in builder.fused.fusions
    assert_same(source, variant.path, {"batch": 2})


def test_fusion_without_shapes_is_given_up_and_says_so(tmp_path: Path) -> None:
    source = exportable(BroadcastSum(), {"x": ("batch", 6, 8)}, {"batch": 3})
    path = tmp_path / "model.onnx"
    contract = write(source, path)
    model = onnx.load(path)
    del model.graph.value_info[:]
    onnx.save(model, path)
    builder = VariantBuilder(Graph("model", path, contract), tmp_path / "out", tmp_path)
    variant = builder.build("optimized")
    assert_same(source, variant.path, {"batch": 2})
    assert variant.notes
