"""What a user probably meant: the nearest known names, and our flag for another tool's word.

The functions at the end translate command lines that were written for another tool, before they are parsed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from benchmarking.core import plugins
from benchmarking.core.errors import UsageError
from benchmarking.core.foreign_flags import BY_PART, BY_VALUE, Answer, other_words
from benchmarking.core.text import first_few

MIN_PLURAL = 5
"""Characters of a flag, with its dashes, that is not also read without a final "s"."""
MAX_CANDIDATES = 10
"""Names listed in an error message: a longer list is not read."""
MISTYPED = 0.8
"""The similarity, from 0 to 1, from which one flag is another with a mistake."""
SIMILAR = 0.6
"""The similarity, from 0 to 1, from which a name is offered as what was meant."""
MOST_COMMANDS = 3
"""That are named for a flag which they have."""
CASE_CHANGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
"""Where a word begins in a flag such as --avgRuns."""
GLUED = re.compile(r"(-[A-Za-z])(\d\w*)")
"""A short flag with its number in one word."""
ASSIGNMENT = re.compile(r"[A-Za-z_][\w.]*=")
"""How a setting of Hydra begins: backend.device=cpu."""
JOINING = ("&", "&&", "+", "and", "vs", "vs.", "versus")
"""What people write between two things, as a word of its own."""
UNITS_APART: Mapping[str, str] = {
    word: unit
    for unit, words in {"s": "s sec second seconds", "m": "m min minute minutes", "h": "h hour hours"}.items()
    for word in words.split()
}
"""A unit of time as a word of its own -> as it follows the number."""
HOST_AND_PORT = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+):\d+(/|$)")
"""How the address of a server begins without its scheme."""
METRIC_WORDS = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2el": "latency",
    "e2e": "latency",
}
"""Short words for metrics, also within a longer name -> how our names begin."""
STATEMENT = re.compile(r"\s*(select|from|with|describe|summarize)\s", re.IGNORECASE)
WHERE = {
    "metric": "benchhouse query --describe all_results, or load_curve,",
    "table or view": "benchhouse query --describe",
    "chart": "benchhouse charts --list",
    "model": 'benchhouse query "SELECT DISTINCT model_id FROM benchmark_runs"',
    "runtime": "benchhouse run --list-runtimes",
    "format": "--help",
}
"""Kind of name -> the command that lists all of them."""

SERVERS = (
    *("vllm", "sglang", "tgi", "triton", "ollama", "lmdeploy", "tensorrt-llm", "trt-llm", "trtllm", "mlc", "openai"),
)
"""Engines that are servers, which people name as runtimes."""


FASTEST = ("best", "fastest", "optimal", "quickest")
"""What people ask for where a runtime is named."""
NOT_MEASURED: Mapping[str, str] = {
    "torchscript torch-script torch.jit jit script": "TorchScript, which torch.compile replaced: that is "
    "--runtime compiled; exported graphs run in onnxruntime",
    "tensorflow tf keras tflite jax flax xla coreml tvm paddle": "no runtime here: benchhouse benches measures "
    "code of your own, benchhouse import FILE stores its results",
    "deepspeed accelerate optimum ipex bettertransformer": "PyTorch with settings of its own: benchhouse script "
    "FILE measures the models that your code calls",
}
"""Engines that people name as runtimes -> what to do instead."""
DEFAULTED = ("value", "precision", "runtime", "device", "format")
"""Kinds of names that are values of flags with a default."""
OTHER_NAMES: Mapping[str, frozenset[str]] = {
    ours: frozenset(words.split())
    for ours, words in {
        # Commands.
        "run": "measure test single perf time inference",
        "batch": "sweep matrix many grid batch_size batchsize bs",
        "load": "loadtest load-test loadgen stress serve-bench bench-serve server-bench bench-server "
        "benchmark-server benchmark-serving guidellm aiperf locust k6 wrk hey",
        "check": "gate ci verify assert regress",
        "show": "ls list runs results latest last newest status stats summary ls-runs list-runs",
        "history": "trend trends timeline evolution",
        "charts": "plot plots draw visualize graph graphs chart report",
        "dashboard": "ui web serve server pages",
        "compare": "diff delta",
        "recommend": "choose advise best suggest which fastest select pick rank",
        "setup": "init initialize database db migrate upgrade create-db createdb new-db",
        "export-model": "convert onnx",
        "profile": "trace prof profiler flamegraph nsys",
        "compact": "vacuum shrink compress",
        "publish": "upload push share site",
        "delete": "rm remove del clear prune purge drop gc clean erase wipe",
        # Actions.
        "add": "new note write create append post set",
        "remove": "rm del delete drop erase",
        "list": "ls show all",
        "stats": "size info du usage status summary",
        "set": "ack acknowledge triage close resolve mute dismiss delete remove rm accept",
        "alias": "rename merge join link continue move",
        "unalias": "unmerge unlink split undo",
        # Fields of a comparison.
        "runtime": "backend engine framework library provider server",
        "model": "model_id model_name name",
        "sequence": "sequence_length seq_len seq_length length input_length",
        "since": "after from start newer_than",
        "until": "before to end older_than",
        "commit": "sha revision rev git",
        "tag.NAME": "label experiment version env",
        "device": "hardware gpu machine accelerator",
        "precision": "dtype quantization quant bits",
        "threads": "num_threads thread cores",
        # Triages.
        "regression": "ack acknowledge acknowledged confirmed real open bug true true-positive",
        "improvement": "better",
        "noise": "ignore ignored false false-positive flaky dismiss dismissed chance random",
        "method": "benchmark measurement benchmark-change",
        "new": "reopen untriaged unset reset todo",
        # Weights and profiles.
        "random": "dummy no none fake synthetic empty",
        "pretrained": "real hub trained",
        "quick": "fast short smoke dev",
        "standard": "normal default medium",
        "reference": "full long slow thorough precise accurate exact publication",
        # Precisions.
        "float32": "fp32 f32 float single 32 torch.float32",
        "float16": "fp16 f16 half 16 torch.float16 torch.half 16-mixed",
        "bfloat16": "bf16 brain torch.bfloat16 bf16-mixed",
        "float8_e4m3": "fp8 float8 e4m3",
        "int8": "i8 8bit q8 q8_0 w8a8 smoothquant",
        "int4": "i4 4bit q4 q4_0 q4_1 q4_k_m q4_k_s w4a16 awq gptq nf4 fp4",
        # Arrivals, endpoints, preferences, formats and charts.
        "constant": "uniform deterministic fixed periodic",
        "poisson": "exponential",
        "chat": "openai-chat /v1/chat/completions http",
        "completions": "openai vllm /v1/completions text",
        "latency": "speed fast fastest min_latency p50 p90 p95 p99",
        "throughput": "max_throughput tokens samples qps rps requests_per_second tokens_per_second",
        "memory": "vram ram gpu_memory peak_memory",
        "cost": "cheapest cheap price dollars money",
        "all": "* any every",
        "csv": "excel xlsx xls tsv spreadsheet",
        "png": "jpg jpeg image",
        "latency_vs_batch_size": "latency",
        "throughput_vs_batch_size": "throughput",
        "memory_vs_batch_size": "memory",
        "hardware_comparison": "hardware devices comparison",
        "pareto_front": "pareto frontier",
        "load_latency": "load load_curve latency_vs_rate",
        "load_frontier": "throughput_vs_latency latency_vs_throughput throughput_latency latency_throughput",
        "temporal_trend": "trend history time timeline",
        # Metrics.
        "latency_median_ms": "latency median mean p50 latency_ms latency_mean latency_p50 e2e",
        "latency_p90_ms": "p90 latency_p90",
        "latency_p95_ms": "p95 latency_p95",
        "latency_p99_ms": "p99 latency_p99",
        "throughput_samples_per_sec": "throughput samples_per_second qps",
        "throughput_tokens_per_sec": "tokens_per_second tokens/s tokens_per_s tps tok/s tokens",
        "memory_peak_rss_infer_mb": "memory memory_mb peak_memory rss memory_peak",
        "time_to_first_token_ms": "ttft first_token",
        "time_per_output_token_ms": "tpot itl inter_token_latency",
    }.items()
}
"""A command, an action, a precision or a metric -> other words for it. Runtimes and devices have their own
`other_words`."""

COMMANDS_MEANT: Mapping[str, str] = {
    "vllm sglang guidellm aiperf genai-perf genai_perf benchmark_serving serve-benchmark serving mlperf": (
        "a server is tested by benchhouse load MODEL --url URL, or one that it starts with --serve"
    ),
    "llama-bench llama-batched-bench optimum-benchmark trtexec benchmark_app onnxruntime_perf_test": (
        "benchhouse run MODEL measures a model on this machine"
    ),
    "hyperfine": "two commands are compared by benchhouse ab 'COMMAND' 'COMMAND'",
    "pytest pytest-benchmark asv pyperf": "its result files are stored by benchhouse import FILE, and judged by "
    "benchhouse check",
    "lm-eval lm_eval lm-evaluation-harness eval evaluate accuracy perplexity": "quality against eager float32 is "
    "measured by benchhouse run MODEL --quality",
    "quantize optimize": "a precision is chosen by benchhouse run MODEL --precision int8, or by benchhouse tune MODEL",
    "bench benchmark": "benchhouse run MODEL measures a model, benchhouse benches your own benchmarks",
    "gpu gpus cpu cpus": "benchhouse run --list-devices shows what is here, --device of a command chooses one",
    "watch monitor": "benchhouse top watches the sweeps that run on this machine",
    "report": "benchhouse charts --report FILE writes one, batch --report one of its runs, publish a site",
    "github-action github-actions github gitlab jenkins ci": "benchhouse check --github gates the newest results; "
    "ab needs no history",
    "baseline": "every stored result is one: benchhouse check judges the newest by the earlier ones, benchhouse ab "
    "measures two commands, and benchhouse run --compare-to SELECTION judges against stored results",
    "compare-to": "it is a flag: benchhouse run MODEL --compare-to SELECTION",
    "triage accept ack acknowledge intended approve": "alerts are triaged by benchhouse alert set ID intended "
    "--note WHY; benchhouse alert list shows their ids",
    "serve": "benchhouse dashboard shows the warehouse, benchhouse load --url tests a server that runs",
    "verify validate": "benchhouse setup --verify checks the warehouse, benchhouse check the newest results",
    "backup": "it is a flag: benchhouse setup --backup FILE",
    "find-rate capacity max-rate saturation": "the highest rate within limits is found by a flag: benchhouse load "
    "MODEL --url URL --request-rate 1,32 --find-rate --limit LIMITS",
    "calibrate": "it is a flag: benchhouse run --calibrate-device",
    "resume": "it is a flag: benchhouse run --resume, or batch --resume",
    "throughput": "benchhouse run MODEL measures it beside latency, benchhouse load at a rate of requests",
    "latency": "benchhouse run MODEL measures it, benchhouse load at a rate of requests",
}
"""Words in place of a command -> what it may mean, where no command alone is it."""


SELECTED_BY: Mapping[str, str] = {
    flag: field
    for field, flags in {
        "model": "--model --models --model-id --model-name",
        "device": "--device --devices",
        "device_type": "--device-type",
        "runtime": "--runtime --runtimes",
        "precision": "--precision --precisions --dtype",
        "batch": "--batch --batch-size --batch-sizes",
        "sequence": "--sequence-length --sequence-lengths --seq-length",
        "new_tokens": "--new-tokens",
        "concurrency": "--concurrency",
        "tag.NAME": "--tag --tags --experiment --experiment-name --experiment-id --experiment-ids --run-name",
        "since": "--since --from --after --start-date --newer-than",
        "until": "--until --to --before --end-date --older-than --keep",
        "task": "--task",
        "run": "--run --run-id --run-ids --id --ids --uuid",
        "session": "--session --sessions",
        "commit": "--commit --commit-id --git-commit",
        "branch": "--branch --branch-name",
        "family": "--family --architecture",
        "host": "--host",
        "device_name": "--hardware --device-name --gpu-name",
    }.items()
    for flag in flags.split()
}
"""A flag that selects results in other tools and commands -> the field of a selection for it."""


ARGUMENTS: Mapping[str, frozenset[str]] = {
    argument: frozenset(flags.split())
    for argument, flags in {
        "DIR": "--to --output --output-dir --out --outdir --out-dir --dir --directory --folder --dest --site -o",
        "OTHER.duckdb": "--from --source --src --input --file --files --other --database --warehouse -i",
        "ID": "--run --run-id --id --alert --alert-id --note-id",
        "TEXT": "--text --note --message --comment --reason -m",
        "TRIAGE": "--status --state --triage",
        "ADDRESS": "--url --connect --address --scheduler --coordinator --join --host --server",
        "SCRIPT": "--script --script-path --input --input-script --file -i",
        "BUILD": "--build --build-name --name --id",
        "DIGEST": "--build --build-name --name --id --digest",
        "OLD": "--old --from",
        "NEW": "--new --to",
    }.items()
}
"""The placeholder of an argument -> flags that people type for it."""


def nearest(value: str, known: Collection[str], *, number: int = MAX_CANDIDATES, similar: float = 0.0) -> list[str]:
    """The known names that resemble the value, nearest first; all of them rank with `similar` 0."""
    import difflib

    by_lower: dict[str, str] = {}
    for name in known:
        by_lower.setdefault(name.lower(), name)
    found = difflib.get_close_matches(value.lower(), by_lower, n=number, cutoff=similar)
    return [by_lower[name] for name in found]


def meant_by(value: str, known: Collection[str]) -> list[str]:
    """What a name that is not known probably means: our word for another tool's, or up to three similar names."""
    word = value.lower()
    if cased := [name for name in known if name.lower() == word]:
        return cased[:1]
    return named_by(word, known)[:1] or nearest(value, known, number=3, similar=SIMILAR)


