"""What a user probably meant: nearest names, our flags for other tools' words, and one line for wrong usage."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator

import pytest

from benchmarking import cli
from benchmarking.core.argument_types import percent, positive_ints, positive_rate, positive_seconds, share
from benchmarking.core.command_line import Parser, add_aliases, add_model_id, parser_of
from benchmarking.core.command_names import as_typed, running, typed_as, words_as_typed
from benchmarking.core.errors import EXIT_USAGE
from benchmarking.core.foreign_flags import BY_PART, JUDGED_BY, other_words
from benchmarking.core.help_texts import fitted
from benchmarking.core.suggestions import nearest, unknown_flag, unknown_name
from db.analysis.gate.gate import PARAMETERS
from tests.helpers.paths import ROOT

pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("empty_working_folder")]

FLAGS = {"--iterations": "--iterations", "--launches": "--launches", "--slo": "--limit", "--limit": "--limit"}


@pytest.fixture(scope="module")
def every_flag() -> set[str]:
    parsers = [parser_of(name) for name in cli.COMMANDS]
    actions = [one for parser in parsers for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    parsers += [parser for action in actions for parser in action.choices.values()]
    return {flag for parser in parsers for flag in parser._option_string_actions}


def test_every_flag_named_for_another_tools_word_exists_in_some_command(every_flag):
    tables = (*other_words().values(), *(ours for _, ours in BY_PART))
    answers = [(ours,) if isinstance(ours, str) else ours for ours in tables]
    words = {
        word.rstrip(",;")
        for ours in answers
        for one in ours
        for word in " ".join([one] if isinstance(one, str) else one).split()
    }
    assert {word for word in words - {"--"} if word.startswith("--")} <= every_flag


def test_no_parts_of_a_flag_are_answered_before_their_row():
    always = [
        (parts, isinstance(ours, str) or any(isinstance(one, str) and " " in one for one in ours))
        for parts, ours in BY_PART
    ]
    for place, (parts, _) in enumerate(always):
        assert [earlier for earlier, answers in always[:place] if answers and earlier <= parts] == []


@pytest.mark.parametrize(
    ("command", "typed", "answer"),
    [
        ("run", "--num-iterations", "it is called --iterations here"),
        ("run", "--seq-length", "it is called --sequence-lengths here"),
        ("run", "--dtype=fp16", "it is called --precisions here"),
        ("run", "--measurement_iterations", "it is called --iterations here"),
        ("run", "--n-gen", "it is called --new-tokens here"),
        ("run", "--tensor-parallel-size", "--device cuda:0,cuda:1 --placement sharded"),
        ("load", "--isl", "it is called --input-length here"),
        ("load", "--osl", "it is called --output-length here"),
        ("load", "--num-prompts", "it is called --num-requests here"),
        ("load", "--max-concurrency", "a closed loop with N requests in flight is --concurrency N"),
        ("load", "--base-url", "it is called --url here"),
        ("load", "--burstiness", "--arrivals gamma"),
        ("load", "--rate", "it is called --request-rates here"),
        ("show", "--device", "results are selected by device=VALUE"),
        ("recommend", "--runtime", "results are selected by --among runtime=VALUE"),
        ("cache list", "--jsn", "did you mean --json?"),
        ("run", "--output", "add > FILE; run files go to the folder --output-dir"),
        ("query", "--output", "results go to stdout"),
        ("run", "--commit-id", "recorded by themselves"),
        ("script", "--version", "benchhouse version"),
        ("recommend", "--latency-p95", "it is called --limit here"),
        ("check", "--fail-on", "the exit code of benchhouse check says it: 1 for a regression"),
        ("check", "--threshold", "there is no threshold to set"),
        ("ab", "--strict", "it is called --fail-on here"),
    ],
)
def test_an_unknown_flag_answers_with_ours(capsys, command, typed, answer):
    name, *words = command.split()
    assert cli.main([name, *words, typed, "1"]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith(f"benchhouse {command}: error: unknown flag {typed.partition('=')[0]}: ")
    assert answer in err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("gate", "did you mean check?"),
        ("--model gpt2", "a command comes first, as in benchhouse run MODEL"),
        ("models", "benchhouse run --list-models lists them"),
        ("run gpt2 --runtime vllm --dry-run", "benchhouse load MODEL --url URL --engine vllm"),
        ("run gpt2 --fp16", "--precision float16"),
        ("run gpt2 --export-json x.json", "--json > FILE"),
        ("run gpt2 --energy", "are always measured"),
        ("run gpt2 --max-latency 5ms", "benchhouse recommend MODEL --limit chooses among"),
        ("run gpt2 --p99-latency-limit 5ms", "benchhouse tune MODEL --limit latency:20ms searches"),
        ("run gpt2 --target-latency 5ms", "benchhouse recommend MODEL --limit chooses among"),
        ("recommend gpt2 --objective latency", "it is called --prefer here"),
        ("compare gpt2", "as in compare model=NAME --by runtime"),
        ("compare main HEAD", "did you mean branch=main?"),
        ("compare latency_median_ms", "did you mean --metric latency_median_ms"),
        ("compare latest throughput_tokens_per_sec", "did you mean --metric throughput_tokens_per_sec"),
        ("history latency_median_ms", "did you mean --metric latency_median_ms"),
        ("show latency_median_ms", "did you mean --metric latency_median_ms"),
        ("run gpt2 --latency-limit 5ms", "benchhouse tune MODEL --limit latency:20ms searches"),
        ("compare-runtimes gpt2 --limit latency:5ms", "benchhouse tune MODEL --limit latency:20ms searches"),
        ("compare old.json new.json", "store it with benchhouse import old.json"),
        ("compare --baseline last --current latest", "two selections are compared: benchhouse compare A B"),
        ("profile tiny-bert --tool nsys", "benchhouse profile MODEL"),
        ("query -f q.sql", "it is called --file here"),
        ("charts --output x.png", "pictures go to the folder --output-dir"),
        ("check --comment x.md", "it is called --markdown here"),
        ("watch", "benchhouse top watches"),
        ("load --url http://127.0.0.1:1/v1,http://127.0.0.1:2/v1", "load each by a command of its own"),
        ("check --exit-code", "1 for a regression"),
        ("check --report x.html", "it is called --markdown here"),
        ("check --confidence 0.95", "there is no threshold to set"),
        ("check --window 10", "at least 10 and at most the last 60"),
        ("load m --host 127.0.0.1", "it is called --url here"),
        ("load m --rate-type sweep", "--find-rate"),
        ("load m --temperature 0", "requests ask for temperature 0"),
        ("load m --chat", "--endpoint chat"),
        ("load m --api-key x", "--api-key is no flag here: the key is read from $OPENAI_API_KEY"),
        ("load m --percentiles 99", "p99 of every metric"),
        ("alert --json list", "the action comes first: list, raise, set"),
        ("script report", "did you mean benchhouse cache report?"),
        ("run bench.py", "benchhouse script bench.py"),
        ("bench gpt2", "benchhouse run MODEL measures a model, benchhouse benches your own"),
        ("report", "benchhouse charts --report FILE"),
        ("baseline", "benchhouse check judges the newest by the earlier ones"),
        ("load m --url http://127.0.0.1:9/v1 --request-rate 1 --limit ttft=5ms", "write ttft:5ms"),
        ("run gpt2 --tag version:2", "write version=2"),
        ("loadtest", "did you mean load?"),
        ("compare eager onnxruntime", "did you mean runtime=eager?"),
        ("run gpt2 --backend onnxruntime", "--runtime onnxruntime"),
        ("run tiny-gpt2 --runtime pytorch --device cpu", "did you mean eager?"),
        ("run gpt2 --precision fp16", "did you mean float16?"),
        ("run tiny-gpt2 --device gpu", "Did you mean cuda?"),
        ("run gpt2 --batch-size 1-8", "a list is written 1,2,4"),
        ("run gpt2 bert", "benchhouse batch takes several"),
        ("recommend gpt2 --max-latency 20", "it is called --limit here"),
        ("recommend gpt2 --limit latency:20", "latency takes a unit of us, ms, s, min"),
        ("check --baseline main", "of benchhouse compare A B and ab A B, A is the baseline"),
        ("check --threshold 5", "there is no threshold to set"),
        ("check --format junit", "it is called --markdown or --json or --junit here"),
        ("check --metric latency", "did you mean latency_median_ms?"),
        ("check --metric p99", "did you mean latency_p99_ms?"),
        ("load http://127.0.0.1:8000/v1", "give it with --url"),
        ("load --url 127.0.0.1:8000 m", "--url takes an address such as http://127.0.0.1:8000/v1"),
        ("load --port 8000 m", "it is called --url here"),
        ("load m --url http://127.0.0.1:8000/v1 --request-rate inf", "requires --num-requests"),
        ("load m --url http://127.0.0.1:8000/v1 --limit ttft<500ms", "takes limits such as ttft:500ms"),
        ("load m --backend vllm", "it is called --engine or --runtime here"),
        ("export --csv", "it is called --format here"),
        ("perf gpt2", "did you mean run?"),
        ("env", "benchhouse run --list-devices shows this machine"),
        ("batch gpt2 --jobs 4", "would disturb each other"),
        ("batch gpt2 --matrix a", "every combination"),
        ("batch --file models.txt", "it is called --model-list here"),
        ("run gpt2 --processes 3", "it is called --launches here"),
        ("run gpt2 --duration 10", "follows from --profile"),
        ("compare-runtimes gpt2 --backends eager,ort", "it is called --runtimes here"),
        ("recommend gpt2 --limit p95:50ms", "did you mean latency_p95?"),
        ("load m --limit itl:5ms", "did you mean tpot?"),
        ("load m --vus 10", "it is called --concurrency here"),
        ("check --metric memory", "did you mean memory_peak_rss_infer_mb?"),
        ("check --metric tokens/s", "did you mean throughput_tokens_per_sec?"),
        ("check --base-branch main", "benchhouse compare branch=A branch=B"),
        ("history --from 2026-01-01", "since=VALUE"),
        ("show --last 10", "it is called --rows here"),
        ("show --sort-by latency", "sorted with SQL"),
        ("profile gpt2 --steps 5", "it is called --num-runs here"),
    ],
)
def test_a_wrong_guess_in_choosing_a_runtime_gating_or_load_testing_gets_a_suggestion(capsys, words, answer):
    assert cli.main(words.split()) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert answer in err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("check --slack x", "$BENCHHOUSE_WEBHOOK_URL"),
        ("check --metric energy", "recommend --prefer energy"),
        ("show --all", "it is called --rows here"),
        ("profile gpt2 --nvtx", "by part, layer and operator"),
        ("profile gpt2 --by layer", "by part, layer and operator"),
        ("profile gpt2 --trace x.json", "traces for Chrome and Perfetto"),
        ("compare-runtimes gpt2 --metric ttft", "benchhouse compare --by runtime"),
        ("compare-runtimes gpt2 --resume", "benchhouse run --resume"),
        ("load m --retries 3", "nothing is tried again"),
        ("run gpt2 --url http://127.0.0.1", "benchhouse load MODEL --url URL"),
        ("export --query x", "benchhouse query SQL"),
        ("export --limit 5", "rows are limited in SQL"),
        ("export --run-id 5", "run=VALUE"),
        ("export --quantize int8", "precision"),
        ("export --force", "no file is overwritten"),
        ("import --input x", "benchhouse import FILE"),
        ("import --file x", "benchhouse import FILE"),
        ("import --source vllm", "it is called --from-format here"),
        ("import --tool vllm", "it is called --from-format here"),
        ("import --type vllm", "it is called --from-format here"),
        ("import --url x", "other commands take files"),
        ("import --recursive", "at any depth"),
        ("import --overwrite", "it is called --replace here"),
        ("import --force", "it is called --replace here"),
        ("import --experiment-name x", "it is called --tag here"),
        ("charts --title x", "charts --list"),
        ("charts --dpi 200", "--format svg"),
        ("charts --x batch", "its own title and axes"),
        ("charts --log-scale", "its own title and axes"),
        ("charts --type bar", "it is called --chart"),
        ("charts --plot bar", "it is called --chart here"),
        ("charts --input x", "it is called --json-path here"),
        ("charts --out x", "it is called --output-dir here"),
        ("charts --group-by runtime", "compare --by"),
        ("charts --show", "open the file"),
        ("dashboard --bind x", "it is called --host here"),
        ("dashboard --address x", "it is called --host here"),
        ("dashboard --backend-store-uri x", "it is called --db-path here"),
        ("dashboard --open", "the address that is printed"),
        ("dashboard --reload", "when they are opened"),
        ("query --sql x", "a statement is an argument"),
        ("query -c x", "a statement is an argument"),
        ("query --csv", "it is called --format here"),
        ("query --tables", "it is called --describe here"),
        ("query --schema", "it is called --describe here"),
        ("sql --command x", "a statement is an argument"),
        ("sql --query x", "a statement is an argument"),
        ("sql --readonly", "only read"),
        ("setup --init", "without flags"),
        ("setup --migrate", "without flags"),
        ("setup --reset", "it is called --overwrite here"),
        ("setup --restore x", "a backup is a warehouse"),
        ("setup --check", "it is called --verify here"),
        ("setup --import x", "it is called --ingest here"),
        ("setup --force", "it is called --yes or --overwrite here"),
        ("delete --all", "delete needs one"),
        ("delete --force", "it is called --yes here"),
        ("delete --id 5", "run=VALUE"),
        ("delete --older-than 30d", "until=VALUE"),
        ("delete --before 2026", "until=VALUE"),
        ("delete --experiment-id x", "tag.NAME=VALUE"),
        ("delete --preview", "it is called --dry-run here"),
        ("cache --clear", "the action comes first"),
        ("cache clear", "did you mean delete?"),
        ("cache prune", "did you mean delete?"),
        ("cache ls", "did you mean list?"),
        ("cache size", "did you mean stats?"),
        ("series rename a b", "did you mean alias?"),
        ("series merge a b", "did you mean alias?"),
        ("series split a", "did you mean unalias?"),
        ("annotate note x", "did you mean add?"),
        ("annotate rm x", "did you mean remove?"),
        ("annotate --message x", "the action comes first"),
        ("export-model gpt2 --optimize O2", "when it loads it"),
        ("export-model gpt2 --dynamic-axes", "free in every export"),
        ("export-model gpt2 --weight-format int8", "it is called --precision here"),
        ("export-model gpt2 --no-verify", "every export is compared"),
        ("export-model gpt2 --monolith", "it is called --output here"),
        ("export-model gpt2 --atol 1", "follows from its precision"),
        ("rm x", "did you mean delete?"),
    ],
)
def test_a_wrong_guess_in_exchanging_looking_and_maintaining_gets_a_suggestion(capsys, words, answer):
    assert cli.main(words.split()) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert answer in err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("run m.gguf -ngl 99", "it is called --gpu-layers here"),
        ("run -hf org/m", "it is called --model-id here"),
        ("run m.gguf -pg 512,128", "--sequence-lengths 512 --new-tokens 128"),
        ("run m.gguf --depth 512", "it is called --context-depth here"),
        ("run m.gguf --mmap 0", "left to the engine"),
        ("run m.gguf -C 0-3", "it is called --cpu-list here"),
        ("run gpt2 --backend pytorch", "a runtime is --runtime eager"),
        ("run gpt2 --gpu-memory-utilization 0.9", "a setting of the server"),
        ("run gpt2 --load-format dummy", "it is called --weights here"),
        ("run gpt2 --delay 3", "nothing waits between calls"),
        ("run gpt2 --input-shapes.batch_size 2", "it is called --batch-sizes here"),
        ("run gpt2 --launcher process", "each launch is a new process"),
        ("run gpt2 --device webgpu", "it is a runtime: --runtime webgpu"),
        ("run gpt2 --device npu", "Did you mean openvino?"),
        ("run gpt2 --device cpu,null", "benchhouse batch measures on each"),
        ("run gpt2 --hardware cuda", "it is called --device here"),
        ("run gpt2 --batch-sizes [1,2]", "a list is written 1,2,4"),
        ("load m --random-seed 3", "it is called --seed here"),
        ("load m --processor m", "it is called --tokenizer here"),
        ("load m --request-type chat", "it is called --endpoint here"),
        ("load m --request-rate-mode poisson", "it is called --arrivals here"),
        ("load m --isl-stddev 10", "lengths vary with --input-length"),
        ("load m --num-conversations 10", "it is called --turns here"),
        ("load m --public-dataset sharegpt", "--sharegpt FILE"),
        ("load m --dataset-name sharegpt", "--sharegpt FILE"),
        ("run gpt2 --save-baseline main", "--save --tag baseline=NAME, and benchhouse compare tag.baseline=NAME"),
        ("load m --fixed-schedule", "it is called --arrivals or --trace here"),
        ("load m --request-timeout-seconds 30", "it is called --timeout here"),
        ("load m --max-error-rate 0.1", "counted by kind"),
        ("load m --served-model-name x", "it is called --model-id here"),
        ("load m --logprobs 3", "one greedy answer"),
        ("load m --cooldown-percent 10", "is left out"),
        ("load m --user-conf user.conf", "loadgen's settings are flags"),
        ("load m --count 10", "it is called --num-requests here"),
        ("load m --scenario SingelStream", "did you mean single-stream?"),
        ("load m --lora-modules a=b", "it is called --lora here"),
        ("charts --hardware-comparison", "it is called --chart here"),
        ("load m --auth-token x", "--auth-token is no flag here: the key is read from $OPENAI_API_KEY"),
        ("load m --url http://127.0.0.1:9/v1 --request-rate 1-8", "a list is written 1,2,4"),
        ("load m --url http://127.0.0.1:9/v1 --request-rate 1 --limit p99:5s", "did you mean e2e?"),
        ("load m -n 100", "it is called --num-requests here"),
        ("load m --time 60", "it is called --duration or --timeout here"),
        ("load m --html r.html", "benchhouse charts --report"),
        ("bisect --good a --bad b", "benchhouse bisect GOOD BAD -- COMMAND"),
        ("ab --a x --b y", "benchhouse ab A B"),
        ("alert ack 3", "did you mean set?"),
        ("recommend gpt2 --cheapest", "it is called --prefer here"),
        ("compare-runtimes gpt2 --fastest", "marked with *"),
        ("history --plot", "benchhouse charts draws"),
        ("batch --model-file models.txt", "it is called --model-list here"),
        ("load m --limit ttft:200ms tpot:50ms", "limits are one word"),
        ("load m cuda:0", "this command takes one model"),
        ("load m --embeddings", "completions of a server are tested"),
        ("load m --keep-alive", "has a connection, which stays open"),
        ("load m --conversation-turn-delay-mean 5", "it is called --think-time here"),
        ("load m --ramp-up-start-rps 1", "each level starts at its rate"),
        ("load m --concurrency-ramp-duration 10", "each level starts at its rate"),
        ("load m --hf-split train", "inputs are random"),
        ("load m --request-cancellation-rate 10", "no request is cancelled"),
        ("load m --image-width-mean 512", "a server gets texts"),
        ("load m --url http://127.0.0.1:9/v1 --endpoint /v1/chat/completions", "did you mean chat?"),
        ("load m --url http://127.0.0.1:9/v1 --arrivals uniform", "did you mean constant?"),
        ("load m --url http://127.0.0.1:9/v1 --input-length 100-200", "a range is uniform:100-200"),
        ("load m --url http://127.0.0.1:9/v1 --request-rate 1 --limit ttft<=500ms", "write ttft:500ms"),
        ("load m --url http://127.0.0.1:9/v1 --request-rate 1 --limit latency:2s", "did you mean e2e?"),
        ("run m.gguf -ntg 128", "it is called --new-tokens here"),
        ("run gpt2 -niter 100", "it is called --iterations here"),
        ("run gpt2 --avgRuns=10", "it is called --iterations here"),
        ("run gpt2 --benchmark-min-rounds=5", "it is called --iterations here"),
        ("run gpt2 --benchmark-compare-fail=mean:5%", "it is called --fail-on here"),
        ("run gpt2 --tasks wikitext", "benchhouse run MODEL --quality"),
        ("run gpt2 --device CPU", "Did you mean cpu?"),
        ("run tiny-gpt2 --device CUDA0", "Did you mean cuda:0?"),
        ("run gpt2 --device cpu cuda", "benchhouse batch measures on each"),
        ("run gpt2 --json out.json", "--json takes no value: got 'out.json'; results go to stdout: add > out.json"),
        ("run gpt2 --save true", "--save takes no value: got 'true'"),
        ("run gpt2 --save=true", "argument --save: takes no value: got 'true'"),
        ("run gpt2 --no_save", "nothing is stored unless --save is given"),
        ("run gpt2 --min-time 10", "follows from --profile"),
        ("run gpt2 --revision main", "give its folder as MODEL"),
        ("run gpt2 --cores 0-3", "it is called --cpu-list here"),
        ("run gpt2 --power", "are always measured"),
        ("tune gpt2 --limit-memory-gb 4", "it is called --limit here"),
        ("run gpt2 --metrics latency", "compared by any metric"),
        ("run gpt2 --precision 16", "did you mean float16?"),
        ("run gpt2 --precision torch.bfloat16", "did you mean bfloat16?"),
        ("run m.gguf -dev CUDA0", "it is called --device here"),
        ("run https://huggingface.co/openai-community/gpt2", "did you mean openai-community/gpt2?"),
        ("run gpt2@main", "did you mean gpt2?"),
        ("run gpt2 --batch-sizes 2^0,2^3", "a list is written 1,2,4"),
        ("benches --list", "it is called --dry-run here"),
        ("batch gpt2 --skip-existing", "it is called --resume here"),
        ("batch gpt2 --shuffle", "in their order"),
        ("export-model gpt2 out/", "did you mean --output-dir out/?"),
        ("export-model gpt2 a.onnx", "did you mean --output a.onnx?"),
        ("export-model gpt2 --seq-len 64", "it is called --max-length here"),
        ("profile gpt2 --runs 10", "it is called --num-runs here"),
        ("profile gpt2 --level op", "by part, layer and operator"),
        ("script a.py --export-only", "it is called --build-only here"),
        ("script a.py --rt-args a::b", "--help-options"),
        ("script a.py:479b1332", "a model of it is a.py::479b1332"),
        ("load m --extra-body {}", "the same fields for every server"),
        ("load m --mode performance", "it is called --scenario here"),
        ("load m --profile-export-file x.json", "run files go to the folder --output-dir"),
        ("load m --endpoint http://127.0.0.1:9", "that is --url"),
        ("load http://127.0.0.1:9/v1 --model m", "did you mean --url http://127.0.0.1:9/v1?"),
        ("load m --url http://127.0.0.1:9/v1 --limit ttft=500", "write ttft:500"),
        ("load m --url http://127.0.0.1:9/v1 --limit ttft:500", "such as ttft:500ms"),
        ("load m --url http://127.0.0.1:9/v1 --limit TTFT:500MS", "write ttft:500ms"),
        ("ab a b c", "each one argument, in quotes"),
        ("check --ref main", "earlier ones of its series"),
        ("regressions --last 7d", "it is called --since here"),
        ("regressions 2026-01-01", "did you mean since=2026-01-01?"),
        ("show 12", "did you mean run=12?"),
        ("compare HEAD~1..HEAD", "two selections, commit=HEAD~1 and commit=HEAD"),
        ("export --to csv", "it is called --format"),
        ("import --from vllm x.json", "it is called --from-format here"),
        ("import https://example.org/x.json", "is an address: download it first"),
        ("merge --into a.duckdb b.duckdb", "it is called --db-path here"),
        ("setup x.duckdb", "did you mean --db-path x.duckdb?"),
        (
            "setup --db-path postgresql://localhost/x",
            "takes a DuckDB file or ducklake:...: got postgresql://localhost/x",
        ),
        ("import --db-path postgres:dbname=b x.json", "got postgres:...; a lake in PostgreSQL is"),
        ("setup --db-path DuckLake:postgres:dbname=b", "got DuckLake:postgres:...; a lake in PostgreSQL is"),
        ("dashboard 8080", "did you mean --port 8080?"),
        ("dashboard --allow-remote", "by its --host and a token"),
        ("compact --keep 30d", "until=VALUE"),
        ("tune gpt2 --space {}", "is no YAML file: it does not exist"),
        ("trace", "did you mean profile?"),
        ("vacuum", "did you mean compact?"),
        ("publish --to site", "it is the argument DIR, which has no flag"),
        ("publish --output-dir site", "it is the argument DIR, which has no flag"),
        ("merge --from a.duckdb", "it is the argument OTHER.duckdb"),
        ("annotate add 12 --note x", "it is the argument TEXT"),
        ("alert set 1 --status resolved", "it is the argument TRIAGE"),
        ("worker --connect host:1", "it is the argument ADDRESS"),
        ("cache delete --name x", "it is the argument DIGEST"),
        ("series alias --old a --new b", "it is the argument OLD"),
        ("run tiny-gpt2 --device gpu:1", "Did you mean cuda:1?"),
        ("run tiny-gpt2 --device 0", "Did you mean cuda:0?"),
        ("run tiny-gpt2 --device arm64", "Did you mean cpu?"),
        ("tune gpt2 --space runtime=eager", "is no YAML file: give --runtimes eager"),
        ("tune gpt2 --space attention=sdpa", "is no YAML file: write attention: [sdpa] in it"),
        ("run gpt2 --precision q4_0", "did you mean int4?"),
        ("run backend.model=gpt2", "each setting is a flag"),
        ("run gpt2 backend.device=cpu", "each setting is a flag"),
        ("ab a b --runs 3", "it is called --rounds here"),
        ("ab a b --prepare sync", "without a shell"),
        ("tune gpt2 --n-trials 10", "--budget TIME limits the search"),
        ("tune gpt2 --minimize latency", "it is called --objective here"),
        ("check --junitxml x.xml", "it is called --junit here"),
        ("check --runs 5", "at least 10 and at most the last 60"),
        ("check --rows 5", "at least 10 and at most the last 60"),
        ("query select a from b", "put the statement in quotes"),
        ("profile gpt2 --batch-size 1,2", "takes one whole number"),
        ("export --format xlsx", "did you mean csv?"),
        ("vllm bench serve", "benchhouse load MODEL --url URL"),
        ("llama-bench -m m.gguf", "benchhouse run MODEL"),
        ("lm-eval --model hf", "run MODEL --quality"),
    ],
)
def test_a_word_of_vllm_llama_bench_optimum_guidellm_aiperf_or_mlperf_is_answered_with_ours(capsys, words, answer):
    assert cli.main(words.split()) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert answer in err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("compare-runtimes gpt2 --baseline eager", "compare --by runtime it is --baseline NAME"),
        ("compare-runtimes gpt2 onnxruntime openvino", "did you mean --runtimes onnxruntime?"),
        ("compare-runtimes gpt2 --frameworks pytorch", "it is called --runtimes here"),
        ("compare-runtimes gpt2 --export-md x.md", "benchhouse export --format markdown"),
        ("compare-runtimes gpt2 --output-csv x.csv", "benchhouse export --format csv"),
        ("compare-runtimes gpt2 --exclude openvino", "only what is named is measured"),
        ("compare-runtimes gpt2 --interleave", "are measured in turns"),
        ("compare-runtimes gpt2 --fail-on slower", "compare, ab and run --compare-to have --fail-on"),
        ("compare-runtimes gpt2 --chart", "benchhouse charts draws what is stored"),
        ("compare-runtimes gpt2 --runtimes *", "did you mean all?"),
        ("run gpt2 -r 3", "it is called --iterations or --launches here"),
        ("run gpt2 --repetitions 3", "it is called --iterations or --launches here"),
        ("run gpt2 --runtimes eager ort --dry-run", "did you mean onnxruntime?"),
        ("run gpt2 --runtimes eager opnvino", "a list is one word, as in --runtimes eager,opnvino"),
        ("run gpt2 --profile trace", "benchhouse profile MODEL shows where the time goes"),
        ("run gpt2 --profile fast", "did you mean quick?"),
        ("run gpt2 --weights dummy", "did you mean random?"),
        ("run gpt2 --device gpu", "benchhouse run --list-devices tells which are here"),
        ("run gpt2 --device all", "benchhouse batch --devices A,B"),
        ("run gpt2 --num-threads auto", "without the flag, its default holds"),
        ("run gpt2 --benchmark-only", "a command measures what is named"),
        ("run gpt2 --benchmark-histogram", "--chart sample_distribution"),
        ("run gpt2 --isolation process", "each launch is a new process"),
        ("run gpt2 --hydra.run.dir x", "each setting is a flag of its own"),
        ("run gpt2 --model-type gpt2", "follows from the model's configuration"),
        ("run gpt2 --export", "benchhouse export-model MODEL writes the graphs"),
        ("run gpt2 --autocast", "--precision float16"),
        ("run m.gguf --n-cpu-moe 4", "left to the engine"),
        ("load m --url http://127.0.0.1:9/v1 --concurrency 4 --request-rates 2", "an open loop has no cap"),
        ("compare --dry-run", "compare-runtimes, tune, quality"),
        ("load m --rate-type concurrent", "closed loops are --concurrency 1,2,4"),
        ("load m --url http://127.0.0.1:9/v1 --duration 1 minute", "a time is one word, as in 1m"),
        (
            "load m --url http://127.0.0.1:9/v1 --input-length 128 256",
            "'256': a list is one word, as in --input-length",
        ),
        ("load m --stop-over-saturated", "is invalid by itself"),
        ("load m --num-sessions 10", "conversations have --turns N"),
        ("load m --profile-export-prefix x", "results go to stdout"),
        ("load m --test05", "loadgen's settings are flags"),
        ("ab a b -n 8", "it is called --rounds here"),
        ("ab --min-runs 10 a b", "it is called --rounds here"),
        ("ab --max-runs 10 a b", "it is called --max-rounds here"),
        ("ab --launches 10 a b", "it is called --rounds here"),
        ("load --url http://127.0.0.1:9 --limit ttft:100ms tpot:20ms", "limits are one word, joined by commas"),
        ("recommend gpt2 --limit throughput:1000tokens/s", "such as throughput:100/s"),
        ("recommend gpt2 --limit p99=50ms", "write latency_p99:50ms"),
        ("recommend gpt2 --limit latency_p99_ms:50ms", "did you mean latency_p99?"),
        ("recommend gpt2 --limit LATENCY:20ms", "write latency:20ms"),
        ("load m --limit inter_token_latency:20ms --url http://127.0.0.1:9", "did you mean tpot?"),
        ("check --save-baseline main", "every stored run is history, by which the next ones are judged"),
        ("ab --timeout 30 a b", "it is called --budget here"),
        ("ab --baseline a b", "A is the baseline"),
        ("ab --github c.md a b", "it is called --markdown here"),
        ("ab --show-output a b", "goes to stderr"),
        ("recommend gpt2 --users 8", "recommend takes a --request-rate"),
        ("recommend gpt2 --top 3", "all that is selected is shown"),
        ("recommend gpt2 --target latency", "it is called --prefer here"),
        ("recommend gpt2 --limit rps:20", "did you mean throughput?"),
        ("recommend gpt2 --limit vram:8GB", "did you mean memory?"),
        ("recommend gpt2 --prefer p95", "did you mean latency?"),
        ("tune gpt2 --iterations 10", "launches go on until the best is decided: --budget TIME limits the search"),
        ("tune gpt2 --budget 5 minutes", "a time is one word, as in 5m"),
        ("check --min-runs 5", "at least 10 and at most the last 60"),
        ("check --compare-to main", "benchhouse compare A B stored ones"),
        ("check --confirm --rounds 3", "has the launches of the stored run"),
        ("check --sensitivity 3", "there is no threshold to set"),
        ("check --json out.json", "--json takes no value: got 'out.json'"),
        ("check --run latest", "without it the newest session is judged"),
        ("compare --by backend", "did you mean runtime?"),
        ("compare --by commit", "compared by compare commit=A commit=B"),
        ("compare x.duckdb y.duckdb", "is a warehouse: select in it with --db-path x.duckdb"),
        ("alert list --open", "open alerts are --triage new,regression"),
        ("bisect HEAD~5 HEAD run gpt2", "the command to measure follows --"),
        ("charts --chart throughput_vs_latency", "did you mean load_frontier?"),
        ("charts latency_vs_batch_size", "did you mean --chart latency_vs_batch_size?"),
        ("charts --format html", "--report FILE.html writes a page"),
        ("import x.json --as vllm", "it is called --from-format here"),
        ("query --list", "it is called --describe here"),
        ("run model.onnx", "there is no such file: check the path"),
        ("run gpt2 --runtime trt-llm", "is a server here"),
        ("profile gpt2 --warmup 3", "every command warms up by itself"),
        ("export --format csv results.csv", "did you mean --output results.csv?"),
        ("compare-runtimes gpt2 --winner", "marked with *"),
        ("which gpt2", "did you mean recommend?"),
        ("run gpt2 --runtime fastest", "benchhouse compare-runtimes MODEL measures all"),
        ("tune gpt2 --runtimes all", "without the flag, its default holds"),
        ("recommend gpt2 --accuracy 0.9", "it is called --min-accuracy here"),
        ("recommend gpt2 --why", "the reasons are part of what is printed"),
        ("run gpt2 --loops 10", "it is called --iterations here"),
        ("run gpt2 --seconds 10", "follows from --profile"),
        ("run gpt2 --until-stable", "by --profile standard or reference"),
        ("run gpt2 --env A=1", "NAME=VALUE benchhouse run MODEL"),
        ("run gpt2 --pipeline x", "it is called --task here"),
        ("run gpt2 --offline", "HF_HUB_OFFLINE=1"),
        ("run gpt2 --cpu-only", "the processor is --device cpu"),
        ("run gpt2 --fail-if-slower", "it is called --fail-on here"),
        ("check --latest", "check judges it without a selection"),
        ("check --allow-missing", "--fail-on slower,not-judged"),
        ("check --remeasure", "it is called --confirm here"),
        ("check --update-baseline", "benchhouse alert set ID intended"),
        ("run gpt2 --measure-energy", "energy where the device has a counter"),
        ("run gpt2 --pin-cores 0-3", "it is called --cpu-list here"),
        ("run gpt2 --profile accurate", "did you mean reference?"),
        ("load m --fail-if-missed", "it is called --fail-on here"),
        ("load m --limit 500ms", "write what it limits, such as e2e:500ms"),
        ("check --pr-comment", "it is called --markdown here"),
        ("recommend gpt2 --explain", "the reasons are part of what is printed"),
        ("ab run gpt2 --runtime eager", "ab A B takes each in quotes"),
        ("ab gpt2 gpt2", "a model is measured by benchhouse run MODEL"),
        ("run tiny-bert --device cpu --runtime eager --dry-run --provider x", "; --runtime onnxruntime or"),
        ("check --branch main", "results are selected by branch=VALUE"),
        ("check --alert-threshold 150%", "there is no threshold to set"),
        ("check --sarif x", "it is called --junit here"),
        ("run gpt2 --n 10", "it is called --iterations here"),
        ("load m --n 2", "one greedy answer of exactly --output-length"),
        ("run gpt2 --inter-op 2", "those within an operator are --num-threads"),
        ("compare-runtimes gpt2 --target cpu", "it is called --device here"),
        ("tune gpt2 --time-limit 5m", "it is called --budget or --timeout here"),
        ("load m --request-rate max", "inf to send all requests at once: got 'max'"),
        ("load m --request-rate 4,inf", "measure it by itself, --request-rate inf --num-requests N"),
        ("load m --new-tokens 8", "it is called --output-length here"),
        ("load m --sequence-lengths 64", "it is called --input-length here"),
        ("run tiny-bert --dry-run --provider x", "--runtime chooses one that has it (onnxruntime"),
        ("check --only gpt2", "results are selected by words such as model=NAME"),
        ("load http://127.0.0.1:9/v1 m", "did you mean --url http://127.0.0.1:9/v1?"),
        ("load m x --device-metrics http://127.0.0.1:9/metrics", "'x': this command takes one model"),
        ("load m --assert ttft:1s", "it is called --limit here"),
        ("load m --threshold ttft:1s", "--fail-on missed makes it a gate"),
        ("load m --stages 1,2", "it is called --request-rates or --concurrency here"),
        ("load m --clients 4", "it is called --concurrency here"),
        ("load m --rpm 60", "--request-rate 2 is 120 requests a minute"),
        ("load m --request-rate 600/min", "which is 10"),
        ("load m --request-rate 5/ms", "takes numbers above 0: got '5/ms'"),
        ("load m --limit ttft:100ms:tpot:20ms", "write ttft:100ms,tpot:20ms"),
        ("load m --limit itl:20ms", "did you mean tpot? Write tpot:20ms, which 99 % of the requests must meet"),
        ("tune tiny-bert --limit agreement:99", "agreement is a share, of 1 at most: write agreement:99%"),
        ("ab a.json b.json", "benchhouse compare run=ID run=ID compares stored runs"),
        ("load m --system-prompt x", "it is called --shared-prefix here"),
        ("load --docker vllm", "it is called --serve here"),
        ("load m --health /x", "it is called --start-timeout here"),
        ("load m --soak 1h", "--duration 1h"),
        ("load m --highest-rate", "it is called --find-rate here"),
        ("load m --ssl", "begins with https:// is encrypted"),
        ("load m --proxy x", "its time would be part of every latency"),
        ("load m --raw", "benchhouse query reads them"),
        ("load m --gpu-metrics x", "it is called --device-metrics here"),
        ("load m --model-name x", "it is called --model-id here"),
        ("compare --last 2", "benchhouse check judges the newest by those before"),
        ("compare --sessions 2", "session=VALUE"),
        ("alert delete 1", "did you mean set?"),
        ("alert set noise 1", "the triage comes last: benchhouse alert set 1 noise"),
        ("alert list open", "did you mean --triage new,regression?"),
        ("alert list --status new", "it is called --triage here"),
        ("regressions yesterday", "did you mean since=2d?"),
        ("benches run", "without a word, all benchmarks in ./benches are run"),
        ("benches list", "--dry-run lists what would be measured"),
        ("benches init", "--print-example prints a file to copy"),
        ("benches mine", "a benchmark is chosen by --include mine"),
        ("run gpt2 --quick", "unknown flag --quick: that is --profile quick"),
        ("run gpt2 --thorough", "unknown flag --thorough: that is --profile reference"),
        ("load m --poisson", "unknown flag --poisson: that is --arrivals poisson"),
        ("run gpt2 --plan", "it is called --dry-run here"),
        ("alert set 1 noise --reason x", "it is called --note here"),
        ("alert set 1 noise -m x", "it is called --note here"),
        ("alert ack 1", "did you mean set?"),
        ("alert set 1 acknowledge", "did you mean regression?"),
        ("alert set 1 false-positive", "did you mean noise?"),
        ("alert set 1 expected", "benchhouse alert set 1 intended --note WHY"),
        ("tune gpt2 --prefer latency", "it is called --objective here"),
        ("tune gpt2 --apply", "benchhouse tune prints the lines that deploy what it found"),
        ("tune gpt2 --grid", "--space FILE restricts them"),
        ("load m --url http://127.0.0.1:9/v1 --share 0.95", "--share requires --limit"),
        ("load m --attainment 95", "it is called --share here"),
        ("load m --adaptive-scale", "it is called --find-rate here"),
        ("load m --rate-type constant", "--arrivals poisson or constant"),
        ("load m --save-result", "other commands unless --no-save is given"),
        ("run gpt2 --save-result", "it is called --save here"),
        ("run --models a,b", "benchhouse batch A B measures several"),
        ("run gpt2 --output-json x.json", "it is called --json here"),
        ("run gpt2 --optimize memory", "benchhouse tune --objective"),
        ("run gpt2 --precision auto", "without the flag, its default holds"),
        ("compare server=a server=b", "did you mean runtime?"),
        ("compare runtimes eager onnxruntime", "did you mean runtime=eager runtime=onnxruntime?"),
        ("compare hardware cpu cuda", "did you mean device=cpu device=cuda?"),
        ("compare latest previous", "benchhouse check, which judges the newest by those before"),
        ("compare latest latest~1", "benchhouse check, which judges the newest by those before"),
        ("quality gpt2 --dataset wikitext", "--quality-text FILE"),
        ("ab --input x a b", "put what prepares them into a script"),
        ("ab --sort mean a b", "are shown as A and B"),
        ("bisect --sort mean", "rows are chosen and sorted with SQL"),
        (
            "load m --url http://127.0.0.1:9/v1 --limit ttft:100ms@p90",
            "'ttft:100ms@p90': write ttft:100ms with --share 90%",
        ),
        ("run gpt2 --warmup-time 3", "so many calls are --warmup-iterations N"),
        ("run -m gpt2", "the model is the argument MODEL, or --model-id MODEL"),
        ("run gpt2 --measurement-interval 5000", "how long a point takes follows from --profile"),
        ("run gpt2 --memPoolSize=workspace:4096", "are listed by --help-options"),
        ("load -c10 http://localhost:9", "unknown flag -c: it is called --concurrency here"),
        ("load gpt2 -d30s", "takes a folder: got the number 30s"),
        ("load --target http://localhost:9", "the address of a server is --url URL"),
        ("import . --format csv", "are recognized without the flag"),
        ("compare --latency", "a metric is named by --metric"),
        ("compare --group-by-func", "or with compare --by"),
        ("recommend gpt2 --limit latency>20ms", "write latency:20ms, which is at most that"),
        ("recommend gpt2 --limit throughput<9", "write throughput:9, which is at least that"),
        ("recommend gpt2 --limit latency<20ms&agreement<90%", "agreement:90%, which is at least that"),
        ("recommend gpt2 --limit latency:20ms & throughput:9", "'&': limits are one word, joined by commas"),
        ("run gpt2 & bert", "unexpected argument '&': leave it out"),
        ("recommend gpt2 --ppl 1%", "it is called --max-perplexity-increase here"),
        ("recommend gpt2 --across sequence_length", "--among SELECTION"),
        ("export results.csv", "did you mean --output results.csv?"),
        ("export", "--format FORMAT is missing, such as --format csv"),
        ("recommend gpt2 --limit latency:20ms@p99", "write latency_p99:20ms"),
        ("tune gpt2 --limit ttft:20ms@p90", "write ttft:20ms\n"),
    ],
)
def test_a_wrong_guess_of_a_user_of_other_tools_in_three_tasks_is_answered(capsys, words, answer):
    assert cli.main(words.split()) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert answer in err


def test_a_folder_that_is_no_model_does_not_hide_the_command_that_was_meant(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("dashboards", "my-bert"):
        (tmp_path / name).mkdir()
    answers = []
    for name in ("dashboards", "my-bert", "dashboards"):
        assert cli.main([name]) == EXIT_USAGE
        answers.append(capsys.readouterr().err)
        (tmp_path / "dashboards" / "config.json").touch()
    assert "did you mean dashboard?" in answers[0]
    assert "benchhouse run my-bert measures a model" in answers[1]
    assert "benchhouse run dashboards measures a model" in answers[2]


def test_limits_are_asked_for_by_one_flag_and_its_other_spelling_in_every_command():
    for command in ("load", "recommend", "tune"):
        assert parser_of(command).parse_args(["m", "--slo", "ttft:1s"]).limit == ["ttft:1s"]


def test_a_scenario_is_read_in_the_spelling_of_mlperf():
    for typed in ("SingleStream", "Single-Stream", "single-stream"):
        assert parser_of("load").parse_args(["m", "--scenario", typed]).scenario == "single-stream"


def test_several_known_names_where_one_is_taken_are_answered_with_that():
    assert unknown_name("eager,onnxruntime", ["eager", "onnxruntime"], "runtime") == (
        "takes one runtime: got eager,onnxruntime"
    )


def test_a_short_word_is_no_typing_error_of_a_long_flag():
    assert unknown_flag("--decay", {"--model": "--model-id"}).endswith("--help-all lists every flag")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1minute", 60), ("2 minutes", 120), ("1h30mins", 5400), ("5secs", 5), ("500ms", 0.5), ("1day", 86400)],
)
def test_units_of_time_may_be_written_out(text, seconds):
    assert positive_seconds(text) == seconds


@pytest.mark.parametrize("text", ["5x", "1month", "3mss", "m"])
def test_other_words_are_no_units_of_time(text):
    with pytest.raises(argparse.ArgumentTypeError, match="takes seconds above 0"):
        positive_seconds(text)


def test_durations_take_units():
    texts = ("90", "90s", "2m", "500ms", "1h", "1h30m", "1 m 30 s", "2min")
    assert [positive_seconds(text) for text in texts] == [90, 90, 120, 0.5, 3600, 5400, 90, 120]
    for text in ("1h30", "m", "PT1M", "1x2m"):
        with pytest.raises(argparse.ArgumentTypeError, match="such as 90 or 2m"):
            positive_seconds(text)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("tune gpt2 --rebuild-from x", "it is a flag of benchhouse setup"),
        ("check --arrivals poisson", "it is a flag of benchhouse load"),
        ("run gpt2 --num-requests 5", "it is a flag of benchhouse load"),
        ("show --host-name x", "it is a flag of benchhouse dashboard"),
        ("run gpt2 --dest-inaton x", "--help-all lists every flag"),
        ("run gpt2 --ouput x", "did you mean --output-dir?"),
        ("run gpt2 --draft x", "did you mean --draft-model?"),
        ("check --cache x", "it is a flag of benchhouse run, benchhouse batch, benchhouse script and "),
    ],
)
def test_a_flag_of_another_command_is_answered_with_that_command(capsys, words, answer):
    assert cli.main(words.split()) == EXIT_USAGE
    assert answer in capsys.readouterr().err


def test_a_list_may_end_with_a_comma():
    assert positive_ints("1, 2,4,") == (1, 2, 4)
    with pytest.raises(argparse.ArgumentTypeError, match="takes whole numbers, in digits such as 4096: got '4k'"):
        positive_ints("1,4k")


def test_help_with_a_command_is_the_help_of_that_command(capsys):
    assert cli.main(["help", "check"]) == 0
    assert capsys.readouterr().out.startswith("usage: benchhouse check ")


def test_another_tools_word_wins_over_a_similar_flag_and_an_alias_is_shown_under_its_present_name():
    assert unknown_flag("--num-runs", FLAGS).endswith("it is called --iterations here")
    assert unknown_flag("--goodput", FLAGS).endswith("it is called --limit here")
    assert unknown_flag("--iteration", FLAGS).endswith("did you mean --iterations?")
    assert unknown_flag("--flavour", FLAGS) == "unknown flag --flavour: --help-all lists every flag"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("load m --backend openai-chat", "--backend: chat completions are --endpoint chat"),
        ("load m --strategy poisson", "it is called --arrivals here"),
        ("load m --distribution poisson", "it is called --arrivals here"),
        ("load m --min-rate 5 --max-rate 100", "--request-rate MIN,MAX --find-rate --limit LIMITS"),
        ("load m --find-rate 5,100 --limit e2e:2s", "the rates to search between are --request-rate 5,100 --find-rate"),
        ("load m --find-rate=5,100 --limit e2e:2s", "the rates to search between are --request-rate 5,100 --find-rate"),
        ("run tiny-bert -n 10", "it is called --iterations or --new-tokens here"),
        ("run tiny-gpt2 --benchmark-save main", "--save --tag baseline=NAME"),
        ("run tiny-gpt2 --save main", "its name is --save --tag baseline=main"),
        ("run m.onnx --loadEngine e.plan", "an engine is built at first use"),
        ("run tiny-bert --shapes ids:1x32", "sizes are --batch-sizes 1 --sequence-lengths 32"),
        ("run tiny-bert --minShapes ids:1x32", "sizes are --batch-sizes 1 --sequence-lengths 32"),
        ("load m --data prompt_tokens=128,output_tokens=64", "of --input-length N and --output-length N"),
        ("load m --dataset-name random", "of --input-length N and --output-length N"),
        ("load m --dataset-name=random", "of --input-length N and --output-length N"),
        ("bench serve --model m", "unknown command 'bench': a server is tested by benchhouse load MODEL --url URL"),
        ("benchmark --target http://x", "a server is tested by benchhouse load MODEL --url URL"),
        ("benchmark bert", "benchhouse run MODEL measures a model"),
        ("serving", "a server is tested by benchhouse load MODEL --url URL"),
        ("triage 1", "benchhouse alert set ID intended --note WHY"),
        ("accept 1", "benchhouse alert set ID intended --note WHY"),
        ("alert intended a1b2", "benchhouse alert set a1b2 intended --note WHY"),
        ("alert accept", "benchhouse alert set ID intended --note WHY"),
        ("alert set intended", "benchhouse alert list --triage new shows their ids"),
        ("alert set all intended", "benchhouse alert list --triage new shows their ids"),
        ("alert set --all intended", "alert set each ID"),
        ("load m --open-loop", "an open loop is benchhouse load --request-rate R"),
        ("load m --target-percentile 99", "--share"),
        ("load m --sessions 12", "follows from --num-requests"),
        ("ab a b --threads 1", "it is part of the command that they run: ab A B takes each in quotes"),
        ("load m --url localhost:8000", "write http://localhost:8000/v1"),
        ("load m --url 127.0.0.1:9/v1", "write http://127.0.0.1:9/v1"),
        ("load m --url http://127.0.0.1:9/v1 --limit ttft:200", "such as ttft:200ms"),
        ("load m --url http://127.0.0.1:9/v1 --limit p99:200ms", "Write e2e:200ms with --share 99%"),
        ("load m --url http://127.0.0.1:9/v1 --limit 1%", "nothing that is limited here is in %"),
        ("recommend gpt2 --limit 5GB", "such as memory:5GB"),
        ("load m --url http://127.0.0.1:9/v1 --limit ttft_p99:1s", "Write ttft:1s with --share 99%"),
        ("load m --url http://127.0.0.1:9/v1 --limit latency:200", "Write e2e:200ms"),
        ("load m --in-tokens 10 --out-tokens 5", "it is called --input-length here"),
        ("load m --input 100 --output 5", "the tokens of a prompt are --input-length N"),
        ("load m --output 5", "the tokens of an answer are --output-length N"),
        ("run gpt2 -o json", "JSON on stdout is --json"),
        ("compare a b --format markdown", "Markdown on stdout is --markdown"),
        ("load m --request-rate 10/min", "takes requests per second: got '10/min', which is 0.166667"),
        ("check --last-good", "check judges a result by the earlier ones of its series"),
        ("recommend gpt2 --batch-size 4", "it is called --batch here"),
        ("recommend tag.tune=abc", "a selection is --among tag.tune=abc"),
        ("tiny-bert", "benchhouse run tiny-bert measures a model"),
        ("capacity m", "--request-rate 1,32 --find-rate --limit LIMITS"),
        ("load localhost:8000", "did you mean --url http://localhost:8000/v1?"),
        ("load m 10.0.0.1:8000/v1", "did you mean --url http://10.0.0.1:8000/v1?"),
        ("load m --requests-per-second 5", "it is called --request-rates here"),
        ("history --metric ttft_p50", "did you mean time_to_first_token_ms"),
        ("show --runs", "what is stored is not measured again"),
        ("check --repeat 3", "check judges a result by the runs of its series"),
        ("benches --bench-dir D", "it is called --benches here"),
        ("tune tiny-bert --quality", "or perplexity_increase:1%), of a model with trained weights"),
        ("run m --family bert", "the family follows from the model; several models are named, as in benchhouse batch"),
        ("run m --objective latency", "benchhouse tune MODEL --objective latency searches the best configuration"),
        ("create-db", "did you mean setup?"),
        ("gpu", "benchhouse run --list-devices shows what is here"),
        ("run bert-tiny", "Did you mean tiny-bert? List"),
        ("alert dismiss 1234", "a triage is set by benchhouse alert set 1234 intended --note WHY"),
        ("github-action", "benchhouse check --github gates the newest results"),
        ("alert set 01a2", "benchhouse alert set 01a2 intended --note WHY"),
        ("compare-runtimes tiny-bert --runtimes ort", "did you mean onnxruntime? benchhouse run --list-runtimes lists"),
        (
            "load m --url http://127.0.0.1:9/v1 --find-rate --request-rate 1,4 --limit e2e:2s --fail-on missed",
            "gate the lower end of the rate that it found with --request-rate LOW --fail-on missed",
        ),
        ("tune tiny-bert --objective ttft", "it has a limit, such as --limit ttft:200ms"),
        ("tune tiny-bert --objective memory", "memory has a limit, as in --limit memory:2GB"),
        ("recommend tiny-bert --prefer accuracy", "quality has a limit, as in --limit agreement:99%"),
        ("tune tiny-bert --limit accuracy:90%", "benchhouse recommend MODEL --limit accuracy:90% ranks by them"),
        ("tune tiny-bert --limit tpot:50ms", "benchhouse load MODEL --request-rate RATE --limit e2e:2s measures it"),
        ("recommend tiny-bert --limit e2e:2s", "benchhouse recommend MODEL --request-rate RATE --limit e2e:2s ranks"),
        ("load m --url http://127.0.0.1:9/v1 --limit memory:2GB", "benchhouse tune MODEL --limit memory:2GB"),
        ("recommend m --request-rate 5/min", "takes requests per second: got '5/min'"),
        (
            "recommend m --request-rate 5 --share 95",
            "takes a share from 0 to 1, such as 0.95 or 95%: got '95': write 95%",
        ),
        ("recommend m --request-rate 5 --share 0", "takes a share above 0"),
        ("load m --shared-prefix 50", "got '50': write 50%"),
        ("quality m --metric perplexity", "all measures are taken at once"),
        ("recommend m --request-rate 5 --machines 4", "the machines that serve the rate are part of the answer"),
        ("recommend m --hardware cpu", "results are selected by --among device_name=VALUE"),
        ("load vllm --model m --request-rate 1", "as in --serve 'vllm serve m --port {port}'"),
        (
            "load m --url http://127.0.0.1:9/v1 --limit ttft:1s --fail-on slower",
            "benchhouse compare A B --fail-on slower",
        ),
        ("load m --url http://127.0.0.1:9/v1 --limit goodput:99%", "99 % of the requests must meet each limit"),
        ("load m --url http://127.0.0.1:9/v1 --limit throughput:5/s", "a rate of requests is --request-rate"),
        ("charts --chart load", "did you mean load_latency?"),
        ("check --junit", "expected one argument, FILE"),
        ("check commit=HEAD --db-path x.duckdb", "git rev-parse HEAD prints it"),
        ("run tiny-bert --all-runtimes", "--runtimes all"),
        ("run tiny-bert --vs openvino", "--runtimes A,B"),
        ("tune tiny-bert --no-quantization", "--precisions float32"),
        ("run tiny-bert --save --tag main", "takes key=value: got 'main', as in name=main"),
        ("check --metric highest_request_rate_per_sec", "a search stores it, benchhouse load MODEL --find-rate"),
        ("run tiny-bert --format csv", "benchhouse export --format csv"),
        ("run tiny-bert --output results.csv", "benchhouse export --format csv"),
        ("run tiny-bert --save results.json", "results go to stdout: --json > results.json"),
        ("run tiny-bert --save=v1.2", "its name is --save --tag baseline=v1.2"),
        ("export csv", "did you mean --format csv?"),
        ("sql SELECT 1", "a statement is run by benchhouse query 'STATEMENT'"),
        ("charts latency", "did you mean --metric latency_median_ms"),
        ("check throughput", "did you mean --metric throughput_samples_per_sec"),
        ("last", "did you mean show?"),
        ("annotate latest text", "the action comes first: benchhouse annotate add latest text"),
        ("compare latest HEAD", "did you mean commit=HASH (git rev-parse HEAD prints it), or latest?"),
        ("history --last 30", "benchhouse history since=30d"),
        ("recommend m --list", "benchhouse show lists what is stored"),
        ("recommend m --percentile 99", "with --request-rate by the share of the requests, --share 99%"),
        ("tune m --percentile 99", "by --limit latency_p99:20ms"),
        ("load m --dry-run", "a level takes --duration times --repetitions"),
        ("bench-serve", "did you mean load?"),
        ("ab", 'A is missing, as in benchhouse ab "benchhouse run gpt2" "benchhouse run gpt2 --runtime compiled"'),
        ("ab --model tiny-bert", 'benchhouse ab "benchhouse run MODEL" "benchhouse run MODEL --num-threads 1"'),
        ("bisect", "GOOD is missing, as in benchhouse bisect v1.2 HEAD -- benchhouse run gpt2 --batch-sizes 1"),
        ("annotate", "add|list|remove|label is missing, as in benchhouse annotate add 0199a3f2"),
        ("load m --percentile 99", "limits are met by a share of the requests, --share 99%"),
        ("recommend m --concurrency 8", "benchhouse show concurrency=VALUE shows them"),
        ("recommend m --limit", "expected one argument, LIMITS, such as latency:20ms"),
        ("load m --limit", "expected one argument, LIMITS, such as ttft:500ms,tpot:50ms,e2e:2s"),
        ("recommend m --share", "expected one argument, SHARE, such as 0.95"),
        ("import --hardware", 'expected one argument, NAME, such as "NVIDIA H100 80GB HBM3"'),
        ("load m --hardware", "expected one argument, NAME, such as 'NVIDIA H100'"),
        ("load m --tensor-split", "expected one argument, VALUE, such as 3,1"),
        ("tune m --accuracy 0.99", "a loss of quality is limited by --limit agreement:99%"),
        ("tune m --max-quality-loss 1%", "a loss of quality is limited by --limit agreement:99%"),
        ("recommend m --accuracy 0.9", "it is called --min-accuracy here"),
        ("tune m --limit goodput", "99 % of the requests must meet each limit of benchhouse load"),
        ("tune m --limit ttft", "write ttft:500ms"),
        ("perf diff", "did you mean compare?"),
        ("perf m", "did you mean run?"),
        ("run tiny-bert --runtime torchscript", "that is --runtime compiled"),
        ("run tiny-bert --runtime onnxruntime --device null", "whose runtime is null: leave --runtime out"),
        (
            "compare-runtimes tiny-bert --device null",
            "--device null has runtime null, not eager, onnxruntime, openvino",
        ),
        (
            "compare-runtimes tiny-bert --runtimes eager,tensorrt --device cpu --skip-unsupported",
            "nothing to compare eager with: tensorrt: ",
        ),
        ("check --ignore noise", "benchhouse alert set ID noise --note WHY"),
        ("check --fail-fast", "one that regressed is exit code 1"),
        ("run m --fail-fast", "what fails is listed, and the rest goes on"),
        ("run m --length 32", "it is called --sequence-lengths here"),
        ("load m --length 32", "it is called --input-length here"),
        ("run m -r onnxruntime", "a runtime is --runtime onnxruntime"),
        ("run m -r 3", "it is called --iterations or --launches here"),
        ("run m -p int8", "a precision is --precision int8"),
        ("run m -p 512", "it is called --sequence-lengths here"),
        ("benches bench.py", "benchmarks of your own in a file are --benches bench.py"),
        ("benches --file bench.py", "benchmarks of your own are --benches FILE"),
        ("load m --n 100", "so many requests are --num-requests N"),
        ("load m --step 2", "levels are a list, --request-rate 1,2,4"),
        ("load m --min 1 --max 10", "--request-rate 1,32 --find-rate"),
        ("load m --to 10", "levels are a list, --request-rate 1,2,4"),
        ("load m --words 100", "it is called --input-length here"),
        ("load m --key abc", "the key is read from $OPENAI_API_KEY"),
        ("load m --open", "an open loop is benchhouse load --request-rate R"),
        ("load m --closed", "a closed one --concurrency N"),
        ("load m --mode open", "an open loop is benchhouse load --request-rate R"),
        ("load m --load-type constant", "it is called --arrivals here"),
        ("load m --cpu 1", "processors are --cpu-list 0-1"),
        ("load m --append", "every run is added"),
        ("load m --wait-for-ready", "it is called --start-timeout here"),
        ("tune m --concurrency 4", "a search is of calls by a single caller"),
        ("tune m --request-rate 4", "a search is of calls by a single caller"),
        ("run m --request-rate 4", "a load is benchhouse load MODEL --request-rate R"),
        ("tune m --launches 3", "--budget TIME limits the search"),
        ("compare-runtimes m --budget 60s", "follows from --profile, --launches and --iterations"),
        ("tune m --limit p99_latency:20ms", "Write latency_p99:20ms"),
        ("tune m --limit latency_mean:20ms", "Write latency:20ms"),
        ("tune m --limit tokens/s:100", "write throughput:100 (tokens/s if its calls have tokens, else samples/s)"),
        ("tune m --limit rps:5", "Write throughput:5 (tokens/s if its calls have tokens, else samples/s)"),
        ("tune m --sweep 1,2", "a search is of calls by a single caller"),
        ("run m --min-accuracy 0.9", "benchhouse recommend --max-kl and --min-agreement limit the loss of quality"),
        ("tune m --all", "a search tries the runtimes that can run here"),
        ("tune m --baseline eager", "a search compares all that it measures"),
        ("export -o x.json", "a file is --output FILE, a folder --output-dir DIR"),
        ("batch -o x.html", "a report is --report FILE.html"),
        ("tune m --limit throughput:>100", "write throughput:100"),
        ("tune m --limit latency<20ms&memory<1GB", "write latency:20ms,memory:1GB"),
        ("tune m --limit cost:1", "benchhouse tune --objective cost"),
        ("load m --limit rps:5", "a rate of requests is --request-rate"),
        ("tune m --profile quick", "the time of a search is --budget TIME"),
        ("tune m --limit quality:99%", "did you mean agreement? Write agreement:99%"),
        ("recommend", 'name one that is stored: benchhouse query "SELECT DISTINCT model_id'),
        ("recommend a b", "benchhouse compare model=A model=B compares two models"),
        ("recommend m --by latency", "it is called --prefer here"),
        ("recommend m --request-rate 1,5", "takes one rate: got '1,5'"),
        ("compare-runtimes m --all", "--runtimes all"),
        ("compare-runtimes m --baseline eager", "speedups are over eager"),
        ("compare-runtimes m --precisions float32,int8", "benchhouse run compares several in one command"),
        ("ab A --base main", "git worktree add ../base main, --worktree-a ../base"),
        ("ab A --branch main", "git worktree add ../base main, --worktree-a ../base"),
        ("check --worktree-a ../main", "benchhouse ab A --worktree-a DIR"),
        ("check --save-baseline", "every stored run is history"),
        ("check --dry-run", "nor stored with --no-alerts"),
        ("check --html", "benchhouse charts --report FILE.html"),
        ("check --output gate.json", "JSON on stdout is --json"),
        ("github", "benchhouse check --github"),
        ("load m --request-rate auto", "--request-rate 1,32 --find-rate --limit LIMITS"),
        ("load m --concurrency 1,2 --find-rate --limit e2e:1s", "such as --request-rate 1,32"),
        ("load m --find-concurrency", "--concurrency 1,2,4,8 --limit LIMITS"),
        ("load m --limit error_rate:1%", "a request that fails is outside each limit"),
        ("load m --no-stream", "responses are always streamed"),
        ("load m --slo-ttft 500", "it is called --limit here"),
        ("load m --fail-on missed", "--fail-on requires --limit LIMITS"),
        ("load m --num-requests 10 --duration 30", "each is the length of a level, so give one"),
    ],
)
def test_a_guess_of_a_newcomer_has_the_line_to_type_in_its_answer(capsys, words, answer):
    assert cli.main(words.split()) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert answer in err


def test_a_long_list_of_candidates_has_ten_nearest_first_and_says_where_all_are():
    known = [f"latency_p{number}_ms" for number in range(50, 90)]
    message = unknown_name("latency_p77_m", known, "metric")
    listed = message.split("nearest of 40: ")[1].split(";")[0].split(", ")
    assert listed[0] == "latency_p77_ms"
    assert len(listed) == 10
    assert "benchhouse query --describe all_results, or load_curve, lists all" in message
    assert nearest("LATENCY_P77_MS", known, number=1) == ["latency_p77_ms"]


@pytest.fixture
def parser() -> Parser:
    parser = Parser(prog="small")
    add_model_id(parser, "a model", is_needed=False)
    add_aliases(parser, parser.add_argument("--limit", metavar="LIMITS"), "--slo")
    parser.add_argument("--output-dir")
    return parser


@pytest.mark.parametrize("words", [["--model-id="], ["--output-dir", " "], [""], ["--name", ""], ["--id", " "]])
def test_an_empty_text_is_no_name_and_no_path(parser, words, capsys):
    """As of a variable that is not set: it would be the current folder, or a name that says nothing."""
    parser.add_argument("--name", metavar="NAME")
    parser.add_argument("--note", metavar="TEXT")
    parser.add_argument("--id", type=str, metavar="ID")
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    assert re.search("takes (MODEL|OUTPUT_DIR|NAME|ID): got '", capsys.readouterr().err)
    assert parser.parse_args(["--note", ""]).note == ""
    with_actions = Parser(prog="large")
    with_actions.add_subparsers(metavar="add|remove").add_parser("add").add_argument("note", metavar="TEXT")
    assert with_actions.parse_args(["add", ""]).note == ""


def test_an_empty_text_behind_an_action_is_read_by_its_parser(capsys):
    parser = Parser(prog="tool")
    action = parser.add_subparsers(metavar="ACTION", parser_class=Parser).add_parser("set")
    action.add_argument("id", metavar="ID")
    action.add_argument("--note", metavar="TEXT")
    assert parser.parse_args(["set", "x", "--note", ""]).note == ""
    with pytest.raises(SystemExit):
        parser.parse_args(["set", ""])
    assert "tool set: error: argument ID: takes ID: got ''" in capsys.readouterr().err


def test_aliases_are_read_but_not_shown_in_help(parser):
    assert parser.parse_args(["--slo", "ttft:1s"]).limit == "ttft:1s"
    assert "--slo" not in parser.format_help()
    with pytest.raises(ValueError, match="--slo"):
        add_aliases(parser, parser._actions[-1], "--slo")
    with pytest.raises(argparse.ArgumentError, match="--slo"):
        parser.add_argument("--slo")


def test_flags_take_no_abbreviations(parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["--output", "x.json"])
    assert "unknown flag --output" in capsys.readouterr().err


def test_a_model_is_the_first_argument_or_a_flag_but_not_two_different_ones(parser, capsys):
    for words in (["gpt2"], ["--model-id", "gpt2"], ["gpt2", "--model-id", "gpt2"], ["--limit", "x", "gpt2"]):
        assert parser.parse_args(words).model_id == "gpt2"
    assert parser.parse_args([]).model_id is None
    with pytest.raises(SystemExit):
        parser.parse_args(["gpt2", "--model-id", "bert"])
    assert "two models, gpt2 and bert" in capsys.readouterr().err
    assert parser.parse_args(["--model-id", "gpt2", "--model-id", "bert"]).model_id == "bert"
    assert "small: --model-id is given twice: bert is used, not gpt2" in capsys.readouterr().err


def test_of_a_flag_that_takes_one_value_the_last_counts_which_is_said(capsys):
    for words, said in (
        (
            "--device cpu --device cuda",
            "--device is given twice: cuda is used, not cpu; benchhouse batch takes several",
        ),
        ("--device=cpu --devices cuda", "--devices is given twice: cuda is used, not cpu"),
        ("--launches 2 x --launches 3", "--launches is given twice: 3 is used, not 2"),
    ):
        parser_of("run").parse_args(words.split())
        assert said in capsys.readouterr().err
    same = ["x", "--device", "cpu", "--device", "cpu", "--tag", "a=1", "--tag", "a=2"]
    assert parser_of("run").parse_args(same).device == "cpu"
    of_ab = ["x", "--launches", "3", "--turn", "d", "--launches", "5"]
    assert parser_of("run").parse_args(of_ab).launches == 5
    assert parser_of("load").parse_args(["x", "--request-rate", "1", "--request-rate", "2"]).request_rates == (1, 2)
    assert capsys.readouterr().err == ""


def test_a_selection_that_ends_as_a_file_does_is_no_value_of_json(capsys):
    for words in (["--json", "tag.file=a.json"], ["tag.file=a.json", "--json"]):
        assert parser_of("check").parse_args(words).selection == "tag.file=a.json"
    with pytest.raises(SystemExit):
        parser_of("compare").parse_args(["a.json", "--json", "a.json"])
    assert "--json takes no value: got 'a.json'" in capsys.readouterr().err


def test_an_empty_word_after_a_list_is_a_usage_error(capsys):
    with pytest.raises(SystemExit):
        parser_of("run").parse_args(["gpt2", "--runtimes", "eager", ""])
    assert "unexpected argument ''" in capsys.readouterr().err


def test_other_words_for_runtimes_and_devices_with_numbers_are_values_of_a_list_too(capsys):
    assert parser_of("run").parse_args(["x", "--runtimes", "eager", "ort"]).runtimes == ("eager", "ort")
    assert parser_of("batch").parse_args(["--devices", "cpu", "cuda:1", "x"]).devices == ("cpu", "cuda:1")
    with pytest.raises(SystemExit):
        parser_of("batch").parse_args(["--precisions", "float32", "fp16", "x"])
    assert "did you mean float16?" in capsys.readouterr().err


def test_every_command_with_a_dry_run_is_named_where_a_command_has_none():
    def has(name: str) -> bool:
        return "--dry-run" in parser_of(name)._option_string_actions

    answer = unknown_flag("--dry-run", {})
    named = answer.partition("begins; ")[2].removesuffix(" have --dry-run").replace(" and ", ", ").split(", ")
    assert sorted(named) == sorted(name for name in cli.COMMANDS if has(name))


def test_how_many_runs_are_judged_is_told_as_the_gate_has_it():
    assert f"at least {PARAMETERS.min_points} and at most the last {PARAMETERS.max_points}" in JUDGED_BY


@pytest.mark.parametrize("command", ["run", "run_hardware_benchmark", "run-hardware-benchmark", "charts", "setup"])
def test_the_usage_line_shows_the_name_that_was_typed(capsys, command):
    assert cli.main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: benchhouse {command} ")


def test_a_typed_name_is_of_its_own_command_only():
    with typed_as("benchhouse other"):
        assert Parser(prog="small").prog == "small"


def test_a_message_names_a_command_as_it_was_typed():
    assert as_typed("run") == "benchhouse run"  # in a page or a notebook nothing was typed
    with running("setup_benchmark_db"):
        assert (as_typed("run"), as_typed("check")) == ("run_hardware_benchmark", "benchhouse check")
        with typed_as("benchhouse setup"):
            assert as_typed("run") == "benchhouse run"
            assert words_as_typed(["run_hardware_benchmark", "--model-id", "gpt2"])[:3] == (
                "benchhouse",
                "run",
                "--model-id",
            )
            assert words_as_typed(["make", "run"]) == ("make", "run")
    with running("batch_benchmark"), typed_as("integration_benchmark"):
        assert (as_typed("batch"), as_typed("run")) == ("integration_benchmark", "run_hardware_benchmark")


def test_a_line_of_a_help_text_is_no_wider_than_the_terminal():
    text = (
        "examples:\n  benchhouse run gpt2 --device cpu --batch-sizes 1,2,4,8 --tag version=2\n  two words "
        + "more " * 12
    )
    lines = fitted(text, 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[1:3] == ["  benchhouse run gpt2 --device cpu --batch-sizes 1,2,4,8 \\", "      --tag version=2"]


@pytest.mark.parametrize("words", [["version", "--no-such-flag"], ["--version", "now"], ["versin"], ["rnu"]])
def test_wrong_usage_of_the_front_door_is_one_line_and_exit_code_2(capsys, words):
    assert cli.main(words) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)


COMMAND = re.compile(r"benchhouse ([a-z][a-z-]*)((?: (?!and\b|or\b)[^\s,;:()`'\"]+)*)")
"""A command in a message: its name and the words after it, up to a mark of punctuation."""
BEFORE_THE_PARSER = {"benches": {"--print-example", "--list-models", "--num-iterations", "--seq-length"}}
"""Flags that a command takes before its parser reads the rest."""


def texts_of(module: ast.AST) -> Iterator[str]:
    """The texts of a module as they are printed, X in place of what is inserted."""
    inner = {id(part) for one in ast.walk(module) if isinstance(one, ast.JoinedStr) for part in one.values}
    for one in ast.walk(module):
        if isinstance(one, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in one.values)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in inner:
            yield one.value


def test_every_command_in_a_text_of_ours_takes_the_flags_that_are_named_with_it():
    known = {}
    for name in cli.COMMANDS:
        parsers = [parser_of(name)]
        parsers += [
            parser
            for action in parsers[0]._actions
            if isinstance(action, argparse._SubParsersAction)
            for parser in action.choices.values()
        ]
        known[name] = {flag for parser in parsers for flag in parser._option_string_actions}
        known[name] |= BEFORE_THE_PARSER.get(name, set())
    texts = [
        text if isinstance(text, str) else text[1]
        for ours in (*other_words().values(), *((one,) if isinstance(one, str) else one for _, one in BY_PART))
        for text in ours
    ]
    for folder in ("benchmarking", "db", "visualize"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if "benchhouse" in source and path.name != "foreign_flags.py":  # a table, read above
                texts += texts_of(ast.parse(source))
    named = [
        (command, rest, word.partition("=")[0].rstrip('."?'))
        for text in texts
        for line in text.splitlines()
        for command, rest in COMMAND.findall(line)
        for word in rest.split(" -- ")[0].split()
        if command in known and re.match(r"--[a-z]", word) and "X" not in word
    ]
    assert [f"benchhouse {command}{rest}" for command, rest, flag in named if flag not in known[command]] == []
    assert len(named) > 100


def test_shares_take_percent_and_rates_their_unit():
    assert (share("0.95"), share("95%"), share("1"), share("100%"), share("0")) == (0.95, 0.95, 1, 1, 0)
    assert (percent("1"), percent("1%"), positive_rate("100/s"), positive_rate("2.5")) == (1, 1, 100, 2.5)
    assert (positive_rate("5rps"), positive_rate("5 req/s"), positive_rate("5qps")) == (5, 5, 5)
    for read, wrong in ((share, "101%"), (share, "95% of all"), (share, "-1%"), (share, "x"), (percent, "-1%")):
        with pytest.raises(argparse.ArgumentTypeError):
            read(wrong)
