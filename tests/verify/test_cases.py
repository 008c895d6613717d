from __future__ import annotations

import numpy as np
import pytest

from onnxport.verify import Case, GraphContract, TensorSpec
from onnxport.verify.cases import require_cases
from onnxport.verify.errors import VerificationError


def ids(*shape: int, dtype: type = np.int64) -> np.ndarray:
    return np.ones(shape, dtype=dtype)


def test_a_mask_must_be_an_input() -> None:
    with pytest.raises(VerificationError, match="takes its mask from 'mask', but its inputs are \\['input_ids'\\]"):
        Case("one", {"input_ids": ids(1, 2)}, "mask")


def test_fitting_cases(cases: list[Case], contract: GraphContract) -> None:
    require_cases(cases, contract)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": ids(2, 3)}, "asks for \\['attention_mask', 'input_ids'\\]"),
        ({"input_ids": ids(2, 3), "attention_mask": ids(2, 3), "extra": ids(2)}, "has the inputs"),
        ({"input_ids": ids(2, 3), "attention_mask": ids(2, 3, dtype=np.int32)}, "is int32 .* asks for int64"),
        ({"input_ids": ids(2, 3), "attention_mask": ids(2)}, "asks for int64 \\['batch', 'sequence'\\]"),
        ({"input_ids": ids(2, 3), "attention_mask": ids(2, 4)}, "axis 'sequence' is 4 there and 3 in input_ids"),
    ],
)
def test_cases_that_do_not_fit(inputs, message: str, contract: GraphContract) -> None:
    with pytest.raises(VerificationError, match=message):
        require_cases([Case("one", inputs)], contract)


def test_fixed_sizes() -> None:
    contract = GraphContract(inputs=(TensorSpec(name="x", dtype="int64", shape=(1, 3)),), outputs=())
    require_cases([Case("one", {"x": ids(1, 3)})], contract)
    with pytest.raises(VerificationError, match="axis 3 is 4 there and 3 in the contract"):
        require_cases([Case("one", {"x": ids(1, 4)})], contract)


def test_sums_of_axes() -> None:
    def ask(mask: str, *, length: int) -> None:
        shapes = {"ids": ("batch", "new"), "mask": ("batch", mask), "cache": ("batch", "past")}
        inputs = tuple(TensorSpec(name=name, dtype="int64", shape=shape) for name, shape in shapes.items())
        case = Case("one", {"ids": ids(2, 3), "mask": ids(2, length), "cache": ids(2, 4)})
        require_cases([case], GraphContract(inputs=inputs, outputs=()))

    ask("past+new", length=7)
    ask("new+1", length=4)
    with pytest.raises(VerificationError, match="past\\+new is 8 there and 7 in the other inputs"):
        ask("past+new", length=8)
    with pytest.raises(VerificationError, match=r"mask has an axis prefix\+new, and no input has an axis prefix; the"):
        ask("prefix+new", length=7)


def test_no_cases_and_equal_names(contract: GraphContract, cases: list[Case]) -> None:
    with pytest.raises(VerificationError, match="no case"):
        require_cases([], contract)
    with pytest.raises(VerificationError, match="Several cases are called plain"):
        require_cases([cases[0], cases[0]], contract)


def test_a_mask_needs_axis_names(cases: list[Case]) -> None:
    with pytest.raises(VerificationError, match="Pass contract="):
        require_cases(cases, None)
