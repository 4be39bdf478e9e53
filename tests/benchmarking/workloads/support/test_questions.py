"""Files of prompts with expected answers, and their tokens."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.workloads.support.quality_inputs import question_tokens, read_questions
from tests.helpers.records import make_workload

GOOD = {"prompt": "1 + 1 =", "answer": "2"}
CHOICES = {"question": "Water is", "choices": ["wet", "dry"], "answer": 0}


def written(folder, *lines):
    path = folder / "own.jsonl"
    path.write_bytes(
        b"\n".join(one if isinstance(one, bytes) else json.dumps(one, ensure_ascii=False).encode() for one in lines)
    )
    return str(path)


def test_prompts_with_one_or_several_answers_and_with_choices_are_questions(tmp_path):
    file = read_questions(
        written(
            tmp_path,
            {**GOOD, "id": 7},
            b"",
            {"input": "2 + 2 =", "target": [" 4 ", "four", "4"], "stop": "."},
            CHOICES,
            {**CHOICES, "answer": "B"},
            {**CHOICES, "answer": " wet"},
            {**CHOICES, "choices": ["A", "B"], "answer": "B"},
        )
    )
    assert [one.line for one in file.questions] == [1, 3, 4, 5, 6, 7]
    assert [one.answers for one in file.questions] == [("2",), ("4", "four"), ("wet",), ("dry",), ("wet",), ("B",)]
    assert [one.stops for one in file.questions[:2]] == [("\n",), (".",)]
    assert file.metrics == ("exact_match", "choice_accuracy")
    assert not file.left_out


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{not json", "not JSON, or truncated"),
        (b'{"prompt": "\xff", "answer": "x"}', "not JSON: not UTF-8"),
        (["a", "list"], "not an object"),
        ({"answer": "2"}, "no text in prompt or question or input"),
        ({"prompt": " ", "answer": "2"}, "no text in prompt"),
        ({"prompt": "secret"}, "no answer or expected or target"),
        ({**GOOD, "answer": 2}, "the answer is not a text or a list of texts"),
        ({**GOOD, "answer": []}, "the answer is not a text"),
        ({**GOOD, "answer": ["2", ""]}, "the answer is not a text"),
        ({**GOOD, "answer": "2\n3"}, "could never be generated"),
        ({**GOOD, "stop": [""]}, "stop is not a text"),
        ({**GOOD, "answer": ["2"] * 1001}, "more than 1000 texts in stop or in the answer"),
        ({**GOOD, "prompt": "1" * 1_000_000}, "longer than 1 MB"),
        ({**CHOICES, "choices": ["wet"]}, "choices is not a list of 2 to"),
        ({**CHOICES, "choices": ["wet", "wet "]}, "two choices are the same"),
        ({**CHOICES, "choices": "wet"}, "choices is not a list"),
        ({**CHOICES, "answer": 2}, "the answer is not one of the choices"),
        ({**CHOICES, "answer": -1}, "the answer is not one of the choices"),
        ({**CHOICES, "answer": True}, "the answer is not one of the choices"),
        ({**CHOICES, "answer": "secret"}, "the answer is not one of the choices"),
        (
            {**CHOICES, "choices": [*map(str, range(40))], "answer": "b"},
            "the answer is not one of the choices",
        ),
        (b"[" * 100_000, "nested"),
    ],
)
def test_a_line_that_is_no_question_is_named_and_takes_no_other(line, why, tmp_path):
    file = read_questions(written(tmp_path, GOOD, line, CHOICES))
    assert [one.line for one in file.questions] == [1, 3]
    assert list(file.left_out) == [2]
    assert why in file.left_out[2]
    assert "secret" not in file.left_out[2]
    with pytest.raises(UsageError, match="has no question: line 1: "):
        read_questions(written(tmp_path, line))


def words(vocabulary):
    """A tokenizer of characters, with a token for the beginning."""
    return lambda text: [0, *(1 + vocabulary.index(one) for one in text)]


def test_what_follows_a_prompt_are_the_tokens_after_those_that_both_share(tmp_path):
    file = read_questions(written(tmp_path, {"prompt": "ab ", "answer": "a"}, {**CHOICES, "question": "a\n"}))
    letters = "ab \nwetdry"
    found, left_out = question_tokens(file.questions, words(letters), make_workload(), None)
    assert not left_out
    assert (found[0].prompt, found[0].continuations) == ([0, 1, 2], ([3, 1],))  # the space belongs to the answer
    assert found[1].prompt == [0, 1, 4]
    assert [len(one) for one in found[1].continuations] == [3, 3]  # no space after a line's end

    def merged(text):
        """As a tokenizer for which "a w" is one token."""
        return [0, 99, *words(letters)(text[3:])[1:]] if text.startswith("a w") else words(letters)(text)

    file = read_questions(written(tmp_path, {**CHOICES, "question": "a"}))
    (one,), _ = question_tokens(file.questions, merged, make_workload(), None)
    assert one.prompt == [0]  # both choices are scored from the same token on
    assert list(one.continuations) == [merged("a wet")[1:], merged("a dry")[1:]]


def test_a_question_that_the_model_cannot_take_is_left_out(tmp_path):
    file = read_questions(written(tmp_path, {"prompt": "ab", "answer": "a"}, {"prompt": "b" * 9, "answer": "a"}))
    small = replace(make_workload(), max_sequence_length=8)
    found, left_out = question_tokens(file.questions, words("ab "), small, None)
    assert [one.question.line for one in found] == [1]
    assert left_out == {2: "12 tokens, of which the model takes 8"}
    long = {"prompt": "b" * 99, "answer": "a"}, {"prompt": "b", "answer": "a" * 2000}
    file = read_questions(written(tmp_path, {"prompt": "ab", "answer": "a"}, *long))
    assert question_tokens(file.questions, words("ab "), small, None)[1][2] == "100 tokens, of which the model takes 8"
    unlimited = replace(small, max_sequence_length=None)
    assert question_tokens(file.questions, words("ab "), unlimited, None)[1] == {
        3: "an answer of 2001 tokens, more than 1024"
    }
    with pytest.raises(UnsupportedError, match="makes id 3, but the model's vocabulary has 3 ids"):
        question_tokens(file.questions[:1], words("ab "), small, 3)
    file = read_questions(written(tmp_path, {"prompt": "☃", "answer": "☃"}, {"prompt": "ab", "answer": "a"}))
    _, left_out = question_tokens(file.questions, lambda text: [] if "☃" in text else words("ab ")(text), small, 9)
    assert left_out == {1: "the tokenizer makes no tokens of its own of the prompt or of an answer"}
