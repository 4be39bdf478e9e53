"""The patterns by which `redaction` finds secrets. Compiling them takes a sixth of the start of a command.

Passwords in command lines and lines of password files are recognised by the program or by the file's form.
"""

from __future__ import annotations

import base64
import html
import json
import re
from functools import lru_cache
from urllib.parse import quote

from benchmarking.core.untrusted.redaction import (
    BRACES,
    ESCAPE,
    LEFT_OUT,
    MIN_KNOWN,
    NO_SECRET_KEYS,
    NO_SECRET_TOKENS,
    SEVERAL,
    WEAK_NAMES,
    Known,
    is_flag,
    is_like_a_secret,
    is_plain,
    is_secret_field,
    is_secret_flag,
    is_secret_name,
    is_special,
    is_word,
    word_start,
    words_of,
)
from benchmarking.core.untrusted.secret_formats import without_formats

LOGINS = re.compile(
    rf"""(?xm)(?P<sign>(?:(?<![\w-])|{ESCAPE})"""
    r"""(?:-u|-U|--user|--proxy-user|--auth|--cert)[ =]["']?(?!\d+:\d+(?:[\s:]|$))[^\s:"']{1,100}:(?!\d{1,5}(?:\s|$))
        | \bcurl(?:\s+[^\s|;]{1,200}){0,20}?\s+-\w{0,6}u\s{0,3}["']?[^\s:"']{1,100}:
        | \bcurl(?:\s+[^\s|;]{1,200}){0,20}?\s+-\w{0,6}b\s{0,3}["']?[^\s="']{1,100}=   # a cookie
        | \b(?:https?|xhs?)\s(?:[^\s|;]{1,100}\s+){0,9}?(?:-a\s+["']?[^\s:"']{1,100}:|(?:-a|--bearer)\s+(?=[\w.~-]{16}))
        | ^\#?(?:\*|[\w.-]{1,255}):(?:\*|\d{4,5}):(?:\*|[\w-]{1,63}):(?:\*|[\w-]{1,63}):  # .pgpass
          (?!(?<=\d:)\d+$)(?=[^\s:]{4,100}$)
        | \blogin\s+\S{1,100}\s+(?:account\s+\S{1,100}\s+)?password\s+                 # .netrc
        | \bsshpass\s+-p\s?
        | \b(?:plink|pscp|psftp)(?:\s+[^\s|;]{1,100}){0,9}?\s+-pw\s+
        | \b(?:un)?zip(?:\s+[^\s|;]{1,100}){0,9}?\s+-P\s?
        | \b(?:7z[ar]?|(?:un)?rar)(?:\s+[^\s|;]{1,100}){0,9}?\s+-h?p(?=\S)
        | \bmosquitto_\w{3,5}(?:\s+[^\s|;]{1,100}){0,12}?\s+-P\s+
        | \bx?freerdp\w{0,4}\s(?:[^\s|;]{1,100}\s+){0,9}?/p:
        | \bhtpasswd\s(?:[^\s|;]{1,100}\s+){0,4}?-\w{0,4}b\w{0,4}\s+\S{1,200}\s+\S{1,100}\s+
        | \bchpasswd\b[^\n]{0,20}<<<\s{0,3}["']?[^\s:"']{1,100}:
        | \bsqlplus\s+(?:-\S{1,10}\s+){0,3}[^\s/]{1,100}/
        | (?<![\w-])AUTH\s+(?:default\s+)?(?=\S{8})(?=\S{0,100}\d)            # redis
        | \b(?:mysql|mariadb)\w{0,12}(?:\s+[^\s|;]{1,100}){0,9}?\s+-p(?=\S)
        | \bredis-cli(?:\s+[^\s|;]{1,100}){0,9}?\s+-a\s+
        | \b(?:mongo\w{0,10}|cqlsh|impala-shell|rabbitmqadmin)(?:\s+[^\s|;]{1,100}){0,9}?\s+-p(?:\s+|=)
        | \blogin(?:\s+[^\s|;]{1,100}){0,9}?\s+-p\s+(?!\d+(?:\s|$))               # of docker, helm, oc
        | \blogin\s(?:[^\s|;]{1,100}\s+){0,9}?(?:-u|--username)[ =]\S{1,100}\s+-p\s+
        | \b(?:sqlcmd|bcp|isql|ipmitool|bteq)(?:\s+[^\s|;]{1,100}){0,12}?\s+-P\s?
        | \bldap[a-z]{3,8}(?:\s+[^\s|;]{1,100}){0,12}?\s+-w\s+
        | \b(?:smbclient|rpcclient|net)\s(?:[^\s|;]{1,100}\s+){0,9}?-U\s?[^\s%"']{1,100}%
        | \blftp(?:\s+[^\s|;]{1,100}){0,9}?\s+-u\s+[^\s,"']{1,100},
        | \bnet\s+use\s+(?:\S{1,100}\s+){1,2}(?=\S{4,100}\s+/user:)
        | \bmc\s+(?:alias\s+set|config\s+host\s+add)\s+\S{1,100}\s+\S{1,200}\s+\S{1,100}\s+
        | \s-pass(?:in|out)?\s+pass:                      # openssl
        | \b(?:aws_)?(?:secret_access_key|session_token)\s+   # aws configure set, rclone
        | \b(?:requirepass|masterauth)\s+                 # redis.conf
        | \bwandb\s+login\s+(?:--relogin\s+)?(?=\w{20})(?=\S{0,100}\d)
        | \b(?:vault|bao)\s+login\s+(?:-\S{1,100}\s+){0,4}(?:token=)?(?=\S{0,200}\d)
        | \bthin:[^\s/:"']{1,100}/                         # jdbc:oracle
        | \bconfig\s+set\s+(?:"[^"\n]{1,200}"|\S{1,200}(?i:token|password|secret|key|_auth))\s+   # npm, gcloud, yarn
        | \bpoetry\s+config\s+(?:http-basic\.\S{1,100}\s+\S{1,100}|pypi-token\.\S{1,100})\s+
        | \bgh\s+secret\s+set\s+\S{1,100}\s+(?:--body|-b)[ =]
        | --(?:password-stdin|with-token)\s*<<<\s*
        | \bConvertTo-SecureString\s+(?:-String\s+)?
    )["']?(?P<value>(?!//|\d{1,3}(?:\s|$))[^\s"']+)"""
)
PIPED = re.compile(
    r"""(?x)(?P<sign>\b(?:echo|printf)\s+(?:-\w{1,3}\s+)?(?:["']%s(?:\\n)?["']\s+)?["']?)(?P<value>[^\s|"']{4,500})
    (?=["']?\s*\|[^|\n]{0,200}(?:--(?:password-stdin|with-token)|\bsudo\s(?:-\S{1,20}\s){0,3}?-\w{0,5}S|\bkinit\b
    |\bpasswd\s+--stdin|\bchpasswd\b))"""
)
"""What a shell sends to a command that reads a password."""
LOGIN_WORDS = (
    *("-u", "-U", "user", "login", "sshpass", " -p", " -a", "aws_", "requirepass", "masterauth", "thin:", "curl"),
    *(" -P", " -w", "net use", "mc ", "-pass", "secret_access", "session_token", "config set", "poetry", "gh secret"),
    *("<<<", "SecureString", "--auth", "--bearer", "--cert", "freerdp", "htpasswd", "sqlplus", "AUTH", " -hp"),
)
"""A text without any of them, and without a line of .pgpass, has no match of LOGINS."""
PASSWORD_FILE_LINE = re.compile(r":(?:\*|\d{4,5}):")


