"""The comparator. Knows only arrays: names first, then shapes and dtypes, then values.

Works through an output block by block, so that comparing a gigabyte of logits needs a few megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from onnxport.verify.blocks import Block, blocks_of
from onnxport.verify.decisions import decisions_kept, top_kept
from onnxport.verify.percentiles import percentiles
from onnxport.verify.tolerance import Criterion, ElementTolerance, Statistics, Tolerance

_EXACT = ElementTolerance(rtol=0.0, atol=0.0)
PERCENTILES = (50.0, 90.0, 99.0, 99.9)


@dataclass(frozen=True)
class Comparison:
    """What was found for one output in one case. All numbers are over real positions, unless they say padded.

    Attributes:
        output: name of the output.
        agrees: whether the candidate meets the criterion.
        detail: why not, or how close; for a person.
        compared: elements compared. None: it did not come to values.
        max_abs_diff: largest |a - b|; infinite where one is NaN or Inf and the other is not the same.
        max_rel_diff: largest |a - b| / |b|, over b other than 0.
        worst_ratio: largest |a - b| / (atol + rtol |b|).
        worst_index: where that is.
        unexpected_nonfinite: elements that are NaN or Inf where the reference has something else.
        padded_max_abs_diff: largest |a - b| at padded positions. None: there are none.
        min_cosine: smallest cosine between the rows (last axis) of both; one column is one row.
        rms_error: RMS of a - b over the RMS of b.
        sqnr_db: 10 log10(power of b / power of a - b), infinite where both are equal; as all that follow up to
            `top_entries`, only for statistics.
        abs_diff_percentiles: percent to the percentile of |a - b|, for 50, 90, 99 and 99.9.
        p99_error: the 99th percentile over the RMS of b.
        argmax_agreement, decisions: share of decisions kept, of how many. One case has few: `outputs.match` judges
            them over all cases, and no comparison fails by them.
        topk_agreement, top_entries: share kept of the `top_k` highest entries of each decision, of how many; judged
            like decisions.
        reference_rms, reference_max_abs, reference_count: over the finite elements of the reference.
        tolerance: what each element was allowed; None for statistics.
    """

    output: str
    agrees: bool
    detail: str
    compared: int | None = None
    max_abs_diff: float | None = None
    max_rel_diff: float | None = None
    worst_ratio: float | None = None
    worst_index: tuple[int, ...] | None = None
    unexpected_nonfinite: int | None = None
    padded_max_abs_diff: float | None = None
    min_cosine: float | None = None
    rms_error: float | None = None
    sqnr_db: float | None = None
    abs_diff_percentiles: Mapping[float, float] = field(default_factory=dict)
    p99_error: float | None = None
    argmax_agreement: float | None = None
    decisions: int = 0
    topk_agreement: float | None = None
    top_entries: int = 0
    reference_rms: float | None = None
    reference_max_abs: float | None = None
    reference_count: int = 0
    tolerance: ElementTolerance | None = None


def compare(
    reference: Mapping[str, np.ndarray],
    candidate: Mapping[str, np.ndarray],
    criterion: Criterion,
    *,
    real: Mapping[str, np.ndarray] | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> list[Comparison]:
    """Compares all outputs of one case: those of the reference in its order, then what the candidate has besides.

    Floating-point outputs are held against the criterion. Every other output must be equal: a token id that is nearly
    right is wrong.

    Args:
        reference, candidate: outputs by name.
        criterion: per-element tolerance or statistics.
        real: output name to a bool array that broadcasts to the output, True at real positions. A name that is missing
            has no padding.
        dtypes: output name to the dtype the candidate must have; a name that is missing: the dtype of the reference.
    """
    found = []
    for name, expected in reference.items():
        positions = None if real is None else real.get(name)
        if name in candidate:
            dtype = (dtypes or {}).get(name, str(expected.dtype))
            found.append(compare_output(name, expected, candidate[name], criterion, real=positions, dtype=dtype))
        else:
            detail = f"the candidate has no output {name}; it has {', '.join(candidate) or 'none'}"
            found.append(_without_values(name, detail, expected, positions))
    for name in candidate:
        if name not in reference:
            detail = f"the reference has no output {name}; it has {', '.join(reference) or 'none'}"
            found.append(Comparison(name, agrees=False, detail=detail))
    return found


def compare_output(
    name: str,
    reference: np.ndarray,
    candidate: np.ndarray,
    criterion: Criterion,
    *,
    real: np.ndarray | None = None,
    dtype: str | None = None,
) -> Comparison:
    """Compares one output; arguments as in `compare`."""
    dtype = dtype or str(reference.dtype)
    if real is not None:
        real = real.reshape((1,) * (reference.ndim - real.ndim) + real.shape)
    if not isinstance(candidate, np.ndarray | np.generic):
        return _without_values(name, f"a {type(candidate).__name__}, expected an array", reference, real)
    if candidate.shape != reference.shape:
        detail = f"shape {list(candidate.shape)}, expected {list(reference.shape)}"
        return _without_values(name, detail, reference, real)
    if str(candidate.dtype) != dtype or _kind(candidate.dtype) != _kind(reference.dtype):
        expected = f"{dtype}, the reference being {reference.dtype}" if dtype != str(reference.dtype) else dtype
        return _without_values(name, f"dtype {candidate.dtype}, expected {expected}", reference, real)
    if _kind(reference.dtype) == "other":
        return Comparison(name, agrees=False, detail=f"{reference.dtype} cannot be compared; outputs must be numbers")

    is_float = _kind(reference.dtype) == "float"
    tolerance = (criterion.of(name) if isinstance(criterion, Tolerance) else None) if is_float else _EXACT
    sums = _Sums(tolerance or _EXACT)
    for block in blocks_of(reference, candidate, real):
        sums.add(block)
    spread = _Spread()
    if isinstance(criterion, Statistics) and is_float and sums.compared:
        spread = _Spread.of(sums, percentiles(lambda: _errors(reference, candidate, real), PERCENTILES))
    kept = total = top = entries = 0
    if isinstance(criterion, Statistics) and name in criterion.decisions and sums.compared:
        axis = criterion.decisions[name]
        kept, total = decisions_kept(reference, candidate, axis, real)
        top, entries = top_kept(reference, candidate, axis, criterion.top_k, real)
    agreement = kept / total if total else None

    if not sums.compared:
        why = "it is empty" if reference.size == 0 else "every position of it is padding"
        problems = [f"nothing to compare: {why}"]
    elif tolerance is not None:
        problems = _element_problems(sums, tolerance, reference, candidate)
    else:
        assert isinstance(criterion, Statistics)
        problems = _statistics_problems(sums, spread, criterion, reference.shape)
    return Comparison(
        name,
        agrees=not problems,
        detail="; ".join(problems) or _closeness(sums, spread, tolerance, agreement),
        compared=sums.compared,
        max_abs_diff=sums.max_abs_diff,
        max_rel_diff=sums.max_rel_diff,
        worst_ratio=None if tolerance is None else sums.worst_ratio,
        worst_index=None if tolerance is None else _index(sums.worst_position, reference.shape),
        unexpected_nonfinite=sums.unexpected_nonfinite,
        padded_max_abs_diff=sums.padded_max_abs_diff,
        min_cosine=sums.min_cosine if is_float else None,
        rms_error=sums.rms_error if is_float else None,
        sqnr_db=spread.sqnr_db,
        abs_diff_percentiles=spread.abs_diff_percentiles,
        p99_error=spread.p99_error,
        argmax_agreement=agreement,
        decisions=total,
        topk_agreement=top / entries if entries else None,
        top_entries=entries,
        reference_rms=sums.strength.rms,
        reference_max_abs=sums.strength.max_abs,
        reference_count=sums.strength.count,
        tolerance=tolerance,
    )


def _abs_diff(a: np.ndarray, b: np.ndarray, equal: np.ndarray, finite: np.ndarray) -> np.ndarray:
    """Returns |a - b|: infinite where one of them is not finite and they are not equal."""
    with np.errstate(all="ignore"):
        return np.where(equal, 0.0, np.where(finite, np.abs(a - b), np.inf))


def _errors(reference: np.ndarray, candidate: np.ndarray, real: np.ndarray | None) -> Iterator[np.ndarray]:
    """Yields |a - b| at real positions, block by block."""
    for block in blocks_of(reference, candidate, real):
        b, a = block.reference.astype(np.float64), block.candidate.astype(np.float64)
        equal = (a == b) | (np.isnan(a) & np.isnan(b))
        yield _abs_diff(a, b, equal, np.isfinite(a) & np.isfinite(b))[block.real]


@dataclass
class _Strength:
    """How large the reference is, over its finite elements at real positions."""

    count: int = 0
    max_abs: float = 0.0
    _squares: float = 0.0

    def add(self, reference: np.ndarray, real: np.ndarray) -> None:
        values = reference[real & np.isfinite(reference)]
        self.count += values.size
        self._squares += float(np.square(values).sum())
        self.max_abs = max(self.max_abs, float(np.abs(values).max(initial=0.0)))

    @property
    def rms(self) -> float | None:
        return math.sqrt(self._squares / self.count) if self.count else None


@dataclass
class _Sums:
    """Running numbers over the blocks of one output."""

    tolerance: ElementTolerance
    strength: _Strength = field(default_factory=_Strength)
    compared: int = 0
    outside: int = 0
    unexpected_nonfinite: int = 0
    lost_nonfinite: int = 0
    max_abs_diff: float = 0.0
    max_rel_diff: float = 0.0
    worst_ratio: float = 0.0
    worst_position: int | None = None
    padded_max_abs_diff: float | None = None
    min_cosine: float | None = None
    worst_row: int = 0
    _square_errors: float = 0.0

    def add(self, block: Block) -> None:
        equal = block.reference == block.candidate  # before the cast: int64 does not fit into float64
        b, a = block.reference.astype(np.float64), block.candidate.astype(np.float64)
        a_finite, b_finite, real = np.isfinite(a), np.isfinite(b), block.real
        equal |= np.isnan(a) & np.isnan(b)
        finite = a_finite & b_finite
        diff = _abs_diff(a, b, equal, finite)
        with np.errstate(all="ignore"):
            size = np.abs(b)
            allowed = self.tolerance.atol + self.tolerance.rtol * size
            inexact = self.tolerance != _EXACT
            beyond = ~equal & ~(finite & inexact & (diff <= allowed))
            ratio = np.where(equal, 0.0, np.where(finite & inexact, diff / allowed, np.inf))
            relative = np.where(equal | (size == 0.0), 0.0, np.where(finite, diff / size, np.inf))
        self.strength.add(b, real)
        self.compared += int(np.count_nonzero(real))
        self.outside += int(np.count_nonzero(beyond & real))
        self.unexpected_nonfinite += int(np.count_nonzero(~a_finite & ~equal & real))
        self.lost_nonfinite += int(np.count_nonzero(a_finite & ~b_finite & real))
        self.max_abs_diff = max(self.max_abs_diff, float(diff.max(where=real, initial=0.0)))
        self.max_rel_diff = max(self.max_rel_diff, float(relative.max(where=real, initial=0.0)))
        self._square_errors += float(np.square(diff, where=real, out=np.zeros_like(diff)).sum())
        if not real.all():
            padded = float(diff.max(where=~real, initial=0.0))
            self.padded_max_abs_diff = max(self.padded_max_abs_diff or 0.0, padded)
        self._find_worst(np.where(real, ratio, 0.0), block.start)
        self._find_cosine(np.where(finite & real, a, 0.0), np.where(finite & real, b, 0.0), real, block.start)

    @property
    def rms_error(self) -> float:
        reference = (self.strength.rms or 0.0) ** 2 * self.strength.count
        if reference == 0.0:
            return 0.0 if self._square_errors == 0.0 else math.inf
        return math.sqrt(self._square_errors / reference)

    def _find_worst(self, ratio: np.ndarray, start: int) -> None:
        position = int(ratio.argmax())
        worst = float(ratio.flat[position])
        if worst > self.worst_ratio:
            self.worst_ratio, self.worst_position = worst, start + position

    def _find_cosine(self, a: np.ndarray, b: np.ndarray, real: np.ndarray, start: int) -> None:
        counted = real.any(axis=-1)
        if not counted.any():
            return
        # Scaled first: squares of values below 1e-162 would vanish. Two zero rows agree; a zero row and another do not.
        a_top, b_top = np.abs(a).max(axis=-1, keepdims=True), np.abs(b).max(axis=-1, keepdims=True)
        a, b = a / np.where(a_top == 0, 1.0, a_top), b / np.where(b_top == 0, 1.0, b_top)
        norms = np.sqrt(np.square(a).sum(axis=-1) * np.square(b).sum(axis=-1))
        both_zero = (a_top == 0) & (b_top == 0)
        cosine = np.where(both_zero[:, 0], 1.0, (a * b).sum(axis=-1) / np.where(norms == 0, 1.0, norms))
        cosine = np.where(counted, np.minimum(cosine, 1.0), np.inf)
        row = int(cosine.argmin())
        if self.min_cosine is None or cosine[row] < self.min_cosine:
            self.min_cosine, self.worst_row = float(cosine[row]), start + row * a.shape[-1]


@dataclass(frozen=True)
class _Spread:
    """How the errors of an output are spread: what is told and judged of lower precision only."""

    sqnr_db: float | None = None
    abs_diff_percentiles: Mapping[float, float] = field(default_factory=dict)
    p99_error: float | None = None

    @classmethod
    def of(cls, sums: _Sums, found: Mapping[float, float]) -> _Spread:
        p99, rms = found[99.0], sums.strength.rms or 0.0
        relative = p99 / rms if rms else 0.0 if p99 == 0.0 else math.inf
        return cls(-20 * math.log10(sums.rms_error) if sums.rms_error else math.inf, found, relative)


def _without_values(name: str, detail: str, reference: np.ndarray, real: np.ndarray | None) -> Comparison:
    """The outcome where it does not come to values; how large the reference is still counts for its sensitivity."""
    strength = _Strength()
    if _kind(reference.dtype) != "other":
        for block in blocks_of(reference, reference, real):
            strength.add(block.reference.astype(np.float64), block.real)
    return Comparison(
        name,
        agrees=False,
        detail=detail,
        reference_rms=strength.rms,
        reference_max_abs=strength.max_abs,
        reference_count=strength.count,
    )


def _element_problems(
    sums: _Sums, tolerance: ElementTolerance, reference: np.ndarray, candidate: np.ndarray
) -> list[str]:
    if not sums.outside:
        return []
    index = _index(sums.worst_position, reference.shape)
    assert index is not None
    a, b = candidate[index], reference[index]
    allowed = tolerance.atol + tolerance.rtol * abs(float(b)) if np.isfinite(b) else 0.0
    return [
        *_nonfinite_problems(sums),
        f"{sums.outside} of {sums.compared} elements are outside the tolerance; worst at {list(index)}: "
        f"{a:.8g}, expected {b:.8g} within {allowed:.3g} ({sums.worst_ratio:.3g} times the allowed difference)",
    ]


def _statistics_problems(sums: _Sums, spread: _Spread, wanted: Statistics, shape: tuple[int, ...]) -> list[str]:
    problems = _nonfinite_problems(sums)
    if sums.min_cosine is None or not sums.min_cosine >= wanted.min_cosine:
        row = list((_index(sums.worst_row, shape) or ())[:-1])
        problems.append(f"cosine {sums.min_cosine:.6g} in row {row}, wanted at least {wanted.min_cosine:.6g}")
    if not sums.rms_error <= wanted.max_rms_error:
        problems.append(f"RMS error {sums.rms_error:.4g} of the reference, allowed {wanted.max_rms_error:.4g}")
    if spread.sqnr_db is None or not spread.sqnr_db >= wanted.min_sqnr_db:
        problems.append(f"SQNR {spread.sqnr_db:.4g} dB, wanted at least {wanted.min_sqnr_db:.4g} dB")
    if spread.p99_error is None or not spread.p99_error <= wanted.max_p99_error:
        told = f"one difference in a hundred is at least {spread.p99_error:.4g} of the reference's RMS"
        problems.append(f"{told}, allowed {wanted.max_p99_error:.4g} (max_p99_error)")
    return problems


def _nonfinite_problems(sums: _Sums) -> list[str]:
    problems = []
    if sums.unexpected_nonfinite:
        problems.append(f"{sums.unexpected_nonfinite} elements are NaN or Inf where the reference is not")
    if sums.lost_nonfinite:
        problems.append(f"{sums.lost_nonfinite} elements are finite where the reference is NaN or Inf")
    return problems


def _closeness(sums: _Sums, spread: _Spread, tolerance: ElementTolerance | None, agreement: float | None) -> str:
    if tolerance is not None:
        return f"largest difference {sums.max_abs_diff:.3g}, {sums.worst_ratio:.3g} times the allowed one"
    kept = "" if agreement is None else f", {agreement:.4g} of the decisions kept"
    noise = (
        f"RMS error {sums.rms_error:.3g} of the reference (SQNR {spread.sqnr_db:.3g} dB, p99 {spread.p99_error:.3g})"
    )
    return f"smallest cosine {sums.min_cosine:.6g}, {noise}{kept}"


def _index(position: int | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if position is None else tuple(int(i) for i in np.unravel_index(position, shape))


def _kind(dtype: np.dtype) -> str:
    """Returns "float", "exact" (integers and bool) or "other"; ml_dtypes' bfloat16 and float8 count as float."""
    if dtype.kind == "f" or dtype.name.startswith(("bfloat16", "float8")):
        return "float"
    return "exact" if dtype.kind in "iub" else "other"
