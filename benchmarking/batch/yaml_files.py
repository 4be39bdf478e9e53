"""YAML with line numbers, so that errors can name the place. Only plain data types are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from benchmarking.core.errors import StorageError, UsageError

if TYPE_CHECKING:
    import yaml

MAX_NODES = 100_000
"""Limit of nodes: nested aliases can expand a few lines to billions of nodes."""

PLAIN_TAGS = ("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")

Content = dict[str, "Node"] | list["Node"] | bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value and where it is written."""

    content: Content
    path: Path
    line: int
    """From 1."""

    @property
    def where(self) -> str:
        """The place: "models.yaml:3"."""
        return f"{self.path}:{self.line}"

    def refuse(self, problem: str) -> NoReturn:
        """Raise UsageError about this place."""
        raise UsageError(f"{self.where}: {problem}")

    def mapping(self, what: str) -> dict[str, Node]:
        """The content of a mapping. Raises UsageError for anything else."""
        if not isinstance(self.content, dict):
            self.refuse(f"{what} takes keys and values: got {self.text}")
        return self.content

    def items(self) -> list[Node]:
        """The items of a list; anything else is a list of one."""
        return self.content if isinstance(self.content, list) else [self]

    @property
    def text(self) -> str:
        """The content in a message."""
        if isinstance(self.content, dict):
            return "a mapping"
        return "a list" if isinstance(self.content, list) else repr(self.content)


def read_yaml(path: Path) -> Node:
    """The document in a file. Raises UsageError for invalid YAML or a duplicate key, and StorageError."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file (UTF-8)") from error
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            raise UsageError(f"{path}: the file is empty")
        return _Reader(loader, path).node(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        raise UsageError(f"{path}{line}: not YAML: {getattr(error, 'problem', None) or error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: an alias contains itself, or lists are nested too deep") from error


class _Reader:
    """Turns yaml's nodes into ours."""

    def __init__(self, loader: yaml.SafeLoader, path: Path) -> None:
        self._loader = loader
        self._path = path
        self._count = 0

    def node(self, node: Any) -> Node:
        line = node.start_mark.line + 1
        self._count += 1
        if self._count > MAX_NODES:
            raise UsageError(f"{self._path}:{line}: more than {MAX_NODES} values: is there an alias of an alias?")
        return Node(content=self._content(node, line), path=self._path, line=line)

    def _content(self, node: Any, line: int) -> Content:
        if node.id != "scalar" and node.tag not in PLAIN_TAGS:
            raise UsageError(f"{self._path}:{line}: takes plain lists and mappings: got {node.tag}")
        if node.id == "sequence":
            return [self.node(item) for item in node.value]
        if node.id == "mapping":
            return self._mapping(node)
        value = self._loader.construct_object(node)
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise UsageError(f"{self._path}:{line}: takes plain values: got {node.value!r}; put it in quotes")

    def _mapping(self, node: Any) -> dict[str, Node]:
        self._refuse_twice(node)
        self._loader.flatten_mapping(node)  # "<<" takes over another mapping; the keys written here come last and win
        return {str(key.value): self.node(value) for key, value in node.value}

    def _refuse_twice(self, node: Any) -> None:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key.value, str):
                raise UsageError(f"{self._path}:{line}: a key must be a word")
            if key.value in seen:
                raise UsageError(f"{self._path}:{line}: {key.value} is there already, in line {seen[key.value]}")
            seen[key.value] = line
