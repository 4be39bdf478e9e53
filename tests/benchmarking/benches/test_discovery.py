"""Discovery of benchmarks in a folder, with imports in child processes and errors that name the line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarking.benches.discovery import EXAMPLES, discover
from benchmarking.benches.model_benchmark import BenchmarkConfig
from benchmarking.core.errors import UsageError

pytestmark = pytest.mark.forked_children

PLAIN = """
class {name}(ModelBenchmark):
    def setup_model(self): ...
    def run(self): ...
"""


def plain(name):
    return PLAIN.format(name=name)


def labels(discovery):
    return [bench.label for bench in discovery.benches]


def test_files_are_found_recursively_without_helpers(folder, write):
    write("one.py", plain("A") + plain("B"))
    write("sub/two.py", plain("C"))
    for name in ("_helper.py", ".hidden.py", "_private/three.py", "__init__.py"):
        write(name, plain("D"))
    assert labels(discover(folder)) == ["one.A", "one.B", "two.C"]


def test_base_and_imported_classes_are_not_benchmarks(folder, write):
    write("base.py", plain("Base"))
    write(
        "one.py",
        "from base import Base\nclass _Half(Base): ...\nclass Abstract(ModelBenchmark): ...\nclass A(Base): ...",
    )
    assert labels(discover(folder)) == ["base.Base", "one.A"]


def test_benchmark_files_are_not_imported_in_this_process(folder, write):
    path = write(
        "one.py",
        """
        class A(ModelBenchmark):
            devices, task = ("cpu",), "matmul"
            configs = create_config_variants(BenchmarkConfig(name="a"), {"batch_size": [1, 2]})
            def setup_model(self): ...
            def measure_latency(self): return 1.0
        """,
    )
    (bench,) = discover(folder).benches
    assert (bench.path, bench.class_name, bench.devices, bench.timed_by) == (
        str(path.resolve()),
        "A",
        ("cpu",),
        "bench",
    )
    assert (bench.task, bench.is_mock) == ("matmul", False)
    assert bench.configs == (BenchmarkConfig(name="a"), BenchmarkConfig(name="a", batch_size=2))
    assert not any(name.startswith("benchhouse_bench_") for name in sys.modules)


def test_configs_may_be_a_class_method_and_default_to_one_named_after_the_class(folder, write):
    write(
        "one.py",
        plain("A") + "    @classmethod\n    def configs(cls): return [BenchmarkConfig(name=cls.__name__ * 2)]\n",
    )
    write("two.py", plain("B"))
    assert [[config.name for config in bench.configs] for bench in discover(folder).benches] == [["AA"], ["B"]]


@pytest.mark.parametrize(
    ("include", "exclude", "left"),
    [
        (("one*",), (), ["one.A", "one.B"]),
        (("A", "C"), (), ["one.A", "two.C"]),
        (("sub/*",), (), ["two.C"]),
        ((), ("one.B",), ["one.A", "two.C"]),
        (("*",), ("two",), ["one.A", "one.B"]),
    ],
)
def test_patterns_match_files_classes_and_names(folder, write, include, exclude, left):
    write("one.py", plain("A") + plain("B"))
    write("sub/two.py", plain("C"))
    assert labels(discover(folder, include=include, exclude=exclude)) == left


def test_patterns_select_single_configs(folder, write):
    write("one.py", plain("A") + '    configs = [BenchmarkConfig(name="small"), BenchmarkConfig(name="large")]\n')
    (bench,) = discover(folder, include=("sm*",)).benches
    assert [config.name for config in bench.configs] == ["small"]


def test_mocks_are_listed_as_omitted_unless_they_are_enabled(folder, write):
    write("one.py", plain("A") + "    is_mock = True\n" + plain("B"))
    found = discover(folder)
    assert labels(found) == ["one.B"]
    assert found.left_out == {"one.A": "a mock: use --enable-mock to run it"}
    assert labels(discover(folder, enable_mock=True)) == ["one.A", "one.B"]


def test_the_examples_have_both_kinds_of_timing_with_and_without_mocks():
    both = discover(EXAMPLES, enable_mock=True)
    timed_by = {bench.label: bench.timed_by for bench in both.benches}
    mocks = {"mock_benchmark.MockBench": "benchhouse", "mock_benchmark.MockGeneration": "bench"}
    models = {"gpt2_benchmark.Gpt2Benchmark": "benchhouse", "llama_benchmark.LlamaBenchmark": "bench"}
    assert (timed_by, both.left_out) == (models | mocks, {})
    without = discover(EXAMPLES)
    assert {bench.label for bench in without.benches} == set(models)
    assert without.left_out == dict.fromkeys(mocks, "a mock: use --enable-mock to run it")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("\n\nimport no_such_package\n", r"one\.py, line 4: ModuleNotFoundError: No module named 'no_such_package'"),
        ("def f(:\n", r"one\.py, line 2: SyntaxError"),
        (
            plain("A") + "    configs = [1]\n",
            r"one\.py, line 3: A\.configs must be a list of BenchmarkConfig: it holds 1",
        ),
        (
            plain("A") + "    configs = [BenchmarkConfig(name='a')] * 2\n",
            r"line 3: A\.configs contains the same config twice",
        ),
        (plain("A") + "    def measure_latency(self): ...\n", "line 3: A has both run and measure_latency"),
        ("class A(ModelBenchmark):\n    def setup_model(self): ...\n", "line 2: A has nothing to time"),
        (
            plain("A") + "    @classmethod\n    def configs(cls):\n        return 1 / 0\n",
            r"one\.py, line 8: A: ZeroDivisionError: division by zero",
        ),
        ("BenchmarkConfig(name='a', batch_size=0)\n", r"one\.py, line 2: UsageError: batch_size of a takes"),
        (
            "import os\nprint('bye', flush=True)\nos._exit(7)\n",
            r"one\.py: importing it ended the process with exit code 7: bye",
        ),
    ],
)
def test_errors_in_a_file_name_its_line(folder, write, body, why):
    write("one.py", body)
    write("two.py", plain("B"))
    with pytest.raises(UsageError, match=why):
        discover(folder)
    assert labels(discover(folder, exclude=("one",))) == ["two.B"]


def test_an_excluded_file_is_the_reason_for_nothing_to_run(folder, write):
    write("one.py", plain("A"))
    with pytest.raises(UsageError, match=r"no benchmark to run \(one\.py: excluded by --exclude\)$"):
        discover(folder, exclude=("one",))


def test_output_of_a_file_does_not_corrupt_the_listing(folder, write):
    write("one.py", 'print(\'{"error": "x"}\')\n' + plain("A"))
    assert labels(discover(folder)) == ["one.A"]


def test_a_missing_folder_and_one_without_benchmarks_are_errors(folder):
    with pytest.raises(UsageError, match=r"no benchmark to run in it \(.*--print-example"):
        discover(folder)
    with pytest.raises(UsageError, match="no such folder"):
        discover(folder / "none")


def test_imports_have_a_time_limit(folder, write, monkeypatch):
    monkeypatch.setattr("benchmarking.benches.discovery.TIME_LIMIT_S", 2.0)
    write("one.py", "import time\ntime.sleep(600)\n")
    with pytest.raises(UsageError, match=r"one\.py: importing it took longer than 2 s"):
        discover(folder)


def test_secrets_are_found_beside_a_module_that_is_named_like_one_of_pythons(folder, write):
    write("html.py", "raise SystemExit('not the html that is meant')")
    write("one.py", plain("A"))
    code = (
        "import sys; from pathlib import Path; from benchmarking.benches.discovery import load_module\n"
        "from benchmarking.core.untrusted.redaction import without_secrets\n"
        "load_module(Path(sys.argv[1])); print(without_secrets('--api-key abc12345xyz'))"
    )
    command = [sys.executable, "-c", code, str(folder / "one.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "--api-key ***\n", "")


def test_a_class_without_setup_model_is_left_out_with_the_reason(folder, write):
    write(
        "some.py",
        """
        class Base(ModelBenchmark):
            def run(self): ...
        class Whole(Base):
            def setup_model(self): ...
        class Half(ModelBenchmark):
            def run(self): ...
        """,
    )
    found = discover(folder)
    assert [bench.class_name for bench in found.benches] == ["Whole"]
    assert found.left_out == {"some.Half": "it has no setup_model, which a benchmark needs"}
