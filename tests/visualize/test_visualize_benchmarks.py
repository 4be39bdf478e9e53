"""The command `visualize_benchmarks`: arguments, files and one-line errors."""

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarking.core.errors import StorageError
from benchmarking.core.records import dumps
from db.warehouse import Warehouse
from tests.helpers.databases import holding
from tests.helpers.paths import ROOT
from visualize import visualize_benchmarks
from visualize.drawing.rows import charts


@pytest.fixture
def database(here):
    """A function that stores runs in bench.duckdb."""

    def store(*runs):
        with Warehouse.open(here / "bench.duckdb") as warehouse:
            warehouse.ingest_all(runs)
        return "bench.duckdb"

    return store


@pytest.fixture
def spool(here):
    """A function that writes run files to runs/."""

    def write(**runs):
        (here / "runs").mkdir()
        for name, run in runs.items():
            (here / "runs" / f"{name}.json").write_text(dumps(run))

    return write


@pytest.fixture
def draw(capsys):
    """Runs the command: (exit code, lines on stdout, lines on stderr)."""

    def run(*argv):
        capsys.readouterr()
        code = visualize_benchmarks.main(argv)
        done = capsys.readouterr()
        return code, done.out.splitlines(), done.err.splitlines()

    return run


def test_a_model_is_named_by_its_path_though_it_is_stored_without_the_home_folder(database, draw, make_run):
    given = ("--db-path", database(make_run(model_id="~/models/x")), "--chart", "latency_vs_batch_size")
    path = str(Path("~/models/x").expanduser())
    stored = draw(*given, "--model-id", "~/models/x")
    assert stored[0] == 0
    assert draw(*given, "--model-id", path) == draw(*given, f"model={path}") == stored
    assert draw("--db-path", "bench.duckdb", "--model-id", path, "--report", "r.html")[0] == 0


def test_charts_of_a_model_are_drawn_and_their_paths_printed(database, draw, make_run):
    code, out, err = draw("--db-path", database(make_run()), "--model-id", "bert-base-uncased")
    cell = "bert-base-uncased_cpu_eager_float32"
    stems = [
        f"batch_sequence_heatmap_{cell}",
        f"latency_vs_batch_size_{cell}",
        "load_stages_bert-base-uncased",
        f"memory_vs_batch_size_{cell}",
        "pareto_front_bert-base-uncased_sequence_length-32",
        "pareto_front_bert-base-uncased_sequence_length-128",
        f"throughput_vs_batch_size_{cell}",
    ]
    assert code == 0
    assert any(line.startswith("not drawn: Speedup by runtime") for line in err)
    assert err[-1].startswith("no data for energy_per_input, ")
    assert err[-1].endswith("see visualize_benchmarks --list")
    assert [path for path in out if "temporal" not in path and "memory_by" not in path] == [
        str(Path("benchmark_visualizations", f"{s}.{f}")) for s in stems for f in ("png", "svg")
    ]
    assert all(Path(path).stat().st_size > 5000 for path in out)


def test_run_files_are_drawn_without_a_database(spool, draw, make_run):
    spool(a=make_run(model_id="a/b"), b=make_run(model_id="gpt2", family="decoder-only"))
    code, out, err = draw(
        "--json-path", "runs/*.json", "--charts", "latency_vs_batch_size", "--formats", "svg", "--json"
    )
    assert (code, err) == (0, [])
    (line,) = out
    assert [Path(path).name for path in json.loads(line)] == [
        "latency_vs_batch_size_a--b_cpu_eager_float32.svg",
        "latency_vs_batch_size_gpt2_cpu_eager_float32_n4.svg",
    ]
    assert not list(Path().glob("*.duckdb"))


def test_characters_that_the_font_of_pictures_lacks_are_said_once_in_words(database, draw, make_run):
    code, out, err = draw(
        "--db-path", database(make_run(model_id="模型")), "--charts", "latency_vs_batch_size", "--formats", "png"
    )
    assert (code, len(out)) == (0, 1)
    assert err == ["boxes in PNG and PDF, not in SVG: the font of pictures has no 型模"]


