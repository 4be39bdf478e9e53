"""Processes: the signals that end a command, and child processes (interpreter, module path, programs of the system,
JSON answers, limits, and commands that end with their parent).

`start` starts every child; a test reads the sources for others. A child never imports from the working folder (`-P`,
and only absolute folders in PYTHONPATH), so that a file random.py there cannot run. The installation or checkout of
this module comes first on its module path. Programs are found in absolute folders of PATH only.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, TypeVar

from benchmarking.core.errors import BenchhouseError, Interrupted
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import psutil
from benchmarking.core.untrusted.redaction import without_secrets

T = TypeVar("T")
ENDING_SIGNALS = ("SIGTERM", "SIGHUP")
"""Signals that end a command like Ctrl-C: sent by `kill`, a service manager, or a closing terminal."""
AGAIN_S = 0.02
"""After this time, a signal is raised again that came where nothing can be raised."""
REPEAT_S = 2.0
"""A service manager or terminal may send several signals to every process. Within this time only the first one counts,
so that cleanup can finish. A later one interrupts the cleanup too."""
OWN_PYTHON = (sys.executable, "-P")
EXIT_NOT_STARTED = 126
END_S = 15.0
"""Time for a bound command to clean up after SIGTERM, before it is killed."""
ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds our packages."""


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
    signal cancels the work, and its handler is called after that. Also for Ctrl-C, whose second one asyncio would raise
    in the middle of its loop, which then waits for ever. One more signal within `REPEAT_S` does not count."""
    import asyncio

    numbers = [getattr(signal, one, None) for one in ("SIGINT", *ENDING_SIGNALS) if _is_main()]
    before = {number: signal.getsignal(number) for number in numbers if number is not None}
    handled = {number: handler for number, handler in before.items() if callable(handler)}
    received: list[int] = []
    last_s = -REPEAT_S

    async def watched() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def end(number: int) -> None:
            nonlocal last_s
            if time.monotonic() - last_s < REPEAT_S:
                return
            last_s = time.monotonic()
            for one in asyncio.all_tasks(loop) if received else (task,):
                one.cancel()
            received.append(number)

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


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs one of our modules."""
    return (*OWN_PYTHON, "-m", module, *arguments)


def environment(variables: Mapping[str, str] | None = None, *, path_first: Path | None = None) -> dict[str, str]:
    """A child's environment: this process's, updated with `variables`, with our packages first on the module path.

    `path_first` replaces our packages as the first folder on the module path. Relative folders on that path are left
    out, since they would refer to the working folder. What goes through pipes is UTF-8 in every locale, on both sides.
    """
    found = {**os.environ, **(variables or {}), "PYTHONIOENCODING": "utf-8:surrogateescape"}
    named = filter(os.path.isabs, found.get("PYTHONPATH", "").split(os.pathsep))
    found["PYTHONPATH"] = os.pathsep.join([str(path_first or ROOT), *named])
    return found


@contextmanager
def environment_variable(name: str, value: str) -> Iterator[None]:
    """Inside, the environment of this process and its children has a variable; afterwards it is restored."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def start(
    command: Sequence[str],
    *,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = subprocess.PIPE,
    stderr: int | IO[bytes] | None = subprocess.PIPE,
    variables: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    new_session: bool = False,
) -> subprocess.Popen[str]:
    """Start a child that runs concurrently; the caller must end it. A stream of None is inherited.

    Its environment is `environment(variables)`, or exactly `env`; `folder` is its working folder. In a `new_session` it
    has a process group of its own, so that Ctrl-C in the terminal does not reach it.
    """
    return subprocess.Popen(  # noqa: S603 - the one place that starts programs: words, never a shell's line
        list(command),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment(variables) if env is None else dict(env),
        cwd=folder,
        start_new_session=new_session,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def kill_tree(pid: int) -> None:
    """Kill a process, then its descendants (a browser, compilers), which would otherwise keep running."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.Error):
                one.kill()


def claimed_stdout() -> IO[str]:
    """The pipe to the parent, protected from what prints in this process: file descriptor 1 becomes a second stderr,
    where each line appears immediately."""
    private = os.dup(1)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return os.fdopen(private, "w", encoding="utf-8")


