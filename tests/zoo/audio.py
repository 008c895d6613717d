"""Audio models, with their own feature extractors; the convolutions are narrower than the real ones, not fewer."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import transformers

from zoo import TinyModel, randomise

CLASSES = {
    "feature-extraction": "AutoModel",
    "automatic-speech-recognition": "AutoModelForCTC",
    "audio-classification": "AutoModelForAudioClassification",
    "audio-frame-classification": "AutoModelForAudioFrameClassification",
    "audio-xvector": "AutoModelForAudioXVector",
}
LETTERS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVKJXQZ'"]
_WAVEFORM: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": [16] * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": len(LETTERS),
    "classifier_proj_size": 16,
    "tdnn_dim": [16, 16, 32],
    "tdnn_kernel": [5, 3, 1],
    "tdnn_dilation": [1, 2, 1],
    "xvector_output_dim": 16,
    "num_labels": 3,
}
_LAYER_NORM = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}
_SPECTROGRAM: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_length": 64,
    "num_mel_bins": 32,
    "num_labels": 3,
}


def write_waveform(model_type: str, task: str, folder: Path, *, mask: bool = False, **settings: Any) -> None:
    """A model of waveforms and its Wav2Vec2FeatureExtractor; for speech recognition, a tokenizer of letters too."""
    given = {**_WAVEFORM, **(_LAYER_NORM if mask else {}), **settings}
    config = transformers.AutoConfig.for_model(model_type, **given)
    randomise(getattr(transformers, CLASSES[task]).from_config(config)).save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=mask).save_pretrained(folder)
    if task == "automatic-speech-recognition":
        write_letters(folder)


def write_letters(folder: Path) -> None:
    """A Wav2Vec2CTCTokenizer."""
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps({letter: i for i, letter in enumerate(LETTERS)}), encoding="utf-8")
    transformers.Wav2Vec2CTCTokenizer(str(vocabulary), word_delimiter_token="|").save_pretrained(folder)


def write_spectrogram(task: str, folder: Path, **settings: Any) -> None:
    """An audio spectrogram transformer, whose extractor pads and cuts all audio to one length."""
    given = {**_SPECTROGRAM, **settings}
    config = transformers.ASTConfig(**given)
    randomise(getattr(transformers, CLASSES[task]).from_config(config)).save_pretrained(folder)
    transformers.ASTFeatureExtractor(
        num_mel_bins=_SPECTROGRAM["num_mel_bins"], max_length=_SPECTROGRAM["max_length"]
    ).save_pretrained(folder)


def _waveform(model_type: str, task: str, note: str = "", **settings: Any) -> TinyModel:
    return TinyModel(model_type, task, partial(write_waveform, model_type, task, **settings), note=note)


ROWS = (
    _waveform("wav2vec2", "automatic-speech-recognition", "with a mask", mask=True),
    _waveform("wav2vec2", "feature-extraction", "group norm over time, no mask"),
    _waveform("wav2vec2", "audio-classification", mask=True),
    _waveform("wav2vec2", "audio-frame-classification"),
    _waveform("wav2vec2", "audio-xvector", "without a mask"),
    _waveform("wavlm", "audio-xvector", "with a mask", mask=True),
    _waveform("hubert", "automatic-speech-recognition"),
    _waveform("wavlm", "audio-classification", "with a mask", mask=True),
    _waveform("wav2vec2-conformer", "automatic-speech-recognition", mask=True),
    _waveform("unispeech", "automatic-speech-recognition"),
    _waveform("unispeech-sat", "audio-xvector"),
    _waveform("data2vec-audio", "automatic-speech-recognition"),
    TinyModel(
        "audio-spectrogram-transformer", "audio-classification", partial(write_spectrogram, "audio-classification")
    ),
)
