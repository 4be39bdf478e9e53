"""Redaction of everything stored or printed."""

from __future__ import annotations

import getpass
import io
import json
import os
import platform
import re
import time

import pytest

from benchmarking.core.errors import BenchhouseError, StorageError
from benchmarking.core.untrusted.redaction import (
    cut_to,
    from_home,
    is_secret_name,
    know_secrets_in,
    pseudonym,
    redacted,
    to_home,
    without_folders,
    without_secret_arguments,
    without_secrets,
)
from benchmarking.core.untrusted.secret_formats import TOKENS
from benchmarking.load import served
from benchmarking.sweep.run import process, quality_pass
from tests.helpers import secret_texts

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"


@pytest.mark.parametrize(
    "secret",
    [
        "hf_" + "aB3dE6gH" * 4,
        "sk-proj-" + "a1B2c3D4" * 4,
        "sk-ant-api03-" + "a1B2c3D4" * 4,
        "ghp_" + "a1B2c3D4e5" * 4,
        "github_pat_" + "11ABCDEFG0" * 4,
        "glpat-" + "a1B2c3D4e5" * 2,
        "AKIA" + "IOSFODNN7EXAMPLE",
        "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
        "xoxb-" + "123456789012-abcdefghij",
        "npm_" + "a1B2c3D4e5" * 4,
        "nvapi-" + "a1B2c3D4e5" * 4,
        JWT,
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_known_token_formats_are_redacted_everywhere(secret):
    assert without_secrets(f"cannot load '{secret}' twice") == "cannot load '***' twice"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("https://user:pw@host/path", "https://host/path"),
        ("GET https://host/a?X-Amz-Signature=abc&x=1 failed", "GET https://host/a?*** failed"),
        ("HF_TOKEN=abc x=1", "HF_TOKEN=*** x=1"),
        ('api_key="a b" and dbPassword = x', 'api_key="***" and dbPassword = ***'),
        ("--hf-token=abc", "--hf-token=***"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: ***"),
        ('{"password": "abc", "x": 1}', '{"password": "***", "x": 1}'),
        ("sent Bearer abcdefghijkl", "sent Bearer ***"),
        ("{'passwd': 'known'}", "{'passwd': '***'}"),
        ("{'passwd': hunter2, 'x': 1}", "{'passwd': ***, 'x': 1}"),
        ("passwd: known", "passwd: ***"),
        ("password=123456.7890", "password=***"),
        ("db_password: 123456", "db_password: ***"),
        ("--password 1234 x", "--password *** x"),
        ("{'clientSecret': 1234.5678}", "{'clientSecret': ***}"),
        ('[{"a": {"password": 1234}}]', '[{"a": {"password": ***}}]'),
        ('{"password": null, "b": {"secret": true}}', '{"password": null, "b": {"secret": true}}'),
        ("run(1, password=hunter22).go(2)", "run(1, password=***)"),
        ("connect (--password hunter22)", "connect (--password ***)"),
        ("{env: [PASSWORD=a[b]c1]}", "{env: [PASSWORD=***]}"),
        ('{"password": ["b", 87654321], "n": 2}', '{"password": ***, "n": 2}'),
        ('{"secret": {"a": 87654321, "b": "c"}, "n": 2}', '{"secret": ***, "n": 2}'),
        ('{"secret": {"a": {"password": "hunter22"}}}', '{"secret": {"a": {"password": "***"}}}'),
        ("passwords=[1234, 5678]", "passwords=***"),
        ("api_key=[1234, ab12] api_key=[12345678]", "api_key=*** api_key=***"),
        ("args:\n  - --api-key\n  - hunter22\n  - --port", "args:\n  - --api-key\n  - ***\n  - --port"),
        ("to=https%3A%2F%2Fann%3Apw%40h%2F", "to=https%3A%2F%2Fh%2F"),
        ("to=https%3A%2F%2Fh.example&mail=ann%40corp", "to=https%3A%2F%2Fh.example&mail=ann%40corp"),
        ("routing_key: R02ABCD1234EFGH5678IJKL9012MNOP0", "routing_key: ***"),
        ("sshpass -p 12345678 ssh h", "sshpass -p *** ssh h"),
        ("curl -u ann:1234567 h", "curl -u ann:*** h"),
        ("redis-cli -h h -a 12345678 ping", "redis-cli -h h -a *** ping"),
        ("mysql -u ann -p12345678 db", "mysql -u ann -p*** db"),
        ("docker login -u ann -p 12345678", "docker login -u ann -p ***"),
        ("*:*:*:postgres:12345678", "*:*:*:postgres:***"),
        ("SSHPASS=hunter22 x -storepass hunter22", "SSHPASS=*** x -storepass ***"),
        ("echo hunter22 | sudo -S nvidia-smi", "echo *** | sudo -S nvidia-smi"),
        ("echo 'ann:hunter22' | chpasswd", "echo '***' | chpasswd"),
        ("unzip -P hunter22 x.zip, 7z x -phunter22 a.7z", "unzip -P *** x.zip, 7z x -p*** a.7z"),
        ("Password         : 12345678", "Password         : ***"),
        ('db_pw=hunter22 "pw": "hunter22"', 'db_pw=*** "pw": "***"'),
        ("tailscale up --authkey hunter22", "tailscale up --authkey ***"),
        ("the password is 12345678", "the password is ***"),
        ('["--password", 12345678, "--n", 16]', '["--password", ***, "--n", 16]'),
        ('{"key":"X-Api-Key","value":{"raw":"hunter22"}}', '{"key":"X-Api-Key","value":***}'),
        ("needs OPENAI_API_KEY, OTHER_LONG_VARIABLE_2", "needs OPENAI_API_KEY, OTHER_LONG_VARIABLE_2"),
    ],
)
def test_named_secrets_in_text_are_redacted(text, left):
    assert without_secrets(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "time_to_first_token=12.5",
        "eos_token=</s>",
        "new_tokens=16, max_tokens=x",
        "takes key=value: got 'x'",
        "token=16",
        "password=3, secret: 12.5, passwords: 123",
        "password_check_ms=123456.7890, per_token=0.0123456, pass=1234.5678",
        "tokenizer=bpe author=ann monkey=1",
        "disk-based-and-risk-free-0123456789",
        "https://host/path#part",
        "no such key: hidden_size",
        "unknown tag 'passwd': known: suite, night",
        "unknown tag 'api-key': did you mean suite? known: suite",
        "cannot read 'secret': [Errno 2] No such file or directory",
        "hf_transfer is not installed",
        "run 0199aa00-0000-7000-8000-000000000000 of org/sk-model",
        "docker run --user 1000:1000 -u app:1000 x; login1 $ llama-bench -m login -p 131072 -u 1",
        "0000:65:00.0 x:0000:65:00:123456; python x.py -u 1234 -p 4096; token is 12345678",
        "attn_key=[64], attn_key=[1, 64], attn_key: float32[1, 64], bias_key=(0.25, 64), mask_key: bool[8]",
    ],
)
def test_terms_of_language_models_are_not_redacted(text):
    assert without_secrets(text) == text


