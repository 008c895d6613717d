"""Tiny models that look at images, each with its own image processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from zoo import TinyModel, randomise

_LABELS = 5
_TRANSFORMER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_PATCHES = {**_TRANSFORMER, "image_size": 32, "patch_size": 8}
_WINDOWS = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
_STAGES = {"hidden_sizes": [16, 32], "depths": [2, 2]}
_QUERIES = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 6,
}  # fmt: skip
_SEGFORMER = {
    "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 2, 4],
    "decoder_hidden_size": 32,
}  # fmt: skip
_PYRAMID = {
    "image_size": 64, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]
}  # fmt: skip
_SQUARE = {"height": 32, "width": 32}
_SQUARE_64 = {"height": 64, "width": 64}
# As on the Hub for detection: the shorter side of a picture becomes that long, and a batch is padded.
_EDGES = {"shortest_edge": 64, "longest_edge": 96}


def image_processor(name: str) -> Any:
    """transformers' image processor of that name, in the form that needs Pillow only."""
    return getattr(transformers, f"{name}ImageProcessorPil", None) or getattr(transformers, f"{name}ImageProcessor")


def balance(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Draws the weights; those of convolutions such that sizes stay, and the statistics of normalisations.

    A convolution sums over hundreds of values: with N(0, 0.3) a network of twenty would overflow. Running variances are
    between 0.5 and 1.5, as a variance is positive.
    """
    randomise(module, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for child in module.modules():
            if isinstance(child, (torch.nn.Conv2d, torch.nn.ConvTranspose2d)):
                child.weight.normal_(0.0, child.weight[0].numel() ** -0.5, generator=generator)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(0.0, 0.3, generator=generator)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5, generator=generator)
    return module.eval()


def _writer(
    model_class: str, config: Callable[[], Any], processor: str, size: Mapping[str, int], settings: Mapping[str, Any]
) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        model = balance(getattr(transformers, model_class)(config()))
        model.save_pretrained(folder)
        image_processor(processor)(size=dict(size), **settings).save_pretrained(folder)

    return write


def _row(
    architecture: str,
    task: str,
    model_class: str,
    config: Mapping[str, Any] | Callable[[], Any],
    processor: str,
    size: Mapping[str, int] = _SQUARE,
    *,
    note: str = "",
    **settings: Any,
) -> TinyModel:
    """A row; settings are those of the processor."""

    def made() -> Any:
        if callable(config):
            return config()
        kind = getattr(transformers, model_class).config_class
        return kind(**config, **({} if task == "feature-extraction" else {"num_labels": _LABELS}))

    return TinyModel(architecture, task, _writer(model_class, made, processor, size, settings), note=note)


def _maskformer() -> Any:
    return transformers.MaskFormerConfig(
        backbone_config=transformers.SwinConfig(
            **{**_WINDOWS, "image_size": 64, "depths": [1, 1, 1, 1], "num_heads": [2, 2, 4, 4]},
            out_features=["stage1", "stage2", "stage3", "stage4"],
        ),
        decoder_config=transformers.DetrConfig(**_QUERIES),
        # In 32 groups: with one channel in each, a picture of one colour has no variance to be normalised by.
        fpn_feature_size=64,
        mask_feature_size=32,
        num_labels=_LABELS,
    )


def _detr() -> Any:
    return _detector("DetrConfig", "stage4")


def _rt_detr() -> Any:
    return transformers.RTDetrConfig(
        backbone_config=transformers.RTDetrResNetConfig(
            embedding_size=16, hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1], layer_type="basic",
            out_features=["stage2", "stage3", "stage4"],
        ),
        encoder_hidden_dim=32, encoder_in_channels=[16, 32, 32], encoder_ffn_dim=64, encoder_attention_heads=4,
        d_model=32, num_queries=6, decoder_in_channels=[32, 32, 32], decoder_ffn_dim=64, decoder_layers=2,
        decoder_attention_heads=4, num_denoising=0, num_labels=_LABELS, anchor_image_size=None,
    )  # fmt: skip


def _swin2sr() -> Any:
    return transformers.Swin2SRConfig(
        image_size=32, patch_size=1, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, upscale=2
    )


def _resnet(*stages: str) -> Any:
    return transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1], out_features=list(stages)
    )


def _detector(name: str, *stages: str, **settings: Any) -> Any:
    return getattr(transformers, name)(
        **_QUERIES, use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=_resnet(*stages), num_labels=_LABELS, **settings,
    )  # fmt: skip


def _depth_anything() -> Any:
    return transformers.DepthAnythingConfig(
        backbone_config=transformers.Dinov2Config(
            **_PATCHES, out_features=["stage1", "stage2"], reshape_hidden_states=False, apply_layernorm=True
        ),
        patch_size=8, reassemble_hidden_size=32, reassemble_factors=[2, 1], neck_hidden_sizes=[8, 16],
        fusion_hidden_size=16, head_hidden_size=16,
    )  # fmt: skip


ROWS = (
    _row("vit", "image-classification", "ViTForImageClassification", _PATCHES, "ViT"),
    _row("vit", "feature-extraction", "ViTModel", _PATCHES, "ViT"),
    _row("vit", "masked-im", "ViTForMaskedImageModeling", {**_PATCHES, "encoder_stride": 8}, "ViT"),
    _row("deit", "image-classification", "DeiTForImageClassification", _PATCHES, "DeiT", do_center_crop=False),
    _row(
        "beit", "image-classification", "BeitForImageClassification",
        {**_PATCHES, "use_relative_position_bias": True}, "Beit", do_center_crop=False,
    ),
    _row("swin", "image-classification", "SwinForImageClassification", _WINDOWS, "ViT"),
    _row("swin", "masked-im", "SwinForMaskedImageModeling", {**_WINDOWS, "encoder_stride": 8}, "ViT"),
    _row("swinv2", "image-classification", "Swinv2ForImageClassification", _WINDOWS, "ViT"),
    _row(
        "convnext", "image-classification", "ConvNextForImageClassification", {**_STAGES, "num_stages": 2}, "ConvNext",
        {"shortest_edge": 32},
    ),
    _row(
        "convnextv2", "image-classification", "ConvNextV2ForImageClassification", {**_STAGES, "num_stages": 2},
        "ConvNext", {"shortest_edge": 32},
    ),
    _row(
        "resnet", "image-classification", "ResNetForImageClassification", {**_STAGES, "embedding_size": 16},
        "ConvNext", {"shortest_edge": 32},
    ),
    _row(
        "regnet", "image-classification", "RegNetForImageClassification",
        {**_STAGES, "embedding_size": 16, "groups_width": 8}, "ConvNext", {"shortest_edge": 32},
    ),
    _row(
        "mobilenet_v2", "image-classification", "MobileNetV2ForImageClassification",
        {"image_size": 64, "depth_multiplier": 0.35}, "MobileNetV2", {"shortest_edge": 72}, crop_size=_SQUARE_64,
    ),
    _row(
        "mobilevit", "image-classification", "MobileViTForImageClassification",
        {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 48]},
        "MobileViT", {"shortest_edge": 72}, crop_size=_SQUARE_64,
    ),
    _row(
        "dinov2", "feature-extraction", "Dinov2Model", _PATCHES, "Bit", {"shortest_edge": 36}, crop_size=_SQUARE,
    ),
    _row(
        "dinov2", "image-classification", "Dinov2ForImageClassification", _PATCHES, "Bit", {"shortest_edge": 36},
        crop_size=_SQUARE,
    ),
    _row("segformer", "image-segmentation", "SegformerForSemanticSegmentation", _SEGFORMER, "Segformer", _SQUARE_64),
    _row("segformer", "image-classification", "SegformerForImageClassification", _SEGFORMER, "Segformer", _SQUARE_64),
    _row(
        "maskformer", "image-segmentation", "MaskFormerForInstanceSegmentation", _maskformer, "MaskFormer", _EDGES,
        size_divisor=32, note="transformers needs scipy to load it",
    ),
    _row(
        "dpt", "depth-estimation", "DPTForDepthEstimation",
        {**_PATCHES, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 16, 24, 32],
         "fusion_hidden_size": 32},
        "DPT",
    ),
    _row(
        "yolos", "object-detection", "YolosForObjectDetection",
        {**_PATCHES, "image_size": [64, 96], "num_detection_tokens": 6}, "Yolos", _EDGES,
    ),
    _row("detr", "object-detection", "DetrForObjectDetection", _detr, "Detr", _EDGES),
    _row("rt_detr", "object-detection", "RTDetrForObjectDetection", _rt_detr, "RTDetr", _SQUARE_64),
    _row(
        "conditional_detr", "object-detection", "ConditionalDetrForObjectDetection",
        lambda: _detector("ConditionalDetrConfig", "stage4"), "ConditionalDetr", _EDGES,
    ),
    _row(
        "deformable_detr", "object-detection", "DeformableDetrForObjectDetection",
        lambda: _detector("DeformableDetrConfig", "stage2", "stage3", "stage4", num_feature_levels=3),
        "DeformableDetr", _EDGES,
    ),
    _row(
        "table-transformer", "object-detection", "TableTransformerForObjectDetection",
        lambda: _detector("TableTransformerConfig", "stage4"), "Detr", _EDGES,
    ),
    _row(
        "beit", "image-segmentation", "BeitForSemanticSegmentation",
        {**_PATCHES, "num_hidden_layers": 4, "image_size": 64, "patch_size": 16, "out_indices": [1, 2, 3, 4]},
        "Beit", _SQUARE_64, do_center_crop=False,
    ),
    _row(
        "upernet", "image-segmentation", "UperNetForSemanticSegmentation",
        lambda: transformers.UperNetConfig(
            backbone_config=transformers.ConvNextConfig(
                hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1],
                out_features=["stage1", "stage2", "stage3", "stage4"],
            ),
            hidden_size=32, auxiliary_in_channels=32, auxiliary_channels=16, num_labels=_LABELS,
        ),
        "Segformer", _SQUARE_64,
    ),
    _row("depth_anything", "depth-estimation", "DepthAnythingForDepthEstimation", _depth_anything, "DPT"),
    _row(
        "glpn", "depth-estimation", "GLPNForDepthEstimation",
        {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 2, 4],
         "decoder_hidden_size": 16},
        "DPT", _SQUARE_64,
    ),
    _row(
        "dinov2_with_registers", "image-classification", "Dinov2WithRegistersForImageClassification", _PATCHES, "Bit",
        {"shortest_edge": 36}, crop_size=_SQUARE,
    ),
    _row("dinov3_vit", "feature-extraction", "DINOv3ViTModel", _PATCHES, "ViT"),
    _row("vit_msn", "image-classification", "ViTMSNForImageClassification", _PATCHES, "ViT"),
    _row("ijepa", "feature-extraction", "IJepaModel", _PATCHES, "ViT"),
    _row("data2vec-vision", "image-classification", "Data2VecVisionForImageClassification", _PATCHES, "ViT"),
    _row("pvt", "image-classification", "PvtForImageClassification", _PYRAMID, "ViT", _SQUARE_64),
    _row("pvt_v2", "image-classification", "PvtV2ForImageClassification", _PYRAMID, "ViT", _SQUARE_64),
    _row(
        "poolformer", "image-classification", "PoolFormerForImageClassification",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}, "ViT", _SQUARE_64,
    ),
    _row(
        "focalnet", "image-classification", "FocalNetForImageClassification",
        {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "focal_levels": [2, 2],
         "focal_windows": [3, 3]},
        "ViT",
    ),
    _row(
        "levit", "image-classification", "LevitForImageClassification",
        {"image_size": 64, "hidden_sizes": [16, 32, 48], "num_attention_heads": [2, 2, 4], "depths": [1, 1, 1],
         "key_dim": [8, 8, 8], "drop_path_rate": 0, "mlp_ratio": [2, 2, 2], "attention_ratio": [2, 2, 2]},
        "Levit", {"shortest_edge": 72}, crop_size=_SQUARE_64,
    ),
    _row("swin2sr", "image-to-image", "Swin2SRForImageSuperResolution", _swin2sr, "Swin2SR"),
)  # fmt: skip
