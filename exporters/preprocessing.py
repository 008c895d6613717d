"""The tokenizer and processor of a checkpoint: loaded to make inputs, copied into the bundle byte for byte."""

from __future__ import annotations

import inspect
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxport.exporters.errors import SourceError
from onnxport.exporters.first_line import first_line
from onnxport.exporters.hub_options import require_no_code
from onnxport.exporters.own_code import code_files
from onnxport.exporters.sentence_modules import MODULES, read_stage_entries

_GENERATION = "generation_config.json"
# Everything beside the weights that a consumer of the checkpoint reads.
_COPIED = (
    "config.json",
    _GENERATION,
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "bpe.codes",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "chat_template.jinja",
    "preprocessor_config.json",
    "processor_config.json",
    MODULES,
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "LICENSE",
    "LICENSE.txt",
    "NOTICE",
)
_VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "bpe.codes",
)


@dataclass(frozen=True)
class Processors:
    """What makes the inputs of a checkpoint's model, as transformers loads it; None where the checkpoint has none."""

    tokenizer: Any | None = None
    feature_extractor: Any | None = None
    image_processor: Any | None = None


def load_processors(folder: Path, *, trust_remote_code: bool) -> Processors:
    """Loads whatever the checkpoint has.

    Raises:
        SourceError: files are there, but what they describe cannot be loaded.
    """
    if (folder / _GENERATION).is_file():
        # transformers passes over one that is damaged, and it would be copied into the bundle.
        _read_object(folder, _GENERATION)
    return Processors(
        tokenizer=load_tokenizer(folder, trust_remote_code=trust_remote_code),
        feature_extractor=load_feature_extractor(folder, trust_remote_code=trust_remote_code),
        image_processor=load_image_processor(folder, trust_remote_code=trust_remote_code),
    )


def load_tokenizer(folder: Path, *, trust_remote_code: bool) -> Any | None:
    """Returns transformers' tokenizer of the checkpoint, or None when the folder has no tokenizer files at all.

    Raises:
        SourceError: there are tokenizer files, but they cannot be loaded or hold no vocabulary.
    """
    present = [name for name in (*_VOCABULARIES, "tokenizer_config.json") if (folder / name).is_file()]
    if not present:
        return None
    if present == ["tokenizer_config.json"]:
        # transformers 5 makes an empty tokenizer of this, without a word.
        raise SourceError(
            f"the tokenizer of {folder.name} has a tokenizer_config.json but no vocabulary; expected one of "
            f"{', '.join(_VOCABULARIES)}; add it, or remove tokenizer_config.json to export without a tokenizer"
        )
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code, local_files_only=True)
        if "boxes" in inspect.signature(type(tokenizer).__call__).parameters:
            tokenizer = _for_plain_text(tokenizer)
        ids = tokenizer("one two")["input_ids"]
    except Exception as e:
        require_no_code(e, folder.name)
        raise SourceError(
            f"the tokenizer of {folder.name} cannot be loaded ({type(e).__name__}: {first_line(e)}); mend its "
            "files, or remove them to export without a tokenizer"
        ) from e
    if not ids or len(tokenizer) <= len(set(tokenizer.all_special_tokens)):
        raise SourceError(
            f"the tokenizer of {folder.name} loads but knows {len(tokenizer)} tokens, all of them special; its "
            "vocabulary file is missing or empty"
        )
    return tokenizer


def _for_plain_text(tokenizer: Any) -> Any:
    """LayoutLM's later tokenizers refuse words without boxes: the same tokens, and the boxes left to the caller."""
    from transformers import PreTrainedTokenizerFast

    names = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        **{name: getattr(tokenizer, name) for name in names},
        model_max_length=tokenizer.model_max_length,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        model_input_names=[name for name in tokenizer.model_input_names if name != "bbox"],
    )


