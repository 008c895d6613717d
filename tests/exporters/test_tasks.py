"""Tasks by name."""

from __future__ import annotations

import pytest

from onnxport.exporters.errors import TaskError
from onnxport.exporters.tasks import TASKS, task_named


def test_every_task_is_found_by_its_name() -> None:
    assert [task_named(name) for name in TASKS] == list(TASKS.values())


def test_an_unknown_task_is_told_the_nearest_and_all_others() -> None:
    told = r"^unknown task 'fill-msk': expected feature-extraction, .* or [a-z-]+; did you mean 'fill-mask'\?$"
    with pytest.raises(TaskError, match=told):
        task_named("fill-msk")