def test_secrets_are_recognised_by_value_by_format_and_by_name(monkeypatch):
    for name, value in secret_texts.KNOWN.items():
        monkeypatch.setenv(name, value)
    assert secret_texts.remaining(without_secrets) == []


ESCAPES = (
    r"\n",
    r"\r\n",
    r"\\t",
    r"\u0022",
    r"\x1b[1;31m",
    r"\033[0m",
    "\x1b[35m",
    "\x1b[m\x1b[K",
    "%22",
    "%2520",
    "%0A%3D",
)


@pytest.mark.parametrize("before", ESCAPES)
def test_an_escape_before_a_secret_is_no_part_of_its_word(monkeypatch, before):
    monkeypatch.setenv("MY_TOKEN", "team7-blue-Fox")
    formats = ("hf_" + "aB3dE6gH" * 4, "sk-proj-" + "a1B2c3D4" * 4, "foo-aB3dE5gH7jK9mN2pQ4sT6", "key=a1B2c3D4e5F6g7H8")
    named = ("--api-key team8-red", "-u ann:team8-red", "Bearer " + "aB3dE6gH" * 4, "ann:team8-red@host")
    for secret in ("team7-blue-Fox", "TEAM7-BLUE-FOX", *formats, *named):
        left = without_secrets(f"refused:{before}{secret} twice")
        assert re.fullmatch(rf"refused:{re.escape(before)}[\w :=-]*\*\*\*(@host)? twice", left), left


