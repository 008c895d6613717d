"""Pooling, Dense and Normalize against sentence-transformers itself."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
import torch

from onnxport.exporters.errors import SourceError
from onnxport.exporters.exportable import Exportable
from onnxport.exporters.hub_options import HubOptions
from onnxport.exporters.loading import load as load_source
from onnxport.exporters.preprocessing import copy_files
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.sentence_embedding import POOLINGS, Pooling, read_stages

TEXTS = ["the graph was the same", "who won?", "in the meeting and in the runtime"]


def load(folder: Path, task: str | None = None) -> Exportable:
    return load_source(str(folder), Recipe(task=task), HubOptions()).component()


@pytest.mark.parametrize("mode", list(POOLINGS))
@pytest.mark.parametrize("side", ["right", "left"])
def test_pooling_is_that_of_sentence_transformers(mode: str, side: str) -> None:
    import sentence_transformers
    from sentence_transformers.sentence_transformer.modules import Pooling as Theirs

    tokens = torch.randn(4, 7, 6, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([7, 3, 1, 5]).unsqueeze(1)
    mask = (torch.arange(7) < lengths).long()
    mask = mask.flip(1) if side == "left" else mask
    features = {"token_embeddings": tokens, "attention_mask": mask}
    if (mode, side) == ("weightedmean", "left") and sentence_transformers.__version__.startswith("5."):
        # Before 6 the padding in front of a text counted in its weights. Ours is 6's: the text alone counts, so a
        # left-padded text has the embedding of the same text padded on the right.
        shifted = [row.roll(int(kept.sum()) - len(kept), 0) for row, kept in zip(tokens, mask, strict=True)]
        features = {"token_embeddings": torch.stack(shifted), "attention_mask": mask.flip(1)}
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


def modules_json(folder: Path, *entries: tuple[str, str]) -> None:
    content = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(entries)
    ]
    (folder / "modules.json").write_text(json.dumps(content))
    for path, _ in entries:
        if path and ".." not in path and not path.startswith("/"):
            (folder / path).mkdir(exist_ok=True)


ROOT = ("", "Transformer")
START = (ROOT, ("1_Pooling", "Pooling"))
MEAN: dict[str, dict[str, object]] = {"1_Pooling": {}}


@pytest.mark.parametrize(
    ("entries", "configs", "message"),
    [
        ((ROOT, ("1_CNN", "CNN")), {}, "CNN in '1_CNN'; onnxport rebuilds"),
        (START, {}, "cannot read 1_Pooling/config.json"),
        ((*START, ("2_Pooling", "Pooling")), MEAN, "Pooling in '2_Pooling'"),
        ((("0_Transformer", "Transformer"), START[1]), MEAN, "in '0_Transformer'"),
        ((ROOT, ("1_Dense", "Dense"), ("2_Pooling", "Pooling")), {}, "Dense in '1_Dense'"),
        ((ROOT, ("1_Normalize", "Normalize"), ("2_Pooling", "Pooling")), {}, "Normalize in"),
        ((ROOT,), {}, "has no Pooling stage"),
        (START, {"1_Pooling": {"pooling_mode": "median"}}, "asks for pooling 'median'"),
        (START, {"1_Pooling": {"include_prompt": False}}, "include_prompt"),
        ((*START, ("2_Dense", "Dense")), {**MEAN, "2_Dense": {"use_residual": True}}, "use_residual"),
        ((*START, ("2_Dense", "Dense")), {**MEAN, "2_Dense": {"in_features": 32}}, "do not fit together"),
        ((*START, ("2_Dense", "Dense")), {**MEAN, "2_Dense": {"activation_function": "os.system"}}, "activation"),
        (
            (*START, ("2_Dense", "Dense")),
            {**MEAN, "2_Dense": {"in_features": 32, "out_features": 4}},
            "cannot read the weights of 2_Dense",
        ),
        (
            (*START, ("2_Dense", "Dense")),
            {**MEAN, "2_Dense": {"module_output_name": "other"}},
            "module_output_name 'other'",
        ),
        (
            (*START, ("2_Normalize", "Normalize")),
            {**MEAN, "2_Normalize": {"module_input_name": "token_embeddings"}},
            "module_input_name 'token_embeddings'",
        ),
        ((ROOT, ("../elsewhere", "Pooling")), {}, "is no plain path inside"),
        ((ROOT, ("/etc", "Pooling")), {}, "is no plain path inside"),
    ],
)
def test_stages_that_cannot_be_rebuilt_are_refused(
    make_checkpoint: Callable[..., Path],
    tmp_path: Path,
    entries: tuple[tuple[str, str], ...],
    configs: dict[str, dict[str, object]],
    message: str,
) -> None:
    folder = copytree(make_checkpoint("bert"), tmp_path / "st")
    modules_json(folder, *entries)
    for place, config in configs.items():
        (folder / place / "config.json").write_text(json.dumps(config))
    with pytest.raises(SourceError, match=message):
        read_stages(folder, torch.float32)


@pytest.mark.parametrize("content", ["[", "{}", "3", '[{"path": 1}]', '[{"type": "a.Pooling"}]'])
def test_a_malformed_modules_json(make_checkpoint: Callable[..., Path], tmp_path: Path, content: str) -> None:
    folder = copytree(make_checkpoint("bert"), tmp_path / "st")
    (folder / "modules.json").write_text(content)
    with pytest.raises(SourceError, match=r"modules\.json of st"):
        load(folder)


class Malicious:
    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.flag,)


def test_a_pickle_is_neither_run_nor_copied(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = copytree(make_checkpoint("bert"), tmp_path / "st")
    modules_json(folder, *START, ("2_Dense", "Dense"))
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "2_Dense" / "config.json").write_text('{"in_features": 32, "out_features": 4}')
    flag = tmp_path / "ran"
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(flag)))
    with pytest.raises(SourceError, match="cannot read the weights of 2_Dense: UnpicklingError"):
        load(folder)
    assert not flag.exists()
    assert not any(name.endswith(".bin") for name in copy_files(folder, None, tmp_path / "out"))