def test_a_pile_of_marks_on_a_letter_is_neither_boxes_nor_a_warning(database, draw, make_run):
    pile = "z\u0351\u036b\u0343\u036a\u0302\u033d\u034f\u0334\u0319\u1ab0\u1ab1\u1ab2"
    path = database(make_run(model_id=pile * 60), make_run(model_id="Zu\u0308rich"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        code, out, err = draw("--db-path", path, "--charts", "load_stages", "--formats", "png")
    assert (code, len(out), err) == (0, 2, [])


def test_the_environment_names_the_default_database(database, draw, make_run, monkeypatch):
    monkeypatch.setenv("BENCHMARK_DB_PATH", database(make_run()))
    code, out, _ = draw("--charts", "latency_vs_batch_size", "--formats", "png", "--output-dir", "elsewhere")
    assert code == 0
    assert out == [str(Path("elsewhere/latency_vs_batch_size_bert-base-uncased_cpu_eager_float32.png"))]


def test_the_architecture_comparison_is_drawn_alone_or_with_the_charts_of_a_model(database, draw, make_run):
    path = database(make_run(), make_run(model_id="roberta-base"))
    base = ("--db-path", path, "--formats", "svg", "--architecture-comparison")
    _, out, _ = draw(*base)
    assert [Path(name).name for name in out] == ["architecture_comparison_cpu_eager_float32_random.svg"]
    of_all = Path(out[0]).read_bytes()
    _, out, _ = draw(*base, "--model-id", "roberta-base")
    assert len(out) > 5
    assert Path(out[-1]).read_bytes() == of_all, "the comparison covers all models"
    assert all("roberta-base" in name for name in out if "architecture" not in name)


def test_filters_select_cells(database, draw, make_run, alter):
    runs = [make_run(), make_run(precision="bfloat16"), alter.on_device(make_run(device="cuda"), "Card", "cuda:0")]
    base = ("--db-path", database(*runs), "--charts", "latency_vs_batch_size", "--formats", "svg")
    assert len(draw(*base)[1]) == 3
    for filters, names in [
        (("--device", "cuda"), ["cuda-0_eager_float32"]),
        (("--device", "cuda:0"), ["cuda-0_eager_float32"]),
        (("--precision", "bfloat16"), ["cpu_eager_bfloat16"]),
        (("--device", "cpu", "--runtime", "eager", "--precision", "float32"), ["cpu_eager_float32"]),
    ]:
        _, out, _ = draw(*base, *filters)
        assert [Path(name).stem.removeprefix("latency_vs_batch_size_bert-base-uncased_") for name in out] == names


def test_a_selection_selects_results_as_in_other_commands(database, draw, make_run):
    older = make_run(started_at="2026-01-02T00:00:00Z")
    path = database(older, make_run(started_at="2026-03-02T00:00:00Z", slowdown=2.0))
    base = ("--db-path", path, "--chart", "latency_vs_batch_size", "--format", "svg")
    assert "measured 2026-03-02" in Path(draw(*base)[1][0]).read_text()
    assert "measured 2026-01-02" in Path(draw(f"run={older.run_id},precision=float32", *base)[1][0]).read_text()
    code, out, (error,) = draw("batch=16", *base)
    assert (code, out) == (1, [])
    assert error.endswith(
        "bench.duckdb has no results of batch=16: it has bert-base-uncased cpu eager float32, batch size 1, 2"
    )


def test_several_models_are_drawn_and_compared_and_a_selection_may_follow_them(database, draw, make_run):
    path = database(make_run(), make_run(model_id="roberta-base"), make_run(model_id="other"))
    base = ("--db-path", path, "--format", "svg")
    chart = ("--chart", "latency_vs_batch_size")
    for words in (
        ("--model-id", "roberta-base", "bert-base-uncased"),
        ("--models", "bert-base-uncased,roberta-base", "device=cpu"),
        ("--model-id", "bert-base-uncased", "roberta-base", "runtime=eager,sql:batch_size < 9"),
    ):
        code, out, err = draw(*chart, *words, *base)
        assert (code, err) == (0, [])
        assert {Path(name).stem.split("_")[4] for name in out} == {"bert-base-uncased", "roberta-base"}
    code, out, (error,) = draw(*chart, "--model-id", "bert-base-uncased", "roberta-bse", *base)
    assert (code, out) == (2, [])
    assert "no model 'roberta-bse' in bench.duckdb: did you mean roberta-base" in error


def test_sql_in_a_selection_needs_a_database(spool, draw, make_run, database):
    spool(a=make_run())
    code, _, (error,) = draw("sql:batch_size=1", "--json-path", "runs")
    assert (code, "needs a database" in error) == (2, True)
    base = ("--db-path", database(make_run()), "--chart", "latency_vs_batch_size", "--format", "svg")
    code, (_,), err = draw("sql:batch_size<4", *base)
    assert (code, err) == (0, [])


def test_several_charts_formats_and_a_theme_can_be_given(database, draw, make_run):
    base = ("--db-path", database(make_run()), "--chart", "latency_vs_batch_size", "--chart", "memory_vs_batch_size")
    code, out, err = draw(*base, "--format", "pdf,svg", "--theme", "dark")
    assert (code, err) == (0, [])
    assert [Path(path).name.split("_vs")[0] + Path(path).suffix for path in out] == [
        *("latency.svg", "latency.pdf", "memory.svg", "memory.pdf")
    ]
    assert "fill: #16191d" in Path(out[0]).read_text()


def test_charts_that_are_not_drawn_are_noted_unless_quiet(database, draw, make_run):
    base = ("--db-path", database(make_run(sequence_lengths=(32,))), "--formats", "svg")
    code, out, notes = draw(*base)
    assert (code, len(out) > 4) == (0, True)
    architecture, runtimes = [
        note for note in notes if "Models by architecture" in note or "Speedup by runtime" in note
    ]
    assert architecture.startswith("not drawn: Models by architecture family on Test CPU (cpu)")
    assert architecture.endswith("bert-base-uncased is the only model")
    assert runtimes.startswith("not drawn: Speedup by runtime: bert-base-uncased: measured only with eager at float32")
    assert draw(*base, "--quiet")[2] == []


def test_a_chart_of_a_single_point_is_drawn_where_it_is_named_or_alone(database, draw, make_run):
    name, path = "latency_vs_batch_size", database(make_run(batch_sizes=(4,), sequence_lengths=(32,)))
    code, out, err = draw("--db-path", path)
    assert code == 0
    assert not any(name in line for line in out)
    assert any(line.startswith("not drawn: Latency vs batch size") for line in err)
    code, out, _ = draw("--db-path", path, "--chart", f"{name},hardware_comparison", "--format", "png")
    assert (code, len(out)) == (0, 2)


def test_a_named_chart_has_no_files_of_single_points_beside_those_that_say_something(database, draw, make_run):
    swept = make_run(model_id="gpt2", batch_sizes=(1, 4), sequence_lengths=(32,))
    path = database(make_run(batch_sizes=(4,), sequence_lengths=(32,)), swept)
    code, (file,), (note,) = draw("--db-path", path, "--chart", "latency_vs_batch_size", "--format", "png")
    assert (code, "gpt2" in file) == (0, True)
    assert note.startswith("not drawn: Latency vs batch size: bert-base-uncased on ")


def test_a_named_chart_without_data_fails_and_states_what_it_needs(database, draw, make_run):
    base = ("--db-path", database(make_run()), "--format", "svg")
    code, out, (error,) = draw(*base, "--chart", "time_to_first_token")
    assert (code, out) == (1, [])
    assert error.endswith("a generative model at two or more batch sizes or sequence lengths")


def test_a_named_chart_that_cannot_be_drawn_is_an_error(database, draw, make_run):
    base = ("--db-path", database(make_run()), "--formats", "svg")
    code, out, (error,) = draw(*base, "--charts", "latency_vs_batch_size,architecture_comparison", "--quiet")
    assert (code, len(out)) == (1, 1)
    assert "bert-base-uncased is the only model" in error


def test_an_invalid_run_file_is_named_and_the_others_are_drawn(spool, draw, make_run):
    spool(good=make_run())
    Path("runs/torn.json").write_text(Path("runs/good.json").read_text()[:1000])
    code, out, err = draw("--json-path", "runs", "--charts", "latency_vs_batch_size", "--formats", "svg")
    assert (code, len(out), len(err)) == (1, 1, 1)
    assert str(Path("runs/torn.json")) in err[0]


def test_listing_the_charts_needs_no_data(here, draw):
    code, out, err = draw("--list-charts")
    assert (code, err) == (0, [])
    assert [line.split()[0] for line in out] == list(charts())
    assert draw("--list") == (code, out, err)
    code, (line,), _ = draw("--list-charts", "--json")
    assert {tuple(chart) for chart in json.loads(line)} == {("name", "title", "needs", "by_default")}


def test_the_docs_list_every_chart_and_whether_it_must_be_named():
    lines = (ROOT / "docs" / "charts.md").read_text().splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `") and "visualize_benchmarks" not in line}
    assert set(rows) == set(charts())
    only_named = {name for name in rows if not charts()[name].by_default}
    assert {name for name, line in rows.items() if line.endswith("(only when named) |")} == only_named


def test_the_help_is_grouped_and_ends_with_examples(draw):
    code, out, err = draw("--help")
    assert (code, err) == (0, [])
    for group in ("source of the results:", "selection of results:", "charts:", "report:", "output:", "examples:"):
        assert group in out
    indented = [line[4:] for line in out[out.index("examples:") :] if line.startswith("    ")]
    examples = [" ".join(line.split()[:2]) for line in indented if not line.startswith(" ")]  # no continued lines
    assert examples == ["benchhouse charts"] * 4
    everything = " ".join(" ".join(draw("--help-all")[1]).split())
    assert "another process uses (default: 30)" in everything


def test_drawing_twice_gives_the_same_files(database, draw, make_run):
    base = ("--db-path", database(make_run(with_failed=True)), "--charts", "hardware_comparison", "--formats", "svg")
    first = {path: Path(path).read_bytes() for path in draw(*base)[1]}
    assert {path: Path(path).read_bytes() for path in draw(*base)[1]} == first


BAD = {
    "missing database": (1, ("--db-path", "no.duckdb"), "no database at no.duckdb"),
    "not a database": (1, ("--db-path", "text.txt"), "not a DuckDB database"),
    "empty database": (1, ("--db-path", "empty.duckdb"), "empty.duckdb has no runs yet: measure with"),
    "unknown model": (2, ("--db-path", "bench.duckdb", "--model-id", "bert-base"), "did you mean bert-base-uncased?"),
    "unknown device": (2, ("--db-path", "bench.duckdb", "--device", "cuda"), "no device 'cuda' in bench.duckdb"),
    "unknown precision": (2, ("--db-path", "bench.duckdb", "--precision", "fp16"), "it has float32"),
    "unknown runtime": (2, ("--db-path", "bench.duckdb", "--runtime", "eagre"), "did you mean eager?"),
    "unknown chart": (2, ("--charts", "latency_vs_batch"), "did you mean latency_vs_batch_size"),
    "unknown format": (2, ("--format", "gif"), "known: png, svg, pdf"),
    "empty list": (2, ("--charts", ","), "the list is empty"),
    "two sources": (2, ("--db-path", "a", "--json-path", "b"), "not allowed with"),
    "no such file": (2, ("--json-path", "no.json"), "no such file: no.json"),
    "no match": (2, ("--json-path", "no/*.json"), "no file matches no/*.json"),
    "torn file": (1, ("--json-path", "torn.json"), "torn.json: not JSON, or truncated"),
    "foreign file": (1, ("--json-path", "foreign.json"), "not a benchhouse run"),
    "binary file": (1, ("--json-path", "bench.duckdb"), "bench.duckdb: not JSON"),
    "folder without runs": (1, ("--json-path", "folder"), "no run file in folder"),
    "folder of bad files": (
        1,
        ("--json-path", "."),
        'not a benchhouse run (no "format": "benchhouse-run"); 1 more is invalid',
    ),
    "folder that is a file": (2, ("--db-path", "bench.duckdb", "--output-dir", "text.txt"), "text.txt"),
    "negative wait": (2, ("--lock-timeout", "-1"), "takes seconds from 0"),
}


def test_a_runtime_and_a_precision_by_another_word_are_recognized(database, draw, make_run):
    path = database(make_run(runtime="onnxruntime", precision="float16"))
    for flag, word, meant in (("--runtime", "ort", "onnxruntime"), ("--precision", "fp16", "float16")):
        code, _, (error,) = draw("--db-path", path, flag, word)
        assert (code, f"did you mean {meant}? " in error) == (2, True), error


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(here, database, draw, make_run, case):
    expected_code, argv, message = BAD[case]
    if "bench.duckdb" in argv:
        database(make_run())
    if "empty.duckdb" in argv:
        Warehouse.open("empty.duckdb").close()
    Path("folder").mkdir()
    Path("text.txt").write_text("some text\n" * 100)
    Path("torn.json").write_text(dumps(make_run())[:2000])
    Path("foreign.json").write_text('{"a": 1}')
    code, out, err = draw(*argv)
    assert (code, out, len(err)) == (expected_code, [], 1)
    assert err[0].startswith("visualize_benchmarks: error: ")
    assert message in err[0]


def test_a_selection_of_failed_points_is_an_error_with_the_reason(database, draw, make_run, alter):
    code, out, (error,) = draw("--db-path", database(alter.results(make_run(), alter.failed)), "--quiet")
    assert (code, out) == (1, [])
    assert error.startswith("visualize_benchmarks: error: nothing could be drawn: ")
    assert "nothing to draw, of 4 points: 4 failed; first error: OutOfMemoryError: too big" in error


def test_runs_without_results_are_an_error(database, draw, make_run):
    code, _, (error,) = draw(
        "--db-path", database(replace(make_run(), results=(), status="failed", error="no weights"))
    )
    assert code == 1
    assert "bench.duckdb has runs but no results: they failed before their first point" in error


def test_a_combination_never_measured_lists_existing_combinations(database, draw, make_run):
    path = database(make_run(), make_run(model_id="gpt2", family="decoder-only", precision="bfloat16"))
    code, _, (error,) = draw("--db-path", path, "--model-id", "gpt2", "--precision", "float32")
    assert code == 1
    assert "no results of gpt2 float32: it has cpu eager bfloat16" in error


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_is_an_error(database, draw, make_run, here):
    (here / "closed").mkdir(mode=0o500)
    code, _, (error,) = draw("--db-path", database(make_run()), "--output-dir", "closed")
    assert (code, "cannot write to the folder closed" in error) == (1, True)


def test_a_locked_database_is_drawn_from_a_copy(database, draw, make_run):
    path = database(make_run())
    with holding(Path(path)):
        code, drawn, _ = draw("--db-path", path, "--lock-timeout", "0", "--chart", "latency_vs_batch_size")
    assert (code, any("latency_vs_batch_size" in line for line in drawn)) == (0, True)


def test_drawing_does_not_change_the_database(database, draw, make_run):
    path = database(make_run())
    before = Path(path).read_bytes()
    draw("--db-path", path, "--charts", "latency_vs_batch_size", "--formats", "svg")
    assert Path(path).read_bytes() == before


def picture(*name_parts, apart=()):
    return visualize_benchmarks.Picture(name_parts=name_parts, details=apart, images=())


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("google/flan-t5-base", "google--flan-t5-base"),
        ("cuda:0", "cuda-0"),
        ("../../etc/passwd", "etc--passwd"),
        ("Intel(R) Xeon(R) @ 2.20GHz", "Intel-R-Xeon-R-2.20GHz"),
        ("...", "-"),
        ("模型甲", "b006bbb3"),
        ("org/模型甲-7b", "org----7b-c76fa0fe"),
        ("\N{ROCKET}", "ebbc0b28"),
        ("a · b", "a-b"),
    ],
)
def test_parts_of_file_names_are_safe(part, name):
    assert visualize_benchmarks.safe(part) == name


def test_pictures_with_equal_names_get_different_files():
    alike = [picture("m", apart=("random", "T4")), picture("m", apart=("random", "H200")), picture("n", apart=("", ""))]
    assert visualize_benchmarks.stems("chart", alike) == ["chart_m_T4", "chart_m_H200", "chart_n"]


def test_names_that_differ_only_in_case_or_unsafe_characters_get_different_files():
    stems = visualize_benchmarks.stems("chart", [picture("GPT2"), picture("gpt2"), picture("a/b"), picture("a--b")])
    assert len({stem.lower() for stem in stems}) == 4


def test_long_names_are_shortened_and_stay_unique():
    stems = visualize_benchmarks.stems("chart", [picture("x" * 300 + "a"), picture("x" * 300 + "b")])
    assert [len(stem) for stem in stems] == [visualize_benchmarks.LONGEST_STEM] * 2
    assert stems[0] != stems[1]


def test_a_folder_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match="taken"):
        visualize_benchmarks.writable_folder(tmp_path / "taken")


def test_a_write_error_states_its_reason(tmp_path):
    (tmp_path / "chart_m.png").mkdir()
    one = visualize_benchmarks.Picture(name_parts=("m",), details=(), images=(("png", b"x"),))
    with pytest.raises(StorageError, match=r"cannot write .*chart_m\.png"):
        visualize_benchmarks.write("chart", [one], tmp_path)


def test_a_full_disk_leaves_the_earlier_picture(tmp_path):
    resource = pytest.importorskip("resource")
    (tmp_path / "chart_m.png").write_bytes(b"earlier")
    one = visualize_benchmarks.Picture(name_parts=("m",), details=(), images=(("png", bytes(100)),))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
    try:
        with pytest.raises(StorageError, match=r"cannot write .*chart_m\.png"):
            visualize_benchmarks.write("chart", [one], tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"chart_m.png": b"earlier"}


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "visualize.visualize_benchmarks"],
        [str(ROOT / "visualize" / "visualize_benchmarks.py")],
        ["-m", "benchmarking.cli", "visualize_benchmarks"],
    ],
)
def test_it_starts_as_script_module_and_command(here, command):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *command, "--list-charts"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(charts())