MEASURED_TOKENS = ("first", "output", "per")
"""Words before "token" in the titles of metrics: "Time to first token: Qwen3-4B". Others, as in "new token: ...", may
precede a secret."""
MAX_BEFORE = 20
PROSE = (
    *("a", "an", "and", "or", "is", "was", "are", "to", "for", "with", "without", "must", "needs", "need", "not", "no"),
    *("from", "in", "on", "as", "if", "when", "the", "takes", "requires", "require", "cannot", "can", "has", "have"),
    *("given", "instead", "again", "twice", "only", "expects", "expected", "value", "values", "that", "which", "it"),
    *("its", "of", "by"),
)
"""Words after a flag in a sentence about it."""
MAX_VALUE = 500
"""Characters that are read of a value without quotes before it is known to be a secret."""
CLOSING = {")": "(", "]": "[", "}": "{"}
REST = re.compile(r"""[^\s,;&"']*""")
QUOTED = r"""\\"(?:(?!\\").){0,4000}\\" | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.|\'\')*' """
ITEM = rf"""(?:{QUOTED} | [\d.]{{1,40}})"""
LIST = rf"""\[\s*{ITEM}(?:\s*,\s*{ITEM})*\s*\]"""
FLOW = r"""\[[^\[\]\n"']{1,2000}\]"""
"""A list of YAML without quotes."""
BLOCK = r"""[|>][+-]?[ \t]*\n[ \t]+[^\n]+"""
"""The first line of a block in YAML."""
TRIPLE = r"""\"{3}.{0,4000}?\"{3} | \'{3}.{0,4000}?\'{3}"""
DEEP = r"""\\{2,7}["'][^"'\\]{1,4000}"""
"""Text in quotes that were escaped several times."""
CURLY = r"""[\u201c\u2018\u201d][^\u201d\u2019\n]{0,4000}[\u201d\u2019]"""
"""Text in quotes of a text program."""
TAGGED = rf"""(?:!{{1,2}}[\w/]{{1,40}}|&\w{{1,40}})[ \t]+(?:{BLOCK}|{QUOTED}|[^\s,;"']{{1,{MAX_VALUE}}})"""
"""A value of YAML with its type or anchor."""
JOINED = rf"""[bfru]?(?:{QUOTED})(?:\\'(?=')|\s?\+\s?(?={QUOTED})|{QUOTED})*"""
"""Text in quotes, which a shell, or the sign "+", joins with what follows."""
SHELL = r"""\$\([^()\n]{1,400}\)|`[^`\n]{1,400}`"""
"""What a shell replaces by the output of a command."""
DEEPER = r"""\{\s*["']"""
OBJECT = rf"""{DEEPER}[^{{}}]{{1,2000}}\}}"""
"""An object of JSON; in one with others inside, each field is looked at."""
VALUE = re.compile(
    rf"""(?xs) {TRIPLE} | {DEEP} | {CURLY} | {SHELL} | {BRACES} | [\w:.]{{0,60}}\(\s*(?:{QUOTED}) | {JOINED} | {LIST}
    | {FLOW} | {OBJECT} | {BLOCK} | {TAGGED} | ["'][^\n]* | (?!{DEEPER})[^\s,;&"']{{1,{MAX_VALUE}}} """
)
VALUES = re.compile(
    rf"""(?xs) [bu]?(?:{QUOTED}) | {LIST} | {FLOW} | {OBJECT} | ["'][^\n]* | (?!{DEEPER})[^\s;&"']{{1,{MAX_VALUE}}} """
)
LINE = re.compile(rf"""(?xs) {QUOTED} | [^\n"']+ """)
SCHEMES = "bearer|basic|digest|negotiate|ntlm|hawk|hoba|token|key|api[-_]?key|oauth|dpop|gnap|signature"
AUTHORIZATION = re.compile(
    rf"""(?xs) (?:{QUOTED}) (?:\s?\+\s?(?:{QUOTED}))*
    | [A-Za-z][\w-]{{1,40}}[\ \t][\w-]+="?[^\s"',]*"?(?:,\s?[\w-]+="?[^\s"',]*"?)*  # Digest username="ann", realm=...
    | (?i:{SCHEMES})(?:[\ \t]+|\r?\n[\ \t]+)(?:{SHELL}|[^\s,;"']+)
    | [A-Z][\w-]{{1,40}}[\ \t](?=[^\s,;"']*\d|[^\s,;"']{{16}})[^\s,;"']+
    | [^\s,;"']+ """
)
"""The value of an Authorization header: a scheme and its credential."""
COOKIE_NAMES = ("cookie", "cookies")
COOKIE = r"""[^\s;,"'={}]+(?:=(?:"[^"]*"|[^\s;,"']*))?"""
COOKIES = re.compile(rf"""(?xs) {QUOTED} | \{{[^{{}}]*\}} | {COOKIE}(?:;\s?{COOKIE})* """)
HINT = re.compile(
    "secret|dockerconfig|pass|credential|auth|key|token|pwd?|cookie|bearer|sig|pat|webhook", re.IGNORECASE
)
"""A part of every name of a secret."""
BEFORE_HINT = re.compile(r"(?:[\w.-]|%5[Ff]){0,100}\Z")
AFTER_HINT = re.compile(
    r"""(?x)(?P<name>(?:[\w.-]|%5[Ff]){1,200})(?P<close>(?:\\{0,7}["'\u201d\u2019]|%22)[\]}]?)?
    (?P<sign>(?:[\ \t]{1,30}(?=[:=])|\s)?(?::\s?[A-Za-z][\w.]{0,40}(?:\[[\w\ |,.]{1,60}\])?\s?=\s?(?=["'])
        | (?:(?:\|\||\?\?|[:?])?=>?|:|%3[ADad])\s?(?:\{\s{0,20}["']value["']\s?:\s?)?))?"""
)
FLAG = re.compile(
    "(?xs)"
    + word_start(r"\w-")
    + rf"""(?P<name>--?[A-Za-z][\w-]{{0,60}})
    (?P<sign>["']?\s{{0,9}}\n\s{{0,40}}-\s+|\s+(?:\\{{1,4}}\n\s*)?)(?P<value>{QUOTED} | (?!<<<)[^\s"']+)"""
)
"""A flag and its value, which may be on the next line, or the next item of a list in YAML."""
PAIR = re.compile(
    rf"""(?xs)(?P<sign>(?:[(\[]\s?b?["']|["'](?=-))(?P<name>[\w-]{{1,60}})["']\s?,\s?)
    (?P<value>(?!b?["']-)b?(?:{QUOTED})|\d[\d.]{{3,40}}(?=\s?[,\])]))"""
)
"""An element of a list of pairs, or a flag and its value in a list of arguments."""
ELEMENT = re.compile(
    r"""(?x)(?P<sign><(?:\w{1,40}\s{1,4}(?:key|name)=["'])?(?P<name>[\w:.-]{1,60})
    (?:(?:["']?|\s[^<>]{0,200})>(?:<!\[CDATA\[)?|\s{1,4}value=["']))
    (?P<value>[^<"'\]]{1,4000})(?=\]\]>|</|["'])"""
)
CALL = re.compile(rf"""(?xs)\b(?P<name>[A-Za-z]\w{{2,60}})(?P<sign>\()(?P<value>{QUOTED})(?=\s?[,)])""")
ATTRIBUTE = re.compile(
    rf"""(?xsi)(?P<sign>\b(?:key|name|param|header|field)["']?\s?[=:]\s?["']?(?P<name>[\w:.-]{{1,60}})["']?,?
    \s{{0,20}}["']?\bvalue["']?\s?[=:]\s?)(?P<value>{OBJECT} | {QUOTED} | (?!{DEEPER})[^\s"',;]{{1,{MAX_VALUE}}})"""
)
"""An element of XML, or an object of JSON or YAML, with a name and its value."""
VALUE_FIRST = re.compile(
    rf"""(?xsi)(?P<sign>["']value["']\s?:\s?)(?P<value>{QUOTED})
    (?=\s?,\s?["'](?:key|name)["']\s?:\s?["'](?P<name>[\w:.-]{{1,60}})["'])"""
)
SET = re.compile(
    rf"""(?xs)\b(?P<sign>(?:setx|set(?=\s+-)|setenv|ENV|Env:|setenv\()(?:\s+[-/]\w{{1,6}}){{0,3}}\s*["']?
    (?P<name>[A-Za-z]\w{{1,60}})["']?[\s,]\s*)(?P<value>{QUOTED} | [^\s"']+)"""
)
"""A variable that a shell, a program or a Dockerfile sets."""
SET_CALL = re.compile(
    rf"""(?xsi)(?P<sign>\b(?:set|put)\w{{0,20}}\(\s?["'](?P<name>[\w.]{{2,60}})["']\s?,\s?)(?P<value>{QUOTED})"""
)
LOGIN_CALL = re.compile(
    rf"""(?xs)(?P<sign>(?:\b\w{{0,40}}(?i:auth|login|authenticate)\s?(?:=\s?)?\(|\b(?i:http_?auth|auth)\\?["']?\s?:\s?[(\[])\s?
    (?:\w{{1,20}}\s?=\s?)?[bu]?(?:{QUOTED})\s?,\s?(?:\w{{1,20}}\s?=\s?)?)(?P<value>[bu]?(?:{QUOTED}))(?=\s?[,)\]])"""
)
"""A user and a password in a call: auth=("ann", "..."), HTTPBasicAuth("ann", "...")."""
KEY_WORDS = "(?:api|access|secret|private|signing)[ _-]?key"
TOLD_NAME = re.compile("[Kk]ey|KEY|[Tt]oken|TOKEN|[Pp]assword")
LETTER_AHEAD = r"""(?=[^\s,;"']{0,100}[A-Za-z])"""
TOLD_VALUE = rf"""(?P<value>(?=[^\s,;"']{{0,100}}\d){LETTER_AHEAD}[\w~.+/=@!$%&*^?-]{{8,200}})"""
SENTENCE = re.compile(
    rf"""(?xi)(?P<sign>(?<![\w-])
    (?P<name>{KEY_WORDS}|secret|token|(?P<chosen>passw(?:or)?d|pwd|passphrase|passcode))
    \ (?:(?:is|was)\ ?:? | (?:for|of)\ [\w.@-]{{1,60}}(?::|\ (?:is|was):?))\ ["']?)
    {TOLD_VALUE.replace(LETTER_AHEAD, rf"(?(chosen)|{LETTER_AHEAD})")}"""
)
"""A secret in a sentence: my API key is ..., the token was: ... A password may have digits alone."""
REFUSAL = re.compile(
    rf"""(?xi)(?P<sign>(?:(?<![A-Za-z\d-])|{ESCAPE})(?:(?P<name>{KEY_WORDS})
        (?:\ (?:provided|given|supplied|used|received|sent|rejected))?\s?(?::|=>?|->|(?=\())\s?
        | (?:invalid|incorrect|wrong|bad|unknown|expired|revoked)\ (?:x-)?(?:{KEY_WORDS}|bearer\ token)\s
    )["'`(\[]?)
    {TOLD_VALUE}"""
)
"""A secret in the words of a server: Incorrect API key provided: ..."""
REFUSED = re.compile(
    rf"""(?xi)(?P<sign>(?:(?<![\w-])|{ESCAPE})(?P<name>{KEY_WORDS}|token|password)\ ["'`]?)
    {TOLD_VALUE}(?=["'`]?\ (?:not\ found | (?:is|was|has)\ (?:(?:not|been)\ )?
    (?:valid|invalid|expired|revoked|unknown|malformed|wrong|incorrect|disabled|authori[sz]ed|recogni[sz]ed|accepted)))"""
)
"""A secret before the verb: Token ... is invalid."""
FOUND = re.compile(
    rf"""(?xs)(?P<sign>(?<![\w-])(?P<name>[\w-]{{2,60}}):\ expected\ [^\n]{{1,100}}?,\ found\ )
    (?P<value>{QUOTED} | \S+)"""
)
"""What a message of ours shows of a field with another type than expected."""
VARIABLE = re.compile(
    rf"""(?x)(?<![\w-])(?P<name>[A-Z][A-Z0-9]{{1,30}}(?:_[A-Z0-9]{{1,30}}){{1,6}})
    (?P<sign>["'`]?(?:\s?[|,]\s?|\s|</\w{{1,10}}>\s?<\w{{1,10}}>)(?:is\ )?(?:set\ to\ )?["'`]?)
    (?=[^\s,;"']{{16}})(?![A-Z][A-Z0-9]*_[A-Z0-9_]+\b){TOLD_VALUE}"""
)
"""A variable and its value in a table, or in a sentence."""
FLAG_IN_LIST = re.compile(
    word_start(r"\w-")
    + r"""(?P<name>--?[A-Za-z][\w-]{0,60})(?P<sign>,\s?)(?P<value>[^\s,\]"'=-][^\s,\]"']{3,300})(?=[,\]])"""
)
"""A flag and its value in a list of YAML without quotes."""
KEY_PART = re.compile(
    r"""(?x)(?P<sign>"(?:d|k|p|q|dp|dq|qi)"\s?:\s?"|<(?:D|P|Q|DP|DQ|InverseQ)>)(?P<value>[\w+/=-]{16,})"""
)
"""Private parts of a JSON Web Key (RFC 7517) or of a key in XML."""
SHORT_NAME = re.compile(
    r"(?P<sign>(?:[?&]|%(?:25){0,3}(?:3[Ff]|26)|(?<!\S)--)key(?:=|%(?:25){0,3}3[Dd])|[?&]code_verifier=|;(?i:jsessionid|phpsessid)=)(?P<value>(?=[\w.-]{0,200}\d)[\w.-]{12,})"
)
"""Parameters and a flag whose names alone are no names of secrets."""
BARE_KEY = re.compile(
    rf"(?P<sign>(?:(?<![\w.-])|{ESCAPE})key=[\"']?)"
    r"(?P<value>(?=[A-Za-z]*\d+[A-Za-z]+\d)[A-Za-z0-9]{16,200})(?![\w.-])"
)
"""A random text after "key=" in the error of a server; not the name of a metric or a file."""
SQL = re.compile(
    rf"""(?xs)\b(?P<sign>(?:SECRET|PASSWORD|KEY_ID|SESSION_TOKEN|CONNECTION_STRING|(?i:IDENTIFIED\ BY))\s{{1,4}})
    (?P<value>{QUOTED})"""
)
URL_LOGIN = re.compile(
    r"""(?x)(?:(?<=://)|(?<=:\\/\\/))(?:  # "/" may be escaped in JSON
        (?:[^/@\s'"<>?\#]{0,300}@)+
        | [^/@:\s'"<>?\#]{0,100}:(?!\d{1,5}(?:[/?\#]|$))[^\s'"<>]{0,300}@(?!sha256:)(?=[\w.\[/-])
    )"""
)
ENCODED_LOGIN = re.compile(r"(?i)(%3A(?:%2F|/){2})(?:(?!%2F|%3F|%40)[^\s'\"<>/?#@&]){1,300}%40")
URL_PARAMETERS = re.compile(r"(://[^\s'\"<>?#]{0,500}\?)[^\s'\"<>#]+")
"""All URL parameters, since signed URLs have secrets under many names."""
BARE_LOGIN = re.compile(
    word_start(r"\w.:/@+-")
    + r"""(?P<user>[A-Za-z][\w.+-]{0,63}):(?P<password>[^\s:/'"<>]{3,100})@(?=(?!sha256:)[\w\[])"""
)
LIMIT_OF_SHARE = re.compile(r"\d+(\.\d+)?[a-zA-Z%]{0,3}@p?\d{1,3}%?(?![\w.-])")
"""What is no password and host: the limit ttft:100ms@p90."""
DATED_MODEL = re.compile(
    r"""(?x)[A-Za-z][A-Za-z\d]*(?:[_.-][A-Za-z\d]+)+
    @(?:20\d\d-?(?:0[1-9]|1[0-2])-?(?:[0-3]\d?)?|00\d|latest|default)(?![\w.:/@-])"""
)
"""A model after its provider, and what is its version rather than a host: google_vertexai:claude-sonnet-4@20250514; a
narrow table cuts the end of a date off."""
TAG_WORD = re.compile(
    r"""(?xi) \d{1,3} | (?P<size>
        (?:\d{1,3}x)?\d{1,4}[bmk] | p\d\d\d? | w\d\d?a\d\d? | e\dm\d
        | (?:u?int|b?f|[bm]?x?fp|nvfp|[fn]f|float|i?q|v|bs?|[tpde]p)\d{1,3}
        | (?:onnxruntime|ort|openvino|tensorrt|trt|torch|vllm|sglang|llamacpp)\d{0,2}
    )
    | instruct | chat | base | it | pt | qat | code | coder | text | vision | vl | tiny | mini | small | medium | large
    | awq | gptq | gguf | moe | [klms] | x{1,2}[ls]"""
)
"""A word in the tag of a model, which a device or server follows: llama3:8b-instruct-q4_K_M@gpu0. Its group is a size,
type, percentile, version or runtime."""
NO_USERS = ("mailto", "sip", "sips", "xmpp", "acct", "file")
"""Schemes of addresses that look like a login."""
MAX_CACHED = 300
"""Maximum length of a text whose outcome is cached: records repeat most of theirs."""
CODE = (
    r"(?:\\{1,8}(?:u00|x)|%(?:25){0,3}|&(?:amp;){0,2}#x)(?P<hex>[0-9A-Fa-f]{2});?"
    r"|\\{1,8}(?:[nr]|u(?i:00ad|200[b-d]|2060|feff))"
)
"""A sign as its code in hex: of JSON, a program, a URL or HTML. The group is empty for one that `BREAK` has."""
CODES = re.compile(CODE)
SIGN = re.compile(rf"{CODE}|[A-Za-z0-9]")
BREAK = re.compile(r"[ \t│|]{0,80}\r?\n[ \t│|]{0,80}|[\u00ad\u200b-\u200d\u2060\ufeff]")
"""The end of a line, also in a frame, or a sign without width."""
NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())
MIN_BASE64 = 8
"""Minimum length of a known secret within longer Base64."""