@pytest.mark.parametrize(
    "written",
    [
        *(
            "a&amp;b&#39;c+d",
            "a&amp;b&#x27;c&#43;d",
            "a&#38;b'c+d",
            r"a\u0026b'c+d",
            r"a\&b\'c\+d",
            "a%26b%27c%2Bd",
            r"a&amp;b\&#x27;c+d",
            "a&b''c+d",
        ),
        *("""a&b'"'"'c+d""", r"a&b'\''c+d", r"a\\u0026b\\'c+d", "a%252526b%252527c%25252bd", "A&AMP;B'C+D"),
    ],
)
def test_a_known_value_is_found_however_its_signs_are_written(monkeypatch, written):
    monkeypatch.setenv("MY_PASSWORD", "a&b'c+d")
    assert without_secrets(f"no: {written}!") == "no: ***!"


SENT = "Zq+Cd/9xy-longKEY1234"
SPLITS = ("\n", "  \n    ", "-\n", "  │\n│ ", r"\n", "\u200b", "\u00ad", r"\u200B")


@pytest.mark.parametrize(
    "written",
    [
        *(
            "".join(form.format(ord(sign)) for sign in SENT)
            for form in (r"\u{:04x}", r"\x{:02X}", "&#x{:x};", "%{:02x}")
        ),
        *(f"{SENT[:at]}{split}{SENT[at:]}" for split in SPLITS for at in (5, 9, 10)),
        " ".join(SENT),
        json.dumps("".join(rf"\u{ord(sign):04x}" for sign in SENT))[1:-1],
    ],
)
def test_a_known_value_is_found_where_all_its_signs_are_codes_or_something_is_between_them(written):
    known = frozenset([SENT, "12345678", "other-Secret-9"])
    for before, after in (("no: ", "!"), (r"\u002e", r"\n"), ("", ""), ("x ", " 1234\n5678 other secret 9")):
        assert without_secrets(f"{before}{written}{after}", known) == f"{before}***{after}"
    for inside in (f"a{written}", f"{written}a", f"{SENT[:5]} {SENT[5:]}", SENT.replace("-", "")):
        assert without_secrets(inside, known) in (inside, "a***", "***a")


@pytest.mark.parametrize("ending", [r"\n", r"\r\n"])
@pytest.mark.parametrize("printed", ["\n", "\r\n"])
def test_a_known_value_is_found_where_a_program_printed_the_ends_of_lines_that_it_has_as_codes(ending, printed):
    known = frozenset([f"aB3dE6gH{ending}jK9mN2pQ"])
    assert without_secrets(f"no: aB3dE6gH{printed}jK9mN2pQ!", known) == "no: ***!"


@pytest.mark.parametrize("signs", ["-", '"', r"\\", r"\"", "\n", " /"])
def test_the_beginning_of_a_known_value_of_many_signs_takes_no_time(signs):
    value = "".join(f"ab1{signs}" for _ in range(24)) + "cd2"
    written = {value, repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(json.dumps(value))[3:-3]}
    start = time.monotonic()
    assert {without_secrets(f"no: {one}!", frozenset([value])) for one in written} == {"no: ***!"}
    for one in written:  # cut off, and as a part of something longer
        without_secrets(f"no: {one[:-3]}! {one}x", frozenset([value]))
    assert time.monotonic() - start < 5