def named_by(word: str, known: Collection[str]) -> list[str]:
    """The known names for which this is another word. Loads only devices and runtimes whose names are known."""
    named = [name for name, words in OTHER_NAMES.items() if word.lower() in words and name in known]
    found = [
        plugins.load(package, name)
        for package in (plugins.DEVICES, plugins.RUNTIMES)
        for name in plugins.names(package)
        if name in known
    ]
    return [*named, *(one.name for one in found if word.lower() in (*one.aliases, *one.other_words))]


ONE_STORED_MODEL = "its quantizations are ranked with it; benchhouse compare model=A model=B compares two models"


def unknown_name(value: str, known: Sequence[str], what: str) -> str:
    """The message for an unknown name: what was probably meant, at most ten candidates, and what lists all."""
    if what == "runtime" and value.lower() in SERVERS:
        return f"{value} is a server here: start it, then benchhouse load MODEL --url URL --engine {value.lower()}"
    unmeasured = (f"{value} is {text}" for words, text in NOT_MEASURED.items() if value.lower() in words.split())
    if what == "runtime" and (instead := next(unmeasured, None)) is not None:
        return instead
    if what == "runtime" and value.lower() in FASTEST:
        return f"{value!r} is not known before measuring: benchhouse compare-runtimes MODEL measures all, tune searches"
    if "," in value and {one.strip() for one in value.split(",")} <= {*known}:
        return f"takes one {what}: got {value}{f': {ONE_STORED_MODEL}' if what == 'model' else ''}"
    is_form = value.lower() in ("csv", "json", "jsonl", "yaml", "txt") and "csv" not in known
    if what == "format" and is_form and len(known) > MAX_CANDIDATES:
        return f"{value!r} is no tool: formats here are those of tools, and are recognized without the flag"
    if what == "format" and value.lower() in ("html", "md", "markdown") and value not in known and "png" in known:
        return f"{value!r} is no image: --report FILE.{'html' if value.lower() == 'html' else 'md'} writes a page"
    if what == "metric" and value.lower().startswith(("energy", "joule", "power", "watt")):
        return f"{value!r} is not judged: benchhouse recommend --prefer energy ranks by it, benchhouse query shows it"
    if what == "metric":
        from benchmarking.core.load_doubts import HIGHEST_RATE  # what describes loads, which few messages need

        if value == HIGHEST_RATE:
            return f"no result has the metric {value}: a search stores it, benchhouse load MODEL --find-rate"
        for short, name in METRIC_WORDS.items():
            value_meant = re.sub(rf"(?<![a-z]){short}(?![a-z])(_p50)?", name, value.lower())
            if value_meant != value.lower() and (found := nearest(value_meant, known, number=3, similar=SIMILAR)):
                return f"unknown metric {value!r}: did you mean {' or '.join(found)}? {WHERE[what]} lists all"
    meant = meant_by(value, known)
    hint = f"did you mean {' or '.join(meant)}? " if meant else ""
    if not meant and what in DEFAULTED and value.lower() in ("auto", "default", "all"):
        hint = "without the flag, its default holds; "
    if what in WHERE and meant and meant == named_by(value, known)[:1]:  # another word for it: no list of similar ones
        return f"unknown {what} {value!r}: {hint}{WHERE[what]} lists all"
    if len(known) <= MAX_CANDIDATES:
        return f"unknown {what} {value!r}: {hint}known: {', '.join(known)}"
    listed = f"; {WHERE[what]} lists all" if what in WHERE else ""
    return f"unknown {what} {value!r}: {hint}nearest of {len(known)}: {', '.join(nearest(value, known))}{listed}"


