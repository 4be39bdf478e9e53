"""Lists of models: their settings, and one-line errors with file, line and key."""

from __future__ import annotations

import pytest

from benchmarking.batch.model_list import Entry, entries_from_file, entries_from_names, select_entries
from benchmarking.core.errors import UsageError


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """A function that reads a list with this text."""
    monkeypatch.chdir(tmp_path)

    def read(text, name="models.yaml"):
        (tmp_path / name).write_text(text)
        return entries_from_file(tmp_path.joinpath(name).relative_to(tmp_path))

    return read


def ids(entries):
    return [entry.model_id for entry in entries]


def test_text_lists_have_one_id_per_line_and_comments(listed):
    entries = listed("# small ones\ntiny-bert\n\n  org/model#1  # a remark\n", "models.txt")
    assert [(entry.model_id, entry.location) for entry in entries] == [
        ("tiny-bert", "models.txt:2"),
        ("org/model#1", "models.txt:4"),
    ]


def test_an_override_that_no_model_matches_is_noted(listed, capsys):
    text = "models: [gpt2]\noverrides:\n  - {match: 'gtp2*', launches: 2}\n  - {match: 'gpt*', launches: 3}\n"
    (entry,) = listed(text)
    assert entry.shared_settings["launches"] == 3
    assert capsys.readouterr().err == "models.yaml:3: overrides: no model matches 'gtp2*'\n"


def test_shared_overridden_and_per_model_settings_are_distinct(listed):
    text = """
defaults: {profile: quick, tags: {suite: nightly}}
batch_sizes: [8, 1]
models:
  - tiny-bert
  - {id: tiny-gpt2, batch_sizes: 4}
overrides:
  - {match: "tiny-*", launches: 2, tags: {who: me}}
  - {match: "*gpt2", launches: 5}
"""
    bert, gpt2 = listed(text)
    assert bert.shared_settings == {
        "profile": "quick",
        "batch_sizes": (1, 8),
        "launches": 2,
        "tags": bert.shared_settings["tags"],
    }
    assert bert.shared_settings["tags"] == {"suite": "nightly", "who": "me"}
    assert (gpt2.shared_settings["launches"], gpt2.model_settings, gpt2.location) == (
        5,
        {"batch_sizes": (4,)},
        "models.yaml:6",
    )


def test_a_yaml_list_may_consist_of_names_only(listed):
    assert ids(listed("- tiny-bert\n- tiny-t5\n")) == ["tiny-bert", "tiny-t5"]


def test_anchors_and_merge_keys_work_and_explicit_keys_win(listed):
    text = (
        "models:\n  - &one {id: tiny-bert, launches: 2, batch_sizes: [1]}\n  - {<<: *one, id: tiny-gpt2, launches: 3}\n"
    )
    _, gpt2 = listed(text)
    assert gpt2.model_settings == {"launches": 3, "batch_sizes": (1,)}


def test_include_and_exclude_patterns_select_models(listed):
    text = "models: [tiny-bert, tiny-gpt2, bert-large]\ninclude: ['*bert*']\nexclude: ['*-large']\n"
    assert ids(listed(text)) == ["tiny-bert"]


