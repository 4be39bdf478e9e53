"""Types of arguments for argparse: each reads one text of the command line, and says what it takes instead."""

from __future__ import annotations

import argparse
import ipaddress
import math
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from benchmarking.core.command_line import clipped

Value = TypeVar("Value", int, float)
Reader = Callable[[str], float]
MAX_INT = 2**31 - 1
"""Maximum of whole numbers in run files."""
MAX_NUMBER = 1e15
MAX_SECONDS = 1e9
"""Maximum of other numbers: longer times are not accepted by every system."""

DURATION = re.compile(
    r"(\d+(?:\.\d+)?)\s*(ms|s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:ours?|rs?)?|d(?:ays?)?)(?![a-z])\s*"
)
THOUSANDS = re.compile(r"\d+(\.\d+)?[kKmM]i?")
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
"""Unit of a duration -> seconds; longer words for one begin with its letter."""
NUMBERS = re.compile(r"\d+(,\d+)+")


def _int(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        what = "one whole number" if NUMBERS.fullmatch(text) else "whole numbers"
        hint = ", in digits such as 4096" if THOUSANDS.fullmatch(text) else ""
        hint = "; without the flag, its default holds" if text.lower() in ("auto", "all", "default", "max") else hint
        raise argparse.ArgumentTypeError(f"takes {what}{hint}: got {text!r}") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"takes a whole number from {least}: got {text!r}")
    if value > MAX_INT:
        raise argparse.ArgumentTypeError(f"takes a whole number up to {MAX_INT}: got {clipped(text)!r}")
    return value


def _number(text: str, expected: str, *, from_0: bool = False, is_time: bool = False) -> float:
    """A number above 0, or from 0. A time may have units: 90s, 500ms, 2m or 1h30m, and is in seconds."""
    parts = list(DURATION.finditer(text.strip())) if is_time else []
    if parts and "".join(part[0] for part in parts) == text.strip():
        text = f"{sum(float(part[1]) * SECONDS.get(part[2], SECONDS[part[2][0]]) for part in parts):.15g}"
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{expected}: got {text!r}") from None
    if not (value >= 0 if from_0 else value > 0) or not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{expected}: got {text!r}")
    if value > (most := MAX_SECONDS if is_time else MAX_NUMBER):
        raise argparse.ArgumentTypeError(f"{expected}, up to {most:g}: got {text!r}")
    return value


def _named(text: str, form: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        name, colon, rest = text.partition(":")
        hint = f": write {name}={rest}" if colon and name and not equals else ""
        hint = hint or (f", as in name={text}" if form == "key=value" and text and not equals else "")
        raise argparse.ArgumentTypeError(f"takes {form}: got {text!r}{hint}")
    return key.strip(), value


positive_int: Callable[[str], int] = partial(_int, least=1)
non_negative_int: Callable[[str], int] = partial(_int, least=0)
positive_number: Reader = partial(_number, expected="takes a number above 0")
non_negative_number: Reader = partial(_number, expected="takes a number from 0", from_0=True)
positive_seconds: Reader = partial(_number, expected="takes seconds above 0, such as 90 or 2m", is_time=True)
non_negative_seconds: Reader = partial(
    _number, expected="takes seconds from 0, such as 90 or 2m", is_time=True, from_0=True
)
tag: Callable[[str], tuple[str, str]] = partial(_named, form="key=value")


def positive_ints(text: str) -> tuple[int, ...]:
    """A list such as 1,2,4: whole numbers from 1, sorted, without duplicates."""
    return tuple(_sorted_values(text, "1,2,4", positive_int))


def positive_numbers(text: str) -> tuple[float, ...]:
    """A list such as 2.5,30: numbers above 0, sorted, without duplicates, whole ones as int."""
    values = _sorted_values(text, "2.5,30", partial(_number, expected="takes numbers above 0"))
    return tuple(int(value) if value.is_integer() else value for value in values)


def _sorted_values(text: str, example: str, read: Callable[[str], Value]) -> list[Value]:
    """The different values of a list. After an error about a part that looks like a range or a list of another form
    follows how a list is written."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise argparse.ArgumentTypeError(f"the list is empty: give numbers such as {example}")
    try:
        return sorted({read(part) for part in parts})
    except argparse.ArgumentTypeError as error:
        other_forms = (" ", "-", ":", ";", "]", ")", "..", "^", "*")
        is_list = any(form in part[1:] for part in parts for form in other_forms)
        raise argparse.ArgumentTypeError(f"{error}{'; a list is written 1,2,4' if is_list else ''}") from None


def positive_rate(text: str) -> float:
    """A number above 0 per second, also with /s."""
    if "," in text:
        raise argparse.ArgumentTypeError(f"takes one rate: got {text!r}")
    return positive_number(_per_second(text))


def share(text: str) -> float:
    """A share from 0 to 1, also in percent: 0.95 or 95%."""
    number, percent, rest = text.partition("%")
    expected = "takes a share from 0 to 1, such as 0.95 or 95%"
    value = _number(text if rest else number, expected, from_0=True) / (100 if percent else 1)
    if value > 1:
        meant = f": write {number}%" if not percent and value <= 100 else ""
        raise argparse.ArgumentTypeError(f"{expected}: got {text!r}{meant}")
    return value


def percent(text: str) -> float:
    """A number from 0 in percent: 1 or 1%."""
    return _number(text.removesuffix("%"), "takes a number of percent from 0, such as 1%", from_0=True)


UNLIMITED = ("max", "maximum", "unlimited", "none", "throughput", "burst", "-1", "0")
"""What people write for a rate without a limit."""


SEARCHED = ("auto", "highest", "best", "saturation", "sweep", "find")
"""What people write for a rate that is to be found."""


def positive_rates(text: str) -> tuple[float, ...]:
    """Numbers above 0 such as 1,2.5, each also with /s, or inf alone."""
    if text.strip().lower() in UNLIMITED:
        raise argparse.ArgumentTypeError(f"takes numbers above 0, or inf to send all requests at once: got {text!r}")
    if text.strip().lower() in SEARCHED:
        how = "the highest within limits is found by --request-rate 1,32 --find-rate --limit LIMITS"
        raise argparse.ArgumentTypeError(f"takes numbers above 0: got {text!r}: {how}")
    if "inf" in (found := text.strip().lower().split(",")):
        if len(found) > 1:
            how = "inf starts all requests at once: measure it by itself, --request-rate inf --num-requests N"
            raise argparse.ArgumentTypeError(f"got {text!r}: {how}")
        return (math.inf,)
    return positive_numbers(_per_second(text))


def _per_second(text: str) -> str:
    if (other := re.search(r"(\d+(?:\.\d+)?)\s*(?:req\w*)?\s*/\s*([mh])(?!s)", text)) is not None:
        rate = float(other[1]) / {"m": 60, "h": 3600}[other[2]]
        raise argparse.ArgumentTypeError(f"takes requests per second: got {text!r}, which is {rate:g}")
    return re.sub(r"(?<=\d)\s*(?:(?:req)?/s|rps|qps)\b", "", text)


def names(text: str) -> tuple[str, ...]:
    """A list of names such as a,b."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise argparse.ArgumentTypeError("the list is empty: give names such as a,b")
    return parts


def file_to_write(text: str) -> Path:
    """A file that can be written, or "-" for stdout. Checked before a command begins, so that its work is not lost."""
    path = Path(text)
    if text == "-":
        return path
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"takes a file: {text} is a folder")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text}: {path.parent} is not a folder: create it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {text}: no permission: choose another path")
    return path


