"""Redaction of everything stored or printed: secrets, the home folder, and on request host and user names.

Secrets become `***` (see `secret_texts`), also the values of tags, variables and fields with the name of one; the login
of a URL is removed.

The home folder in paths becomes `~`. An anonymous record contains neither host nor user name; a name by which records
must stay distinguishable becomes a `pseudonym`.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from benchmarking.core.codec import SURROGATE, from_json, to_json
from benchmarking.core.errors import StorageError, storage_errors
from benchmarking.core.untrusted.secret_texts import (
    LEFT_OUT,
    PLAIN_VALUE,
    Known,
    is_secret_field,
    is_secret_name,
    known_secrets,
    without_formatted_secrets,
    without_secret_arguments,
    without_secrets,
)

Record = TypeVar("Record")

HOME = "~"

NAMED_VALUES = frozenset({"tags", "environment_variables", "kept"})
"""Fields whose keys are chosen by users."""
FOREIGN_TEXTS = frozenset({"config"})
"""A model's configuration, whose texts are parts of the model: only secrets with a known format are removed."""

HOMES = re.compile(
    r"(?<!\w)(?:/(?:home|Users|export/home)/|[A-Za-z]:\\Users\\)[^/\\\s\"':,;)]+|(?<![\w/])/root(?=$|[/\s\"':,;)])"
)
"""The home folder of any user."""
FOLDERS = re.compile(
    r"""
    (?<![\w.…/\\-])(?:
        (?:file://)?(?:~|[A-Za-z]:)?/(?:[^\s/\\'"<>:;,|*?=(){}\[\]]+/)+     # /data/models/...
        | (?:~|[A-Za-z]:)\\(?:[^\s/\\'"<>:;,|*?=(){}\[\]]+\\)+              # C:\data\models\...
        | \\\\(?:[^\s/\\'"<>:;,|*?=(){}\[\]]+\\)+                          # \\server\share\...
    )""",
    re.VERBOSE,
)
"""The folders of a path without spaces in them."""
QUOTED_FOLDERS = re.compile(r"""(?<=["'`])(?:~|[A-Za-z]:)?[/\\][^"'`\n]*[/\\](?=[^"'`\n/\\]+["'`])""")
WHOLE_PATH = re.compile(r"(?P<flag>--?[\w-]+=)?(?:~|[A-Za-z]:)?[/\\][^\n]*[/\\](?P<name>[^/\\\n]+)")
"""Text that is a path or an argument with a path, possibly with spaces."""
SENTENCE = re.compile(r"[:;,]\s")
"""A path at the beginning of a longer text."""
SHORT = "…/"
"""Replacement of folders."""
FOREIGN_BYTE = re.compile(r"\\x([89a-f][0-9a-f])")
KEY_BYTES = 32
MIN_NAME_LENGTH = 3
"""Minimum length of redacted host and user names, since shorter ones occur in other words."""


def from_home(text: str) -> str:
    """The text with `~` for the home folder at the beginning of paths."""
    pattern = _home_pattern(os.path.expanduser(HOME))
    return text if pattern is None else pattern.sub(HOME, text)


def to_home(text: str) -> str:
    """A path written by `redacted_path`, with `~` expanded to this user's home folder."""
    path = os.path.expanduser(text) if text == HOME or text.startswith(("~/", "~\\")) else text
    if "\\x" not in path or not os.path.isabs(path) or os.path.exists(path):
        return path
    by_bytes = FOREIGN_BYTE.sub(lambda found: chr(0xDC00 + int(found[1], 16)), path)
    return by_bytes if os.path.exists(by_bytes) else path


def redacted_path(text: str) -> str:
    """The name or path of a folder as it is stored: with `~`, and with `\\xff` for each byte that is not UTF-8."""
    return readable(from_home(text))