def at_end_of_stdin(act: Callable[[], object]) -> None:
    """Call a function, in a thread, when stdin closes, which happens no matter how the process at its other end ends.
    Nothing else may read from it."""

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)
        act()

    threading.Thread(target=wait, daemon=True).start()


def program(name: str, path: str | None = None) -> str | None:
    """The path of a system program, or None; never one in the working folder. `path` replaces PATH."""
    import shutil

    path = os.environ.get("PATH", os.defpath) if path is None else path
    folders = filter(os.path.isabs, path.split(os.pathsep))
    found = shutil.which(name, path=os.pathsep.join(folders))
    # Windows looks in the working folder first, and returns a relative path for a match there.
    return found if found is not None and os.path.isabs(found) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A child that has ended, or was killed at its time limit."""

    exit_code: int | None
    """Negative for a signal; None when it was killed at its time limit."""
    stdout: str
    stderr: str
    """Empty when it went to this process's stderr."""
    is_too_long: bool = False
    """Whether it was killed because it wrote more than the caller accepts; the output is cut."""

    @property
    def last_line(self) -> str:
        """The last line on stderr, which states why a child failed; empty if there is none."""
        lines = self.stderr.strip().splitlines()
        return lines[-1].strip() if lines else ""


def run_module(module: str, *arguments: str, input_text: str | None = None, limit_s: float | None = None) -> Finished:
    """Run one of our modules to its end, with `input_text` on its stdin."""
    return run_program(module_command(module, *arguments), input_text=input_text, limit_s=limit_s)


