"""Tasks: what each one loads, the axes of its inputs, and how a checkpoint's task is inferred offline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnxport.exporters.errors import TaskError
from onnxport.exporters.sentence_modules import MODULES
from onnxport.exporters.suggestion import expected_one_of

_TOKENS = ("batch", "sequence")


@dataclass(frozen=True)
class Head:
    """A kind of model that does a task.

    Attributes:
        auto_class: the transformers class that loads it.
        mapping: the table of `transformers.models.auto.modeling_auto` that says which architectures fit.
        split: how it is divided into graphs, a row of `components.SPLITS`.
        cached: whether it is loaded with its key and value cache on.
        model_type: of the only model that it is for, where transformers has no table: `auto_class` is its own class.
        outputs, decisions: instead of the task's, where kinds of models differ in them.
    """

    auto_class: str
    mapping: str
    split: str = "single"
    cached: bool = False
    model_type: str | None = None
    outputs: tuple[str, ...] | None = None
    decisions: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Task:
    """A Hugging Face task.

    Attributes:
        name: the Hub's name of the task.
        heads: the kinds of models that do it; a model type is looked for in this order.
        token_axes: axes of every tokenizer input.
        outputs: outputs kept, in order; None keeps every tensor the model returns.
        decisions: outputs whose argmax a user acts on, with the axis.
    """

    name: str
    heads: tuple[Head, ...]
    token_axes: tuple[str, ...] = _TOKENS
    outputs: tuple[str, ...] | None = None
    decisions: Mapping[str, int] = field(default_factory=dict)


_BASE_MODEL = (Head("AutoModel", "MODEL_MAPPING_NAMES"),)


def _classifier(name: str, auto_class: str, mapping: str, **fields: Any) -> Task:
    """A task whose result is the largest of its logits."""
    return Task(name, (Head(auto_class, mapping),), outputs=("logits",), decisions={"logits": -1}, **fields)


def _series_heads(patchtst: str, patchtsmixer: str) -> tuple[Head, ...]:
    """Heads of time series models, for which transformers has no Auto class."""
    named = {"patchtst": f"PatchTST{patchtst}", "patchtsmixer": f"PatchTSMixer{patchtsmixer}"}
    return tuple(Head(name, "", model_type=model_type) for model_type, name in named.items())


# A class for each query, and the mask of each.
_QUERIES: dict[str, Any] = {
    "outputs": ("class_queries_logits", "masks_queries_logits"),
    "decisions": {"class_queries_logits": -1},
}

_ROWS = (
    Task("feature-extraction", _BASE_MODEL),
    Task("sentence-similarity", _BASE_MODEL, outputs=("last_hidden_state", "sentence_embedding")),
    _classifier(
        "text-classification", "AutoModelForSequenceClassification", "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES"
    ),
    _classifier(
        "token-classification", "AutoModelForTokenClassification", "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES"
    ),
    # Before question-answering, which a LayoutLMv3 for documents fits as well.
    Task(
        "document-question-answering",
        (Head("AutoModelForDocumentQuestionAnswering", "MODEL_FOR_DOCUMENT_QUESTION_ANSWERING_MAPPING_NAMES"),),
        outputs=("start_logits", "end_logits"),
        decisions={"start_logits": -1, "end_logits": -1},
    ),
    Task(
        "question-answering",
        (Head("AutoModelForQuestionAnswering", "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES"),),
        outputs=("start_logits", "end_logits"),
        decisions={"start_logits": -1, "end_logits": -1},
    ),
    # Before fill-mask, which the classes that generate fit in the tables of BART and its kin.
    Task(
        "text2text-generation",
        (
            Head(
                "AutoModelForSeq2SeqLM",
                "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
                split="encoder_decoder",
                cached=True,
            ),
        ),
        token_axes=("batch", "encoder_sequence"),
    ),
    _classifier("fill-mask", "AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING_NAMES"),
    _classifier(
        "multiple-choice",
        "AutoModelForMultipleChoice",
        "MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES",
        token_axes=("batch", "choices", "sequence"),
    ),
    Task(
        "image-to-text",
        (
            Head(
                "AutoModelForImageTextToText",
                "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
                split="encoder_decoder",
                cached=True,
            ),
        ),
    ),
    Task(
        "zero-shot-image-classification",
        (Head("AutoModelForZeroShotImageClassification", "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES"),),
        outputs=("logits_per_image", "logits_per_text", "text_embeds", "image_embeds"),
        decisions={"logits_per_image": -1},
    ),
    Task(
        "zero-shot-object-detection",
        (Head("AutoModelForZeroShotObjectDetection", "MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING_NAMES"),),
        outputs=("logits", "pred_boxes", "text_embeds", "image_embeds"),
        decisions={"logits": -1},
    ),
    _classifier(
        "visual-question-answering",
        "AutoModelForVisualQuestionAnswering",
        "MODEL_FOR_VISUAL_QUESTION_ANSWERING_MAPPING_NAMES",
    ),
    Task(
        "mask-generation",
        (Head("AutoModelForMaskGeneration", "MODEL_FOR_MASK_GENERATION_MAPPING_NAMES"),),
        outputs=("iou_scores", "pred_masks"),
    ),
    Task(
        "automatic-speech-recognition",
        (
            Head("AutoModelForCTC", "MODEL_FOR_CTC_MAPPING_NAMES"),
            Head(
                "AutoModelForSpeechSeq2Seq",
                "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
                split="encoder_decoder",
                cached=True,
            ),
        ),
        outputs=("logits",),
        decisions={"logits": -1},
    ),
    _classifier(
        "audio-classification", "AutoModelForAudioClassification", "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES"
    ),
    _classifier(
        "image-classification", "AutoModelForImageClassification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES"
    ),
    Task(
        "object-detection",
        (Head("AutoModelForObjectDetection", "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES"),),
        outputs=("logits", "pred_boxes"),
        decisions={"logits": -1},
    ),
    Task(
        "image-segmentation",
        (
            # A class for each pixel: logits [batch, labels, height, width].
            Head(
                "AutoModelForSemanticSegmentation",
                "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
                outputs=("logits",),
                decisions={"logits": 1},
            ),
            Head("AutoModelForUniversalSegmentation", "MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES", **_QUERIES),
            Head("AutoModelForInstanceSegmentation", "MODEL_FOR_INSTANCE_SEGMENTATION_MAPPING_NAMES", **_QUERIES),
            Head(
                "AutoModelForImageSegmentation",
                "MODEL_FOR_IMAGE_SEGMENTATION_MAPPING_NAMES",
                outputs=("logits", "pred_boxes", "pred_masks"),
                decisions={"logits": -1},
            ),
        ),
    ),
    Task(
        "depth-estimation",
        (Head("AutoModelForDepthEstimation", "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES"),),
        outputs=("predicted_depth",),
    ),
    Task(
        "image-to-image",
        (Head("AutoModelForImageToImage", "MODEL_FOR_IMAGE_TO_IMAGE_MAPPING_NAMES"),),
        outputs=("reconstruction",),
    ),
    Task(
        "masked-im",
        (Head("AutoModelForMaskedImageModeling", "MODEL_FOR_MASKED_IMAGE_MODELING_MAPPING_NAMES"),),
        outputs=("reconstruction",),
    ),
    # The speakers of a frame are found by a threshold for each.
    Task(
        "audio-frame-classification",
        (Head("AutoModelForAudioFrameClassification", "MODEL_FOR_AUDIO_FRAME_CLASSIFICATION_MAPPING_NAMES"),),
        outputs=("logits",),
    ),
    Task(
        "audio-xvector",
        (Head("AutoModelForAudioXVector", "MODEL_FOR_AUDIO_XVECTOR_MAPPING_NAMES"),),
        outputs=("logits", "embeddings"),
    ),
    # Every output is kept: a head that predicts a distribution has one per parameter, to be shifted and scaled.
    Task("time-series-forecasting", _series_heads("ForPrediction", "ForPrediction")),
    Task(
        "time-series-classification",
        _series_heads("ForClassification", "ForTimeSeriesClassification"),
        decisions={"prediction_logits": -1, "prediction_outputs": -1},
    ),
    Task("time-series-regression", _series_heads("ForRegression", "ForRegression")),
    # After fill-mask, which the classes that do both (XLM) are made for.
    Task(
        "text-generation",
        (Head("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", split="decoder", cached=True),),
        decisions={"logits": -1},
    ),
)
TASKS: Mapping[str, Task] = {task.name: task for task in _ROWS}
_SYNONYMS = {
    "image-feature-extraction": "feature-extraction",
    "semantic-segmentation": "image-segmentation",
    "instance-segmentation": "image-segmentation",
    "panoptic-segmentation": "image-segmentation",
    "universal-segmentation": "image-segmentation",
    "masked-image-modeling": "masked-im",
    "summarization": "text2text-generation",
    "translation": "text2text-generation",
}
"""What people call a task besides, and its name in the table."""

PLAIN_MODULE_TASK = "plain-module"
"""What bundle.json calls the task of a module that does not come from a checkpoint."""


def task_named(name: str) -> Task:
    """Returns the task of that name.

    Raises:
        TaskError: the name is not in the table; the message has the nearest one and all of them.
    """
    name = _SYNONYMS.get(name, name)
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
        if any(_architectures(head, config) for head in task.heads)
        and (task.name != "sentence-similarity" or (folder / MODULES).is_file())
    ]


def choose_task(asked: str | None, config: Any, folder: Path) -> tuple[Task, Head]:
    """Returns the task asked for, or the one the checkpoint's own files name, and the head that fits the model.

    sentence-transformers' modules.json means sentence-similarity; otherwise `config.architectures` decides.

    Raises:
        TaskError: unknown, does not fit the model type, or cannot be inferred; the message lists what fits.
    """
    fits = fitting_tasks(config, folder)
    listed = ", ".join(fits) or "none of onnxport's tasks"
    if asked is not None:
        task = task_named(asked)
        if task.name in fits:
            return _for_head(task, _head(task, config))
        if task.name == "sentence-similarity" and "feature-extraction" in fits:
            raise TaskError(
                "task 'sentence-similarity' needs sentence-transformers' modules.json, which the checkpoint does not "
                "have; choose the task feature-extraction (--task)"
            )
        raise TaskError(f"task {asked!r} does not fit model type {config.model_type!r}; what fits: {listed}")
    if "sentence-similarity" in fits:
        return TASKS["sentence-similarity"], _BASE_MODEL[0]
    named = tuple(getattr(config, "architectures", None) or ())
    # CLIPModel is a base model and what a task asks for: the task says more.
    for name in sorted(fits, key=lambda name: name == "feature-extraction"):
        for head in TASKS[name].heads:
            if set(named) & _architectures(head, config):
                return _for_head(TASKS[name], head)
    seen = f"config.architectures is {', '.join(named)}" if named else "config.json has no architectures"
    raise TaskError(f"cannot tell the task: {seen}; give the task (--task), one that fits: {listed}")


def _for_head(task: Task, head: Head) -> tuple[Task, Head]:
    """The task with what its head says otherwise of outputs and decisions."""
    outputs = task.outputs if head.outputs is None else head.outputs
    decisions = task.decisions if head.decisions is None else head.decisions
    return replace(task, outputs=outputs, decisions=decisions), head


def _head(task: Task, config: Any) -> Head:
    """The head whose classes the config names, else the first that exists for the model type."""
    fitting = [head for head in task.heads if _architectures(head, config)]
    named = set(getattr(config, "architectures", None) or ())
    return next((head for head in fitting if named & _architectures(head, config)), fitting[0])


def _architectures(head: Head, config: Any) -> set[str]:
    """The names of the classes for a model; none where this transformers has no such table.

    A checkpoint that brings code of its own names its class for each of transformers' in `auto_map`.
    """
    if head.model_type is not None:
        return {head.auto_class} if head.model_type == config.model_type else set()
    from transformers.models.auto import modeling_auto

    names = getattr(modeling_auto, head.mapping, {}).get(config.model_type, ())
    own = (getattr(config, "auto_map", None) or {}).get(head.auto_class)
    brought = {own.rpartition(".")[2]} if isinstance(own, str) else set()
    return ({names} if isinstance(names, str) else set(names)) | brought