def test_patterns_without_a_match_or_a_remaining_model_are_errors():
    entries = (Entry(model_id="tiny-bert", location="--models"),)
    assert select_entries(entries, ["tiny*"], ["x*"], "here") == entries
    with pytest.raises(UsageError, match="here: include: no model matches 'gpt2'"):
        select_entries(entries, ["tiny*", "gpt2"], [], "here")
    with pytest.raises(UsageError, match="select none of 1 models"):
        select_entries(entries, [], ["*"], "here")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [a]\nbatchsizes: [1]\n", "models.yaml:2: unknown key 'batchsizes': did you mean batch_sizes"),
        ("models:\n  - {id: a, lunches: 2}\n", "models.yaml:2: unknown key 'lunches': did you mean launches"),
        ("models: [a]\nbatch_sizes: [1, two]\n", "models.yaml:2: batch_sizes takes whole numbers from 1: got 'two'"),
        ("models: [a]\nbatch_sizes: [true]\n", "models.yaml:2: batch_sizes takes whole numbers from 1: got True"),
        ("models: [a]\nbatch_sizes: []\n", "models.yaml:2: batch_sizes is an empty list"),
        ("models: [a]\nbatch_sizes: [1, 1]\n", "models.yaml:2: batch_sizes contains 1 twice"),
        ("models: [a]\ntimeout: 1.0e+300\n", "models.yaml:2: timeout takes numbers above 0, up to 1e+09: got 1e+300"),
        ("models: [a]\naudio_seconds: [0]\n", "models.yaml:2: audio_seconds takes numbers above 0: got 0"),
        ("models: [a]\nprecisions: [float64]\n", "models.yaml:2: precisions unknown precision 'float64': did you mean"),
        ("models: [a]\ndevices: [null]\n", 'got null (to get the word, write "null" in quotes)'),
        ("models: [a]\nskip_unsupported: 1\n", "models.yaml:2: skip_unsupported takes true or false: got 1"),
        ("models: [a]\ntags: [x]\n", "models.yaml:2: tags takes keys and values: got a list"),
        ("models: [a]\ngrids:\n  - {steps_: [1]}\n", "models.yaml:3: grids: steps_ is not an axis"),
        ("models: [a]\nmodels: [b]\n", "models.yaml:2: models is there already, in line 1"),
        ("models: [a]\nlaunches: 2\ndefaults: {launches: 3}\n", "models.yaml:3: launches is set twice"),
        ("models: [a, b, a]\n", "models.yaml:1: a is listed twice (first: models.yaml:1)"),
        ("models: []\n", "models.yaml:1: models is an empty list"),
        ("models:\n  - [a]\n", "models.yaml:2: models takes model ids, or mappings with an id: got a list"),
        ("models:\n  - {launches: 2}\n", "models.yaml:2: models takes model ids, or mappings with an id"),
        ("models: [7]\n", "models takes model ids, or mappings with an id: got 7"),
        ("models: [a]\noverrides: [{launches: 2}]\n", "models.yaml:2: overrides takes a pattern of model ids"),
        ("models: [a]\ninclude: [b*]\n", "models.yaml: include: no model matches 'b*'"),
        ("batch_sizes: [1]\n", "models.yaml:1: models is missing"),
        ("models: [a\nb: c\n", "models.yaml:2: not YAML: "),
        ("models: !!python/object:os.system [a]\n", "models.yaml:1: takes plain lists and mappings"),
        ("models: [a]\ntags: {day: 2026-01-02}\n", "models.yaml:2: takes plain values: got '2026-01-02'"),
        ("? [a]\n: b\nmodels: [a]\n", "models.yaml:1: a key must be a word"),
        ("", "models.yaml: the file is empty"),
        ("models: &m [*m]\n", "models.yaml"),
    ],
)
def test_invalid_lists_are_one_line_with_file_line_and_key(listed, text, message):
    with pytest.raises(UsageError) as error:
        listed(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_nested_aliases_do_not_expand_exponentially(listed):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(UsageError, match="alias of an alias"):
        listed("\n".join(lines))


def test_empty_text_lists_and_duplicate_models_are_errors(listed):
    with pytest.raises(UsageError, match=r"models\.txt: contains no models"):
        listed("# none\n", "models.txt")
    with pytest.raises(UsageError, match=r"models\.txt:3: a is listed twice \(first: models\.txt:1\)"):
        listed("a\nb\na\n", "models.txt")
    with pytest.raises(UsageError, match="--models: a is listed twice"):
        entries_from_names(["a", "a"])


def test_a_missing_or_binary_file_is_one_clear_error(tmp_path):
    with pytest.raises(UsageError, match=r"none\.yaml does not exist: check the path"):
        entries_from_file(tmp_path / "none.yaml")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not a text file"):
        entries_from_file(tmp_path / "binary.txt")
