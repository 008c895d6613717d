"""`--report FILE` and `--annotate`: refused before the checks run, written whatever the verdict is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from onnxport.exporters.cli.console import Console

if TYPE_CHECKING:
    from onnxport.exporters.manifest import Manifest
    from onnxport.verify.report import Report

_OPTION = "--report"


def refuse_unwritable(paths: Sequence[Path], bundle: Path) -> None:
    """Makes sure that every report can be written: minutes of work should not end with one that cannot.

    Args:
        paths: what was given with --report.
        bundle: the folder of the bundle; a bundle holds nothing but what its manifest lists.

    Raises:
        typer.BadParameter: an unknown suffix, a path in the bundle, a folder that is missing, no right to write.
    """
    from onnxport.verify.reports import FORMATS

    for path in paths:
        if path.suffix.lower() not in FORMATS:
            raise _refused(f"seen {str(path)!r}; reports are written as {', '.join(FORMATS)}")
        if path.resolve().is_relative_to(bundle.resolve()):
            raise _refused(f"{str(path)!r} is in the bundle, which holds only what its manifest lists; write it beside")
        if not path.absolute().parent.is_dir():
            raise _refused(f"{str(path.parent)!r} is no folder; create it first")
        try:
            _try_to_open(path)
        except OSError as error:
            raise _refused(f"{str(path)!r} cannot be written: {error.strerror or error}") from error


def write_reports(paths: Sequence[Path], report: Report) -> None:
    """Writes the report to every path, in the format of its suffix.

    Raises:
        OSError: a file cannot be written.
    """
    from onnxport.verify.reports import render

    for path in paths:
        # A file name that is not UTF-8 becomes an escape, which JSON reads back as it was.
        path.write_text(render(report, path.suffix), encoding="utf-8", errors="backslashreplace", newline="\n")


def print_annotations(console: Console, report: Report, path: Path | None, manifest: Manifest | None) -> None:
    """Prints a workflow annotation for every failure, each at the file of its variant in the bundle's folder.

    Args:
        path: the bundle's folder, or without `manifest` a file in no bundle; None: the annotations are at no file.
    """
    from onnxport.exporters.manifest import MANIFEST_NAME
    from onnxport.verify.reports.annotations import to_annotations

    files: dict[tuple[str | None, str | None], str] = {}
    if path is not None and manifest is None:
        files = {(check.component, check.variant): path.as_posix() for check in report.checks}
    elif path is not None and manifest is not None:
        files[None, None] = (path / MANIFEST_NAME).as_posix()
        for name, component in manifest.components.items():
            files |= {(name, variant): (path / it.file).as_posix() for variant, it in component.variants.items()}
    console.commands(to_annotations(report, files))


def _try_to_open(path: Path) -> None:
    """Opening tells more than permissions do (read-only disks, names too long), and changes nothing."""
    existed = path.exists()
    with path.open("ab"):
        pass
    if not existed:
        path.unlink()


def _refused(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint=_OPTION)
