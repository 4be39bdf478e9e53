"""Each setting is declared once, and flags, YAML keys, parameters and defaults are what its entry says."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import fields

import pytest

from benchmarking import api, cli
from benchmarking.batch.model_list import BUILT_IN, readers
from benchmarking.core.command_line import Parser
from benchmarking.core.errors import UsageError
from benchmarking.core.settings import COUNT, SECONDS, TEXT, WHOLE, Setting, add_settings, check_given, given, table
from benchmarking.core.shared_settings import SHARED
from benchmarking.sweep.plan.measuring_settings import MEASURING
from benchmarking.sweep.plan.options import runtime_options
from benchmarking.sweep.plan.request import Request
from tests.docs.cli_page import parser_of

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


@pytest.mark.parametrize("command", MEASURING_COMMANDS)
def test_a_flag_with_the_name_of_a_setting_is_that_setting_in_every_command(command):
    declared = {flag: setting for setting in MEASURING.values() for flag in spellings(setting)}
    own: dict[str, argparse.Action] = parser_of(command)._option_string_actions
    for flag, action in own.items():
        if flag in declared and not flag.startswith("--model"):
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
        assert field.default in (default, None) or field.name == "tags", field.name


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
    assert checked >= 7


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
    add_settings(parser, SMALL, *SMALL, lists=("size",), helps={"count": "how many"})
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