def without_formatted_secrets(text: str, known: Known) -> str:
    """The text without known values, published formats, and logins and parameters of URLs; names are not looked at."""
    pattern = _known(known)
    if pattern is not None:
        text = _without_split(pattern.sub(rf"\g<escape>{LEFT_OUT}", text), known)
    text = without_formats(text)
    if "://" in text or r":\/\/" in text:
        text = URL_PARAMETERS.sub(rf"\1{LEFT_OUT}", URL_LOGIN.sub("", text))
    if "%40" in text:
        text = ENCODED_LOGIN.sub(r"\1", text)
    return BARE_LOGIN.sub(_without_login, text) if "@" in text else text


def without_secrets(text: str, known: Known) -> str:
    text = without_formatted_secrets(text, known)
    if ("uth" in text or "ogin" in text) and ("'" in text or '"' in text):
        text = LOGIN_CALL.sub(_without_value, text)
    if "=" in text or ":" in text or "%3" in text:
        text = _without_named(text)
    if "|" in text:
        text = PIPED.sub(_without_value, text)
    if "-" in text:
        text = FLAG_IN_LIST.sub(_without_listed_flag, FLAG.sub(_without_flag, text))
    if "'" in text or '"' in text:
        text = SQL.sub(_without_value, PAIR.sub(_without_named_value, text))
        text = CALL.sub(_without_called_value, text) if "(" in text else text
    if "alue" in text or "VALUE" in text:
        text = VALUE_FIRST.sub(_without_named_value, ATTRIBUTE.sub(_without_named_value, text))
    if "(" in text and ("'" in text or '"' in text):
        text = SET_CALL.sub(_without_named_value, text)
    if "set" in text or "ENV" in text or "Env:" in text:
        text = SET.sub(_without_named_value, text)
    if "<" in text:
        text = ELEMENT.sub(_without_named_value, text)
    if '"kty"' in text or "<RSAKeyValue>" in text:
        text = KEY_PART.sub(_without_value, text)
    if "=" in text or "%3" in text:
        text = BARE_KEY.sub(_without_bare_key, SHORT_NAME.sub(_without_value, text))
    if " is " in text or " was" in text or " for " in text or " of " in text:
        text = SENTENCE.sub(_without_told_value, text)
    if ", found " in text:
        text = FOUND.sub(_without_named_value, text)
    if "_" in text:
        text = VARIABLE.sub(_without_named_value, text)
    if TOLD_NAME.search(text) is not None:
        text = REFUSED.sub(_without_told_value, REFUSAL.sub(_without_told_value, text))
    has_logins = any(word in text for word in LOGIN_WORDS) or PASSWORD_FILE_LINE.search(text) is not None
    return LOGINS.sub(_without_value, text) if has_logins else text


