"""The entry points of the installed commands. They import a command only when it runs, so that Ctrl-C or a lack of
memory during the imports ends it with one line instead of a traceback."""

import signal
import sys
from functools import partial
from types import FrameType

FAILED, INTERRUPTED = 1, 130


class Ended(KeyboardInterrupt):
    """SIGTERM or SIGHUP before `run_command` has its own handlers."""


def end(number: int, frame: FrameType | None) -> None:
    """The handler of these signals during the imports."""
    raise Ended(number)


end.is_for_imports = True  # type: ignore[attr-defined]


def run(name: str, module: str) -> int:
    """Import the command's module and run its `main`."""
    for signal_name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, signal_name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)
    try:
        __import__(module)
        code = int(sys.modules[module].main())
    except KeyboardInterrupt as stop:  # not yet, or no longer, in `run_command`
        sys.stderr.write(f"{name}: interrupted\n")
        code = 128 + stop.args[0] if isinstance(stop, Ended) else INTERRUPTED
    except (MemoryError, ImportError, SystemError) as error:  # likewise
        from benchmarking.core.errors import out_of_memory_line

        if (line := out_of_memory_line(error)) is None:
            raise
        sys.stderr.write(f"{name}: error: {line}\n")
        return FAILED
    # After an interruption one more Ctrl-C ends the interpreter at once: its shutdown would print a traceback.
    if code > 128 and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


benchhouse = partial(run, "benchhouse", "benchmarking.cli")
batch_benchmark = partial(run, "batch_benchmark", "benchmarking.commands.batch")
benchit = partial(run, "benchit", "benchmarking.commands.script")
compare_onnx = partial(run, "compare_onnx", "benchmarking.commands.compare_runtimes")
export_to_onnx = partial(run, "export_to_onnx", "benchmarking.commands.export_model")
integration_benchmark = partial(run, "integration_benchmark", "benchmarking.integration_benchmark")
manage_cache = partial(run, "manage_cache", "benchmarking.commands.cache")
profile_model = partial(run, "profile_model", "benchmarking.commands.profile")
profiler = partial(run, "profiler", "benchmarking.profiler")
run_benchmarks = partial(run, "run_benchmarks", "benchmarking.commands.benches")
run_hardware_benchmark = partial(run, "run_hardware_benchmark", "benchmarking.commands.run")
setup_benchmark_db = partial(run, "setup_benchmark_db", "db.setup_benchmark_db")
visualize_benchmarks = partial(run, "visualize_benchmarks", "visualize.visualize_benchmarks")
