"""`parse` of mlagility.parser and turnkeyml.parser, which scripts of these tools' model collections import.

`provided` makes both importable while a script runs; an installed package of that name is left alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

PACKAGES = ("mlagility", "turnkeyml")
DEFAULTS: Mapping[str, int | float | bool | None] = {
    "batch_size": 1,
    "max_seq_length": 128,
    "max_audio_seq_length": 25600,
    "height": 224,
    "width": 224,
    "num_channels": 3,
    "k": 2,
    "alpha": 2.2,
    "in_channels": 1433,
    "out_channels": 1500,
    "num_layers": 8,
    "pretrained": False,
    "kvcache": False,
    "model_path": None,
}
"""Argument of a script -> its value without --script-args, in turnkeyml."""
OTHER_DEFAULTS: Mapping[str, Mapping[str, int | float | bool | None]] = {"mlagility": {"k": 8, "out_channels": 16}}
"""Package -> values that differ there."""


@contextmanager
def provided() -> Iterator[None]:
    """Inside, the modules can be imported."""
    added: list[str] = []
    for package in PACKAGES:
        if package in sys.modules or importlib.util.find_spec(package) is not None:
            continue
        parent, parser = ModuleType(package), ModuleType(f"{package}.parser")
        parent.__path__ = []
        defaults = {**DEFAULTS, **OTHER_DEFAULTS.get(package, {})}
        parser.__dict__["parse"] = lambda names, defaults=defaults: parse(names, defaults)
        parent.__dict__["parser"] = parser
        sys.modules |= {package: parent, parser.__name__: parser}
        added += [package, parser.__name__]
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)


def parse(names: Sequence[str], defaults: Mapping[str, Any]) -> list[Any]:
    """The values of these arguments on the script's command line (`--batch_size 8`), else their defaults, in order.
    Raises KeyError for an unknown name; other arguments on the command line end the script."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in names:
        if name not in defaults:
            raise KeyError(f"{name} is not an argument of these parsers, which have {', '.join(defaults)}")
        default = defaults[name]
        if isinstance(default, bool):
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", default=default, type=str if default is None else type(default), nargs="?")
    found = vars(parser.parse_args())
    return [found[name] for name in names]
