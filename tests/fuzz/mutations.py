"""Hostile variants of good input: values and shapes of JSON, words of other texts, bytes of any file."""

from __future__ import annotations

import copy
import json
import string
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

OUTSIDE = "../outside"
"""The folder of the user's own files, from the working folder of a case."""
CANARY = f"{OUTSIDE}/canary.txt"
CONTROL = "\x1b[31mred\x1b]0;title\x07\x9b2J\x85\u202eevil\u2066\u2028\x7f\r[red]x[/red]\x00"
CONDITIONS = (
    "1=1",
    "x' OR '1'='1",
    'x" OR 1=1; --',
    f"(SELECT count(*) FROM read_text('{CANARY}')) > 0",
    f"model_id = (SELECT content FROM read_text('{CANARY}'))",
    f"TRUE; COPY (SELECT 1) TO '{OUTSIDE}/pwned'; --",
    f"TRUE); COPY (SELECT 1) TO '{OUTSIDE}/pwned'; --",
    f"TRUE); ATTACH '{OUTSIDE}/pwned.duckdb'; --",
    f"TRUE UNION ALL SELECT content FROM read_csv('{CANARY}')",
    "getenv('HOME') IS NOT NULL",
    "TRUE); INSTALL httpfs; LOAD httpfs; --",
    "TRUE); SET enable_external_access = true; --",
    "levenshtein(repeat('a', 200000), repeat('b', 200000)) > 0",
    "len(range(3000000000)) > 0",
    "(SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b) > 0",
    "regexp_matches(repeat('a', 100000), '(a*)*b')",
    "repeat('x', 2000000000) <> ''",
    "1 / 0 > 0",
    "'x'::INT > 0",
    "error('boom')",
    "latency_median_ms > 1e400",
    "started_at > '9999-99-99'",
    "EXISTS (FROM duckdb_settings())",
    "current_setting('home_directory') <> ''",
    "(" * 2000 + "TRUE" + ")" * 2000,
    "NOT " * 5000 + "TRUE",
    "model_id IN (" + ",".join(["'x'"] * 20000) + ")",
    "sleep_ms(100000) > 0",
)
WORDS = (
    *("", " ", "\n", "\t", "-", "--", "-1", "0", "1", "null", "true", "nan", "inf", "1e400", "-1e400", "1_000", "0x10"),
    *("9" * 30, "9" * 400, "9" * 5000, "1e308", "-0", "0.1", "2147483648", "9223372036854775808", "1,2,,3", "1-"),
    *("..", "../..", "/", "~", "~root", "/dev/zero", "/dev/stdin", "/proc/self/environ", "/etc/passwd", CANARY),
    *(f"{OUTSIDE}/pwned", "file:///etc/passwd", "http://127.0.0.1:1/x", "https://example.invalid/x", "s3://bucket/x"),
    *("$HOME", "$(touch ../outside/pwned)", "`touch ../outside/pwned`", "; touch ../outside/pwned", "%s%s%n", "{0}"),
    *("{x.__class__}", "{{7*7}}", "=1+1", "@SUM(A1)", "+1", "<script>alert(1)</script>", "[link=http://x]x[/link]"),
    *(CONTROL, "\u202e", "\ufeff", "\u0000", "a" * 300, "a/" * 3000, "é" * 255, "\U0001f4a9", "ﬀ", "İ"),
    *(
        "now()",
        "latest",
        "today",
        "2026-02-30",
        "9999-12-31",
        "0001-01-01T00:00:00+14:00",
        "-0001-01-01",
        "1d",
        "9" * 20,
    ),
    *CONDITIONS[:12],
)
RAW_VALUES = (
    *("null", "true", "false", "0", "-0", "-1", "1", "0.5", "-0.5", "1e300", "1e308", "-1e308", "1e400", "1e-400"),
    *("NaN", "Infinity", "-Infinity", str(2**31), str(2**63), str(-(2**63) - 1), str(10**30), "9" * 400, "9" * 5000),
    *("[]", "{}", "[[]]", "[null]", '[""]', "[NaN]", "[1e400]", '{"": ""}', '{"a": {"b": [null]}}', '"x"', '""'),
    *(
        r'"\ud800"',
        r'"\udc00\ud800"',
        r'"\u0000"',
        '"' + "x" * 100_000 + '"',
        "[" * 70 + "]" * 70,
        "[" * 3000 + "]" * 3000,
    ),
    *('{"a":' * 200 + "1" + "}" * 200, "[" + ",".join(["1"] * 20_000) + "]", "[" + ",".join(["[]"] * 20_000) + "]"),
    *('{"a": 1, "a": 2}', '{"__proto__": 1}', '{"$ref": "#"}'),
)


