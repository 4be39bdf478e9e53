"""Formatting of numbers, durations, sizes and times, escaping of untrusted text, Markdown tables, and what shares a
name."""

from __future__ import annotations

import json
import math
import re
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, count, pairwise
from textwrap import TextWrapper
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

HUGE = 1e15
"""Numbers from here on are shown with an exponent, since their digits would not fit in a column."""
LEAST_SHARE = 0.0005
"""Smaller shares are not told apart."""
SIZE_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Characters at the start of text that spreadsheets execute, possibly after dropping a tab or line end."""
MARKUP = re.compile(r"([\\`*_\[\]|~$])")
BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-~=+*#"
MIN_RANGE = 0.1
"""Variation, relative to the median, below which a sparkline is drawn nearly flat."""
DELETE = "\x7f"
"""The last control character of ASCII."""
AUTOLINKS = re.compile(
    r"@|#(?=\d)|(?<=[a-z]):(?=//)|(?<=www)\.|(?<=GH)-(?=\d)|:(?=(?:[a-z]|[+-]1)[\w+-]*:)", re.IGNORECASE
)
"""Where GitHub makes a link, a mention or a picture of plain text."""
ZERO_WIDTH_SPACE = "&#8203;"
"""In Markdown."""
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def number(value: float, digits: int = 4) -> str:
    """A number in significant digits, without rounding whole digits away: "0.25", "12346"; "3.9e-07" below 0.0001."""
    if 10 ** (digits - 1) <= abs(value) < HUGE:
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


def ends(low: float, high: float) -> tuple[str, str]:
    """Both ends of an interval, in as many digits as tell them apart: ("1023.7", "1024.3")."""
    texts = ((number(low, digits), number(high, digits)) for digits in range(4, sys.float_info.dig + 1))
    found = (number(low), number(high))
    return found if low == high else next((pair for pair in texts if pair[0] != pair[1]), found)


def share_text(share: float, required: float = 1.0) -> str:
    """A share in as many digits as tell it from the required one and from all: "99.0%", "98.96%"; "< 0.1%" if tiny."""
    if 0 < share < LEAST_SHARE:
        return "< 0.1%"
    texts = [f"{share:.{digits}%}" for digits in range(1, sys.float_info.dig)]
    told = ((text, float(text[:-1]) / 100) for text in texts)
    return next(
        (text for text, shown in told if all((shown < one) == (share < one) for one in (required, 1.0))), texts[-1]
    )


def duration(seconds: float) -> str:
    """A duration in a convenient unit: "12 s", "5 min", "1.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def visible(text: str, kept: str = "") -> str:
    """The text with escaped control characters, which could control a terminal or break a line: "\\n", "\\x1b". Those
    in `kept` stay."""
    if text.isprintable():
        return text
    return "".join(each if each in kept else _escape(each) for each in text)


def terminal_text(text: str) -> str:
    """The text for a terminal, with escaped control characters except tabs.

    Those beyond ASCII are escaped as in JSON, so that a JSON document keeps its meaning.
    """
    if text.isprintable():
        return text

    def escape(character: str) -> str:
        escaped = _escape(character)
        if character == "\t" or escaped == character:
            return character
        if character < DELETE:
            return escaped
        return json.dumps(character)[1:-1] if character > DELETE else "\\u007f"

    return "".join(map(escape, text))


def wrapped(text: str, width: int | None) -> str:
    """The text wrapped at `width` columns (None: unwrapped), with escaped control characters.

    Continued lines are indented. Words are never broken: they may be names or paths.
    """
    lines = visible(text, kept="\n").split("\n")
    if width is None:
        return "\n".join(lines)
    wrapper = TextWrapper(width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(part for line in lines for part in wrapper.wrap(line) or [""])


def command_lines(command: str, width: int | None) -> str:
    """A shell command, or text ending with one, wrapped into lines that a shell joins again (ending in " \\")."""
    line, lines = "", []
    for word in re.findall(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\"|['\"])+", visible(command)):
        if line and width is not None and len(f"{line} {word} \\") > width:
            lines.append(f"{line} \\")
            line = "   "
        line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


def counted(count: int, noun: str) -> str:
    """ "1 run", "2 runs", "3 launches" """
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('ch') else 's'}"


def flag_of(name: str) -> str:
    """The flag of a setting: "--batch-size" of "batch_size"."""
    return f"--{name.replace('_', '-')}"


