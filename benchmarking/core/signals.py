"""Signals that end a command: how they interrupt it, and how long they wait during an import."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from benchmarking.core.errors import Interrupted

T = TypeVar("T")
ENDING_SIGNALS = ("SIGTERM", "SIGHUP")
"""Signals that end a command like Ctrl-C: sent by `kill`, a service manager, or a closing terminal."""
AGAIN_S = 0.02
"""After this time, a signal is raised again that came where nothing can be raised."""
REPEAT_S = 2.0
"""A service manager or terminal may send several signals to every process. Within this time only the first one counts,
so that cleanup can finish. A later one interrupts the cleanup too."""


@contextmanager
def signals_interrupt() -> Iterator[list[int]]:
    """Inside, the first signal that ends a command raises Interrupted in the main thread; yields the received signals.

    One that Python would print and forget, since it came within a finalizer or a callback of the garbage collector,
    comes again, as does Ctrl-C. Signals that are ignored (nohup) or handled by a caller are left alone, but for the
    handler of the entry points during their imports. Windows has none of these signals.
    """
    received: list[int] = []
    last_s = -REPEAT_S

    def interrupt(number: int, frame: object) -> None:
        nonlocal last_s
        is_repeated = time.monotonic() - last_s < REPEAT_S
        if is_repeated:
            return
        last_s = time.monotonic()
        received.append(number)
        # Discard further output to a closed terminal, where writing would raise an error.
        for descriptor in (1, 2):
            try:
                os.write(descriptor, b"")
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        raise Interrupted(number)

    def again(unraisable: sys.UnraisableHookArgs) -> None:
        nonlocal last_s
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            report(unraisable)
            return
        last_s = -REPEAT_S
        # By another thread: here it would be raised within this function, where it is forgotten, too.
        number = unraisable.exc_value.number if isinstance(unraisable.exc_value, Interrupted) else signal.SIGINT
        timer = threading.Timer(AGAIN_S, _raise_in_main_thread, (number,))
        timer.daemon = True
        timer.start()

    report = sys.unraisablehook
    if _is_main():  # of several threads, the last to end would put back another's function
        sys.unraisablehook = again
    numbers = [getattr(signal, one) for one in ENDING_SIGNALS if os.name == "posix"]
    before = {number: signal.getsignal(number) for number in numbers if _is_main()}
    # Whether a handler is the system's, or that of the entry points, which they mark.
    handled = {
        number: handler
        for number, handler in before.items()
        if handler is signal.SIG_DFL or getattr(handler, "is_for_imports", False)
    }
    for number in handled:
        signal.signal(number, interrupt)
    try:
        yield received
    finally:
        if sys.unraisablehook is again:
            sys.unraisablehook = report
        for number, handler in handled.items():
            signal.signal(number, handler)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Inside, signals that Python handles wait until the end.

    For compiled packages that import others: they take KeyboardInterrupt for a package that is missing.
    """
    received: list[tuple[int, FrameType | None]] = []
    numbers = [getattr(signal, one, None) for one in ("SIGINT", *ENDING_SIGNALS) if _is_main()]
    handlers = {number: signal.getsignal(number) for number in numbers if number is not None}
    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handled:
        signal.signal(number, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        for number, frame in received[:1]:
            handled[number](number, frame)


def pass_on(code: int) -> None:
    """Raise Interrupted for the exit code of a command that a signal ended: 128 + its number."""
    if code - 128 in {getattr(signal, name, None) for name in ("SIGINT", *ENDING_SIGNALS)}:
        raise Interrupted(code - 128)


def run_tasks(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, but no signal raises an error within a task, which asyncio would print with a traceback: the
    signal cancels the work, as Ctrl-C does, and its handler is called after that."""
    import asyncio

    numbers = [getattr(signal, one, None) for one in ENDING_SIGNALS if _is_main()]
    before = {number: signal.getsignal(number) for number in numbers if number is not None}
    handled = {number: handler for number, handler in before.items() if callable(handler)}
    received: list[int] = []

    async def watched() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def end(number: int) -> None:
            received.append(number)
            task.cancel()

        with suppress(NotImplementedError):  # Windows' loops have none: there signals raise as in `asyncio.run`
            for number in handled:
                loop.add_signal_handler(number, end, number)
        return await work

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        if not received:
            raise
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])
    raise AssertionError("unreachable: the handler raises an error")


def _raise_in_main_thread(number: int) -> None:
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, number)
    else:  # on Windows, where it wakes no thread that sleeps
        import _thread

        _thread.interrupt_main(signal.Signals(number))


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