short_without_secrets = lru_cache(maxsize=10_000)(without_secrets)
"""The same for texts of up to `MAX_CACHED` characters."""


@lru_cache(maxsize=8)
def _known(values: frozenset[str]) -> re.Pattern[str] | None:
    """Finds the values as they are or in another case, in any form of `_in_any_form`, in hex and in Base64, also as a
    part of something longer, but not inside other words."""
    whole, inside = set[str](), set[str]()
    for value in values:
        content = value.encode("utf-8", "surrogateescape")
        whole |= {_in_any_form(one) for one in (value, value.lower(), value.upper())}
        for digits in (content.hex(), content.hex().upper()):
            whole |= {digits, re.sub("..", r"%\g<0>", digits)}
        whole.add(re.escape(base64.b64encode(content).decode().rstrip("=")))
        inside |= {part for shift in range(3) if len(part := _base64_inside(content, shift)) >= MIN_BASE64}
    if not whole:
        return None
    word = rf"{word_start('A-Za-z0-9')}(?:{'|'.join(sorted(whole, key=len, reverse=True))})(?![A-Za-z0-9])"
    parts = "|".join(map(re.escape, sorted(inside, key=len, reverse=True)))
    return re.compile(rf"{word}|(?:{parts})[A-Za-z0-9+/]*" if parts else word)