def run_program(
    command: Sequence[str],
    *,
    input_text: str | None = None,
    limit_s: float | None = None,
    show_stderr: bool = False,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Finished:
    """Run any program to its end, with `input_text` on its stdin, and the rest as in `start`; `show_stderr` passes its
    stderr through to this process's. Raises OSError when it cannot be started."""
    process = start(
        command,
        stdin=subprocess.DEVNULL if input_text is None else subprocess.PIPE,
        stderr=None if show_stderr else subprocess.PIPE,
        env=env,
        folder=folder,
    )
    with process:
        try:
            stdout, stderr = process.communicate(input_text, timeout=limit_s)
        except subprocess.TimeoutExpired as late:
            process.kill()
            return Finished(exit_code=None, stdout=_text(late.stdout), stderr=_text(late.stderr))
        except BaseException:
            process.kill()
            raise
    return Finished(exit_code=process.returncode, stdout=stdout, stderr=stderr or "")


def ending(code: int) -> str:
    """How a process ended: "exit code 1", or by which signal: "SIGKILL"."""
    if code >= 0:
        return f"exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return names.get(-code, f"signal {-code}")


class ChildError(BenchhouseError):
    """A child gave no answer; the message says why."""


class ChildTimeLimitError(ChildError):
    """No answer came within the time limit."""


def run_module_json(
    module: str, *arguments: str, input_text: str | None = None, limit_s: float | None = None, show_stderr: bool = False
) -> Any:
    """The answer of one of our modules: the last line on its stdout, parsed as JSON.

    Raises ChildTimeLimitError at the time limit; ChildError for an exit code other than 0 (with the last line of its
    stderr) and for an answer that is not JSON.
    """
    command = module_command(module, *arguments)
    done = run_program(command, input_text=input_text, limit_s=limit_s, show_stderr=show_stderr)
    if done.exit_code is None:
        raise ChildTimeLimitError(f"no answer within {limit_s:g} s")
    if done.exit_code != 0:
        raise ChildError(done.last_line or f"exit code {done.exit_code}")
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise ChildError(f"{module} gave no answer in JSON: {without_secrets(done.stdout.strip())[-60:]!r}") from error


def hand_over(
    command: Sequence[str], *, limit_s: float | None = None, memory_bytes: int | None = None, is_terminal: bool
) -> int | None:
    """Run another program with this process's stdin, stdout and stderr. Returns its exit code, or None if it was killed
    at its time limit. `memory_bytes` limits its address space on Linux.

    In a terminal, Ctrl-C reaches the other program and only it reacts; otherwise Ctrl-C ends both.
    """
    with start(command, stdin=None, stdout=None, stderr=None, env=os.environ) as process:
        if memory_bytes is not None and sys.platform == "linux":
            import resource

            with suppress(ProcessLookupError):  # it has ended
                _, most = resource.prlimit(process.pid, resource.RLIMIT_AS)
                limit = memory_bytes if most < 0 else min(memory_bytes, most)
                resource.prlimit(process.pid, resource.RLIMIT_AS, (limit, most))
        while True:
            try:
                return process.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                return None
            except KeyboardInterrupt as stop:
                if not is_terminal or isinstance(stop, Interrupted):
                    process.kill()
                    raise


def run_module_within(module: str, *arguments: str, limit_s: float, max_bytes: int) -> Finished:
    """Run one of our modules, and kill it at the time limit, or when it has written more than `max_bytes` to its stdout
    or stderr."""
    outputs = {"stdout": b"", "stderr": b""}
    deadline_s = time.monotonic() + limit_s
    with start(module_command(module, *arguments)) as process:

        def read(name: str, pipe: IO[bytes]) -> None:
            with pipe:
                outputs[name] = pipe.read(max_bytes + 1)
            if len(outputs[name]) > max_bytes:
                process.kill()

        # Each thread owns its end of a pipe, which a grandchild may keep open after the child has been killed.
        pipes = {name: os.fdopen(os.dup(getattr(process, name).fileno()), "rb") for name in outputs}
        readers = [threading.Thread(target=read, args=item, daemon=True) for item in pipes.items()]
        try:
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join(max(0.0, deadline_s - time.monotonic()))
            process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            return Finished(exit_code=None, stdout="", stderr="")
        except BaseException:
            process.kill()
            raise
    texts = {name: _text(output[:max_bytes]) for name, output in outputs.items()}
    is_too_long = any(len(output) > max_bytes for output in outputs.values())
    return Finished(exit_code=process.returncode, is_too_long=is_too_long, **texts)


def run_bound(command: Sequence[str], variables: Mapping[str, str], folder: Path | None) -> int:
    """Run a command to its end, with its stdout on this process's stderr; returns its exit code (128 + signal).

    The command ends when this process ends, for whatever reason: this module runs as a process between the two. Its
    stdin is a pipe from here, which closes even after SIGKILL; it then ends the command. This works for commands of
    other interpreters and versions too. An interruption is raised after the command has ended.
    """
    process = start(
        module_command("benchmarking.core.child_process"),
        stdin=subprocess.PIPE,
        stdout=sys.stderr.fileno(),
        stderr=None,
    )
    assert process.stdin is not None
    job = {"command": list(command), "variables": dict(variables), "folder": None if folder is None else str(folder)}
    try:
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        return process.wait()
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


def main() -> int:
    """Run the command that is described on stdin, for `run_bound`; returns its exit code."""
    interrupted = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        # Handled rather than ignored, which the command would inherit. This process waits for the command.
        signal.signal(number, lambda *_: interrupted.set())
    job = json.loads(sys.stdin.buffer.readline())
    try:
        command = start(job["command"], stdout=None, stderr=None, env=job["variables"], folder=job["folder"])
    except OSError as error:
        print(f"{job['command'][0]}: {error.strerror}", file=sys.stderr)
        return EXIT_NOT_STARTED

    def end() -> None:
        if not interrupted.is_set():  # else a signal to the whole group has reached the command already
            command.terminate()
        try:
            command.wait(END_S)
        except subprocess.TimeoutExpired:
            command.kill()

    at_end_of_stdin(end)
    code = command.wait()
    return 128 - code if code < 0 else code


def _text(output: str | bytes | None) -> str:
    """The output up to the time limit, which is bytes on POSIX even in text mode."""
    return output.decode("utf-8", "replace") if isinstance(output, bytes) else output or ""


if __name__ == "__main__":
    sys.exit(main())