def readable(text: str) -> str:
    """The text with `\\xff` for each byte of a name or argument that is not UTF-8."""
    return SURROGATE.sub(lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", text)


def expanded(value: Any) -> Any:
    """JSON values written by `redacted`, with `~` expanded to this user's home folder."""
    if isinstance(value, str):
        return to_home(value)
    if isinstance(value, dict):
        return {key: expanded(each) for key, each in value.items()}
    return [expanded(each) for each in value] if isinstance(value, list) else value


def redacted(value: Any, *, anonymous: bool = False) -> Any:
    """JSON values for storage: without secrets and with `~`; if anonymous, without host and user names."""
    return _redacted(value, "", "", anonymous, known_secrets())


def redacted_record(record: Record, *, anonymous: bool = False) -> Record:
    """A record for storage or display."""
    cleaned: Record = from_json(type(record), redacted(to_json(record), anonymous=anonymous))
    return cleaned


def without_names(text: str) -> str:
    """The text without the names of this host and user, and of the owners of home folders."""
    text = HOMES.sub(HOME, text)
    for name, word in ((platform.node(), "host"), (_user(), "user")):
        if len(name) >= MIN_NAME_LENGTH and name != text:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", word, text)
    return text


def without_folders(text: str) -> str:
    """The text with `…/` for the folders of each absolute path, which may reveal who works on what, and where."""
    if "/" not in text and "\\" not in text:
        return text
    whole = WHOLE_PATH.fullmatch(text)
    if whole is not None and not SENTENCE.search(text):
        return f"{whole['flag'] or ''}{SHORT}{whole['name']}"
    return FOLDERS.sub(SHORT, QUOTED_FOLDERS.sub(SHORT, text))


def pseudonym(name: str) -> str:
    """A name in place of one that must not be stored: always the same for this user on this machine.

    Its key stays here, since without one somebody could try all IP addresses. Raises StorageError.
    """
    import hmac

    return hmac.new(_pseudonym_key(), name.encode(), "sha256").hexdigest()[:16]


def _pseudonym_key() -> bytes:
    import secrets
    import tempfile

    from platformdirs import user_data_path

    path = user_data_path("benchhouse", appauthor=False) / "pseudonym.key"
    with storage_errors(f"cannot write {path}, the key of anonymous names"):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent) as new:
                new.write(secrets.token_bytes(KEY_BYTES))
                new.flush()
                with suppress(FileExistsError):  # another process was faster
                    os.link(new.name, path)
        key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise StorageError(f"{path}: expected a key of {KEY_BYTES} bytes, found {len(key)}: delete the file")
    return key


def _redacted(value: object, field: str, name: str, anonymous: bool, known: Known) -> object:
    """`field` is the innermost enclosing field that has its own rule."""
    if isinstance(value, str):
        if is_secret_name(name) if field in NAMED_VALUES else _is_secret(value, field, name):
            return LEFT_OUT
        if anonymous and name == "host":
            return ""
        return _redacted_text(value, field, anonymous, known)
    if isinstance(value, Mapping):
        return {
            str(_redacted_text(key, field, anonymous, known)): _redacted(
                each, key if key in NAMED_VALUES or key in FOREIGN_TEXTS else field, key, anonymous, known
            )
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        if value and type(value[0]) is float:  # raw samples: by far the most values
            return value
        if name == "command" and all(isinstance(each, str) for each in value):
            value = without_secret_arguments(value)
        return [_redacted(each, field, name, anonymous, known) for each in value]
    return value


def _is_secret(value: str, field: str, name: str) -> bool:
    """Whether a field of a foreign document, such as a header, has a secret."""
    return field not in FOREIGN_TEXTS and is_secret_field(name) and not PLAIN_VALUE.fullmatch(value)


def _redacted_text(text: str, field: str, anonymous: bool, known: Known) -> str:
    text = redacted_path(
        without_formatted_secrets(text, known) if field in FOREIGN_TEXTS else without_secrets(text, known)
    )
    return without_names(text) if anonymous else text


@cache
def _home_pattern(home: str) -> re.Pattern[str] | None:
    folders = {home.rstrip("/\\"), os.path.realpath(home).rstrip("/\\")} - {"", HOME}
    if not folders:
        return None
    names = "|".join(re.escape(folder) for folder in sorted(folders, key=len, reverse=True))
    return re.compile(rf"(?<![\w.-])(?<!\w/)(?:{names})(?=$|[/\\\s\"'`:,;)\]}}>])")


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no name for this user id
        return ""
