"""tokenizer.*: do the bundle's tokenizer files give the ids that the source's tokenizer gave?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxport.verify.report import CheckResult, Verdict
from onnxport.verify.runners import one_line
from onnxport.verify.tokenizer_record import Encoding, TokenizerRecord, TokenizerSettings

_CHECK = "tokenizer.match"
_SHOWN = 12


def check_match(path: Path, settings: TokenizerSettings, record: TokenizerRecord) -> list[CheckResult]:
    """The `tokenizers` library alone, with a bundle's tokenizer.json and settings, gives the recorded ids.

    Args:
        path: the tokenizer.json; where there is none, only the settings are compared.
        settings: as a consumer reads them from the bundle.
        record: what the source's tokenizer gave.
    """
    results = [_settings(settings, record.settings)]
    if not path.is_file():
        return [*results, _result("skip", "no tokenizer.json, which the tokenizers library could read", "ids")]
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(path))
        # The file may carry settings of whoever saved it last (some pad everything to 128): a consumer sets its own.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        results.append(compare_encodings("ids", record.encodings, _encode(tokenizer, record.encodings)))
        if record.padded:
            results.append(_padded(tokenizer, settings, record.padded))
        tokenizer.no_padding()
        tokenizer.enable_truncation(record.truncated_to, direction=settings.truncation_side)
        results.append(compare_encodings("truncation", record.truncated, _encode(tokenizer, record.truncated)))
    except Exception as e:  # noqa: BLE001  (the library raises bare Exception)
        results.append(_result("fail", f"the tokenizers library fails: {one_line(e)}", "ids"))
    return results


def compare_encodings(case: str, expected: Sequence[Encoding], encodings: Sequence[Encoding]) -> CheckResult:
    """Returns one result: the encodings have the expected ids, token types and masks, text by text."""
    if not expected:
        return _result("fail", "no text was recorded: nothing was compared", case)
    for wanted, found in zip(expected, encodings, strict=True):
        for what in ("ids", "type_ids", "mask"):
            a, b = getattr(found, what), getattr(wanted, what)
            if b is not None and a != b:
                a = a or ()
                at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
                shown = f"{list(a[at : at + _SHOWN])}, expected {list(b[at : at + _SHOWN])}"
                detail = f"{what} of {wanted.text[:60]!r} differ from position {at} on: {shown}"
                return _result("fail", detail, case)
    tokens = sum(len(encoding.ids) for encoding in expected)
    return _result("pass", f"{len(expected)} texts, {tokens} tokens as recorded", case)


def _settings(found: TokenizerSettings, expected: TokenizerSettings) -> CheckResult:
    names = TokenizerSettings.model_fields
    wrong = [name for name in names if getattr(found, name) != getattr(expected, name)]
    if wrong:
        told = [f"{name} is {getattr(found, name)!r}, expected {getattr(expected, name)!r}" for name in wrong]
        return _result("fail", "; ".join(told), "settings")
    return _result("pass", ", ".join(f"{name} {getattr(found, name)}" for name in names), "settings")


def _padded(tokenizer: Any, settings: TokenizerSettings, expected: Sequence[Encoding]) -> CheckResult:
    if settings.pad_token is None or tokenizer.token_to_id(settings.pad_token) is None:
        return _result("fail", f"the padding token {settings.pad_token!r} is not in the vocabulary", "padding")
    tokenizer.enable_padding(
        direction=settings.padding_side,
        pad_id=tokenizer.token_to_id(settings.pad_token),
        pad_token=settings.pad_token,
    )
    return compare_encodings("padding", expected, _encode(tokenizer, expected))


def _encode(tokenizer: Any, texts: Sequence[Encoding]) -> list[Encoding]:
    inputs = [one.text if one.pair is None else (one.text, one.pair) for one in texts]
    return [
        Encoding(
            text=one.text,
            pair=one.pair,
            ids=tuple(found.ids),
            type_ids=tuple(found.type_ids),
            mask=tuple(found.attention_mask),
        )
        for one, found in zip(texts, tokenizer.encode_batch(inputs), strict=True)
    ]


def _result(verdict: Verdict, detail: str, case: str) -> CheckResult:
    return CheckResult(id=_CHECK, verdict=verdict, detail=f"{case}: {detail}", case=case)
