"""Published formats of tokens, keys and webhooks, by which they are recognised in any text."""

from __future__ import annotations

import binascii
import re
from itertools import pairwise

from benchmarking.core.untrusted.redaction import (
    ESCAPE,
    LEFT_OUT,
    NO_SECRET_KEYS,
    NO_SECRET_TOKENS,
    word_start,
    words_of,
)

GITHUB = "docs.github.com/en/code-security/secret-scanning/introduction/supported-secret-scanning-patterns"
GITLEAKS = "github.com/gitleaks/gitleaks/blob/master/config/gitleaks.toml"

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

TOKENS: tuple[tuple[str, str, str], ...] = (
    # issuer, format, source
    (
        "Hugging Face",
        r"(?:hf_(?=[a-z]*[A-Z0-9]|[a-z]{16})|api_org_)[A-Za-z0-9]{8,}",
        "huggingface.co/docs/hub/security-tokens",
    ),
    ("OpenAI, Anthropic, OpenRouter and others", r"sk-(?=[\w-]{0,64}\d)[\w-]{16,}", GITHUB),
    ("Groq", r"gsk_(?=\w{0,64}\d)\w{20,}", GITHUB),
    ("xAI", r"xai-(?=[\w-]{0,64}\d)[\w-]{30,}", GITHUB),
    ("Perplexity", r"pplx-[A-Za-z0-9]{24,}", GITHUB),
    ("Replicate", r"r8_[A-Za-z0-9]{30,}", GITHUB),
    ("NVIDIA", r"nvapi-[\w-]{30,}", GITHUB),
    ("Cerebras", r"csk-(?=[a-z0-9]{0,64}\d)[a-z0-9]{30,}", GITHUB),
    ("Fireworks", r"fw_(?=\w{0,64}\d)[A-Za-z0-9]{20,}", GITHUB),
    ("LangSmith", r"lsv2_(?:pt|sk)_\w{30,}", GITHUB),
    ("Pinecone", r"pcsk_\w{30,}", GITHUB),
    ("Tavily", r"tvly-(?=[\w-]{0,64}\d)[\w-]{16,}", GITHUB),
    ("Jina", r"jina_(?=[\w-]{0,64}\d)[A-Za-z0-9]{12,}[\w-]{12,}", "jina.ai/api-dashboard"),
    ("RunPod", r"rpa_[A-Z0-9]{30,}\w*", "docs.runpod.io/get-started/api-keys"),
    ("Together AI", r"tgp_v1_[\w-]{30,}", GITHUB),
    ("ElevenLabs", r"sk_[0-9a-f]{48}\b", GITHUB),
    ("Modal", r"a[ks]-(?=[A-Za-z0-9]{0,21}\d)[A-Za-z0-9]{22}\b", "modal.com/docs/reference/modal.config"),
    ("Langfuse", r"[sp]k-lf-[0-9a-f-]{36}", GITHUB),
    ("Anyscale", r"esecret_[A-Za-z0-9]{20,}", GITHUB),
    ("Firecrawl", r"fc-[0-9a-f]{32}\b", GITHUB),
    ("LlamaCloud", r"llx-[\w-]{40,}", GITHUB),
    ("Voyage AI", r"pa-[\w-]{40,}", GITHUB),
    ("E2B", r"e2b_[0-9a-f]{40}", GITHUB),
    ("Kaggle", r"KGAT_\w{20,}", "www.kaggle.com/docs/api"),
    ("Weights & Biases", r"wandb_v1_\w{30,}", "docs.wandb.ai/platform/hosting"),
    ("GitHub", r"(?:gh[pousr]_|github_pat_)\w{20,}", GITHUB),
    ("GitLab", r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[\w.-]{16,}", "docs.gitlab.com/security/tokens"),
    ("GitLab runner", r"GR1348941[\w-]{20,}", "docs.gitlab.com/security/tokens"),
    ("AWS", r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b", "docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers"),
    ("Google API key", r"AIza[\w-]{35}", GITHUB),
    ("Google OAuth", r"(?:ya29\.[\w.-]{20,}|GOCSPX-[\w-]{20,})", GITHUB),
    ("Google OAuth refresh", r"1//0[\w-]{30,}", "developers.google.com/identity/protocols/oauth2"),
    ("Mapbox", r"[ps]k\.eyJ[\w-]{10,500}\.[\w-]{20,}", "docs.mapbox.com/accounts/guides/tokens"),
    ("Azure", r"[\w~.]{3}\dQ~[\w~.-]{31,34}", GITLEAKS),
    ("Azure DevOps", r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}", GITHUB),
    ("Databricks", r"dapi[0-9a-f]{32}(?:-\d)?", GITHUB),
    ("Alibaba Cloud", r"LTAI[A-Za-z0-9]{12,24}\b", GITHUB),
    ("Tencent Cloud", r"AKID[A-Za-z0-9]{32}\b", GITHUB),
    ("DigitalOcean", r"do[opr]_v1_[0-9a-f]{64}", GITHUB),
    ("Heroku", r"HRKU-[\w-]{36,}", GITHUB),
    ("Fly.io", r"fm[12][a-z]?_[\w+/=-]{40,}", GITLEAKS),
    ("Vercel", r"vc[apirk]_[A-Za-z0-9]{24,}", GITHUB),
    ("Render", r"rnd_(?=\w{0,31}\d)[A-Za-z0-9]{32}\b", GITHUB),
    ("Yandex Cloud", r"AQVN[\w-]{35,}", GITHUB),
    ("ClickHouse Cloud", r"4b1d[A-Za-z0-9]{38}\b", GITLEAKS),
    ("Netlify", r"nfp_[A-Za-z0-9]{36,}", GITHUB),
    ("Supabase", r"(?:sbp_(?:v\d_|oauth_)?[0-9a-f]{40}|sb_secret_[\w-]{20,})", GITHUB),
    ("PlanetScale", r"pscale_(?:tkn|pw|oauth)_[\w.-]{30,}", GITHUB),
    ("Cloudflare", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}", GITLEAKS),
    (
        "Cloudflare",
        r"cf(?:k|ut|at)_[A-Za-z0-9]{40,}",
        "developers.cloudflare.com/fundamentals/api/get-started/token-formats",
    ),
    ("Tailscale", r"tskey-(?:[a-z]+-)?[\w-]{16,}", GITHUB),
    ("Vault, Terraform", r"(?:hv[sbr]\.[\w-]{20,}|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,})", GITHUB),
    ("Pulumi", r"pul-[0-9a-f]{40}", GITHUB),
    ("Doppler", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,}", GITHUB),
    ("1Password", r"ops_eyJ[\w+/=-]{50,}", GITLEAKS),
    ("Docker", r"dckr_(?:pat|oat)_[\w-]{20,}", GITHUB),
    ("npm", r"npm_[A-Za-z0-9]{30,}", GITHUB),
    ("PyPI", r"pypi-[\w-]{30,}", GITHUB),
    ("RubyGems", r"rubygems_[0-9a-f]{48}", GITHUB),
    ("crates.io", r"cio[A-Za-z0-9]{32}\b", GITHUB),
    ("NuGet", r"oy2[a-z0-9]{43}\b", GITHUB),
    ("Clojars", r"CLOJARS_[a-z0-9]{60}", GITHUB),
    ("Open VSX", r"ovsx(?:p|at)_[0-9a-f-]{36}", GITHUB),
    ("JFrog", r"(?:AKCp[A-Za-z0-9]{60,}|cmVmd[A-Za-z0-9]{59})", GITLEAKS),
    ("Slack", r"(?:xox[a-z](?:\.xox[bp])?-[\w-]{10,}|xapp-[\w-]{20,}|xwfp-[\w-]{20,})", GITHUB),
    ("Telegram", r"\d{8,10}:AA[\w-]{32,34}", "core.telegram.org/bots/api"),
    ("Discord", r"[MNO][A-Za-z0-9_-]{23,25}\.[\w-]{6}\.[\w-]{27,38}", GITHUB),
    ("Stripe", r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,})", GITHUB),
    ("Square", r"(?:sq0[ac][a-z]{2}-[\w-]{22,}|EAA[A-Za-z][\w-]{60})", GITHUB),
    ("Shopify", r"shp(?:at|ca|it|pa|ss|ua)_[0-9a-fA-F]{32}", GITHUB),
    ("SendGrid", r"SG\.[\w-]{16,32}\.[\w-]{16,64}", GITHUB),
    ("Brevo", r"xkeysib-[0-9a-f]{64}-\w{16}", GITHUB),
    ("MailerSend", r"mlsn\.[0-9a-f]{64}", GITHUB),
    ("Mailgun", r"(?:pub)?key-[0-9a-f]{32}\b", GITHUB),
    ("Twilio", r"SK[0-9a-f]{32}\b|AC[0-9a-f]{32}:[0-9a-f]{32}\b", GITHUB),
    ("Shippo", r"shippo_(?:live|test)_[0-9a-f]{40}", GITHUB),
    ("ReadMe", r"rdme_[a-z0-9]{60,}", GITHUB),
    ("Mux, DNKey and others", r"dnkey-\w{20}-\w{30,}|tk-us-[\w-]{48}", GITHUB),
    ("Amazon Bedrock", r"ABSK[A-Za-z0-9+/]{100,}={0,2}|bedrock-api-key-[A-Za-z0-9+/=]{20,}", GITLEAKS),
    ("Grafana", r"(?:gls?a?c?_[\w+/=]{30,})", GITHUB),
    ("New Relic", r"NR(?:AK|JS|II|RA|IQ)-[A-Za-z0-9_-]{19,}", GITHUB),
    ("PostHog", r"ph[cx]_[A-Za-z0-9]{40,}", GITHUB),
    ("Sentry", r"sntry[su]_[\w+/=-]{40,}", GITHUB),
    ("Dynatrace", r"dt0[a-z]\d{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}", GITHUB),
    ("Linear", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}", GITHUB),
    ("Notion", r"(?:ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43})", GITHUB),
    ("Atlassian", r"(?:ATATT3|ATCTT3)[\w=-]{50,}|ATBB[A-Za-z0-9_=.-]{28,}", GITHUB),
    ("Adobe", r"p8e-[A-Za-z0-9]{32}\b", GITLEAKS),
    ("Facebook", r"EAACEdEose0cBA\w+", GITHUB),
    ("Airtable", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}", GITHUB),
    ("Figma", r"fig[dour]_[\w-]{30,}", GITHUB),
    ("Postman", r"(?:PMAK-[0-9a-f]{24}-[0-9a-f]{34}|PMAT-[0-9A-Z]{26})", GITHUB),
    ("CircleCI", r"CCIP(?:AT|RJ)_[A-Za-z0-9]{22}_[0-9a-f]{40}", GITHUB),
    ("Buildkite", r"bk(?:ua|pt|at|ct)_[0-9a-zA-Z]{40,}", GITHUB),
    ("Prefect", r"pn[ub]_[A-Za-z0-9]{36}", GITHUB),
    ("Sourcegraph", r"sg[pda]_(?:[A-Za-z0-9]{16}_)?[0-9a-f]{40}", GITHUB),
    ("age", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}", "github.com/C2SP/C2SP/blob/main/age.md"),
    (
        "Stripe's form, which many use",
        r"[a-z]{2,12}_(?:live|test|prod)_(?=[A-Za-z0-9]{0,64}\d)(?=[0-9]{0,64}[A-Za-z])[A-Za-z0-9]{20,}",
        "docs.stripe.com/keys",
    ),
    ("HubSpot", rf"pat-[a-z]{{2}}\d-{UUID}", GITHUB),
    ("LaunchDarkly", rf"(?:api|sdk|mob)-{UUID}", GITHUB),
    ("Plaid", rf"(?:access|link|public)-(?:sandbox|development|production)-{UUID}", GITHUB),
    ("Mailchimp", r"[0-9a-f]{32}-us\d{1,2}\b", GITHUB),
    ("Sonar", r"sq[upa]_[0-9a-f]{40}", GITHUB),
    ("Flutterwave", r"FLWSECK(?:_TEST)?-[0-9a-zA-Z]{12,}(?:-X)?", GITLEAKS),
    ("Razorpay", r"rzp_(?:live|test)_[A-Za-z0-9]{14}\b", GITHUB),
    ("Inngest", r"signkey-(?:prod|test|branch)-[0-9a-f]{32,}", GITHUB),
    ("Lob", r"(?:live|test)_(?:pub_)?[0-9a-f]{31,35}\b", GITLEAKS),
    ("MaxMind", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk", GITLEAKS),
    ("Octopus Deploy", r"API-[A-Z0-9]{26}\b", GITLEAKS),
    ("Axiom", rf"xa[ap]t-{UUID}", GITHUB),
    ("Amazon Login, Marketplace", rf"amzn1\.oa2-cs\.v1\.[0-9a-f]{{64}}|amzn\.mws\.{UUID}", GITHUB),
    ("Snyk", r"snyk_(?:uat|sat)\.[\w.-]{30,}", GITHUB),
    ("LangChain", r"ls__[0-9a-f]{32}\b", GITHUB),
    ("Cursor", r"(?:crsr|key)_[0-9a-f]{64}\b", "docs.cursor.com/account/teams/admin-api"),
    ("Exa, Context7", r"(?:exa-|ctx7sk-)(?:[0-9a-f]{32}|[0-9a-f-]{36})\b", GITLEAKS),
    ("Wasmer", r"wap_[0-9a-f]{64}\b", GITHUB),
    ("key of a WebSocket", r"openai-insecure-api-key\.\S+", "platform.openai.com/docs/guides/realtime-websocket"),
    ("token of a WebSocket", r"base64url\.bearer\.authorization\.k8s\.io\.[\w-]+", "github.com/kubernetes/kubernetes"),
    ("Intra42", r"s-s4t2(?:ud|af)-[0-9a-f]{64}", GITLEAKS),
    ("EasyPost", r"EZ[AT]K[A-Za-z0-9]{54}", GITHUB),
    ("Neon", r"napi_[a-z0-9]{64}", GITHUB),
    ("Dropbox", r"sl\.[\w.-]{100,}", GITHUB),
    ("Firebase", r"AAAA[\w-]{7}:[\w-]{100,}", GITHUB),
    ("Twitter", r"A{20,22}[A-Za-z0-9%]{60,100}", GITLEAKS),
    ("Settlemint", r"sm_[aps]at_[A-Za-z0-9]{16}\b", GITLEAKS),
    ("Yandex", r"(?:t1\.[\w.-]{80,}|y0_[\w-]{50,})", GITHUB),
    ("OpenShift", r"sha256~[\w-]{43}", GITLEAKS),
    ("Resend", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}", "resend.com/docs/api-reference/introduction"),
    ("Typeform", r"tfp_[\w.-]{40,}", GITHUB),
    ("Contentful", r"CFPAT-[\w-]{40,}", GITHUB),
    ("Harness", r"[ps]at\.[\w-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}", GITLEAKS),
    ("Asana", r"\d/\d{12,18}(?:/\d{12,18})?:[0-9a-f]{32}", GITHUB),
    ("Salesforce", r"00D[A-Za-z0-9]{12,15}![\w.]{60,}", GITHUB),
    ("JSON Web Token", r"eyJ[\w-]{8,500}\.(?:[\w-]{4,9000}\.[\w-]*|\.[\w-]{8,})(?:\.[\w-]+){0,2}", "RFC 7519, 7516"),
)
"""Each format begins at the beginning of a word."""

TOKEN = re.compile(rf"{word_start('A-Za-z0-9_')}(?:{'|'.join(form for _, form, _ in TOKENS)})")
PRIVATE_KEY = re.compile(
    r"-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    r"(?:.*?-{4,5} ?END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}|.*)",
    re.DOTALL,
)
"""RFC 7468 and 4716."""
PUTTY_KEY = re.compile(r"(Private-Lines: \d+)\s.*", re.DOTALL)
"""tartarus.org/~simon/putty-snapshots/htmldoc/AppendixC.html"""
CREDENTIAL = re.compile(
    rf"(?P<scheme>(?:\b|{ESCAPE})(?:"
    r"Bearer(?: |\\{1,4}(?: |u0020)|%(?:25){0,3}20|\+)"
    r"(?!(?:authenti|authori|token|scheme|header|credential|require|securit)\w*\b)"
    r"|(?i:bearer(?: |: ?|, ?))(?=[^\s'\"]{0,200}?(?:\d|[a-z][A-Z]|=))"
    r"|(?i:basic(?: |%20))(?=[^\s'\"]{0,200}?[A-Z])(?=[^\s'\"]{0,200}?[a-z])(?=[\w+/-]{8})))"
    r"(?P<value>[\w.~+/=-]{8,})"
)
"""RFC 6750 and 7617."""

WEBHOOK = re.compile(
    r"""(?ix)(?P<start>://(?:
    hooks\.slack(?:-gov)?\.com/\w+/              # api.slack.com/messaging/webhooks
    | (?:\w+\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/  # docs.discord.com/developers/resources/webhook
    | [\w.-]{1,200}\.webhook\.office\.com/\w+/   # learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors
    | outlook\.office(?:365)?\.com/webhook/
    | [\w.-]{1,200}\.logic\.azure\.com(?::\d+)?/workflows/
    | api\.telegram\.org/(?:file/)?bot           # core.telegram.org/bots/api
    | hooks\.zapier\.com/hooks/
    | hook\.[\w.-]{1,40}\.make\.com/
    | maker\.ifttt\.com/trigger/
    | open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/(?:v2/)?hook/
    | events\.pagerduty\.com/(?:integration|x-ere)/
    | hooks\.chime\.aws/incomingwebhooks/
    | (?:webhook\.site|hc-ping\.com|ntfy\.sh)/(?=[^\s'"<>]{0,200}\d)
    | [^\s/'"<>]{1,255}/(?:[\w.~%-]{1,100}/){0,6}(?:incoming[-_]?|generic)?(?:web)?hooks?/(?=[^\s'"<>]{0,200}\d)
    ))[^\s'"<>]+"""
)
"""Addresses whose path is a secret: everybody who knows it can post."""


MESSENGERS = (
    *("slack", "discord", "tgram", "telegram", "msteams", "teams", "workflows", "gchat", "wxteams"),
    *("webex", "mattermost", "mmost", "rocketchat", "rocket", "zulip", "signal", "matrix", "feishu"),
    *("lark", "dingtalk", "wecombot", "pagerduty", "opsgenie", "pover", "pushover", "ntfy", "gotify"),
    *("ifttt", "pbul", "pushbullet", "twilio", "sns", "mailgun", "sendgrid", "sparkpost", "victorops"),
    *("splunk", "zapier", "bark", "join", "line", "ryver", "simplepush"),
)
"""Names that alerting tools use as the schemes of addresses: github.com/caronc/apprise/wiki, containrrr.dev/shoutrrr"""
MESSENGER = re.compile(
    rf"""(?ix)(?P<start>(?:(?<![\w.+-])|{ESCAPE})(?:{"|".join(MESSENGERS)})s?://)(?=[^\s'"<>]{{0,200}}\d)
    (?P<path>[^\s'"<>]{{6,1000}})"""
)
"""An address whose parts are keys."""

LONG = re.compile(r"[A-Za-z0-9]{20,}[\w-]*")
PREFIX = re.compile(
    word_start("A-Za-z0-9_.-")
    + r"(?P<first>[a-z][a-z0-9]{0,15}|[A-Z][A-Z0-9]{0,15})[-_.](?:(?:[a-z0-9]{1,8}|[A-Z0-9]{1,8})[-_.]){0,3}\Z"
)
MAX_PREFIX = 50
TOLD = re.compile(
    r"""(?xi)(?P<before>(?<!\w)(?:\w{1,20}[\ _-]){0,2})(?:key|token|secret|password|credentials?|login)
    (?:\ (?:is|was|set|to|for|of)){0,3}\W{1,4}\Z"""
)
"""A word for keys at the end of a text, with the words before it."""
DIGEST = re.compile(r"(?i)(?:sha|md5|blake)\w{0,8}[=:-]\S{0,50}\Z")
NO_SECRET_PREFIXES = (
    *("chatcmpl", "cmpl", "resp", "req", "request", "msg", "call", "run", "thread", "asst", "file", "batch", "step"),
    *("trace", "span", "id", "etag"),
)
"""Before the ids that servers give to answers."""
MIN_CHANGES = 0.48
"""Share of neighbours of different kinds (capital, small letter, digit): 0.62 in random text, 0.4 in names of models
and kernels with many abbreviations."""


def without_formats(text: str) -> str:
    """The text with `***` for tokens, keys and paths of webhooks."""
    text = TOKEN.sub(rf"\g<escape>{LEFT_OUT}", text)
    if "BEGIN " in text:
        text = PRIVATE_KEY.sub("***", text)
    if "Private-Lines: " in text:
        text = PUTTY_KEY.sub(r"\1 ***", text)
    if "earer" in text or "asic" in text or "BEARER" in text:
        text = CREDENTIAL.sub(_without_credential, text)
    text = LONG.sub(_without_random, text)
    return MESSENGER.sub(r"\g<start>***", WEBHOOK.sub(r"\g<start>***", text)) if "://" in text else text


def _without_credential(found: re.Match[str]) -> str:
    """`***` for a credential; "Basic" is also a word before others, which are no user and password in Base64."""
    is_basic, value = "basic" in found["scheme"].lower(), found["value"]
    is_name = is_basic and re.fullmatch(r"[A-Z]?[a-z]+(?:[A-Z][a-z]+)*\d{0,4}", value) is not None
    if is_name and b":" not in binascii.a2b_base64(value + "A" * (-len(value) % 4)):
        return found[0]
    return f"{found['scheme']}{LEFT_OUT}"


def _without_random(found: re.Match[str]) -> str:
    """`***` for a random text after a prefix, the form of most keys whose issuer is not in the table, or after a word
    for keys, in any sentence."""
    first = max(0, found.start() - MAX_PREFIX)
    prefix, run = PREFIX.search(found.string, first, found.start()), re.match("[A-Za-z0-9]+", found[0])
    is_id = prefix is None or prefix["first"].lower() in NO_SECRET_PREFIXES
    told = TOLD.search(found.string, first, found.start()) if is_id else None
    if told is not None:
        is_id = (words_of(told["before"]) or [""])[-1] in (*NO_SECRET_KEYS, *NO_SECRET_TOKENS)
    if is_id or run is None or DIGEST.search(found.string, first, found.start()):
        return found[0]
    # Random are letters of both cases and digits that alternate as they do in no name, but in most keys.
    kinds = ["digit" if one.isdigit() else one.isupper() for one in run[0]]
    changes = [before != after for before, after in pairwise(kinds)]
    has_groups = len(re.findall("[0-9]+", run[0])) > 1 and len(set(kinds)) == 3
    return "***" if has_groups and sum(changes) >= MIN_CHANGES * len(changes) else found[0]