WITHIN_LIMITS: Mapping[str, str] = {
    "ttft time_to_first_token tpot itl": "it has a limit, such as --limit ttft:200ms, within which the best is chosen",
    "accuracy quality kl perplexity agreement": "quality has a limit, as in --limit agreement:99%,kl:0.02, within "
    "which the best is chosen",
    "memory vram ram": "memory has a limit, as in --limit memory:2GB, within which the best is chosen",
}
"""What is not optimized but limited -> how."""
VALUES_ELSEWHERE: Mapping[str, Mapping[str, str]] = {
    "--fail-on": {
        "slower regressed regression": "stored loads are compared by benchhouse compare A B --fail-on slower"
    },
    "--objective": WITHIN_LIMITS,
    "--prefer": WITHIN_LIMITS,
    "--profile": {
        "trace torch pytorch nsys nsight chrome perfetto tensorboard cprofile layers operators kernels memory": (
            "benchhouse profile MODEL shows where the time goes"
        ),
        "sweep synchronous concurrent throughput constant poisson": "a load is benchhouse load MODEL, at each of "
        "--request-rate or --concurrency",
    },
}
"""Flag -> values of the flag of that name in other tools -> what does that here."""


def value_elsewhere(flags: Collection[str], value: str) -> str | None:
    """The message for a value that a flag has in other tools only; None for another."""
    known = (pair for flag in flags for pair in VALUES_ELSEWHERE.get(flag, {}).items())
    answer = next((answer for words, answer in known if value.lower() in words.split()), None)
    return None if answer is None else f"takes no {value!r}: {answer}"


