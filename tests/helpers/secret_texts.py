"""Texts with a secret in them, and texts without one, for measuring redaction: python -m tests.helpers.secret_texts

The secrets are invented. Those with a published prefix are assembled here, so that no scanner takes them for real ones.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable

MIXED = "aB3dE6gH1jK4mN7pQ9sT2vW5xY8zC0fL"
HEX = "3fa85f6457174562b3fc2c963f66afa6"
DIGITS = "1234567890"
WORDS = "correct-horse-battery"

KNOWN = {
    "OPENAI_API_KEY": "local-4f1c9d27",
    "DB_PASSWORD": "p@ss w0rd",
    "MY_SERVICE_TOKEN": "tik.tok~8841",
    "DATABASE_URL": "postgresql://bench:s3cr3t%2Fpart@db.example.org/x",
    "BENCHHOUSE_WEBHOOK_URL": "https://alerts.example.org/in/QxPz81",
}
"""Environment variables while the texts are redacted."""

BY_VALUE = [
    ('{"error": {"message": "Incorrect API key provided: local-4f1c9d27."}}', "local-4f1c9d27"),
    ("401: invalid key local-4f1c9d27", "local-4f1c9d27"),
    ("data: {'detail': 'local-4f1c9d27 is not allowed'}", "local-4f1c9d27"),
    ("key=local-4f1c9d27&model=x", "local-4f1c9d27"),
    ("https://example.org/v1/local-4f1c9d27/models", "local-4f1c9d27"),
    ("unknown user tik.tok~8841", "tik.tok~8841"),
    ("login failed with p@ss w0rd for bench", "p@ss w0rd"),
    ("login failed with p%40ss%20w0rd", "p%40ss%20w0rd"),
    ('FATAL: "p@ss w0rd"', "p@ss w0rd"),
    ("password authentication failed: s3cr3t/part", "s3cr3t/part"),
    ("password authentication failed: s3cr3t%2Fpart", "s3cr3t%2Fpart"),
    ("cannot reach https://alerts.example.org/in/QxPz81", "QxPz81"),
    ("ingelogd als (local-4f1c9d27)", "local-4f1c9d27"),
    ("bearer=" + base64.b64encode(b"local-4f1c9d27").decode(), base64.b64encode(b"local-4f1c9d27").decode()),
]

HEADERS = [
    ("Authorization: Bearer " + MIXED, MIXED),
    ("authorization: bearer abc", " abc"),
    ("Authorization: Token " + WORDS, WORDS),
    ("Authorization: token=" + MIXED, MIXED),
    ("Authorization: ApiKey " + MIXED, MIXED),
    ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("Proxy-Authorization: Negotiate YIIabcDEF123==", "YIIabcDEF123"),
    ('Authorization: Digest username="ann", realm="x", response="6629fae49393a05397450978507c4ef1"', "6629fae4"),
    ("Authorization: AWS4-HMAC-SHA256 Credential=ann/20260101/x, SignedHeaders=host, Signature=fe5f80f7", "fe5f80f7"),
    ('{"Authorization": "Token ' + WORDS + '"}', WORDS),
    ("{'authorization': 'Custom abc def'}", "abc def"),
    ("-H 'Authorization: Key " + WORDS + "' https://example.org", WORDS),
    ('curl -H "Authorization: GenieKey ' + HEX + '" https://example.org', HEX),
    ("Authorization=Bearer " + MIXED, MIXED),
    ("headers={'Authorization': 'Bearer ' + '" + MIXED + "'}", MIXED),
    ("Cookie: session=" + MIXED, MIXED),
    ("Cookie: theme=dark; sid=abc123def; csrftoken=zz99", "abc123def"),
    ("Cookie: theme=dark; sid=abc123def; csrftoken=zz99", "zz99"),
    ("Set-Cookie: sid=abc123def; Path=/; HttpOnly", "abc123def"),
    ('{"Cookie": "a=1; remember_me=abc123def"}', "abc123def"),
    ("X-Api-Key: abc123def", "abc123def"),
    ("x-goog-api-key: abc123def", "abc123def"),
    ("Ocp-Apim-Subscription-Key: " + HEX, HEX),
    ("X-Auth-Token: abc123def", "abc123def"),
    ("X-Vault-Token: abc123def", "abc123def"),
    ("PRIVATE-TOKEN: abc123def", "abc123def"),
    ("X-Amz-Security-Token: " + MIXED, MIXED),
    ("CF-Access-Client-Secret: " + HEX, HEX),
    ("x-functions-key: abc123def==", "abc123def"),
    ("xi-api-key: " + HEX, HEX),
    ("X-My-Password: opensesame", "opensesame"),
    ("> x-secret-thing: opensesame", "opensesame"),
    ("('X-Access-Key', 'abc123def')", "abc123def"),
]

ARGUMENTS = [
    ("run --api-key abc123def --url http://h", "abc123def"),
    ("run --key abc123def", "abc123def"),
    ("run --api-key -abc123def", "-abc123def"),
    ("run --password --pass12word", "--pass12word"),
    ("run --hf-token=-abc123def", "abc123def"),
    ("run --token 'abc 123 def'", "abc 123 def"),
    ('run --secret "abc\\"123\\"def"', "123"),
    ("curl -u ann:abc123def https://example.org", "abc123def"),
    ("curl --user ann:abc123def https://example.org", "abc123def"),
    ("run --tag HF_TOKEN=abc123def", "abc123def"),
    ("PGPASSWORD=abc123def psql", "abc123def"),
    ("export AWS_SECRET_ACCESS_KEY=abc/123+def", "abc/123+def"),
    ("--cookie 'sid=abc123def'", "abc123def"),
    ("sshpass -p abc123def ssh h", "abc123def"),
]

URLS = [
    ("https://ann:abc123def@example.org/x", "abc123def"),
    ("https://ann:p@X@example.org/x", "p@X"),
    ("postgresql://ann:p/q@db.example.org/x", "p/q"),
    ("postgresql+psycopg2://ann:abc123def@/x?host=/run", "abc123def"),
    ("redis://:abc123def@example.org:6379/0", "abc123def"),
    ("amqp://ann:a#b?c@example.org", "a#b?c"),
    ("ann:p@X@host", "p@X"),
    ("ann:abc123def@db.example.org:5432", "abc123def"),
    ("https://abc123def@example.org/org/repo.git", "abc123def"),
    ("https://example.org/a?X-Amz-Signature=abc123def&x=1", "abc123def"),
    ("https://example.org/a#access_token=abc123def", "abc123def"),
    ("https://hooks.slack.com/services/T0AAAA/B0BBBB/abc123def", "abc123def"),
    ("https://discord.com/api/webhooks/1234567890/abc123def", "abc123def"),
    ("https://acme.webhook.office.com/webhookb2/abc123def@x/IncomingWebhook/y/z", "abc123def"),
    ("https://api.telegram.org/bot1234567:abc123def/sendMessage", "abc123def"),
    ("https://hooks.zapier.com/hooks/catch/123/abc123def/", "abc123def"),
    ("https://maker.ifttt.com/trigger/x/with/key/abc123def", "abc123def"),
    ("https://open.feishu.cn/open-apis/bot/v2/hook/abc123def", "abc123def"),
    ("https://chat.example.org/hooks/abc123def", "abc123def"),
    ("host=db user=ann password=abc123def dbname=x", "abc123def"),
    ("host=db password='a b\\'c123' dbname=x", "c123"),
    ("Server=db;Uid=ann;Pwd=abc123def;", "abc123def"),
    ("AccountName=x;AccountKey=abc123def==;EndpointSuffix=y", "abc123def"),
    ("SharedAccessSignature=sv=2020&sig=abc123def", "abc123def"),
]

NAMED = [
    ('{"password": "abc\\"123def"}', "123def"),
    ('{\\"api_key\\": \\"abc123def\\"}', "abc123def"),
    ("api_key: abc123def", "abc123def"),
    ("client_secret: 'it''s 123def'", "123def"),
    ("password = \"a b 'c' 123def\"", "123def"),
    ("accessToken: abc123def", "abc123def"),
    ("<password>abc123def</password>", "abc123def"),
    ("CREATE SECRET s (TYPE s3, KEY_ID 'abc123def', SECRET 'zz99zz99')", "zz99zz99"),
    ("CREATE ROLE ann PASSWORD 'abc123def'", "abc123def"),
    ("machine example.org login ann password abc123def", "abc123def"),
    ("aws_session_token = abc123def", "abc123def"),
    ("passphrase: correct horse", "correct"),
    ("DJANGO_SECRET_KEY='abc$123=def'", "abc$123=def"),
    ("[('token', 'abc123def')]", "abc123def"),
    ("token = os.environ.get('T', 'abc123def')  # api_token=abc123def", "api_token=abc123def"),
]

PREFIXES = [
    "hf_" + MIXED,
    "sk-proj-" + MIXED,
    "sk-ant-api03-" + MIXED,
    "sk-or-v1-" + HEX + HEX,
    "gsk_" + MIXED,
    "xai-" + MIXED * 2,
    "pplx-" + MIXED,
    "r8_" + MIXED,
    "nvapi-" + MIXED,
    "ghp_" + MIXED,
    "github_pat_" + MIXED,
    "glpat-" + MIXED[:20],
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "GOCSPX-" + MIXED[:28],
    "xoxb-" + "123456789012-abcdefghij",
    "xapp-" + "1-A012-345-" + HEX,
    "sk_live_" + MIXED[:24],
    "rk_live_" + MIXED[:24],
    "whsec_" + MIXED,
    "npm_" + MIXED + "abcd",
    "pypi-" + MIXED,
    "dapi" + HEX,
    "dop_v1_" + HEX + HEX,
    "dckr_pat_" + MIXED[:27],
    "SG." + MIXED[:22] + "." + MIXED + "abcdefghijk",
    "shpat_" + HEX,
    "glsa_" + MIXED + "_1a2b3c4d",
    "hvs." + MIXED,
    "lin_api_" + MIXED + "abcdefgh",
    "lsv2_pt_" + HEX + "_0123456789",
    "figd_" + MIXED,
    "pul-" + HEX + "12345678",
    "tskey-auth-" + MIXED[:20],
    "sbp_" + HEX + "12345678",
    "ATATT3" + MIXED * 3,
    "NRAK-" + MIXED[:27].upper(),
    "rubygems_" + HEX + "0123456789abcdef",
    "sntrys_" + MIXED * 2,
    "pcsk_" + MIXED * 2,
    "tvly-" + MIXED,
    "jina_" + MIXED,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----",
    "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQPZRY9X8GF2TVDW0S3JN54KHC",
]
SECRETS = [
    *BY_VALUE,
    *HEADERS,
    *ARGUMENTS,
    *URLS,
    *NAMED,
    *((f"cannot load '{one}' twice", one.split("\n")[1] if "\n" in one else one) for one in PREFIXES),
]
"""(text, the part of it that must not remain)."""

HARMLESS = [
    "time_to_first_token=12.5",
    "time_to_first_token: 12.5 ms",
    "eos_token=</s>",
    "eos_token: '</s>', pad_token: '<pad>'",
    "new_tokens=16, max_tokens=x",
    "takes key=value: got 'x'",
    "token=16",
    "tokenizer=bpe author=ann monkey=1",
    "disk-based-and-risk-free-0123456789",
    "https://host/path#part",
    "no such key: hidden_size",
    "KeyError: 'hidden_size'",
    "unknown tag 'passwd': known: suite, night",
    "unknown tag 'api-key': did you mean suite? known: suite",
    "cannot read 'secret': [Errno 2] No such file or directory",
    "hf_transfer is not installed",
    "run 0199aa00-0000-7000-8000-000000000000 of org/sk-model",
    "run_hardware_benchmark --model-id gpt2 --batch-sizes 1,2 --new-tokens 16",
    "--api-key KEY: read from $OPENAI_API_KEY",
    "the key is read from OPENAI_API_KEY and stored nowhere",
    "give it with --key NAME",
    "primary key: run_id",
    "cache key: bert-base-uncased_cpu_float32",
    "cache_key: bert-base-uncased_cpu_float32",
    "sort-key: latency_median_ms",
    "partition_key=2026-01",
    "series key: model_id, batch_size",
    "num_key_value_heads=8, key_dim=64",
    "key_states: tensor(1, 2, 3)",
    "query, key, value = self.qkv(x)",
    "q_proj.weight, k_proj.weight: key mismatch",
    "<All keys matched successfully>",
    "Some weights were not used: ['cls.predictions.bias', 'token_type_embeddings']",
    "prompt_tokens: 12, completion_tokens: 34, total_tokens: 46",
    "tokens per second: 1234",
    "output_token_throughput: 99.5",
    "per_output_token_ms = 3.25",
    "special_tokens_map: {'unk_token': '<unk>', 'mask_token': '[MASK]'}",
    "Token indices sequence length is longer than the specified maximum (512 > 77)",
    "token_ids: [1, 2, 3]",
    "image_token_index=32000, decoder_start_token_id: 0",
    "the token was rejected by the server",
    "authorization failed: no key was given",
    "authorization: required",
    "Basic usage: run it twice",
    "a bearer of good news",
    "Bearer authentication is not supported",
    "cookie: none",
    "cookies are not used",
    "password: required",
    "the password was refused",
    "password authentication failed for user ann",
    "secret santa: 3 gifts",
    "it is no secret that float16 is faster",
    "http://127.0.0.1:8000/v1/chat/completions",
    "http://localhost:8080",
    "https://example.org/a/b/c.html",
    "https://huggingface.co/org/model/resolve/main/config.json",
    "https://github.com/org/repo/pull/12#issuecomment-34",
    "git@github.com:org/repo.git",
    "ssh://git@example.org/org/repo.git".replace("git@", ""),
    "ann@example.org",
    "mailto:ann@example.org",
    "repo:tag@sha256:" + HEX,
    "org/model@main",
    "kernels-community/activation@1",
    "at 12:30 @ night",
    "s3://bucket/path/to/data.parquet",
    "gs://bucket/x",
    "file:///data/models/llama",
    "cuda:0, openvino:GPU.1, rocm:3",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "sha256 " + HEX + HEX,
    "hardware_id 3fa85f6457174562",
    "model meta-llama/Llama-3.1-8B-Instruct",
    "microsoft/Phi-3-mini-4k-instruct-onnx",
    "sentence-transformers/all-MiniLM-L6-v2",
    "torch 2.9.1+cu128, transformers 5.23.0",
    "linux-x86_64-with-glibc2.39",
    "OMP_NUM_THREADS=4 KMP_AFFINITY=granularity=fine,compact,1,0",
    "TOKENIZERS_PARALLELISM=false",
    "HF_HUB_OFFLINE=1 HF_HOME=/data/hf",
    "CUDA_VISIBLE_DEVICES=0,1",
    "batch=8 seq=128 dtype=bfloat16",
    "attention=flash_attention_2",
    "latency 12.345678 ms (12.1 .. 12.9), p99 15.2",
    "0x7ffd3fa85f64 in libtorch_cpu.so",
    "RuntimeError: shape '[2, 3]' is invalid for input of size 5",
    "Error code 401: see https://platform.example.org/docs/errors",
    "GET /metrics 404",
    "task-1234567890 finished",
    "risk-adjusted-return-on-capital",
    "skip-layer-normalization-v2-fused-kernel",
    "xai-methods-for-vision",
    "gsk_model_v2",
    "npm_config_registry is set",
    "pypi-attestations are checked",
    "figd is a daemon",
    "pass: 12, fail: 0",
    "passes: 3 of 3",
    "auth: enabled",
    "signature: (x: Tensor) -> Tensor",
    "model signature=default",
    "pat: 3 patterns",
    "--user ann --group wheel",
    "-p 8080:80",
    "-u root",
    "webhook: not set",
    "services/T-shirts",
    "max-age=31536000; Path=/static",
    "public key: 4096 bits",
    "ssh-rsa keys are supported",
    "a key/value store",
    "monkey=banana turkey: 3",
    "access denied: no permission",
]


def remaining(redact: Callable[[str], str]) -> list[tuple[str, str]]:
    """The texts whose secret is still in them, with what they became."""
    found = [(text, redact(text), secret) for text, secret in SECRETS]
    return [(text, after) for text, after, secret in found if secret in after]


def changed(redact: Callable[[str], str]) -> list[tuple[str, str]]:
    """The harmless texts that were changed, with what they became."""
    return [(text, after) for text in HARMLESS if (after := redact(text)) != text]


if __name__ == "__main__":
    from benchmarking.core.untrusted.secret_texts import without_secrets

    os.environ.update(KNOWN)
    left, spoiled = remaining(without_secrets), changed(without_secrets)
    for text, after in left:
        print(f"secret left   {text!r} -> {after!r}")
    for text, after in spoiled:
        print(f"text changed  {text!r} -> {after!r}")
    print(f"{len(SECRETS) - len(left)} of {len(SECRETS)} secrets redacted")
    print(f"{len(spoiled)} of {len(HARMLESS)} harmless texts changed")