def test_a_known_value_may_be_of_other_bytes_than_utf_8():
    known = frozenset([os.fsdecode(b"blue-\xff-Fox")])
    assert without_secrets("no: blue-%FF-Fox!", known) == "no: ***!"


def test_harmless_texts_are_unchanged(monkeypatch):
    for name, value in secret_texts.KNOWN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PGPASSWORD", "postgres")
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    monkeypatch.setenv("SSH_KEY", "/etc/passwd")
    assert secret_texts.changed(without_secrets) == []
    text = "ducklake:postgres:dbname=x and /etc/passwd 1"
    assert without_secrets(text) == text
    for text in ("Time to first token: deepseek2 30B", "Time per output token: qwen3-30b-a3b at batch 1"):
        assert without_secrets(text) == text
    assert without_secrets("new token: qwen3-30b-a3b, token: deepseek2x") == "new token: ***, token: ***"


def test_every_format_of_a_token_has_a_source():
    assert [issuer for issuer, _, source in TOKENS if "/" not in source and not source.startswith("RFC ")] == []


def test_passwords_among_a_commands_arguments_are_replaced_in_every_text(monkeypatch):
    monkeypatch.setattr("benchmarking.core.untrusted.redaction._given", set())
    know_secrets_in(["--db-path", "pg://ann:swordfish99@db/x", "--api-key", "-q7w8e9", "--tag", "t_token=z1x2c3"])
    text = "swordfish99 and -q7w8e9 and z1x2c3, not swordfish999"
    assert without_secrets(text) == "*** and *** and ***, not swordfish999"


def test_secret_arguments_may_begin_with_a_dash():
    given = [
        "run",
        "--api-key",
        "-abc9",
        "--password",
        "--pass12",
        "--token",
        "-v",
        "--key",
        "x1",
        "--secret",
        "--save",
    ]
    left = ["run", "--api-key", "***", "--password", "***", "--token", "-v", "--key", "***", "--secret", "--save"]
    assert without_secret_arguments(given) == left


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ({"password": [12345678, 12]}, {"password": ["***", 12]}),
        ({"passwords": [12345678, 87654321]}, {"passwords": ["***", "***"]}),
        ({"name": "db_password", "value": 12345678}, {"name": "db_password", "value": "***"}),
        ({"name": "X-Api-Key", "value": ["Abcd1234x", "none"]}, {"name": "X-Api-Key", "value": ["***", "none"]}),
        ({"api_keys": {"prod": "Abcd1234x", "enabled": "true"}}, {"api_keys": {"prod": "***", "enabled": "true"}}),
        ({"dbPasswords": {"a": "Abcd1234x"}}, {"dbPasswords": {"a": "***"}}),
        ({"credentials": 12345678}, {"credentials": "***"}),
        ({"password": 12345678.0, "secret": {"a": "Abcd1234x"}}, {"password": "***", "secret": {"a": "***"}}),
        ({"key": "X-Api-Key", "value": {"raw": "Ab1"}}, {"key": "X-Api-Key", "value": {"raw": "***"}}),
        ({"Name": "DB_PASSWORD", "Value": "hunter22"}, {"Name": "DB_PASSWORD", "Value": "***"}),
        ({"variable": "HF_TOKEN", "default": ["hunter22"]}, {"variable": "HF_TOKEN", "default": ["***"]}),
        ({"cookies": [{"name": "sid", "value": "Ab12"}]}, {"cookies": [{"name": "sid", "value": "***"}]}),
        ({"token": "hunter22", "auth": {"pass": "hunter22"}}, {"token": "***", "auth": {"pass": "***"}}),
        (["--password", 12345678, "--n", 8, None], ["--password", "***", "--n", 8, None]),
        (["serve", "--api-key", "hunter22", 8000, []], ["serve", "--api-key", "***", 8000, []]),
        ([["password", 12345678]], [["password", "***"]]),
        (["DB_PASSWORD=hunter22", "X=1"], ["***", "X=1"]),
        (["redis-cli", "-h", "h", "-p", "6379", "-a", "12345678"],
         ["redis-cli", "-h", "h", "-p", "6379", "-a", "***"]),
        ({"db_pwd": 12345678, "pwd": 12345678}, {"db_pwd": "***", "pwd": 12345678}),
    ],
)  # fmt: skip
def test_secrets_in_lists_numbers_and_objects_are_redacted_by_name(value, left):
    assert redacted(value) == left


