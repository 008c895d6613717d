"""Runs one step in a child process.

onnxruntime.transformers appends to sys.path, prints and configures logging, and native code can crash: none of that
may reach the process of whoever uses the library, nor may the memory that a step needs stay with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from onnxport.exporters.errors import VariantError


def run_in_child(function: str, cwd: Path, **arguments: Any) -> dict[str, Any]:
    """Calls "module:function" with `arguments` in a fresh interpreter whose working folder is `cwd`.

    Arguments and result travel as JSON.

    Raises:
        VariantError: the function raised (its VariantError comes through as it is), or the process died.
        OSError: the function raised it.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__, function],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        errors="replace",
        cwd=cwd,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        check=False,
    )
    if done.returncode < 0:
        raise VariantError(
            f"{function} was killed by {signal.Signals(-done.returncode).name}. SIGKILL mostly means that memory ran "
            f"out; the base variant needs the least: --variant base.{_tail(done.stderr)}"
        )
    if done.returncode:
        raise VariantError(
            f"{function} failed.{_tail(done.stderr)}\nThe base variant does not need this step: --variant base."
        )
    reply: dict[str, Any] = json.loads(done.stdout)
    if "os_error" in reply:
        raise OSError(*reply["os_error"])
    if "variant_error" in reply:
        raise VariantError(reply["variant_error"])
    result: dict[str, Any] = reply["result"]
    return result


def _tail(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    return "".join(f"\n  {line}" for line in lines[-12:])


def _main() -> None:
    """Answers on the real standard output; whatever else is printed goes to standard error."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, function = sys.argv[1].split(":")
    arguments = json.load(sys.stdin)
    try:
        reply = {"result": getattr(import_module(module), function)(**arguments)}
    except VariantError as e:
        reply = {"variant_error": str(e)}
    except OSError as e:
        reply = {"os_error": [e.errno, e.strerror, e.filename] if e.errno else [str(e)]}
    with answer:
        json.dump(reply, answer)


if __name__ == "__main__":
    _main()
