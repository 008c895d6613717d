"""SIGTERM and SIGHUP end a command as Ctrl-C does: through every `finally`, so that nothing is left behind."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

_STOP = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))  # Windows: one of them


class Stopped(BaseException):
    """The process was asked to end. No Exception: nothing on the way may take it for the failure of a step."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def stop_signals_raise() -> Iterator[None]:
    """Raises Stopped in the block when such a signal arrives; one that is ignored (nohup) stays ignored."""
    before = {number: signal.getsignal(number) for number in _STOP}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _: FrameType | None) -> None:
    for one in _STOP:
        signal.signal(one, signal.SIG_IGN)  # asked once is enough: a second one must not end the cleaning up
    raise Stopped(number)
