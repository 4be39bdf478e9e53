"""Runs a Python script and records the torch modules that it calls.

The script runs in this process as with `python script.py`: as `__main__`, with its own arguments and its folder first
on the module path. So this needs a process of its own. Random generators are seeded first, so a script without a seed
makes the same weights and inputs each time. torch.compile is disabled inside, because the module itself is measured
later.

Modules are numbered in the order of their first calls. A later run of the script finds a module by its number
(`captured`): the module and its inputs are taken from the running script, without pickling.

While it runs, `provided` makes `parse` of mlagility.parser and turnkeyml.parser importable, which scripts of these
tools' model collections import; an installed package of that name is left alone.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import importlib.abc
import importlib.util
import inspect
import os
import random
import re
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from pathlib import Path
from types import ModuleType, NoneType
from typing import Any

from benchmarking.core.errors import BenchhouseError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np, torch
from benchmarking.core.untrusted.input_files import lfs_pointer
from benchmarking.core.untrusted.redaction import compile_patterns

PACKAGES = ("mlagility", "turnkeyml")
DEFAULTS: Mapping[str, int | float | bool | None] = {
    "batch_size": 1,
    "max_seq_length": 128,
    "max_audio_seq_length": 25600,
    "height": 224,
    "width": 224,
    "num_channels": 3,
    "k": 2,
    "alpha": 2.2,
    "in_channels": 1433,
    "out_channels": 1500,
    "num_layers": 8,
    "pretrained": False,
    "kvcache": False,
    "model_path": None,
}
"""Argument of a script -> its value without --script-args, in turnkeyml."""
OTHER_DEFAULTS: Mapping[str, Mapping[str, int | float | bool | None]] = {"mlagility": {"k": 8, "out_channels": 16}}
"""Package -> values that differ there."""


@contextmanager
def provided() -> Iterator[None]:
    """Inside, the modules can be imported."""
    added: list[str] = []
    for package in PACKAGES:
        if package in sys.modules or importlib.util.find_spec(package) is not None:
            continue
        parent, parser = ModuleType(package), ModuleType(f"{package}.parser")
        parent.__path__ = []
        defaults = {**DEFAULTS, **OTHER_DEFAULTS.get(package, {})}
        parser.__dict__["parse"] = lambda names, defaults=defaults: parse(names, defaults)
        parent.__dict__["parser"] = parser
        sys.modules |= {package: parent, parser.__name__: parser}
        added += [package, parser.__name__]
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)


def parse(names: Sequence[str], defaults: Mapping[str, Any]) -> list[Any]:
    """The values of these arguments on the script's command line (`--batch_size 8`), else their defaults, in order.
    Raises KeyError for an unknown name; other arguments on the command line end the script."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in names:
        if name not in defaults:
            raise KeyError(f"{name} is not an argument of these parsers, which have {', '.join(defaults)}")
        default = defaults[name]
        if isinstance(default, bool):
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", default=default, type=str if default is None else type(default), nargs="?")
    found = vars(parser.parse_args())
    return [found[name] for name in names]


SEED = 0
KERAS = "keras"
KERAS_LAYER = "keras.src.layers.layer"
"""The Keras 3 module whose class Layer calls every layer; on the torch backend a layer is a torch module."""
QUANTIZED = ("torch.ao.nn.", "torch.nn.quantized")
"""The packages of torch's modules that pack their weights."""
SYMBOL = "KerasTensor"
"""The class of the values that Keras passes through layers when a model is assembled, before it is called."""
TRAINING = "training"
"""The argument of a Keras call that enables training mode."""
TENSORFLOW = "tensorflow"
MAX_TEXT = 40
"""Characters of a text in a signature; of a longer one it has a hash."""
MAX_SIGNATURES = 16
"""Limit of recorded input signatures per module: each one is measured, which takes seconds."""
NOT_A_NAME = re.compile(r"\W")


class _RecordingDone(BaseException):
    """Ends the script once everything needed has been recorded. Not an Exception, which scripts may catch."""


@dataclass(slots=True, eq=False)
class CallRecord:
    """A module's calls with inputs of one signature: the inputs of the first call, and the number of calls."""

    signature: Mapping[str, str]
    """For each input, its dtype and shape ("float32[8, 8]"), or the value of a number, text or None, else the type."""
    arguments: CallArguments
    executions: int = 0


