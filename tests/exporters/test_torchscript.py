"""The torchscript engine against PyTorch: every architecture and task, at sizes and paddings that were not traced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from onnxport.exporters.engines import choose_engines
from onnxport.exporters.engines.torchscript import export_graph
from onnxport.exporters.errors import ReadBackError, RecipeError, SignatureError
from onnxport.exporters.exportable import Exportable, to_tensors
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.loading import load as load_source
from onnxport.exporters.onnx_writer import write_model
from onnxport.exporters.read_back import check_written
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.reference import record
from onnxport.exporters.signature import probe_contract
from onnxport.verify import OrtRunner, Recorded, Tolerance, verify
from onnxport.verify.contract import GraphContract
from zoo import text

TOLERANCE = Tolerance(rtol=1e-3, atol=1e-4)
ARCHITECTURES = (
    "bert", "distilbert", "roberta", "xlm-roberta", "electra", "albert", "camembert", "mpnet", "deberta-v2",
    "modernbert",
)  # fmt: skip
TASKS = (
    "feature-extraction", "text-classification", "token-classification", "question-answering", "fill-mask",
    "multiple-choice",
)  # fmt: skip


def export(folder: Path, path: Path, recipe: Recipe) -> tuple[Exportable, GraphContract]:
    exportable = load_source(str(folder), recipe, HubOptions()).component()
    contract = probe_contract(exportable, recipe.opset)
    traced = export_graph(exportable, contract)
    write_model(traced.skeleton, traced.weights, path, external_data="always")
    check_written(path, contract)
    return exportable, contract


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_graph_computes_what_pytorch_computes(
    make_checkpoint: Callable[..., Path], tmp_path: Path, model_type: str, task: str
) -> None:
    path = tmp_path / "model.onnx"
    exportable, contract = export(make_checkpoint(model_type, task), path, Recipe())
    recording = record(exportable, exportable.cases("standard"), lambda done, total: None)
    # RoBERTa's kin know one token type, and the second text of a pair has another: PyTorch itself refuses that case.
    assert set(recording.refused) <= ({"text.pairs"} if "token_type_ids" in exportable.inputs else set())
    report = verify(recording.runner, OrtRunner(path), recording.cases, TOLERANCE, contract=contract)
    assert report.verdict == "pass", [check for check in report.checks if check.verdict == "fail"]


@pytest.mark.parametrize("opset", [14, 17, 20])
def test_the_opset_in_the_file_is_the_one_asked(
    make_checkpoint: Callable[..., Path], tmp_path: Path, opset: int
) -> None:
    export(make_checkpoint("bert"), tmp_path / "model.onnx", Recipe(opset=opset))
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]


@pytest.mark.parametrize("opset", [5, 13, 21, 99])
def test_opsets_that_cannot_be_written(opset: int) -> None:
    with pytest.raises(RecipeError, match=rf"opset {opset} cannot be written \(torchscript: 14 to 20\)"):
        choose_engines(Recipe(opset=opset, engine="torchscript"))


def test_tied_weights_stay_tied(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_checkpoint("bert", "fill-mask")
    export(folder, tmp_path / "model.onnx", Recipe())
    model = onnx.load(tmp_path / "model.onnx")
    embedding = load_file(folder / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    copies = [t for t in model.graph.initializer if set(t.dims) == set(embedding.shape)]
    assert len(copies) == 1
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(copies[0]), embedding)
    readers = {node.op_type for node in model.graph.node if copies[0].name in node.input}
    assert readers == {"Gather", "Transpose"}


def test_linear_weights_are_stored_as_they_are_read(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    export(make_checkpoint("bert"), tmp_path / "model.onnx", Recipe())
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    stored = {t.name for t in model.graph.initializer}
    assert not [n for n in model.graph.node if n.op_type == "Transpose" and n.input[0] in stored]


def test_every_large_weight_is_external_and_streamed(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    export(make_checkpoint("bert"), tmp_path / "model.onnx", Recipe())
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    assert all(len(tensor.raw_data) < 1024 for tensor in model.graph.initializer)
    external = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    assert {e.value for t in external for e in t.external_data if e.key == "location"} == {"model.onnx_data"}


def test_the_same_model_gives_the_same_bytes(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        export(make_checkpoint("bert"), tmp_path / name / "model.onnx", Recipe())
    for file in ("model.onnx", "model.onnx_data"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_graph_that_is_not_what_was_asked_is_refused(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    _, contract = export(make_checkpoint("bert"), path, Recipe())
    model = onnx.load(path, load_external_data=False)
    model.opset_import[0].version = 18
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 11
    onnx.save(model, path)
    with pytest.raises(
        ReadBackError, match=r"opset of ai.onnx is 18, asked 17; inputs are input_ids int64\[batch, 11\]"
    ):
        check_written(path, contract)


def test_a_trace_of_another_type_or_rank_than_pytorch_is_refused(make_checkpoint: Callable[..., Path]) -> None:
    exportable = load_source(str(make_checkpoint("bert")), Recipe(), HubOptions()).component()
    contract = probe_contract(exportable, 17)
    hidden = contract.outputs[0]
    for wrong, told in (
        ({"dtype": "float64"}, "last_hidden_state is float32, in PyTorch float64"),
        ({"shape": hidden.shape[:2]}, "last_hidden_state has 3 dimensions, in PyTorch 2"),
    ):
        outputs = (hidden.model_copy(update=wrong), *contract.outputs[1:])
        with pytest.raises(ReadBackError, match=told):
            export_graph(exportable, contract.model_copy(update={"outputs": outputs}))


def test_hidden_states_can_be_kept(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    _, contract = export(make_checkpoint("bert"), tmp_path / "model.onnx", Recipe(outputs=("hidden_states",)))
    names = [spec.name for spec in contract.outputs]
    assert names == [
        "last_hidden_state", "pooler_output", "hidden_states.0", "hidden_states.1", "hidden_states.2"
    ]  # fmt: skip


def test_padding_is_known_by_name_when_the_length_is_static(
    make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    # Length 32 equals the hidden size: only the name tells the two apart.
    exportable, contract = export(make_checkpoint("bert"), tmp_path / "model.onnx", Recipe(static={"sequence": 32}))
    assert contract.outputs[0].shape == ("batch", "sequence", 32)
    assert contract.written().outputs[0].shape == ("batch", 32, 32)
    recording = record(exportable, exportable.cases("standard"), lambda done, total: None)
    damaged = {
        name: {key: array.copy() for key, array in outputs.items()}
        for name, outputs in recording.runner.outputs.items()
    }
    case = next(case for case in recording.cases if case.name == "padding.left")
    damaged["padding.left"]["last_hidden_state"][case.inputs["attention_mask"] == 0] += 1
    report = verify(
        Recorded("damaged", damaged), OrtRunner(tmp_path / "model.onnx"), recording.cases, TOLERANCE, contract=contract
    )
    assert report.verdict == "pass"
    padded = [check.padded_max_abs_diff for check in report.checks if check.case == "padding.left"]
    assert max(value for value in padded if value) > 0.9


@pytest.mark.skipif(
    transformers.__version__.startswith("4."), reason="transformers 4 changes a constant of the trace in place"
)
def test_block_sparse_attention_has_a_graph_at_a_length_at_which_it_stays(tmp_path: Path) -> None:
    """BigBird attends to (5 + 2 * random blocks) * block size = 28 tokens, and takes the full attention up to these."""
    text.write("big_bird", "feature-extraction", tmp_path / "sparse", attention_type="block_sparse")
    exportable, contract = export(tmp_path / "sparse", tmp_path / "model.onnx", Recipe(static={"sequence": 43}))
    cases = exportable.cases("standard")
    recording = record(exportable, cases, lambda done, total: None)
    report = verify(recording.runner, OrtRunner(tmp_path / "model.onnx"), cases, TOLERANCE, contract=contract)
    assert report.verdict == "pass", [check for check in report.checks if check.verdict == "fail"]
    assert exportable.module.attention_type == "block_sparse"
    full = transformers.BigBirdModel.from_pretrained(tmp_path / "sparse", attention_type="original_full").eval()
    with torch.inference_mode():
        expected = full(**to_tensors(cases[0].inputs)).last_hidden_state.numpy()
    seen = OrtRunner(tmp_path / "model.onnx").run(cases[0])["last_hidden_state"]
    assert np.abs(seen - expected).max() > 0.1

    with pytest.raises(SignatureError, match=r"keep 'block_sparse' by a length .* \(--static sequence=N\)"):
        export(tmp_path / "sparse", tmp_path / "any.onnx", Recipe())
