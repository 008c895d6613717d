"""Models of transformers that take a way through Python which no trace can follow, and the same in tensor operations.

A form answers what the method in whose place it stands answers, but for rounding, for all inputs that the method has
an answer for. What nothing that answers is made of may differ: the order of ViLT's patches, and hidden states beside an
answer that nobody asked for. It is there while a graph is traced, on the parts of the module at hand; the reference
that the graph is compared with runs the method itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MethodType
from typing import Any

from torch import nn

from onnxport.verify.import_target import import_target

_HERE = "onnxport.exporters.engines"
_VILT = "transformers.models.vilt.modeling_vilt:ViltEmbeddings"
_LONGFORMER = "transformers.models.longformer.modeling_longformer:Longformer"
_LED = "transformers.models.led.modeling_led:LED"
_WINDOWS = {
    "forward": f"{_HERE}.longformer_attention:attend",
    "_chunk": f"{_HERE}.longformer_attention:chunk",
}
_XVECTOR = (
    "wav2vec2.modeling_wav2vec2:Wav2Vec2",
    "wav2vec2_bert.modeling_wav2vec2_bert:Wav2Vec2Bert",
    "wav2vec2_conformer.modeling_wav2vec2_conformer:Wav2Vec2Conformer",
    "wavlm.modeling_wavlm:WavLM",
    "unispeech_sat.modeling_unispeech_sat:UniSpeechSat",
    "data2vec.modeling_data2vec_audio:Data2VecAudio",
)
FORMS: Mapping[str, Mapping[str, str]] = {
    _VILT: {"visual_embed": f"{_HERE}.vilt_patches:visual_embed"},
    f"{_LONGFORMER}Encoder": {"forward": f"{_HERE}.longformer_attention:encode"},
    f"{_LONGFORMER}SelfAttention": _WINDOWS,
    f"{_LED}Encoder": {"forward": f"{_HERE}.longformer_attention:encode_for_a_decoder"},
    f"{_LED}EncoderSelfAttention": _WINDOWS,
    **{f"transformers.models.{name}ForXVector": {"forward": f"{_HERE}.xvector_pooling:forward"} for name in _XVECTOR},
}
"""A class, its methods, and the function that stands in the place of each: it is called as the method is."""


@contextmanager
def tensor_forms(module: nn.Module) -> Iterator[None]:
    """While it lasts, the parts of the module that have forms use them.

    A method of the part's own, as hooks put it over that of the class, stands aside meanwhile and is put back.
    """
    changed: list[tuple[dict[str, Any], str, list[Any]]] = []
    try:
        for part in module.modules():
            kind = type(part)
            for name, target in FORMS.get(f"{kind.__module__}:{kind.__qualname__}", {}).items():
                own = vars(part)
                form = MethodType(import_target(target), part)
                changed.append((own, name, [own[name]] if name in own else []))
                own[name] = form
        yield
    finally:
        for own, name, before in changed:
            if before:
                (own[name],) = before
            else:
                del own[name]