@dataclass(slots=True, eq=False)
class ModuleRecord:
    module: torch.nn.Module
    number: int
    """Number in the order of first calls, from 1."""
    depth: int
    """Call depth: 0 for a module called by the script itself, 1 for a module called by such a module, ..."""
    parent: int | None
    """The number of the module that called it first; None at depth 0."""
    line: int | None
    """The line of the script with its first call."""
    calls: list[CallRecord] = field(default_factory=list)
    """At most `MAX_SIGNATURES`."""
    further_executions: int = 0
    """Number of calls with other signatures."""
    seconds: float = 0.0
    """Time of all calls."""
    hash: str = ""
    """`module_hash` at the end of the first call."""

    @property
    def executions(self) -> int:
        return self.further_executions + sum(call.executions for call in self.calls)


@dataclass(slots=True)
class ScriptRun:
    modules: list[ModuleRecord]
    error: str | None
    """Why the script failed, with the line; None if it succeeded or was ended by `captured`."""
    unrecorded: tuple[str, ...] = ()
    """The modules that cannot be measured, each with its line and the reason."""
    traceback: str | None = None
    """The whole traceback of that error, from the script on."""
    imports_tensorflow: bool = False
    other_backend: str | None = None
    """The first Keras model that did not compute in torch: its class, line and backend."""


def script_of_process() -> Path | None:
    """The script that this process runs to find its models, while it runs; None otherwise."""
    return _running[-1] if _running else None


def watch_script(script: Path, arguments: Sequence[str], max_depth: int) -> ScriptRun:
    """Run a script to its end. Returns what it called down to `max_depth`, even if it failed."""
    return _run(script, arguments, _Watch(script, max_depth))


def capture_module(script: Path, arguments: Sequence[str], max_depth: int, number: int, calls: int) -> ModuleRecord:
    """Run a script until the module with this number has been called with `calls` different signatures.

    Raises BenchhouseError if the script ends before that.
    """
    watch = _Watch(script, max_depth, wanted=(number, calls))
    run = _run(script, arguments, watch)
    module = next((seen for seen in run.modules if seen.number == number), None)
    if module is None or len(module.calls) < calls:
        ended = f"failed: {run.error}" if run.error else "ended"
        raise BenchhouseError(
            f"{script.name} {ended} before its model {number} was called with {calls} kinds of input, unlike when it "
            "was analysed: make the script deterministic"
        )
    return module


