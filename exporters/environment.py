"""The machine and the installed versions, as far as they decide what a bundle computes and how fast."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "onnxport",
    "numpy",
    "onnx",
    "onnxruntime",
    "tokenizers",
    "safetensors",
    "torch",
    "transformers",
    "optimum",
    "onnxscript",
    "sentence-transformers",
)

_FEATURES = (
    *("avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("avx_vnni", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2"),
)
"""The CPU flags that ONNX Runtime's kernels choose by, as Linux spells them."""


@dataclass(frozen=True)
class Environment:
    """`packages`: name to version, None where not installed. `cpu_features` is empty where Linux does not tell."""

    python: str
    platform: str
    cpu: str
    cpu_count: int
    cpu_features: tuple[str, ...]
    providers: tuple[str, ...]
    packages: dict[str, str | None]


def environment() -> Environment:
    """Looks at this process's machine and installation. Loads onnxruntime for its providers, nothing else."""
    import onnxruntime

    return Environment(
        python=platform.python_version(),
        platform=platform.platform(),
        cpu=cpu_name(),
        cpu_count=usable_cpus(),
        cpu_features=cpu_features(),
        providers=tuple(onnxruntime.get_available_providers()),
        packages={name: installed_version(name) for name in PACKAGES},
    )


def installed_version(package: str) -> str | None:
    """Returns the version of an installed distribution without importing it, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def usable_cpus() -> int:
    """Returns how many CPUs this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    """Returns the CPU's model name where Linux tells it, else its architecture."""
    found = re.search(r"^model name\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def cpu_features() -> tuple[str, ...]:
    """Returns the instruction sets of this CPU that matter to ONNX Runtime."""
    found = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    flags = set(found.group(1).split()) if found else set()
    return tuple(name for name in _FEATURES if name in flags)


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
