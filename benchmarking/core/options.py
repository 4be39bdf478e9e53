"""Options of runtimes, each declared by the runtimes that have it: flags, YAML keys, help and tables derive from them.

What an option is set to is part of the settings that name a series (`Runtime.mode`), so two values of it are never
compared as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarking.core.errors import UsageError
from benchmarking.core.records import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option as one runtime has it."""

    name: str
    """Its key in the settings of a run and in a YAML list, and its flag with `-` for `_`."""
    help: str
    """A noun phrase: what the option chooses; the same words in every runtime where it is the same choice."""
    values: tuple[str, ...] = ()
    """The words it takes, the default first; empty for any word."""
    default: str | None = None
    """What holds where the option is not given, in words; None for the first of `values`."""
    is_filled_in: bool = True
    """Whether settings name the default where the option is not given. Otherwise the runtime completes them."""
    has_flag: bool = True
    """Whether it is a flag and a YAML key; False for one that only a file of the runtime's own sets."""

    @property
    def flag(self) -> str:
        """The flag that sets it: "--compile-mode"."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def values_in_words(self) -> str:
        """Its values and its default: "dynamic or static (default: dynamic)"."""
        default = self.default or (self.values[0] if len(self.values) > 1 else None)
        listed = " or ".join(filter(None, (", ".join(self.values[:-1]), *self.values[-1:])))
        return " ".join(filter(None, (listed, default and f"(default: {default})")))

    def chosen(self, runtime: str, value: Scalar | None) -> Scalar:
        """The value that was asked for, or the default. Raises UsageError for one that the runtime does not have."""
        if value is None:
            return self.values[0]
        if self.values and value not in self.values:
            raise UsageError(f"{self.name} {value!r}: runtime {runtime} has {', '.join(self.values)}")
        return value


def chosen_settings(
    runtime: str, offered: Sequence[Option], asked: Mapping[str, Scalar], where: str
) -> dict[str, Scalar]:
    """The settings of a runtime from the options it offers and the values asked for, defaults filled in.

    `where` ends the sentence about an option that is not offered (" at task fill-mask on cpu"). Raises UsageError."""
    names = [option.name for option in offered]
    if unknown := sorted(set(asked) - set(names)):
        raise UsageError(f"runtime {runtime} has no option {unknown[0]!r}{where}; it has {', '.join(names) or 'none'}")
    return {
        option.name: option.chosen(runtime, asked.get(option.name))
        for option in offered
        if option.name in asked or (option.is_filled_in and option.values)
    }