def unknown_flag(
    flag: str,
    shown: Mapping[str, str],
    *,
    selection: str | None = None,
    arguments: Collection[str] = (),
    values: Mapping[str, Sequence[str]] = MappingProxyType({}),
    value: str = "",
    elsewhere: Callable[[str], Iterable[str]] = lambda flag: (),
) -> str:
    """The message for a flag that a command does not have. `shown` maps every spelling that the command reads to the
    one in its help; `selection` is what precedes a selection of results in this command: its flag, or nothing;
    None without one; `arguments` are the placeholders of its arguments; `values` are the words that a flag takes,
    `value` is what was typed after this one; `elsewhere` are the other commands that have it."""
    if (glued := GLUED.fullmatch(flag)) is not None:  # -c10 of wrk
        flag, value = glued.groups()
    if (argument := next((one for one in arguments if flag in ARGUMENTS.get(one, ())), None)) and flag not in shown:
        return f"unknown flag {flag}: it is the argument {argument}, which has no flag"
    for flags, part, needed, advice in BY_VALUE:
        if flag in flags.split() and re.search(part, value.lower()) and needed in shown:
            return f"unknown flag {flag}: {advice}"
    has_own = any((one if isinstance(one, str) else one[0]) in shown for one in (flag, *other_words().get(flag, ())))
    if selection is not None and flag in SELECTED_BY and not has_own:
        words = f"{selection} {SELECTED_BY[flag]}=VALUE".strip()
        return f"unknown flag {flag}: results are selected by {words}, several fields joined by commas"
    kebab = CASE_CHANGE.sub("-", flag).replace("_", "-").lower()
    spellings: tuple[str, ...] = (flag, kebab, f"-{kebab}", kebab.replace("--benchmark-", "--"))
    spellings += tuple(spelling.removesuffix("s") for spelling in spellings if len(spelling) > MIN_PLURAL)
    ours = next((other_words()[spelling] for spelling in spellings if spelling in other_words()), ())
    if (answer := _answer(flag, (kebab, *ours), shown)) is not None:
        return answer
    of_ours = (further for one in ours if isinstance(one, str) for further in other_words().get(one, ()))
    if (answer := _answer(flag, tuple(of_ours), shown)) is not None:  # as of ab, which has none of ours either
        return answer
    word = kebab.lstrip("-")
    for name, taken_words in values.items():  # --quick for --profile quick
        if taken := next(iter([word] if word in taken_words else named_by(word, taken_words)), None):
            return f"unknown flag {flag}: that is {name} {taken}"
    by_word = {name.lstrip("-"): name for name in shown}  # the dashes alone would make any two flags similar
    similar = nearest(flag.lstrip("-"), by_word, number=3, similar=MISTYPED)
    if near := list(dict.fromkeys(shown[by_word[word]] for word in similar)):
        return f"unknown flag {flag}: did you mean {' or '.join(near)}?"
    parts = _parts(flag)
    for wanted, by_part in BY_PART:
        answers = (by_part,) if isinstance(by_part, str) else by_part
        if wanted <= parts and (answer := _answer(flag, answers, shown)) is not None:
            return answer
    if others := list(elsewhere(flag)):
        return f"unknown flag {flag}: it is a flag of {first_few(others, MOST_COMMANDS)}"
    alike = [name for name in nearest(flag.lstrip("-"), by_word, similar=SIMILAR) if _parts(name) & parts]
    if near := list(dict.fromkeys(shown[by_word[word]] for word in alike[:3])):
        return f"unknown flag {flag}: did you mean {' or '.join(near)}?"
    begun: dict[str, set[str]] = {}  # --ouput for --output-dir, if only that begins so
    for name in by_word:
        begun.setdefault(name.partition("-")[0], set()).add(shown[by_word[name]])
    for beginning in nearest(word, begun, number=1, similar=MISTYPED):
        if len(begun[beginning]) == 1:
            return f"unknown flag {flag}: did you mean {begun[beginning].pop()}?"
    return f"unknown flag {flag}: --help-all lists every flag"


