"""What vLLM's and SGLang's benchmarks print, from any log that contains it: the blocks "Serving Benchmark Result" and
"Offline Throughput Benchmark Result", vLLM's line "Throughput: ...", and the latencies of `vllm bench latency`. The
first serving benchmarks printed their numbers without a title, with the unit behind the number.

Each block is a run. The model and the load's settings come from the command or the printed arguments above it. Numbers
are rounded to two digits; the file of --save-result has them exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import REQUEST_RATE, SERVER, Json, Result, Scalar
from db.importers.serving_clients import SERVE_NUMBERS, SGLANG_NUMBERS
from db.importers.support.building import UNNAMED, ForeignRun, Format
from db.importers.support.files import ForeignFile
from db.importers.support.load_clients import (
    CLIENT_DEFINITIONS,
    ENGINE,
    FLAGS,
    OFFLINE_ENGINE,
    arrivals_of,
    batch_result,
    client_result,
    client_settings,
    client_task,
    engine_settings,
    has_drawn_lengths,
    is_engine_flag,
    launched_with,
    length_requested,
    settings_of_requests,
)
from db.importers.support.reading import (
    FLAG,
    Fields,
    agreed,
    flags_of,
    parsed_number,
    printed_lines,
    resolved,
    understood,
)
from db.importers.support.serving import (
    NOT_STATED,
    PARALLELISM,
    RAMP,
    SHARED_RANKS,
    UNLIMITED,
    common_length,
    device_count,
    engine_not_stated,
    load_mode,
    load_result,
    of_ramp,
    parallel_mode,
    ramp_of,
    server_host,
)

MOST_LABEL = 100
"""Characters of the longest label. Patterns that search a line begin at the start of what repeats, or end after so many
characters, since a line of any length may come from anyone."""
TITLE = re.compile(r"(?<!=)=+ ?(Serving|Offline Throughput) Benchmark Result ?=+")
END = re.compile(r"^(?:(?!={4}).)*={20,}\s*$")
SECTION = re.compile(
    rf"(?<!-)-{{4,80}}.{{0,{MOST_LABEL}}}-{{4,80}}\s*$|(?<!=)={{4,80}}!.{{0,{MOST_LABEL}}}!={{4,80}}\s*$|"
    rf"[A-Z][\w ()%-]{{0,{MOST_LABEL}}}:\s*$"
)
"""A title, a notice inside a block, or a label whose values stand below it."""
LABELLED = re.compile(
    rf"([A-Z][\w /().%,:-]{{0,{MOST_LABEL}}}?):\s+"
    r"(-?[\d.]+(?:e[-+]?\d+)?|inf|nan|N/A|None|not set|[a-z][\w.-]*)(%)?(?: \((?:Poisson|Gamma) \w+\))?\s*$"
)
STATISTIC = re.compile(
    r"(Mean|Median|Std|Min|Max|P[\d.]+) "
    r"(TTFT|TPOT|ITL|E2EL|E2E Latency|Client Queue Time|E2EL incl\. Client Queue) \((ms|s)\)"
)
METRICS = {"E2EL incl. Client Queue": "e2el_including_client_queue"}
"""Printed metric -> that of the saved file, if it is another word."""
FIRST = re.compile(r"([A-Z][A-Za-z0-9 ]{0,40}?): (-?[\d.]+) (s|requests/s|tokens/s|ms)\s*$")
"""A number of the first serving benchmarks: "Request throughput: 6.05 requests/s"."""
UNITS = {"requests/s": "req/s", "tokens/s": "tok/s"}
OPENING = ("Successful requests", "Benchmark duration (s)")
"""The first labels of every serving benchmark."""
LABELS = {
    "Successful requests": "completed",
    "Failed requests": "failed",
    "Maximum request concurrency": "max_concurrency",
    "Max request concurrency": "max_concurrency",
    "Max reqeuest concurrency": "max_concurrency",  # in earlier versions of SGLang
    "Request rate configured (RPS)": "request_rate",
    "Traffic request rate": "request_rate",
    "Backend": "backend",
    "Benchmark duration (s)": "duration",
    "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens",
    "Total generated tokens (retokenized)": "total_output_tokens_retokenized",
    "Request throughput (req/s)": "request_throughput",
    "Request goodput (req/s)": "request_goodput",
    "Input throughput (inputs/s)": "input_sequence_throughput",
    "Input token throughput (tok/s)": "input_throughput",
    "Output token throughput (tok/s)": "output_throughput",
    "Peak output token throughput (tok/s)": "max_output_tokens_per_s",
    "Peak concurrent requests": "max_concurrent_requests",
    "Total throughput (tok/s)": "total_token_throughput",
    "Total Token throughput (tok/s)": "total_token_throughput",
    "Total token throughput (tok/s)": "total_token_throughput",
    "Concurrency": "concurrency",
    "RTFx (Inverse Real-Time Factor)": "rtfx",
    "Accept length": "accept_length",
    "Acceptance length": "accept_length",
    "Acceptance rate (%)": "spec_decode_acceptance_rate",
}
"""Printed label -> field of the file that the same client saves."""
FETCHED = re.compile(rf"First model name: .{{0,{MOST_LABEL}}}, first model id: (\S+)\s*$")
"""The model of a command without one, as vLLM's client prints what its server says."""
RISING = re.compile(
    r"Traffic ramp-up strategy: (?P<ramp_up_strategy>\w+)|"
    r"Will increase RPS from (?P<ramp_up_start_rps>[\d.]+) to (?P<ramp_up_end_rps>[\d.]+) RPS"
)
"""What vLLM's client prints of a rate that rises, in the place of its "Traffic request rate"."""
ABOVE = ("Traffic request rate", "Maximum request concurrency", "Burstiness factor")
"""Labels that are printed above the block."""
POISSON = {"arrivals": "poisson"}
"""Arrivals by default, of which first versions print nothing."""
THROUGHPUT = re.compile(r"Throughput: ([\d.]+) requests/s, ([\d.]+) (?:total )?tokens/s(?:, ([\d.]+) output tokens/s)?")
TOKENS = re.compile(r"Total num (prompt|output) tokens:\s+(\d+)")
AVERAGE = re.compile(r"Avg latency: ([\d.eE+-]+) seconds")
PERCENTILE = re.compile(r"(\d{1,2})% percentile latency: ([\d.eE+-]+) seconds")
PERCENTILES = {"25": "p25", "50": "median", "75": "p75", "90": "p90", "99": "p99"}
NAMED = re.compile(r"(?<=[(, ])([a-z_]+)=('[^']*'|\[[^][]*\]|\{(?:[^{}]|\{[^{}]*\})*\}|[^,()\s]+)")
"""An argument of the printed namespace."""
LONG = re.compile(r"(?<=\s)-(O|cc)(?=[\d.= ])")
LONG_NAMES = {"O": "--optimization-level ", "cc": "--compilation-config"}
"""Flags of one dash that have their value, or the name of a part, right behind."""
OF_LLAMA = re.compile(r"\s(?:-m|-hfr?|--hf-repo)[= ]\s*")
"""The flags of llama-server that name its model."""
MODEL = ("model", "model_path", "model_id")
"""Those of all servers."""
SHORT = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size"}
COMMAND = re.compile(
    r"vllm bench|benchmark_(serving|throughput|latency)|bench_serving|bench_offline|sglang\.benchmark\.|Namespace\(|"
    r"^\s*(?P<more>--)(?!-)"
)
"""The beginning of a client's command, the arguments that a client prints, or more flags of a command."""
SERVER_COMMAND = re.compile(
    r"(?:vllm|sglang|lmdeploy|mlc_llm) serve|trtllm-serve|(?:serve )?api_server|launch_server|vllm-openai(?=[:@\s])|"
    r"text-generation-launcher|llama-server"
)
"""The beginning of a server's command; an image of vLLM's starts one."""
STATES = re.compile(r"\s--?[a-z]|\s[\w.~-]+/|\\\s*$|Namespace\(")
"""In a command: it names a model or has arguments, here or in its next line; without it a log speaks of the program."""
CONTAINER = re.compile(r"\b(?:(?:docker|podman|nerdctl|kubectl) run|(?:singularity|apptainer) exec|srun|mpirun)\b")
"""What starts a container or a job, with flags of its own in front of the command in it."""
OF_KIND = re.compile(r"(?:vllm bench |benchmark_)(serv|throughput|latency)")
KINDS = {"serv": "Serving", "throughput": "throughput", "latency": "latency"}
"""Word of a client's command -> kind of its result."""
SERVED_MODEL = re.compile(
    r"[^\n]*?(?:(?:vllm|sglang|mlc_llm|trtllm-serve) serve|trtllm-serve|serve api_server|vllm-openai(?:[:@]\S{1,200})?)"
    r"[\s\\]+(?:HF://)?([\w.~-]*/[\w./~-]+)(?=\s|$)"
)
"""A server's model that is given without a flag: a path, or a name with its organisation."""
OF_SERVER = ("model", "revision", SHARED_RANKS, *PARALLELISM, *ENGINE)
"""Arguments of a server that its loads are told apart by, beside its flags."""
OF_A_LOAD = ("num_prompts", "request_rate", "max_concurrency", "burstiness", "Burstiness factor", *RAMP)
"""Arguments that may differ between the results of one command, such as a sweep."""
OF_CLIENT = ("max_concurrency", "request_rate", "num_prompts", "backend", "endpoint_type")
"""What a client's command states of a load."""
WITH_LIMIT = ("max_concurrency", "request_rate", "failed", "max_concurrent_requests")
"""What only versions print that print a limit of requests in flight, too."""
OF_SGLANG = re.compile(r"\(retokenized\):|Traffic request rate:")
"""Labels in a block that only SGLang's client prints there."""
NO_LIMIT = re.compile(r"concurrency:\s+not set")
BACK = 60
"""Lines above a result that are searched for its commands; above the nearest command, if that is further up."""
DEFINITIONS = {
    "latency": "e2el: from sending a request to its last byte; offline a call of generate for the whole batch",
    "time_to_first_token_ms": "median ttft: from the start of a request to the first output that was streamed",
    "itl": "vLLM: every gap between chunks of the stream; SGLang: the gap over the tokens of the later piece",
    **CLIENT_DEFINITIONS,
    "total_tokens_per_sec": "tokens of prompts and answers over that duration",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One printed result."""

    kind: str
    """Serving, Offline Throughput, throughput or latency."""
    line: int
    """The line that it begins in, from 1."""
    lines: tuple[str, ...]
    arguments: Mapping[str, str]
    is_limit_stated: bool
    """Whether what stands above it states the limit of requests in flight, or that there is none."""


def recognises(file: ForeignFile) -> bool:
    if file.is_json or not (text := file.text):
        return False
    lines = _lines(text)
    return (
        any(_is_title(lines, at) for at in range(len(lines)))
        or bool(THROUGHPUT.search(text))
        or bool(AVERAGE.search(text) and PERCENTILE.search(text))
    )


def _lines(text: str) -> list[str]:
    """The lines; the numbers of the first versions under today's labels."""
    lines = printed_lines(text)
    for at, line in enumerate(lines):
        if found := FIRST.search(line):
            label = f"{found[1]} ({UNITS.get(found[3], found[3])})"
            if label in LABELS or STATISTIC.fullmatch(label):
                lines[at] = f"{line[: found.start()]}{label}: {found[2]}"
    return lines


def _is_title(lines: Sequence[str], at: int) -> bool:
    """Whether a block begins here: programs that read such logs contain its title, too, but no numbers."""
    if TITLE.search(lines[at]):
        return any(LABELLED.search(line) for line in lines[at + 1 : at + 4])
    if OPENING[0] not in lines[at]:
        return False
    labels = [_bare(found[1]) if (found := LABELLED.search(line)) else "" for line in lines[at : at + 4]]
    return labels[0] == OPENING[0] and OPENING[1] in labels


def read(file: ForeignFile) -> Iterator[ForeignRun]:
    """The results in the order of the log, each read to its end across lines that are printed in between."""
    lines, parts = _lines(file.text or ""), list[Part]()
    at, last = 0, 0
    shared: dict[str, dict[str, str]] = {}
    server: dict[str, str] = {}
    while at < len(lines):
        line = lines[at]
        is_block, title = _is_title(lines, at), TITLE.search(line)
        kind = "throughput" if THROUGHPUT.search(line) else None
        kind = (title[1] if title else "Serving") if is_block else kind
        kind = kind or ("latency" if AVERAGE.search(line) or PERCENTILE.search(line) else None)
        if kind is None:
            at += 1
            continue
        end = _end(lines, at, is_block=is_block)
        near = _commands(lines[_start(lines, last, at, COMMAND) : at])
        clients = {who: _alike(kind, near[who]) for who in ("client", "printed")}
        found, fetched = dict[str, str](), dict[str, str]()
        for line in lines[last:at]:
            if model := FETCHED.search(line):
                fetched = {"model": model[1]}
            if rising := RISING.search(line):
                found |= {name: value for name, value in rising.groupdict().items() if value}
            labelled = LABELLED.search(line)
            label = _bare(labelled[1]) if labelled else None
            if labelled and label in ABOVE:
                found[LABELS.get(label, label)] = labelled[2]
        own = resolved({**agreed(clients["client"]), **agreed(clients["printed"]), **found})
        own |= fetched if own.get("model", "None") == "None" else {}
        # Without a client's command another result of the one above: of its model, not of its load.
        begun = _commands(lines[last:at])
        arguments = own if begun["client"] or begun["printed"] else {**shared.get(kind, {}), **own}
        shared[kind] = {name: value for name, value in arguments.items() if name not in OF_A_LOAD}
        nearest = _commands(lines[_start(lines, last, at, SERVER_COMMAND) : at])["server"]
        if kind == "Serving" and (stated := _serving(_model_of(own), nearest, begun["server"])):
            server = resolved(agreed(stated))
            arguments = {**arguments, **server, **own}
        elif kind == "Serving" and _model_of(arguments) in (None, _model_of(server)):
            arguments = {**server, **arguments}
        # A client's command states a limit of requests in flight, if there is one.
        limits = {one.get("max_concurrency", "None") for several in clients.values() for one in several}
        parts.append(
            Part(
                kind=kind,
                line=at + 1,
                lines=tuple(lines[at:end]),
                arguments=arguments,
                is_limit_stated=limits == {"None"} or any(name in own for name in ("max_concurrency", *found)),
            )
        )
        at = last = end
    yield from understood(file, enumerate(parts), lambda numbered: _run(file, numbered[1], numbered[0]))


def _start(lines: Sequence[str], last: int, at: int, pattern: re.Pattern[str]) -> int:
    """The line, after the result before, from which commands of the result in this line are searched."""
    for number in range(at - 1, last - 1, -1):
        found = pattern.search(lines[number])
        if found and not found.groupdict().get("more") and STATES.search(lines[number], found.start()):
            return max(last, (number if number < at - BACK else at) - BACK)
    return max(last, at - BACK)


def _commands(lines: Sequence[str]) -> Mapping[str, list[str]]:
    """The commands in the lines: of servers, of clients, and the arguments that clients print."""
    found: dict[str, list[list[str]]] = {"server": [], "client": [], "printed": []}
    who, goes_on, is_of_container = "client", False, False
    for line in lines:
        served, begun = SERVER_COMMAND.search(line), COMMAND.search(line)
        is_inside = is_of_container or CONTAINER.search(line) is not None
        is_of_container = is_inside and line.rstrip().endswith("\\")
        if served or (begun and begun["more"] is None):
            who, is_of_container = "server" if served else "printed" if "Namespace(" in line else "client", False
            found[who].append([])
        elif is_inside or (not begun and not goes_on):
            continue
        found[who] = found[who] or [[]]
        start = served or begun
        own = line[start.start() :] if start else line  # without what starts it, as in a container
        text = re.split(r"\s#", own.lstrip("# "))[0]
        found[who][-1].append(f"{text}\n")
        goes_on = text.rstrip().endswith("\\")
    return {who: ["".join(lines_of) for lines_of in commands] for who, commands in found.items()}


def _alike(kind: str, commands: Sequence[str], *, is_server: bool = False) -> list[dict[str, str]]:
    """The arguments (of a server those that matter to its loads) of each command that may have printed a result of this
    kind, or served it: of one that has any. A server's model may be without a flag."""
    found = []
    for command in commands:
        word = OF_KIND.search(command)
        if word and KINDS[word[1]] != kind:
            continue
        command = LONG.sub(lambda found: LONG_NAMES[found[1]], command)
        command = OF_LLAMA.sub(" --model ", command) if command.startswith("llama-server") else command
        given = flags_of(command, SHORT, FLAGS) | {name: value.strip("'") for name, value in NAMED.findall(command)}
        if is_server:
            served = SERVED_MODEL.match(FLAG.sub(" ", command))
            model = next((given[name] for name in MODEL if name in given), served[1] if served else None)
            stated, names = {**given, "model": model}.items(), {*OF_SERVER, *launched_with(command)}
            given = {name: one for name, one in stated if one and (name in names or is_engine_flag(name))}
        found += [given] if given else []
    return found


def _serving(model: str | None, nearest: Sequence[str], above: Sequence[str]) -> list[dict[str, str]]:
    """The arguments of the servers' commands that a load is of: those with its model, or the nearest ones."""
    near, others = (_alike("Serving", commands, is_server=True) for commands in (nearest, above))
    for servers in (near, others):
        if model and (found := [server for server in servers if _model_of(server) == model]):
            return found
    return near


def _model_of(arguments: Mapping[str, str]) -> str | None:
    """The name of the model without its folder or organisation."""
    path = arguments.get("model") or arguments.get("model_path")
    return path and path.rstrip("/").rpartition("/")[2]


def _end(lines: Sequence[str], at: int, *, is_block: bool) -> int:
    """The line after a result: after the closing line of a block, before another result."""
    if is_block and not TITLE.search(lines[at]):
        rest = range(at + 1, len(lines))
        others = (  # another result, its command, or the first line that is printed above it
            number
            for number in rest
            if _is_title(lines, number) or COMMAND.search(lines[number]) or ABOVE[0] in lines[number]
        )
        labels = {
            number: _bare(found[1])
            for number in range(at, next(others, len(lines)))
            if (found := LABELLED.search(lines[number]))
        }
        return max(number for number, one in labels.items() if one in LABELS or STATISTIC.fullmatch(one)) + 1
    last = PERCENTILE.search(lines[at])
    for number in range(at + 1, len(lines)):
        line = lines[number]
        if TITLE.search(line) or (not is_block and (THROUGHPUT.search(line))):
            return number
        if is_block and END.search(line):
            return number + 1
        if not is_block and (AVERAGE.search(line) or COMMAND.search(line)):
            return number
        percentile = PERCENTILE.search(line)
        if percentile and last and int(percentile[1]) <= int(last[1]):
            return number  # the percentiles of another result, whose average was not printed
        last = percentile or last
    return len(lines)


def _run(file: ForeignFile, part: Part, index: int) -> ForeignRun:
    arguments = {name: value for name, value in part.arguments.items() if value not in ("None", "N/A")}
    settings = Fields(file, arguments, f"line {part.line}", numbers_are_text=True)
    is_load = part.kind == "Serving"
    block = _block(file, part, settings)
    if part.kind == "latency":
        result = _latency(part, settings)
    else:
        result = _load(part, block, settings) if is_load else _offline(part, block, settings)
    others = {label: value for label, value in block.rest().items() if label not in arguments}
    backend = arguments.get("backend") or arguments.get("endpoint_type")
    ramp = ramp_of(settings) if is_load else None
    mode: dict[str, Scalar | None] = {
        **engine_settings(settings, ENGINE if is_load else OFFLINE_ENGINE),
        **parallel_mode(settings),
    }
    if is_load:
        mode |= {"endpoint": backend or None, "ramp_up": ramp, **client_settings(settings), **load_mode(result)}
        if (ramp or REQUEST_RATE in result.point.axes) and (arrivals := _arrivals(settings)[0]) != POISSON:
            mode |= arrivals
    else:
        mode |= {"engine": "offline", **settings_of_requests(settings)}
    host = ":".join(arguments[name] for name in ("host", "port") if name in arguments)
    engine = backend or ("vllm" if part.kind in ("throughput", "latency") else "sglang")
    return ForeignRun(
        key=str(index),
        model_id=arguments.get("model") or arguments.get("model_path") or UNNAMED,
        task=client_task(block),
        results=[result],
        runtime=SERVER if is_load else engine,
        runtime_mode=mode,
        device_count=device_count(settings) or 1,
        device_type="unknown" if is_load else arguments.get("device", "auto").replace("auto", "unknown"),
        model_revision=arguments.get("revision"),
        precision_word=None if is_load else arguments.get("dtype"),
        host=server_host(arguments.get("base_url") or (host if "host" in arguments else None)) if is_load else None,
        doubts=(*engine_not_stated(backend), *of_ramp(ramp)) if is_load else (),
        kept={"arguments": dict[str, Json](arguments), **({"printed": others} if others else {})},
    )


def _block(file: ForeignFile, part: Part, settings: Fields) -> Fields:
    """The labelled values of the result, those of a load with the arguments that describe it; without any in the
    results that are lines of text."""
    values = _labelled(file, part) if part.kind in ("Serving", "Offline Throughput") else {}
    if part.kind == "Serving":
        stated = {name: parsed_number(str(settings.peek(name))) for name in OF_CLIENT if name in settings}
        values = {**stated, **values}
        if values.get("request_rate") == float("inf"):
            values["request_rate"] = "inf"
    return Fields(file, values, f"line {part.line}")


def _load(part: Part, load: Fields, settings: Fields) -> Result:
    own = (name for name in WITH_LIMIT if name in load and name not in settings)
    is_limit_stated = part.is_limit_stated or any(own) or any(map(NO_LIMIT.search, part.lines))
    sent, completed = load.count("num_prompts"), load.unread_copy().integer("completed")
    counted = max(0, sent - completed) if sent and completed is not None else None
    failed = load.number("failed", low=0) if "failed" in load else counted
    prompts = sent
    if not sent and load.peek("request_rate") == "inf" and load.peek("max_concurrency") is None:
        prompts = round((completed or 0) + (failed or 0))  # all at once: each waits for the others
    return client_result(
        load,
        sent=sent,
        failed=failed,
        numbers=SERVE_NUMBERS | SGLANG_NUMBERS,
        unlimited=UNLIMITED if is_limit_stated else NOT_STATED,
        axes={"num_prompts": prompts} if prompts else {},
        prompt_tokens_requested=length_requested(settings, "input"),
        new_tokens_requested=length_requested(settings, "output"),
        has_drawn_lengths=has_drawn_lengths(settings, is_sglang=any(map(OF_SGLANG.search, part.lines))),
        variation=_arrivals(settings)[1],
    )


def _arrivals(settings: Fields) -> tuple[dict[str, Scalar], float]:
    return arrivals_of(settings.peek(ABOVE[-1]) or settings.peek("burstiness"))


def _labelled(file: ForeignFile, part: Part) -> dict[str, Any]:
    """The labelled values of a block by the names of the saved file; other lines are named."""
    values: dict[str, Any] = {}
    titles = 1 if TITLE.search(part.lines[0]) else 0
    for number, line in enumerate(part.lines[titles:], part.line + titles):
        found = LABELLED.search(line)
        if found is not None:
            label, value = _bare(found[1]) + (" (%)" if found[3] else ""), parsed_number(found[2])
            if value == "not set":
                continue
            statistic = STATISTIC.fullmatch(label)
            if statistic is not None:
                metric = METRICS.get(statistic[2], statistic[2].lower().replace(" ", "_"))
                values[f"{statistic[1].lower()}_{metric}_{statistic[3]}"] = value
            else:
                values[LABELS.get(label, label)] = value
        elif line.strip() and not END.search(line) and not SECTION.search(line):
            file.leave_out(f"line {number}", f"not a labelled number: {file.beginning(line.strip())!r}")
    if not any(isinstance(one, int | float) and math.isfinite(one) for one in values.values()):
        file.refuse(f"line {part.line}: a result without any number")
    return values


def _bare(label: str) -> str:
    """The label without what a logger wrote before it ("INFO 05-01 12:00:00 server: Mean TTFT (ms)")."""
    statistic = STATISTIC.search(label)
    if statistic is not None and statistic.end() == len(label):
        return statistic[0]
    return max((one for one in LABELS if label.endswith(one)), key=len, default=label.strip())


def _offline(part: Part, block: Fields, settings: Fields) -> Result:
    if part.kind == "Offline Throughput":
        requests, inputs = block.integer("completed"), block.number("total_input_tokens", low=0)
        outputs, duration = block.number("total_output_tokens", low=0), block.number("duration", low=0)
        rates = [block.number(f"{name}_throughput", low=0) for name in ("request", "total_token", "output")]
    else:
        text = "\n".join(part.lines)
        found = THROUGHPUT.search(text)
        rates = [float(value) if value else None for value in found.groups()] if found else [None] * 3
        tokens = {kind: float(count) for kind, count in TOKENS.findall(text)}
        inputs, outputs, duration = tokens.get("prompt"), tokens.get("output"), None
        requests = settings.count("num_prompts")
    axes: dict[str, int | float] = {"num_prompts": requests} if requests else {}
    per_request = common_length(inputs, requests), common_length(outputs, requests)
    total = None if inputs is None or outputs is None else inputs + outputs
    if requests and total and None in per_request:
        axes["tokens_per_request"] = round(total / requests)
    return load_result(
        concurrency=None,
        prompt_tokens=per_request[0] or settings.count("input_len") or settings.count("random_input_len"),
        new_tokens=per_request[1] or settings.count("output_len") or settings.count("random_output_len"),
        requests=requests,
        axes=axes,
        metrics={
            "throughput_samples_per_sec": rates[0],
            "total_tokens_per_sec": rates[1],
            "throughput_tokens_per_sec": rates[2],
            "duration_s": duration,
            "total_input_tokens": inputs,
            "total_output_tokens": outputs,
        },
    )


def _latency(part: Part, settings: Fields) -> Result:
    text = "\n".join(part.lines)
    average = AVERAGE.search(text)
    stated: dict[str, float | None] = {"latency_mean_ms": float(average[1]) * MS_PER_S if average else None}
    for percentile, seconds in PERCENTILE.findall(text):
        stated[f"latency_{PERCENTILES.get(percentile, f'p{percentile}')}_ms"] = float(seconds) * MS_PER_S
    return batch_result(settings, stated=stated, iterations=settings.integer("num_iters"))


PLUGIN = Format(
    name="vllm_printed",
    summary="vLLM and SGLang: printed results in any log (Serving Benchmark Result, Offline Throughput, "
    "Throughput: ..., Avg latency: ...)",
    definition="serving-benchmark-printed",
    definitions=DEFINITIONS,
    recognises=recognises,
    read=read,
)
