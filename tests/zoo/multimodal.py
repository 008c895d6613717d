"""Models that read more than one kind of input: dual encoders, documents, questions about images, prompts for masks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers

from zoo import TinyModel, randomise
from zoo.tokenizer import VOCABULARY, write_tokenizer
from zoo.vision import image_processor

_TEXT: dict[str, Any] = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}


def _write_clip(folder: Path) -> None:
    # The position at which a text ends is where CLIP reads it off: [SEP] is what ends one here.
    ends = {"bos_token_id": 2, "eos_token_id": 3}
    config = transformers.CLIPConfig(
        # The width is said thrice, so that each tower can be loaded by itself.
        text_config={**_TEXT, **ends, "projection_dim": 24},
        vision_config={**_VISION, "projection_dim": 24},
        projection_dim=24,
        logit_scale_init_value=1.0,
    )
    _write(transformers.CLIPModel(config), folder, token_types=False)
    image_processor("CLIP")(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)


def _write_siglip(folder: Path) -> None:
    config = transformers.SiglipConfig(text_config=_TEXT, vision_config=_VISION)
    _write(transformers.SiglipModel(config), folder, token_types=False)
    image_processor("Siglip")(size={"height": 32, "width": 32}).save_pretrained(folder)


def _write_chinese_clip(folder: Path) -> None:
    config = transformers.ChineseCLIPConfig(
        text_config=_TEXT, vision_config=_VISION, projection_dim=24, logit_scale_init_value=1.0
    )
    _write(transformers.ChineseCLIPModel(config), folder)
    image_processor("ChineseCLIP")(
        size={"height": 32, "width": 32}, crop_size={"height": 32, "width": 32}
    ).save_pretrained(folder)


def _write_owlvit(folder: Path) -> None:
    ends = {"bos_token_id": 2, "eos_token_id": 3}
    config = transformers.OwlViTConfig(text_config={**_TEXT, **ends}, vision_config=_VISION, projection_dim=32)
    _write(transformers.OwlViTForObjectDetection(config), folder, token_types=False)
    image_processor("OwlViT")(size={"height": 32, "width": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(
        folder
    )


def _write_owlv2(folder: Path) -> None:
    ends = {"bos_token_id": 2, "eos_token_id": 3}
    config = transformers.Owlv2Config(text_config={**_TEXT, **ends}, vision_config=_VISION, projection_dim=32)
    _write(transformers.Owlv2ForObjectDetection(config), folder, token_types=False)
    image_processor("Owlv2")(size={"height": 32, "width": 32}).save_pretrained(folder)


def _write_altclip(folder: Path) -> None:
    text = {**_TEXT, "project_dim": 24, "max_position_embeddings": 66, "pad_token_id": 1}
    vision = {**_VISION, "projection_dim": 24}
    config = transformers.AltCLIPConfig(
        text_config=text, vision_config=vision, projection_dim=24, logit_scale_init_value=1.0
    )
    _write(transformers.AltCLIPModel(config), folder, token_types=False, pad=VOCABULARY[1])
    image_processor("CLIP")(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)


def _write_blip(folder: Path) -> None:
    ends = {"bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
    text = {**_TEXT, **ends, "encoder_hidden_size": 32}
    config = transformers.BlipConfig(
        text_config=text, vision_config=_VISION, projection_dim=24, image_text_hidden_size=24
    )
    _write(transformers.BlipModel(config), folder)
    image_processor("Blip")(size={"height": 32, "width": 32}).save_pretrained(folder)


def _write_dual_encoder(folder: Path) -> None:
    config = transformers.VisionTextDualEncoderConfig.from_vision_text_configs(
        transformers.ViTConfig(**_VISION),
        transformers.BertConfig(**_TEXT),
        projection_dim=24,
        logit_scale_init_value=1.0,
    )
    _write(transformers.VisionTextDualEncoderModel(config), folder)
    image_processor("ViT")(size={"height": 32, "width": 32}).save_pretrained(folder)


def _write_lilt(folder: Path) -> None:
    config = transformers.LiltConfig(
        **{**_TEXT, "hidden_size": 48}, max_2d_position_embeddings=1024, channel_shrink_ratio=4
    )
    _write(transformers.LiltForTokenClassification(config), folder)


def _write_layoutlm(head: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        config = transformers.LayoutLMConfig(**_TEXT, type_vocab_size=2)
        _write(getattr(transformers, f"LayoutLM{head}")(config), folder)

    return write


def _write_layoutlmv3(head: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        # RoBERTa's positions: they begin after that of the padding.
        sizes = {**_TEXT, "max_position_embeddings": 65, "coordinate_size": 5, "shape_size": 6}
        config = transformers.LayoutLMv3Config(
            **sizes, input_size=32, patch_size=8, type_vocab_size=1, rel_pos_bins=8, rel_2d_pos_bins=8
        )
        _write(getattr(transformers, f"LayoutLMv3{head}")(config), folder, token_types=False)
        image_processor("LayoutLMv3")(size={"height": 32, "width": 32}).save_pretrained(folder)

    return write


def write_vilt(folder: Path, **settings: Any) -> None:
    config = transformers.ViltConfig(**{**_TEXT, **_VISION}, type_vocab_size=2, num_labels=5, **settings)
    _write(transformers.ViltForQuestionAnswering(config), folder)
    image_processor("Vilt")(size={"shortest_edge": 32}, size_divisor=8).save_pretrained(folder)


def _write_sam(folder: Path) -> None:
    vision = {
        "hidden_size": 32, "output_channels": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "mlp_dim": 64,
        "image_size": 32, "patch_size": 8, "window_size": 2, "global_attn_indexes": [1], "num_pos_feats": 8,
    }  # fmt: skip
    prompt = {"hidden_size": 16, "image_size": 32, "patch_size": 8, "mask_input_channels": 4}
    decoder = {"hidden_size": 16, "mlp_dim": 32, "num_attention_heads": 2, "iou_head_hidden_dim": 16}
    config = transformers.SamConfig(vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=decoder)
    randomise(transformers.SamModel(config)).save_pretrained(folder)
    image_processor("Sam")(size={"longest_edge": 32}, pad_size={"height": 32, "width": 32}).save_pretrained(folder)


def _write(model: Any, folder: Path, *, token_types: bool = True, pad: str = VOCABULARY[0]) -> None:
    randomise(model)
    model.save_pretrained(folder)
    write_tokenizer(folder, token_types=token_types, pad=pad)


ROWS = (
    TinyModel("clip", "zero-shot-image-classification", _write_clip),
    TinyModel("clip", "feature-extraction", _write_clip, {"task": "feature-extraction"}),
    TinyModel("siglip", "zero-shot-image-classification", _write_siglip),
    TinyModel("chinese_clip", "zero-shot-image-classification", _write_chinese_clip),
    TinyModel("altclip", "zero-shot-image-classification", _write_altclip),
    TinyModel("blip", "zero-shot-image-classification", _write_blip),
    TinyModel("vision-text-dual-encoder (vit, bert)", "feature-extraction", _write_dual_encoder),
    TinyModel("owlvit", "zero-shot-object-detection", _write_owlvit),
    TinyModel("owlv2", "zero-shot-object-detection", _write_owlv2),
    TinyModel("vilt", "visual-question-answering", write_vilt),
    TinyModel("layoutlm", "document-question-answering", _write_layoutlm("ForQuestionAnswering")),
    TinyModel("layoutlm", "token-classification", _write_layoutlm("ForTokenClassification")),
    TinyModel("lilt", "token-classification", _write_lilt),
    TinyModel("layoutlmv3", "document-question-answering", _write_layoutlmv3("ForQuestionAnswering")),
    TinyModel("layoutlmv3", "token-classification", _write_layoutlmv3("ForTokenClassification")),
    TinyModel("layoutlmv3", "feature-extraction", _write_layoutlmv3("Model")),
    TinyModel("sam", "mask-generation", _write_sam),
)