def switch_value(flag: str, value: str) -> str:
    """What to say of a value of a flag that takes none."""
    places = {
        "--json": f"; results go to stdout: add > {value}",
        "--find-rate": f": the rates to search between are --request-rate {value} --find-rate",
        "--save": ""
        if value.lower() in ("true", "yes", "1")
        else f"; results go to stdout: --json > {value}"
        if re.search(r"\.[a-zA-Z]\w*$", value)
        else f": its name is --save --tag baseline={value}",
    }
    return f"takes no value: got {value!r}{places.get(flag, '')}"


def stray_word(word: str, before: str, actions: Mapping[str, argparse.Action]) -> str | None:
    """The message for a word that is no argument of a command with these flags, but a value of the flag `before` it,
    which takes none, or of another flag; None if it is nothing of these."""
    if getattr(actions.get(before), "nargs", None) == 0:
        return f"{before} {switch_value(before, word)}"
    if (unit := UNITS_APART.get(word.lower())) is not None and before.isdecimal():
        return f"unexpected argument {word!r}: a time is one word, as in {before}{unit}"
    if word.lower() in JOINING:
        return f"unexpected argument {word!r}: leave it out"
    runtimes, known = actions.get("--runtimes"), plugins.names(plugins.RUNTIMES)
    if runtimes is not None and (word in known or named_by(word, known)):
        return f"unexpected argument {word!r}: did you mean {runtimes.option_strings[-1]} {word}?"
    for flag, is_meant in (
        ("--url", "://" in word or HOST_AND_PORT.match(word) is not None),
        ("--port", word.isdecimal()),
        ("--db-path", word.endswith((".duckdb", ".db"))),
        ("--output", word.endswith(".onnx")),
        ("--output-dir", word.endswith("/")),
    ):
        if is_meant and flag in actions:
            value = f"http://{word}{'' if '/' in word else '/v1'}" if HOST_AND_PORT.match(word) else word
            return f"unexpected argument {word!r}: did you mean {flag} {value}?"
    return None


