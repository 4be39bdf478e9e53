"""Reads untrusted files (text, JSON, YAML), within limits that are checked before anything is parsed or unpacked.

The limits are far above any file written by this program or by the tools it imports from, and far below what would
exhaust the machine. A file beyond a limit is refused with a one-line error.

YAML has limits of its own, since its parser is slow. It is read with line numbers, so that errors can name the place,
and only as plain data types. Everything in the product that is YAML is read here: aliases and merge keys, by which a
few lines can stand for billions of values, are counted before they are expanded, and no scalar is converted that is not
a plain word or number.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from benchmarking.core.errors import FormatError, UnreadableError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import cut_off

if TYPE_CHECKING:
    import yaml


MAX_DEPTH = 64
"""Nesting levels of lists and objects. Model configurations have about ten; Python recurses into each."""
MAX_DIGITS = 300
"""Maximum digits of an integer: every float has fewer, and longer ones are slow and fit no column."""
MAX_VALUES = 10_000_000
"""Maximum values of a JSON text, which take up to a gigabyte as Python objects."""
MAX_CONTAINERS = 1_000_000
"""Maximum lists and objects of a JSON text, which take more memory than other values."""
MAX_EXPANSION = 100
"""Maximum expansion of a gzip file; result files reach about 20."""
ALWAYS_UNPACKED_BYTES = 16_000_000
"""Bytes that may be unpacked regardless of the ratio."""
STAT_BLOCK_BYTES = 512
"""Unit of `st_blocks` (POSIX leaves it open, and every system has this one)."""
DIGESTED_BYTES = 2**20
GZIP_MAGIC = b"\x1f\x8b"

STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""A string of a JSON text. One without an end extends to the end of the text: otherwise each quotation mark in it would
be tried as a beginning, which takes minutes for some 100 kB."""
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")


@contextmanager
def open_regular(path: Path) -> Iterator[BufferedReader]:
    """A regular file, open for reading. Raises UnreadableError for anything else, since a pipe or device may block
    forever, or have side effects when it is opened."""
    no_wait = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    try:
        _check_regular(path, os.stat(path))
        descriptor = os.open(path, os.O_RDONLY | no_wait)
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as opened:
        _check_regular(path, os.fstat(descriptor))
        try:
            yield opened
        except OSError as error:
            raise UnreadableError(f"cannot read {path}: {error.strerror}") from error


LFS_MARK, LFS_BYTES = b"version https://git-lfs.github.com/spec/", 1024
"""Beginning and maximum size of a git-lfs pointer, which takes the place of a large file in a clone without git-lfs."""

IS_POINTER = "is a git-lfs pointer to the file: run `git lfs pull`"


