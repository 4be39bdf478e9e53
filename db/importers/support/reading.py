"""Typed access to the values in foreign files: errors name the position in the file, and no field is dropped. And the
commands that are written above printed results: they name the model and the settings."""

from __future__ import annotations

import csv
import json
import math
import re
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from types import UnionType
from typing import Any, NoReturn, TypeGuard, TypeVar

from benchmarking.core.codec import is_number
from benchmarking.core.doubts import doubt
from benchmarking.core.errors import FormatError, UsageError
from benchmarking.core.provenance import naive_utc
from benchmarking.core.records import Doubt, Json, Scalar
from benchmarking.core.text import cut_off
from benchmarking.core.untrusted.input_files import parse_yaml, without_surrogates
from benchmarking.core.untrusted.redaction import cut_to
from db.importers.support.files import MOST_SEARCHED, MOST_SHOWN, ForeignFile, LeftOut, NoResultsError, floats

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MAX_YAML_BYTES = 4 * 1024**2
"""Maximum size of YAML: parsing a megabyte takes seconds."""
MAX_YAML_REPAIRS = 5
"""Maximum lines that are taken out of YAML."""
YAML_LINE = re.compile(r":(\d{1,7}): not YAML")
LONG_NUMBER = re.compile(r"(?<![^\s:\[,])[-+]?\d[\d.eE+-]{38,}+(?![^\s,\]])")
"""A number that is refused for its length: as text it concerns its field alone."""
MAX_LINES_OF_ROW = 200
"""Maximum lines that a quoted cell spans."""
MAX_LINES_ABOVE = 300
"""Maximum lines above the header of a table."""
LARGEST = 1e150
"""No measurement is larger, and the square of a smaller number is finite."""
MAX_DEPTH = 100
"""Maximum nesting of objects and lists: more than any tool writes, less than a run file can be read back with."""


def storable(value: Any, depth: int = 0) -> Json:
    """The value as it can be stored: infinity, NaN and numbers beyond double precision become text, half of a surrogate
    pair becomes U+FFFD, and what is nested too deep is described."""
    if depth > MAX_DEPTH:
        return f"not stored: nested more than {MAX_DEPTH} deep"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, array):
        return value.tolist()  # its numbers are finite
    if isinstance(value, list | tuple):
        return [storable(one, depth + 1) for one in value]
    if isinstance(value, dict):
        return {without_surrogates(str(name)): storable(one, depth + 1) for name, one in value.items()}
    return without_surrogates(value)  # type: ignore[no-any-return]


def shortened(value: Any) -> str:
    """The value, shortened for a message."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{cut_to(text[:MOST_SEARCHED], MOST_SHOWN - 3)}..."


def short_name(name: str) -> str:
    """The name of a field, shortened for a message."""
    return cut_off(name)


def parsed_number(text: str) -> int | float | str:
    """The text as a number if it is one, otherwise unchanged."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


Value = TypeVar("Value")
Entry = TypeVar("Entry")
MetricTable = Mapping[str, str | tuple[str, float]]
"""Field -> metric, or the metric and the factor to its unit."""
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")


NOTHING = ("False", "", "{}", "[]", "None")
"""Values, as text, by which a field states no setting."""
OF_ONE_RUN = re.compile(
    r"(?<![^\W_])(?:(?:path|dir|folder|file|host|port|url|address|endpoint|log)s?|show_trace|directory|hostname|addr|"
    r"password|secret|seed|uuid|device_id|verbose|verbosity|logging|progress|tqdm|timeout|revision|remote_code|"
    r"(?<!lora_)rank)(?![^\W_])|(?<![^\W_])traces?$|(?:^|_)token$|(?:^|api_|access_)keys?$|"
    r"(?<![^\W_])(?:(?:start|end)_time|(?:start|end|finish|creat)ed_at|(?:run|job|session)_id|pid)$|(?:^|\.)timestamp$",
    re.IGNORECASE,
)
"""Names of fields that hold a place, a time, a secret, or what a single run is given and puts out: no settings. (One of
equal devices is a place.)"""
PLACE = re.compile(
    r"\A((?:[^\\/]*=|[^\\/]{2,}:)?)(?:~?/|[a-z]:[\\/])(?!/).*[\\/](?=[^\\/]+$)", re.IGNORECASE | re.DOTALL
)
"""The folder of a file, which is of one machine, in front of its name: no relative path, no address. What is before it
is the group."""


