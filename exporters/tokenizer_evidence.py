"""What the source's tokenizer gives for a set of texts, and whether the bundle's gives it too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxport.exporters.errors import SourceError
from onnxport.exporters.preprocessing import load_tokenizer
from onnxport.exporters.tokenizer_settings import NO_LIMIT, read_settings
from onnxport.verify.checks.tokenizer import check_match, compare_encodings
from onnxport.verify.report import CheckResult, Verdict
from onnxport.verify.tokenizer_record import Encoding, TokenizerRecord, TokenizerSettings

_TRUNCATED_TO = 12

_TEXTS: tuple[tuple[str, str | None], ...] = (
    ("A short text.", None),
    ("", None),
    ("  spaces,\ttabs\nand line breaks  ", None),
    ("Digits 1234567890, 3.14 and 12,345; signs: @#$%^&*()[]{}<>|\\/~`\"'", None),
    ("Die Straße war naß, und der Zug nach Köln fiel aus.", None),
    ("Le cœur a ses raisons; ŒUVRE, naïve e\u0301te\u0301.", None),
    ("Привет, как дела?", None),
    ("مرحبا بالعالم", None),
    ("हिन्दी में एक वाक्य।", None),
    ("今天天气很好。日本語の文章、한국어 문장입니다。", None),
    ("emoji 🙂👩‍👩‍👧, a hieroglyph \U00013080 and a private character \ue000", None),
    ("anticonstitutionnellementsupercalifragilistic" * 3, None),
    ("Where was the meeting held?", "In Geneva, in the old town hall."),
)


def record_tokenizer(tokenizer: Any) -> TokenizerRecord:
    """Runs transformers' tokenizer on the text set, its own special tokens among them."""
    special = " ".join(map(str, tokenizer.all_special_tokens))
    texts = [*_TEXTS, (f"special tokens {special} in a text", None)]
    limit = tokenizer.model_max_length
    return TokenizerRecord(
        settings=TokenizerSettings(
            padding_side=tokenizer.padding_side,
            truncation_side=tokenizer.truncation_side,
            pad_token=tokenizer.pad_token,
            max_length=None if limit is None or limit >= NO_LIMIT else int(limit),
        ),
        encodings=_encode(tokenizer, texts),
        padded=_encode(tokenizer, texts, padding=True) if tokenizer.pad_token is not None else (),
        truncated_to=_TRUNCATED_TO,
        truncated=_encode(tokenizer, texts, truncation=True, max_length=_TRUNCATED_TO),
    )


def check_tokenizer(root: Path, record: TokenizerRecord, *, trust_remote_code: bool) -> list[CheckResult]:
    """Holds the bundle's tokenizer, under transformers and under `tokenizers` alone, against what the source's gave."""
    return [
        *check_match(root / "tokenizer.json", read_settings(root, record.settings), record),
        _check_under_transformers(root, record, trust_remote_code),
    ]


def _check_under_transformers(root: Path, record: TokenizerRecord, trust_remote_code: bool) -> CheckResult:
    try:
        tokenizer = load_tokenizer(root, trust_remote_code=trust_remote_code)
        found = None if tokenizer is None else record_tokenizer(tokenizer)
    except SourceError as e:
        return _result("fail", str(e))
    if found is None:
        return _result("fail", "the bundle holds no tokenizer files")
    if found.settings != record.settings:
        return _result("fail", f"settings are {found.settings!r}, expected {record.settings!r}")
    pairs = ((getattr(record, name), getattr(found, name)) for name in ("encodings", "padded", "truncated"))
    compared = [compare_encodings("transformers", expected, encodings) for expected, encodings in pairs if expected]
    return next((result for result in compared if result.verdict == "fail"), compared[0])


def _result(verdict: Verdict, detail: str) -> CheckResult:
    return CheckResult(id="tokenizer.match", verdict=verdict, detail=f"transformers: {detail}", case="transformers")


def _encode(tokenizer: Any, texts: Sequence[tuple[str, str | None]], **options: Any) -> tuple[Encoding, ...]:
    """Pairs are encoded apart from single texts where no padding makes one batch of them."""
    options |= {"return_attention_mask": True, "verbose": False}
    if "padding" in options:
        texts = [(text, None) for text, pair in texts if pair is None]
        encoded = tokenizer([text for text, _ in texts], **options)
        rows = [{name: encoded[name][i] for name in encoded} for i in range(len(texts))]
    else:
        rows = [tokenizer(text, pair, **options) for text, pair in texts]
    return tuple(
        Encoding(
            text=text,
            pair=pair,
            ids=tuple(row["input_ids"]),
            type_ids=tuple(row["token_type_ids"]) if "token_type_ids" in row else None,
            mask=tuple(row["attention_mask"]),
        )
        for (text, pair), row in zip(texts, rows, strict=True)
    )