def lfs_pointer(path: str | os.PathLike[str]) -> str | None:
    """None, or what to do about a file that is only a git-lfs pointer to its content. Any other file, unreadable ones
    too, is none."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= LFS_BYTES:
            return None
        with Path(os.fsdecode(path)).open("rb") as opened:
            is_pointer = opened.read(len(LFS_MARK)) == LFS_MARK
    except (OSError, ValueError, TypeError):
        return None
    return f"{os.fsdecode(path)} {IS_POINTER}" if is_pointer else None


def read_text(path: Path, max_bytes: int) -> str:
    """The text of a file in UTF-8, without a byte order mark. Raises UnreadableError; FormatError for one that is
    larger or not text."""
    try:
        with path.open("rb") as opened:  # may be a pipe, since it was given on the command line
            content = opened.read(max_bytes + 1)
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > max_bytes:
        raise FormatError(f"{path}: larger than {max_bytes / 1e6:g} MB")
    if content.startswith(LFS_MARK):
        raise FormatError(f"{path} {IS_POINTER}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not a text file (UTF-8)") from error


def read_unpacked(opened: IO[bytes], path: Path, max_bytes: int) -> bytes | None:
    """The content of an open file, or of piped bytes, decompressed if it is a gzip file; None if it is larger than
    `max_bytes`.

    Raises FormatError for a damaged gzip file, and for one that expands more than MAX_EXPANSION times.
    """
    head = opened.read(len(GZIP_MAGIC))
    size_bytes = opened.seek(0, os.SEEK_END)
    opened.seek(0)
    if head != GZIP_MAGIC:
        content = opened.read(min(size_bytes, max_bytes) + 1)  # Python reserves memory for all that it is asked to read
        return content if len(content) <= max_bytes else None
    expanded = max(ALWAYS_UNPACKED_BYTES, MAX_EXPANSION * size_bytes)
    limit = min(max_bytes, expanded)
    try:
        with gzip.open(opened) as unpacked:
            content = unpacked.read(limit + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FormatError(f"{path}: damaged or truncated gzip file: {error}") from error
    if len(content) <= limit:
        return content
    if limit == max_bytes:
        return None
    raise FormatError(f"{path}: gzip file expands more than {MAX_EXPANSION} times: unpack it and check its content")


def unpacked_digest(path: Path) -> str:
    """SHA-256 of the file's content, decompressed if it is a gzip file, in hex. Raises UnreadableError, and FormatError
    for a damaged gzip file, and for content of more than MAX_EXPANSION times the space that the file takes, such as a
    sparse file's or what a system makes up while it is read."""
    with open_regular(path) as opened:
        is_packed = opened.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        opened.seek(0)
        status, digest, unpacked_bytes = os.fstat(opened.fileno()), hashlib.sha256(), 0
        # Some file systems state no blocks, at all or until they have written them.
        blocks_bytes = getattr(status, "st_blocks", math.inf) * STAT_BLOCK_BYTES
        stored_bytes = min(status.st_size, max(blocks_bytes, ALWAYS_UNPACKED_BYTES / 2))
        try:
            with gzip.open(opened) if is_packed else nullcontext(opened) as content:
                while block := content.read(DIGESTED_BYTES):
                    digest.update(block)
                    unpacked_bytes += len(block)
                    if unpacked_bytes > max(ALWAYS_UNPACKED_BYTES, MAX_EXPANSION * stored_bytes):
                        raise FormatError(
                            f"{path}: has more than {MAX_EXPANSION} times the content that it takes on disk"
                        )
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise FormatError(f"{path}: damaged or truncated gzip file: {error}") from error
    return digest.hexdigest()


def read_json(path: Path, max_bytes: int, *, constant: Callable[[str], Any] | None = None) -> Any:
    """The value of a JSON file. Raises UnreadableError for an unreadable or irregular file, FormatError
    for one that is larger, and as `parse_json` does."""
    with open_regular(path) as opened:
        content = opened.read(min(os.fstat(opened.fileno()).st_size, max_bytes) + 1)
    if len(content) > max_bytes:
        raise FormatError(f"{path}: larger than {max_bytes / 1e6:g} MB")
    return parse_json(content, str(path), constant=constant)


