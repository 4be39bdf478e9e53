"""`dataclass` as in the standard library, but the methods of a class are generated when one of them is first used.

The standard library compiles up to eight functions a class, which takes about a millisecond. A command imports up to
180 of these classes before it prints its help, and a measuring process uses a part of them; that was 40 % of the start.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, kw_only: bool = False, eq: bool = True):
        """The decorator of `dataclasses`, with the arguments that are used here.

        Classes inherit from one another if both are made by it. Fields, `replace`, pattern matching, copying and
        pickling are as usual; attributes of a frozen instance cannot be assigned, even those of a subclass without
        fields.
        """

        def decorate(cls: type) -> type:
            cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise dataclasses writes the signature, which takes longest
            written = set(vars(cls))
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
            generated = ["__init__", "__repr__"]
            if eq:
                generated.append("__eq__")
                if frozen:
                    generated.append("__hash__")
                elif "__hash__" not in written:
                    made.__hash__ = None
            if frozen and slots:
                generated += ["__getstate__", "__setstate__"]
            for name in generated:
                if name not in written:
                    setattr(made, name, _Method(made, name, {"frozen": frozen, "slots": slots, "eq": eq}))
            if frozen:
                made.__setattr__ = made.__delattr__ = _refuse
            return made

        return decorate


class _Method:
    """Stands for a generated method. When it is looked up, it puts the real ones into the class and returns its own."""

    def __init__(self, cls: type, name: str, arguments: dict[str, Any]):
        self._cls, self._name, self._arguments = cls, name, arguments

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        cls, after = self._cls, "__post_init__"
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        if hasattr(cls, after):
            names[after] = getattr(cls, after)
        fields = [(field.name, field.type, field) for field in dataclasses.fields(cls)]
        real = vars(dataclasses.make_dataclass(cls.__name__, fields, namespace=names, **self._arguments))
        for name, method in list(vars(cls).items()):
            if isinstance(method, _Method):
                setattr(cls, name, real[name])
        return real[self._name].__get__(instance, owner)


def _refuse(instance: object, name: str, *value: object) -> None:
    """The `__setattr__` and `__delattr__` of frozen instances."""
    raise dataclasses.FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