class CallArguments:
    """The arguments of a call as a tree with tensors replaced by names, to repeat the call with other tensors."""

    def __init__(self, module: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        from torch.utils import _pytree

        tree, plain = (args, dict(named)), (dict, list, tuple)
        try:
            paths, self._spec = _pytree.tree_flatten_with_path(tree)
        except ValueError:  # torch has no names for the parts of a user's class: then objects are not taken apart
            paths, self._spec = _pytree.tree_flatten_with_path(tree, is_leaf=lambda part: type(part) not in plain)
        names = _names(module, [path for path, _ in paths])
        self._leaves = [
            _repeatable_argument(module, name, value) for name, (_, value) in zip(names, paths, strict=True)
        ]
        self.is_symbolic = any(type(leaf).__name__ == SYMBOL for leaf in self._leaves)
        self._names: list[str | None] = [
            name if isinstance(value, torch.Tensor) else None for name, value in zip(names, self._leaves, strict=True)
        ]
        self.signature = {name: _signature_of(value) for name, value in zip(names, self._leaves, strict=True)}
        self.autocast = _autocast_of(module)
        self._may_grow = any(map(_may_grow, (*args, *named.values())))

    def detach(self) -> None:
        """Replace the tensors, and objects with their tensors, by copies in host memory, before the call changes
        them."""
        self._leaves = [_copied(value, lambda tensor: tensor.cpu()) for value in self._leaves]

    @property
    def has_state(self) -> bool:
        """Whether a call may change an argument that is no tensor, such as a KV cache or a list of states."""
        others = [leaf for name, leaf in zip(self._names, self._leaves, strict=True) if name is None]
        return self._may_grow or any(_copied(leaf, lambda tensor: tensor) is not leaf for leaf in others)

    def is_like(self, other: CallArguments) -> bool:
        return (self.signature, self.autocast) == (other.signature, other.autocast)

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: leaf for name, leaf in zip(self._names, self._leaves, strict=True) if name is not None}

    def with_tensors(
        self, tensors: Mapping[str, torch.Tensor], convert: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and named arguments with these tensors. Other objects are copies, with their tensors converted."""
        from torch.utils import _pytree

        pairs = zip(self._names, self._leaves, strict=True)
        leaves = [_copied(leaf, convert) if name is None else tensors[name] for name, leaf in pairs]
        positional, named = _pytree.tree_unflatten(leaves, self._spec)
        return tuple(positional), dict(named)


def module_hash(module: torch.nn.Module) -> str:
    """SHA-256 (hex) of a module's structure (classes and settings of its parts) and of its parameter and buffer values,
    and those of `unregistered`. Equal for the same model in another process."""
    digest = hashlib.sha256()
    for name, part in module.named_modules():
        kind = f"{type(part).__module__}.{type(part).__qualname__}"
        settings = part.extra_repr() if type(part).__module__.startswith("torch.nn.") else ""
        digest.update(f"{name}={kind}({settings})\n".encode())
    groups = [*module.named_parameters(), *module.named_buffers(), *unregistered(module).items()]
    while groups:
        name, tensor = groups.pop(0)
        digest.update(f"{name}:{_signature_of(tensor)}\n".encode())
        if tensor.device.type == "meta":  # shapes without values
            continue
        if hasattr(tensor, "__tensor_flatten__"):  # of several tensors, such as a quantized one and its scale
            parts = [(f"{name}.{one}", getattr(tensor, one)) for one in tensor.__tensor_flatten__()[0]]
            groups = [*parts, *groups]
            continue
        plain: Any = tensor.detach()
        if plain.is_quantized:
            plain = plain.dequantize()
        elif plain.layout != torch.strided:
            plain = plain.to_dense()
        digest.update(plain.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def unregistered(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights of a module that are neither parameters nor buffers: those that a quantized part packs, or the plain
    tensors of a module without any other weight."""
    known = {
        name for group in (module.named_parameters, module.named_buffers) for name, _ in group(remove_duplicate=False)
    }
    found: dict[str, torch.Tensor] = {}
    for path, part in module.named_modules():
        if type(part).__module__.startswith(QUANTIZED):
            for name, value in part.state_dict(prefix=f"{path}.").items():
                if name.lstrip(".") not in known:
                    found |= {f"{name}[{index}]": tensor for index, tensor in enumerate(_packed(value))}
        elif not known:
            own = vars(part).items()
            found |= {f"{path}.{name}": value for name, value in own if isinstance(value, torch.Tensor)}
    return found


def _packed(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a value of a quantized part's state."""
    from torch.utils import _pytree

    for leaf in _pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif isinstance(leaf, torch.ScriptObject):
            yield from _packed(leaf.__getstate__())


def is_keras(module: Any) -> bool:
    return KERAS in {base.__module__.partition(".")[0] for base in type(module).__mro__}


def _repeatable_argument(module: Any, name: str, value: Any) -> Any:
    """An argument in the form in which the call is repeated. In a Keras call, an array becomes the tensor that Keras
    makes from it (a graph would treat an array as a constant), and `training` is off, as in eval mode."""
    if not is_keras(module):
        return value
    if name == TRAINING:
        return value and False
    if isinstance(value, torch.Tensor) or not hasattr(value, "__array__") or type(value).__name__ == SYMBOL:
        return value
    array = np.array(value)
    return torch.from_numpy(array) if array.dtype.kind in "biuf" else value


def _signature_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"str of {len(value)} characters ({hashlib.sha256(value.encode()).hexdigest()[:8]})"
    if isinstance(value, np.ndarray):
        return f"ndarray {value.dtype}{value.shape}"
    return repr(value) if type(value) in (bool, int, float, str, NoneType, torch.dtype) else type(value).__name__


def _autocast_of(module: Any) -> str | None:
    """The dtype of `torch.autocast` around a call on the module's device; None without it."""
    device = next((tensor.device.type for tensor in (*module.parameters(), *module.buffers())), "cpu")
    if device == "meta" or not torch.is_autocast_enabled(device):
        return None
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")


def _may_grow(value: Any) -> bool:
    """Whether a list, a dict or another tree that a call may change is an argument, or in a tuple of it."""
    from torch.utils import _pytree

    return any(map(_may_grow, value)) if isinstance(value, tuple) else not _pytree.tree_is_leaf(value)


def _copied(value: Any, convert: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A copy whose tensors are converted; the value itself if it cannot change, is a module, or cannot be copied."""
    if isinstance(value, torch.nn.Module | np.generic):
        return value
    copies: dict[int, Any] = {}
    found, seen = [value], set[int]()
    while found:
        part = found.pop()
        if id(part) in seen or isinstance(part, type | ModuleType):
            continue
        seen.add(id(part))
        if isinstance(part, torch.Tensor | torch.nn.Module):
            copies[id(part)] = convert(part.detach().clone()) if isinstance(part, torch.Tensor) else part
            continue
        parts = part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple | set) else ()
        found += [*parts, *getattr(part, "__dict__", {}).values()]
    try:
        return copies[id(value)] if id(value) in copies else copy.deepcopy(value, copies)
    except Exception:  # noqa: BLE001 - whatever a class of the user's raises: it is passed as it is
        return value


def _names(module: Any, paths: Sequence[tuple[Any, ...]]) -> list[str]:
    """A name for each argument: its parameter's name plus the path inside it ("x", "states_0")."""
    try:
        parameters = list(inspect.signature(module.call if is_keras(module) else module.forward).parameters)
    except (AttributeError, TypeError, ValueError):  # a C++ forward, or a Keras layer with an inherited call
        parameters = []
    names: list[str] = []
    for side, first, *rest in paths:  # (0, position, ...) or (1, name, ...)
        key = _key(first)
        if _key(side) == "0":
            position = int(key)
            key = parameters[position] if position < len(parameters) else f"input_{position}"
        name = NOT_A_NAME.sub("_", "_".join([key, *map(_key, rest)]))
        while name in names:
            name += "_"
        names.append(name)
    return names


def _key(part: Any) -> str:
    """A part of a torch pytree path: an index, a key or an attribute."""
    return str(next(getattr(part, name) for name in ("idx", "key", "name") if hasattr(part, name)))


class _Calls(threading.local):
    """The recorded calls in which a thread is."""

    def __init__(self) -> None:
        self.stack: list[ModuleRecord] = []
        self.recording_s = 0.0
        """Time that recording took so far, which is none of the time of the calls around it."""


class _Watch:
    """Observes the module calls while a script runs."""

    def __init__(self, script: Path, max_depth: int, wanted: tuple[int, int] | None = None) -> None:
        self.modules: list[ModuleRecord] = []
        self.unrecorded: dict[int, str] = {}
        """By id of the module."""
        self.is_done = False
        self.imports_tensorflow = False
        self.other_backend: str | None = None
        self._script = str(script)
        self._max_depth = max_depth
        self._wanted = wanted
        self._known: dict[int, ModuleRecord] = {}
        self._kept: list[Any] = []
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._calls = _Calls()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Routes every module call through this object while inside."""
        with ExitStack() as restored:
            self._patch(torch.nn.Module, restored)
            if KERAS_LAYER in sys.modules:
                self._patch(sys.modules[KERAS_LAYER].Layer, restored)
            finder = _ImportWatch(self, restored)
            sys.meta_path.insert(0, finder)
            restored.callback(sys.meta_path.remove, finder)
            yield

    def _patch(self, kind: Any, restored: ExitStack) -> None:
        original = kind.__call__
        watch = self

        def call(module: Any, *args: Any, **named: Any) -> Any:
            return watch.call_and_record(original, module, args, named)

        kind.__call__ = call
        restored.callback(setattr, kind, "__call__", original)

    def call_and_record(
        self, original: Callable[..., Any], module: Any, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """Make the call, and record it if it is to be observed."""
        calls, stack = self._calls, self._calls.stack
        if self.is_done:
            self._end()
        if self.is_done or len(stack) > self._max_depth:
            return original(module, *args, **named)
        # Ignored are calls of a torch.compile wrapper, which calls the module itself, of a tracer, and in a process
        # forked by the script.
        is_wrapper = hasattr(module, "_orig_mod") or (bool(stack) and stack[-1].module is module)
        is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        if is_wrapper or is_traced or os.getpid() != self._process:
            return original(module, *args, **named)
        if not isinstance(module, torch.nn.Module):  # a layer of Keras on another backend; symbols assemble a model
            if self.other_backend is None and not any(type(value).__name__ == SYMBOL for value in args):
                backend = sys.modules[KERAS].config.backend()
                self.other_backend = (
                    f"{type(module).__name__} of Keras, called in line {_line_in(self._script)}, uses {backend}"
                )
            return original(module, *args, **named)
        entered_s = time.perf_counter()
        try:
            arguments, wait = CallArguments(module, args, named), _wait_for(module)
            is_recorded = not arguments.is_symbolic
            with self._lock:
                call = self._kind_of(module, arguments) if is_recorded else None
        except Exception as error:  # noqa: BLE001 - whatever a class of the user's raises here is no error of the script
            self._leave_out(module, error)
            is_recorded = False
        if not is_recorded:
            return original(module, *args, **named)
        with self._lock:
            if (record := self._known.get(id(module))) is None:
                record = ModuleRecord(
                    module=module,
                    number=len(self._known) + 1,
                    depth=len(stack),
                    parent=stack[-1].number if stack else None,
                    line=_line_in(self._script),
                )
                self._known[id(module)] = record  # keeps the module alive, so that its id is not reused
        stack.append(record)
        wait()
        started_s = time.perf_counter()
        calls.recording_s += started_s - entered_s
        before_s = calls.recording_s
        try:
            output = original(module, *args, **named)
            wait()
        finally:
            stack.pop()
        ended_s = time.perf_counter()
        with self._lock:
            self._count(record, call, ended_s - started_s - (calls.recording_s - before_s))
        calls.recording_s += time.perf_counter() - ended_s
        if self._wanted is not None and (record.number, len(record.calls)) == self._wanted:
            self.is_done = True
            self._end()
        return output

    def _kind_of(self, module: Any, arguments: CallArguments) -> CallRecord | None:
        """The record of calls with such arguments, new or known; None beyond the limit of signatures."""
        known = self._known[id(module)].calls if id(module) in self._known else []
        call = next((call for call in known if call.arguments.is_like(arguments)), None)
        if call is None and len(known) < MAX_SIGNATURES:
            held = (*module.parameters(), *module.buffers(), *arguments.tensors.values())
            if any(tensor.device.type == "meta" for tensor in held):
                raise ValueError("its tensors are on the device meta, which has no values")
            arguments.detach()
            call = CallRecord(signature=arguments.signature, arguments=arguments)
        return call

    def _count(self, record: ModuleRecord, call: CallRecord | None, seconds: float) -> None:
        """Count a call that has been made, as a kind of its own unless another thread's was like it meanwhile."""
        record.seconds += seconds
        if call is not None:
            call = next((known for known in record.calls if known.arguments.is_like(call.arguments)), call)
        if call is None or (call not in record.calls and len(record.calls) == MAX_SIGNATURES):
            record.further_executions += 1
            return
        if not record.calls:
            try:
                record.hash = module_hash(record.module)
            except Exception as error:  # noqa: BLE001 - as above
                self._leave_out(record.module, error)
                return
            self.modules.append(record)
            self.unrecorded.pop(id(record.module), None)
        if call not in record.calls:
            record.calls.append(call)
        call.executions += 1

    def _end(self) -> None:
        """End the script. In another of its threads the script would not notice: it ends at its own next call."""
        if threading.current_thread() is threading.main_thread():
            raise _RecordingDone

    def _leave_out(self, module: Any, error: Exception) -> None:
        """Note a module that cannot be measured; the module itself is kept, so that its id is not used again."""
        where = f"{type(module).__name__}, called in line {_line_in(self._script)}"
        self.unrecorded[id(module)] = f"{where}, cannot be measured: {type(error).__name__}: {first_line(error)}"
        self._kept.append(module)


class _ImportWatch(importlib.abc.MetaPathFinder):
    """Observes Keras layers as soon as the script imports them, and records an import of TensorFlow."""

    def __init__(self, watch: _Watch, restored: ExitStack) -> None:
        self._watch, self._restored = watch, restored

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name == TENSORFLOW:
            self._watch.imports_tensorflow = True
        if name not in (KERAS, KERAS_LAYER):
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_watch(module: Any) -> None:
                # Importing Keras draws random numbers; a second run in this process, which does not import it again,
                # must start from the same state.
                plain, arrays, tensors = random.getstate(), np.random.get_state(), torch.get_rng_state()
                execute(module)
                random.setstate(plain)
                np.random.set_state(arrays)
                torch.set_rng_state(tensors)
                if name == KERAS_LAYER:
                    self._watch._patch(module.Layer, self._restored)

            spec.loader.exec_module = execute_and_watch  # type: ignore[method-assign]
        return spec


def _run(script: Path, arguments: Sequence[str], watch: _Watch) -> ScriptRun:
    error, stack = None, None
    with _script_environment(script, arguments), watch.active():
        try:
            runpy.run_path(str(script), run_name="__main__")
        except _RecordingDone:
            pass
        except SystemExit as stop:
            if stop.code not in (None, 0):  # a number or a message
                error = f"it ended{' with exit code' if isinstance(stop.code, int) else ':'} {stop.code}"
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - anything that a script raises is its own failure, and is reported
            error = (
                f"{_error_location(script, problem)}: {type(problem).__name__}: {problem}{_lfs_note(problem)}".strip()
            )
            # From the script's own frames on, without those that ran it; whole for an error without any, such as a
            # syntax error.
            trace = problem.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename != str(script):
                trace = trace.tb_next
            stack = "".join(traceback.format_exception(type(problem), problem, trace or problem.__traceback__)).rstrip()
            print(stack, file=sys.stderr, flush=True)
    modules = sorted(watch.modules, key=lambda seen: seen.number)
    return ScriptRun(
        modules=modules,
        error=error,
        traceback=stack,
        unrecorded=tuple(watch.unrecorded.values()),
        imports_tensorflow=watch.imports_tensorflow,
        other_backend=watch.other_backend,
    )


_running: list[Path] = []


@contextmanager
def _script_environment(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Makes the process look as if started with the script. Its changes to torch's arithmetic and threads, which the
    measurement chooses, are undone; its folder stays on the module path for later imports."""
    argv, stdin = sys.argv, sys.stdin
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    sys.argv = [str(script), *arguments]
    compile_patterns()
    if str(script.parent) not in sys.path:
        sys.path.insert(0, str(script.parent))
    if (keras := sys.modules.get(KERAS)) is not None:  # else layers get other names in a second run in this process
        keras.utils.clear_session()
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    _running.append(script)
    try:
        with open(os.devnull, encoding="utf-8") as nothing, torch.compiler.set_stance("force_eager"), provided():
            sys.stdin = nothing
            yield
    finally:
        _running.pop()
        sys.argv, sys.stdin = argv, stdin
        torch.set_float32_matmul_precision(precision)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


def _wait_for(module: torch.nn.Module) -> Callable[[], None]:
    """Waits for the accelerator of a module, else for the current one, so that a call's time is its own. It does not
    start one that the script does not use."""
    if not torch.accelerator.is_available():
        return lambda: None
    current: Any = torch.accelerator.current_accelerator()
    is_started = getattr(torch.get_device_module(current), "is_initialized", lambda: True)  # torch starts MPS itself
    places = (parameter.device for parameter in module.parameters() if parameter.device.type == current.type)
    place = next(places, None)
    return lambda: torch.accelerator.synchronize(place) if is_started() else None


def _line_in(script: str) -> int | None:
    """The currently running line of the script."""
    stack = traceback.walk_stack(inspect.currentframe())
    return next((line for frame, line in stack if frame.f_code.co_filename == script), None)


def _lfs_note(error: BaseException) -> str:
    """What to do if a file that the failing calls were given is a git-lfs pointer; empty otherwise."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for value in list(frame.f_locals.values()):
            if isinstance(value, str | os.PathLike) and (pointer := lfs_pointer(value)) is not None:
                return f"; {pointer}"
    return ""


def _error_location(script: Path, error: BaseException) -> str:
    """The script and its line in which an error occurred."""
    if isinstance(error, SyntaxError) and error.filename == str(script):
        return f"{script.name}, line {error.lineno}"
    trace = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in trace if frame.f_code.co_filename == str(script)]
    return f"{script.name}, line {lines[-1]}" if lines else script.name
