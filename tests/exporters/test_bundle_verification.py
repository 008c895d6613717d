"""Whole bundles against golden tensors and against a reference: what is right passes, what is not fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.exporters.bundle import load_bundle, seal, variant_entry
from onnxport.exporters.cli.app import run
from onnxport.exporters.errors import BundleError
from onnxport.exporters.graph import Variant
from onnxport.exporters.manifest import Component, Manifest, Preprocessing, Verification
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.recording import Recording
from onnxport.exporters.verification import measure_bundle_latency, subjects, verify_bundle
from onnxport.verify.cases import Case
from onnxport.verify.contract import AxisRange, TensorSpec
from onnxport.verify.errors import ProviderError, VerificationError
from onnxport.verify.golden import save_golden
from onnxport.verify.relations import Invariant
from onnxport.verify.report import CheckResult, Report
from onnxport.verify.suites import SUITES
from onnxport.verify.tolerance import ElementTolerance, Statistics, Tolerance

BundleMaker = Callable[..., Path]

WEIGHT = np.random.default_rng(0).normal(0, 0.3, (16, 8)).astype(np.float32)
RECIPE = Recipe(
    variants=("base", "optimized", "fp16", "int8"),
    per_output={"y": ElementTolerance(rtol=1e-3, atol=2e-4)},
    int8=Statistics(min_cosine=0.98, min_argmax_agreement=0.5),
    require_fusion={"Gelu": 1},
)


@dataclass(frozen=True)
class Reference:
    """The function that the graphs claim to be, in numpy."""

    name: str = "numpy"
    offset: float = 0.0
    shift: float = 0.0

    def run(self, case: Case) -> dict[str, np.ndarray]:
        z = case.inputs["x"] @ WEIGHT
        return {"y": np.maximum(z, 0) + np.float32(self.offset), "z": z + np.float32(self.shift)}


def case(rows: int) -> Case:
    x = np.random.default_rng(rows).normal(0, 1, (rows, 16)).astype(np.float32)
    return Case(f"rows-{rows}", {"x": x})


CASES = [case(1), case(3)]


def linear(weight: np.ndarray = WEIGHT) -> onnx.ModelProto:
    """x float32 [batch, 16] -> z float32 [batch, 8] and y = relu(z); weights of another dtype are cast."""
    nodes = [
        helper.make_node("Cast", ["w"], ["wf"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "wf"], ["z"]),
        helper.make_node("Relu", ["z"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 8]) for name in "yz"]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        outputs,
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def write_graphs(root: Path) -> tuple[Variant, ...]:
    (root / "model.onnx").write_bytes(linear().SerializeToString())
    onnx.save(
        linear(), root / "model_optimized.onnx", save_as_external_data=True, location="data.bin", size_threshold=0
    )
    (root / "model_fp16.onnx").write_bytes(linear(WEIGHT.astype(np.float16)).SerializeToString())
    coarse = (np.round(WEIGHT / 0.02) * 0.02).astype(np.float32)
    (root / "model_quantized.onnx").write_bytes(linear(coarse).SerializeToString())
    return (
        Variant("base", root / "model.onnx", None, "float32", "none"),
        Variant("optimized", root / "model_optimized.onnx", root / "data.bin", "float32", "extended"),
        Variant("fp16", root / "model_fp16.onnx", None, "float16", "none"),
        Variant("int8", root / "model_quantized.onnx", None, "int8", "none"),
    )


@pytest.fixture
def make(make_manifest: Callable[..., Manifest]) -> BundleMaker:
    """make(root, recipe, golden=False) -> root, with a bundle of four variants in it."""

    def make(root: Path, recipe: Recipe, golden: bool = True) -> Path:
        root.mkdir()
        (root / "config.json").write_text("{}")
        if golden:
            save_golden(root / "golden.safetensors", CASES, {one.name: Reference().run(one) for one in CASES})
        outputs = tuple(TensorSpec(name=name, dtype="float32", shape=("batch", 8)) for name in "yz")
        component = Component(
            inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 16)),),
            outputs=outputs,
            axes={"batch": AxisRange(proven=(1, 3))},
            engine="torchscript",
            variants={variant.name: variant_entry(variant, root) for variant in write_graphs(root)},
            decisions={"z": -1},
            golden="golden.safetensors" if golden else None,
        )
        verification = Verification(
            verdict="skip",
            suite="standard",
            rtol=recipe.tolerance.rtol,
            atol=recipe.tolerance.atol,
        )
        preprocessing = Preprocessing(files=("config.json",))
        seal(root, make_manifest(component, recipe=recipe, preprocessing=preprocessing, verification=verification))
        return root

    return make


@pytest.fixture
def root(tmp_path: Path, make: BundleMaker) -> Path:
    return make(tmp_path / "bundle", RECIPE.model_copy(update={"require_fusion": {}}))


def failed(report: Report) -> list[CheckResult]:
    return [check for check in report.checks if check.verdict == "fail"]


def ids(checks: list[CheckResult]) -> set[tuple[str, str | None]]:
    return {(check.id, check.variant) for check in checks}


class TestSubjects:
    def test_criterion_by_precision(self, root: Path) -> None:
        manifest = load_bundle(root).manifest
        found = {subject.variant: subject for subject in subjects(root, manifest)}
        float32 = Tolerance(rtol=1e-3, atol=1e-4, per_output=RECIPE.per_output)
        assert found["base"].criterion == found["optimized"].criterion == float32
        assert found["fp16"].criterion == Tolerance(rtol=1e-2, atol=5e-3)
        int8 = found["int8"].criterion
        assert isinstance(int8, Statistics)
        assert (int8.min_cosine, int8.decisions) == (0.98, {"z": -1})

    def test_says_what_the_manifest_says(self, root: Path) -> None:
        manifest = load_bundle(root).manifest
        optimized = next(s for s in subjects(root, manifest) if s.variant == "optimized")
        assert (optimized.component, optimized.path) == ("model", root / "model_optimized.onnx")
        assert optimized.contract.opsets == {"": 17}
        assert optimized.contract.axes["batch"].proven == (1, 3)

    def test_required_fusions_are_those_of_optimized(self, root: Path) -> None:
        manifest = load_bundle(root).manifest.model_copy(update={"recipe": RECIPE})
        required = {subject.variant: subject.required_fusions for subject in subjects(root, manifest)}
        assert required == {"base": {}, "optimized": {"Gelu": 1}, "fp16": {}, "int8": {}}

    def test_overrides(self, root: Path) -> None:
        manifest = load_bundle(root).manifest
        found = {subject.variant: subject.criterion for subject in subjects(root, manifest, rtol=0.5, atol=0.25)}
        assert found["base"] == Tolerance(rtol=0.5, atol=0.25, per_output=RECIPE.per_output)
        assert found["fp16"] == Tolerance(rtol=1e-2, atol=5e-3)  # not in the dtype of the export
        assert isinstance(found["int8"], Statistics)

    def test_only_the_variants_asked(self, root: Path) -> None:
        manifest = load_bundle(root).manifest
        assert [s.variant for s in subjects(root, manifest, ["fp16", "base"])] == ["base", "fp16"]

    def test_unknown_precision(self, root: Path) -> None:
        manifest = load_bundle(root).manifest
        component = manifest.components["model"]
        odd = component.variants["base"].model_copy(update={"precision": "int4"})
        component = component.model_copy(update={"variants": {"base": odd}})
        with pytest.raises(BundleError, match="'int4', for which there is no criterion"):
            subjects(root, manifest.model_copy(update={"components": {"model": component}}))


class TestAgainstGolden:
    def test_passes(self, root: Path) -> None:
        report = verify_bundle(load_bundle(root))
        assert failed(report) == []
        assert report.verdict == "pass"
        matched = {check.variant for check in report.checks if check.id == "golden.match" and check.compared}
        assert matched == {"base", "optimized", "fp16", "int8"}
        hashed = [check.detail.split(":")[0] for check in report.checks if check.id == "files.sha256"]
        assert "bundle.json" in hashed
        assert len(hashed) == len(list(root.iterdir()))
        assert str(root) not in report.to_json()

    def test_same_bundle_same_report(self, root: Path) -> None:
        assert verify_bundle(load_bundle(root)).to_json() == verify_bundle(load_bundle(root)).to_json()

    def test_a_perturbed_weight_fails_that_variant_alone(self, root: Path) -> None:
        weight = WEIGHT.copy()
        weight[0, 0] += 0.05
        (root / "model.onnx").write_bytes(linear(weight).SerializeToString())
        seal(root, load_bundle(root).manifest)  # hashes are right: only the numbers can tell
        report = verify_bundle(load_bundle(root))
        assert report.verdict == "fail"
        assert ids(failed(report)) == {("golden.match", "base"), ("levels.match", "base")}

    def test_only_the_variants_asked(self, root: Path) -> None:
        report = verify_bundle(load_bundle(root), variants=["fp16"])
        assert {check.variant for check in report.checks} == {None, "fp16"}
        assert report.verdict == "pass"

    def test_tighter_tolerance_fails(self, root: Path) -> None:
        near: dict[str, Any] = {"recordings": recorded(*CASES, shift=2e-5), "variants": ["base"]}
        assert verify_bundle(load_bundle(root), **near).verdict == "pass"
        report = verify_bundle(load_bundle(root), rtol=0, atol=1e-5, **near)
        assert ids(failed(report)) == {("outputs.match", "base"), ("levels.match", "base")}
        assert isinstance(report.tolerance, Tolerance)
        assert (report.tolerance.rtol, report.tolerance.atol) == (0, 1e-5)

    def test_missing_fusion_fails(self, tmp_path: Path, make: BundleMaker) -> None:
        make(tmp_path / "bundle", RECIPE)
        report = verify_bundle(load_bundle(tmp_path / "bundle"))
        assert ids(failed(report)) == {("fusion.expected", "optimized")}

    def test_each_suite_puts_more_checks_to_what_is_stored(self, root: Path) -> None:
        found = {}
        for suite in SUITES:
            report = verify_bundle(load_bundle(root), suite=suite, variants=["base"])
            assert report.verdict == "pass"
            found[suite] = {check.id for check in report.checks}
        assert "levels.match" not in found["quick"]
        assert found["standard"] - found["quick"] >= {"levels.match", "iobinding.match", "inputs.rejected"}
        assert found["full"] - found["standard"] == {"reload.match"}
        assert {check.id for check in verify_bundle(load_bundle(root)).checks} == found["standard"] | {
            "fusion.expected"
        }

    def test_one_case_alone(self, root: Path) -> None:
        report = verify_bundle(load_bundle(root), case="rows-3", variants=["base"], suite="quick")
        assert {check.case for check in report.checks if check.id == "golden.match"} == {"rows-3"}
        assert report.verdict == "pass"

    def test_rows_are_asked_for_what_the_reference_keeps(self, root: Path) -> None:
        def rows(**options: Any) -> dict[str, str]:
            report = verify_bundle(load_bundle(root), variants=["base"], **options)
            return {check.detail.split(":")[0]: check.verdict for check in report.checks if check.id[:5] == "rows."}

        assert rows() == {"rows.alone": "skip", "rows.reordered": "skip"}  # this manifest does not say
        kept = {"rows.alone": Invariant(held=True), "rows.reordered": Invariant(held=False)}
        assert rows(recordings=recorded(case(2), invariants=kept)) == {"rows.alone": "pass", "rows.reordered": "skip"}


class TestDamage:
    """A fault is a failed check that names the file; the other checks go on."""

    @staticmethod
    def file_failures(report: Report) -> list[str]:
        assert report.verdict == "fail"
        return [check.detail for check in failed(report) if check.id == "files.sha256"]

    @pytest.mark.parametrize("name", ["config.json", "model.onnx", "data.bin", "golden.safetensors"])
    def test_a_changed_byte(self, root: Path, name: str) -> None:
        data = bytearray((root / name).read_bytes())
        data[-1] ^= 1
        (root / name).write_bytes(data)
        report = verify_bundle(load_bundle(root))
        (detail,) = self.file_failures(report)
        assert detail.startswith(f"{name}: ")
        assert sum(check.verdict == "pass" for check in report.checks) > 5

    @pytest.mark.parametrize("name", ["config.json", "model.onnx", "data.bin", "golden.safetensors"])
    def test_a_missing_file(self, root: Path, name: str) -> None:
        (root / name).unlink()
        report = verify_bundle(load_bundle(root))
        assert self.file_failures(report) == [f"{name}: is missing"]
        if name == "data.bin":
            assert ("session.loads", "optimized") in ids(failed(report))
            assert ("golden.match", "base") not in ids(failed(report))

    def test_an_extra_file(self, root: Path) -> None:
        (root / "sitecustomize.py").write_text("")
        (detail,) = self.file_failures(verify_bundle(load_bundle(root)))
        assert detail.startswith("sitecustomize.py: ")

    def test_an_edited_manifest(self, root: Path) -> None:
        content: dict[str, Any] = json.loads((root / "bundle.json").read_text())
        content["source"]["revision"] = "main"
        (root / "bundle.json").write_text(json.dumps(content))
        report = verify_bundle(load_bundle(root))
        (detail,) = self.file_failures(report)
        assert detail.startswith("bundle.json: ")
        assert ids(failed(report)) == {("files.sha256", None)}

    def test_golden_tensors_of_another_graph(self, root: Path) -> None:
        """Sealed as they should be, and no question that can be put to these graphs: the bundle is at fault."""
        other = Case("other", {"tokens": np.ones((1, 2), np.int64)})
        save_golden(root / "golden.safetensors", [other], {"other": {"y": np.ones((1, 2), np.float32)}})
        seal(root, load_bundle(root).manifest)
        report = verify_bundle(load_bundle(root))
        assert report.verdict == "fail"
        variants = ("base", "optimized", "fp16", "int8")
        assert ids(failed(report)) == {("golden.match", variant) for variant in variants}
        assert str(root) not in report.to_json()


def recorded(*cases: Case, offset: float = 0.0, shift: float = 0.0, **facts: Any) -> dict[str, Recording]:
    return {"model": Recording(Reference(offset=offset, shift=shift), cases, **facts)}


class TestAgainstReference:
    def test_passes(self, root: Path) -> None:
        report = verify_bundle(load_bundle(root), recordings=recorded(case(2)))
        assert report.verdict == "pass"
        assert {check.id for check in report.checks} >= {"outputs.match", "files.sha256"}
        assert "golden.match" not in {check.id for check in report.checks}

    def test_another_model_fails(self, root: Path) -> None:
        report = verify_bundle(load_bundle(root), recordings=recorded(case(2), offset=1.0), variants=["base"])
        assert ids(failed(report)) == {("outputs.match", "base"), ("levels.match", "base")}
        assert {check.output for check in failed(report) if check.id == "outputs.match"} == {"y"}

    def test_a_case_that_the_reference_refused_is_in_the_report(self, root: Path) -> None:
        refused = CheckResult(
            id="outputs.match", component="model", case="long", verdict="skip", detail="PyTorch fails"
        )
        told = {name: one.of_component(name) for name, one in recorded(case(2), checks=(refused,)).items()}
        report = verify_bundle(load_bundle(root), recordings=told)
        filed = refused.model_copy(update={"component": "model"})
        assert [check for check in report.checks if check.case == "long"] == [filed]

    def test_needs_no_golden_tensors(self, tmp_path: Path, make: BundleMaker) -> None:
        make(tmp_path / "bundle", Recipe(), golden=False)
        report = verify_bundle(load_bundle(tmp_path / "bundle"), recordings=recorded(*CASES))
        assert report.verdict == "pass"

    def test_cases_that_do_not_fit(self, root: Path) -> None:
        other = Case("other", {"tokens": np.ones((1, 2), np.int64)})
        with pytest.raises(VerificationError, match="tokens"):
            verify_bundle(load_bundle(root), recordings=recorded(other))

    def test_no_cases(self, root: Path) -> None:
        with pytest.raises(VerificationError, match="no case"):
            verify_bundle(load_bundle(root), recordings=recorded())


class Notes:
    """A stage that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def size(self, size_bytes: int) -> None: ...

    def advance(self, done: int, total: int) -> None: ...


