"""The small syntaxes of --axes, --static and --require-fusion."""

from __future__ import annotations

import pytest
import typer

from onnxport.exporters.cli.flag_syntax import parse_axes, parse_required_fusions, parse_static


def test_axes() -> None:
    assert parse_axes(["input_ids=batch,sequence", "pixel_values = batch, 3 ,224,224"]) == {
        "input_ids": ["batch", "sequence"],
        "pixel_values": ["batch", 3, 224, 224],
    }


def test_static() -> None:
    assert parse_static(["sequence=128", "batch=1"]) == {"sequence": 128, "batch": 1}


def test_required_fusions() -> None:
    assert parse_required_fusions(["Attention=12", "SkipLayerNormalization"]) == {
        "Attention": 12,
        "SkipLayerNormalization": 1,
    }


@pytest.mark.parametrize(
    "flag", ["input_ids", "input_ids=", "=batch", "x=batch,", "x=batch,0", "x=batch,-1", "x=a b", "x=1.5", ""]
)
def test_axes_that_are_none(flag: str) -> None:
    with pytest.raises(typer.BadParameter, match="seen"):
        parse_axes([flag])


@pytest.mark.parametrize(
    "flag",
    [
        *("sequence", "sequence=", "=8", "sequence=0", "sequence=-1", "sequence=x", "sequence=1.5", "sequence=²"),
        pytest.param(f"sequence={'9' * 5000}", id="a number too long"),
    ],
)
def test_static_that_is_none(flag: str) -> None:
    with pytest.raises(typer.BadParameter, match="seen"):
        parse_static([flag])


@pytest.mark.parametrize("flag", ["Attention=0", "Attention=", "=1", "Attention=x"])
def test_required_fusions_that_are_none(flag: str) -> None:
    with pytest.raises(typer.BadParameter, match="seen"):
        parse_required_fusions([flag])


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="twice"):
        parse_static(["batch=1", "batch=2"])
