"""The MCP server, asked by the client of the official SDK over stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess

import pytest

from benchmarking.core.child_process import module_command
from benchmarking.core.errors import EXIT_FAILED, EXIT_USAGE
from db.commands import mcp as command
from db.commands.query import main as query_main

pytestmark = pytest.mark.forked_children


def conversation(database, *calls, timeout_s=60):
    """What the server says of each call, (is_error, text); and the tools it offers."""
    sdk = pytest.importorskip("mcp", reason="the extra mcp is not installed")  # half a second: not in each process

    async def talk():
        program, *arguments = module_command("db.commands.mcp", "--db-path", str(database), f"--timeout={timeout_s}")
        server = sdk.StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
        async with sdk.Client(server) as client:
            tools = (await client.list_tools()).tools
            results = [await client.call_tool(name, values) for name, values in calls]
            return [(bool(each.is_error), each.content[0].text) for each in results], tools

    return asyncio.run(talk())


CALLS = {
    "contents": ("contents", {}),
    "dictionary": ("dictionary", {"table": "hardware_info"}),
    "query": ("query", {"sql": "SELECT count(*) AS n FROM benchmark_runs"}),
    "writing": ("query", {"sql": "DELETE FROM benchmark_runs"}),
    "file": ("query", {"sql": "SELECT * FROM read_text('/etc/hostname')"}),
    "flag": ("query", {"sql": "--file=/etc/hostname"}),
    "large": ("query", {"sql": "SELECT repeat('x', 1000) AS x FROM range(1000000)"}),
    "compare": ("compare", {"before": "runtime=eager", "after": "runtime=onnxruntime"}),
    "unknown": ("compare", {"before": "nosuch=1", "after": "latest"}),
    "null": ("query", {"sql": "SELECT '\0'"}),
    "long": ("query", {"sql": f"SELECT '{'x' * 200_000}'"}),
    "history": ("history", {"selection": "model=gpt2"}),
    "recommend": ("recommend", {"model": "gpt2", "latency_ms": 1e-9}),
    "misspelt": ("recommend", {"model": "gpt2", "max_latency\n_ms": 1}),
    "none": ("contents", {"rows": 3}),
    "missing": ("query", {}),
    "no number": ("recommend", {"model": "gpt2", "latency_ms": "1 ms"}),
}
_said = {}


@pytest.fixture
def answers(asked_database):
    """Answers by the name of the question, and the tools, from one conversation."""
    if not _said:
        message, tools = conversation(asked_database, *CALLS.values())
        _said.update(answers=dict(zip(CALLS, message, strict=True)), tools=tools)
    return _said["answers"], _said["tools"]


def document(answer):
    is_error, text = answer
    assert not is_error, text
    return json.loads(text)


def test_tools_are_marked_read_only_and_described(answers):
    _, tools = answers
    assert {tool.name for tool in tools} == {"contents", "dictionary", "query", "compare", "history", "recommend"}
    assert all(tool.annotations.read_only_hint and len(tool.description) > 40 for tool in tools)
    assert all(tool.input_schema["additionalProperties"] is False for tool in tools)


def test_contents_list_the_measured_models(answers):
    rows = document(answers[0]["contents"])["answer"]
    found = {(row["model_id"], row["runtime"]) for row in rows}
    assert found == {("bert-base-uncased", "eager"), ("gpt2", "eager"), ("gpt2", "onnxruntime"), ("vit", "eager")}


def test_contents_that_are_cut_say_so(asked_database, monkeypatch):
    monkeypatch.setattr(command, "MOST_CONTENTS", 3)
    said = asyncio.run(command.server(str(asked_database), 60, 1).call_tool("contents", {}))
    found = json.loads(said.content[0].text)
    assert len(found["answer"]) == 3
    assert found["notes"] == ["there are more: these are the newest 3; `query` reads the others"]


def test_answers_equal_the_command_output(answers, asked_database, capsys):
    query_main([f"--db-path={asked_database}", "--format=json", "SELECT count(*) AS n FROM benchmark_runs"])
    expected = json.loads(capsys.readouterr().out)
    assert document(answers[0]["query"]) == {"answer": expected, "notes": []}


def test_columns_are_explained(answers):
    rows = document(answers[0]["dictionary"])["answer"]
    assert any("device_name" in row.values() for row in rows)


def test_comparison_has_verdicts_or_the_reason_without_one(answers):
    found = document(answers[0]["compare"])
    assert {finding["judgement"]["verdict"] for finding in found["answer"]["findings"]} == {"not judged"}
    assert any("no point has a verdict" in note for note in found["notes"])


def test_a_history_has_its_points(answers):
    assert [len(series["points"]) for series in document(answers[0]["history"])["answer"]] == [1, 1]


def test_a_recommendation_without_a_fitting_option_is_an_answer(answers):
    (workload,) = document(answers[0]["recommend"])["answer"]["workloads"]
    assert workload["recommended"] is None
    assert workload["options"]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("writing", "DELETE is not read-only"),
        ("file", "Cannot access file"),
        ("flag", "expected a statement"),
        ("large", "more than 400000 bytes, the limit: narrow the request"),
        ("unknown", "nosuch"),
        ("null", "a null character"),
        ("long", "more than 100000 bytes"),
        ("misspelt", "max_latency\\n_ms: Extra inputs are not permitted (arguments of recommend: model, latency_ms, "),
        ("none", "rows: Extra inputs are not permitted (arguments of contents: none)"),
        ("missing", "sql: Field required (arguments of query: sql)"),
        ("no number", "latency_ms: Input should be a valid number"),
    ],
)
def test_faulty_questions_have_the_commands_error(answers, question, words):
    is_error, text = answers[0][question]
    assert is_error
    assert words in text
    assert "Traceback" not in text
    assert "pydantic" not in text


INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest.mark.forked_children(False)
def test_non_protocol_messages_get_an_error(asked_database):
    """Half of a surrogate pair, which JSON can spell but no text can contain; and lists that are nested too deeply."""
    query = {"name": "query", "arguments": {"sql": "SELECT '\ud800'"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}),
        json.dumps({"jsonrpc": "2.0", "id": "half", "method": "tools/call", "params": query}),
        "[" * 100_000,
        json.dumps({"jsonrpc": "2.0", "id": 3, "method": "ping"}),
    ]
    command_line = module_command("db.commands.mcp", "--db-path", str(asked_database))
    with subprocess.Popen(command_line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write("\n".join(lines) + "\n")
        server.stdin.flush()  # at the end of its input, the server does not wait for answers that are under way
        answers = {answer["id"]: answer for answer in (json.loads(server.stdout.readline()) for _ in lines)}
        server.stdin.close()
    assert set(answers) == {1, "half", None, 3}
    assert answers["half"]["error"]["message"].startswith("invalid request: Invalid JSON")
    assert answers[None]["error"]["code"] == -32700
    assert "result" in answers[3]


def test_an_endless_question_ends_at_the_time_limit(asked_database):
    sql = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
    [(is_error, text)], _ = conversation(asked_database, ("query", {"sql": sql}), timeout_s=2)
    assert is_error
    assert "no answer within 2 s" in text


def test_an_unreadable_warehouse_is_an_error(tmp_path, capsys):
    assert command.main(["--db-path", str(tmp_path / "none.duckdb")]) == EXIT_USAGE
    assert "none.duckdb does not exist" in capsys.readouterr().err
    assert command.main(["--db-path", str(tmp_path)]) == EXIT_USAGE
    assert "is a folder" in capsys.readouterr().err
    (tmp_path / "notes.duckdb").write_text("no database")
    assert command.main(["--db-path", str(tmp_path / "notes.duckdb")]) == EXIT_FAILED
    assert "not a DuckDB" in capsys.readouterr().err
