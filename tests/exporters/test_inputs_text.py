from __future__ import annotations

import numpy as np
import pytest

from onnxport.exporters.inputs.text import TextInputs
from onnxport.exporters.preprocessing import load_tokenizer
from onnxport.verify.contract import Vocabulary

NAMES = ("input_ids", "attention_mask", "token_type_ids")


@pytest.fixture
def text(make_checkpoint):
    def text(**changes: object) -> TextInputs:
        fields: dict[str, object] = {
            "names": NAMES, "token_axes": ("batch", "sequence"), "vocab_size": 96, "pad_token_id": 0,
            "type_vocab_size": 2, "max_length": 64, "longest": 64, "static": {},
            "tokenizer": load_tokenizer(make_checkpoint("bert"), trust_remote_code=False),
        }  # fmt: skip
        return TextInputs(**{**fields, **changes})

    return text


def test_a_case_is_the_same_in_every_suite(text) -> None:
    quick, standard, full = (
        {case.name: case for case in text().cases(suite)} for suite in ("quick", "standard", "full")
    )
    assert set(quick) < set(standard) < set(full)
    for smaller, larger in ((quick, standard), (standard, full)):
        for name, case in smaller.items():
            assert all(np.array_equal(array, larger[name].inputs[key]) for key, array in case.inputs.items())


def test_the_protocol(text) -> None:
    cases = {case.name: case.inputs for case in text().cases("standard")}
    assert set(cases) == {
        "random.1x1", "random.2x8", "random.1x23", "random.4x5", "random.1x64", "padding.right", "padding.left",
        "padding.interleaved", "ids.same", "ids.bounds", "types.last", "text", "text.pairs",
    }  # fmt: skip
    assert not cases["ids.same"]["input_ids"].any()
    assert set(cases["ids.bounds"]["input_ids"].flat) == {0, 95}
    assert cases["types.last"]["token_type_ids"].all()
    full = {case.name: case.inputs for case in text().cases("full")}
    assert {"text.languages", "text.special", "random.2x64"} <= set(full) - set(cases)
    special = set(full["text.special"]["input_ids"].flat)
    assert {1, 2, 3, 4} <= special  # unknown, [CLS], [SEP], [MASK]
    assert all((inputs["input_ids"] >= 0).all() and (inputs["input_ids"] < 96).all() for inputs in cases.values())


def test_what_a_model_has_not_is_not_asked(text) -> None:
    assert "types.last" not in {case.name for case in text(type_vocab_size=1).cases("full")}
    assert "types.last" not in {case.name for case in text(names=NAMES[:2]).cases("full")}
    assert not any(case.name.startswith("text") for case in text(tokenizer=None).cases("full"))


def test_global_attention_is_asked_where_the_model_has_it(text) -> None:
    plain, quick = (
        {case.name: case for case in text(**it).cases("quick")} for it in ({}, {"has_global_attention": True})
    )
    assert set(quick) - set(plain) == {"global.first", "global.mixed"}
    first, mixed = (quick[name].inputs["attention_mask"] for name in ("global.first", "global.mixed"))
    assert ((first == 2) == (np.arange(16) == 0)).all()
    assert set(mixed.flat) == {0, 1, 2}
    assert [(row == 2).sum() for row in mixed] == [2, 0, 4]
    assert [(row == 0).sum() for row in mixed] == [4, 0, 4]
    assert (quick["global.mixed"].inputs["input_ids"][mixed == 0] == 0).all()
    standard = {case.name: case.inputs for case in text(has_global_attention=True).cases("standard")}
    assert standard["global.longest"]["attention_mask"].shape == (1, 64)
    assert not any(
        case.name.startswith("global") for case in text(names=NAMES[:1], has_global_attention=True).cases("full")
    )


@pytest.mark.parametrize("static", [{"sequence": 1}, {"sequence": 2}, {"batch": 1}, {"batch": 5, "sequence": 3}])
def test_global_attention_in_fixed_sizes(text, static: dict[str, int]) -> None:
    cases = [case for case in text(has_global_attention=True, static=static).cases("full") if "global" in case.name]
    assert [case.name for case in cases] == ["global.first", "global.mixed", "global.longest"]
    for case in cases:
        mask = case.inputs["attention_mask"]
        assert mask.shape == case.inputs["input_ids"].shape
        assert mask.max() == 2
        assert mask.any(axis=1).all()


def test_vocabularies(text) -> None:
    ids = Vocabulary(size=96, padding=3)
    assert text(pad_token_id=3).vocabularies == {"input_ids": ids, "token_type_ids": Vocabulary(size=2)}
    assert text(names=NAMES[:2], pad_token_id=3).vocabularies == {"input_ids": ids}
    assert set(text(type_vocab_size=0).vocabularies) == {"input_ids"}
