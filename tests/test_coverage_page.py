"""docs/coverage.md is written by scripts/coverage: it has every tiny checkpoint of the zoo, and nothing else."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
FAMILIES = sorted(path.stem for path in (ROOT / "tests" / "zoo").glob("*.py") if "ROWS" in path.read_text("utf-8"))


def rows() -> list[tuple[str, str, str]]:
    """Architecture, task and verdict of every line of the tables; components of one model are lines of their own."""
    found = []
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "architecture":
            found.append((cells[0].split(":")[0], cells[1].split()[0], cells[4]))
    return found


def test_the_page_is_of_the_zoo_as_it_is() -> None:
    zoo = [(row.architecture, row.task) for family in FAMILIES for row in importlib.import_module(f"zoo.{family}").ROWS]
    assert {(architecture, task) for architecture, task, _ in rows()} == set(zoo)


def test_sixty_rows_and_more_are_verified() -> None:
    told = re.search(r"^(\d+) of (\d+) rows verified", PAGE, re.MULTILINE)
    assert told is not None
    verified = {(architecture, task) for architecture, task, verdict in rows() if verdict == "pass"}
    assert len(verified) >= 60
    assert int(told.group(1)) >= len(verified)
