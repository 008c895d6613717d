"""The engine `optimum`: the same bundles and the same verification, from Optimum's exporter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from onnxport.exporters import Recipe, export
from onnxport.exporters.engines import ENGINES
from onnxport.exporters.engines.optimum_onnx import export_graph
from onnxport.exporters.errors import EngineError
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.loading import Loaded, load
from onnxport.exporters.signature import probe_contract
from zoo import TinyModel
from zoo.decoders import ROWS as DECODERS
from zoo.encoder_decoders import ROWS as ENCODER_DECODERS
from zoo.vision import ROWS as VISION

pytestmark = pytest.mark.skipif(
    bool(ENGINES["optimum"].missing), reason="Optimum's exporter is not installed here: scripts/test_legacy runs these"
)
MakeCheckpoint = Callable[..., Path]


def export_both(checkpoint: Path, tmp_path: Path, **recipe: Any) -> tuple[Any, Any]:
    """Returns the bundles of the engines `optimum` and `torchscript`."""
    asked = {"variants": ("base",), "suite": "quick", **recipe}
    first, second = (
        export(checkpoint, tmp_path / engine, recipe=Recipe(engine=engine, **asked))
        for engine in ("optimum", "torchscript")
    )
    return first, second


def signature(bundle: Any) -> Mapping[str, Any]:
    return {
        name: (component.inputs, component.outputs, component.axes)
        for name, component in bundle.manifest.components.items()
    }


@pytest.mark.parametrize(
    ("model_type", "task"),
    [
        ("bert", "feature-extraction"),
        ("distilbert", "question-answering"),
        ("roberta", "token-classification"),
        ("electra", "multiple-choice"),
        ("albert", "fill-mask"),
    ],
)
def test_text_encoders_have_the_signature_and_the_size_of_any_engine(
    make_checkpoint: MakeCheckpoint, tmp_path: Path, model_type: str, task: str
) -> None:
    ours, other = export_both(make_checkpoint(model_type, task, token_types=model_type != "roberta"), tmp_path)
    assert ours.manifest.verification.verdict == "pass"
    assert {component.engine for component in ours.manifest.components.values()} == {"optimum"}
    assert signature(ours) == signature(other)
    # Tied weights are there once: the embeddings are most of these models.
    assert ours.variant("base").size_bytes < 1.1 * other.variant("base").size_bytes
    if task == "feature-extraction":
        assert [spec.name for spec in ours.component().outputs] == ["last_hidden_state", "pooler_output"]


def rows(tables: tuple[TinyModel, ...], *names: str) -> list[Any]:
    return [pytest.param(row, id=row.name) for row in tables if row.architecture in names]


@pytest.mark.parametrize(
    "row",
    [
        *rows(DECODERS, "gpt2", "llama"),
        *rows(ENCODER_DECODERS, "t5", "bart"),
        *rows(VISION, "vit")[:1],
    ],
)
def test_models_of_other_kinds(row: TinyModel, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    row.write(folder)
    ours, other = export_both(folder, tmp_path, task=row.task, **row.recipe)
    assert ours.manifest.verification.verdict == "pass"
    assert {component.engine for component in ours.manifest.components.values()} == {"optimum"}
    assert signature(ours) == signature(other)


def test_the_opset_is_the_one_asked_for(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    for opset in (ENGINES["optimum"].opsets.start, ENGINES["optimum"].opsets.stop - 1):
        recipe = Recipe(engine="optimum", opset=opset, variants=("base",), suite="quick")
        bundle = export(make_checkpoint("bert"), tmp_path / str(opset), recipe=recipe)
        model = onnx.load(bundle.path / "model.onnx", load_external_data=False)
        assert {entry.domain: entry.version for entry in model.opset_import} == {"": opset}


def test_extra_outputs_and_fixed_axes(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    recipe = Recipe(
        engine="optimum", outputs=("hidden_states",), static={"batch": 1}, variants=("base",), suite="quick"
    )
    bundle = export(make_checkpoint("bert"), tmp_path / "out", recipe=recipe)
    outputs = {spec.name: spec.shape for spec in bundle.component().outputs}
    assert outputs["hidden_states.2"] == ("batch", "sequence", 32)
    assert bundle.component().axes["batch"].fixed == 1


def test_half_precision(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    recipe = Recipe(engine="optimum", dtype="float16", variants=("base",), suite="quick")
    bundle = export(make_checkpoint("bert", "text-classification"), tmp_path / "out", recipe=recipe)
    assert bundle.variant("base").precision == "float16"


def loaded(checkpoint: Path, **recipe: Any) -> Loaded:
    return load(str(checkpoint), Recipe(**recipe), HubOptions())


def test_the_model_is_left_as_it_was(make_checkpoint: MakeCheckpoint) -> None:
    exportable = loaded(make_checkpoint("bert")).component()
    model: Any = exportable.module
    settings, forward = dict(vars(model.config)), model.forward
    export_graph(exportable, probe_contract(exportable, 17))
    assert vars(model.config) == settings
    assert model.forward == forward
    assert "forward" not in vars(model)
    assert not any(module.training for module in model.modules())


def test_what_a_forward_keeps_under_the_trace_is_gone_afterwards(make_checkpoint: MakeCheckpoint) -> None:
    """A buffer, and an attribute, that forward sets: under the trace they are traced tensors."""
    exportable = loaded(make_checkpoint("bert")).component()
    model: Any = exportable.module
    counter, last = torch.zeros(()), torch.zeros(())
    model.register_buffer("counter", counter, persistent=False)
    model.last = last

    def count(module: Any, _: Any) -> None:
        module.counter = module.counter + 1
        module.last = module.counter

    contract = probe_contract(exportable, 17)
    model.register_forward_pre_hook(count)
    export_graph(exportable, contract)
    assert model.counter is counter
    assert model.last is last
    assert not counter.any()


def test_weights_stream_from_the_module_though_the_file_has_them_apart(
    make_checkpoint: MakeCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What Optimum does by itself from 2 GB on.
    monkeypatch.setenv("FORCE_ONNX_EXTERNAL_DATA", "1")
    exportable = loaded(make_checkpoint("bert")).component()
    traced = export_graph(exportable, probe_contract(exportable, 17))
    floats = {weight.name: weight.size_bytes for weight in traced.weights}
    parameters = sum(parameter.numel() * 4 for parameter in exportable.module.parameters())
    assert sum(floats.values()) >= parameters
    assert len([name for name in floats if name.endswith("word_embeddings.weight")]) == 1
    model: Any = exportable.module
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.fill_(7.0)
    (weight,) = (weight for weight in traced.weights if weight.name.endswith("word_embeddings.weight"))
    written = BytesIO()
    weight.write(written)
    assert set(np.frombuffer(written.getvalue(), dtype=np.float32)) == {7.0}, "the module's own memory, no copy"


def test_a_task_or_a_model_that_optimum_does_not_know(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"doesn't support task question-answering.*--engine torchscript"):
        export(make_checkpoint("modernbert", "question-answering"), tmp_path / "out", recipe=Recipe(engine="optimum"))
    assert not (tmp_path / "out").exists()


def test_inputs_that_optimum_does_not_describe(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    # RoBERTa takes token types, and this tokenizer makes them; Optimum's graph of it has none.
    with pytest.raises(EngineError, match=r"takes attention_mask, input_ids and returns .* expected .*token_type_ids"):
        export(make_checkpoint("roberta"), tmp_path / "out", recipe=Recipe(engine="optimum"))
    assert not (tmp_path / "out").exists()


def test_a_module_that_is_no_model_of_transformers(plain_modules: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="Optimum exports models of transformers as they are"):
        export(f"{plain_modules}:tagger", tmp_path / "out", recipe=Recipe(engine="optimum"))
    assert not (tmp_path / "out").exists()