def unexpected_argument(word: str, typed: Sequence[str], arguments: Sequence[str]) -> str:
    """The message for an argument too many among the words that were typed; `arguments` are the placeholders of those
    that the command takes."""
    if ASSIGNMENT.match(word):
        answer = "each setting is a flag, such as --device cpu"
    elif "MODEL" in arguments:
        answer = "this command takes one model; benchhouse batch takes several"
    elif "GOOD" in arguments:
        answer = "the command to measure follows --"
    elif "B" in arguments:
        answer = "two commands are compared, each one argument, in quotes"
    elif "SQL" in arguments and any(one.lower() in ("select", "describe", "with") for one in typed):
        answer = "put the statement in quotes"
    elif STATEMENT.match(f"{word} "):
        return "a statement is run by benchhouse query 'STATEMENT', or by benchhouse sql from stdin"
    else:
        answer = "" if arguments else "this command takes flags only"
    return f"unexpected argument {word!r}{answer and f': {answer}'}"


def _answer(flag: str, ours: Sequence[Answer], shown: Mapping[str, str]) -> str | None:
    """The message with the flags among `ours` that the command has, or with the first advice among them that is for
    it; advice for one of its flags goes before flags that follow."""
    known = [one for one in ours if (one if isinstance(one, str) and " " not in one else one[0]) in shown]
    words = [one if isinstance(one, str) else one[1] for one in ours if isinstance(one, str) or one in known]
    present = dict.fromkeys(shown[one] for one in known if isinstance(one, str))
    if present and isinstance(known[0], str):
        return f"unknown flag {flag}: it is called {' or '.join(present)} here"
    if advice := next((one for one in words if " " in one), None):
        # What follows the name of a secret is hidden as its value, but for a word such as "is".
        named = f"{flag} is no flag here" if flag.endswith(("key", "token")) else f"unknown flag {flag}"
        return f"{named}: {advice}"
    return None


