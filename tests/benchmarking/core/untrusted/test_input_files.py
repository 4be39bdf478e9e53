"""Untrusted files are read within limits that apply before parsing and unpacking."""

import gzip
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarking.core.errors import FormatError, UnreadableError
from benchmarking.core.untrusted.input_files import (
    ALWAYS_UNPACKED_BYTES,
    MAX_CONTAINERS,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_VALUES,
    open_regular,
    parse_json,
    read_text,
    read_unpacked,
    unpacked_digest,
)

LARGE = 512 * 1024**2


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested more than 64 levels deep"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "nested more than 64 levels deep"),
        (b"[" * 1_000_000, "nested more than 64 levels deep"),
        (b"[" + b"[]," * MAX_CONTAINERS + b"0]", "more than 1000000 lists and objects"),
        (b"[" + b"0," * (MAX_VALUES + 1) + b"0]", "more than 10000000 values"),
        (b"[" + b"1" * (MAX_DIGITS + 1) + b"]", "an integer of 301 digits, more than the limit of 300"),
        (b"[-" + b"1" * 5000 + b"]", "an integer of 5001 digits"),
        (b"[NaN]", "NaN is not a number"),
        (b"[-Infinity]", "-Infinity is not a number"),
        (b'["\xff\xfe"]', "not UTF-8 at byte 2"),
        (rb'["\ud800 alone"]', r"half of a surrogate pair \(\\ud800\)"),
        (rb'{"\udc00": 1}', r"half of a surrogate pair \(\\udc00\)"),
        (b"", "not JSON, or truncated"),
        (b'{"a": "b', "not JSON, or truncated"),
    ],
)
def test_json_beyond_a_limit_is_one_line_with_the_limit(content, problem):
    with pytest.raises(FormatError, match=problem) as caught:
        parse_json(content, "x.json")
    assert str(caught.value).startswith("x.json: ")
    assert "\n" not in str(caught.value)


def test_a_digest_ends_for_content_that_is_not_stored(tmp_path):
    """A sparse file, a gzip file that expands, and what a kernel makes up while it is read."""
    sparse, packed = tmp_path / "sparse.json", tmp_path / "packed.json.gz"
    sparse.write_text('{"format": ')
    os.truncate(sparse, 2**40)
    packed.write_bytes(gzip.compress(bytes(2 * ALWAYS_UNPACKED_BYTES)))
    endless = [Path("/proc/self/pagemap")] if os.access("/proc/self/pagemap", os.R_OK) else []
    for path in (sparse, packed, *endless):
        with pytest.raises(FormatError, match="has more than 100 times the content that it takes on disk"):
            unpacked_digest(path)
    plain, small = tmp_path / "plain.json", tmp_path / "small.json.gz"
    plain.write_bytes(bytes(2 * ALWAYS_UNPACKED_BYTES))
    small.write_bytes(gzip.compress(b"{}"))
    assert unpacked_digest(plain) == hashlib.sha256(plain.read_bytes()).hexdigest()
    assert unpacked_digest(small) == hashlib.sha256(b"{}").hexdigest()
    unstated = tmp_path / "unstated.json"  # like a stored one where the file system states no blocks
    unstated.touch()
    os.truncate(unstated, 2 * ALWAYS_UNPACKED_BYTES)
    assert unpacked_digest(unstated) == unpacked_digest(plain)


def test_json_at_its_limits_and_brackets_in_text_are_read():
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "x") is not None
    assert parse_json(b"9" * MAX_DIGITS, "x") == int("9" * MAX_DIGITS)
    text = "[" * 1000 + '\\"' + "{" * 1000
    assert parse_json(b'{"a": "' + text.encode() + b'", "b": [1.5]}', "x") == {"a": text.replace("\\", ""), "b": [1.5]}
    assert parse_json(rb'"\ud83d\ude00"', "x") == "\U0001f600"
    assert parse_json(b"\xef\xbb\xbf[NaN]", "x", constant=lambda _: None) == [None]


def test_a_string_without_an_end_is_refused_without_delay():
    start_s = time.process_time()
    with pytest.raises(FormatError, match="not JSON, or truncated"):
        parse_json(b'"' + 60_000 * b'\\"', "x.json")
    assert time.process_time() - start_s < 15


def test_only_regular_files_are_opened_without_blocking(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "dangling.json").symlink_to(tmp_path / "gone.json")
    (tmp_path / "circle.json").symlink_to(tmp_path / "circle.json")
    for path in (*sorted(tmp_path.iterdir()), Path("/dev/zero"), tmp_path / "gone.json"):
        with pytest.raises(UnreadableError, match=f"cannot read {path}: ") as caught, open_regular(path):
            pass
        assert "\n" not in str(caught.value)
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    with open_regular(tmp_path / "link.json") as opened:
        assert opened.read() == b"{}"


def test_text_files_are_read_up_to_their_limit(tmp_path):
    with pytest.raises(FormatError, match=r"/dev/zero: larger than 1 MB"):
        read_text(Path("/dev/zero"), 1_000_000)


def test_gzip_bombs_are_refused_in_little_memory(tmp_path):
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb") as packed:
        for _ in range(100):
            packed.write(b"[]," * (1 << 20))
    assert path.stat().st_size < 1_000_000
    with open_regular(path) as opened, pytest.raises(FormatError, match="expands more than 100 times"):
        read_unpacked(opened, path, LARGE)
    code = (
        "import sys; from pathlib import Path; from db.importers.support.files import read_file\n"
        "try: read_file(Path(sys.argv[1]))\n"
        "except Exception as error: print(error)\n"
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    problem, peak_kb = done.stdout.splitlines()
    assert "expands more than 100 times" in problem
    assert int(peak_kb) < 250_000  # 314 MB unpacked


def test_gzip_files_are_unpacked(tmp_path):
    path = tmp_path / "small.json.gz"
    path.write_bytes(gzip.compress(b"0" * (ALWAYS_UNPACKED_BYTES - 1)))
    with open_regular(path) as opened:
        assert len(read_unpacked(opened, path, LARGE)) == ALWAYS_UNPACKED_BYTES - 1
    with open_regular(path) as opened:
        assert read_unpacked(opened, path, 1000) is None