def test_values_in_lists_that_are_no_secrets_stay():
    harmless = {
        "values": [12345678, 1.5], "credentials": 4000, "api_keys": 3, "tokens": [12345678], "cache_keys": {"a": "x9"},
        "api_key": {"env": "MY_API_KEY"}, "logprobs": [{"token": "20250514"}], "added_token": {"content": "<x>"},
        "args": ["llama-bench", "-p", 4096, "-u", "1"], "default": {"name": "tokens_per_second", "default": 12345678.5},
        "custom": {"name": "latency", "value": [12345678, 2]}, "metric": {"name": "first_token", "value": ["abc9"]},
    }  # fmt: skip
    assert redacted(harmless) == harmless


def test_fields_of_foreign_documents_are_redacted_by_name():
    value = {"headers": {"X-Api-Key": "abc9", "Authorization": "Custom x y", "first_token": "x", "n": 1}}
    assert redacted(value) == {"headers": {"X-Api-Key": "***", "Authorization": "***", "first_token": "x", "n": 1}}
    # What another tool calls its "config" is no model's.
    tool = {"backend": {"api_key": "abc9"}, "model_args": "model=x,api_key=abc9", "pad_token": "<pad>"}
    left = {"backend": {"api_key": "***"}, "model_args": "model=x,api_key=***", "pad_token": "<pad>"}
    assert redacted({"origin": {"kept": {"config": tool}}}) == {"origin": {"kept": {"config": left}}}
    value = {"custom": {"name": "api-key", "value": "abc9"}, "HF_TOKEN": {"value": "abc9"}, "secrets": {"a": "abc9"}}
    left = {"custom": {"name": "api-key", "value": "***"}, "HF_TOKEN": {"value": "***"}, "secrets": {"a": "***"}}
    assert redacted(value) == left
    harmless = {"metric": {"name": "first_token", "value": "abc9"}, "key": "x", "missing": {"name": "a", "value": "b"}}
    assert redacted(harmless) == harmless
    value = {"argv": ["--api-key", "abc9", "-v"], "headers": [["X-Api-Key", "abc9"], ["api_key", "model"], ["a", "b"]]}
    left = {"argv": ["--api-key", "***", "-v"], "headers": [["X-Api-Key", "***"], ["api_key", "model"], ["a", "b"]]}
    assert redacted(value) == left
    # A password may be a number; tokens are counted, and a key is an index.
    value = {"password": 12345678, "passwd": {"value": 1}, "db": {"secret": 1234}, "secrets": 5000, "a_token": 10**9}
    left = {"password": "***", "passwd": {"value": 1}, "db": {"secret": "***"}, "secrets": 5000, "a_token": 10**9}
    assert redacted(value) == left
    model = {"source": "hub", "config": {"password": 12345678, "api_key": "abc9"}}
    assert redacted(model) == model
    harmless = {"outputs": ["past_key_values.0.key", "past_key_values.0.value"], "of": ["test_pass", "backward_pass"]}
    assert redacted(harmless) == harmless