def of_any_machine(value: Any) -> Any:
    """The value of a setting without what its objects hold of a machine or a single run, and without the folders of
    files."""
    if isinstance(value, dict):
        return {name: of_any_machine(one) for name, one in value.items() if not OF_ONE_RUN.search(str(name))}
    if isinstance(value, list):
        return [of_any_machine(one) for one in value]
    return PLACE.sub(r"\1", value) if isinstance(value, str) else value


class Fields:
    """An object in a foreign file, whose fields are read by name.

    A getter returns None for a field that is absent or null. A wrong type or a value out of range is left out: the
    getter notes it with the field's path (`ForeignFile.left_out`) and returns None too. The fields that no getter has
    read, and the values that were left out, are the `rest`, which is stored.
    """

    def __init__(
        self, file: ForeignFile, values: Mapping[str, Any], path: str = "", *, numbers_are_text: bool = False
    ) -> None:
        """`path` is the object's position in the file, for messages. With `numbers_are_text`, numbers, true and false
        may be written as text, and empty text counts as absent."""
        self.file = file
        self.path = path
        self._values = values
        self._numbers_are_text = numbers_are_text
        self._read: dict[str, Callable[[], Json]] = {}
        self._problems: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        """Whether the field is present and not null."""
        return self._values.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        """The names of all fields."""
        return iter(self._values)

    def text(self, name: str) -> str | None:
        """A text, unchanged; it may be empty."""
        value = self._of_kind(name, self._take(name), str, "text")
        return None if value is None else str(without_surrogates(value))

    def number(self, name: str, *, low: float = -math.inf, is_size: bool = False) -> float | None:
        """A finite number, not below `low`."""
        value = self._take(name)
        number = None if value is None else self._number(value, low)
        if isinstance(number, str):
            self.leave_out(name, number, is_size=is_size)
            return None
        return number

    def rate(self, name: str) -> float | None:
        """A number of requests per second that were sent, which is a size as a `count` is."""
        return self.number(name, low=0, is_size=True)

    def scaled(self, name: str, factor: float, *, low: float = -math.inf) -> float | None:
        """A finite number, not below `low`, times the factor to another unit."""
        value = self.number(name, low=low)
        return None if value is None else value * factor

    def metrics(self, names: MetricTable, *, low: float = -math.inf) -> dict[str, float]:
        """The finite numbers, none below `low`, in the fields of a table, by metric. Of a field that is absent or left
        out there is none."""
        found: dict[str, float] = {}
        for name, entry in names.items():
            metric, factor = (entry, 1.0) if isinstance(entry, str) else entry
            if (value := self.scaled(name, factor, low=low)) is not None:
                found[metric] = value
        return found

    def count(self, name: str) -> int | None:
        """A whole number from 1 that fits into a column of the warehouse: a batch size, tokens, threads."""
        return self.integer(name, low=1, high=INT32_MAX, is_size=True)

    def integer(self, name: str, *, low: int = 0, high: int = INT64_MAX, is_size: bool = False) -> int | None:
        """A whole number from `low` to `high`; 12.0 is one."""
        number, value = self.number(name, is_size=is_size), self._values.get(name)
        if number is None:
            return None
        exact = value if type(value) is int else number
        if not (low <= exact <= high and float(exact).is_integer()):
            problem = f"expected a whole number from {low} to {high}, found {shortened(value)}"
            self.leave_out(name, problem, is_size=is_size)
            return None
        return int(exact)

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value = self._take(name)
        if value is None or isinstance(value, bool):
            return value
        word = value.strip().lower() if isinstance(value, str) and self._numbers_are_text else None
        if word not in (*TRUE, *FALSE):
            self.leave_out(name, f"expected true or false, found {shortened(value)}")
            return None
        return word in TRUE

    def time(self, name: str) -> datetime | None:
        """A time in ISO 8601 as naive UTC; a time without a zone is read as UTC."""
        value = self.text(name)
        return self._time(name, value, lambda text: naive_utc(datetime.fromisoformat(text.strip())), "in ISO 8601")

    def time_like(self, name: str, notation: str, example: str) -> datetime | None:
        """A time without a zone in a notation of `strptime`; `example` is for messages."""
        return self._time(name, self.text(name), lambda text: datetime.strptime(text, notation), f"such as {example}")

    def unix_time(self, name: str) -> datetime | None:
        """A time in seconds since 1970 as naive UTC."""
        value = self.number(name)
        return self._time(name, value, lambda seconds: datetime.fromtimestamp(seconds, UTC), "in seconds since 1970")

    def numbers(self, name: str, *, low: float = -math.inf) -> Sequence[float] | None:
        """A list of finite numbers, none below `low`: a tuple, or an array if there are many. Other values in the list
        are left out."""
        column = self.column(name, low=low)
        if column is None or isinstance(column, array):
            return column
        return tuple(value for value in column if value is not None)

    def column(self, name: str, *, low: float = -math.inf) -> Sequence[float | None] | None:
        """Like `numbers`, with None in the place of a value that is left out."""
        values = self._of_kind(name, self._take(name), list | array, "a list of numbers")
        if values is None:
            return None
        if isinstance(values, array):
            import numpy as np

            numbers = floats(values)
            seen = np.frombuffer(numbers)
            if seen.min() >= max(low, -LARGEST) and seen.max() < LARGEST:
                return numbers
            values = numbers.tolist()
        if set(map(type, values)) == {float} and all(low <= value and abs(value) < LARGEST for value in values):
            return tuple(values)  # avoids checking each of millions of samples
        column = []
        for index, value in enumerate(values):
            number = self._number(value, low)
            if isinstance(number, str):
                self.file.leave_out(f"{self.place(name)}[{index}]", number)
            column.append(None if isinstance(number, str) else number)
        return tuple(column)

    def items(self, name: str) -> list[Any]:
        """A list of anything, unchanged; empty if absent."""
        return self._of_kind(name, self.any(name), list, "a list") or []

    def each(self, name: str) -> Sequence[Any]:
        """A list of anything, whose values the caller checks; empty if absent."""
        value = self._of_kind(name, self._take(name), list | array, "a list")
        return () if value is None else value

    def whole_column(self, name: str) -> list[int | None]:
        """Like `column`, of whole numbers from 0, such as tokens of requests."""
        found: list[int | None] = []
        for index, value in enumerate(self.column(name, low=0) or ()):
            is_whole = value is not None and value.is_integer() and value <= INT64_MAX
            if value is not None and not is_whole:
                problem = f"expected a whole number from 0 to {INT64_MAX}, found {shortened(value)}"
                self.file.leave_out(f"{self.place(name)}[{index}]", problem)
            found.append(int(value) if value is not None and is_whole else None)
        return found

    def number_list(self, value: Any, place: str, *, low: float = -math.inf) -> Sequence[float]:
        """A list of finite numbers, none below `low`, that is part of this object, at this position in it; empty for
        null."""
        return Fields(self.file, {place: value}, self.path).numbers(place, low=low) or ()

    def fields(self, name: str) -> Fields | None:
        """An object. Its unread fields stay in the rest, under its name."""
        value = self._of_kind(name, self._values.get(name), dict, "an object")
        if value is None:
            return None
        nested = self._object(value, self.place(name))
        self._read[name] = nested.rest
        return nested

    def section(self, name: str) -> Fields:
        """An object; empty if absent."""
        nested = self.fields(name)
        return Fields(self.file, {}, self.place(name)) if nested is None else nested

    def objects(self, name: str) -> tuple[Fields, ...] | None:
        """A list of objects. Their unread fields stay in the rest, under its name, as a list. Other values in the list
        are left out."""
        values = self._of_kind(name, self._values.get(name), list, "a list of objects")
        if values is None:
            return None
        nested = []
        for index, value in enumerate(values):
            place = f"{self.place(name)}[{index}]"
            if isinstance(value, dict):
                nested.append(self._object(value, place))
            else:
                self.file.leave_out(place, f"expected an object, found {shortened(value)}")
        self._read[name] = lambda: (
            [fields.rest() for fields in nested] if any(fields.rest() for fields in nested) else None
        )
        return tuple(nested)

    def peek(self, name: str) -> Any:
        """The value, which still counts as unread."""
        return self._values.get(name)

    def unread_copy(self) -> Fields:
        """The same object with no field read yet: reading it leaves this object's rest unchanged."""
        return Fields(self.file, self._values, self.path, numbers_are_text=self._numbers_are_text)

    def any(self, name: str) -> Json:
        """The value, as it can be stored."""
        return storable(self._take(name))

    def settings(self, names: Iterable[str], plain: Sequence[object] = (False, "")) -> dict[str, Scalar]:
        """What the fields of these names say, but for the `plain` values: texts, numbers, true and false as they are,
        objects and lists as JSON."""
        found: dict[str, Scalar] = {}
        for name in names:
            value = self.any(name)
            if isinstance(value, dict | list) and value:
                found[name] = json.dumps(value, sort_keys=True, ensure_ascii=False)
            elif isinstance(value, str | int | float) and value not in plain:
                found[name] = value
        return found

    def other_settings(
        self, less: Collection[str] = (), plain: Mapping[str, Collection[str]] | None = None
    ) -> dict[str, Scalar]:
        """The `settings` in all fields that no getter has read, so that one which is not known here tells runs apart
        rather than mixing them: but for those of these names, those of a machine or a single run (`OF_ONE_RUN`), and
        the plain values, as text, where they are not `NOTHING`."""
        standard = plain or {}
        own = {
            name: of_any_machine(value)
            for name, value in self._values.items()
            if name not in self._read
            and name not in less
            and not OF_ONE_RUN.search(name)
            and value is not None
            and str(value) not in standard.get(name, NOTHING)
        }
        for name, value in own.items():
            if value == self._values[name]:  # else what is of one machine is kept with the rest
                self.any(name)
        return Fields(self.file, own, self.path).settings(own, plain=())

    def required(self, getter: Callable[[str], Value | None], name: str) -> Value:
        """The value from the getter (`fields.text`, ...). Raises FormatError if it is absent or left out."""
        value = getter(name)
        if value is None:
            problem = self._problems.get(name, "is missing")
            self.file.left_out.pop(LeftOut(self.place(name), problem), None)  # the error names it
            self.file.left_out.pop(LeftOut(self.place(name), problem, is_size=True), None)
            self.refuse(name, problem)
        return value

    def sure(self, getter: Callable[[str], Value | None], name: str) -> Value | None:
        """The value from the getter, None if it is absent. Raises FormatError if it is left out: a row whose identity
        is unknown is not stored as another one."""
        value = getter(name)
        return self.required(getter, name) if value is None and name in self._problems else value

    def rest(self) -> dict[str, Json]:
        """The unread fields, and the unread parts of the objects in it."""
        unread: dict[str, Json] = {}
        for name, value in self._values.items():
            rest = self._read[name]() if name in self._read else storable(value)
            if name not in self._read or rest:
                unread[str(without_surrogates(name))] = rest
        return unread

    def leave_out(self, name: str, problem: str, *, is_size: bool = False) -> None:
        """Note that the field's value is not stored but in the rest."""
        self._read.pop(name, None)
        self._problems[name] = problem
        self.file.leave_out(self.place(name), problem, is_size=is_size)

    def refuse(self, name: str, problem: str) -> NoReturn:
        """Raise FormatError with the file, the field's path and the problem."""
        self.file.refuse(f"{self.place(name)}: {problem}")

    def place(self, name: str) -> str:
        """The field's path in the file."""
        return f"{self.path}.{short_name(name)}" if self.path else short_name(name)

    def _take(self, name: str) -> Any:
        self._read[name] = lambda: None
        value = self._values.get(name)
        return None if self._numbers_are_text and value == "" else value

    def _of_kind(self, name: str, value: Any, kind: type | UnionType, words: str) -> Any:
        """The field's value, if it is of the kind; another one is left out."""
        if value is None or isinstance(value, kind):
            return value
        self.leave_out(name, f"expected {words}, found {shortened(value)}")
        return None

    def _time(
        self, name: str, value: Entry | None, read: Callable[[Entry], datetime], notation: str
    ) -> datetime | None:
        """The time that `read` makes of a value, without its zone."""
        try:
            return None if value is None else read(value).replace(tzinfo=None)
        except (ValueError, OverflowError, OSError):
            self.leave_out(name, f"expected a time {notation}, found {shortened(value)}")
            return None

    def _number(self, value: Any, low: float) -> float | str:
        """The number, or the reason why it is none."""
        if isinstance(value, str) and self._numbers_are_text:
            value = parsed_number(value)
        if not is_number(value):
            return f"expected a number, found {shortened(value)}"
        if abs(value) < LARGEST and value >= low:
            return float(value)
        at_least = "" if low == -math.inf else f" from {low:g}"
        return f"expected a number{at_least}, found {shortened(value)}"

    def _object(self, value: dict[str, Any], place: str) -> Fields:
        return Fields(self.file, value, place, numbers_are_text=self._numbers_are_text)