def _without_split(text: str, known: Known) -> str:
    """The text without known values whose signs are codes, or have breaks or a blank each between them."""
    letters = _letters(text)
    for core, own in _cores(known):
        if own not in letters:
            continue
        signs = [found for found in SIGN.finditer(text) if _letters(found[0])]
        spelled, parts, position = "".join(_letters(found[0]) for found in signs), list[str](), 0
        at = spelled.find(own)
        while at >= 0:
            after = at + len(own)
            start, end = signs[at].start(), signs[after - 1].end()
            around = [one for one in (*signs[max(at - 1, 0) : at], *signs[after : after + 1]) if len(one[0]) == 1]
            is_inside = any(one.end() == start or one.start() == end for one in around)  # of another word
            is_value = not is_inside and _plain(text[start:end]) == core != _without_hyphens(text[start:end])
            if is_value:
                parts += [text[position:start], LEFT_OUT]
                position = end
            at = spelled.find(own, after if is_value else at + 1)
        text = "".join([*parts, text[position:]])
    return text


@lru_cache(maxsize=8)
def _cores(known: Known) -> tuple[tuple[str, str], ...]:
    """The values from their first letter to their last one, as they are compared, and their letters; but no numbers,
    which texts have in columns."""
    found = (re.search(r"[A-Za-z0-9].*[A-Za-z0-9]", value, re.DOTALL) for value in known)
    cores = [(_plain(one[0]), _letters(one[0])) for one in found if one]
    return tuple((core, letters) for core, letters in cores if len(letters) >= MIN_KNOWN and not letters.isdigit())


