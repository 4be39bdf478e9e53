"""Prices per hour, and the cost of a million tokens."""

from __future__ import annotations

import pytest

from benchmarking.core.errors import UsageError
from db.analysis.recommend.recommendation import cost_per_million, read_prices


@pytest.fixture
def price_file(tmp_path):
    def write(text):
        path = tmp_path / "prices.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_cost_of_a_million_tokens_equals_a_hand_calculation():
    """3.60 an hour is 0.001 a second, in which there are 1000 tokens: 0.000001 a token."""
    assert cost_per_million(3.60, 1000.0) == pytest.approx(1.0)
    assert cost_per_million(3.60, 250.0) == pytest.approx(4.0)
    assert cost_per_million(0.0, 250.0) == 0.0


def test_the_id_is_preferred_to_the_name_and_the_name_to_the_type(price_file):
    prices = read_prices(price_file("currency: EUR\nper_hour:\n  cuda: 2\n  NVIDIA H100: 3.9\n  4f1c09d2a7be5310: 0\n"))

    assert prices.currency == "EUR"
    assert prices.lookup("4f1c09d2a7be5310", "NVIDIA H100", "cuda", 1) == 0
    assert prices.lookup("aaaa", "nvidia h100", "cuda", 1) == 3.9
    assert prices.lookup("aaaa", None, "cuda", 1) == 2
    assert prices.lookup("aaaa", "Other", "cpu", 1) is None


def test_a_price_by_name_or_type_is_of_each_device_and_one_by_id_of_all(price_file):
    prices = read_prices(price_file("currency: EUR\nper_hour:\n  cuda: 2\n  H100: 4\n  3 x H100: 10\n  4f1c: 5\n"))

    assert prices.lookup("aaaa", "H100", "cuda", 8) == 32
    assert prices.lookup("aaaa", "2 x H100", "cuda", 2) == 8
    assert prices.lookup("aaaa", "3 x H100", "cuda", 3) == 10, "of the devices together"
    assert prices.lookup("aaaa", "Other", "cuda", 8) == 16
    assert prices.lookup("4f1c", "H100", "cuda", 8) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "prices.yaml: the file is empty"),
        ("- 1\n", "found list"),
        ("currency: EUR\n", "found currency"),
        ("currency: EUR\nper_hour: {cpu: 1}\nmore: 2\n", "found currency, per_hour, more"),
        ("currency: 7\nper_hour: {cpu: 1}\n", "currency: expected a word such as EUR, found 7"),
        ("currency: EUR\nper_hour: [1]\n", "per_hour: expected devices"),
        ("currency: EUR\nper_hour: {cpu: -1}\n", "cpu: expected a number from 0, found -1"),
        ("currency: EUR\nper_hour: {cpu: yes}\n", "cpu: expected a number from 0, found True"),
        ("currency: EUR\nper_hour: {cpu: .inf}\n", "found inf"),
        ("currency: EUR\nper_hour: {cpu: 1, CPU: 2}\n", "CPU occurs twice"),
        ("currency: [\n", "not YAML"),
        ("!!python/object/apply:os.system ['true']\n", "takes plain lists and mappings: got tag:yaml.org,2002:python"),
    ],
)
def test_an_invalid_file_is_refused_with_the_place(price_file, text, message):
    with pytest.raises(UsageError, match=r"prices\.yaml") as raised:
        read_prices(price_file(text))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_or_binary_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"found no .*none\.yaml"):
        read_prices(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"not a text file \(UTF-8\)"):
        read_prices(tmp_path / "binary.yaml")
