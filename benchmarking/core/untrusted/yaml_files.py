"""YAML with line numbers, so that errors can name the place. Only plain data types are read, within limits.

Everything in the product that is YAML is read here: aliases and merge keys, by which a few lines can stand for billions
of values, are counted before they are expanded, and no scalar is converted that is not a plain word or number.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from benchmarking.core.errors import FormatError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.untrusted.input_files import MAX_DEPTH, read_text

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1_000_000
"""Maximum size of a file; the parser reads about 100 kB per second."""
MAX_NODES = 100_000
"""Maximum values in a document, including copies by aliases and merge keys."""
MAX_NUMBER = 40
"""Maximum characters of a number."""

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
        text = read_text(path, MAX_BYTES)
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
    return reader.node(root)


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
            if self._composed > MAX_NODES:
                self._refuse(line, f"more than {MAX_NODES} values")
            if self._depth > MAX_DEPTH:
                self._refuse(line, f"lists and mappings are nested more than {MAX_DEPTH} levels deep")
            node = compose(parent, index)
            self._depth -= 1
            return node

        loader.compose_node = compose_node  # type: ignore[method-assign]

    def node(self, node: Any) -> Node:
        return self._counted(node)[0]

    def _counted(self, node: Any) -> tuple[Node, int]:
        if id(node) in self._nodes:
            known = self._nodes[id(node)]
            if known is None:
                self._refuse(node.start_mark.line + 1, "an alias contains itself")
            return known
        self._nodes[id(node)] = None
        line = node.start_mark.line + 1
        content, size = self._content(node, line)
        counted = Node(content=content, path=self._path, line=line), size
        self._nodes[id(node)] = counted
        return counted

    def _content(self, node: Any, line: int) -> tuple[Content, int]:
        """The content and the number of values in it."""
        if node.id == "scalar":
            return self._scalar(node, line), 1
        if node.tag not in CONTAINERS:
            self._refuse(line, f"takes plain lists and mappings: got {node.tag}")
        if node.id == "mapping":
            # The keys of the mapping, then those of mappings merged by "<<", which have lower precedence.
            explicit: dict[str, Node] = {}
            merged: dict[str, Node] = {}
            lines: dict[str, int] = {}
            total = 1
            for key, value in node.value:
                name = self._key(key, lines)
                found, size = self._counted(value)
                total = self._added(total, size, line)
                if key.tag == MERGE:  # one or several mappings, of which earlier ones take precedence
                    for one in reversed(found.items()):
                        merged |= one.mapping("<<")
                else:
                    explicit[name] = found
            return {**merged, **explicit}, total
        items: list[Node] = []
        total = 1
        for one in node.value:
            item, size = self._counted(one)
            items.append(item)
            total = self._added(total, size, line)
        return items, total

    def _scalar(self, node: Any, line: int) -> Content:
        text: str = node.value
        is_time = node.tag == TIME or (node.tag in NUMBERS and ":" in text)
        if is_time and self._times_as_text:
            return text
        if is_time:
            self._refuse(line, f"takes plain values: got {_short(text)}; put it in quotes")
        if node.tag not in SCALARS:
            self._refuse(line, f"takes plain values: got {node.tag}")
        if node.tag in NUMBERS and len(text) > MAX_NUMBER:
            self._refuse(line, f"takes numbers of at most {MAX_NUMBER} characters: got {len(text)}")
        try:
            value: Content = self._loader.construct_object(node)
            text.encode()
        except UnicodeEncodeError:
            self._refuse(line, f"text that is not Unicode: {_short(text)}")
        except (ValueError, KeyError, IndexError):
            self._refuse(line, f"{_short(text)} is not a {node.tag.removeprefix(TAG)}")
        return value

    def _added(self, total: int, size: int, line: int) -> int:
        if total + size > MAX_NODES:
            self._refuse(line, f"its aliases expand to more than {MAX_NODES} values: is it an alias of an alias?")
        return total + size

    def _key(self, key: Any, lines: dict[str, int]) -> str:
        line: int = key.start_mark.line + 1
        if not isinstance(key.value, str):
            self._refuse(line, "a key must be a word")
        if key.value in lines:
            self._refuse(line, f"{_short(key.value, plain=True)} is there already, in line {lines[key.value]}")
        lines[key.value] = line
        return key.value

    def _refuse(self, line: int, problem: str) -> NoReturn:
        raise UsageError(f"{self._path}:{line}: {problem}")


def _short(text: str, *, plain: bool = False) -> str:
    """Text for use in a message."""
    shortened = text if len(text) <= 60 else f"{text[:57]}..."
    return shortened if plain and shortened.isprintable() else ascii(shortened)