def test_names_of_secrets_are_recognised_in_every_spelling():
    secret = ("HF_TOKEN", "hf-token", "apiKey", "AWS_SECRET_ACCESS_KEY", "dbPassword", "HFTOKEN", "auth", "MY_KEY")
    other = ("tokens", "tokenizer", "author", "time_to_first_token", "pad_token", "keyboard", "passes", "key", "")
    assert [name for name in secret if not is_secret_name(name)] == []
    assert [name for name in other if is_secret_name(name)] == []


def test_the_word_of_a_tag_and_the_key_of_a_project_are_no_secrets(monkeypatch):
    monkeypatch.setenv("SONAR_PROJECT_KEY", "tiny-bert-model")
    given = ["run", "tiny-bert-model", "--tag", "pass=backward"]
    know_secrets_in(given)
    assert without_secret_arguments(given) == given
    assert without_secrets("backward of tiny-bert-model") == "backward of tiny-bert-model"
    assert without_secret_arguments(["--pass=backward", "pass=a1b2c3"]) == ["--pass=***", "***"]


def test_secret_command_line_arguments_are_redacted():
    given = ["run", "--tag", "HF_TOKEN=a b", "--api-key", "abc", "--hf-token=abc", "--batch-sizes", "1,2"]
    given += ["p99_token=12", "stop_token=</s>", "-u", "ann:abc9def"]
    given += ["--ak", "abc", "--sk=abc", "--sk=3", "--jwt", "abc", "-k", "a"]
    left = ["run", "--tag", "***", "--api-key", "***", "--hf-token=***", "--batch-sizes", "1,2"]
    left += ["p99_token=12", "stop_token=</s>", "-u", "ann:***"]
    left += ["--ak", "***", "--sk=***", "--sk=3", "--jwt", "***", "-k", "a"]
    assert without_secret_arguments(given) == left


def test_tags_and_variables_are_redacted_by_name_and_metrics_are_not():
    value = {
        "tags": {"HF_TOKEN": "abc", "suite": "night", "pass": "forward", "token": "a1b2"},
        "environment_variables": {"OV_KEY": "abc"},
        "missing": {"time_to_first_token": "not_measured"},
        "config": {"template": "set key = value", "note": "hf_" + "a1" * 16},
        "values": [1.0, 2.0],
        "facts": [1.0, "hf_" + "a1" * 16],
    }
    assert redacted(value) == {
        "tags": {"HF_TOKEN": "***", "suite": "night", "pass": "forward", "token": "***"},
        "environment_variables": {"OV_KEY": "***"},
        "missing": {"time_to_first_token": "not_measured"},
        "config": {"template": "set key = value", "note": "***"},
        "values": [1.0, 2.0],
        "facts": [1.0, "***"],
    }


def test_home_paths_round_trip_through_a_tilde(monkeypatch):
    monkeypatch.setenv("HOME", "/people/ann")
    assert from_home("cannot read /people/ann/models/x: denied") == "cannot read ~/models/x: denied"
    assert from_home("/people/ann") == "~"
    assert from_home("/people/anna/x /data/people/ann/x") == "/people/anna/x /data/people/ann/x"
    assert to_home("~/models/x") == "/people/ann/models/x"
    assert to_home("a ~/x") == "a ~/x"


def test_a_pseudonym_stays_the_same_and_needs_the_key_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_, **__: tmp_path / "data")
    first = pseudonym("10.1.2.3:8000")
    assert pseudonym("10.1.2.3:8000") == first != pseudonym("10.1.2.4:8000")
    (key,) = (tmp_path / "data").iterdir()
    assert (key.name, key.stat().st_size) == ("pseudonym.key", 32)
    if os.name == "posix":
        assert key.stat().st_mode & 0o077 == 0
    key.unlink()
    assert pseudonym("10.1.2.3:8000") != first
    key.write_bytes(b"short")
    with pytest.raises(StorageError, match="expected a key of 32 bytes, found 5: delete the file"):
        pseudonym("x")
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_, **__: key / "under-a-file")
    with pytest.raises(StorageError, match=r"cannot write .*, the key of anonymous names"):
        pseudonym("x")


