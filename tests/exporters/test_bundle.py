"""Bundles built here with real graphs: what is sealed is what is read back, and nothing else is let in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.exporters.bundle import Bundle, load_bundle, seal, variant_entry
from onnxport.exporters.errors import BundleError
from onnxport.exporters.graph import Variant
from onnxport.exporters.manifest import (
    Component,
    Manifest,
    Preprocessing,
    VariantEntry,
)
from onnxport.exporters.toolchain import toolchain
from onnxport.verify.contract import AxisRange, TensorSpec
from onnxport.verify.errors import ModelFileError, SessionError, VerificationError
from onnxport.verify.report import CheckResult, Report
from onnxport.verify.tolerance import FLOAT32

Edit = Callable[[dict[str, Any]], None]
BundleMaker = Callable[[Path], Manifest]


def linear(scale: float = 1.0) -> onnx.ModelProto:
    """x float32 [batch, 16] -> y float32 [batch, 16]."""
    weight = np.random.default_rng(0).normal(0, 0.3, (16, 16)).astype(np.float32) * np.float32(scale)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Relu", ["z"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 16])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def write_variants(root: Path) -> dict[str, Variant]:
    """Writes base (weights inside) and optimized (weights in a file beside it)."""
    (root / "model.onnx").write_bytes(linear().SerializeToString())
    onnx.save(
        linear(),
        root / "model_optimized.onnx",
        save_as_external_data=True,
        location="model_optimized.onnx_data",
        size_threshold=0,
    )
    base = Variant("base", root / "model.onnx", None, "float32", "none")
    optimized = Variant(
        "optimized",
        root / "model_optimized.onnx",
        root / "model_optimized.onnx_data",
        "float32",
        "extended",
        fusions={"com.microsoft:Gelu": 1},
        session_options={"graph_optimization_level": "none", "intra_op_num_threads": "1"},
        notes=("nothing to fuse",),
    )
    return {"base": base, "optimized": optimized}


def component_of(variants: dict[str, VariantEntry]) -> Component:
    return Component(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 16)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 16)),),
        axes={"batch": AxisRange(proven=(1, 3))},
        engine="torchscript",
        variants=variants,
    )


@pytest.fixture
def make(make_manifest: Callable[..., Manifest]) -> BundleMaker:
    """make(root) -> the sealed manifest of the bundle that is then in root."""

    def make(root: Path) -> Manifest:
        root.mkdir()
        (root / "tokenizer.json").write_text("{}")
        (root / "1_Pooling").mkdir()
        (root / "1_Pooling" / "config.json").write_text("{}")
        entries = {name: variant_entry(variant, root) for name, variant in write_variants(root).items()}
        return seal(root, make_manifest(component_of(entries), preprocessing=Preprocessing(files=("tokenizer.json",))))

    return make


@pytest.fixture
def root(tmp_path: Path, make: BundleMaker) -> Path:
    make(tmp_path / "bundle")
    return tmp_path / "bundle"


class TestSeal:
    def test_reads_back_what_was_sealed(self, tmp_path: Path, make: BundleMaker) -> None:
        sealed = make(tmp_path / "bundle")
        bundle = load_bundle(tmp_path / "bundle")
        assert bundle.manifest == sealed
        assert bundle.digest_ok()
        assert [record.path for record in sealed.files] == [
            "1_Pooling/config.json",
            "model.onnx",
            "model_optimized.onnx",
            "model_optimized.onnx_data",
            "tokenizer.json",
        ]

    def test_hashes_are_those_of_sha256sum(self, root: Path) -> None:
        run = subprocess.run(["sha256sum", "model.onnx"], cwd=root, capture_output=True, text=True, check=True)
        record = next(r for r in load_bundle(root).manifest.files if r.path == "model.onnx")
        assert record.sha256 == run.stdout.split()[0]
        assert record.size_bytes == (root / "model.onnx").stat().st_size

    def test_same_input_same_bytes(self, tmp_path: Path, make: BundleMaker) -> None:
        for name in ("a", "b"):
            make(tmp_path / name)
        first, second = ((tmp_path / name / "bundle.json").read_bytes() for name in ("a", "b"))
        assert first == second
        assert str(tmp_path).encode() not in first
        assert first.endswith(b"}\n")

    def test_sealing_again_changes_nothing(self, root: Path) -> None:
        before = (root / "bundle.json").read_bytes()
        seal(root, load_bundle(root).manifest)
        assert (root / "bundle.json").read_bytes() == before

    def test_refuses_a_link(self, root: Path) -> None:
        (root / "vocab.txt").symlink_to("tokenizer.json")
        with pytest.raises(BundleError, match=r"vocab\.txt is a link"):
            seal(root, load_manifest(root))

    def test_refuses_a_linked_folder(self, root: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (root / "2_Dense").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(BundleError, match="2_Dense is a link"):
            seal(root, load_manifest(root))

    def test_refuses_a_hard_link(self, root: Path, tmp_path: Path) -> None:
        os.link(root / "tokenizer.json", tmp_path / "blob")
        with pytest.raises(BundleError, match=r"tokenizer\.json is a hard link"):
            seal(root, load_manifest(root))

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
    def test_refuses_a_special_file(self, root: Path) -> None:
        os.mkfifo(root / "pipe")
        with pytest.raises(BundleError, match="neither a file nor a folder"):
            seal(root, load_manifest(root))

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot make such names")
    @pytest.mark.parametrize("name", [b"a\\b", b"\xff", b"c:d"])
    def test_refuses_a_name_that_other_systems_read_otherwise(self, root: Path, name: bytes) -> None:
        (root / os.fsdecode(name)).write_text("")
        with pytest.raises(BundleError, match="name cannot be stored"):
            seal(root, load_manifest(root))

    def test_refuses_a_manifest_that_names_no_file(self, root: Path) -> None:
        manifest = load_manifest(root)
        (root / "tokenizer.json").unlink()
        with pytest.raises(BundleError, match=r"tokenizer\.json as a preprocessing file"):
            seal(root, manifest)

    def test_refuses_a_number_that_json_has_not(self, root: Path) -> None:
        manifest = load_manifest(root)
        endless = manifest.verification.model_copy(update={"atol": float("inf")})
        with pytest.raises(BundleError, match="use finite ones"):
            seal(root, manifest.model_copy(update={"verification": endless}))

    def test_refuses_a_missing_folder(self, tmp_path: Path, make_manifest: Callable[..., Manifest]) -> None:
        with pytest.raises(BundleError, match="cannot be read"):
            seal(tmp_path / "nowhere", make_manifest(component_of({})))


def load_manifest(root: Path) -> Manifest:
    return Manifest.model_validate_json((root / "bundle.json").read_text())


class TestVariantEntry:
    def test_says_what_the_file_says(self, root: Path) -> None:
        entry = load_bundle(root).variant("optimized")
        assert entry.file == "model_optimized.onnx"
        assert entry.external_data == "model_optimized.onnx_data"
        assert entry.opsets == {"": 17}
        assert entry.ops == {"ai.onnx:MatMul": 1, "ai.onnx:Relu": 1}
        assert entry.size_bytes == sum((root / f"model_optimized.onnx{x}").stat().st_size for x in ("", "_data"))
        assert (entry.ir_version, entry.min_onnxruntime, entry.portable) == (8, "1.12", True)
        assert entry.notes == ("nothing to fuse",)

    def test_a_variant_for_this_machine_only_stays_one(self, root: Path) -> None:
        variant = replace(write_variants(root)["base"], portable=False)
        assert not variant_entry(variant, root).portable

    def test_facts_of_another_file(self, root: Path) -> None:
        (root / "model.ort").write_bytes(b"\x10\0\0\0ORTM" + bytes(24))
        variant = Variant("ort", root / "model.ort", None, "float32", "all", facts_path=root / "model.onnx")
        entry = variant_entry(variant, root)
        assert (entry.file, entry.size_bytes, entry.ops["ai.onnx:MatMul"]) == ("model.ort", 32, 1)

    def test_refuses_a_graph_that_uses_another_data_file(self, root: Path) -> None:
        """An optimised graph saved without its own data still points at the data of the base graph."""
        variants = write_variants(root)
        shutil.copy(root / "model_optimized.onnx", root / "model_fp16.onnx")
        variant = replace(variants["optimized"], path=root / "model_fp16.onnx", external_data=None)
        with pytest.raises(BundleError, match=r"keeps weights in model_optimized\.onnx_data"):
            variant_entry(variant, root)

    def test_refuses_missing_data(self, root: Path) -> None:
        variants = write_variants(root)
        (root / "model_optimized.onnx_data").unlink()
        with pytest.raises(BundleError, match="save the graph again"):
            variant_entry(variants["optimized"], root)

    def test_refuses_a_file_outside(self, root: Path, tmp_path: Path) -> None:
        shutil.copy(root / "model.onnx", tmp_path / "model.onnx")
        with pytest.raises(BundleError, match="outside the bundle"):
            variant_entry(replace(write_variants(root)["base"], path=tmp_path / "model.onnx"), root)

    def test_refuses_what_is_no_model(self, root: Path) -> None:
        (root / "model.onnx").write_bytes(b"nothing")
        with pytest.raises(ModelFileError):
            variant_entry(Variant("base", root / "model.onnx", None, "float32", "none"), root)


class TestSession:
    def test_computes(self, root: Path) -> None:
        bundle = load_bundle(root)
        x = np.ones((2, 16), np.float32)
        weight = numpy_helper.to_array(linear().graph.initializer[0])
        for variant in ("base", "optimized", None):
            (y,) = bundle.session(variant).run(None, {"x": x})
            np.testing.assert_allclose(y, np.maximum(x @ weight, 0), rtol=1e-5, atol=1e-5)

    def test_prefers_the_optimized_variant(self, root: Path) -> None:
        assert load_bundle(root).file().name == "model_optimized.onnx"

    def test_falls_back_to_base(self, root: Path) -> None:
        manifest = load_manifest(root)
        component = manifest.components["model"]
        base_only = component.model_copy(update={"variants": {"base": component.variants["base"]}})
        seal(root, manifest.model_copy(update={"components": {"model": base_only}}))
        assert load_bundle(root).file().name == "model.onnx"

    def test_uses_the_recorded_options_and_the_overrides(self, root: Path) -> None:
        bundle = load_bundle(root)
        assert bundle.session().get_session_options().intra_op_num_threads == 1
        session = bundle.session(intra_op_num_threads=2, **{"session.disable_prepacking": True})
        options = session.get_session_options()
        assert options.intra_op_num_threads == 2
        assert options.get_session_config_entry("session.disable_prepacking") == "1"
        assert bundle.session("base").get_session_options().intra_op_num_threads == 0

    def test_refusals(self, root: Path) -> None:
        bundle = load_bundle(root)
        with pytest.raises(BundleError, match="no variant 'fp16'; it has base, optimized"):
            bundle.session("fp16")
        with pytest.raises(BundleError, match="no component 'decoder'; it has model"):
            bundle.session(component="decoder")
        with pytest.raises(SessionError, match="NoSuchExecutionProvider"):
            bundle.session(provider="NoSuchExecutionProvider")
        (root / "model.onnx").unlink()
        with pytest.raises(BundleError, match="is missing although"):
            bundle.session("base")

    def test_several_components_must_be_named(self, root: Path) -> None:
        manifest = load_manifest(root)
        one = manifest.components["model"]
        components = {"encoder_model": one, "decoder_model": one}
        seal(root, manifest.model_copy(update={"components": components}))
        with pytest.raises(BundleError, match="encoder_model, decoder_model; say which"):
            load_bundle(root).session()
        assert load_bundle(root).file(component="decoder_model").is_file()


def edit(root: Path, change: Edit) -> None:
    path = root / "bundle.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def set_file(path: object) -> Edit:
    def change(content: dict[str, Any]) -> None:
        content["components"]["model"]["variants"]["base"]["file"] = path

    return change


class TestLoad:
    def test_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(BundleError, match="is missing"):
            load_bundle(tmp_path / "nowhere")

    def test_a_file(self, root: Path) -> None:
        with pytest.raises(BundleError, match="is a file"):
            load_bundle(root / "model.onnx")

    def test_no_manifest(self, tmp_path: Path) -> None:
        with pytest.raises(BundleError, match=r"has no bundle\.json"):
            load_bundle(tmp_path)

    @pytest.mark.parametrize(
        "content",
        [b"", b"{", b"\xff\xfe", b"null", b"[]", b'"text"', b"1", b"[" * 100_000, b'{"a": NaN}', b'{"a": 1, "a": 2}'],
    )
    def test_malformed_json(self, root: Path, content: bytes) -> None:
        (root / "bundle.json").write_bytes(content)
        with pytest.raises(BundleError, match=r"bundle\.json"):
            load_bundle(root)

    @pytest.mark.parametrize("version", [2, 0, "1", None])
    def test_unknown_schema_version(self, root: Path, version: object) -> None:
        edit(root, lambda content: content.update(schema_version=version))
        with pytest.raises(BundleError, match=f"schema_version {version!r}, this onnxport reads 1"):
            load_bundle(root)

    def test_unknown_key(self, root: Path) -> None:
        edit(root, lambda content: content["verification"].update(signed_by="me"))
        with pytest.raises(BundleError, match=r"verification\.signed_by: Extra inputs are not permitted"):
            load_bundle(root)

    def test_missing_key(self, root: Path) -> None:
        edit(root, lambda content: content.pop("source"))
        with pytest.raises(BundleError, match="source: Field required"):
            load_bundle(root)

    @pytest.mark.parametrize(
        "path", ["../model.onnx", "a/../../b", "/etc/passwd", "C:/a", "C:a", "..\\a", "", ".", "a//b"]
    )
    def test_a_path_that_leads_out(self, root: Path, path: str) -> None:
        edit(root, set_file(path))
        with pytest.raises(BundleError, match=r"variants\.base\.file"):
            load_bundle(root)

    def test_a_hash_for_a_file_outside(self, root: Path) -> None:
        edit(root, lambda content: content["files"][0].update(path="../secret"))
        with pytest.raises(BundleError, match=r"files\.0\.path"):
            load_bundle(root)

    def test_a_variant_whose_file_is_not_hashed(self, root: Path) -> None:
        edit(root, set_file("other.onnx"))
        with pytest.raises(BundleError, match=r"other\.onnx as base of model"):
            load_bundle(root)

    def test_a_file_listed_twice(self, root: Path) -> None:
        edit(root, lambda content: content["files"].append(content["files"][0]))
        with pytest.raises(BundleError, match="twice"):
            load_bundle(root)

    @pytest.mark.parametrize("components", [{}, {"model": None}])
    def test_nothing_to_load(self, root: Path, components: dict[str, Any]) -> None:
        def change(content: dict[str, Any]) -> None:
            empty = {**content["components"]["model"], "variants": {}}
            content["components"] = {name: empty for name in components}

        edit(root, change)
        with pytest.raises(BundleError, match="no component, or one without variants"):
            load_bundle(root)

    @pytest.mark.parametrize("inside", [True, False])
    def test_a_link_wherever_it_leads(self, root: Path, tmp_path: Path, inside: bool) -> None:
        moved = (root if inside else tmp_path) / "real.onnx"
        (root / "model.onnx").rename(moved)
        (root / "model.onnx").symlink_to(moved)
        with pytest.raises(BundleError, match=r"model\.onnx is a link"):
            load_bundle(root)

    def test_a_linked_parent_folder(self, root: Path, tmp_path: Path) -> None:
        (root / "1_Pooling").rename(tmp_path / "pooling")
        (root / "1_Pooling").symlink_to(tmp_path / "pooling")
        with pytest.raises(BundleError, match="1_Pooling is a link"):
            load_bundle(root)

    def test_a_linked_manifest(self, root: Path, tmp_path: Path) -> None:
        (root / "bundle.json").rename(tmp_path / "bundle.json")
        (root / "bundle.json").symlink_to(tmp_path / "bundle.json")
        with pytest.raises(BundleError, match=r"bundle\.json is a link"):
            load_bundle(root)

    def test_the_way_to_the_bundle_may_be_a_link(self, root: Path, tmp_path: Path) -> None:
        (tmp_path / "latest").symlink_to(root)
        assert load_bundle(tmp_path / "latest").session("base")

    def test_can_be_moved(self, root: Path, tmp_path: Path) -> None:
        moved = shutil.move(root, tmp_path / "moved")
        bundle = load_bundle(moved)
        assert bundle.digest_ok()
        assert bundle.session()


class TestReport:
    def test_skipped(self, root: Path) -> None:
        assert load_bundle(root).report() is None

    def test_reads_back(self, root: Path) -> None:
        report = Report.of([CheckResult(id="files.sha256", verdict="pass", detail="")], FLOAT32)
        with_report(root, report.to_json())
        assert load_bundle(root).report() == report

    def test_refusals(self, root: Path) -> None:
        with_report(root, "{}")
        with pytest.raises(VerificationError):
            load_bundle(root).report()
        (root / "report.json").unlink()
        with pytest.raises(BundleError, match="cannot be read"):
            load_bundle(root).report()


def with_report(root: Path, text: str) -> None:
    (root / "report.json").write_text(text)
    manifest = load_manifest(root)
    verification = manifest.verification.model_copy(update={"verdict": "pass", "report": "report.json"})
    seal(root, manifest.model_copy(update={"verification": verification}))


class TestDigest:
    def test_any_edit_is_noticed(self, root: Path) -> None:
        for change in (
            lambda content: content["verification"].update(verdict="pass"),
            lambda content: content["files"][0].update(sha256="0" * 64),
            lambda content: content["recipe"].update(rtol=1.0),
            lambda content: content.update(digest=""),
            lambda content: content.pop("digest"),
        ):
            sealed = (root / "bundle.json").read_bytes()
            edit(root, change)
            assert not load_bundle(root).digest_ok()
            (root / "bundle.json").write_bytes(sealed)
            assert load_bundle(root).digest_ok()

    def test_layout_of_the_json_does_not_matter(self, root: Path) -> None:
        edit(root, lambda content: None)
        assert load_bundle(root).digest_ok()


class TestToolchain:
    def test_names_versions_and_no_host(self) -> None:
        found = toolchain("torchscript")
        assert found.engine == "torchscript"
        assert found.onnx == onnx.__version__
        assert found.platform.startswith(sys.platform + "-")
        assert os.uname().nodename not in found.model_dump_json()
        assert os.uname().release not in found.model_dump_json()

    def test_refuses_to_record_an_export_without_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("onnxport.exporters.toolchain.installed_version", lambda package: None)
        with pytest.raises(BundleError, match="is not installed"):
            toolchain("torchscript")


def test_a_deployment_machine_needs_no_torch(root: Path) -> None:
    """Reading a bundle and opening a session loads neither torch nor transformers; loading it not even ONNX Runtime."""
    code = """
import sys
from onnxport.exporters import load_bundle
bundle = load_bundle(sys.argv[1])
assert "onnxruntime" not in sys.modules
bundle.session()
assert not {"torch", "transformers", "optimum"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)


def test_bundle_is_a_plain_value(root: Path) -> None:
    assert load_bundle(root) == Bundle(root, load_manifest(root))
