from __future__ import annotations

import numpy as np
import pytest

from onnxport.verify import Case, load_golden, save_golden, select_golden
from onnxport.verify.errors import VerificationError


def case(name: str, length: int, padded: bool = False) -> Case:
    mask = np.ones((1, length), np.int64)
    mask[:, : length // 2] = 0 if padded else 1
    return Case(name, {"input_ids": np.arange(length).reshape(1, length), "attention_mask": mask}, "attention_mask")


def outputs_of(cases: list[Case]) -> dict[str, dict[str, np.ndarray]]:
    """16 bytes a token, as much as the inputs: a case takes 32 bytes a token."""
    return {c.name: {"y": np.ones((*c.inputs["input_ids"].shape, 4), np.float32)} for c in cases}


CASES = [case("random.1x8", 8), case("random.1x4", 4), case("padding.left", 6, padded=True), case("text", 10)]


@pytest.mark.parametrize(
    ("budget", "names"),
    [
        (0, ["random.1x4"]),  # at least one, whatever its size
        (10 * 32, ["random.1x4", "padding.left"]),
        (20 * 32, ["random.1x4", "padding.left", "text"]),  # a kind more, rather than a random case more
        (28 * 32, ["random.1x8", "random.1x4", "padding.left", "text"]),
    ],
)
def test_selection_prefers_variety(budget: int, names: list[str]) -> None:
    assert [c.name for c in select_golden(CASES, outputs_of(CASES), budget)] == names


def test_round_trip_with_stable_bytes(tmp_path) -> None:
    outputs = {
        "b": {"y": np.float32(3.5).reshape(()), "ok": np.array([True, False])},
        "a": {"y": np.arange(6, dtype=np.float16).reshape(2, 3).T, "none": np.empty((0, 2), np.int32)},
    }
    cases = [Case("b", {"x": np.array([1])}), Case("a", {"x": np.array([0, 1]), "m": np.array([1, 0])}, "m")]
    save_golden(tmp_path / "one", cases, outputs)
    save_golden(tmp_path / "two", cases, outputs)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    loaded, replay = load_golden(tmp_path / "one")
    assert [(c.name, c.mask, list(c.inputs)) for c in loaded] == [("b", None, ["x"]), ("a", "m", ["x", "m"])]
    for c in loaded:
        found = replay.run(c)
        assert list(found) == list(outputs[c.name])
        for name, array in found.items():
            assert array.dtype == outputs[c.name][name].dtype
            assert array.shape == outputs[c.name][name].shape
            assert (array == outputs[c.name][name]).all()
    assert (loaded[1].inputs["x"] == [0, 1]).all()


def test_only_the_chosen_outputs_are_stored(tmp_path) -> None:
    save_golden(tmp_path / "g", CASES[:1], outputs_of(CASES))
    loaded, replay = load_golden(tmp_path / "g")
    assert [c.name for c in loaded] == ["random.1x8"]
    assert list(replay.outputs) == ["random.1x8"]


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "golden.safetensors"
    save_golden(path, CASES, outputs_of(CASES))
    return path


def test_every_kind_of_damage_names_the_file(stored) -> None:
    whole = stored.read_bytes()
    damaged = {
        "empty": b"",
        "cut header": whole[:40],
        "cut data": whole[:-1],
        "longer": whole + b"\0",
        "flipped byte in a tensor": whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:],
        "renamed case": whole.replace(b"random.1x8", b"random.1x9"),
        "another mask": whole.replace(b'mask\\": \\"attention_mask', b'mask\\": \\"input_ids\\",   ', 1),
        "no safetensors": b"x" * 4000,
    }
    for what, data in damaged.items():
        assert data != whole, what
        stored.write_bytes(data)
        with pytest.raises(VerificationError, match=r"golden\.safetensors"):
            load_golden(stored)


def test_missing_file(tmp_path) -> None:
    with pytest.raises(VerificationError, match=r"none\.safetensors cannot be read"):
        load_golden(tmp_path / "none.safetensors")


def test_other_safetensors(tmp_path) -> None:
    from safetensors.numpy import save_file

    save_file({"weight": np.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(VerificationError, match=r"model\.safetensors holds no golden tensors"):
        load_golden(tmp_path / "model.safetensors")
    save_file({"weight": np.ones(3)}, tmp_path / "model.safetensors", {"golden": "[]"})
    with pytest.raises(VerificationError, match=r"model\.safetensors holds no golden tensors"):
        load_golden(tmp_path / "model.safetensors")


def test_what_cannot_be_stored(tmp_path) -> None:
    with pytest.raises(VerificationError, match="no case"):
        save_golden(tmp_path / "g", [], {})
    with pytest.raises(VerificationError, match="no case"):
        select_golden([], {})
    with pytest.raises(VerificationError, match=r"no outputs for case random\.1x8"):
        save_golden(tmp_path / "g", CASES, {})
    with pytest.raises(VerificationError, match="<U1"):
        save_golden(tmp_path / "g", [CASES[0]], {"random.1x8": {"y": np.array(["a"])}})