def test_anonymous_text_omits_host_and_user(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "ann-laptop")
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    text = "ann-laptop: /home/bob/x /scratch/ann/y"
    assert redacted(text, anonymous=True) == "host: ~/x /scratch/user/y"
    in_url = r"http://h/x#p=%2Fhome%2Fbob%2Fy&q=%252Froot%252Fz&r=C%3A%5CUsers%5Cbob%5Cn \/home\/bob\/y %2Fa%2Fhome%2Fx"
    assert redacted(in_url, anonymous=True) == r"http://h/x#p=~%2Fy&q=~%252Fz&r=~%5Cn ~\/y %2Fa%2Fhome%2Fx"
    assert redacted("banner of annotations", anonymous=True) == "banner of annotations"
    assert redacted({"host": "ann-laptop", "name": "x"}, anonymous=True) == {"host": "", "name": "x"}


def test_an_escape_or_a_flag_before_a_home_folder_or_a_name_is_no_part_of_it(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "ann-laptop")
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    monkeypatch.setenv("HOME", "/people/ann")
    for before in (*ESCAPES, "-I", "gcc -L"):
        assert from_home(f"no: {before}/people/ann/x") == f"no: {before}~/x"
        assert redacted(f"no: {before}/home/bob/x", anonymous=True) == f"no: {before}~/x"
    for before in ESCAPES:
        assert redacted(f"no: {before}ann-laptop, {before}ann", anonymous=True) == f"no: {before}host, {before}user"
    assert from_home("lib-x/people/ann/x a-b/people/ann") == "lib-x/people/ann/x a-b/people/ann"


def test_anonymous_text_lacks_the_name_of_a_user_whose_home_it_has():
    text = "no file '/home/zoe/models/c.json' (user zoe), ~zoe/q, zoe-2, Zoey; /home/al/x is of al"
    assert redacted(text, anonymous=True) == "no file '~/models/c.json' (user user), ~user/q, zoe-2, Zoey; ~/x is of al"
    assert redacted("asked by zoe", anonymous=True) == "asked by zoe"


def test_anonymous_text_keeps_the_public_name_of_a_model(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "falcon.lab.example")
    public = {"model_id": "tiiuae/falcon", "source": "hub"}
    assert redacted(public, anonymous=True) == public
    assert redacted({**public, "source": "local"}, anonymous=True)["model_id"] == "tiiuae/host"


@pytest.mark.parametrize("node", ["gpubox17.corp.example", "gpubox17", "elsewhere"])
def test_anonymous_text_omits_hosts_with_and_without_their_domain(monkeypatch, node):
    """Also the host of the record, which may be exported on another machine."""
    monkeypatch.setattr(platform, "node", lambda: node)
    record = {
        "provenance": {"host": "gpubox17.corp.example", "command": ["--host", "x=gpubox17"]},
        "tags": {"box": "gpubox17"},
        "error": "gpubox17.corp.example: no. gpubox170, gpubox17.lab.example.org, db.corp.example, gpubox17.",
    }
    assert redacted(record, anonymous=True) == {
        "provenance": {"host": "", "command": ["--host", "x=host"]},
        "tags": {"box": "host"},
        "error": "host: no. gpubox170, host, db.domain, host.",
    }


def test_the_word_for_a_host_that_is_not_known_is_no_name():
    record = {"provenance": {"host": "Unknown"}, "error": "Unknown format: the time zone is unknown"}
    assert redacted(record, anonymous=True) == {**record, "provenance": {"host": ""}}


@pytest.mark.parametrize("node", ["m1.local", "n7.hpc.example"])
def test_anonymous_text_omits_a_host_with_a_short_name_by_its_domain(monkeypatch, node):
    monkeypatch.setattr(platform, "node", lambda: node)
    label = node.partition(".")[0]
    text = f"http://{node}:8000 refused: {label} x{node}"
    assert redacted(text, anonymous=True).startswith(f"http://host:8000 refused: {label} ")


