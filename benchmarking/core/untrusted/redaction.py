"""Redaction of everything stored or printed: secrets, the home folder, and on request host and user names.

Secrets become `***`, also the values of tags, variables and fields with the name of one; the login of a URL is removed.
In texts they are found by value: environment variables with the name of a secret, passwords in URLs, and what
`know_secret` was given; by format: `secret_formats`, logins and parameters of URLs; and by the name before them:
`HF_TOKEN=...`, `--api-key ...`, headers, fields of JSON, YAML and XML, SQL. The patterns are compiled with the first
text, so that a command that prints none starts faster.

The home folder in paths becomes `~`. An anonymous record contains neither host nor user name; a name by which records
must stay distinguishable becomes a `pseudonym`.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path, PurePath
from typing import IO, Any, TypeVar
from urllib.parse import unquote

from benchmarking.core.codec import OBJECT, SURROGATE, from_json, to_json
from benchmarking.core.errors import StorageError, storage_errors

LEFT_OUT = "***"
"""What replaces a secret."""
ESCAPE = (
    r"(?:\\(?:[abefnrtv]|[0-7]{1,3}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})|%(?:25){0,3}[0-9A-Fa-f]{2}|\[[\d;:]{0,30}[mK])"
)
"""A sign as JSON, a program or a URL writes it, or the colour of a terminal: no part of the word that follows it."""


def word_start(signs: str) -> str:
    """A pattern of what precedes a word: nothing of a set of signs, or an escape, which the group `escape` has."""
    return rf"(?:(?<![{signs}])|(?P<escape>{ESCAPE}))"


NAME_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
ALWAYS_SECRET = (
    *("secret", "password", "passwd", "passphrase", "passcode", "credential", "credentials", "authorization", "apikey"),
    *("webhook", "dockerconfigjson"),
)
SECRET_AT_THE_END = (
    *ALWAYS_SECRET,
    *("token", "key", "pass", "pwd", "auth", "cookie", "bearer", "signature", "pat", "sig", "jwt"),
    *("sshpass", "storepass", "keypass", "authkey", "pw"),
)
SEVERAL = ("secrets", "passwords", "credentials", "apikeys")
"""Endings of the names of several secrets."""
SEVERAL_AFTER = ("api", "access", "auth", "bearer", "refresh")
"""Words before "keys" and "tokens" in names of several secrets: the tokens of models are counted."""
NAME_FIELDS = ("name", "key", "header", "param", "field", "variable", "label", "id")
VALUE_FIELDS = ("value", "val", "default", "values")
"""Fields of an object that is a name and its value, in any case."""
MOST_SECRETS = 100_000
"""Below it, a number after the name of several secrets is how many there are."""
JOINED_PASSWORDS = ("secret", "password", "passwd")
JOINED_ENDINGS = ("token", "apikey", *JOINED_PASSWORDS)
NO_SECRET_TOKENS = (
    *("first", "last", "next", "new", "per", "output", "input", "prompt", "time", "image", "audio", "video", "start"),
    *("end", "bos", "eos", "pad", "unk", "sep", "cls", "mask", "special", "tokens", "stop", "draft", "million"),
    *("boi", "eoi", "tool", "thinking", "reward", "step", "separator", "newline", "encoding"),
)
"""Words before "token" in the vocabulary of language models."""
NO_SECRET_KEYS = (
    *("cache", "primary", "foreign", "sort", "partition", "group", "public", "hash"),
    *("lookup", "dict", "row", "series", "explain", "join", "unique", "object"),
    *("index", "build", "map", "metric", "state", "query", "attention", "hashed", "project"),
    *("model", "layer", "prompt", "answer", "label", "image", "audio", "text", "split", "column", "dataset", "record"),
    *("config", "kernel", "tuning", "autotune", "bucket", "rng", "vocab", "attn", "max", "min"),
)
"""Words before "key" in the vocabulary of data and models."""
KEY_DATA = ["key", "data"]
"""The last words of the names of keys in a kubeconfig."""
WEAK_NAMES = ("token", "auth", "bearer", "signature", "sig", "pat", "pass", "pwd", "pw")
"""Names with other meanings, whose values are secrets unless they are a word."""
NO_SECRET_ENDINGS = ("file", "path", "dir", "folder", "type", "length", "policy", "count", "name")
"""Words after "password" and others, of properties of a secret."""
NUMBER = re.compile(r"[\d.]+")
KEY_FILE = re.compile(r"(?i)[\w~./\\:-]{1,200}\.(?:pem|key|crt|cer|p12|pfx)")
"""The name of a file with a key or certificate, which is no secret."""
PLAIN_VALUE = re.compile(
    rf"""(?ix) [\d.]{{1,6}} | \d{{1,6}}\.\d{{1,12}}
    | none | null | true | false | yes | no | on | off | unset | empty | unknown | missing
    | default | required | optional | enabled | disabled | failed | denied | refused | rejected | invalid | expired
    | expected | not | is | was | \*{{3,}} | </?[\w|]+> | \[(?!\d)\w+\] | \$\{{?\w+\}}?
    | {KEY_FILE.pattern.removeprefix("(?i)")}"""
)
"""What is no secret after the name of one: counts, switches, outcomes, placeholders, files of keys."""
BRACES = r"""\{[^{}\s"':]{4,200}\}"""
"""A value of ODBC that contains signs."""
VARIABLE_NAME = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
"""The name of a variable, in the place of the secret that it has."""
FIELD_NAME = re.compile(r"[a-z]+(?:[._](?:[a-z]+|\d{1,4}))+")
"""The name of a tensor or a column, as in a list of them: past_key_values.0.key, past_key_values.0.value."""
NUMBERS = re.compile(
    r"(?:(?:u?int|b?float|complex)\d{1,3}|bool)?[\[(]\s*(?:\d{1,6}(?:\.\d{1,12})?(?:\s*,\s*|\s*[\])]|$)){1,50}"
)
"""A shape or a list of numbers, or its beginning: what `attn_key=[64, 64]` and `key: float32[8, 64]` state."""
URL_PASSWORD = re.compile(r"""://[^/@:\s'"<>?#]{0,100}:(?!\d{1,5}(?:[/?#]|$))([^\s'"<>]{1,300})@(?!sha256:)""")
SECRET_FLAGS = ("key", "hft", "ak", "sk")
"""Flags of secrets, beside those with the name of one: -hft is llama.cpp's --hf-token, --ak and --sk are an access key
and its secret key."""
WORDS_BEFORE = 12
"""Arguments before one that are searched for the program of which it may be the password."""
READ_BYTES = 256_000
"""Of a log, so much is searched for secrets before its last lines are taken."""
MIN_KNOWN = 6
MIN_WORD = 8
"""Minimum length of a known secret that consists of letters of one case, and may thus be a word of other texts."""
NO_SECRETS = (
    *("password", "postgres", "postgresql", "benchhouse", "benchmark", "no-key", "no_key", "not-needed", "localhost"),
    *("required", "optional", "disabled", "enabled", "default", "external", "internal", "anonymous", "undefined"),
    *("production", "development", "token-abc123", "transformers", "runtimes", "openvino", "onnxruntime"),
)
"""Usual values of variables with the name of a secret that protect nothing, and are words of other texts."""
Known = frozenset[str]
_given: set[str] = set()


def know_secret(value: str) -> None:
    """From now on, this value is replaced in every text."""
    if _is_telling(value, MIN_WORD):
        _given.add(value)


def know_secrets_in(arguments: Iterable[str]) -> None:
    """Know the passwords in URLs and the values of secret flags among a command's arguments."""
    words = list(arguments)
    for before, word in zip(["", *words], words, strict=False):
        name, equals, value = word.partition("=")
        if before.startswith("-") and "=" not in before and is_secret_flag(before) and not KEY_FILE.fullmatch(word):
            know_secret(word)
        elif (
            equals
            and is_secret_name(name)
            and not is_weak(name, value)
            and not (KEY_FILE.fullmatch(value) or any(map(str.isspace, value)))
        ):
            know_secret(value)  # with spaces it is a sentence
        for password in _passwords(word):
            know_secret(password)


def know_secrets_named(values: Mapping[str, object]) -> None:
    """Know the secrets among values with names, such as the options of a user-written benchmark."""
    for name, value in values.items():
        if is_secret_value(name, value):
            know_secret(str(value))


def known_secrets() -> Known:
    """The values of all known secrets at this moment."""
    found = set(_given)
    for name, value in os.environ.items():
        if len(value) < MIN_KNOWN:
            continue
        if "://" in value:
            found.update(password for password in _passwords(value) if _is_telling(password, MIN_WORD))
        if is_secret_name(name):
            words = words_of(name)
            shortest = MIN_KNOWN if any(word in ALWAYS_SECRET for word in words) else MIN_WORD
            if _is_telling(value, shortest) and not (os.path.isabs(value) and os.path.exists(value)):
                found.add(value)
            found.update(one for one in _lines_and_password(value) if _is_telling(one, MIN_WORD))
        if len(value) > MIN_KNOWN and ("=" in value or ":" in value):
            found.update(one for one in _named_in(value) if _is_telling(one, MIN_WORD))
    return frozenset(found)


def _lines_and_password(value: str) -> list[str]:
    """The lines of a secret variable with several, and the password of one of the form user:password."""
    lines = [line.strip() for line in value.splitlines() if not line.startswith("-----")]
    _, colon, password = value.partition(":")
    is_login = bool(colon) and "://" not in value and not any(map(str.isspace, value))
    return [*(lines if len(lines) > 1 else []), *([password] if is_login else [])]


@lru_cache(maxsize=256)
def _named_in(value: str) -> tuple[str, ...]:
    """The values with a digit after names of secrets within a variable's value: a connection string, or JSON."""
    pairs = re.findall(r"""["']?([\w.-]{2,60})["']?\s?[=:]\s?["']?([^\s"';,{}]{6,500})""", value[:20_000])
    return tuple(
        secret
        for name, secret in pairs
        if is_secret_field(name) and any(map(str.isdigit, secret)) and not is_plain(name, secret)
    )


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether the value of this name is a secret: HF_TOKEN, api-key, dbPassword; not new_tokens or eos_token."""
    words = words_of(name)
    words = words[:-1] if words[-2:] == KEY_DATA else words
    if words in ([], ["key"]) or words[-1] in NO_SECRET_ENDINGS:  # "key=value" is not a secret
        return False
    if len(words) > 1 and words[-2] in {"token": NO_SECRET_TOKENS, "key": NO_SECRET_KEYS}.get(words[-1], ()):
        return False
    return (
        any(word in ALWAYS_SECRET for word in words)
        or words[-1] in SECRET_AT_THE_END
        or words[-1].endswith(JOINED_ENDINGS)
        or is_of_several(name)
    )


@lru_cache(maxsize=4096)
def is_of_several(name: str) -> bool:
    """Whether this is the name of several secrets: credentials, db_passwords, api_keys."""
    words = words_of(name) or [""]
    return words[-1].endswith(SEVERAL) or (
        words[-1] in ("keys", "tokens") and len(words) > 1 and words[-2] in SEVERAL_AFTER
    )


def is_plain(name: str, value: str) -> bool:
    """Whether the value of a secret's name is none. Tokens and keys are counted and measured, so numbers and lists of
    them are none of theirs; a password may be a number of four digits or more."""
    if not is_password_name(name):
        return PLAIN_VALUE.fullmatch(value) is not None or NUMBERS.fullmatch(value) is not None
    is_number = NUMBER.fullmatch(value) is not None and sum(map(str.isdigit, value)) >= 4
    return PLAIN_VALUE.fullmatch(value) is not None and not is_number


@lru_cache(maxsize=4096)
def is_password_name(name: str) -> bool:
    """Whether a value of this name may be a secret even if it is a number: one that somebody chose."""
    words = words_of(name) or [""]
    is_login = len(words) > 1 and words[-1] == "pwd"  # alone, it is a folder
    return is_login or words[-1].endswith((*ALWAYS_SECRET, *SEVERAL, *JOINED_PASSWORDS))


def is_secret_value(name: str, value: object) -> bool:
    """Whether a value of this name, of a field, is a secret: a text, or a number that somebody chose. A small number of
    several secrets is a count."""
    if isinstance(value, str):
        is_weak_name = name.lower() in WEAK_NAMES and not value.isdigit() and is_like_a_secret(value, is_field=True)
        return is_weak_name or (is_secret_field(name) and not is_plain(name, value))
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_password_name(name):
        return False
    return not (is_of_several(name) and value < MOST_SECRETS) and not is_plain(name, str(value))


def is_like_a_secret(value: str, *, is_field: bool) -> bool:
    """Whether the value of a weak name is no word or number; after a colon it must be longer, since in prose and in
    the answers of language models a colon follows these names too."""
    plain = value.strip("\"'\\")
    if is_field:
        return len(plain) >= MIN_KNOWN + 2 and any(map(str.isdigit, plain)) and not is_special(plain)
    return not is_word(plain) and not is_special(plain)


def is_special(text: str) -> bool:
    """Whether a text is a token of a language model, or code, rather than a secret."""
    if PLAIN_VALUE.fullmatch(text) is not None:
        return True
    in_braces = re.fullmatch(BRACES, text)  # {token} is a placeholder, but ODBC has passwords in braces
    is_placeholder = in_braces is None or re.fullmatch(r"\{[a-z_.]+\d?\}", text) is not None
    return text[:1] in ("<", "[", "(", "{", "|", "#") and is_placeholder


def is_weak(name: str, value: str) -> bool:
    """Whether a name has another meaning here, such as that of the tag pass=forward."""
    return name in WEAK_NAMES and is_word(value)


def is_secret_flag(name: str) -> bool:
    """Whether the argument after this flag is a secret."""
    return is_secret_name(name) or name.lstrip("-") in SECRET_FLAGS


@lru_cache(maxsize=4096)
def is_secret_field(name: str) -> bool:
    """Whether a header or field of this name almost always has a secret: in prose, a colon follows other words too."""
    words = words_of(name)
    return is_secret_name(name) and (
        len(words) > 1
        or words[-1] in ("cookie", *ALWAYS_SECRET)
        or (words[-1] != "token" and words[-1].endswith(JOINED_ENDINGS))
    )


def words_of(name: str) -> list[str]:
    return [word.lower() for word in NAME_WORDS.findall(re.sub("%5[Ff]", "_", name))]


def _is_telling(value: str, shortest_word: int) -> bool:
    """Whether a value can be told from other words of a text."""
    return len(value) >= (shortest_word if is_word(value) else MIN_KNOWN) and value.lower() not in NO_SECRETS


def is_word(text: str) -> bool:
    return text.isalpha() and (text.islower() or text.isupper() or text.istitle())


def _passwords(text: str) -> list[str]:
    return [unquote(found[1]) for found in URL_PASSWORD.finditer(text)] if "://" in text else []


def is_flag(argument: str) -> bool:
    """Whether an argument is the next flag rather than a value that begins with a dash."""
    return re.fullmatch(r"-[A-Za-z]|--[a-z][a-z-]*(?:=.*)?", argument, re.DOTALL) is not None


def without_secrets(text: str, known: Known | None = None) -> str:
    """The text without recognised secrets. `known` is `known_secrets()`, for callers with many texts."""
    from benchmarking.core.untrusted import secret_patterns

    redact = secret_patterns.without_secrets
    if len(text) <= secret_patterns.MAX_CACHED:
        redact = secret_patterns.short_without_secrets
    return redact(text, known_secrets() if known is None else known)


def cut_to(text: str, most: int) -> str:
    """The beginning of a text without secrets, which are found first: a part of one could not be recognised."""
    return without_secrets(text)[:most]


def end_of_log(log: IO[bytes]) -> str:
    """The last whole lines of a log, without secrets, of which some have several lines."""
    begin = log.seek(max(0, log.seek(0, os.SEEK_END) - READ_BYTES))
    text = log.read().decode("utf-8", "replace")
    return without_secrets(text.partition("\n")[2] if begin else text)


def last_line(log: Path) -> str:
    """The last line of a log, without secrets; empty if there is none."""
    try:
        with log.open("rb") as opened:
            return "".join(end_of_log(opened).strip().splitlines()[-1:])
    except OSError:
        return ""


def compile_patterns() -> None:
    """Import what finds secrets, before a user's folder, with an `html.py` perhaps, is first on the module path."""
    from benchmarking.core.untrusted import secret_patterns  # noqa: F401


def without_formatted_secrets(text: str, known: Known | None = None) -> str:
    """The text without known values, published formats, and logins and parameters of URLs; names are not looked at."""
    from benchmarking.core.untrusted import secret_patterns

    return secret_patterns.without_formatted_secrets(text, known_secrets() if known is None else known)


def without_secret_arguments(arguments: Sequence[str]) -> list[str]:
    """Command-line arguments without secrets: the values of `--api-key VALUE`, NAME=VALUE and known formats."""
    result, known = list[str](), known_secrets()
    for position, argument in enumerate(arguments):
        name, equals, given = argument.partition("=")
        before = arguments[position - 1] if position else ""
        is_file = KEY_FILE.fullmatch(argument.rpartition("=")[2]) is not None
        is_value = before.startswith("-") and "=" not in before and is_secret_flag(before) and not is_flag(argument)
        if is_value and not is_file:
            result.append(LEFT_OUT)
        elif (
            equals
            and " " not in name
            and (is_secret_flag(name) if name.startswith("-") else is_secret_name(name))
            and not (is_file or is_weak(name, given) or is_plain(name, given))
        ):
            result.append(f"{name}={LEFT_OUT}" if name.startswith("-") else LEFT_OUT)
        else:
            result.append(_told_by_words_before(argument, result[max(0, position - WORDS_BEFORE) : position], known))
    return result


def _told_by_words_before(argument: str, before: list[str], known: Known) -> str:
    """The argument without secrets, as the program and flags before it tell: redis-cli -h HOST -a PASSWORD."""
    is_of_flag = argument.startswith("-") or "".join(before[-1:]).startswith("-")
    for words in (before, before[-2:]) if is_of_flag and sum(map(len, before)) < READ_BYTES else (before[-2:],):
        text = "".join(f"{word} " for word in words)
        told = without_secrets(text + argument, known) if text and not re.search(r"\s", argument) else ""
        if text and told.startswith(text):
            return told[len(text) :]
    return without_secrets(argument, known)


Record = TypeVar("Record")

HOME = "~"

NUMBER_TYPES = (int, float)
NO_TEXTS = frozenset({int, float, bool, type(None)})
"""Types of values that nothing is removed from."""
NAMED_VALUES = frozenset({"tags", "environment_variables", "kept"})
"""Fields whose keys are chosen by users."""
PUBLIC_SOURCES = ("hub", "catalog")
"""Sources of models whose names are public, and no names of hosts."""
BENCH = "bench"
"""Source of a user-written benchmark, whose "config" is no model's, but has what its author gave it."""
FOREIGN_TEXTS = frozenset({"config"})
"""A model's configuration, whose texts are parts of the model: only secrets with a known format are removed."""

JOINED_FLAG = r"(?<![\w-])-[A-Za-z]"
"""A flag, which may precede a path without a space."""
SLASH = r"(?:\\{0,8}/|%(?:25){0,3}2[Ff])"
BACKSLASH = r"(?:\\{1,8}|%(?:25){0,3}5[Cc])"
HOMES = re.compile(
    rf"(?P<before>(?<!\w)|{ESCAPE}|{JOINED_FLAG})(?:"
    rf"(?:{SLASH}(?:home|Users|export{SLASH}home){SLASH}|[A-Za-z](?::|%(?:25){{0,3}}3[Aa]){BACKSLASH}Users{BACKSLASH})"
    rf"(?P<user>(?:(?!{SLASH}|{BACKSLASH})[^\s\"':,;)&])+)"
    rf"|(?<!/)(?<!%2[Ff]){SLASH}root(?=$|[/\s\"':,;)&\\]|{SLASH}))"
)
"""The home folder of any user, as it is, in JSON and in a URL."""
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
DOMAIN = r"(?:\.[A-Za-z][A-Za-z\d-]*){2,}"
"""The domain after the name of a host, if it is not known: "model.py" has none."""
FOREIGN_BYTE = re.compile(r"\\x([89a-f][0-9a-f])")
KEY_BYTES = 32
MIN_NAME_LENGTH = 3
"""Minimum length of redacted host and user names, since shorter ones occur in other words."""
NO_HOSTS = ("", "unknown", "none", "null", "n/a")
"""Words, in lower case, that a record has in place of a host's name."""


def from_home(text: str) -> str:
    """The text with `~` for the home folder at the beginning of paths."""
    pattern = _home_pattern(os.path.expanduser(HOME))
    return text if pattern is None else pattern.sub(rf"\g<before>{HOME}", text)


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


def redacted_folder(text: str) -> str:
    """The name or path of a model's folder or file as it is stored: without "./" at its beginning and "/" at its end,
    so that one folder is one model. A folder that is named like a flag or the home folder keeps its "./"."""
    path = PurePath(text)
    plain = str(path) if "\\" in text else path.as_posix()
    is_unclear = plain.startswith("-") or (plain.startswith(HOME) and not text.startswith(HOME))
    return redacted_path(f".{os.sep}{plain}" if is_unclear else plain)


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


def redacted(value: Any, *, anonymous: bool = False, then: Callable[[str], str] = str) -> Any:
    """JSON values for storage: without secrets and with `~`; if anonymous, without host and user names. What is left of
    each text is given to `then`."""
    known = known_secrets()
    home = _home_pattern(os.path.expanduser(HOME))
    names = _names_in(value) if anonymous else ()

    @cache  # most texts are names of fields
    def cleaned(text: str, is_foreign: bool, is_free: bool = False, is_public: bool = False) -> str:
        text = without_formatted_secrets(text, known) if is_foreign else without_secrets(text, known)
        text = readable(text if home is None else home.sub(rf"\g<before>{HOME}", text))
        if anonymous:
            users = {found["user"] for found in HOMES.finditer(text) if len(found["user"] or "") >= MIN_NAME_LENGTH}
            text = HOMES.sub(rf"\g<before>{HOME}", text)
            for user in (one for one in users if one in text):  # outside of the path, too
                text = re.sub(rf"(?<![\w.-]){re.escape(user)}(?![\w-])", "user", text)
        for name, pattern, word in () if is_public else names:
            if is_free or name != text:  # a whole text may be a word of ours, such as the name of a device
                text = pattern.sub(rf"\g<escape>{word}", text)
        return then(text)

    return _redacted(value, "", "", anonymous, cleaned)


def redacted_record(record: Record, *, anonymous: bool = False) -> Record:
    """A record for storage or display."""
    cleaned: Record = from_json(type(record), redacted(to_json(record), anonymous=anonymous))
    return cleaned


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
    return hmac.new(key, name.encode(), "sha256").hexdigest()[:16]


def _redacted(value: object, field: str, name: str, anonymous: bool, cleaned: Callable[..., str]) -> object:
    """`field` is the innermost enclosing field that has its own rule."""
    if isinstance(value, str):
        if field in NAMED_VALUES:
            is_secret = is_secret_name(name) and not (field == "tags" and is_weak(name, value))
        else:  # of a foreign document, such as a header
            is_secret = field not in FOREIGN_TEXTS and is_secret_value(name, value)
        if is_secret:
            return LEFT_OUT
        if anonymous and name == "host":
            return ""
        return cleaned(value, field in FOREIGN_TEXTS, field in NAMED_VALUES or name == "description")
    if type(value) in NO_TEXTS:
        return LEFT_OUT if field not in FOREIGN_TEXTS and is_secret_value(name, value) else value
    if isinstance(value, OBJECT):
        if field not in FOREIGN_TEXTS:
            value = _without_named_value(value, name)
        is_public, is_bench = value.get("source") in PUBLIC_SOURCES, value.get("source") == BENCH
        return {
            cleaned(key, field in FOREIGN_TEXTS): each
            if type(each) in NO_TEXTS and not (type(each) in NUMBER_TYPES and is_password_name(key))
            else cleaned(each, is_foreign=False, is_public=True)
            if is_public and key == "model_id" and isinstance(each, str)
            else _redacted(
                each,
                key if _has_own_rule(key, field) and not (is_bench and key in FOREIGN_TEXTS) else field,
                key,
                anonymous,
                cleaned,
            )
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        if NO_TEXTS.issuperset(map(type, value)):  # raw samples: by far the most values
            if field in FOREIGN_TEXTS or not is_password_name(name):
                return value
            return [LEFT_OUT if type(one) in NUMBER_TYPES and not is_plain(name, str(one)) else one for one in value]
        if field not in FOREIGN_TEXTS:
            value = _without_secret_items(value)
        return [_redacted(each, field, name, anonymous, cleaned) for each in value]
    return value


def _without_secret_items(items: Sequence[object]) -> list[object]:
    """A pair without the value of a secret, or arguments of a command without secrets, of which some may be numbers."""
    texts = [str(one) if isinstance(one, str) or type(one) in NUMBER_TYPES else "" for one in items]
    if len(items) == 2 and isinstance(items[0], str) and re.fullmatch(r"\w[\w.-]*", items[0]):
        are_names = all(map(FIELD_NAME.fullmatch, texts))
        if is_secret_value(items[0], items[1]) and not (is_word(texts[1]) or are_names):
            return [items[0], LEFT_OUT]
    if not any(isinstance(one, str) for one in items):
        return list(items)
    left = without_secret_arguments(texts)
    return [one if text == after else after for one, text, after in zip(items, texts, left, strict=True)]


def _without_named_value(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object without a secret, or a list of them, that it has as its "value": of its "name", or of its own name in
    the object around it. In one that is a secret, of several secrets ("credentials") or of cookies, each text is one,
    but no word and no name of a variable."""
    held = [key for key in value if key.lower() in VALUE_FIELDS]
    if held:
        named = {key.lower(): given for key, given in value.items() if isinstance(given, str)}
        of = next((named[key] for key in NAME_FIELDS if key in named), name)
        if is_secret_field(of):
            value = {**value, **{key: _without_secret_parts(of, value[key]) for key in held}}
    is_secret = is_of_several(name) or is_secret_field(name) or name.lower() == "cookies"
    return _without_secret_parts(name, value) if is_secret else value


def _is_secret_part(name: str, key: str, value: object) -> bool:
    """Whether a field of the object that is a secret is one, too: a text of one word that is no word of a language."""
    if not isinstance(value, str):
        return is_secret_value(name, value)
    return not (is_plain(key, value) or is_word(value) or VARIABLE_NAME.fullmatch(value) or " " in value)


def _without_secret_parts(name: str, value: Any) -> Any:
    """The value of a secret's name, or an object or list of them, without what is secret."""
    if isinstance(value, OBJECT):
        return {key: LEFT_OUT if _is_secret_part(name, key, one) else one for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [LEFT_OUT if is_secret_value(name, one) else one for one in value]
    return LEFT_OUT if is_secret_value(name, value) else value


def _has_own_rule(name: str, field: str) -> bool:
    """Whether the values of this field inside of `field` have a rule of their own: what an imported file calls
    "config" is no model's, but the settings of a tool, with its keys."""
    return name in NAMED_VALUES or (name in FOREIGN_TEXTS and field not in NAMED_VALUES)


@cache
def _home_pattern(home: str) -> re.Pattern[str] | None:
    folders = {home.rstrip("/\\"), os.path.realpath(home).rstrip("/\\")} - {"", HOME}
    if not folders:
        return None
    names = "|".join(re.escape(folder) for folder in sorted(folders, key=len, reverse=True))
    return re.compile(rf"(?P<before>(?<![\w.-])(?<!\w/)|{ESCAPE}|{JOINED_FLAG})(?:{names})(?=$|[/\\\s\"'`:,;)\]}}>])")


def _names_in(value: object) -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """The names of the hosts of records and of this one, of their domains and of this user, where each occurs as a word
    of its own, and the word in its place."""
    import getpass

    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # no name for this user id
        user = ""
    found = [(user, "", "user")]
    for host in dict.fromkeys((*_hosts_in(value), platform.node())):
        label, _, domain = host.partition(".")
        if host.lower() in NO_HOSTS:
            continue
        if label.isdecimal() or label == "localhost":
            found.append((host, "", "host"))
            continue
        domains = [rf"\.{re.escape(domain)}"] if domain else []
        if len(label) < MIN_NAME_LENGTH:  # only with its domain
            found.append((host, "", "host"))
        else:
            found.append((label, rf"(?:{'|'.join([*domains, DOMAIN])})?", "host"))
        found += [(domain, "", "domain")] if "." in domain else []
    return tuple(
        (name, re.compile(rf"{start}{re.escape(name)}{ending}(?![\w-])"), word)
        for name, ending, word in found
        for start in [word_start(r"\w-" if word == "domain" else r"\w.-")]
        if len(name) >= MIN_NAME_LENGTH
    )


def _hosts_in(value: object) -> Iterator[str]:
    """The hosts on which records were made."""
    if isinstance(value, OBJECT):
        for name, each in value.items():
            host = each.get("host") if name == "provenance" and isinstance(each, Mapping) else None
            if isinstance(host, str):
                yield host
            elif type(each) is not str and type(each) not in NO_TEXTS:  # most values are
                yield from _hosts_in(each)
    elif isinstance(value, list | tuple) and value and isinstance(value[0], OBJECT):
        for each in value:
            yield from _hosts_in(each)