def _decoded(text: str) -> str:
    """The text with signs for their codes."""
    if "\\" in text or "%" in text or "&" in text:
        return CODES.sub(lambda found: chr(int(found["hex"], 16)) if found["hex"] else "\n", text)
    return text


def _letters(text: str) -> str:
    """The letters and digits of a text in lower case."""
    return _decoded(text).encode("ascii", "ignore").translate(None, NO_LETTERS).decode().lower()


def _plain(text: str) -> str:
    """A value as it is compared: without breaks, and without a blank between each of its signs."""
    plain = _without_hyphens(BREAK.sub("", _decoded(text)))
    return plain.replace(" ", "") if re.fullmatch(r"\S(?: +\S)*", plain) else plain


def _without_hyphens(text: str) -> str:
    """The text in lower case without hyphens, of which the end of a line may have one more."""
    return text.lower().replace("-", "")


def _in_any_form(value: str) -> str:
    """A pattern of the value whose signs may be written as in JSON, HTML, URLs (encoded up to four times), code, a
    shell, SQL or CSV, each in its own way.

    Each sign is matched in one way only (`(?>`), the longest forms first: a text with the beginning of a value of many
    signs, such as one that was cut off, would take exponential time.
    """
    pattern = backslashes = ""
    for signs in re.findall(r"\\+|'+|\"+|.", value, re.DOTALL):
        one, more = signs[0], "+" if len(signs) > 1 else ""
        if one.isascii() and one.isalnum():
            pattern, backslashes = pattern + one, ""
            continue
        number, sign, in_url = ord(one), re.escape(one), quote(one, safe="", errors="surrogateescape")
        in_url = f"%{number:02x}" if in_url == one else in_url
        escape = backslashes or r"\\{1,8}"
        forms = [sign * 2, rf"{sign}\"{sign}\"{sign}", rf"{sign}\\{sign * 2}"] if one in "'\"" else []
        forms += [r"\+"] if one == " " else []
        forms += [rf"{escape}(?:u{number:04x}|x{number:02x})", in_url.replace("%", "%(?:25){0,3}")]
        in_html = rf"(?:&(?:amp;){{0,2}}#(?:{number}|x{number:x});|{re.escape(html.escape(one))})"
        forms += [rf"\\{{0,8}}{in_html}"]  # JSON inside HTML has \&quot;
        if one == "\\":
            backslashes, forms, more = r"\\{0,8}", [*forms, r"\\"], "+"  # it takes those of the next sign's escape, too
        else:
            escaped = (re.escape(form[1:-1]).replace(r"\\", escape) for form in (json.dumps(one), repr(one)))
            backslashes, forms = "", [*forms, *escaped, rf"\\{{0,8}}{sign}"]
        pattern += f"(?>(?i:{'|'.join(dict.fromkeys(forms))}){more})"
    return f"{re.escape(value)}|{pattern}"