def load_feature_extractor(folder: Path, *, trust_remote_code: bool) -> Any | None:
    """Returns transformers' feature extractor for audio, or None where no file describes one.

    An image processor has the same file: what tells them apart in any age of it is the sampling rate.

    Raises:
        SourceError: the file cannot be read, or what it describes cannot be loaded.
    """
    if not any("sampling_rate" in described for described in _read_processors(folder, "feature_extractor")):
        return None
    from transformers import AutoFeatureExtractor

    try:
        return AutoFeatureExtractor.from_pretrained(folder, trust_remote_code=trust_remote_code, local_files_only=True)
    except Exception as e:
        require_no_code(e, folder.name)
        raise SourceError(
            f"the feature extractor of {folder.name} cannot be loaded ({type(e).__name__}: {first_line(e)}); mend "
            "preprocessor_config.json, or remove it to export with the defaults of its class"
        ) from e


# Any of these tells an image processor from a feature extractor for audio, whose file has the same name.
_IMAGE_SETTINGS = ("image_processor_type", "image_mean", "do_resize", "do_rescale")


def load_image_processor(folder: Path, *, trust_remote_code: bool) -> Any | None:
    """Returns transformers' image processor, or None where no file describes one.

    It is the one that works with Pillow, wherever there are two: the same numbers with torchvision and without.

    Raises:
        SourceError: the file cannot be read, or what it describes cannot be loaded.
    """
    if not any(
        "sampling_rate" not in described and any(name in described for name in _IMAGE_SETTINGS)
        for described in _read_processors(folder, "image_processor")
    ):
        return None
    import transformers

    which = {"backend": "pil"} if int(transformers.__version__.split(".")[0]) >= 5 else {"use_fast": False}
    try:
        return transformers.AutoImageProcessor.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True, **which
        )
    except Exception as e:
        require_no_code(e, folder.name)
        raise SourceError(
            f"the image processor of {folder.name} cannot be loaded ({type(e).__name__}: {first_line(e)}); mend "
            "preprocessor_config.json, or remove it to take the size of the images from config.json"
        ) from e


def _read_processors(folder: Path, part: str) -> list[dict[str, Any]]:
    """What the files say of one processor: a whole preprocessor_config.json, a part of a processor_config.json.

    Raises:
        SourceError: a file holds something else than a JSON object.
    """
    found = []
    for name in ("processor_config.json", "preprocessor_config.json"):
        if not (folder / name).is_file():
            continue
        content = _read_object(folder, name)
        described = content.get(part) if name == "processor_config.json" else content
        if isinstance(described, dict):
            found.append(described)
    return found


def _read_object(folder: Path, name: str) -> dict[str, Any]:
    """What a file of settings says.

    Raises:
        SourceError: it holds something else than a JSON object.
    """
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise SourceError(f"{name} of {folder.name} cannot be read ({first_line(e)}); mend or remove it") from e
    if not isinstance(content, dict):
        raise SourceError(f"{name} of {folder.name} holds a {type(content).__name__}, expected an object")
    return content


def copy_files(folder: Path, tokenizer: Any | None, target: Path, *, code: bool = False) -> tuple[str, ...]:
    """Copies the settings and tokenizer files into the bundle and returns their paths, sorted.

    A tokenizer that has only slow files gets a tokenizer.json beside them, so that `tokenizers` alone can read it.

    Args:
        code: copy the Python files too that configurations name (auto_map), which cannot be loaded without them.
    """
    copied = [name for name in _COPIED if (folder / name).is_file()]
    if code:
        copied += code_files(folder)
    # Stages of sentence-transformers, "1_Pooling/config.json". Pickles stay behind: what runs is text that can be read.
    stages = [
        path.relative_to(folder).as_posix()
        for entry in read_stage_entries(folder)
        if entry.path
        for path in sorted((folder / entry.path).glob("*"))
        if path.suffix in {".json", ".safetensors"}
    ]
    for name in [*copied, *stages]:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        # The Hub's cache is made of links; a bundle holds files.
        shutil.copyfile((folder / name).resolve(), target / name)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and "tokenizer.json" not in copied:
        backend.save(str(target / "tokenizer.json"))
        copied.append("tokenizer.json")
    return tuple(sorted([*copied, *stages]))
