"""Recipes: what is read, what is refused, and how a refusal reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxport.exporters.errors import RecipeError
from onnxport.exporters.recipe import Recipe
from onnxport.exporters.recipe_file import load_recipe, override, parse_recipe, shipped


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_recipe_is_valid_and_described(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe != Recipe(), "a shipped recipe that changes nothing is of no use"
    assert len(shipped()[name]) > 20


def test_some_recipes_are_shipped() -> None:
    assert {"sentence-embeddings", "int8-cpu", "static-128"} <= set(shipped())


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "opset: 18\nrtol: 1e-3\natol: 5.0e-5\naxes:\n  input_ids: [batch, 128]\nrequire_fusion: {Attention: 12}\n"
    )
    recipe = load_recipe(str(path))
    assert recipe.opset == 18
    assert recipe.rtol == 1e-3
    assert recipe.atol == 5e-5
    assert recipe.axes == {"input_ids": ("batch", 128)}
    assert recipe.require_fusion == {"Attention": 12}


def test_an_empty_file_is_the_default_recipe() -> None:
    assert parse_recipe("# nothing\n", "empty.yaml") == Recipe()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("task: x\nopsett: 17", ["r.yaml line 2", "opsett", "did you mean 'opset'"]),
        ("opset: '17'", ["line 1", "opset", "seen '17'", "a whole number"]),
        ("opset: true", ["seen True", "a whole number"]),
        ("dtype: bfloat16", ["seen 'bfloat16'", "CPU provider has no operators for bfloat16"]),
        ("opset: 0", ["seen 0", "greater than 0"]),
        ("level: extnded", ["did you mean 'extended'", "none, basic, extended or all"]),
        ("static:\n  sequence: 0", ["line 2", "static.sequence", "seen 0"]),
        ("variants: base", ["variants", "seen 'base'"]),
        ("rtol: -1", ["rtol", "seen -1"]),
        ("rtol: .inf", ["rtol", "seen inf"]),
        ("rtol: .nan", ["rtol", "seen nan"]),
        ("opset: 17\nopset: 18", ["line 2", "given twice", "line 1"]),
        ("static: {batch: 1, batch: 2}", ["static.batch", "given twice"]),
        ("level: all", ["level all", "this-machine"]),
        ("axes: {input_ids: [batch, 0]}", ["input_ids", "not 0"]),
        ("axes: {input_ids: [batch, '']}", ["input_ids", "not ''"]),
        ("int8: {min_cos: 1}", ["int8.min_cos", "did you mean 'min_cosine'"]),
        ("per_output: {x: {rtol: 1}}", ["per_output.x.atol", "missing"]),
        ("per_output: {x: {rtol: 1, atol: 1, btol: 1}}", ["per_output.x.btol", "rtol or atol"]),
        ("variants: [base, optimised]", ["line 1", "variants.1", "did you mean 'optimized'"]),
        ("variants: [base, base]", ["variants.1", "twice"]),
        ("opset: 17\ntask: text-clasification", ["line 2", "did you mean 'text-classification'"]),
        ("- 1", ["mapping", "list"]),
        ("a: [", ["r.yaml line 1", "not YAML"]),
        ("!!python/object:os.system {}", ["r.yaml line 1", "not YAML"]),
        ("axes: &a [*a]", ["r.yaml", "contains itself"]),
        ("axes: &a {x: *a}", ["r.yaml", "contains itself"]),
        ("[" * 5000, ["r.yaml", "nested too deeply"]),
        pytest.param("opset: " + "9" * 5000, ["r.yaml", "cannot be read"], id="a number too long"),
        ("task: 2024-13-45", ["r.yaml", "cannot be read", "month"]),
        ("2024-01-01: x", ["r.yaml", "cannot be read"]),
    ],
)
def test_what_is_no_recipe_is_refused(text: str, told: list[str]) -> None:
    with pytest.raises(RecipeError) as refused:
        parse_recipe(text, "r.yaml")
    for part in told:
        assert part in str(refused.value)


def test_every_mistake_of_a_file_is_told_at_once() -> None:
    with pytest.raises(RecipeError) as refused:
        parse_recipe("opset: x\nlevel: y\nfoo: 1\n", "r.yaml")
    assert len(str(refused.value).splitlines()) == 3


def test_a_name_that_is_not_shipped_suggests_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match="did you mean 'sentence-embeddings'"):
        load_recipe("sentence-embedings")
    (tmp_path / "mine").write_text("opset: 18")
    with pytest.raises(RecipeError, match=r"write \./mine"):
        load_recipe("mine")
    assert load_recipe("./mine").opset == 18


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="No such file"):
        load_recipe(str(tmp_path / "missing.yaml"))
    with pytest.raises(RecipeError, match="Is a directory"):
        load_recipe(str(tmp_path))
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="not UTF-8"):
        load_recipe(str(tmp_path / "binary.yaml"))


def test_flags_win_over_the_recipe() -> None:
    recipe = Recipe(opset=18, static={"sequence": 128}, variants=("base", "int8"))
    result = override(recipe, opset=None, rtol=0.5, static={"batch": 2}, variants=["base"], outputs=[])
    assert result.opset == 18
    assert result.rtol == 0.5
    assert result.static == {"sequence": 128, "batch": 2}
    assert result.variants == ("base",)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (
            {"level": "extnded"},
            "--level: seen 'extnded'; expected none, basic, extended or all; did you mean 'extended'?",
        ),
        ({"require_fusion": {"Attention": 0}}, "--require-fusion Attention: seen 0"),
        ({"static": {"sequence": 0}}, "--static sequence: seen 0"),
        ({"level": "all"}, "this-machine"),
        ({"opset": -1}, "--opset: seen -1"),
        ({"require_fusion": {"Attention": 1}, "variants": ["int8"]}, "not among int8; add --variant optimized"),
    ],
)
def test_a_flag_that_does_not_fit_is_refused(flags: dict[str, object], told: str) -> None:
    with pytest.raises(RecipeError) as refused:
        override(Recipe(), **flags)
    assert told in str(refused.value)