def _base64_inside(content: bytes, shift: int) -> str:
    """The Base64 characters that only this content determines, if `shift` bytes (of a multiple of 3) precede it."""
    encoded = base64.b64encode(bytes(shift) + content).decode()
    first, last = (0, 2, 3)[shift], 8 * (shift + len(content)) // 6
    return encoded[first:last]


def _without_named(text: str) -> str:
    """The text without the values after secret names with "=" or ":"."""
    parts, position, looked_at = list[str](), 0, 0
    for hint in HINT.finditer(text):
        if hint.start() < looked_at:
            continue
        start = hint.start() - 100 if hint.start() - looked_at > 100 else looked_at
        before = BEFORE_HINT.search(text, start, hint.start())
        found = AFTER_HINT.match(text, hint.start() if before is None else before.start())
        assert found is not None
        looked_at = found.end("name")
        value = None if found["sign"] is None else _named_value(text, found)
        told = "" if value is None else _without_closing(value[0]).strip("\"'\\")
        if value is not None and not is_plain(found["name"], told):
            parts += [text[position : found.end()], _hidden(value[0])]
            position = looked_at = value.end()
            if len(value[0]) == MAX_VALUE:
                position = looked_at = REST.match(text, position).end()  # type: ignore[union-attr]
    return "".join([*parts, text[position:]]) if parts else text


