"""Labelled examples as people keep them: CSV, TSV or JSON Lines, or a folder with a sub-folder for each label."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxport.exporters.errors import DatasetError

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_JSON_LINES = (".jsonl", ".ndjson")
SUFFIXES = (*_DELIMITERS, *_JSON_LINES)

FILE, LABEL = "file", "label"
"""The columns of a folder: the path of an example, and the name of the sub-folder that it lies in."""


@dataclass(frozen=True)
class Dataset:
    """Examples in the order of their file.

    Attributes:
        name: the file's.
        rows: column to value; every row has the same columns.
        folder: what paths in a column are relative to.
    """

    name: str
    rows: tuple[Mapping[str, Any], ...]
    folder: Path

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.rows[0])

    def has(self, names: Sequence[str]) -> bool:
        """Whether one of these is a column."""
        return any(name in self.columns for name in names)

    def column(self, names: Sequence[str], what: str) -> list[Any]:
        """Returns the values of the first of these columns that there is.

        Raises:
            DatasetError: there is none of them, or a row has nothing there; the message calls them `what`.
        """
        name = next((name for name in names if name in self.columns), None)
        if name is None:
            raise DatasetError(
                f"{self.name} has no column of {what}: seen the columns {', '.join(self.columns)}; "
                f"expected {' or '.join(names)}"
            )
        values = [row[name] for row in self.rows]
        for number, value in enumerate(values, 1):
            if value is None or value in ("", [], {}):
                raise DatasetError(f"{self.name}, example {number}: {name} is empty; give it a value, or drop the row")
        return values

    def texts(self, names: Sequence[str], what: str) -> list[str]:
        """Returns the values of a column of text; raises as `column`, and for what is no text."""
        values = self.column(names, what)
        for number, value in enumerate(values, 1):
            if not isinstance(value, str):
                raise DatasetError(f"{self.name}, example {number}: {what} is {value!r}; expected text")
        return values

    def files(self, names: Sequence[str], what: str) -> list[Path]:
        """Returns the paths of a column; raises as `column`, and where there is no such file."""
        paths = [self.folder / str(value) for value in self.column((FILE, *names), what)]
        for number, path in enumerate(paths, 1):
            if not path.is_file():
                raise DatasetError(f"{self.name}, example {number}: there is no file {path}; paths start where it lies")
        return paths


def read_dataset(path: Path) -> Dataset:
    """Reads a .csv, .tsv or .jsonl file with a row for each example, or a folder with a sub-folder for each label.

    Raises:
        DatasetError: there is no such file, it holds no examples, rows have different columns, or it is malformed.
    """
    if path.is_dir():
        rows = _folder(path)
    elif not path.is_file():
        raise DatasetError(f"there is no data set {path}; give a file ({', '.join(SUFFIXES)}) or a folder")
    elif path.suffix.lower() in _DELIMITERS:
        rows = _table(path, _DELIMITERS[path.suffix.lower()])
    elif path.suffix.lower() in _JSON_LINES:
        rows = _json_lines(path)
    else:
        raise DatasetError(f"{path.name} is no data set; expected a file that ends in {', '.join(SUFFIXES)}")
    try:
        found = tuple(rows)
    except UnicodeDecodeError as e:
        raise DatasetError(f"{path.name} is not UTF-8 text ({e.reason} at byte {e.start}); save it as UTF-8") from e
    except OSError as e:
        raise DatasetError(f"{path} cannot be read: {e.strerror or e}; check its permissions") from e
    if not found:
        raise DatasetError(f"{path.name} holds no examples; give at least two")
    return Dataset(path.name, found, path.parent)


def _table(path: Path, delimiter: str) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter, strict=True)
        try:
            names = list(reader.fieldnames or ())
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise DatasetError(f"{path.name} has two columns called {twice!r}; give each a name of its own")
            for row in reader:
                cells = len(names) + len(row.get(None, ())) - sum(value is None for value in row.values())
                if cells != len(names):
                    raise DatasetError(
                        f"{path.name} line {reader.line_num}: {cells} cells, expected {len(names)}: "
                        f"{', '.join(names)}; quote cells with a {delimiter!r} in them"
                    )
                yield row
        except csv.Error as e:
            raise DatasetError(f"{path.name} line {reader.line_num}: this is no CSV: {e}") from e


def _json_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    columns: set[str] | None = None
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as e:
                raise DatasetError(f"{path.name} line {number}: this is no JSON: {e}") from e
            if not isinstance(row, dict) or not row:
                raise DatasetError(f'{path.name} line {number}: expected an object like {{"text": ..., "label": ...}}')
            columns = columns or set(row)
            if set(row) != columns:
                raise DatasetError(
                    f"{path.name} line {number} has the keys {', '.join(row)}; the lines before it have "
                    f"{', '.join(sorted(columns))}; give every example the same"
                )
            yield row


def _folder(path: Path) -> Iterator[Mapping[str, Any]]:
    labels = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not labels:
        raise DatasetError(f"{path} has no sub-folders; a folder of examples has one for each label")
    for label in labels:
        for file in sorted(label.iterdir()):
            if file.is_file() and not file.name.startswith("."):
                yield {FILE: file, LABEL: label.name}
