"""Finds secrets in text, and replaces them by `***`: by value, by format, and by the name before them.

By value: environment variables with the name of a secret, passwords in URLs, and what `know_secret` was given. By
format: `secret_formats`, logins and parameters of URLs. By name: `HF_TOKEN=...`, `--api-key ...`, headers, fields of
JSON, YAML and XML, SQL.

The patterns are compiled with the first text, so that a command that prints none starts faster.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarking.core.untrusted.secret_names import (
    KEY_FILE,
    LEFT_OUT,
    Known,
    is_flag,
    is_secret_flag,
    is_secret_name,
    known_secrets,
)


def without_secrets(text: str, known: Known | None = None) -> str:
    """The text without recognised secrets. `known` is `known_secrets()`, for callers with many texts."""
    from benchmarking.core.untrusted import secret_patterns

    redact = secret_patterns.without_secrets
    if len(text) <= secret_patterns.MAX_CACHED:
        redact = secret_patterns.short_without_secrets
    return redact(text, known_secrets() if known is None else known)


def compile_patterns() -> None:
    """Import what finds secrets, before a user's folder, with an `html.py` perhaps, is first on the module path."""
    from benchmarking.core.untrusted import secret_patterns  # noqa: F401


def without_formatted_secrets(text: str, known: Known | None = None) -> str:
    """The text without known values, published formats, and logins and parameters of URLs; names are not looked at."""
    from benchmarking.core.untrusted import secret_patterns

    return secret_patterns.without_formatted_secrets(text, known_secrets() if known is None else known)


def without_secret_arguments(arguments: Sequence[str]) -> list[str]:
    """Command-line arguments without secrets: the values of `--api-key VALUE`, NAME=VALUE and known formats."""
    result: list[str] = []
    for position, argument in enumerate(arguments):
        name, equals, _ = argument.partition("=")
        before = arguments[position - 1] if position else ""
        if KEY_FILE.fullmatch(argument.rpartition("=")[2]):
            result.append(without_secrets(argument))
        elif before.startswith("-") and "=" not in before and is_secret_flag(before) and not is_flag(argument):
            result.append(LEFT_OUT)
        elif equals and " " not in name and is_secret_name(name):
            result.append(f"{name}={LEFT_OUT}" if name.startswith("-") else LEFT_OUT)
        else:
            result.append(without_secrets(argument))
    return result
