"""Encoder-decoder models: text to text, speech to text, image to text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import transformers

from zoo import TinyModel, randomise
from zoo.tokenizer import VOCABULARY, write_tokenizer
from zoo.vision import image_processor

_TOKENS = {"vocab_size": len(VOCABULARY), "pad_token_id": 0, "bos_token_id": 5, "eos_token_id": 6}
# BART and its kin: names of their own for every size.
_TWO_TOWERS: Mapping[str, Any] = {
    **_TOKENS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 2,
}
# Heads of another size than d_model / num_heads: T5 allows it, and nothing may compute one from the other.
_T5: Mapping[str, Any] = {
    **_TOKENS,
    "d_model": 32,
    "d_kv": 12,
    "d_ff": 64,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
    "decoder_start_token_id": 0,
}
_READING: Mapping[str, Any] = {
    "d_model": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "is_decoder": True,
    "add_cross_attention": True,
}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "t5": _T5,
    "mt5": {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "bart": _TWO_TOWERS,
    "mbart": _TWO_TOWERS,
    "marian": {**_TWO_TOWERS, "decoder_vocab_size": len(VOCABULARY)},
    "m2m_100": {**_TWO_TOWERS, "scale_embedding": True},
    "pegasus": _TWO_TOWERS,
    "led": {
        **{name: value for name, value in _TWO_TOWERS.items() if name != "max_position_embeddings"},
        "max_encoder_position_embeddings": 64,
        "max_decoder_position_embeddings": 64,
        "attention_window": 8,
    },
    "blenderbot": _TWO_TOWERS,
    "bigbird_pegasus": {**_TWO_TOWERS, "attention_type": "original_full"},
    "longt5": {**_T5, "local_radius": 4},
    "umt5": {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}


# With others it says one token for ever, whatever it read.
_SEEDS = {"marian": 4}


def write_text_model(model_type: str, folder: Path, **settings: Any) -> None:
    """Writes a checkpoint that makes text of text, and its tokenizer."""
    config = transformers.AutoConfig.for_model(model_type, **{**SETTINGS[model_type], **settings})
    model = randomise(transformers.AutoModelForSeq2SeqLM.from_config(config), _SEEDS.get(model_type, 0))
    model.save_pretrained(folder)
    write_tokenizer(folder, token_types=False)


def write_whisper(folder: Path, **settings: Any) -> None:
    """Writes a Whisper that hears one second instead of 30."""
    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    heard = {"num_mel_bins": 8, "max_source_positions": 50, "max_target_positions": 64}
    ids = {**_TOKENS, "decoder_start_token_id": 2, "begin_suppress_tokens": None, "suppress_tokens": None}
    config = transformers.WhisperConfig(**{**sizes, **heads, **heard, **ids, **settings})
    randomise(transformers.WhisperForConditionalGeneration(config)).save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(folder)
    write_tokenizer(folder, token_types=False)


def write_speech_to_text(folder: Path) -> None:
    """Writes a model that hears audio of any length and makes one state of four frames."""
    sizes = {**_TWO_TOWERS, "max_source_positions": 600, "max_target_positions": 64}
    heard = {"input_feat_per_channel": 8, "conv_channels": 16, "num_conv_layers": 2, "conv_kernel_sizes": (5, 5)}
    config = transformers.Speech2TextConfig(**{**sizes, **heard})
    randomise(transformers.Speech2TextForConditionalGeneration(config)).save_pretrained(folder)
    transformers.Speech2TextFeatureExtractor(feature_size=8, num_mel_bins=8).save_pretrained(folder)
    write_tokenizer(folder, token_types=False)


def write_moonshine(folder: Path) -> None:
    """Writes a model that hears waveforms."""
    config = transformers.MoonshineConfig(
        **{**_TOKENS, "bos_token_id": 2, "eos_token_id": 3},
        hidden_size=32,
        intermediate_size=64,
        encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2,
        encoder_num_attention_heads=4,
        decoder_num_attention_heads=4,
        max_position_embeddings=96,
        decoder_start_token_id=2,
    )
    randomise(transformers.MoonshineForConditionalGeneration(config)).save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(folder)
    write_tokenizer(folder, token_types=False)


def write_waveform_model(folder: Path) -> None:
    """Writes a wav2vec 2.0 that is read by a BART."""
    heard = transformers.Wav2Vec2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=[16] * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    _write_pair("SpeechEncoderDecoder", heard, transformers.BartConfig(**_READING, **_TOKENS), folder)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(folder)


def write_donut(folder: Path) -> None:
    """Writes a Swin that is read by an mBART."""
    seen = transformers.DonutSwinConfig(
        image_size=64, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4
    )
    _write_pair("VisionEncoderDecoder", seen, transformers.MBartConfig(**_READING, **_TOKENS), folder)
    image_processor("Donut")(size={"height": 64, "width": 64}).save_pretrained(folder)


def write_bert_to_bert(folder: Path) -> None:
    """Writes a BERT that is read by a BERT."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    own = {**sizes, "vocab_size": len(VOCABULARY), "max_position_embeddings": 64}
    reading = transformers.BertConfig(**own, is_decoder=True, add_cross_attention=True)
    _write_pair("EncoderDecoder", transformers.BertConfig(**own), reading, folder, end=3, token_types=True)


def write_vision_model(decoder: str, folder: Path) -> None:
    """Writes a ViT that is read by a decoder of that model type."""
    vision = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32, patch_size=8
    )
    reading: dict[str, Any] = {**_TOKENS, "is_decoder": True, "add_cross_attention": True}
    if decoder == "trocr":
        reading |= {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}
        reading |= {"max_position_embeddings": 64, "cross_attention_hidden_size": 24}
    else:
        reading |= {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    text = transformers.AutoConfig.for_model(decoder, **reading)
    _write_pair("VisionEncoderDecoder", vision, text, folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)


def _write_pair(
    kind: str, encoder: Any, decoder: Any, folder: Path, *, end: int = 6, token_types: bool = False
) -> None:
    """Writes a model that transformers puts together of two, by their configs, and the decoder's tokenizer.

    `kind`: "VisionEncoderDecoder". `end`: the id that ends a text.
    """
    config = getattr(transformers, f"{kind}Config").from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 2, 0, end
    randomise(getattr(transformers, f"{kind}Model")(config)).save_pretrained(folder)
    write_tokenizer(folder, token_types=token_types)


ROWS = (
    *(TinyModel(model_type, "text2text-generation", partial(write_text_model, model_type)) for model_type in SETTINGS),
    TinyModel("whisper", "automatic-speech-recognition", write_whisper),
    TinyModel("speech_to_text", "automatic-speech-recognition", write_speech_to_text),
    TinyModel("moonshine", "automatic-speech-recognition", write_moonshine, note="without a mask"),
    TinyModel("speech-encoder-decoder (wav2vec2, bart)", "automatic-speech-recognition", write_waveform_model),
    TinyModel("encoder-decoder (bert, bert)", "text2text-generation", write_bert_to_bert),
    TinyModel("vision-encoder-decoder (donut)", "image-to-text", write_donut),
    TinyModel("vision-encoder-decoder (trocr)", "image-to-text", partial(write_vision_model, "trocr")),
    TinyModel("vision-encoder-decoder (gpt2)", "image-to-text", partial(write_vision_model, "gpt2")),
)