ROW_ERRORS = (FormatError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""What reading a row of unexpected content can raise: a row of any content is left out alone."""


def understood(file: ForeignFile, entries: Iterable[Entry], read: Callable[[Entry], Value]) -> Iterator[Value]:
    """What `read` makes of each entry of a file. An entry that it cannot read is left out and named."""
    for entry in entries:
        try:
            value = read(entry)
        except NoResultsError:
            raise
        except ROW_ERRORS as error:
            file.leave_out_row(error)
        else:
            yield value


def has_keys(value: Any, names: Set[str]) -> TypeGuard[dict[str, Any]]:
    """Whether it is an object with all of these fields."""
    return isinstance(value, dict) and value.keys() >= names


def has_benchmarks(value: Any, names: Set[str], of_each: str) -> bool:
    """Whether it is an object with these fields, and with a list of benchmarks, of which one has `of_each` if there are
    any: damaged ones do not change the format."""
    benchmarks = value["benchmarks"] if has_keys(value, {"benchmarks", *names}) else None
    return isinstance(benchmarks, list) and (not benchmarks or any(has_keys(one, {of_each}) for one in benchmarks))


def json_objects(file: ForeignFile, values: Iterable[Any], word: str, first: int = 1) -> Iterator[Fields]:
    """Each object of a file, named like "line 2"; other values are left out."""
    for number, value in enumerate(values, first):
        if isinstance(value, dict):
            yield Fields(file, value, f"{word} {number}")
        else:
            file.leave_out(f"{word} {number}", f"expected an object, found {shortened(value)}")


def top_fields(file: ForeignFile) -> Fields:
    """The file's one JSON object. Raises FormatError for any other file."""
    if not isinstance(file.json, dict):
        file.refuse("not one JSON object, or truncated")
    return Fields(file, file.json)


def csv_lines(file: ForeignFile, *, delimiter: str = ",", start: int = 1) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each non-empty line of a CSV file, from line `start`; a quoted cell may span lines. A line
    that is not CSV is left out."""
    lines = ((number, line) for number, line in enumerate(file.lines(), 1) if number >= start)
    again: deque[tuple[int, str]] = deque()

    def following() -> tuple[int, str] | None:
        return again.popleft() if again else next(lines, None)

    while (first := following()) is not None:
        if not first[1].strip():
            continue
        row, cells = [first], _cells(first[1], delimiter)
        while isinstance(cells, str) and OPEN_QUOTE in cells and len(row) < MAX_LINES_OF_ROW:
            more = following()
            if more is None:
                break
            row.append(more)
            cells = _cells("\n".join(line for _, line in row), delimiter)
        if isinstance(cells, str):
            file.leave_out(f"line {first[0]}", f"not CSV: {cells}: {file.beginning(first[1])!r}")
            again.extendleft(reversed(row[1:]))
        else:
            yield first[0], cells


OPEN_QUOTE = "unexpected end"
"""What the parser says of a text that ends inside quotes."""


def _cells(text: str, delimiter: str) -> list[str] | str:
    """The cells of a row, or what is wrong with it."""
    try:
        (cells,) = csv.reader([text], delimiter=delimiter, strict=True)
    except (csv.Error, ValueError) as error:
        return str(error)
    return cells


def csv_rows(file: ForeignFile, fits: Callable[[list[str]], bool], *, ends_early: bool = False) -> Iterator[Fields]:
    """The rows under the first line that `fits` as a header; numbers in them are text, and empty cells are absent.

    Lines with another number of cells than the header are left out, and lines without any cell are skipped; with
    `ends_early`, a row may have fewer cells. Another header among the rows (several files appended to one) names the
    columns from there on. Raises FormatError for a file without a header.
    """
    return (row for _, row in csv_table_rows(file, fits, ends_early=ends_early))


def csv_table_rows(
    file: ForeignFile, fits: Callable[[list[str]], bool], *, ends_early: bool = False
) -> Iterator[tuple[int, Fields]]:
    """The `csv_rows`, each with the number of its header, from 0."""
    start, header = find_header(file, fits)
    if not header:
        file.refuse("the file is empty: expected a header line")
    for number in range(1, start):
        file.leave_out(f"line {number}", "above the header of the table")
    table = -1
    for number, cells in csv_lines(file, start=start):
        if not any(cells):
            continue
        if fits(cells):
            header, table = cells, table + 1
        elif len(cells) > len(header) or (len(cells) < len(header) and not ends_early):
            problem = f"{len(cells)} cells under {len(header)} column names: {file.beginning(','.join(cells))!r}"
            file.leave_out(f"line {number}", problem)
        else:
            row = {name: cell or None for name, cell in zip(header, cells, strict=False)}
            yield table, Fields(file, row, f"line {number}", numbers_are_text=True)


def put_at(values: dict[str, Any], path: Sequence[str], value: Any, row: Fields) -> None:
    """Put the value of a column, whose name is a path such as `report.forward.latency`, into nested objects. Raises
    FormatError if a part of the path has a value itself."""
    place = values
    for part in path[:-1]:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            row.refuse(".".join(path), f"{short_name(part)} has both a value and fields")
    place[path[-1]] = value


def find_header(file: ForeignFile, fits: Callable[[list[str]], bool]) -> tuple[int, list[str]]:
    """Number and cells of the first line that `fits` as the header of a table; 0 and no cells without one. Programs
    print lines above it."""
    for number, line in enumerate(printed_lines(file.head)[:MAX_LINES_ABOVE], 1):
        try:
            cells = next(csv.reader([line]), [])
        except csv.Error:
            continue
        if cells and fits(cells):
            return number, cells
    return 0, []


def has_columns(*names: str) -> Callable[[list[str]], bool]:
    """Whether a line has all of these cells."""
    return lambda cells: set(names) <= set(cells)


def csv_header(file: ForeignFile, fits: Callable[[list[str]], bool]) -> list[str]:
    """The cells of the first line that `fits` as a header; empty without one."""
    return find_header(file, fits)[1]


def yaml_object(file: ForeignFile, *, infinity: str | None = None) -> dict[str, Any]:
    """The file's one mapping, read as if it were JSON: times stay text, tags of programming languages are refused.
    Lines that are not YAML are left out. Infinity becomes the text `infinity`, if given.

    Raises FormatError for any other file, with the line.
    """
    if len(file.content) > MAX_YAML_BYTES:
        file.refuse(f"larger than {MAX_YAML_BYTES >> 20} MiB: too large for a result file in YAML")
    lines = list(enumerate((file.text or "").split("\n"), 1))
    data, error = _parsed_yaml(file, lines)
    first_error = error
    for _ in range(MAX_YAML_REPAIRS):
        if error is None:
            break
        # A line that does not belong is noticed at itself or at the next one.
        noticed = int(_error_line(error))
        suspects = [at for at in (noticed - 1, noticed - 2) if noticed and 0 <= at < len(lines)]
        trials = [lines[:at] + lines[at + 1 :] for at in suspects]
        parsed = [(*_parsed_yaml(file, trial), trial) for trial in trials]
        best = max(parsed, key=lambda one: _error_line(one[1]), default=None)
        if best is None or (best[1] is not None and _error_line(best[1]) < _error_line(error)):
            break
        number, line = next(one for one in lines if one not in best[2])
        file.leave_out(f"line {number}", f"not YAML: {file.beginning(line.strip())!r}")
        data, error, lines = best
    if error is not None and first_error is not None:
        raise FormatError(str(first_error)) from first_error
    if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
        file.refuse("not YAML with a mapping at the top level")
    return {name: _json_value(file, value, name, infinity) for name, value in data.items()}


def _parsed_yaml(file: ForeignFile, lines: Sequence[tuple[int, str]]) -> tuple[Any, UsageError | None]:
    text = LONG_NUMBER.sub(r"'\g<0>'", "\n".join(line for _, line in lines))
    try:
        return parse_yaml(text, file.path, times_as_text=True).plain(), None
    except UsageError as error:
        return None, error


def _error_line(error: UsageError | None) -> float:
    """The line of a syntax error; infinity without an error, 0 if the error names no line."""
    if error is None:
        return math.inf
    found = YAML_LINE.search(str(error))
    return int(found[1]) if found else 0


def _json_value(file: ForeignFile, value: Any, place: str, infinity: str | None) -> Any:
    """The value as JSON: keys become text, infinity becomes `infinity`, if given."""
    if isinstance(value, dict):
        return {str(name): _json_value(file, one, f"{place}.{name}", infinity) for name, one in value.items()}
    if isinstance(value, list):
        return [_json_value(file, one, f"{place}[{index}]", infinity) for index, one in enumerate(value)]
    if value == math.inf and infinity is not None:
        return infinity
    if value is not None and not isinstance(value, bool | int | float | str):
        file.leave_out(place[:100], f"expected text, a number, a list or a mapping, found {type(value).__name__}")
        return str(value)
    return value


def without_zone(stated: Iterable[str | None]) -> tuple[Doubt, ...]:
    """A doubt for a file whose local times have no zone and are read as UTC.

    `stated` are the times as written in the file; no doubt if there are none, or if all of them have a zone.
    """
    for text in filter(None, stated):
        try:
            has_zone = datetime.fromisoformat(text.strip()).tzinfo is not None
        except ValueError:
            has_zone = False
        if not has_zone:
            return (doubt("time_zone_unknown", "info", stated=text, read_as="UTC"),)
    return ()


def shifted(file: ForeignFile, time: datetime, seconds: float) -> datetime:
    """The time shifted by some seconds; unshifted if that is out of range, which is named."""
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        file.leave_out("duration", f"{seconds:g} s from {time} is out of range")
        return time


UNRESOLVED = re.compile(r"[$<]")
"""In a value: a variable of a script, or a placeholder."""
FLAG = re.compile(
    r"(?:^|[\s`(])(?:--([a-z][\w-]+(?:\.\w+)*)|-([a-z]{1,3})(?![\w-]))"
    r"(?:[= ]\s*(?!-{1,2}[a-z])(\"[^\"]*\"|'[^']*'|\d+(?: +\d+)+(?=\s|$)|[^\s\\`]+))?"
)
"""A flag of two dashes or one, and its value: also several whole numbers."""
WORD = re.compile(r"(?:\"[^\"\n]*\"|'[^'\n]*'|\S)+")


def commands_of(program: str, text: str) -> list[str]:
    """The commands of a program (a pattern) in a text, each with its flags, also on lines after a backslash, but not
    what the shell does with its output."""
    part = r"\\\r?\n|\"[^\"\n]*\"|'[^'\n]*'|(?![ \t]\d?>)[^\n|;&`]"
    pattern = re.compile(rf"(?<![\w.-])(?:{program})(?:\.exe)?[ \t](?:{part})*")
    return [found[0] for found in pattern.finditer(text)]


def words_of(command: str) -> list[str]:
    """The words of a command as its shell read them: a path in quotes, with blanks, is one."""
    words = WORD.findall(command.replace("\\\n", " "))
    return [re.sub(r"\"([^\"]*)\"|'([^']*)'", r"\1\2", word) for word in words]


def printed_lines(text: str) -> list[str]:
    """The lines of a text as a terminal shows them, numbered as an editor does: of a line that was drawn anew after
    each carriage return, as progress is, the last state."""
    lines = text.split("\n") if "\n" in text else text.splitlines()
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def flags_of(command: str, short: Mapping[str, str], known: Collection[str] = ()) -> dict[str, str]:
    """The flags of a command with their values, "True" for none; a flag of one dash has the name in `short`. Some words
    that only one of the `known` names begins with are that one, as argparse reads them."""
    found: dict[str, str] = {}
    for flag, letters, value in FLAG.findall(command):
        if flag or letters in short:
            name = flag.replace("-", "_") or short[letters]
            whole = [one for one in known if one.startswith(name)] if "_" in name and name not in known else []
            found[whole[0] if len(whole) == 1 else name] = value.strip("'\"") or "True"
    return found


def resolved(arguments: Mapping[str, str]) -> dict[str, str]:
    """The arguments without those that are variables or placeholders."""
    return {name: value for name, value in arguments.items() if not UNRESOLVED.search(value)}


def agreed(several: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What several commands above a result have alike, since it is not known which of them printed it. (One without
    anything is prose.)"""
    stated = [one for one in several if one]
    first: Mapping[str, str] = stated[0] if stated else {}
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in stated)}
