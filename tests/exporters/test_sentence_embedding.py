"""Pooling, Dense and Normalize against sentence-transformers itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
import torch

from onnxport.exporters.checkpoint import load_checkpoint
from onnxport.exporters.errors import SourceError
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.sentence_embedding import POOLINGS, Pooling, read_stages
from onnxport.exporters.source import find_folder

TEXTS = ["the graph was the same", "who won?", "in the meeting and in the runtime"]


def load(folder: Path, task: str | None = None) -> Exportable:
    exportable, _ = load_checkpoint(find_folder(str(folder), HubOptions()), Recipe(task=task), HubOptions(), "eager")
    return exportable


@pytest.mark.parametrize("mode", list(POOLINGS))
@pytest.mark.parametrize("side", ["right", "left"])
def test_pooling_is_that_of_sentence_transformers(mode: str, side: str) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling as Theirs

    tokens = torch.randn(4, 7, 6, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([7, 3, 1, 5]).unsqueeze(1)
    mask = (torch.arange(7) < lengths).long()
    mask = mask.flip(1) if side == "left" else mask
    features = {"token_embeddings": tokens, "attention_mask": mask}
    expected = Theirs(6, pooling_mode=mode).forward(features)["sentence_embedding"]
    torch.testing.assert_close(Pooling((mode,))(tokens, mask), expected, rtol=1e-6, atol=1e-6)


def sentence_checkpoint(source: Path, target: Path, *, dense: bool) -> Path:
    """A checkpoint with the files of sentence-transformers, written by sentence-transformers."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    transformer = modules.Transformer(str(source))
    stages = [transformer, modules.Pooling(32, pooling_mode=("mean", "cls"))]
    if dense:
        stages.append(modules.Dense(64, 10, activation_function=torch.nn.Tanh()))
    stages.append(modules.Normalize())
    SentenceTransformer(modules=stages, device="cpu").save(str(target))
    return target


@pytest.mark.parametrize("dense", [False, True])
def test_whole_chain_is_that_of_sentence_transformers(
    make_checkpoint: Callable[..., Path], tmp_path: Path, dense: bool
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = sentence_checkpoint(make_checkpoint("bert"), tmp_path / "st", dense=dense)
    exportable = load(folder)
    assert exportable.source.task == "sentence-similarity"
    assert exportable.preprocessing.pooling == "mean+cls"
    assert exportable.preprocessing.normalize is True
    theirs = SentenceTransformer(str(folder), device="cpu")
    expected = theirs.encode(TEXTS, convert_to_tensor=True)
    inputs = theirs.tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        outputs = exportable.run({name: inputs[name] for name in exportable.inputs})
    assert list(outputs) == ["last_hidden_state", "sentence_embedding"]
    torch.testing.assert_close(outputs["sentence_embedding"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"idx": 1, "name": "1", "path": "1_CNN", "type": "sentence_transformers.models.CNN"}, "cannot rebuild"),
        ({"idx": 1, "name": "1", "path": "1_Gone", "type": "sentence_transformers.models.Pooling"}, "cannot read"),
    ],
)
def test_stages_that_cannot_be_rebuilt(
    make_checkpoint: Callable[..., Path], tmp_path: Path, entry: dict[str, object], message: str
) -> None:
    folder = copytree(make_checkpoint("bert"), tmp_path / "st")
    first = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    (folder / "modules.json").write_text(json.dumps([first, entry]))
    with pytest.raises(SourceError, match=message):
        read_stages(folder, torch.float32)
    assert load(folder, "feature-extraction").source.task == "feature-extraction"
