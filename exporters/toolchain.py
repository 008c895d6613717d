"""The versions that decide a bundle's bytes, read from package metadata: nothing heavy is imported for it."""

from __future__ import annotations

import platform
import sys

from onnxport.exporters.environment import cpu_features, cpu_name, installed_version
from onnxport.exporters.errors import BundleError
from onnxport.exporters.extras import install
from onnxport.exporters.manifest import Toolchain


def toolchain(engine: str) -> Toolchain:
    """Returns what this process exports with. No host names, no kernel releases: the same machine type gives the same.

    Args:
        engine: name of the engine that made the graph.

    Raises:
        BundleError: a package that every export needs has no metadata.
    """
    return Toolchain(
        onnxport=_required("onnxport"),
        python=platform.python_version(),
        torch=_required("torch"),
        transformers=installed_version("transformers"),
        optimum=installed_version("optimum"),
        onnx=_required("onnx"),
        onnxruntime=_required("onnxruntime"),
        engine=engine,
        platform=f"{sys.platform}-{platform.machine().lower()}",
        cpu=" ".join((cpu_name(), *cpu_features())),
    )


def _required(package: str) -> str:
    version = installed_version(package)
    if version is None:
        raise BundleError(
            f"{package} is not installed, or not as a package that tells its version; a bundle records what made it. "
            f"Run {install('export')}."
        )
    return version
