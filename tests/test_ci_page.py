"""What docs/ci.md shows is accepted: every command parses, the workflow is YAML and its jobs hang together."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from onnxport.exporters.cli.app import run

PAGE = (Path(__file__).parent.parent / "docs" / "ci.md").read_text(encoding="utf-8")


def commands() -> list[list[str]]:
    """Every command line, in a block, in a step of a workflow or in the text, without comment and redirection."""
    found = re.findall(r"(?:^ *(?:run: )?|`)(onnxport [^`\n#>]+)", PAGE, re.MULTILINE)
    return [shlex.split(command)[1:] for command in found]


def test_commands_are_found_wherever_they_stand() -> None:
    assert len(commands()) >= 15
    assert {arguments[0] for arguments in commands()} == {"export", "verify", "inspect", "localize", "env"}


@pytest.mark.parametrize("arguments", [one for one in commands() if len(one) > 1 or one == ["env"]], ids=" ".join)
def test_a_command_is_accepted(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "reports").mkdir()
    offline = ["--offline"] if arguments[0] in ("export", "verify", "localize") else []
    ended = run([*arguments, *offline, "--json"])
    missing = re.search(r'"type": "(SourceError|BundleError|ModelFileError)"', capsys.readouterr().out)
    assert ended == 0 or missing, "only what it names is missing"


def test_the_workflow_hangs_together() -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    workflow: dict[str, Any] = yaml.safe_load(text)
    jobs = workflow["jobs"]
    assert jobs["deploy"]["needs"] == "export"
    assert "[export]" not in str(jobs["deploy"]), "the second machine has no torch"
    uses = {name: [s for s in job["steps"] if "artifact" in s.get("uses", "")] for name, job in jobs.items()}
    assert uses["deploy"][0]["with"]["name"] in {step["with"]["name"] for step in uses["export"]}
    assert all(len({"run", "uses"} & set(step)) == 1 for job in jobs.values() for step in job["steps"])