def _parts(flag: str) -> set[str]:
    """The words of a flag, each also without the "s" of a plural."""
    words = set(re.split(r"[-_.]", CASE_CHANGE.sub("-", flag).lower())) - {""}
    return words | {word.removesuffix("s") for word in words if len(word) > 3}


ARGUMENT = ""
"""In place of a flag: its value is an argument without a flag."""


BENCH_WORDS: Mapping[str, str] = {"--measurement-iterations": "--iterations", "--num-iterations": "--iterations"}
"""Flags of the tools with a script run_benchmarks.py -> ours."""


def in_our_words(argv: Sequence[str], flags: Mapping[str, str]) -> list[str]:
    """The words with another tool's flags replaced (theirs -> ours, or `ARGUMENT`); what follows "--" stays."""
    words: list[str] = []
    for index, word in enumerate(argv):
        if word == "--":
            return [*words, *argv[index:]]
        flag, equals, value = word.partition("=")
        ours = flags.get(flag)
        if ours is None:
            words.append(word)
        elif ours != ARGUMENT:
            words.append(f"{ours}{equals}{value}")
        elif equals:
            words.append(value)
    return words


def lists_joined(argv: Sequence[str], flags: Collection[str], ending: str) -> list[str]:
    """The words with the values after one of the flags as one list: `--devices a b` becomes `--devices a,b`. The list
    ends at a flag, and at a word that contains `ending`."""
    words: list[str] = []
    values: list[str] | None = None
    for word in argv:
        if values is not None and not word.startswith("-") and ending not in word:
            values.append(word)
            continue
        if values:
            words.append(",".join(values))
        values = [] if word in flags else None
        words.append(word)
    return [*words, ",".join(values)] if values else words


def flags_in(words: Sequence[str]) -> list[str]:
    """The flags among the words, without their values, up to "--"."""
    own = words[: list(words).index("--")] if "--" in words else words
    return [word.partition("=")[0] for word in own if word.startswith("-")]


def repeated(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The words with several values after one of the flags as several flags: `--include a b` becomes `--include a
    --include b`."""
    found: list[str] = []
    flag: str | None = None
    for word in words:
        if word.startswith("-"):
            flag = word if word in flags else None
        elif flag is not None and found[-1] != flag:
            found.append(flag)
        found.append(word)
    return found


def taken(words: Sequence[str], flag: str) -> tuple[str | None, list[str]]:
    """The last value of a flag, or None without one, and the other words. Raises UsageError for a missing value."""
    found: str | None = None
    rest: list[str] = []
    waiting = False
    for word in words:
        name, equals, value = word.partition("=")
        if waiting:
            found, waiting = word, False
        elif name == flag:
            found, waiting = (value, False) if equals else (None, True)
        else:
            rest.append(word)
    if waiting:
        raise UsageError(f"{flag} needs a value")
    return found, rest


def with_defaults(defaults: Sequence[str], words: Sequence[str]) -> list[str]:
    """The words, after those of these flags with a value that are not among them, in the singular or plural."""
    given = {flag.removesuffix("s") for flag in flags_in(words)}
    pairs = zip(defaults[::2], defaults[1::2], strict=True)
    return [*(word for flag, value in pairs if flag.removesuffix("s") not in given for word in (flag, value)), *words]
