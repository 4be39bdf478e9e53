"""Typed access to the values in foreign files: errors name the position in the file, and no field is dropped."""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar

from benchmarking.core.errors import FormatError, UsageError
from benchmarking.core.records import Doubt, Json
from db.importers.support.files import ForeignFile
from db.importers.support.number_lists import Numbers, floats

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MAX_YAML_BYTES = 4 * 1024**2
"""Maximum size of YAML: parsing a megabyte takes seconds."""
MAX_DEPTH = 100
"""Maximum nesting of objects and lists: more than any tool writes, less than a run file can be read back with."""


def storable(file: ForeignFile, value: Any, place: str, depth: int = 0) -> Json:
    """The value, if it can be stored. Raises FormatError for a number beyond double precision, an unpaired surrogate
    and too deep nesting."""
    if depth > MAX_DEPTH:
        file.refuse(f"{place[:100]}: lists and objects are nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        _check_text(file, value, place)
    elif isinstance(value, float) and not math.isfinite(value):
        file.refuse(f"{place}: {value} is not a number")
    elif isinstance(value, array):
        return value.tolist()  # its numbers are finite
    elif isinstance(value, list):
        return [storable(file, one, f"{place}[{index}]", depth + 1) for index, one in enumerate(value)]
    elif isinstance(value, dict):
        for name in value:
            _check_text(file, name, place)
        return {name: storable(file, one, f"{place}.{short_name(name)}", depth + 1) for name, one in value.items()}
    return value  # type: ignore[no-any-return]


def shortened(value: Any) -> str:
    """The value, shortened for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def short_name(name: str) -> str:
    """The name of a field, shortened for a message."""
    return name if len(name) <= 60 else f"{name[:57]}..."


def _check_text(file: ForeignFile, text: str, place: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        file.refuse(f"{place}: the text contains an unpaired surrogate, which is not a character")


def parsed_number(text: str) -> int | float | str:
    """The text as a number if it is one, otherwise unchanged."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


Value = TypeVar("Value")
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")


class Fields:
    """An object in a foreign file, whose fields are read by name.

    A getter returns None for a field that is absent or null, and raises FormatError, with the field's path, for a wrong
    type or a value out of range. The fields that no getter has read are the `rest`, which is stored.
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

    def __contains__(self, name: str) -> bool:
        """Whether the field is present and not null."""
        return self._values.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        """The names of all fields."""
        return iter(self._values)

    def text(self, name: str) -> str | None:
        """A text, unchanged; it may be empty."""
        value = self._take(name)
        if value is not None and not isinstance(value, str):
            self.refuse(name, f"expected text, found {shortened(value)}")
        return None if value is None else str(storable(self.file, value, self.place(name)))

    def number(self, name: str, *, low: float = -math.inf) -> float | None:
        """A finite number, not below `low`."""
        value = self._take(name)
        return None if value is None else self._number(value, self.place(name), low)

    def integer(self, name: str, *, low: int = 0, high: int = INT64_MAX) -> int | None:
        """A whole number from `low` to `high`; 12.0 is one."""
        value = self.number(name)
        if value is None:
            return None
        exact = self._values[name] if type(self._values[name]) is int else value
        if not (low <= exact <= high and float(exact).is_integer()):
            self.refuse(name, f"expected a whole number from {low} to {high}, found {shortened(self._values[name])}")
        return int(exact)

    def count(self, name: str) -> int | None:
        """A whole number from 1 that fits into a column of the warehouse: a batch size, tokens, threads."""
        return self.integer(name, low=1, high=INT32_MAX)

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value = self._take(name)
        if value is None or isinstance(value, bool):
            return value
        word = value.strip().lower() if isinstance(value, str) and self._numbers_are_text else None
        if word not in (*TRUE, *FALSE):
            self.refuse(name, f"expected true or false, found {shortened(value)}")
        return word in TRUE

    def time(self, name: str) -> datetime | None:
        """A time in ISO 8601 as naive UTC; a time without a zone is read as UTC."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return naive_utc(datetime.fromisoformat(text.strip()))
        except (ValueError, OverflowError):
            self.refuse(name, f"expected a time in ISO 8601, found {shortened(text)}")

    def unix_time(self, name: str) -> datetime | None:
        """A time in seconds since 1970 as naive UTC."""
        seconds = self.number(name)
        if seconds is None:
            return None
        try:
            return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
        except (ValueError, OverflowError, OSError):
            self.refuse(name, f"expected a time in seconds since 1970, found {shortened(seconds)}")

    def numbers(self, name: str, *, low: float = -math.inf) -> Sequence[float] | None:
        """A list of finite numbers, none below `low`: a tuple, or an array if there are many."""
        values = self._take(name)
        if values is None:
            return None
        if not isinstance(values, list | array):
            self.refuse(name, f"expected a list of numbers, found {shortened(values)}")
        place = self.place(name)
        if isinstance(values, array):
            return self._array(values, place, low)
        if set(map(type, values)) == {float} and all(map(math.isfinite, values)) and min(values) >= low:
            return tuple(values)  # avoids checking each of millions of samples
        return tuple(self._number(value, f"{place}[{index}]", low) for index, value in enumerate(values))

    def items(self, name: str) -> list[Any]:
        """A list of anything, unchanged; empty if absent."""
        value = self.any(name)
        if value is not None and not isinstance(value, list):
            self.refuse(name, f"expected a list, found {shortened(value)}")
        return value or []

    def each(self, name: str) -> Sequence[Any]:
        """A list of anything, whose values the caller checks; empty if absent."""
        value = self._take(name)
        if value is not None and not isinstance(value, list | array):
            self.refuse(name, f"expected a list, found {shortened(value)}")
        return () if value is None else value

    def number_list(self, value: Any, place: str) -> Sequence[float]:
        """A list of finite numbers that is part of this object, at this position in it; empty for null."""
        return Fields(self.file, {place: value}, self.path).numbers(place) or ()

    def fields(self, name: str) -> Fields | None:
        """An object. Its unread fields stay in the rest, under its name."""
        value = self._values.get(name)
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
        """A list of objects. Their unread fields stay in the rest, under its name, as a list."""
        values = self._values.get(name)
        if values is None:
            return None
        if not isinstance(values, list):
            self.refuse(name, f"expected a list of objects, found {shortened(values)}")
        nested = tuple(self._object(value, f"{self.place(name)}[{index}]") for index, value in enumerate(values))
        self._read[name] = lambda: (
            [fields.rest() for fields in nested] if any(fields.rest() for fields in nested) else None
        )
        return nested

    def peek(self, name: str) -> Any:
        """The value, which still counts as unread."""
        return self._values.get(name)

    def unread_copy(self) -> Fields:
        """The same object with no field read yet: reading it leaves this object's rest unchanged."""
        return Fields(self.file, self._values, self.path, numbers_are_text=self._numbers_are_text)

    def any(self, name: str) -> Json:
        """The value, unchanged."""
        return storable(self.file, self._take(name), self.place(name))

    def required(self, getter: Callable[[str], Value | None], name: str) -> Value:
        """The value from the getter (`fields.text`, ...). Raises FormatError if it is absent."""
        value = getter(name)
        if value is None:
            self.refuse(name, "is missing")
        return value

    def rest(self) -> dict[str, Json]:
        """The unread fields, and the unread parts of the objects in it. Raises FormatError for values that cannot be
        stored."""
        unread: dict[str, Json] = {}
        for name, value in self._values.items():
            rest = self._read[name]() if name in self._read else storable(self.file, value, self.place(name))
            if name not in self._read or rest:
                unread[str(storable(self.file, name, self.path or "a name"))] = rest
        return unread

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

    def _number(self, value: Any, place: str, low: float) -> float:
        if isinstance(value, str) and self._numbers_are_text:
            value = parsed_number(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.file.refuse(f"{place}: expected a number, found {shortened(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not (math.isfinite(number) and number >= low):
            at_least = "" if low == -math.inf else f" from {low:g}"
            self.file.refuse(f"{place}: expected a number{at_least}, found {shortened(value)}")
        return number

    def _array(self, values: Numbers, place: str, low: float) -> array[float]:
        """An array of numbers that are known to be finite."""
        import numpy as np

        numbers = floats(values)
        if np.frombuffer(numbers).min() < low:
            index = next(index for index, value in enumerate(numbers) if value < low)
            self._number(values[index], f"{place}[{index}]", low)
        return numbers

    def _object(self, value: Any, place: str) -> Fields:
        if not isinstance(value, dict):
            self.file.refuse(f"{place}: expected an object, found {shortened(value)}")
        return Fields(self.file, value, place, numbers_are_text=self._numbers_are_text)


def top_fields(file: ForeignFile) -> Fields:
    """The file's one JSON object. Raises FormatError for any other file."""
    if not isinstance(file.json, dict):
        file.refuse("not one JSON object, or truncated")
    return Fields(file, file.json)


def csv_lines(file: ForeignFile, *, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each non-empty line of a CSV file."""
    text = io.TextIOWrapper(io.BytesIO(file.content), "utf-8-sig", newline="")  # decoded as it is read
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        file.refuse(f"line {reader.line_num}: not CSV: {error}")
    except UnicodeDecodeError:
        file.refuse(f"line {reader.line_num + 1}: not text in UTF-8")


def csv_rows(file: ForeignFile, *, delimiter: str = ",", ends_early: bool = False) -> Iterator[Fields]:
    """The rows under the header line of a CSV file; numbers in them are text, and empty cells are absent. With
    `ends_early`, a row may have fewer cells than the header."""
    lines = csv_lines(file, delimiter=delimiter)
    _, header = next(lines, (0, []))
    if not header:
        file.refuse("the file is empty: expected a header line")
    for number, cells in lines:
        if len(cells) > len(header) or (len(cells) < len(header) and not ends_early):
            file.refuse(f"line {number}: {len(cells)} cells under {len(header)} column names")
        row = {name: cell or None for name, cell in zip(header, cells, strict=False)}
        yield Fields(file, row, f"line {number}", numbers_are_text=True)


def csv_header(file: ForeignFile) -> list[str]:
    """The cells of the first line; empty if it is not CSV."""
    try:
        return next(csv.reader(io.StringIO(file.head)), [])
    except csv.Error:
        return []


def yaml_object(file: ForeignFile, *, infinity: str | None = None) -> dict[str, Any]:
    """The file's one mapping, read as if it were JSON: times stay text, tags of programming languages are refused.

    NaN becomes None; infinity becomes None, or the text `infinity`.

    Raises FormatError for any other file, with the line.
    """
    from benchmarking.core.untrusted.yaml_files import parse_yaml

    if len(file.content) > MAX_YAML_BYTES:
        file.refuse(f"larger than {MAX_YAML_BYTES >> 20} MiB: too large for a result file in YAML")
    try:
        data = parse_yaml(file.text or "", file.path, times_as_text=True).plain()
    except UsageError as error:
        raise FormatError(str(error)) from error
    if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
        file.refuse("not YAML with a mapping at the top level")
    return {name: _json_value(file, value, name, infinity) for name, value in data.items()}


def _json_value(file: ForeignFile, value: Any, place: str, infinity: str | None) -> Any:
    """The value as JSON: keys become text, NaN becomes None, infinity becomes `infinity`."""
    if isinstance(value, dict):
        return {str(name): _json_value(file, one, f"{place}.{name}", infinity) for name, one in value.items()}
    if isinstance(value, list):
        return [_json_value(file, one, f"{place}[{index}]", infinity) for index, one in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return infinity if value == math.inf else None
    if value is not None and not isinstance(value, bool | int | float | str):
        file.refuse(f"{place[:100]}: expected text, a number, a list or a mapping, found {type(value).__name__}")
    return value


def naive_utc(time: datetime) -> datetime:
    """The time in UTC without its zone. Raises OverflowError before year 1 and after year 9999."""
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)


def without_zone(stated: Iterable[str | None]) -> tuple[Doubt, ...]:
    """A doubt for a file whose local times have no zone and are read as UTC.

    `stated` are the times as written in the file; no doubt if there are none, or if all of them have a zone.
    """
    first = next((text for text in stated if text and not _has_zone(text)), None)
    if first is None:
        return ()
    return (Doubt(kind="time_zone_unknown", severity="info", evidence={"stated": first, "read_as": "UTC"}),)


def _has_zone(text: str) -> bool:
    try:
        return datetime.fromisoformat(text.strip()).tzinfo is not None
    except ValueError:
        return False


def shifted(file: ForeignFile, time: datetime, seconds: float) -> datetime:
    """The time shifted by some seconds. Raises FormatError if the result is out of range."""
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        file.refuse(f"{seconds:g} s from {time} is out of range")
