"""Two commands in alternating launches: the order of turns, parsing of sides, and their runs."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarking import cli, run_hardware_benchmark
from benchmarking.commands import ab
from benchmarking.core.errors import BenchhouseError, Interrupted, UsageError
from benchmarking.core.records import dumps
from benchmarking.sweep.run import command_turns
from benchmarking.sweep.run.command_turns import (
    COMMANDS,
    DEFAULT_COMMAND,
    arm,
    measure_in_turns,
    order,
    run_files,
    without_turn_flag,
)
from db import setup_benchmark_db

pytestmark = pytest.mark.forked_children

ROOT = Path(ab.__file__).parents[1]
FLAGS = "--model-id tiny-bert --device null --runtime null --iterations 20 --batch-sizes 1 --sequence-lengths 32"


def script(folder, name, **content):
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content))
    return path


def command(path, flags=FLAGS):
    return f"BENCHHOUSE_NULL_SCRIPT={shlex.quote(str(path))} run_hardware_benchmark {flags}"


def only(folder):
    (path,) = folder.glob("*.json")
    return json.loads(path.read_text())


def test_each_round_has_both_sides_in_an_order_that_the_seed_draws():
    turns = "".join(order(range(1000), "seed"))
    rounds = [turns[place : place + 2] for place in range(0, 2000, 2)]
    assert set(rounds) == {"ab", "ba"}
    assert 400 < rounds.count("ab") < 600
    assert 400 < sum(one != other for one, other in pairwise(rounds)) < 600
    assert "".join(order(range(3, 5), "seed")) == turns[6:10]
    assert "".join(order(range(1000), "other")) != turns


def test_a_side_has_variables_a_program_and_flags(tmp_path):
    one = arm("a", f"A=1 B='x y' {sys.executable} -m tool --flag 'two words'", tmp_path)
    assert one.environment == {"A": "1", "B": "x y"}
    assert one.words == (sys.executable, "-m", "tool", "--flag", "two words")
    assert one.folder == tmp_path


@pytest.mark.parametrize(
    "start",
    [
        "",
        *("run_hardware_benchmark ", "run_hardware_benchmark.py ", "benchhouse run_hardware_benchmark "),
        *("run ", "benchhouse run "),
    ],
)
def test_bare_command_names_refer_to_this_installation(start):
    assert arm("b", f"{start}--model-id m").words == (*DEFAULT_COMMAND, "--model-id", "m")


@pytest.mark.parametrize(
    "start", ["batch_benchmark", "batch_benchmark.py", "benchhouse batch_benchmark", "benchhouse batch"]
)
def test_batches_and_user_written_benchmarks_can_be_compared(start):
    assert arm("a", f"{start} --benches b").words == (*COMMANDS["batch_benchmark"], "--benches", "b")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "A: no command"),
        ("X=1", "A: no command"),
        ("run_hardware_benchmark 'open", "A: .*No closing quotation"),
        ("benchhouse load gpt2 --scenario offline", "A: benchhouse load cannot be measured in turns: load --serve"),
        (
            "benchhouse load m --url http://h/v1 --concurrency 4",
            "A: .*run benchhouse load m --url http://h/v1 --concurrency 4 --repetitions 3 --tag side=a and the line of",
        ),
        ("/nowhere/run_hardware_benchmark --model-id m", "A: /nowhere/run_hardware_benchmark does not exist"),
        ("HEAD~1", "A: HEAD~1 is no command: two commits are compared in worktrees: git worktree add ../base HEAD~1"),
        ("benchhouse benches --iterations 3", "write benchhouse batch --benches benches --iterations 3, which"),
        ("benchhouse benches benches", "write benchhouse batch --benches benches, which"),
        ("benchhouse benches --benches mine", "write benchhouse batch --benches mine, which"),
    ],
)
def test_invalid_sides_are_errors_before_anything_runs(typed, message):
    with pytest.raises(UsageError, match=message):
        arm("a", typed)


def test_the_second_side_may_be_left_out_only_in_another_worktree(capsys):
    for flags in ([], ["--worktree-a", "."], ["--worktree-a", ".", "--worktree-b", os.getcwd()]):
        assert ab.main([command(FLAGS), *flags]) == 2
        assert "B is missing: only in different worktrees" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "folders"), [("--worktree-a", ["main", "here"]), ("--worktree-b", ["here", "main"])])
def test_one_command_runs_in_the_worktree_and_in_this_folder(flag, folders, tmp_path, monkeypatch):
    """Also if another folder's modules are the installed ones, which would be measured as those of this folder."""
    seen = []

    def stop(metric, *arms):
        seen.extend(side.folder for side in arms)
        raise UsageError("seen")

    for name in ("main", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(ab, "check_metric", stop)
    assert ab.main([command(FLAGS), flag, str(tmp_path / "main")]) == 2
    assert seen == [tmp_path / name for name in folders]


def test_one_command_in_two_folders_that_it_uses_nothing_of_is_no_comparison(tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(ab, "run_comparison", lambda arms, *rest: seen.append(arms) or 0)
    for name in ("main", "here"):
        (tmp_path / name / "src" / "my_own_model").mkdir(parents=True)
        for module in ("setup", "__main__", "a module"):
            (tmp_path / name / f"{module}.py").touch()
    monkeypatch.chdir(tmp_path / "here")
    words = [f"A={'x' * 300} benchhouse run tiny-bert --device null", "--worktree-a", "../main", "--no-save"]
    assert ab.main(words) == 2
    assert "uses nothing of" in capsys.readouterr().err
    assert not seen
    for used in ("transformers", "sitecustomize.py", "tiny-bert"):
        path = tmp_path / "main" / used
        path.touch() if path.suffix else path.mkdir()
        assert ab.main(words) == 0, used
        assert len(seen.pop()) == 2
        path.unlink() if path.suffix else path.rmdir()
    model = str(tmp_path)
    flags = ["--worktree-a", "../main", "--worktree-b", ".", "--no-save"]
    assert ab.main([f"benchhouse run {model}", *words[1:]]) == 2, "both sides read the same folder"
    assert ab.main(["A=1 benchhouse run tiny-bert", "A=2 benchhouse run tiny-bert", *flags]) == 0, (
        "they are no one code"
    )


def test_missing_worktrees_are_errors(tmp_path):
    with pytest.raises(UsageError, match=r"is not a folder.*git worktree add"):
        arm("a", FLAGS, tmp_path / "none")


def test_commands_do_not_pass_through_a_shell():
    assert arm("a", "--model-id '$(touch x); rm -rf /' `id` | cat").words[-4:] == (
        "$(touch x); rm -rf /",
        "`id`",
        "|",
        "cat",
    )


def test_the_stored_command_is_the_typed_one():
    assert without_turn_flag(["--model-id", "m", "--turn", "/tmp/x", "--launches", "3"]) == (
        "--model-id",
        "m",
        "--launches",
        "3",
    )
    assert without_turn_flag(["--turn=/tmp/x", "--quiet"]) == ("--quiet",)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """(exit code, document, folder) of a comparison over three rounds, of 1 ms, in its own worktree, with
    1.7 ms; saved in places that are named from the folder it is started in."""
    folder = tmp_path_factory.mktemp("ab")
    sides = [script(folder, name, latency_ms={"*": [ms, ms * 1.01]}) for name, ms in (("one", 1.0), ("two", 1.7))]
    keep = ["--save", "--output-dir", "runs", "--db-path", "a.duckdb", "--quiet", "--worktree-a", str(ROOT)]
    out = folder / "out.json"
    environment = dict(os.environ, HF_HUB_OFFLINE="1", PYTHONPATH=str(ROOT))
    words = [
        sys.executable,
        "-m",
        "benchmarking",
        "ab",
        *map(command, sides),
        "--rounds",
        "3",
        "--max-rounds",
        "3",
        *("--fail-on", "slower"),
        "--json",
        *keep,
    ]
    with out.open("w") as stream:
        done = subprocess.run(words, stdout=stream, env=environment, check=False, cwd=folder)
    return done.returncode, json.loads(out.read_text()), folder


@pytest.mark.slow
def test_launches_of_a_side_are_one_run_and_a_slower_second_side_fails_the_gate(measured):
    code, document, _ = measured
    assert code == 1
    assert document["comparison"]["gate"] == {
        "exit_code": 1,
        "text": "--fail-on slower: failed: B is worse at 1 of 1 point",
    }
    (finding,) = document["comparison"]["findings"]
    assert finding["judgement"]["verdict"] == "slower"
    assert finding["judgement"]["change"] == pytest.approx(0.7)
    assert finding["judgement"]["scope"] == "in turns"
    assert (finding["before"]["launches"], finding["after"]["launches"]) == (3, 3)
    assert document["a"]["run_ids"] == [finding["before"]["run_id"]]


def test_runs_of_both_sides_are_kept_with_their_tags(measured):
    folder = measured[2]
    files = [json.loads(path.read_text()) for path in (folder / "runs").glob("*.json")]
    runs = {run["provenance"]["tags"]["ab_side"]: run for run in files}
    assert sorted(runs) == ["a", "b"]
    assert runs["a"]["provenance"]["tags"]["ab"] == runs["b"]["provenance"]["tags"]["ab"]
    assert [load["launch"] for load in runs["a"]["loads"]] == [0, 1, 2]
    assert "--turn" not in runs["a"]["provenance"]["command"]
    assert not list((folder / "runs").glob("ab-*"))
    a, b = (
        [one["started_at"] for one in runs[side]["results"][0]["samples"] if one["phase"] == "measure"] for side in "ab"
    )
    assert all(max(before) < min(after) for before, after in itertools.pairwise(zip(a, b, strict=True)))


def test_a_ci_gets_markdown_and_junit_as_of_compare(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    sides = [
        command(script(tmp_path, name, latency_ms={"*": [ms, ms * 1.01]})) for name, ms in (("one", 1.0), ("two", 1.7))
    ]
    junit, rounds = tmp_path / "gate.xml", ("--rounds", "3", "--max-rounds", "3")

    assert ab.main([*sides, *rounds, "--quiet", "--markdown", "--junit", "gate.xml", "--fail-on", "slower"]) == 1

    out = capfd.readouterr().out
    assert out.startswith("- A: `BENCHHOUSE_NULL_SCRIPT=")
    assert "| b1 s32 | " in out
    assert out.endswith("--fail-on slower: failed: B is worse at 1 of 1 point\n")
    (case,) = ElementTree.parse(junit).getroot().find("testsuite").findall("testcase")
    assert case.find("failure").get("message").startswith("A ")

    assert ab.main([FLAGS, FLAGS, "--junit", str(junit), "--metric", "latency"]) == 2
    (case,) = ElementTree.parse(junit).getroot().find("testsuite").findall("testcase")
    assert "unknown metric 'latency'" in case.find("error").get("message")


def test_rounds_are_planned_to_grow():
    assert ab.planned_looks(5, 20) == (5, 8, 13, 20)
    assert ab.planned_looks(5, 5) == (5,)
    assert ab.planned_looks(1, 3) == (1, 2, 3)


def looked_at(monkeypatch, verdicts, metrics=(("latency_median_ms", 1.0),), code=0, asked=None):
    """Fakes measuring and judging; returns the measured rounds if each look has the next verdict. `asked` gets the
    flags of each comparison."""
    measured, left = [], iter(verdicts)

    def measure(arms, rounds, folder, further, say, seed):
        measured.append((rounds.start, rounds.stop))
        for letter in "ab":
            (folder / letter).mkdir(parents=True)
            script(folder / letter, "run", run_id=f"{letter}{rounds.start}", results=[{"metrics": dict(metrics)}])
        return code

    def compared(before, after, db_path, *flags):
        if asked is not None:
            asked.append(flags)
        judgement = {"scope": "in turns", "is_decided": next(left)} if "--json" in flags else {}
        return ab.StoredComparison(text=json.dumps({"findings": [{"judgement": judgement}]}), exit_code=0)

    monkeypatch.setattr(ab, "measure_in_turns", measure)
    monkeypatch.setattr(ab, "compare_stored", compared)
    monkeypatch.setattr(ab.command_session, "database", lambda *_, **__: lambda path: None)
    return measured


def test_rounds_are_added_until_the_difference_is_decided(monkeypatch, capsys):
    measured = looked_at(monkeypatch, [False, True])
    assert ab.main([FLAGS, FLAGS, "--quiet"]) == 0
    assert measured == [(0, 5), (5, 8)]


def test_the_number_of_rounds_is_said_first_and_their_time_after_the_first(monkeypatch, capsys, tmp_path):
    looked_at(monkeypatch, [False])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCHMARK_DB_PATH", raising=False)
    assert ab.main([FLAGS, FLAGS, "--budget", "0"]) == 0
    err = capsys.readouterr().err
    said = "5 rounds of one launch of A and one of B, and up to 20 while they do not decide and --budget 0 leaves time"
    assert err.startswith(said)
    assert re.search(r"compare tag\.ab=([\w-]+),tag\.ab_side=a tag\.ab=\1,tag\.ab_side=b shows this again", err)

    def turn(words, variables, folder):
        clock.append(clock[-1] + 15.0)
        return 0

    clock, lines = [0.0], []
    monkeypatch.setattr(command_turns, "run_bound", turn)
    monkeypatch.setattr(command_turns, "monotonic", lambda: clock[-1])
    for letter in "ab":
        (tmp_path / letter / "run").mkdir(parents=True)
    sides = [arm(letter, FLAGS) for letter in "ab"]
    measure_in_turns(sides, range(5), tmp_path, {"a": [], "b": []}, lines.append, "seed")
    assert lines[2] == "the first round took 30 s, so 5 rounds about 2 min, or less where a build is in it"
    assert len(lines) == 11
    measure_in_turns(sides, range(5, 8), tmp_path, {"a": [], "b": []}, lines.append, "seed")
    assert len(lines) == 17


def test_an_interrupted_turn_leaves_the_word_to_the_command_that_was_typed(monkeypatch, capfd, tmp_path):
    def stopped(*_, **__):
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr("benchmarking.sweep.run.supervisor.sweep_one_launch", stopped)
    assert run_hardware_benchmark.main([*FLAGS.split(), "--turn", str(tmp_path / "a"), "--quiet"]) == 143
    assert "interrupted" not in capfd.readouterr().err


def test_a_metric_that_no_side_measures_is_refused_before_measuring(monkeypatch, capsys):
    monkeypatch.setattr(ab, "run_comparison", None)
    sides = ["batch_benchmark --models tiny-bert --devices null"] * 2
    assert ab.main([*sides, "--metric", "latncy_median_ms"]) == 2
    assert "did you mean latency_median_ms" in capsys.readouterr().err


@pytest.mark.parametrize(("metrics", "code", "is_asked"), [((), 1, False), ((("hit_rate", 0.9),), 0, True)])
def test_where_every_launch_failed_that_is_said_rather_than_that_no_result_has_the_metric(
    metrics, code, is_asked, monkeypatch
):
    asked, sides = [], ["batch_benchmark --benches benches"] * 2
    monkeypatch.setattr(ab, "check_commands", lambda arms, metric: None)
    looked_at(monkeypatch, [True], metrics, code, asked)
    assert ab.main([*sides, "--quiet", "--metric", "hit_rate", "--no-save"]) == code
    assert [("--metric" in flags) for flags in asked] == [is_asked] * 2


def test_rounds_end_with_the_budget(monkeypatch, capsys):
    measured = looked_at(monkeypatch, [False])
    assert ab.main([FLAGS, FLAGS, "--quiet", "--budget", "0"]) == 0
    assert measured == [(0, 5)]
    assert "3 more rounds would exceed --budget 0: stopping after 5" in capsys.readouterr().err


def test_max_rounds_end_an_undecided_comparison(monkeypatch, capsys):
    measured = looked_at(monkeypatch, [False, False, False])
    ab.main([FLAGS, FLAGS, "--quiet", "--max-rounds", "9"])
    assert measured == [(0, 5), (5, 8), (8, 9)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((f"{FLAGS} --no-such-flag", FLAGS), "A: unknown flag --no-such-flag"),
        ((FLAGS, f"{FLAGS} --batch-sizes 0"), "B: argument --batch-sizes: takes a whole number from 1: got '0'"),
        ((FLAGS, FLAGS, "--rounds", "9", "--max-rounds", "5"), "--max-rounds 5 is below --rounds 9"),
    ],
)
def test_a_mistake_on_either_side_costs_no_launch(words, message, capfd, monkeypatch, null_script):
    null_script()
    monkeypatch.setattr(ab, "measure_in_turns", lambda *arguments: pytest.fail("measured"))
    assert ab.main(list(words)) == 2
    out, err = capfd.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert f"benchhouse ab: error: {message}" in err


def test_a_side_of_another_interpreter_that_fails_ends_the_comparison_with_its_exit_code(capfd, null_script):
    null_script()
    other = f"{sys.executable} -m benchmarking.run_hardware_benchmark {FLAGS} --no-such-flag"
    assert ab.main([other, FLAGS, "--rounds", "1", "--quiet", "--no-save"]) == 2
    assert "benchhouse ab: error: A ended with exit code 2" in capfd.readouterr().err


@pytest.mark.parametrize("is_any_finished", [False, True])
def test_errors_after_measuring_keep_the_results(capfd, tmp_path, monkeypatch, null_script, is_any_finished):
    def measured(arms, rounds, folder, further, say, seed):
        (folder / "a").mkdir(parents=True)
        (folder / "a" / "run.partial.jsonl").write_text("{}")
        if is_any_finished:
            (folder / "a" / "other.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(ab, "measure_in_turns", measured)
    monkeypatch.setattr(ab.command_session, "database", lambda *arguments, **named: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert ab.main([FLAGS, FLAGS, "--no-save"]) == 130
    (kept,) = tmp_path.glob("benchhouse-ab-*/*/a/run.partial.jsonl")
    err = capfd.readouterr().err
    assert f"the results so far are in {kept.parents[2]}: finish them with benchhouse run --resume " in err
    assert (", or load the finished ones with benchhouse setup --ingest " in err) is is_any_finished
    assert (", then load them with benchhouse setup --ingest " in err) is not is_any_finished


def test_a_command_that_measures_nothing_ends_the_comparison_after_its_first_launch(tmp_path):
    ran = tmp_path / "ran"
    side = f"{sys.executable} -c \"open('{ran}', 'a').write('x')\""
    with pytest.raises(BenchhouseError, match="wrote no run file"):
        measure_in_turns(
            [arm("a", side), arm("b", side)],
            range(5),
            tmp_path / "files",
            {"a": [], "b": []},
            lambda line: None,
            "seed",
        )
    assert ran.read_text() == "x"


def test_a_program_that_can_only_be_another_one_is_refused_before_any_launch(capfd, tmp_path):
    assert ab.main(["sleep 0.1", FLAGS, "--no-save"]) == 2
    error = capfd.readouterr().err
    assert "A: sleep writes no run file: use a command that measures" in error
    assert "round" not in error
    for program in (sys.executable, "env benchhouse run gpt2", "env python3 -m bench", "nice -n 5 bench.py"):
        assert arm("a", program).words == tuple(program.split())


def test_a_command_that_measures_nothing_is_an_error(tmp_path):
    with pytest.raises(
        BenchhouseError, match=r"A wrote no run file: use a command that measures, .* measured by hyperfine"
    ):
        run_files(tmp_path, "a")


def test_compare_to_shows_a_comparison_at_the_end_which_may_be_a_gate(capfd, tmp_path, null_script, make_run):
    null_script(latency_ms={"*": [1.0, 1.01]})
    stored = tmp_path / "stored.json"
    stored.write_text(dumps(make_run(batch_sizes=(1,), sequence_lengths=(32,))))
    database = ["--db-path", str(tmp_path / "a.duckdb")]
    assert setup_benchmark_db.main(["--ingest", str(stored), *database, "--quiet"]) == 0
    keep = ["--save", "--output-dir", str(tmp_path / "runs"), "--quiet", *database]
    words = [*FLAGS.split(), "--launches", "1", *keep, "--compare-to", "tag.suite=test", "--json"]
    assert run_hardware_benchmark.main([*words, "--fail-on", "slower"]) == 3
    document = json.loads(capfd.readouterr().out)
    (finding,) = document["comparison"]["findings"]
    assert finding["after"]["run_id"] == document["measured"][0]["run_id"]
    assert finding["judgement"]["reason"].startswith("not comparable")
    assert "simulated: no / yes" in finding["judgement"]["reason"]
    assert document["comparison"]["gate"]["text"] == "--fail-on slower: not known at 1 of 1 point"
    at_others = ["64" if word == "32" else word for word in words if word != "--json"]
    assert run_hardware_benchmark.main(at_others) == 3  # no point has a verdict
    assert "tag.suite=test has other points: to compare, measure b1 s32" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--interleave"], "--interleave requires --compare-to"),
        (["--compare-to", "latest"], "add --save"),
        (["--fail-on", "slower"], "--fail-on requires --compare-to RUN"),
    ],
)
def test_compare_to_checks_its_requirements(capfd, flags, message):
    assert run_hardware_benchmark.main([*FLAGS.split(), *flags]) == 2
    assert message in capfd.readouterr().err


SIGNALLED = """
import signal, sys
from benchmarking import run_hardware_benchmark
from benchmarking.commands import ab
from benchmarking.core.command_line import run_command

number, side = int(sys.argv[1]), sys.argv[2]
# A job in the background of a shell ignores SIGINT.
signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
run_hardware_benchmark.main = lambda argv: run_command("run", lambda words: signal.raise_signal(number) or 0, argv)
sys.exit(ab.main([side, side]))
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM that can be handled")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_side_is_planned_ends_the_command_as_one(number):
    """In a process of its own, which a signal that is not handled would end."""
    command = [sys.executable, "-c", SIGNALLED, str(int(number)), f"run_hardware_benchmark {FLAGS}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (128 + number, "")
    assert done.stderr.endswith(": interrupted\n")


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            "tiny-bert --batch-sizes 1 --sequence-lengths 16",
            "tiny-bert --batch-sizes 8 --sequence-lengths 16",
            "A measures b1 s16, B b8 s16: ab compares equal points, so there would be nothing to compare. Measure both "
            "in one command: benchhouse run MODEL --batch-sizes 1,8 --save, then benchhouse compare batch=1 batch=8",
        ),
        (
            "tiny-bert --batch-sizes 1 --sequence-lengths 16",
            "tiny-bert --batch-sizes 2 --sequence-lengths 32",
            "benchhouse run MODEL --batch-sizes 1,2 --sequence-lengths 16,32 --save, whose table has both",
        ),
        (
            "tiny-bert --batch-sizes 1 --sequence-lengths 16",
            "tiny-vit --batch-sizes 1",
            "B b1 image_size=32: ab compares equal points, so there would be nothing to compare. Give both sides",
        ),
    ],
)
def test_sides_without_a_common_point_are_refused_before_the_first_launch(first, second, said, monkeypatch, capsys):
    monkeypatch.setattr(ab, "measure_in_turns", lambda *_: pytest.fail("it was measured"))
    sides = [f"benchhouse run {words} --device null" for words in (first, second)]
    assert ab.main([*sides, "--no-save"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert ab.main([sides[0], sides[1].replace("run", "batch", 1).replace("--device", "--devices"), "--no-save"]) == 2
    assert "nothing to compare" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--list-models", "tiny-bert --list-runtimes", "--help"])
def test_a_side_that_measures_no_points_is_refused_before_the_first_launch(words, monkeypatch, capsys):
    monkeypatch.setattr(ab, "measure_in_turns", lambda *_: pytest.fail("it was measured"))
    assert (
        ab.main([f"benchhouse run {words} --device null", "benchhouse run tiny-bert --device null", "--no-save"]) == 2
    )
    assert "error: A: it writes no run file" in capsys.readouterr().err


def test_the_two_settings_that_ab_does_not_compare_are_compared_by_the_command_that_it_names(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = "run tiny-bert --device null --sequence-lengths 16 --batch-sizes 1,8 --iterations 3 --launches 1 --save"
    assert cli.main(words.split()) == 0
    capsys.readouterr()
    assert cli.main(["compare", "batch=1", "batch=8"]) in (0, 3)
    assert "s16" in capsys.readouterr().out
