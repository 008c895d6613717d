"""Whether this CPU adds products of 8 bits exactly.

On x86 without VNNI the sums are cut off at 16 bits, which the wide weights of tiny random models reach: what such a
model gives in int8 then says something of the CPU and nothing of the graph. The variant's own note says it too.
"""

from __future__ import annotations

import platform

from onnxport.exporters.environment import cpu_features

EXACT_INT8_SUMS = platform.machine() not in ("x86_64", "AMD64") or bool(
    {"avx512_vnni", "avx_vnni"} & set(cpu_features())
)