def _named_value(text: str, found: re.Match[str]) -> re.Match[str] | None:
    """The secret after a name and its sign; None if it is no secret."""
    name, sign = found["name"], found["sign"]
    is_field, last = ":" in sign, (words_of(name) or [""])[-1]
    if last in WEAK_NAMES and len(words_of(name)) == 1:
        before = text[max(0, found.start() - MAX_BEFORE) : found.start()]
        if is_field and last == "token" and (words_of(before) or [""])[-1] in MEASURED_TOKENS:
            return None
        value = VALUE.match(text, found.end())
        return value if value is not None and is_like_a_secret(value[0], is_field=is_field) else None
    if last != "cookies" and not (is_secret_field(name) if is_field else is_secret_name(name)):
        return None
    if last == "authorization":
        return AUTHORIZATION.match(text, found.end())
    if last in COOKIE_NAMES:
        cookies = COOKIES.match(text, found.end())
        return cookies if cookies is None or last == "cookie" or cookies[0][:1] == "{" or "=" in cookies[0] else None
    several = last.endswith(SEVERAL) or last == "keys"
    pattern = LINE if last == "passphrase" and is_field else VALUES if several else VALUE
    value = pattern.match(text, found.end())
    is_named = found["close"] or text[found.start() - 1 : found.start()] == "/"  # 'password' or /etc/passwd
    is_message = is_field and is_named and value is not None and _is_prose(text, value)
    return None if is_message else value


def _is_prose(text: str, value: re.Match[str]) -> bool:
    """Whether a word follows that is part of a message, such as "unknown tag 'password': known: ..."."""
    if re.match(r"\[\s*[\"'\d]", value[0]) and any(map(str.isdigit, value[0])):
        return False
    return value[0][:1] not in "\"'\\" and re.match(r"\[|[a-z]+[:?.!]?(?:\s|$)", text[value.start() :]) is not None


def _without_value(found: re.Match[str]) -> str:
    return found["sign"] + _hidden(found["value"])


def _without_named_value(found: re.Match[str]) -> str:
    if not is_secret_name(found["name"]) or is_plain(found["name"], found["value"].strip("\"'\\ ")):
        return found[0]
    return found[0][: found.start("value") - found.start()] + _hidden(found["value"])


def _without_called_value(found: re.Match[str]) -> str:
    """The argument of a call such as SecretStr('...'), if it is no word: names of secrets are arguments too."""
    plain = found["value"].strip("\"'\\ ")
    is_secret = is_secret_field(found["name"]) and not (is_word(plain) or "_" in plain or " " in plain)
    return _without_named_value(found) if is_secret else found[0]


def _without_told_value(found: re.Match[str]) -> str:
    before = (words_of(found.string[max(0, found.start() - MAX_BEFORE) : found.start()]) or [""])[-1]
    is_no_secret = (found["name"] or "").lower() == "token" and before in NO_SECRET_TOKENS
    return found[0] if is_no_secret or is_special(found["value"]) else _without_value(found)


def _without_bare_key(found: re.Match[str]) -> str:
    before = (words_of(found.string[max(0, found.start() - MAX_BEFORE) : found.start()]) or [""])[-1]
    return found[0] if before in NO_SECRET_KEYS else _without_value(found)


def _without_flag(found: re.Match[str]) -> str:
    value = found["value"]
    is_no_value = value in PROSE or re.fullmatch(r"[A-Z][A-Z_]*[:,.)]?", value) or is_flag(value)
    if not is_secret_flag(found["name"]) or is_no_value or is_plain(found["name"], value.rstrip(":,.")):
        return found[0]
    return found[0][: found.start("value") - found.start()] + _hidden(value)


def _without_listed_flag(found: re.Match[str]) -> str:
    """In prose, a comma and words follow the name of a flag."""
    return _without_flag(found) if any(map(str.isdigit, found["value"])) else found[0]


def _without_login(found: re.Match[str]) -> str:
    user, password = found["user"], found["password"]
    is_limit = LIMIT_OF_SHARE.match(found.string, found.start("password")) is not None
    is_dated = DATED_MODEL.match(found.string, found.start("password")) is not None
    words = [TAG_WORD.fullmatch(word) for word in re.split("[-_.]", password)]
    is_tag = all(words) and any(word is not None and word["size"] for word in words)
    if user in NO_USERS or password.isdigit() or is_limit or is_dated or is_tag or is_word(password):
        return found[0]
    return f"{found['escape'] or ''}{user}:{LEFT_OUT}@"


def _without_closing(value: str) -> str:
    """The value without the brackets at its end that close what began before it: {"password": 1234}."""
    while value[-1:] in CLOSING and value.count(value[-1]) > value.count(CLOSING[value[-1]]):
        value = value[:-1]
    return value


def _hidden(value: str) -> str:
    """What replaces a value, in its quotes."""
    opening = re.match(r"[bfru]?\\{0,7}[\"']", value)
    if opening is None:
        return LEFT_OUT + value[len(_without_closing(value)) :]
    quote_mark = opening[0].lstrip("bfru")
    is_closed = len(value) > len(opening[0]) and value.endswith(quote_mark)
    return f"{opening[0]}{LEFT_OUT}{quote_mark if is_closed else ''}"
