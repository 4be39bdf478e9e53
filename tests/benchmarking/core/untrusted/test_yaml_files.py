"""Untrusted YAML is read within limits: aliases, merge keys, depth and numbers."""

import time

import pytest

from benchmarking.core.errors import UsageError
from benchmarking.core.untrusted.input_files import MAX_YAML_BYTES, parse_yaml, read_yaml


def merges(levels: int, width: int = 10) -> str:
    """A few hundred bytes whose merge keys stand for width ** levels mappings."""
    lines = ["a0: &a0 {k: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * width)}], k{n}: 1}}" for n in range(1, levels)]
    return "\n".join(lines)


def wide_merges(count: int) -> str:
    """One large mapping that many others copy."""
    keys = ", ".join(f"k{n}: 1" for n in range(1000))
    return f"a: &a {{{keys}}}\n" + "".join(f"b{n}: {{<<: *a}}\n" for n in range(count))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (merges(9), "is it an alias of an alias?"),
        (wide_merges(5000), "x.yaml:1: its aliases expand to more than 100000 values"),
        ("a: &a [" + "x, " * 100 + "]\nb: &b [" + "*a, " * 100 + "]\nc: [" + "*b, " * 100 + "]\n", "alias of an alias"),
        ("a: &a [*a]", "x.yaml:1: an alias contains itself"),
        ("a: &a {<<: *a}", "x.yaml:1: an alias contains itself"),
        ("a: {<<: 7}", "x.yaml:1: << takes keys and values: got 7"),
        ("[" * 100_000, "x.yaml:1: lists and mappings are nested more than 64 levels deep"),
        ("{a: " * 900 + "1" + "}" * 900, "nested more than 64 levels deep"),
        ("- " * 200_000, "nested more than 64 levels deep"),
        ("x: 1:59:59" + ":59" * 100_000, "x.yaml:1: takes plain values: got '1:59:59"),
        ("x: 1:59:59.5", "x.yaml:1: takes plain values: got '1:59:59.5'"),
        ("x: 2026-02-30", "x.yaml:1: takes plain values: got '2026-02-30'; put it in quotes"),
        ("x: 9999-99-99T99:99:99Z", "x.yaml:1: takes plain values: got '9999-99-99T99:99:99Z'"),
        ("x: " + "7" * 5000, "x.yaml:1: takes numbers of at most 40 characters: got 5000"),
        ("x: 0b" + "1" * 5000, "takes numbers of at most 40 characters"),
        ("x: !!int 0x", "x.yaml:1: '0x' is not a int"),
        ("x: !!int ''", "x.yaml:1: '' is not a int"),
        ("x: !!float fast", "x.yaml:1: 'fast' is not a float"),
        ("x: !!bool 7", "x.yaml:1: '7' is not a bool"),
        ("x: !!binary '*'", "x.yaml:1: takes plain values: got tag:yaml.org,2002:binary"),
        (r'x: "\ud800"', "x.yaml:1: text that is not Unicode: '\\ud800'"),
        (r'x: "\UFFFFFFFF"', "x.yaml: not YAML: "),
        ("x: \x07", "x.yaml: not YAML: "),
        ("- 1\n" * 100_001, "more than 100000 values"),
    ],
)
def test_yaml_beyond_a_limit_is_one_line_without_delay(tmp_path, text, problem):
    start_s = time.process_time()
    with pytest.raises(UsageError) as caught:
        parse_yaml(text, tmp_path / "x.yaml")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert time.process_time() - start_s < 30


def test_explicit_keys_and_earlier_mappings_win_in_a_merge(tmp_path):
    text = "a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc: {z: 3, <<: [*a, *b]}\n"
    assert parse_yaml(text, tmp_path / "x.yaml").plain()["c"] == {"x": 1, "y": 1, "z": 3}
    assert parse_yaml(merges(3), tmp_path / "x.yaml").plain()["a2"] == {"k": 1, "k1": 1, "k2": 1}


def test_times_may_be_read_as_text(tmp_path):
    found = parse_yaml("a: 2026-02-30\nb: 1:59:59\nc: 1.5\n", tmp_path / "x.yaml", times_as_text=True)
    assert found.plain() == {"a": "2026-02-30", "b": "1:59:59", "c": 1.5}


def test_a_file_larger_than_a_megabyte_is_not_parsed(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"#" * (MAX_YAML_BYTES + 1))
    with pytest.raises(UsageError, match=r"x\.yaml: larger than 1 MB"):
        read_yaml(tmp_path / "x.yaml")
