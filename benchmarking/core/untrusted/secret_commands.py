"""Passwords in command lines and lines of password files, which are recognised by the program or by the file's form."""

from __future__ import annotations

import re

LOGINS = re.compile(
    r"""(?xm)(?P<sign>(?<![\w-])(?:-u|-U|--user|--proxy-user|--auth)[ =]["']?[^\s:"']{1,100}:
        | \bcurl(?:\s+[^\s|;]{1,200}){0,20}?\s+-\w{0,6}u\s{0,3}["']?[^\s:"']{1,100}:
        | \bcurl(?:\s+[^\s|;]{1,200}){0,20}?\s+-\w{0,6}b\s{0,3}["']?[^\s="']{1,100}=   # a cookie
        | \b(?:https?|xhs?)\s(?:[^\s|;]{1,100}\s+){0,9}?(?:-a\s+["']?[^\s:"']{1,100}:|(?:-a|--bearer)\s+(?=[\w.~-]{16}))
        | ^\#?(?:\*|[\w.-]{1,255}):(?:\*|\d{4,5}):(?:\*|[\w-]{1,63}):(?:\*|[\w-]{1,63}):(?=[^\s:]{4,100}$)  # .pgpass
        | \blogin\s+\S{1,100}\s+(?:account\s+\S{1,100}\s+)?password\s+                 # .netrc
        | \bsshpass\s+-p\s?
        | \b(?:mysql|mariadb)\w{0,12}(?:\s+[^\s|;]{1,100}){0,9}?\s+-p(?=\S)
        | \bredis-cli(?:\s+[^\s|;]{1,100}){0,9}?\s+-a\s+
        | \b(?:login|mongo\w{0,10}|cqlsh|impala-shell)(?:\s+[^\s|;]{1,100}){0,9}?\s+-p\s+    # login of docker, helm, oc
        | \b(?:sqlcmd|bcp|isql|ipmitool|bteq)(?:\s+[^\s|;]{1,100}){0,12}?\s+-P\s?
        | \bldap[a-z]{3,8}(?:\s+[^\s|;]{1,100}){0,12}?\s+-w\s+
        | \b(?:smbclient|rpcclient|net)\s(?:[^\s|;]{1,100}\s+){0,9}?-U\s?[^\s%"']{1,100}%
        | \blftp(?:\s+[^\s|;]{1,100}){0,9}?\s+-u\s+[^\s,"']{1,100},
        | \bnet\s+use\s+(?:\S{1,100}\s+){1,2}(?=\S{4,100}\s+/user:)
        | \bmc\s+(?:alias\s+set|config\s+host\s+add)\s+\S{1,100}\s+\S{1,200}\s+\S{1,100}\s+
        | \s-pass(?:in|out)?\s+pass:                      # openssl
        | \b(?:aws_)?(?:secret_access_key|session_token)\s+   # aws configure set, rclone
        | \b(?:requirepass|masterauth)\s+                 # redis.conf
        | \bwandb\s+login\s+(?=[0-9a-f]{40})
        | \b(?:vault|bao)\s+login\s+(?:-\S{1,100}\s+){0,4}(?:token=)?(?=\S{0,200}\d)
        | \bthin:[^\s/:"']{1,100}/                         # jdbc:oracle
        | \bconfig\s+set\s+(?:"[^"\n]{1,200}"|\S{1,200}(?i:token|password|secret|key|_auth))\s+   # npm, gcloud, yarn
        | \bpoetry\s+config\s+(?:http-basic\.\S{1,100}\s+\S{1,100}|pypi-token\.\S{1,100})\s+
        | \bgh\s+secret\s+set\s+\S{1,100}\s+(?:--body|-b)[ =]
        | --(?:password-stdin|with-token)\s*<<<\s*
        | \bConvertTo-SecureString\s+(?:-String\s+)?
    )["']?(?P<value>(?!//|\d+(?:\s|$))[^\s"']+)"""
)
PIPED = re.compile(
    r"""(?x)(?P<sign>\b(?:echo|printf)\s+(?:-\w{1,3}\s+)?(?:["']%s(?:\\n)?["']\s+)?["']?)(?P<value>[^\s|"']{4,500})
    (?=["']?\s*\|[^|\n]{0,200}--(?:password-stdin|with-token))"""
)
"""What a shell sends to a command that reads a password."""
LOGIN_WORDS = (
    *("-u", "-U", "user", "login", "sshpass", " -p", " -a", "aws_", "requirepass", "masterauth", "thin:", "curl"),
    *(" -P", " -w", "net use", "mc ", "-pass", "secret_access", "session_token", "config set", "poetry", "gh secret"),
    *("<<<", "SecureString", "--auth", "--bearer"),
)
"""A text without any of them, and without a line of .pgpass, has no match of LOGINS."""
PASSWORD_FILE_LINE = re.compile(r":(?:\*|\d{4,5}):")


def has_logins(text: str) -> bool:
    """Whether it is worthwhile to look for logins."""
    return any(word in text for word in LOGIN_WORDS) or PASSWORD_FILE_LINE.search(text) is not None