def parse_json(
    content: bytes,
    where: str,
    *,
    constant: Callable[[str], Any] | None = None,
    refuse_values: bool = True,
    objects: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """The value of a JSON text in UTF-8. Raises FormatError for any other, and for one beyond the limits.

    `constant` gives the value for NaN and infinity, which JSON does not have; without it they are refused. Without
    `refuse_values`, a whole number of too many digits is read as infinity, and half of a surrogate pair as U+FFFD.
    `objects` makes an object of its pairs, in which a name may be repeated; without it the last value counts.
    """
    check_json(content, where)
    if content.startswith(LFS_MARK):
        raise FormatError(f"{where} {IS_POINTER}")
    try:
        text = content.decode("utf-8-sig")
        whole = _whole if refuse_values else whole_or_infinity
        value = json.loads(
            text, parse_int=whole, parse_constant=constant or _refuse_constant, object_pairs_hook=objects
        )
    except UnicodeDecodeError as error:
        raise FormatError(f"{where}: not JSON: not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: not JSON, or truncated: {error}") from error
    if not SURROGATE.search(content):
        return value
    if not refuse_values:
        return without_surrogates(value)
    try:
        json.dumps(value, ensure_ascii=False, default=repr).encode()  # a caller's `constant` may give other values
    except UnicodeEncodeError as error:
        found = error.object[error.start].encode("unicode_escape").decode()
        raise FormatError(f"{where}: invalid Unicode: half of a surrogate pair ({found})") from error
    return value


def check_json(content: bytes, where: str) -> None:
    """Raise FormatError for a JSON text that is too deep or has too many values, before it is parsed."""
    outside, strings = STRING.subn(b"", content)
    brackets = outside.translate(None, NO_BRACKETS)
    if content.count(b",") > MAX_VALUES or strings + len(brackets) > MAX_VALUES:
        _refuse(where, f"more than {MAX_VALUES} values")
    if brackets.count(b"[") + brackets.count(b"{") > MAX_CONTAINERS:
        _refuse(where, f"more than {MAX_CONTAINERS} lists and objects")
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            _refuse(where, f"nested more than {MAX_DEPTH} levels deep")


def _refuse(where: str, problem: str) -> NoReturn:
    raise FormatError(f"{where}: not JSON within the limits: {problem}")


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits, more than the limit of {MAX_DIGITS}")
    return int(digits)


def whole_or_infinity(digits: str) -> int | float:
    """The whole number; infinity, with its sign, for one of too many digits."""
    return int(digits) if len(digits) <= MAX_DIGITS else -math.inf if digits.startswith("-") else math.inf


def without_surrogates(value: Any) -> Any:
    """The value with U+FFFD for half of a surrogate pair, which is not a character."""
    if isinstance(value, str):
        return HALF_OF_A_PAIR.sub("\ufffd", value)
    if isinstance(value, list):
        return [without_surrogates(one) for one in value]
    if isinstance(value, dict):
        return {without_surrogates(name): without_surrogates(one) for name, one in value.items()}
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableError(f"cannot read {path}: not a regular file")


MAX_YAML_BYTES = 1_000_000
"""Maximum size of a YAML file; the parser reads about 100 kB per second."""
MAX_YAML_VALUES = 100_000
"""Maximum values in a YAML document, including copies by aliases and merge keys."""
MAX_YAML_NUMBER = 40
"""Maximum characters of a number in YAML."""

TAG = "tag:yaml.org,2002:"
CONTAINERS = (f"{TAG}seq", f"{TAG}map")
NUMBERS = (f"{TAG}int", f"{TAG}float")
SCALARS = (*NUMBERS, f"{TAG}null", f"{TAG}bool", f"{TAG}str")
TIME = f"{TAG}timestamp"
MERGE = f"{TAG}merge"

Content = dict[str, "Node"] | list["Node"] | bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value and its position in the file."""

    content: Content
    path: Path
    line: int
    """Line number, from 1."""

    @property
    def location(self) -> str:
        """The place: "models.yaml:3"."""
        return f"{self.path}:{self.line}"

    def refuse(self, problem: str) -> NoReturn:
        """Raise UsageError about this place."""
        raise UsageError(f"{self.location}: {problem}")

    def check_known(self, word: str, known: Sequence[str], what: str = "key") -> None:
        """Raise UsageError, with similar ones, for a word of this place that is none of the known ones."""
        from benchmarking.core.suggestions import unknown_name

        if word not in known:
            self.refuse(unknown_name(word, known, what))

    def mapping(self, what: str) -> dict[str, Node]:
        """The content of a mapping. Raises UsageError for anything else."""
        if not isinstance(self.content, dict):
            self.refuse(f"{what} takes keys and values: got {self.text}")
        return self.content

    def items(self) -> list[Node]:
        """The items of a list; any other value is treated as a list of one item."""
        return self.content if isinstance(self.content, list) else [self]

    def plain(self) -> Any:
        """The plain value: dictionaries with text keys, lists, and scalars."""
        if isinstance(self.content, dict):
            return {key: value.plain() for key, value in self.content.items()}
        return [item.plain() for item in self.content] if isinstance(self.content, list) else self.content

    @property
    def text(self) -> str:
        """The content for use in a message."""
        if isinstance(self.content, dict):
            return "a mapping"
        return "a list" if isinstance(self.content, list) else repr(self.content)


def read_yaml(path: Path) -> Node:
    """The document in a file. Raises UsageError for invalid YAML, a duplicate key or a file beyond the limits, and
    UnreadableError."""
    try:
        text = read_text(path, MAX_YAML_BYTES)
    except FormatError as error:
        raise UsageError(str(error)) from error
    return parse_yaml(text, path)


def parse_yaml(text: str, path: Path, *, times_as_text: bool = False) -> Node:
    """The document in the text of the file `path`. Raises UsageError like `read_yaml`.

    Times, and numbers with colons (which YAML 1.1 reads to the base of 60), are refused or read as text.
    """
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        reader = _Reader(loader, path, times_as_text)
        root = loader.get_single_node()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise UsageError(f"{path}{line}: not YAML: {problem}") from error
    except (ValueError, OverflowError) as error:  # an escape that is not a character
        raise UsageError(f"{path}: not YAML: {error}") from error
    if root is None:
        raise UsageError(f"{path}: the file is empty")
    return reader.counted(root)[0]


class _Reader:
    """Converts yaml's nodes to ours, each only once even if it has aliases."""

    def __init__(self, loader: yaml.SafeLoader, path: Path, times_as_text: bool) -> None:
        self._loader = loader
        self._path = path
        self._times_as_text = times_as_text
        self._nodes: dict[int, tuple[Node, int] | None] = {}
        """Identity of yaml's node -> our node and its number of values; None while it is being converted."""
        self._composed = self._depth = 0
        # yaml composes every node within the limits on number and depth.
        compose = loader.compose_node

        def compose_node(parent: Any, index: Any) -> Any:
            line = self._loader.line + 1
            self._composed += 1
            self._depth += 1
            if self._composed > MAX_YAML_VALUES:
                self._refuse(line, f"more than {MAX_YAML_VALUES} values")
            if self._depth > MAX_DEPTH:
                self._refuse(line, f"lists and mappings are nested more than {MAX_DEPTH} levels deep")
            node = compose(parent, index)
            self._depth -= 1
            return node

        loader.compose_node = compose_node  # type: ignore[method-assign]

    def counted(self, node: Any) -> tuple[Node, int]:
        """Our node, and the number of values in it."""
        line: int = node.start_mark.line + 1
        if id(node) in self._nodes:
            known = self._nodes[id(node)]
            if known is None:
                self._refuse(line, "an alias contains itself")
            return known
        self._nodes[id(node)] = None
        content: Content
        total = 1
        if node.id == "scalar":
            content = self._scalar(node, line)
        elif node.tag not in CONTAINERS:
            self._refuse(line, f"takes plain lists and mappings: got {node.tag}")
        elif node.id == "mapping":
            # The keys of the mapping, then those of mappings merged by "<<", which have lower precedence.
            explicit: dict[str, Node] = {}
            merged: dict[str, Node] = {}
            lines: dict[str, int] = {}
            for key, value in node.value:
                key_line: int = key.start_mark.line + 1
                if not isinstance(key.value, str):
                    self._refuse(key_line, "a key must be a word")
                if key.value in lines:
                    name = _short(key.value, plain=True)
                    self._refuse(key_line, f"{name} is there already, in line {lines[key.value]}")
                lines[key.value] = key_line
                found, size = self.counted(value)
                total = self._added(total, size, line)
                if key.tag == MERGE:  # one or several mappings, of which earlier ones take precedence
                    for one in reversed(found.items()):
                        merged |= one.mapping("<<")
                else:
                    explicit[key.value] = found
            content = {**merged, **explicit}
        else:
            content = []
            for one in node.value:
                item, size = self.counted(one)
                content.append(item)
                total = self._added(total, size, line)
        self._nodes[id(node)] = counted = Node(content=content, path=self._path, line=line), total
        return counted

    def _scalar(self, node: Any, line: int) -> Content:
        text: str = node.value
        is_time = node.tag == TIME or (node.tag in NUMBERS and ":" in text)
        if is_time and self._times_as_text:
            return text
        if is_time:
            self._refuse(line, f"takes plain values: got {_short(text)}; put it in quotes")
        if node.tag not in SCALARS:
            self._refuse(line, f"takes plain values: got {node.tag}")
        if node.tag in NUMBERS and len(text) > MAX_YAML_NUMBER:
            self._refuse(line, f"takes numbers of at most {MAX_YAML_NUMBER} characters: got {len(text)}")
        try:
            value: Content = self._loader.construct_object(node)
            text.encode()
        except UnicodeEncodeError:
            self._refuse(line, f"text that is not Unicode: {_short(text)}")
        except (ValueError, KeyError, IndexError):
            self._refuse(line, f"{_short(text)} is not a {node.tag.removeprefix(TAG)}")
        return value

    def _added(self, total: int, size: int, line: int) -> int:
        if total + size > MAX_YAML_VALUES:
            self._refuse(line, f"its aliases expand to more than {MAX_YAML_VALUES} values: is it an alias of an alias?")
        return total + size

    def _refuse(self, line: int, problem: str) -> NoReturn:
        raise UsageError(f"{self._path}:{line}: {problem}")


def _short(text: str, *, plain: bool = False) -> str:
    """Text for use in a message."""
    shortened = cut_off(text)
    return shortened if plain and shortened.isprintable() else ascii(shortened)
