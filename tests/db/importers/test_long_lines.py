"""Lines of any length, which may come from anyone, take a time in proportion to it."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path

import pytest

from db.exporters.mlflow_store import _by_key
from db.importers import llama_bench, vllm_printed
from db.importers.google_benchmark import parsed_name
from db.importers.support.files import find_documents, read_file
from db.importers.support.reading import Fields, csv_rows, shortened
from db.importers.tensorrt_benchmarks import PRINTED, TRTEXEC_STATED

SEARCHED = {
    "vllm_printed": (
        *("TITLE", "END", "SECTION", "LABELLED", "FIRST", "STATISTIC", "NAMED", "COMMAND", "RISING"),
        *("SERVER_COMMAND", "CONTAINER", "LONG"),
    ),
    "google_benchmark": ("SETTINGS",),
    "openvino_benchmark_app": ("SHAPES", "TIMED", "INPUT_TYPE", "VIRTUAL_DEVICE"),
    "onnxruntime_benchmarks": ("MODEL_PATH", "FLAG", "COMMAND"),
    "llama_bench": ("NUMBERED",),
    "support.llama_tables": ("GPU", "LISTED"),
    "tensorrt_benchmarks": ("SHAPE", "PRINTED_GPU", "BEGINS", "BENCH_COMMAND", "ENDS"),
    "support.building": ("BRACKETED", "IN_NAME", "IN_BRACKETS"),
    "support.reading": ("FLAG", "WORD"),
    "support.mlperf_files": ("COUNT",),
}
OF_WHOLE = (
    *("vllm_printed.SERVED_MODEL", "serving_clients.NOT_OF_SERVER"),
    *("support.building.OF_HUB", "support.building.GGUF_PATH"),
)
"""Patterns that a text begins with, or is."""
PIECES = (
    "A",
    "a",
    "1",
    "=",
    "-",
    " ",
    "\n",
    "\t",
    "A: ",
    "A:",
    "a-",
    "a_",
    "a=",
    "1,",
    "(",
    "----a",
    "a/",
    "x.onnx/",
    ">",
    "'\"",
    "--a ",
    "--a '",
    "trtllm-bench ",
    "vllm-openai",
    "vllm serve ",
    "(node: ",
    "using device a (",
    "\n| 0| [a:b]|" + " " * 50_000,
    "[1,2]" * 19_000 + "[",
    "/min_time:1",
)


@pytest.mark.parametrize("name", [f"{module}.{name}" for module, names in SEARCHED.items() for name in names])
def test_a_pattern_takes_a_time_in_proportion_to_the_text(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    pattern = getattr(import_module(f"db.importers.{module}"), attribute)
    for piece in PIECES:
        start_s = time.process_time()
        assert sum(1 for _ in pattern.finditer(piece * (100_000 // len(piece)) + "\0!")) <= 100_000
        assert time.process_time() - start_s < 3, piece


@pytest.mark.parametrize("name", OF_WHOLE)
def test_a_text_is_compared_with_a_pattern_in_a_time_in_proportion_to_it(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    pattern = getattr(import_module(f"db.importers.{module}"), attribute)
    for piece in (*PIECES, "tput", "/models--a", ".gguf"):
        start_s = time.process_time()
        text = piece * (100_000 // len(piece)) + "\0!"
        pattern.match(text)
        pattern.fullmatch(text)
        assert time.process_time() - start_s < 3, piece


def test_the_flags_between_two_results_take_a_time_in_proportion_to_their_number(tmp_path: Path) -> None:
    """Ten times as many took a hundred times as long."""
    block = "=== Serving Benchmark Result ===\nSuccessful requests:   10\nBenchmark duration (s):   2.0\n"
    (tmp_path / "log").write_text("  --abc def\n" * 300_000 + block)
    file = read_file(tmp_path / "log")
    start_s = time.process_time()
    assert len(list(vllm_printed.read(file))) == 1
    assert time.process_time() - start_s < 5


def test_names_that_are_alike_are_told_apart_in_a_time_in_proportion_to_their_number() -> None:
    start_s = time.process_time()
    assert parsed_name("f" + "/n:1" * 20_000).function == "f"
    assert len(_by_key(dict.fromkeys(map(chr, range(0x2190, 0x2B00)), 1.0))) == 0x2B00 - 0x2190
    assert time.process_time() - start_s < 3


@pytest.mark.parametrize("joined", ['{"a": 1}', '{"a": 1}[', '{\n"a": 1}', '[{\n"a": 1}]'])
def test_joined_documents_take_a_time_in_proportion_to_their_number(joined: str) -> None:
    start_s = time.process_time()
    assert len(find_documents(joined * 30_000).values) >= 1
    assert time.process_time() - start_s < 8


@pytest.mark.parametrize("stated", ["Model", "Selected Device", "Precision"])
def test_spaces_in_what_trtexec_states_take_a_time_in_proportion_to_their_number(stated: str) -> None:
    patterns = (*TRTEXEC_STATED.values(), PRINTED)
    start_s = time.process_time()
    found = [one for pattern in patterns for one in pattern.findall(f"[I] {stated}: a{' ' * 60_000}b \n")]
    assert time.process_time() - start_s < 3
    assert any("b" in one[-1] for one in found)


@pytest.mark.parametrize("line", ["\n", "\r\n", " \n"])
def test_lines_without_words_take_a_time_in_proportion_to_their_number(line: str) -> None:
    start_s = time.process_time()
    assert find_documents("log\n" + line * 30_000 + 'end\n  {"a": 1}').values == ({"a": 1},)
    assert time.process_time() - start_s < 2


def test_brackets_that_are_never_closed_are_given_up_soon() -> None:
    """From each line, the lines down to the deepest level that Python reads were parsed: 20 s for a megabyte."""
    start_s = time.process_time()
    assert find_documents('{"a": 1}\n' + '{"a":[\n' * 60_000).values == ({"a": 1},)
    assert time.process_time() - start_s < 5


@pytest.mark.parametrize(("levels", "count"), [(64, 1), (65, 0)])
def test_a_document_has_no_more_levels_than_json_that_is_read_whole(levels: int, count: int) -> None:
    assert len(find_documents('{"a":' * levels + "1" + "}" * levels).values) == count


def test_the_folder_in_a_setting_is_found_in_a_time_in_proportion_to_its_length(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    fields = Fields(read_file(tmp_path / "a.json"), {"given": ":/" * 30_000 + "/", "of": "config:/home/me/c.json"})
    start_s = time.process_time()
    assert fields.other_settings()["of"] == "config:c.json"
    assert time.process_time() - start_s < 1


def test_quotes_of_an_insert_take_a_time_in_proportion_to_their_number() -> None:
    start_s = time.process_time()
    assert llama_bench._escaped_values("a', '" + "b" + "'" * 100_001) == ["a"]
    assert llama_bench._escaped_values("it''s', 'one'||char(10)||'two', '") == ["it's", "one\ntwo", ""]
    assert time.process_time() - start_s < 3


def test_nothing_of_a_file_behind_a_link_is_described(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("my words\n")
    (tmp_path / "link.json").symlink_to(tmp_path / "mine")
    assert read_file(tmp_path / "mine").description == "text that begins with 'my words'"
    assert read_file(tmp_path / "link.json").description == "a file behind a link"


def test_the_beginning_of_what_is_left_out_has_no_part_of_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "zq83hfKDls0qpWmX72bcNv5T1yLe9uRa"
    monkeypatch.setenv("MY_API_KEY", secret)
    line = f"{'E' * 40} {secret} and more"
    (tmp_path / "log").write_text(f'{line}\n{{"a": 1}}\n{line}\n')
    (tmp_path / "table.csv").write_text(f"a,b\n1,2\n{line},3,4\n")
    log, table = read_file(tmp_path / "log"), read_file(tmp_path / "table.csv")
    assert len(list(csv_rows(table, lambda header: header == ["a", "b"]))) == 1
    found = [*(one.text for one in (*log.noise, *table.left_out)), table.beginning(line), shortened(line)]
    assert len(found) == 5
    for text in found:
        assert "E ***" in text
        assert "zq83" not in text