class TestLatency:
    def test_every_variant_on_the_cases_it_is_verified_with(self, root: Path) -> None:
        measured, untimed = measure_bundle_latency(load_bundle(root), Notes())
        assert untimed == []
        assert [(one.variant, one.case, one.sizes) for one in measured] == [
            (variant, f"rows-{rows}", {"batch": rows})
            for variant in ("base", "optimized", "fp16", "int8")
            for rows in (1, 3)
        ]
        assert all(0 < one.min_ms <= one.p50_ms <= one.p90_ms for one in measured)

    def test_on_the_cases_of_a_reference_or_one_alone(self, root: Path) -> None:
        def sizes(**options: Any) -> list[int]:
            measured, _ = measure_bundle_latency(load_bundle(root), Notes(), variants=["base"], **options)
            return [one.sizes["batch"] for one in measured]

        assert sizes(recordings=recorded(case(2), case(7))) == [2, 7]
        assert sizes(case="rows-3") == [3]

    def test_what_cannot_be_timed_is_told_and_the_others_are_timed(self, root: Path) -> None:
        (root / "model.onnx").write_bytes(b"no protobuf")
        measured, (note,) = measure_bundle_latency(load_bundle(root), Notes(), variants=["base", "fp16"])
        assert {one.variant for one in measured} == {"fp16"}
        assert note.startswith("model base was not timed: the process ended with code 1")
        (root / "golden.safetensors").write_bytes(b"nothing")
        measured, (note,) = measure_bundle_latency(load_bundle(root), Notes(), variants=["fp16"])
        assert measured == []
        assert note.startswith("model fp16 was not timed: ")

    def test_the_document_of_a_quiet_run_says_what_could_not_be_timed(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (root / "model.onnx").write_bytes(b"no protobuf")
        flags = ["--suite", "quick", "--variant", "base", "--latency", "--quiet", "--json"]
        assert run(["verify", str(root), *flags]) == 1
        document = json.loads(capsys.readouterr().out)
        assert document["latency"] == []
        (note,) = document["notes"]
        assert note.startswith("model base was not timed: ")

    def test_on_the_command_line_only_when_asked(
        self, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command = ["verify", str(root), "--suite", "quick", "--variant", "base"]
        assert run([*command, "--json"]) == 0
        plain = json.loads(capsys.readouterr().out)
        assert "latency" not in plain
        reports = [tmp_path / f"report.{suffix}" for suffix in ("md", "html", "json")]
        asked = [argument for path in reports for argument in ("--report", str(path))]
        assert run([*command, "--latency", "--json", *asked]) == 0
        timed = json.loads(capsys.readouterr().out)
        assert [(one["variant"], one["sizes"]) for one in timed.pop("latency")] == [
            ("base", {"batch": 1}),
            ("base", {"batch": 3}),
        ]
        assert timed == plain, "it changes no verdict and nothing else"
        assert all("latency" in path.read_text().lower() for path in reports)
        assert run([*command, "--latency"]) == 0
        shown = capsys.readouterr().out
        assert re.search(r"^latency, p50 / p90 ms +base *$", shown, re.MULTILINE)
        assert re.search(r"^batch 3 +[\d.]+ / [\d.]+ *$", shown, re.MULTILINE)
        assert run([*command, "--latency", "--quiet"]) == 0
        assert capsys.readouterr().out.splitlines() == [shown.splitlines()[-1]]
        assert load_bundle(root).digest_ok()
        assert run(command) == 0, "nothing was written into the bundle"


class TestRefusals:
    def test_unknown_variant(self, root: Path) -> None:
        with pytest.raises(BundleError, match=r"no variant .optimised.; .*did you mean .optimized."):
            verify_bundle(load_bundle(root), variants=["base", "optimised"])

    def test_no_variant(self, root: Path) -> None:
        with pytest.raises(BundleError, match="no variant was asked for"):
            verify_bundle(load_bundle(root), variants=[])

    def test_unknown_provider(self, root: Path) -> None:
        with pytest.raises(ProviderError, match="NoSuchExecutionProvider is not available here; expected"):
            verify_bundle(load_bundle(root), provider="NoSuchExecutionProvider")

    def test_nothing_to_compare_with(self, tmp_path: Path, make: BundleMaker) -> None:
        make(tmp_path / "bundle", Recipe(), golden=False)
        with pytest.raises(VerificationError, match="exported without verification"):
            verify_bundle(load_bundle(tmp_path / "bundle"))

    def test_unknown_suite(self, root: Path) -> None:
        with pytest.raises(VerificationError, match="no suite 'complete'"):
            verify_bundle(load_bundle(root), suite="complete")

    def test_unknown_case(self, root: Path) -> None:
        with pytest.raises(VerificationError, match=r"the golden tensors have no case 'rows-4'; .*did you mean 'rows-"):
            verify_bundle(load_bundle(root), case="rows-4")


def test_a_deployment_machine_needs_no_torch(root: Path) -> None:
    code = """
import sys
from onnxport.exporters import load_bundle
from onnxport.exporters.verification import verify_bundle
assert verify_bundle(load_bundle(sys.argv[1])).verdict == "pass"
assert not {"torch", "transformers", "optimum"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)