def cut_off(text: str, most: int = 60) -> str:
    """The text, which ends with "..." if it is longer than this."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def why_text(missing: str) -> str:
    """Why a value is missing, in words and without the kind if a text follows it: "no GPU" of "not_applicable: no GPU",
    "too few samples" of "too_few_samples"."""
    kind, _, text = missing.partition(": ")
    return text or kind.replace("_", " ")


def listed(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first names, and how many more there are: "drift, steal +2"."""
    more = f" +{len(names) - most}" if len(names) > most else ""
    return separator.join(names[:most]) + more


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """The values by key, both in the order in which they come."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def numbered(names: Sequence[str], separator: str = "_", first: int = 1) -> list[str]:
    """The names, repeated ones with a number that makes no other name of the list: x, x_1."""
    unique: dict[str, None] = {}
    taken = {*names}
    numbers: dict[str, Iterator[int]] = defaultdict(lambda: count(first))
    for name in names:
        others = (f"{name}{separator}{number}" for number in numbers[name])
        free = next(other for other in others if other not in taken) if name in unique else name
        unique[free] = None
    return [*unique]


def told_apart(names: Sequence[str], settings: Sequence[Mapping[str, object]]) -> list[str]:
    """The names, each that others have too with the settings in which these differ: "eager b1, attention sdpa"."""
    groups = grouped(zip(names, settings, strict=True))
    differing = {
        name: [key for key in sorted(set(chain(*group))) if any(own.get(key) != group[0].get(key) for own in group)]
        for name, group in groups.items()
    }
    return [
        ", ".join([name, *(f"{key} {own[key]}" for key in differing[name] if own.get(key) is not None)])
        for name, own in zip(names, settings, strict=True)
    ]


def distinct_names(
    names: Sequence[str], facts: Sequence[Sequence[str]], separator: str, *, always: int = 0
) -> list[str]:
    """Unique names: equal names get the first facts that distinguish them, else all facts that differ, else a number.
    The first facts (`always`, their number) are given wherever they differ, so that nothing unsaid tells two apart.

    `facts` has one sequence of equal length for each name. Of a list of settings ("attention=sdpa, cache=static"), only
    the items are given that not all equal names have.
    """
    groups = grouped(zip(names, facts, strict=True))
    shared_by_place: dict[str, dict[int, set[str]]] = {}  # of the facts that are given, the items that all have
    for name, alike in groups.items():
        places = [place for place, values in enumerate(zip(*alike, strict=True)) if len({*values}) > 1]
        for length in range(1, len(places) + 1):
            if len({tuple(own[place] for place in places[:length]) for own in alike}) == len(alike):
                places = [place for number, place in enumerate(places) if number < length or place < always]
                break
        shared_by_place[name] = {
            place: set.intersection(*(set(own[place].split(", ")) for own in alike)) for place in places
        }
    longer: list[str] = []
    for name, own in zip(names, facts, strict=True):
        parts = [name]
        for place, shared in shared_by_place[name].items():
            parts.append(", ".join(item for item in own[place].split(", ") if item not in shared))
        longer.append(separator.join(filter(None, parts)))
    return numbered(longer, separator, 2)


def first_few(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first texts, and how many more there are, for a sentence: "a, b and 2 more"."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more


def spreadsheet_safe(text: str) -> str:
    """The text of a CSV cell, prefixed with an apostrophe if a spreadsheet would execute it: "=1+1" becomes "'=1+1".

    Numbers are unchanged.
    """
    if not text.startswith(FORMULA_STARTS):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _escape(character: str) -> str:
    # Cc: control, Cf: changes of direction, Cs: surrogates; Zl, Zp: line ends.
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character.encode("unicode_escape").decode()
    return character


def size_text(size_bytes: float) -> str:
    """A size in three significant digits: "1.23 GB", "45.6 MB", "512 B". Units are powers of ten."""
    for unit, factor in SIZE_UNITS:
        if size_bytes >= factor:
            value = size_bytes / factor
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def time_text(seconds: float) -> str:
    """A time since the epoch as UTC, ISO 8601, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def markdown_escaped(text: str) -> str:
    """The text in one line with markup escaped, which mentions and links nothing: "a|b" becomes "a\\|b"."""
    line = " ".join(text.split()) if "\n" in text or "\r" in text else text
    safe = "".join(ENTITIES.get(character, character) for character in visible(line))
    return AUTOLINKS.sub(rf"\g<0>{ZERO_WIDTH_SPACE}", MARKUP.sub(r"\\\1", safe))


def markdown_code(text: str) -> str:
    """The text as a Markdown code span, from which it can be copied; with what might end the span or be HTML, escaped
    text instead."""
    line = visible(text)
    return markdown_escaped(text) if set(line) & set("`<>\n\r") else f"`{line}`"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """The rows as a GitHub Markdown table, its text escaped; columns at the indices in `right` are right-aligned."""
    rule = ("---:" if place in right else "---" for place in range(len(headings)))
    lines = [[markdown_escaped(heading) for heading in headings], list(rule)]
    lines += [[markdown_escaped(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def sparkline(values: Sequence[float], width: int, bars: str = BARS) -> str:
    """One bar per value; for more than `width` values, one bar per median of `width` equal parts."""
    from statistics import median

    if not values:
        return ""
    # Of the largest numbers, a difference would be infinite.
    parts = [value / 64 for value in values] if max(map(abs, values)) > sys.float_info.max / 64 else list(values)
    if len(values) > width:
        bounds = [math.floor(part * len(values) / width) for part in range(width + 1)]
        parts = [median(parts[start:end]) for start, end in pairwise(bounds)]
    low, high = min(parts), max(parts)
    missing = MIN_RANGE * abs(median(parts)) - (high - low)
    if missing > 0:
        low, high = low - missing / 2, high + missing / 2
    span = (high - low) or 1.0
    return "".join(bars[min(len(bars) - 1, max(0, int(len(bars) * (value - low) / span)))] for value in parts)


def bars_for(encoding: str | None) -> str:
    """The bars that the encoding can represent."""
    try:
        BARS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII_BARS
    return BARS
