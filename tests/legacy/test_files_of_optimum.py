"""What optimum-cli writes, against the checkpoint that it was made from."""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx
import pytest

from onnxport.exporters import Recipe
from onnxport.exporters.engines import ENGINES
from onnxport.exporters.file_verification import ask_source, verify_file
from onnxport.exporters.hub_options import HubOptions
from onnxport.verify.errors import VerificationError
from onnxport.verify.report import Report
from zoo.decoders import ROWS as DECODERS
from zoo.encoder_decoders import write_text_model
from zoo.multimodal import ROWS as MULTIMODAL

pytestmark = pytest.mark.skipif(
    bool(ENGINES["optimum"].missing), reason="Optimum's exporter is not installed here: scripts/test_legacy runs these"
)


def exported(source: Path, task: str) -> Path:
    from optimum.exporters.onnx import main_export

    out = source.parent / "optimum"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer
        main_export(str(source), out, task=task, do_validation=False)
    return out


def verified(path: Path, source: Path, **recipe: str) -> Report:
    return verify_file(ask_source(path, str(source), Recipe(**recipe), HubOptions()))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


def test_the_graphs_of_an_encoder_decoder(source: Path) -> None:
    # Optimum takes heads to be d_model / num_heads wide, transformers 4.57 the decoder to be as deep as the encoder.
    write_text_model("t5", source, d_kv=8, num_decoder_layers=2)
    out = exported(source, "text2text-generation-with-past")
    for name in ("encoder_model", "decoder_model", "decoder_with_past_model"):
        report = verified(out / f"{name}.onnx", source)
        assert not [check for check in report.checks if check.verdict == "fail"]
        assert {check.component for check in report.checks} == {name}
    with pytest.raises(VerificationError, match=r"present\.0\.encoder\.key as a constant in steps with a cache"):
        verified(out / "decoder_model_merged.onnx", source)

    model = onnx.load(out / "decoder_model.onnx")
    weight = max((w for w in model.graph.initializer if len(w.dims) > 1), key=lambda w: len(w.raw_data))
    weight.raw_data = (onnx.numpy_helper.to_array(weight) * 1.5).astype("float32").tobytes()
    onnx.save(model, out / "decoder_model.onnx")
    assert verified(out / "decoder_model.onnx", source).verdict == "fail"


@pytest.mark.parametrize("task", ["text-generation", "text-generation-with-past"])
def test_decoders_with_a_cache_and_without(source: Path, task: str) -> None:
    next(row for row in DECODERS if row.architecture == "gpt2").write(source)
    report = verified(exported(source, task) / "model.onnx", source, task="text-generation")
    assert not [check for check in report.checks if check.verdict == "fail"]


def test_a_dual_encoder_for_images_of_any_size(source: Path) -> None:
    next(row for row in MULTIMODAL if row.architecture == "clip").write(source)
    report = verified(exported(source, "zero-shot-image-classification") / "model.onnx", source)
    assert not [check for check in report.checks if check.verdict == "fail"]


def test_the_halves_of_a_model_that_is_prompted(source: Path) -> None:
    next(row for row in MULTIMODAL if row.architecture == "sam").write(source)
    out = exported(source, "mask-generation")
    for name in ("vision_encoder", "prompt_encoder_mask_decoder"):
        report = verified(out / f"{name}.onnx", source)
        assert not [check for check in report.checks if check.verdict == "fail"]
        assert {check.component for check in report.checks} == {name}