def tree_mutated(random: Random, data: Any) -> str:
    """JSON text of the data with some values, keys and elements changed."""
    data, raw = copy.deepcopy(data), dict[str, str]()
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        path = random.choice(list(places(data)))
        data = _changed(random, data, path, raw)
    text = json.dumps(data)
    for marker, value in raw.items():
        text = text.replace(f'"{marker}"', value)
    return text


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything in a JSON value; of a long list only the ends."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for key in sorted({*range(min(3, len(value))), len(value) - 1} - {-1}):
            yield from places(value[key], (*path, key))


def _changed(random: Random, data: Any, path: tuple[Any, ...], raw: dict[str, str]) -> Any:
    if not path:
        return _absurd(random, raw) if random.random() < 0.1 else data
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    key = path[-1]
    match random.randrange(9):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[random.choice(WORDS)] = holder.pop(key)
        case 2 if isinstance(holder, dict):
            holder[random.choice(WORDS)] = _absurd(random, raw)
        case 3 if isinstance(holder, list):
            holder.extend(copy.deepcopy(holder[key]) for _ in range(random.choice((1, 2, 50))))
        case 4:
            holder[key] = random.choice(([holder[key]], {"x": holder[key]}, str(holder[key])))
        case 5:
            holder[key] = copy.deepcopy(at(data, random.choice(list(places(data)))))
        case 6 | 7 if isinstance(holder[key], str):
            holder[key] = random.choice((random.choice(WORDS), holder[key] + random.choice(WORDS)))
        case 6 | 7 if isinstance(holder[key], int | float):
            holder[key] = random.choice((-1, 0, 1)) + holder[key] * random.choice((-1, 0, 1, 1000, 1e9, 1e299))
        case _:
            holder[key] = _absurd(random, raw)
    return data


def at(data: Any, path: Sequence[Any]) -> Any:
    """The value at a path."""
    for key in path:
        data = data[key]
    return data


def _absurd(random: Random, raw: dict[str, str]) -> str:
    """A marker of a value that `json` would not write."""
    marker = f"@@{len(raw)}@@"
    raw[marker] = random.choice(RAW_VALUES) if random.random() < 0.7 else json.dumps(random.choice(WORDS))
    return marker


def text_mutated(random: Random, text: str) -> str:
    """A text with words, cells or lines replaced, doubled or removed."""
    for _ in range(random.choice((1, 1, 2, 4))):
        lines = text.split("\n")
        number = random.randrange(len(lines))
        match random.randrange(5):
            case 0:
                lines.insert(number, random.choice(lines))
            case 1:
                del lines[number]
            case 2:
                lines[number] += random.choice(WORDS)
            case _:
                lines[number] = _word_replaced(random, lines[number])
        text = "\n".join(lines)
    return text


def _word_replaced(random: Random, line: str) -> str:
    cells = [
        place for place, character in enumerate(line) if character not in string.ascii_letters + string.digits + "._"
    ]
    start = random.choice([-1, *cells])
    end = next((place for place in cells if place > start), len(line))
    return line[: start + 1] + random.choice(WORDS) + line[end:]


def bytes_mutated(random: Random, content: bytes) -> bytes:
    """A file with some bytes changed, cut off, doubled or inserted."""
    for _ in range(random.choice((1, 1, 3, 20))):
        place = random.randrange(len(content) + 1)
        length = random.choice((1, 1, 4, 64, 4096))
        match random.randrange(6):
            case 0:
                content = content[:place]
            case 1:
                content = content[:place] + random.randbytes(length) + content[place + length :]
            case 2:
                content = content[:place] + random.randbytes(min(length, 64)) + content[place:]
            case 3:
                content = content[:place] + content[place + length :]
            case 4:
                content = content[:place] + bytes(length) + content[place + length :]
            case _:
                flipped = bytes(byte ^ (1 << random.randrange(8)) for byte in content[place : place + 1])
                content = content[:place] + flipped + content[place + 1 :]
    return content


def file_mutated(random: Random, content: bytes) -> bytes:
    """A file, changed as what it is: JSON by its tree, other text by its words, and any by its bytes."""
    ways: list[Callable[[], bytes]] = [lambda: bytes_mutated(random, content)]
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return ways[0]()
    ways += [lambda: text_mutated(random, text).encode("utf-8", "surrogatepass")]
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        ways += [lambda: tree_mutated(random, data).encode()] * 6
    changed = random.choice(ways)()
    return bytes_mutated(random, changed) if random.random() < 0.05 else changed
