"""Each setting is declared once, and flags, YAML keys, parameters and defaults are what its entry says."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections import Counter
from dataclasses import fields

import pytest

from benchmarking import api, cli
from benchmarking.batch.model_list import BUILT_IN, readers
from benchmarking.core.axes import FURTHER
from benchmarking.core.command_line import Parser, parser_of
from benchmarking.core.errors import EXIT_USAGE, UsageError
from benchmarking.core.settings import (
    COUNT,
    DIMENSIONS,
    INPUT_VALUES,
    SECONDS,
    SWITCH,
    TEXT,
    WHOLE,
    Setting,
    add_flags,
    add_settings,
    check_given,
    given,
    table,
)
from benchmarking.core.shared_settings import COMMON, SHARED, UNITS, parse_limits
from benchmarking.core.suggestions import with_defaults
from benchmarking.core.text import flag_of
from benchmarking.load.load_settings import LOAD
from benchmarking.sweep.plan.measuring_settings import CALLS, MEASURING, measured_by, runtime_options
from benchmarking.sweep.plan.request import FIELDS, Request, request_fields
from tests.helpers.paths import ROOT

MEASURING_COMMANDS = ("run", "batch", "compare-runtimes", "profile", "script", "ab", "bisect")
INTERNAL_FIELDS = {"model_id", "axes", "shared_axes", "options", "shared_options", "build_only", "settings", "command"}
"""Fields of a request that are no setting of their own: made of several, or of the command."""


def spellings(setting: Setting) -> set[str]:
    both = {setting.flag, setting.list_flag, *setting.other_flags}
    return both | ({setting.short_flag} if setting.short_flag else set())


def test_no_two_settings_and_no_runtime_option_share_a_name_or_a_flag():
    options = {name: {f"--{name.replace('_', '-')}"} for name in runtime_options()}
    flags = {name: spellings(setting) for name, setting in MEASURING.items()} | options
    assert len(flags) == len(MEASURING) + len(options)
    assert sum(map(len, flags.values())) == len(set().union(*flags.values()))
    assert SHARED.items() <= MEASURING.items()


def test_a_load_has_its_own_settings_and_some_of_measuring_commands_with_other_words():
    changed = {name: (MEASURING[name], LOAD[name]) for name in MEASURING if LOAD[name] is not MEASURING[name]}
    assert set(changed) == {
        *("precision", "timeout", "batch_size", "runtime", "device", "task", "weights", "num_threads", "concurrency"),
        *("cpu_list", "quality", "quality_text"),
    }
    for name, (before, after) in changed.items():
        assert (after.name, after.plural, after.flag) == (name, before.plural, before.flag)
        assert after.kind.python in (before.kind.python, "str")
    own = [flag for name, setting in LOAD.items() if name not in MEASURING for flag in spellings(setting)]
    assert len(own) == len(set(own))
    of_runs = {flag for name in set(MEASURING) - {"launches"} for flag in spellings(MEASURING[name])}
    assert not of_runs & set(own)
    assert all(name in LOAD for setting in LOAD.values() for name in (*setting.excludes, *dict(setting.needs)))


@pytest.mark.parametrize("command", MEASURING_COMMANDS)
def test_a_flag_with_the_name_of_a_setting_is_that_setting_in_every_command(command):
    declared = {flag: setting for setting in MEASURING.values() for flag in spellings(setting)}
    own: dict[str, argparse.Action] = parser_of(command)._option_string_actions
    for flag, action in own.items():
        if flag in declared and flag not in ("--save", "--no-save"):  # two flags for one choice
            setting = declared[flag]
            assert action.dest in (setting.name, setting.plural), (command, flag)
            assert spellings(setting) <= own.keys(), (command, flag)


def test_the_keys_of_a_list_of_models_and_their_defaults_are_the_settings():
    keys = {setting.key for setting in MEASURING.values() if setting.is_key}
    assert readers().keys() == keys | runtime_options().keys() | {"grids"}
    assert BUILT_IN.keys() <= readers().keys()
    assert BUILT_IN["timeout"] == MEASURING["timeout"].default
    assert BUILT_IN["precisions"] == ("float32",)


def test_a_request_has_a_field_for_each_setting_with_the_same_default():
    by_field = {setting.field or setting.name: setting for setting in MEASURING.values()}
    by_field |= {setting.key: setting for setting in MEASURING.values()}
    for field in fields(Request):
        if field.name in INTERNAL_FIELDS:
            continue
        setting = by_field[field.name]
        default = setting.default if field.name not in ("sequence_lengths", "tags") else field.default
        assert field.default in (default, None) or setting.kind.is_repeated, field.name


def test_the_flag_of_a_setting_reaches_the_field_of_the_request_and_no_other():
    """A setting of requests is its entry and its field: no command, list or function names it again."""
    parser = parser_of("run")
    plain = request_fields(vars(parser.parse_args(["m"])))
    texts = {"int": "3", "float": "2.5", "Mapping[str, int | str]": "a=3", "Mapping[str, float]": "a=3"}
    for name in (*FIELDS, *FURTHER):
        setting = MEASURING[name]
        text = setting.kind.choices[-1] if setting.kind.choices else texts.get(setting.kind.python, "a=b")
        words = [setting.flag] if setting.kind is SWITCH else [setting.flag, text]
        asked = request_fields(vars(parser.parse_args(["m", *words])))
        assert {field for field, value in asked.items() if value != plain.get(field)} == {FIELDS.get(name, "axes")}
        assert not {FIELDS.get(name, "axes")} & request_fields(vars(parser.parse_args(["m"])), without=(name,)).keys()
    assert {*FIELDS.values()} | INTERNAL_FIELDS == {field.name for field in fields(Request)}


@pytest.mark.parametrize("function", [api.benchmark_model, api.benchmark_script])
def test_parameters_of_the_python_interface_are_the_settings(function):
    by_name = {setting.field or setting.name: setting for setting in MEASURING.values()}
    by_name |= {setting.key: setting for setting in MEASURING.values()}
    checked = 0
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in by_name or name == "inputs":
            continue
        setting = by_name[name]
        python = setting.kind.python
        assert python in parameter.annotation, (name, parameter.annotation)
        assert parameter.default in (setting.default, (setting.default,), (), None), name
        checked += 1
    assert checked >= (20 if function is api.benchmark_model else 13)


def test_a_setting_of_how_often_and_how_long_is_measured_is_its_entry_and_nothing_else():
    assert {"profile", "launches", "cold_cache"} <= set(CALLS)
    for name in CALLS:
        for command in ("run", "batch", "compare-runtimes", "script"):
            assert MEASURING[name].flag in parser_of(command)._option_string_actions, (command, name)
        assert name in readers()
        for function in (api.benchmark_model, api.benchmark_script):
            assert name in inspect.signature(function).parameters, (function, name)
    chosen = measured_by({"launches": 3, "iterations": 7, "cold_cache": True, "other": 1})
    assert (chosen.launches, chosen.fixed_iterations, chosen.cold_cache) == (3, 7, True)
    assert measured_by({}).profile == MEASURING["profile"].default


OTHER_MEANINGS = {
    "--all": "cache: all builds; script: all scripts of a folder",
    "--anonymous": "export: only of run files",
    "--baseline": "compare: a value of --by; charts: a device",
    "--benches": "run: whose runs to finish; batch: what to measure",
    "--cache-dir": "export-model: the hub's cache",
    "--device": "charts: which results",
    "--devices": "worker: what it offers",
    "--format": "export: needed, and read before the other flags; charts: a list of image formats",
    "--markdown": "check: also to a file",
    "--model-id": "the flag beside the argument MODEL; batch: the benchmarks' model; charts: which results",
    "--no-save": "both flags choose arguments.save",
    "--output-dir": "export, export-model: a new folder of other files",
    "--precision": "charts: which results; export-model: of the files",
    "--request-rate": "recommend: the rate to serve",
    "--runtime": "charts: which results",
    "--save": "the other side of --no-save",
    "--scripts": "run: whose runs to finish; worker: what it may run",
    "--share": "recommend: of stored requests, whatever share their load asked for",
}
"""Flags with the name of a setting, or of a flag of another command, that a command declares itself, and why."""


def flags_spelled_out() -> Counter[str]:
    """How often each flag is declared with its name spelled out, outside the tables, which are not in functions."""
    found: Counter[str] = Counter()
    for package in ("benchmarking", "db", "visualize"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if not ("add_argument" in text or "add_flags" in text) or path.name == "service.py":  # only we start it
                continue
            functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
            calls = {node for function in functions for node in ast.walk(function) if isinstance(node, ast.Call)}
            for call in calls:
                words = [str(word.value) for word in call.args if isinstance(word, ast.Constant)]
                if getattr(call.func, "attr", None) == "add_argument":
                    found.update(word for word in words if word.startswith("--"))
                elif getattr(call.func, "id", None) == "Setting" and words:
                    found[flag_of(words[0])] += 1
    return found


def test_each_setting_is_declared_once():
    """A flag of several commands is an entry of a table; a flag of one command is declared there. Whatever is declared
    twice means two things, which are named above."""
    tables = {flag for setting in (*LOAD.values(), *COMMON.values()) for flag in spellings(setting)}
    found = flags_spelled_out()
    twice = {flag for flag, number in found.items() if number > 1 or flag in tables}
    assert twice <= OTHER_MEANINGS.keys(), f"use add_settings or add_shared: {sorted(twice - OTHER_MEANINGS.keys())}"
    assert twice >= OTHER_MEANINGS.keys()


def test_the_tables_share_no_flag():
    of_commands = {flag for name, setting in COMMON.items() if name not in SHARED for flag in spellings(setting)}
    assert not of_commands & {flag for setting in MEASURING.values() for flag in spellings(setting)} - {"--timeout"}


SMALL = table(
    Setting(name="size", plural="sizes", takes_list=True, kind=WHOLE, help="size", default=3, other_flags=("--big",)),
    Setting(name="count", kind=COUNT, help="count", default_words="as many as fit", short_flag="-c"),
    Setting(name="url", kind=TEXT, help="address"),
    Setting(name="turns", kind=WHOLE, help="turns", default=1, applies=frozenset({"server"}), why_not="none shared"),
    Setting(name="burst", kind=WHOLE, help="burst", default=8, needs=(("size", None),)),
    Setting(name="limit_s", kind=SECONDS, help="100 % of it", excludes=("count",)),
)


def parsed(*words: str, lists: tuple[str, ...] = ()) -> argparse.Namespace:
    parser = Parser(prog="small")
    add_settings(parser, SMALL, *SMALL, lists=lists)
    return parser.parse_args(words)


def test_a_setting_is_read_by_its_flag_its_other_number_and_its_other_spellings():
    for flag in ("--size", "--sizes", "--big"):
        assert parsed(flag, "4").size == 4
        assert parsed(flag, "4,2", lists=("size",)).sizes == (2, 4)
    assert parsed().size == 3
    assert parsed(lists=("size",)).sizes == (3,)
    assert parsed("-c", "0").count == 0


def test_help_shows_one_spelling_with_the_default():
    parser = Parser(prog="small")
    add_flags(parser, *{**SMALL, "count": SMALL["count"].here(help="how many")}.values(), lists=("size",))
    text = " ".join(parser.format_help().split())
    assert "--sizes N,N size (default: 3)" in text
    assert "-c N, --count N how many (default: as many as fit)" in text
    assert "100 % of it" in text
    assert "--big" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--turns", "2"], "--turns requires --url: none shared"),
        (["--burst", "2"], "--burst requires --size"),
        (["--limit-s", "2", "--count", "1"], "--limit-s and --count exclude each other"),
    ],
)
def test_a_setting_that_does_not_apply_is_refused(words, message):
    with pytest.raises(UsageError, match=message):
        check_given(parsed(*words), SMALL, subject="model", instead="--url")


def test_settings_that_apply_or_are_not_given_pass():
    check_given(parsed("--turns", "2", "--burst", "2", "--size", "5"), SMALL, subject="server", instead="MODEL")
    check_given(parsed(), SMALL, subject="model", instead="--url")
    assert not given(parsed("--size", "3"), SMALL["size"])


def test_a_setting_that_is_declared_twice_is_a_mistake():
    with pytest.raises(ValueError, match="twice"):
        table(SMALL["size"], SMALL["size"])


def test_every_command_has_help():
    assert set(MEASURING_COMMANDS) <= set(cli.COMMANDS)


@pytest.mark.parametrize("command", [["load", "gpt2"], ["ab", "A", "B"], ["bisect", "a", "b"]])
def test_commands_whose_results_are_compared_later_save_by_default(command):
    parser = parser_of(*command[:1])
    for flags, saves in (((), True), (("--no-save",), False), (("--save",), True)):
        assert parser.parse_args([*command[1:], *flags]).save is saves
    assert "(default: save both)" in " ".join(parser.format_help().split())


@pytest.mark.parametrize("command", ["run", "compare-runtimes", "profile", "script"])
def test_commands_with_the_names_of_scripts_save_when_asked_and_say_so(command):
    assert "--save" in parser_of(command).format_help()
    assert "(default: print only)" in " ".join(parser_of(command).format_help().split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "tiny-bert", "--device", "null", "--output-dir", "a_file"], "takes a folder: a_file is a file"),
        (["run", "tiny-bert", "--device", "null", "--output-dir", "a_file/b"], "takes a folder: a_file is a file"),
        (["run", "tiny-bert", "--device", "null", "--db-path", "a_folder"], "takes a file: a_folder is a folder"),
        (["run", "tiny-bert", "--device", "null", "--cache-dir", "a_file"], "takes a folder: a_file is a file"),
        (["batch", "tiny-bert", "--output-dir", "a_file"], "takes a folder"),
        (["run", "model.gguf", "-d", "512"], "--cache-dir: takes a folder: got the number 512"),
        (["load", "tiny-gpt2", "--output-dir", "a_file"], "takes a folder"),
        (["check", "--junit", "a_folder"], "takes a file"),
        (["check", "--markdown", "nowhere/summary.md"], "nowhere is not a folder: create it first"),
        (["show", "--db-path", "a_folder"], "takes a file"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_path_of_the_wrong_kind_is_refused_before_anything_runs(tmp_path, monkeypatch, capsys, words, message, dry):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("kept")
    (tmp_path / "a_folder").mkdir()
    dry = dry if words[0] in ("run", "batch") else ()
    assert cli.main([*words, *dry]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert message in err
    assert (tmp_path / "a_file").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a_file", "a_folder"]


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("ttft:500ms,tpot:0.05s", {"ttft": 500.0, "tpot": 50.0}),
        ("latency_p95: 50 ms, memory:2GB", {"latency_p95": 50.0, "memory": 2000.0}),
        ("throughput:30,energy:1.5J", {"throughput": 30.0, "energy": 1.5}),
    ],
)
def test_limits_have_one_notation(text, limits):
    assert parse_limits(text, tuple(UNITS)) == limits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("itl:5ms", "unknown limit 'itl'"),
        ("tftt:5ms", "did you mean ttft"),
        ("ttft:5", "ttft takes a unit of us, ms, s"),
        ("memory:2ms", "memory takes a unit of MB, GB"),
        ("ttft:5ms,ttft:6ms", "limited twice"),
        ("ttft:0ms", "a number above 0"),
        ("ttft:1e999ms", "a number above 0"),
        ("ttft<5ms", "takes limits such as ttft:500ms"),
        (" ", "got nothing"),
    ],
)
def test_a_limit_that_is_none_says_what_one_is(text, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        parse_limits(text, tuple(UNITS))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--batch-sizes 1 2 4 tiny-bert", ("1,2,4", "tiny-bert")),
        ("--batch-sizes 1, 2, 4 --model-id tiny-bert", ("1,2,4", "tiny-bert")),
        ("--batch-size 4 tiny-bert", ("4", "tiny-bert")),
        ("tiny-bert --batch-sizes 4 2", ("2,4", "tiny-bert")),
    ],
)
def test_values_of_a_list_may_be_separated_by_spaces(words, expected):
    found = parser_of("run").parse_args(words.split())
    assert (",".join(map(str, found.batch_sizes)), found.model_id) == expected


def test_a_list_that_is_given_again_adds_its_values():
    parser = parser_of("run")
    for _ in range(2):  # a parser is used again
        found = parser.parse_args(["m", "--runtime", "eager", "--batch-size", "8", "--runtimes", "openvino,eager"])
        assert (found.runtimes, found.batch_sizes) == (("eager", "openvino"), (8,))
    assert parser.parse_args(["m", "--batch-size", "8", "--batch-sizes", "1,8"]).batch_sizes == (1, 8)
    assert parser_of("batch").parse_args(["--model", "a", "--model", "b,c"]).models == ("a", "b", "c")
    assert parser_of("charts").parse_args(["--format", "svg", "--formats", "pdf"]).formats == ("svg", "pdf")
    for command, limits in (("load", ["ttft:1s", "tpot:9ms"]), ("recommend", ["latency:1s", "memory:2GB"])):
        words = [word for limit in limits for word in ("--limit", limit)]
        assert parser_of(command).parse_args(["m", *words]).limit == limits
    assert with_defaults(("--batch-sizes", "1", "--iterations", "9"), ["--batch-size", "8"]) == [
        *("--iterations", "9", "--batch-size", "8")
    ]


def test_names_of_a_list_may_be_separated_by_spaces_if_they_cannot_be_models():
    words = "--devices cpu null --precisions float32 bfloat16 --runtimes eager compiled tiny-bert"
    found = parser_of("batch").parse_args(words.split())
    assert (found.devices, found.precisions) == (("cpu", "null"), ("float32", "bfloat16"))
    assert (found.runtimes, found.model_ids) == (("eager", "compiled"), ["tiny-bert"])


def test_an_error_names_the_flag_as_it_was_typed(capsys):
    with pytest.raises(SystemExit):
        parser_of("run").parse_args(["tiny-bert", "--batch-size", "x"])
    assert "argument --batch-size: takes whole numbers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (DIMENSIONS, {"rows": 2.5}, "sizes from 1, or batch: got 2.5 for rows"),
        (DIMENSIONS, {"rows": 0}, "sizes from 1, or batch: got 0 for rows"),
        (INPUT_VALUES, {"sr": float("nan")}, "numbers: got nan for sr"),
        (INPUT_VALUES, {"sr": float("inf")}, "numbers: got inf for sr"),
    ],
)
def test_sizes_of_a_graph_are_whole_and_the_values_of_its_inputs_finite(kind, value, message):
    with pytest.raises(UsageError, match=message):
        kind.check(value, repr(value))


def test_a_value_of_an_input_is_finite_on_the_command_line_too(capsys):
    with pytest.raises(SystemExit):
        parser_of("run").parse_args(["graph.onnx", "--input", "sr=nan"])
    assert "takes NAME=NUMBER: got 'sr=nan'" in capsys.readouterr().err


def test_benchmark_script_takes_the_settings_of_its_command_and_checks_them_in_the_same_way(tmp_path):
    parameters = inspect.signature(api.benchmark_script).parameters
    assert {"devices", "runtimes", "timeout_s", "tags", "skip_unsupported"} <= parameters.keys()
    assert "chosen" not in parameters
    assert parameters["iterations"].annotation == "int | None"
    script = str(tmp_path / "none.py")
    for name, value, message in (
        ("iterations", 0, "iterations takes whole numbers from 1: got 0"),
        ("precision", "fp16", "did you mean float16"),
        ("tags", "a=b", "tags takes a mapping of words: got 'a=b'"),
        ("tags", {"a": 1, "commit": None}, "tags takes a mapping of words: got None for commit"),
        ("timeout_s", -1, "timeout_s takes numbers above 0: got -1"),
        ("devices", 3, "devices takes a word: got 3"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            api.benchmark_script(script, **{name: value})
    with pytest.raises(TypeError, match="unexpected keyword argument 'itertions': did you mean 'iterations'"):
        api.benchmark_script(script, itertions=3)
    with pytest.raises(UsageError, match="no such script"):
        api.benchmark_script(script, devices="cpu", runtimes=["eager"], cache_dir=tmp_path, launches=None)
