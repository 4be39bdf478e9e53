"""Picture files: safe and unique names, and errors when writing."""

import pytest

from benchmarking.core.errors import StorageError
from visualize import visualize_benchmarks as files


def picture(*name_parts, apart=()):
    return files.Picture(name_parts=name_parts, details=apart, images=())


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("google/flan-t5-base", "google--flan-t5-base"),
        ("cuda:0", "cuda-0"),
        ("../../etc/passwd", "etc--passwd"),
        ("Intel(R) Xeon(R) @ 2.20GHz", "Intel-R-Xeon-R-2.20GHz"),
        ("...", "-"),
        ("模型", "-"),
    ],
)
def test_parts_of_file_names_are_safe(part, name):
    assert files.safe(part) == name


def test_pictures_with_equal_names_get_different_files():
    alike = [picture("m", apart=("random", "T4")), picture("m", apart=("random", "H200")), picture("n", apart=("", ""))]
    assert files.stems("chart", alike) == ["chart_m_T4", "chart_m_H200", "chart_n"]


def test_names_that_differ_only_in_case_or_unsafe_characters_get_different_files():
    stems = files.stems("chart", [picture("GPT2"), picture("gpt2"), picture("a/b"), picture("a--b")])
    assert len({stem.lower() for stem in stems}) == 4


def test_long_names_are_shortened_and_stay_unique():
    stems = files.stems("chart", [picture("x" * 300 + "a"), picture("x" * 300 + "b")])
    assert [len(stem) for stem in stems] == [files.LONGEST_STEM] * 2
    assert stems[0] != stems[1]


def test_a_folder_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match="taken"):
        files.writable_folder(tmp_path / "taken")


def test_a_write_error_states_its_reason(tmp_path):
    (tmp_path / "chart_m.png").mkdir()
    one = files.Picture(name_parts=("m",), details=(), images=(("png", b"x"),))
    with pytest.raises(StorageError, match=r"cannot write .*chart_m\.png"):
        files.write("chart", [one], tmp_path)
