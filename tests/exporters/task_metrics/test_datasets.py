from __future__ import annotations

from pathlib import Path

import pytest

from onnxport.exporters.datasets import read_dataset
from onnxport.exporters.errors import DatasetError


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text,label\n"one, two",0\nthree,1\n'),
        ("a.csv", '\ufefftext,label\r\n"one, two",0\r\nthree,1\r\n'),  # as spreadsheets write it
        ("a.tsv", "text\tlabel\none, two\t0\nthree\t1\n"),
        ("a.jsonl", '{"text": "one, two", "label": "0"}\n\n{"label": "1", "text": "three"}'),
    ],
)
def test_the_same_examples_in_every_form(name: str, content: str, tmp_path: Path) -> None:
    found = read_dataset(written(tmp_path, name, content))
    assert (found.name, set(found.columns)) == (name, {"text", "label"})
    assert found.column(("sentence", "text"), "texts") == ["one, two", "three"]
    assert found.column(("label",), "labels") == ["0", "1"]


def test_a_folder_has_a_sub_folder_for_each_label(tmp_path: Path) -> None:
    for label, names in {"dog": ["2.png", "1.png"], "cat": ["3.png"], ".cache": ["x"]}.items():
        (tmp_path / label).mkdir()
        for name in names:
            (tmp_path / label / name).touch()
    found = read_dataset(tmp_path)
    assert [(row["file"].name, row["label"]) for row in found.rows] == [
        ("3.png", "cat"),
        ("1.png", "dog"),
        ("2.png", "dog"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "", "a.csv holds no examples"),
        ("a.csv", "text,label\n", "a.csv holds no examples"),
        ("a.jsonl", "\n\n", "a.jsonl holds no examples"),
        ("a.csv", "text,label\none,0\ntwo\n", "a.csv line 3: 1 cells, expected 2: text, label"),
        ("a.csv", "text,label\none, two,0\n", "a.csv line 2: 3 cells, expected 2"),
        ("a.csv", "text,text\none,two\n", "two columns called 'text'"),
        ("a.csv", 'text,label\n"one,0\n', "this is no CSV"),
        ("a.csv", b"text,label\n\xff\xfe,0\n", "a.csv is not UTF-8 text"),
        ("a.jsonl", '{"text": "one"}\n{"text": \n', "a.jsonl line 2: this is no JSON"),
        ("a.jsonl", '["one"]\n', "a.jsonl line 1: expected an object"),
        ("a.jsonl", '{"text": "one"}\n{"txt": "two"}\n', "line 2 has the keys txt; the lines before it have text"),
        ("a.xlsx", "x", r"a.xlsx is no data set; expected a file that ends in .csv, .tsv, .jsonl"),
    ],
)
def test_what_is_no_data_set(name: str, content: str | bytes, told: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=told):
        read_dataset(written(tmp_path, name, content))


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no data set .*gone.csv; give a file \(.csv"):
        read_dataset(tmp_path / "gone.csv")
    with pytest.raises(DatasetError, match="has no sub-folders"):
        read_dataset(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(DatasetError, match="holds no examples"):
        read_dataset(tmp_path)


def test_columns_that_are_missing_or_empty(tmp_path: Path) -> None:
    found = read_dataset(written(tmp_path, "a.csv", "text,note\none,x\ntwo,\n"))
    with pytest.raises(
        DatasetError, match="no column of labels: seen the columns text, note; expected label or labels"
    ):
        found.column(("label", "labels"), "labels")
    with pytest.raises(DatasetError, match="example 2: note is empty"):
        found.column(("note",), "notes")
    numbers = read_dataset(written(tmp_path, "a.jsonl", '{"text": "one"}\n{"text": 2}\n'))
    with pytest.raises(DatasetError, match="example 2: texts is 2; expected text"):
        numbers.texts(("text",), "texts")
