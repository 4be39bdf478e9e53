"""The JSON Schema of a run file, derived from the records.

`python -m tests.helpers.run_schema > benchmarking/run.schema.json` renews the copy that ships with the program.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from benchmarking.core import records

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def run_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of a file that holds one `records.Run`."""
    definitions: dict[str, Any] = {}
    root = _schema(records.Run, definitions)
    definitions["Run"]["properties"]["format"] = {"const": records.FORMAT}
    definitions["Run"]["properties"]["format_version"] = {"const": records.FORMAT_VERSION}
    return {"$schema": DIALECT, "title": "benchhouse run", **root, "$defs": dict(sorted(definitions.items()))}


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field's type; records go to `definitions` and are referred to."""
    origin, arguments = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _reference(typing.cast(type[Any], kind), definitions)
    if kind is Any:
        return {}
    if origin is Annotated:
        limits = arguments[1]
        return {**_schema(arguments[0], definitions), "minimum": limits.least, "maximum": limits.most}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(option, definitions) for option in arguments]}
    if origin in (tuple, list):
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    names = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    return {"type": names[kind]}


def _reference(kind: type[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    reference = {"$ref": f"#/$defs/{kind.__name__}"}
    if kind.__name__ in definitions:
        return reference
    definitions[kind.__name__] = {}  # taken, should the record contain itself
    hints = typing.get_type_hints(kind, include_extras=True)
    texts = _field_texts(kind)
    properties = {}
    for field in dataclasses.fields(kind):
        text = {"description": texts[field.name]} if field.name in texts else {}
        properties[field.name] = {**_schema(hints[field.name], definitions), **text}
    definitions[kind.__name__] = {
        "type": "object",
        "description": inspect.getdoc(kind) or "",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }
    return reference


def _field_texts(kind: type[Any]) -> dict[str, str]:
    """The string that stands below a field in the source, which Python itself does not keep."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        is_text = (
            isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        )
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            texts[field.target.id] = " ".join(str(text.value.value).split())  # type: ignore[attr-defined]
    return texts


if __name__ == "__main__":
    print(json.dumps(run_schema(), indent=1))
