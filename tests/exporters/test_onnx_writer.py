"""The two forms of a file, read back by onnx and ONNX Runtime, and what the writer refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.exporters import onnx_writer
from onnxport.exporters.errors import VariantError
from onnxport.exporters.onnx_writer import Weight, read_skeleton, split_large, write_model, write_reference

RNG = np.random.default_rng(0)
W = RNG.normal(size=(64, 512)).astype(np.float32)
BIG = RNG.normal(size=(512, 600)).astype(np.float32)  # above 1 MiB: on a page of its own
BIAS = RNG.normal(size=(600,)).astype(np.float32)


def weight(name: str, array: np.ndarray) -> Weight:
    def write(file: BinaryIO) -> None:
        file.write(array.tobytes())

    return Weight(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.nbytes, write)


def skeleton() -> onnx.ModelProto:
    """x float32 [n, 64] -> (x @ W) @ BIG + BIAS * scale, with `scale` inline."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "W"], ["a"]),
            helper.make_node("MatMul", ["a", "BIG"], ["b"]),
            helper.make_node("Mul", ["BIAS", "scale"], ["c"]),
            helper.make_node("Add", ["b", "c"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 600])],
        [numpy_helper.from_array(np.array(2.0, np.float32), "scale")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


WEIGHTS = [weight("W", W), weight("BIAS", BIAS), weight("BIG", BIG)]


def run(path: Path) -> np.ndarray:
    x = np.arange(128, dtype=np.float32).reshape(2, 64) / 64
    out: np.ndarray = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(out, x @ W @ BIG + BIAS * 2, rtol=1e-4, atol=1e-3)
    return out


@pytest.mark.parametrize("form", ["never", "always"])
def test_both_forms_are_read_by_onnx_and_by_onnxruntime(tmp_path: Path, form: onnx_writer.ExternalData) -> None:
    path = tmp_path / "m.onnx"
    data = write_model(skeleton(), WEIGHTS, path, external_data=form)

    onnx.checker.check_model(path, full_check=True)
    loaded = onnx.load(path)
    arrays = {t.name: numpy_helper.to_array(t) for t in loaded.graph.initializer}
    assert [*arrays] == ["scale", "W", "BIAS", "BIG"]
    np.testing.assert_array_equal(arrays["BIG"], BIG)
    run(path)
    assert data == (tmp_path / "m.onnx_data" if form == "always" else None)
    assert sorted(p.name for p in tmp_path.iterdir()) == (["m.onnx", "m.onnx_data"] if data else ["m.onnx"])


def test_the_single_file_is_what_protobuf_itself_would_parse_and_has_one_graph_field(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write_model(skeleton(), WEIGHTS, path)
    data = path.read_bytes()

    fields, at = [], 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        value, at = _read_varint(data, at)
        fields.append(tag >> 3)
        if tag & 7 == 2:
            at += value
    assert at == len(data)
    assert fields.count(7) == 1

    whole = skeleton()
    whole.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in (("W", W), ("BIAS", BIAS), ("BIG", BIG)))
    assert onnx.load_from_string(data) == whole


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def test_external_data_has_a_bare_location_aligned_offsets_and_lengths(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write_model(skeleton(), WEIGHTS, path, external_data="always")
    entries = {
        t.name: {e.key: e.value for e in t.external_data}
        for t in onnx.load(path, load_external_data=False).graph.initializer
        if t.name != "scale"
    }
    assert {e["location"] for e in entries.values()} == {"m.onnx_data"}
    assert int(entries["BIAS"]["offset"]) % 64 == 0
    assert int(entries["BIG"]["offset"]) % 4096 == 0
    assert {n: int(e["length"]) for n, e in entries.items()} == {"W": W.nbytes, "BIAS": BIAS.nbytes, "BIG": BIG.nbytes}


@pytest.mark.parametrize("form", ["never", "always"])
def test_the_same_model_gives_the_same_bytes(tmp_path: Path, form: onnx_writer.ExternalData) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_model(skeleton(), WEIGHTS, tmp_path / name / "m.onnx", external_data=form)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


@pytest.mark.parametrize("form", ["never", "always"])
def test_files_have_the_permissions_of_the_umask(tmp_path: Path, form: onnx_writer.ExternalData) -> None:
    write_model(skeleton(), WEIGHTS, tmp_path / "m.onnx", external_data=form)
    plain = tmp_path / "plain"
    plain.touch()
    assert {p.stat().st_mode for p in tmp_path.iterdir()} == {plain.stat().st_mode}


def test_a_skeleton_read_back_can_be_written_in_the_other_form_and_over_itself(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write_model(skeleton(), WEIGHTS, path, external_data="always")
    expected = run(path)

    proto, weights = read_skeleton(path)
    assert [t.name for t in proto.graph.initializer] == ["scale"]
    assert [(w.name, w.shape, w.size_bytes) for w in weights] == [(w.name, w.shape, w.size_bytes) for w in WEIGHTS]
    write_model(proto, weights, tmp_path / "single.onnx", external_data="never")
    np.testing.assert_array_equal(run(tmp_path / "single.onnx"), expected)

    write_model(proto, weights[::-1], path, external_data="always")  # streams from the file that it replaces
    np.testing.assert_array_equal(run(path), expected)


def test_split_large_takes_out_what_is_large_and_leaves_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write_model(skeleton(), WEIGHTS, path)
    proto = onnx.load(path)
    weights = split_large(proto, min_size_bytes=BIAS.nbytes)
    assert [w.name for w in weights] == ["W", "BIAS", "BIG"]
    assert [t.name for t in proto.graph.initializer] == ["scale"]
    again = tmp_path / "again.onnx"
    write_model(proto, weights, again)
    assert again.read_bytes() == path.read_bytes()
    assert split_large(onnx.load(path), min_size_bytes=BIG.nbytes + 1) == []


def test_auto_keeps_one_file_below_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert write_model(skeleton(), WEIGHTS, tmp_path / "small.onnx") is None
    monkeypatch.setattr(onnx_writer, "AUTO_LIMIT_BYTES", BIG.nbytes)
    assert write_model(skeleton(), WEIGHTS, tmp_path / "large.onnx") == tmp_path / "large.onnx_data"


def test_never_above_protobufs_limit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    huge = Weight("W", TensorProto.FLOAT, (2**29,), 2**31, lambda _: pytest.fail("must not be written"))
    with pytest.raises(VariantError, match="external_data"):
        write_model(skeleton(), [huge], tmp_path / "m.onnx", external_data="never")
    assert list(tmp_path.iterdir()) == []


def _write_zeros(file: BinaryIO, count: int) -> None:
    file.write(bytes(count))


@pytest.mark.parametrize("form", ["never", "always"])
@pytest.mark.parametrize("off_by", [-4, 4])
def test_a_weight_that_writes_another_size_leaves_no_file(
    tmp_path: Path, form: onnx_writer.ExternalData, off_by: int
) -> None:
    wrong = Weight("W", TensorProto.FLOAT, W.shape, W.nbytes, lambda f: _write_zeros(f, W.nbytes + off_by))
    with pytest.raises(VariantError, match=f"wrote {W.nbytes + off_by} bytes, declared {W.nbytes}"):
        write_model(skeleton(), [wrong], tmp_path / "m.onnx", external_data=form)
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_file_system_comes_through_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"old")

    def full(_: BinaryIO) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_model(skeleton(), [Weight("W", TensorProto.FLOAT, W.shape, W.nbytes, full)], path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_external_tensors_of_sub_graphs_are_read_into_the_skeleton(tmp_path: Path) -> None:
    inner = numpy_helper.from_array(np.arange(6, dtype=np.float32), "inner")
    branches = [
        helper.make_graph(
            [helper.make_node("Identity", [name], [f"{name}_out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [6])],
            [numpy_helper.from_array(numpy_helper.to_array(inner) * k, name)],
        )
        for k, name in ((1, "yes"), (-1, "no"))
    ]
    (tmp_path / "sub_data").write_bytes(b"".join(b.initializer[0].raw_data for b in branches))
    for k, branch in enumerate(branches):
        onnx.external_data_helper.set_external_data(branch.initializer[0], "sub_data", k * 24, 24)
        branch.initializer[0].ClearField("raw_data")
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])],
        "g",
        [helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6])],
    )
    source = tmp_path / "sub.onnx"
    source.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    proto, weights = read_skeleton(source)
    assert weights == []
    (tmp_path / "out").mkdir()
    write_model(proto, weights, tmp_path / "out" / "m.onnx")
    session = ort.InferenceSession(tmp_path / "out" / "m.onnx")
    np.testing.assert_array_equal(session.run(None, {"c": np.array(False)})[0], -np.arange(6))


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda p: p.with_name("m.onnx_data").unlink(), "missing"),
        (lambda p: os.truncate(p.with_name("m.onnx_data"), 1000), "incomplete"),
        (lambda p: p.write_bytes(p.read_bytes().replace(b"m.onnx_data", b"../etc/pass")), "not inside"),
        (lambda p: p.write_bytes(p.read_bytes().replace(b"m.onnx_data", b"/etc/passwd")), "not inside"),
        (lambda p: p.write_bytes(b"not a model"), "not an ONNX model"),
    ],
)
def test_damaged_models_are_refused(tmp_path: Path, damage, match: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "m.onnx"
    write_model(skeleton(), WEIGHTS, path, external_data="always")
    damage(path)
    with pytest.raises(VariantError, match=match):
        read_skeleton(path)


def test_memory_does_not_grow_with_the_weights(tmp_path: Path) -> None:
    script = f"""
import resource, onnx
from pathlib import Path
from onnxport.exporters.onnx_writer import Weight, read_skeleton, write_model
out = Path({str(tmp_path)!r})
def write(f):
    for _ in range(64): f.write(bytes(2**20))
weights = [Weight(f"w{{i}}", 1, (2**24,), 2**26, write) for i in range(4)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write_model(onnx.ModelProto(), weights, out / "m.onnx", external_data="always")
write_model(*read_skeleton(out / "m.onnx"), out / "single.onnx", external_data="never")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (tmp_path / "single.onnx").stat().st_size > 2**28
    assert int(done.stdout) < 32 * 1024  # KiB; the weights are 256 MiB


@pytest.mark.parametrize("external_data", ["always", "never"])
def test_a_reference_uses_the_weights_where_they_are(tmp_path: Path, external_data: Literal["always", "never"]) -> None:
    table = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "table"], ["y"])],
        "g",
        [value("x", onnx.TensorProto.FLOAT, ["n", 64])],
        [value("y", onnx.TensorProto.FLOAT, ["n", 32])],
        [onnx.numpy_helper.from_array(table, "table")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "bundle").mkdir()
    write_model(model, split_large(model), tmp_path / "bundle" / "model.onnx", external_data=external_data)
    write_reference(tmp_path / "bundle" / "model.onnx", tmp_path / "work.onnx")
    assert (tmp_path / "work.onnx").stat().st_size < 500
    x = np.ones((3, 64), np.float32)
    session = ort.InferenceSession(tmp_path / "work.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ table, rtol=1e-5)
    assert onnx.numpy_helper.to_array(onnx.load(tmp_path / "work.onnx").graph.initializer[0]).tolist() == table.tolist()