def folder_to_write(text: str) -> str:
    """A folder, which may not exist yet, but is not a file."""
    path = Path(text)
    # A number is meant for another flag, such as the depth that is -d in llama-bench, or the duration in wrk.
    if (text.isdecimal() or DURATION.fullmatch(text)) and not path.exists():
        raise argparse.ArgumentTypeError(f"takes a folder: got the number {text}; a folder of that name is ./{text}")
    for place in (path, *path.parents):
        if place.is_dir():
            break
        if place.exists():
            raise argparse.ArgumentTypeError(f"takes a folder: {place} is a file")
    return text


OF_SERVERS = re.compile(r"(?:ducklake:)?(?:postgres(?:ql)?|mysql|sqlite|md|motherduck):|ducklake:", re.IGNORECASE)
"""What DuckDB attaches in place of a file."""


def database_file(text: str) -> str:
    """The file of a database, which may not exist yet, or ducklake:..."""
    if text.startswith("ducklake:"):
        return text
    path = Path(text)
    if "://" in text:
        raise argparse.ArgumentTypeError(f"takes a DuckDB file or ducklake:...: got {text}")
    if (of_server := OF_SERVERS.match(text)) and not path.exists():
        raise argparse.ArgumentTypeError(
            f"takes a DuckDB file or ducklake:...: got {of_server[0]}...; a lake in PostgreSQL is "
            f"ducklake:postgres:..., a file of that name ./{of_server[0]}..."
        )
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"takes a file: {text} is a folder")
    place = next((place for place in path.absolute().parents if place.exists()), path)
    if not path.exists() and not place.is_dir():
        raise argparse.ArgumentTypeError(f"takes a file in a folder: {place} is a file")
    return text


def named_values(text: str) -> tuple[str, tuple[str, ...]]:
    """A name with its values: NAME=VALUE,VALUE. A value may be empty."""
    name, values = _named(text, "NAME=VALUE,VALUE")
    found = tuple(value.strip() for value in values.split(","))
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"takes different values: got {text!r}")
    if any(not value.isprintable() for value in found):
        raise argparse.ArgumentTypeError(f"takes printable values: got {text!r}")
    return name, found


def dimension(text: str) -> tuple[str, int | str]:
    """A size of a free dimension: NAME=48, or NAME=batch for one that is the batch."""
    name, size = _named(text, "NAME=N")
    return name, size if size == "batch" else positive_int(size)


def input_value(text: str) -> tuple[str, float]:
    """A value of an input: NAME=16000."""
    name, value = _named(text, "NAME=NUMBER")
    with suppress(ValueError):
        number = int(value) if value.lstrip("+-").isdecimal() else float(value)
        if abs(number) < math.inf:
            return name, number
    raise argparse.ArgumentTypeError(f"takes NAME=NUMBER: got {text!r}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