@pytest.mark.parametrize(
    "part",
    [
        *("a-", "sk-", "eyJ-", "://", "x=", "-----BEGIN PRIVATE KEY-----", '"', "token:", '="', "a:b", "/hooks/"),
        *("cookie: a=b;", "a@b:", "--key ", "--key \\\n", "HF_TOKEN ", "key: expected a, found ", "%3A%2F%2F", "key "),
    ],
)
def test_redaction_time_is_linear_in_text_length(part):
    start = time.process_time()
    without_secrets(part * (200_000 // len(part)))
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/data/acme/models/llama", "…/llama"),
        ("~/work for acme/llama 2", "…/llama 2"),
        ("--cache-dir=/data/a b/cache", "--cache-dir=…/cache"),
        ("cannot read /data/acme/x.bin: denied", "cannot read …/x.bin: denied"),
        ("/data/acme/x.bin: no such file, nor /data/y/z", "…/x.bin: no such file, nor …/z"),
        ("not in '/data/our models/x' or \"C:\\our models\\x\"", "not in '…/x' or \"…/x\""),
        ("PATH=/opt/acme/bin:/usr/local/bin", "PATH=…/bin:…/bin"),
        ("file:///data/acme/x", "…/x"),
        ("C:\\Users\\x\\model", "…/model"),
        ("on \\\\server\\share\\x.txt today", "on …/x.txt today"),
    ],
)
def test_folders_of_absolute_paths_are_redacted(text, left):
    assert without_folders(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "org/model",
        "tokens/s and 1/2 or 3 / 4",
        "https://example.org/a/b/c",
        "</a>",
        "a\\d+",
        "n/a",
        "./here/x",
        "/data",
    ],
)
def test_other_slashes_are_unchanged(text):
    assert without_folders(text) == text


KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvAIBADANBgkqhkiG9w0BAQEFAASC+aBc/dEfGhIjKlMnOpQrStUvWxYz0123\n" * 13
LONG_VALUE = "hunter2Kd93kLq0zzhunter2Kd93kLq0zz"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (f"TLS:\n{KEY}fatal: no match\n", "TLS:\n***"),
        (f"TLS:\n{KEY * 3}-----END PRIVATE KEY-----\n" + "fatal: no match\n" * 9, "fatal: no match"),
        ("x" * 3950 + f" api_key='{LONG_VALUE}' " + "y" * 3980, "y" * 3980),
        ("x" * 300_000 + f"\napi_key='{LONG_VALUE}'\nfatal\n", "fatal"),
        ("one\ntwo\n" * 100_000, "two"),
    ],
)
def test_the_end_of_a_log_has_no_part_of_a_secret(tmp_path, text, last):
    (tmp_path / "log").write_text(text)
    found = served.log_end(tmp_path / "log")
    assert found.endswith(last)
    assert len(found) <= 4000
    assert "MIIEv" not in found
    assert "aBc/dEf" not in found
    assert "hunter2" not in found


def test_a_text_is_cut_after_its_secrets_are_found(monkeypatch):
    """A part of a known value is not recognised, nor a value whose name is cut off."""
    secret = "zq83hfKDls0qpWmX72bcNv5T1yLe9uRa"
    monkeypatch.setenv("MY_API_KEY", secret)
    before = "E" * 469 + " rejected: "
    assert cut_to(before + secret, 500) == f"{before}***"
    assert "zq83" not in quality_pass._reason(BenchhouseError("E" * 270 + " rejected: " + secret))
    worker = process.WorkerProcess.__new__(process.WorkerProcess)
    with io.BytesIO(f"started\n{before}{secret}\n".encode()) as worker._stderr:
        monkeypatch.setattr(process.WorkerProcess, "exit_status", lambda self: 7)
        assert str(worker.lost()) == f"the worker ended with exit code 7: {before}***"
