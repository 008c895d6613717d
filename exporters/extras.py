"""The package's extras: which brings what, and how one is installed."""

from __future__ import annotations

MODULES = {
    "export": ("torch", "transformers", "optimum", "onnxscript", "sympy", "requests", "huggingface_hub", "PIL"),
    "metrics": ("sklearn", "scipy", "jiwer"),
}
"""Extra of the package to the modules that it brings."""


def install(*extras: str) -> str:
    """Returns the command that installs them, from an index and from a clone."""
    listed = ",".join(dict.fromkeys(extras))
    return f"pip install 'onnxport[{listed}]' (from a clone: pip install '.[{listed}]')"
