"""Tasks: what each one loads, the axes of its inputs, and how a checkpoint's task is inferred offline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxport.exporters.errors import TaskError
from onnxport.exporters.sentence_modules import MODULES
from onnxport.exporters.suggestion import expected_one_of

_TOKENS = ("batch", "sequence")


@dataclass(frozen=True)
class Task:
    """A Hugging Face task.

    Attributes:
        name: the Hub's name of the task.
        auto_class: the transformers class that loads it.
        mapping: the table of `transformers.models.auto.modeling_auto` that says which architectures fit.
        token_axes: axes of every tokenizer input.
        outputs: outputs kept, in order; None keeps every tensor the model returns.
        decisions: outputs whose argmax a user acts on, with the axis.
    """

    name: str
    auto_class: str
    mapping: str
    token_axes: tuple[str, ...] = _TOKENS
    outputs: tuple[str, ...] | None = None
    decisions: Mapping[str, int] = field(default_factory=dict)


_ROWS = (
    Task("feature-extraction", "AutoModel", "MODEL_MAPPING_NAMES"),
    Task(
        "sentence-similarity",
        "AutoModel",
        "MODEL_MAPPING_NAMES",
        outputs=("last_hidden_state", "sentence_embedding"),
    ),
    Task(
        "text-classification",
        "AutoModelForSequenceClassification",
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        outputs=("logits",),
        decisions={"logits": -1},
    ),
    Task(
        "token-classification",
        "AutoModelForTokenClassification",
        "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
        outputs=("logits",),
        decisions={"logits": -1},
    ),
    Task(
        "question-answering",
        "AutoModelForQuestionAnswering",
        "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
        outputs=("start_logits", "end_logits"),
        decisions={"start_logits": -1, "end_logits": -1},
    ),
    Task(
        "fill-mask",
        "AutoModelForMaskedLM",
        "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
        outputs=("logits",),
        decisions={"logits": -1},
    ),
    Task(
        "multiple-choice",
        "AutoModelForMultipleChoice",
        "MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES",
        token_axes=("batch", "choices", "sequence"),
        outputs=("logits",),
        decisions={"logits": -1},
    ),
)
TASKS: Mapping[str, Task] = {task.name: task for task in _ROWS}

PLAIN_MODULE_TASK = "plain-module"
"""What bundle.json calls the task of a module that does not come from a checkpoint."""


def task_named(name: str) -> Task:
    """Returns the task of that name.

    Raises:
        TaskError: the name is not in the table; the message has the nearest one and all of them.
    """
    if name in TASKS:
        return TASKS[name]
    raise TaskError(f"unknown task {name!r}: {expected_one_of(name, TASKS)}")


def fitting_tasks(config: Any, folder: Path) -> list[str]:
    """Lists the tasks whose transformers class exists for this `config.model_type`.

    `sentence-similarity` fits only a folder with sentence-transformers' modules.json.
    """
    return [
        task.name
        for task in TASKS.values()
        if _architectures(task, config.model_type)
        and (task.name != "sentence-similarity" or (folder / MODULES).is_file())
    ]


def choose_task(asked: str | None, config: Any, folder: Path) -> Task:
    """Returns the task asked for, or the one the checkpoint's own files name.

    sentence-transformers' modules.json means sentence-similarity; otherwise `config.architectures` decides.

    Raises:
        TaskError: unknown, does not fit the model type, or cannot be inferred; the message lists what fits.
    """
    fits = fitting_tasks(config, folder)
    listed = ", ".join(fits) or "none of onnxport's tasks"
    if asked is not None:
        task = task_named(asked)
        if task.name in fits:
            return task
        if task.name == "sentence-similarity" and "feature-extraction" in fits:
            raise TaskError(
                "task 'sentence-similarity' needs sentence-transformers' modules.json, which the checkpoint does not "
                "have; choose the task feature-extraction (--task)"
            )
        raise TaskError(f"task {asked!r} does not fit model type {config.model_type!r}; what fits: {listed}")
    if "sentence-similarity" in fits:
        return TASKS["sentence-similarity"]
    named = tuple(getattr(config, "architectures", None) or ())
    for name in fits:
        if set(named) & _architectures(TASKS[name], config.model_type):
            return TASKS[name]
    seen = f"config.architectures is {', '.join(named)}" if named else "config.json has no architectures"
    raise TaskError(f"cannot tell the task: {seen}; give the task (--task), one that fits: {listed}")


def _architectures(task: Task, model_type: str) -> set[str]:
    from transformers.models.auto import modeling_auto

    names = getattr(modeling_auto, task.mapping).get(model_type, ())
    return {names} if isinstance(names, str) else set(names)
