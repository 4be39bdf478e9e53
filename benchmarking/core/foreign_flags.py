"""The flags of other tools, and our answer to each.

`TABLE` has a row a line, which goes on in lines that are indented: the flags :: the answers, in order of preference. An
answer is flags of ours, of which a command has one or none; advice, for a command that has none; or `if FLAG: advice`,
for a command that has that flag. {NAME} is a constant above.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

LENGTHS = ("--input-length", "--sequence-lengths", "--sequence-length", "--max-length")
OUTPUTS = ("--output-length", "--new-tokens")
MODELS = ("--model-id", "--models", "--model")
WARM_UP = ("--warmup-iterations", "--warmup-requests")
FILES = "result files and folders are arguments without a flag: benchhouse import FILE"
PROMPTS = (
    "inputs are random, of the lengths that are given; benchhouse load also takes conversations with --sharegpt FILE, "
    "and arrivals and lengths of a trace with --trace FILE"
)
VARIED = "lengths vary with --input-length uniform:64-256 or normal:128+-32, and --output-length likewise"
OF_SERVER = (
    "it is a setting of the server: start it with that, also by benchhouse load --serve, and record it with --tag "
    "NAME=VALUE"
)
OF_MEASURING = (
    "it is a flag of commands that measure, such as benchhouse run MODEL; for ab and bisect it is part of the command "
    "that they run: ab A B takes each in quotes, bisect the one after --"
)
RESULT_FILES = "results go to stdout: add > FILE; run files go to the folder --output-dir of commands that save"
ENGINE = "it is left to the engine, which decides as it does without a flag"
ONE_ANSWER = "requests ask for one greedy answer of exactly --output-length tokens"
STATEMENTS = "a statement is an argument, as in benchhouse query SQL; benchhouse sql reads several from stdin"
RAMPED = "each level starts at its rate; what precedes its steady state is left out"
UNWANTED = "prompts are made before a level and requests are sent once, in their order"
RACED = "configurations are raced by what they measure; --space FILE restricts them, --budget TIME limits the search"
QUALITY = (
    "quality is compared with eager float32 on a text: benchhouse run MODEL --quality; --quality-file FILE scores your "
    "own prompts with expected answers"
)
NO_THRESHOLD = (
    "a change counts if it is above 2 % and the variation of the runs does not explain it: there is no threshold to set"
)
JUDGED_BY = (
    "check judges a result by the runs of its series since its last change, at least 10 and at most the last 60; with "
    "fewer, benchhouse ab A B measures both sides"
)
MEASURED_AGAIN = "what is stored is not measured again; commands that measure take --iterations and --launches"
STORED = "what measures stores its results: benchhouse run with --save, other commands unless --no-save is given"
ALWAYS = "latency, throughput and memory are always measured, and energy where the device has a counter"
LIMITED = (
    "limits on results are for other commands: benchhouse tune MODEL --limit latency:20ms searches a configuration "
    "within them, benchhouse recommend MODEL --limit chooses among stored results, benchhouse load MODEL --limit "
    "tests a server"
)
SHARE = (
    "a load meets a limit if 99 % of its requests do: benchhouse load MODEL --share SHARE takes another share, and "
    "benchhouse recommend --request-rate RATE --share SHARE judges stored loads by it"
)
HYPERFINE = "its two commands get no input and are shown as A and B: put what prepares them into a script of your own"
LOSS = (
    "a loss of quality is limited by --limit agreement:99% (or kl:0.02, or perplexity_increase:1%), of a model with "
    "trained weights"
)
WORKTREE = (
    "A is the baseline; the code of another commit is a folder: git worktree add ../base main, --worktree-a ../base"
)
ALONE = (
    "a search is of calls by a single caller; benchhouse load MODEL --request-rate R measures requests under load, and "
    "settings of a server by --serve and --sweep"
)
LEVELS = (
    "a sweep is --request-rate 1,2,4, or --find-rate with --limit; closed loops are --concurrency 1,2,4; arrivals at a "
    "rate are --arrivals poisson or constant"
)
LOOPS = "an open loop is benchhouse load --request-rate R, a closed one --concurrency N"
IN_COMMANDS = 'the two commands name it: benchhouse ab "benchhouse run MODEL" "benchhouse run MODEL --num-threads 1"'
SEVERAL_MODELS = "this command takes one model, MODEL; benchhouse batch A B measures several"
Answer = str | tuple[str, str]
"""Our flag, or advice, which has spaces; or a flag and the advice for commands that have it."""
BY_VALUE = (
    ("--backend --service-kind --api --api-type", "chat", "--endpoint", "chat completions are --endpoint chat"),
    (
        "--dataset --dataset-name --dataset-path --data",
        "random|synthetic|_tokens=",
        "--input-length",
        "inputs are random, of --input-length N and --output-length N",
    ),
    ("--input --inputs", r"^\d+$", "--input-length", "the tokens of a prompt are --input-length N"),
    ("--output --outputs", r"^\d+$", "--output-length", "the tokens of an answer are --output-length N"),
    ("-o --output --output-format --format", r"^json", "--json", "JSON on stdout is --json"),
    (
        "-o --output --output-file --output-format --format",
        r"\b(csv|parquet)$",
        "--save",
        "what --save has stored is written by benchhouse export --format csv, or parquet",
    ),
    ("-o --output --output-format --format", r"^(md|markdown)$", "--markdown", "Markdown on stdout is --markdown"),
    ("--mode --loop --load-type --type", r"^(open|closed)", "--find-rate", LOOPS),
    ("--n", r"^\d{2,}$", "--num-requests", "so many requests are --num-requests N"),
    ("--target", r"://|:\d+", "--url", "the address of a server is --url URL"),
    ("--file", r"\.py$", "--include", "benchmarks of your own are --benches FILE"),
    ("--cpu", r"^\d", "--cpu-list", "processors are --cpu-list 0-1"),
    ("-p", r"^(fp|bf|int|float|tf)\d", "--precision", "a precision is --precision int8"),
    ("-r", r"^[a-z]", "--runtime", "a runtime is --runtime onnxruntime"),
    ("-o --output --output-file --out", r"\.json$", "--tables", "a file is --output FILE, a folder --output-dir DIR"),
    ("-o --output --output-file --out", r"\.json$", "--json", "JSON on stdout is --json: --json > FILE"),
    ("-o --output --output-file --out", r"\.html$", "--report", "a report is --report FILE.html"),
    ("-o --output --output-file --out", r"\.html$", "--json", "benchhouse charts --report FILE.html writes a page"),
)
"""Flags with a value in which this is found -> advice for a command with that flag; it goes before `other_words`."""
CONSTANT = re.compile(r"\{([A-Z_]+)\}")
TABLE = """
# How often and how long: optimum-benchmark, llama-bench, AIPerf, ONNX Runtime's perf test.
--num-iterations --num-iters --num-runs --n-runs --runs --measurement-iterations --benchmark-iterations --niter
  --avg-runs --min-rounds --loops --loop --calls --num-calls :: --iterations --repetitions --rounds --num-runs ::
  if --confirm: {JUDGED_BY} :: {MEASURED_AGAIN}
--repeat --repetitions --reps --num-repeats -r :: --iterations --launches --repetitions --rounds --num-runs ::
  if --confirm: {JUDGED_BY} :: {MEASURED_AGAIN}
--warmup --warmup-runs --warm-up --num-warmup --num-warmups --num-warmup-iters --warmup-iters --num-warmup-iterations
  --warm --warmup-request-count --n-warmup --num-iters-warmup --warmup-steps -w :: {WARM_UP} :: every command warms up
  by itself
--processes --num-processes --rounds :: --launches :: what is measured again has the launches of the stored run
--iterations --launches --warmup-iterations :: if --objective: launches go on until the best is decided: --budget TIME
  limits the search :: --num-runs --num-requests --rounds :: how often a call is measured
  follows from its variation; benchhouse run MODEL takes --iterations and --launches
--timeout :: --budget :: the time limit of a launch is --timeout of the command that measures it
--number :: --iterations --num-requests
--duration :: --budget :: how long a point takes follows from --profile, or from --iterations
--parallel --jobs --workers -j --max-workers --workers-max --num-processes-max :: runs on one machine would disturb
  each other; several machines measure with batch --cluster
--matrix --grid --all-combinations :: if --space: {RACED} :: every combination of the values of --devices, --runtimes
  and --precisions is measured
--file :: --model-list --output :: {FILES}
--max-seconds --time --run-time --benchmark-duration --test-duration --max-time --time-limit -z
  :: --duration --budget --timeout
--warmup-time --warmup-duration --warmup-secs --warmup-seconds :: if --profile: calls are warmed up until they are
  steady; so many calls are --warmup-iterations N :: {WARM_UP} :: every command warms up by itself
--mem-pool-size --workspace --workspace-size --builder-optimization-level --timing-cache --timing-cache-file --sparsity
  :: if --iterations: {ENGINE}; those of its settings that are flags are listed by --help-options
--measurement-interval --min-duration --min-run-time --min-time --seconds --sec --secs :: --duration :: how long a point
  takes follows from --profile
# Sizes: vLLM, SGLang, llama-bench, GuideLLM, AIPerf.
--isl --in-tokens --in-len --prefill --prefill-length --input-len --random-input-len --random-input --input-tokens
  --prompt-tokens --prompt-length --synthetic-input-tokens-mean --n-prompt --num-prompt-tokens --seq-length --seq-len
  --seqlen --length --seq-lens --sequence-length --max-length --max-seq-length --context-length --ctx-size --n-ctx -p
  -npp :: {LENGTHS}
--osl --out-tokens --out-len --decode --decode-length --output-len --random-output-len --random-output --output-tokens
  --output-tokens-mean --n-gen --max-tokens --tokens --max-new-tokens --min-new-tokens --generate-tokens --gen-tokens
  --num-new-tokens --num-tokens -ntg --generate-kwargs --generation-kwargs :: {OUTPUTS}
--random-range-ratio --output-tokens-stddev --synthetic-input-tokens-stddev :: {VARIED}
-n :: --iterations --new-tokens --num-requests --rounds --rows --once
--batch --bs --batch-size --per-device-batch-size --n-parallel -b -npl :: --batch-sizes --batch-size --batch
# Load: vLLM, SGLang, GuideLLM, AIPerf, genai-perf.
--num-prompts --num-prompt --request-count --max-requests --num-dataset-entries --number-requests --total-requests
  --min-query-count --max-examples --samples -samples :: --num-requests
--max-concurrency :: a closed loop with N requests in flight is --concurrency N; an open loop (--request-rate) has no
  cap, since a cap hides waiting
--concurrency :: if --share: loads with a number of requests in flight are not ranked: benchhouse show
  concurrency=VALUE shows them, and --request-rate RATE ranks those with a rate; calls side by side are selected by
  --among concurrency=VALUE :: if --objective: {ALONE} :: calls at a time are benchhouse run MODEL --concurrency N, and
  requests in flight benchhouse load MODEL --concurrency N
--request-rate :: --request-rate --request-rates :: if --objective: {ALONE} :: a load is benchhouse load
  MODEL --request-rate R, and benchhouse recommend MODEL --request-rate R ranks what is stored
--concurrent-requests --concurrencies --num-concurrent --num-users --users --vus --virtual-users --num-workers --nireq
  :: --concurrency :: benchhouse load MODEL --concurrency N has N requests in flight; recommend takes a --request-rate
-c :: --concurrency :: {STATEMENTS}
--rate --rates --qps --rps --requests-per-second --target-qps --target-rps --request-rates :: --request-rate
--base-url --server --server-url --api-base --endpoint-url --host-url --host --port -u :: --url
--target :: --url --objective --prefer --device --devices
--goodput --slo --slos --sla :: --limit --slo :: {LIMITED}
--burstiness :: gamma arrivals are --arrivals gamma --variation CV, and CV is 1 / sqrt(burstiness)
--dataset --dataset-name --dataset-path --data --input-file :: if --sharegpt: {PROMPTS} :: if --quality-text: quality
  is that of a text, --quality-text FILE, and of prompts, --quality-file FILE :: {PROMPTS}
--corpus --text :: --quality-text :: {PROMPTS}
--prompt --prompts --prompt-file --prompts-file :: {PROMPTS}
--profile :: if --objective: the time of a search is --budget TIME; what it has launched once goes on with what is left
  :: {LEVELS}
--rate-type --sweep --rate-sweep --target-profile :: if --objective: {ALONE} :: {LEVELS}
--ramp-up --rampup --ramp-up-strategy :: {RAMPED}
--temperature --top-p --top-k --min-p --sampling-params --frequency-penalty --presence-penalty :: requests ask for
  temperature 0: one greedy answer of exactly --output-length tokens
--header --headers -H :: requests have no other header than that of $OPENAI_API_KEY
--extra-body --extra-inputs --use-legacy-max-tokens :: requests have the same fields for every server, and no other ones
--insecure --no-verify --verify-ssl -k :: --ca-file --include :: every export is compared with the model in torch;
  there is no way around it
--chat --apply-chat-template --chat-template :: chat completions are --endpoint chat
--api --api-type --endpoint-type --request-type :: --endpoint
--embeddings --embedding --pooling --rerank :: completions of a server are tested; a model of embeddings is tested on
  this machine, without --url, and measured by benchhouse run MODEL as any other
--protocol --http-version :: --http2
--keep-alive --disable-keepalive --connections --connection-pool-size :: each request in flight has a connection,
  which stays open for the next
--think-time :: benchhouse load MODEL --turns N --think-time S pauses before each message of a conversation
--skip-test-prompt --request-id-prefix --disable-shuffle --shuffle --no-oversample --use-cache
  --request-formatter-kwargs :: {UNWANTED}
--use-server-token-count :: tokens are those that the server reports, else those that it streams
--slice-duration --measurement-mode --export-level :: every request is stored: benchhouse query reads it
--detect-saturation --over-saturation --stop-over-saturated --stability-percentage :: a level at which the queue only
  grows is invalid by itself
--performance-sample-count --mlperf :: --samples-per-query --scenario
--steps --num-steps :: --num-runs --iterations --request-rates
--ignore-eos :: requests always ask for exactly --output-length tokens, unless --omit-fields ignore_eos is given
--streaming --stream --no-stream --no-streaming :: responses are always streamed, since the first token is measured
--percentile-metrics --metric-percentiles --percentiles --percentile :: if --find-rate: limits are met by a
  share of the requests, --share 99%, and p50, p90, p95 and p99 of every metric are always stored :: if --share: a
  latency is limited at a percentile by --limit latency_p99:20ms, and with --request-rate by the share of the requests,
  --share 99% :: if --objective: a latency is limited at a percentile by --limit latency_p99:20ms :: p50, p90, p95 and
  p99 of every metric are always stored
--api-key --key --openai-api-key --auth-token --bearer-token :: the key is read from $OPENAI_API_KEY
# Model, device and precision.
--models --model-ids --model-list-ids :: --models --model-ids :: if --worktree-a: {IN_COMMANDS} :: {SEVERAL_MODELS}
--model --model-name --model-path --model-name-or-path --checkpoint -hf --hf-repo -hfr -hff --repo-id :: {MODELS}
  :: if --worktree-a: {IN_COMMANDS}
-m :: if --model-id: the model is the argument MODEL, or --model-id MODEL :: {MODELS} --note --description
--dtype --torch-dtype --data-type --quant --quantize --quantization --weight-format --bits --load-in :: --precision
  --precisions :: benchhouse export-model MODEL --precision exports in a precision
--backends :: --runtimes
--framework --execution-provider --ep --engine --library :: --runtime --runtimes
--backend --service-kind :: --engine --runtime --runtimes
--max-latency --target-latency --latency-limit --latency-budget --max-ttft --max-tpot --max-itl --max-e2e --max-memory
  --memory-limit --max-p90 --max-p95 --max-p99 --constraint --constraints --slo-ttft --slo-tpot --slo-itl --slo-e2e
  --slo-latency --ttft-slo --tpot-slo --e2e-slo --ttft-limit --tpot-limit --e2e-limit :: --limit :: {LIMITED}
--latency --memory --energy --power --throughput --ttft --tpot --itl --e2e --p50 --p90 --p95 --p99 --latency-p50
  --latency-p90 --latency-p95 --latency-p99 :: --limit :: if --metric: a metric is named by --metric, such as
  latency_median_ms :: {ALWAYS}
--save-baseline --save-as --benchmark-save --benchmark-autosave :: if --save: a stored run is named by --save --tag
  baseline=NAME, and benchhouse compare tag.baseline=NAME latest compares with it :: if --no-alerts: every stored run is
  history, by which the next ones are judged: benchhouse run MODEL --save stores one :: {STORED}
--baseline --last-good --base --against --reference --compare-with --ref :: --compare-to :: if --worktree-a: {WORKTREE}
  :: if --objective: a search compares all that it measures; stored results are compared by benchhouse compare A B
  :: if --runtimes: speedups are over eager, or over the first of --runtimes without it; of benchhouse compare --by
  runtime it is --baseline NAME :: of benchhouse compare A B and ab A B, A is the baseline, and of compare --by runtime
  it is --baseline NAME; check judges a result by the earlier ones of its series
--fp16 --half --float16 --autocast --amp --mixed-precision :: half precision is --precision float16
--bf16 :: its precision is --precision bfloat16
--fp8 :: its precision is --precision float8_e4m3
--int8 --load-in-8bit --w8a8 :: its precision is --precision int8
--int4 --load-in-4bit --w4a16 :: its precision is --precision int4
--input-shape --input-shapes --shape --shapes --min-shapes --opt-shapes --max-shapes :: if --batch-sizes: sizes are
  --batch-sizes 1 --sequence-lengths 32; those of a graph are --dim NAME=48 :: --batch-sizes --batch-size
--list-backends --list-engines :: --list-runtimes
--machines --replicas --instances :: if --share: the machines that serve the rate are part of the answer
--all-runtimes --all-engines --all-backends :: if --runtimes: every runtime that can run it is --runtimes all
--no-quantization --no-quantize --full-precision :: its precision is --precisions float32
--vs --versus :: if --runtimes: runtimes are compared in one command: --runtimes A,B
--objective --goal --minimize --maximize :: --objective --prefer --metric :: benchhouse tune MODEL --objective
  latency searches the best configuration, benchhouse recommend MODEL --prefer latency ranks what is stored
--prefer --metric --metrics :: --objective --prefer --metric :: if --again: all measures are taken at once: KL
  divergence, top-1 agreement and, of a language model, perplexity :: stored results are compared by any metric:
  benchhouse compare --by runtime
--optimize --optimization-level --optimise -O --simplify --onnxsim :: --prefer --objective --metric :: a runtime
  optimizes an export when it loads it: benchhouse run --help-options; benchhouse tune --objective, and recommend
  --prefer of what is stored, choose the least memory or the fastest
--sort --sort-by --order-by --columns :: if --worktree-a: {HYPERFINE} :: --prefer :: rows are chosen and sorted with
  SQL: benchhouse query
--budget :: --price :: if --launches: how long it takes follows from --profile, --launches and --iterations; benchhouse
  tune MODEL --budget TIME searches in a given time :: --timeout
--strategy --distribution --request-distribution :: --arrivals :: {RACED}
--trials --n-trials --max-trials --num-trials --search --search-space --algorithm --sampler --pruner --study-name
  --max-configs :: --find-rate :: {RACED}
--min-rate --max-rate --min-qps --max-qps --min-rps --max-rps --start-rate --end-rate --rate-min --rate-max :: if
  --find-rate: the rate is searched between two, MIN and MAX: --request-rate MIN,MAX --find-rate --limit LIMITS
--open-loop --closed-loop --closed :: {LOOPS}
--step --min --max :: if --find-rate: levels are a list, --request-rate 1,2,4;
  the highest rate is searched between two, --request-rate 1,32 --find-rate --limit LIMITS
--words --input-words --prompt-words :: --input-length
--load-type --load-pattern --pattern --traffic-pattern --request-rate-mode --rate-mode --arrival-process :: --arrivals
--append :: every run is added to what is stored
--knee :: the knee of four levels or more is marked in their table
--sessions --num-sessions --conversations :: if --turns: conversations have --turns N requests each; how many there
  are follows from --num-requests, and at a time from --concurrency
--load-engine --save-engine --engine-file :: an engine is built at first use and kept: benchhouse cache list shows it;
  a graph file is a MODEL
--min-accuracy --max-accuracy-loss --accuracy-loss --max-accuracy-drop --accuracy-drop --max-quality-loss --quality-loss
  --max-loss :: if --objective: {LOSS} :: if --share: {LOSS} :: benchhouse recommend --max-kl and --min-agreement limit
  the loss of quality
# hyperfine, and gates of other tools.
--parameter-list --parameter-scan -L -P :: a list of values is measured one after the other: --batch-sizes 1,2
--min-runs :: --rounds --iterations :: {JUDGED_BY}
--max-runs :: --max-rounds --iterations :: {JUDGED_BY}
--benchmark-only --benchmark-skip --benchmark-disable --benchmark-enable :: a command measures what is named;
  benchmarks of your own are chosen by benchhouse benches --include
--export-json :: if --json: results go to stdout as JSON: --json > FILE
--export-asciidoc --export-orgmode :: stored results are written by benchhouse export --format markdown
--prepare --setup --conclude --cleanup --shell -N -S :: a command is run as it is, without a shell: put what prepares
  it into a script of your own
--ignore-failure :: a command that fails is never timed: mend it first
--command-name :: the sides are called A and B; --tag NAME=VALUE labels the run
--show-output :: what a measured command prints goes to stderr
--style --color --colour --no-color --no-colour :: NO_COLOR=1 in front turns colours off
--compare-to :: benchhouse run MODEL --compare-to RUN compares a new run, benchhouse compare A B stored ones
--markdown --github --junit :: --markdown :: of what is stored, benchhouse compare prints --markdown and writes --junit,
  benchhouse check also --github
--histogram --hist --box-plot --violin :: benchhouse charts --chart sample_distribution draws the calls
--time-unit --unit :: each metric has one unit, which its name says
--autosave --save-data --storage :: --save --db-path :: {STORED}
--compare :: --compare-to :: stored results are compared by benchhouse compare
--compare-fail :: --fail-on :: {NO_THRESHOLD}
--export-csv --output-csv --csv-file --to-csv :: stored results are written by benchhouse export --format csv
--export-markdown --export-md :: --markdown :: stored results are written by benchhouse export --format markdown
--report --summary --summary-file :: --report --markdown :: benchhouse charts --report FILE writes one of what is stored
--exit-code --ci --strict --fail --fail-on --fail-on-regression --fail-if-slower --fail-on-slower --error-exitcode
  --gate :: --fail-on :: the exit code of benchhouse check says it: 1 for a regression; compare, ab and run
  --compare-to have --fail-on
--junitxml --junit-xml --xunit --gitlab --sarif :: --junit
--exit-zero --warn-only --allow-fail --soft-fail --no-fail --informational :: the exit code is 1 for a regression:
  what follows || in a shell goes on after it
--window --lookback --last --history --rows --days :: if --by: benchhouse check judges the newest by those before ::
  if --only-changes: the newest runs are selected by their date, as in benchhouse history since=30d :: --rows --since
  :: {JUDGED_BY}
--top --max-rows --head :: --rows :: all that is selected is shown: | head -9 cuts it
--candidate --contender --current --new --old --before --after :: two selections are compared: benchhouse compare A B;
  dates are in them: since=DATE, until=DATE
--good --bad :: two commits are arguments: benchhouse bisect GOOD BAD -- COMMAND
--cmd --script --exec :: a command follows -- in bisect; ab takes two, each in quotes
--a --b --side-a --side-b :: two commands are arguments, each in quotes: benchhouse ab A B
--annotations --annotate :: --github
--pr --pull-request :: --markdown
--cheapest --cost --best :: --objective --prefer :: benchhouse recommend ranks what is stored by --prefer
--fastest --winner --rank --ranking :: --prefer :: the fastest is marked with * in a comparison
--base-branch --base-ref --base-commit :: if --worktree-a: {WORKTREE} :: benchhouse compare branch=A branch=B compares
  two branches
--worktree-a --worktree-b --worktree :: --worktree-a :: the code of two worktrees is compared by benchhouse ab A
  --worktree-a DIR, without a history
--csv --parquet --xml --yaml :: --format --junit --report :: benchhouse export writes files, benchhouse charts --report
  a page
--html :: --report :: benchhouse charts --report FILE.html writes a page of what is stored
--format --output-format :: --markdown --json --junit
--gpu-memory-utilization --max-model-len --max-num-batched-tokens --enable-chunked-prefill --swap-space --block-size
  --scheduling-policy --mem-fraction-static --max-running-requests --chunked-prefill-size --max-num-seqs
  --backend-kwargs --backend-args :: {OF_SERVER}
--enable-prefix-caching --no-enable-prefix-caching --disable-radix-cache :: --prefix-cache :: {OF_SERVER}
--load-format --dummy-weights --no-weights --random-weights :: --weights
--disable-detokenize --skip-tokenizer-init :: tokens are counted; what a runtime does is part of its time
--best-of --num-beams --use-beam-search --logprobs --do-sample --greedy --repetition-penalty :: {ONE_ANSWER}
--served-model-name :: --model-id
--enforce-eager --eager :: eager execution is --runtime eager
--torch-compile --compile :: torch.compile is --runtime compiled
--gpu --gpus --cuda --use-gpu --gpu-id --device-id --device-ids :: a GPU is --device cuda, its number --device cuda:1,
  several as one --device cuda:0,cuda:1
--cpu --cpu-only --no-gpu --no-cuda :: the processor is --device cpu
--n-gpu-layers --ngl -ngl --num-gpu-layers -ot --override-tensor :: --gpu-layers :: a GPU computes all layers with
  --device cuda
--no-mmap --mmap -mmp --mlock --numa --prio --poll -nkvo --no-kv-offload --cpu-strict --no-host --rpc --defrag-thold
  -pps --nstreams --num-streams --n-cpu-moe --cpu-moe -ncmoe :: {ENGINE}
--ubatch-size -ub --n-ubatch :: the engine divides a long prompt by itself
-pg :: a prompt and what follows it are one point: --sequence-lengths 512 --new-tokens 128
--depth --n-depth :: --context-depth :: tokens generated follow the prompt: its length is --sequence-lengths
--main-gpu -mg :: a GPU is chosen by --device cuda:1
-sm :: --split-mode
-ts :: --tensor-split
-C --numactl --cpu-mask --cpu-range --cpus --cores --taskset :: --cpu-list
-tb --threads-batch :: --batch-threads
--delay --sleep --pause :: nothing waits between calls; --cold-cache empties the caches before each
--no-warmup :: calls are counted once they are steady; the first call is a result of its own
--tensor-parallel-size --tensor-parallel --tp --tp-size --pipeline-parallel-size --pp-size --num-gpus --num-shards
  --split-mode --device-map -tp -pp -dp --data-parallel-size :: one model on several GPUs is --device cuda:0,cuda:1
  --placement sharded; a server is parallel by its own settings: start it with them, and record them with --tag tp=2
--n :: --iterations --rounds --rows :: {ONE_ANSWER}
--inter-op --interop --inter-op-threads --inter-op-num-threads --inter-op-parallelism :: threads between operators are
  the runtime's own; those within an operator are --num-threads
--threads --intra-op --intraop --intra-op-threads --intra-op-num-threads --num-cpu-threads -t :: --num-threads
--attn-implementation --attention-backend --attn :: --attention
--flash-attn -fa :: --flash-attention
--kv-cache-dtype --cache-type-k --cache-type-v -ctk -ctv :: --kv-cache-type
--speculative-model --speculative-config --model-draft -md :: --draft-model
--opset-version --onnx-opset --opset :: --opset :: benchhouse export-model MODEL --opset N writes an opset
--tokenizer --tokenizer-mode --processor :: --tokenizer :: the model's own tokenizer is used
--trust-remote-code :: code of a model is never run: use the architecture in transformers, or an export
--hf-token --token :: the hub's token is read from $HF_TOKEN, a server's key from $OPENAI_API_KEY
# Where results go.
--output-file --output-path --result-filename --results-file --report-path --export-path --out -o :: --output
  --output-dir --save :: results go to stdout: add > FILE
--result-dir --results-dir --artifact-dir --output-folder --outdir --save-dir --log-dir :: --output-dir
--save-result --save-results --save-detailed --store --store-db --store-results --save-db --to-db :: --save :: {STORED}
--output :: if --chart: pictures go to the folder --output-dir, those of --chart NAME or all; --report FILE.html is a
  page with all :: --markdown --junit --report :: {RESULT_FILES}
-oe --json --save-json --json-output --json-file --output-json :: --json
--db --database --db-file --warehouse --db-url --connection --uri --store-uri --backend-store-uri --tracking-uri --into
  :: --db-path
--progress --show-progress :: progress is always shown: --quiet turns it off
--disable-tqdm --no-progress --silent --quiet :: --quiet :: what it prints is on stdout: add > FILE
--verbose --verbosity --debug -v :: --log-level :: BENCHHOUSE_TRACEBACK=1 in front shows tracebacks
--retries --retry --max-retries --num-retries :: nothing is tried again: a request or launch that fails counts as failed
--resume --continue --skip-existing --skip-completed :: --resume :: unfinished runs are continued by benchhouse run
  --resume
# Profilers.
--by :: --prefer :: benchhouse compare --by compares by a field, benchhouse profile divides by part, layer and operator
--nvtx --layers --per-layer --by-layer --by-operator --record-shapes --with-stack --top-k-ops --level --detail ::
  benchhouse profile divides by part, layer and operator; benchhouse compare --by compares by a field
--trace --trace-file --chrome-trace --export-trace --export-chrome-trace --trace-dir --perfetto :: benchhouse profile
  writes traces for Chrome and Perfetto to --output-dir
# Notices, and what is kept where: MLflow, pytest-benchmark, Bencher.
--slack --slack-webhook --webhook --webhook-url --notify --email --teams :: new alerts are posted to
  $BENCHHOUSE_WEBHOOK_URL, in the format of Slack and others
--all :: --rows :: if --objective: a search tries the runtimes that can run here; others are named by --runtimes
  :: if --runtimes: every runtime that can run it is --runtimes all :: what looks at results takes all
  without a selection; delete needs one, as in until=DATE, and alert set each ID
--query --sql --command --statement --execute :: {STATEMENTS}
-e :: --runtime --runtimes :: {STATEMENTS}
-q :: --request-rate --quiet :: {STATEMENTS}
--readonly --read-only --ro :: benchhouse query and sql only read, and so does dashboard --read-only
--tables --table --schema --dictionary --views :: --describe
-f :: --file --ingest --model-list :: if --examples: statements in a file are run by benchhouse query --file FILE
  :: if --worktree-a: {HYPERFINE} :: {FILES}
--input --inputs --input-dir --input-path --path --dir --directory --folder --results -i :: --ingest --json-path
  --model-list :: if --worktree-a: {HYPERFINE} :: {FILES}
--recursive -R :: folders are searched at any depth
--as --source --from --from-tool --importer --input-format --source-format :: --from-format
--tool --profiler :: --from-format :: a call is profiled by the profiler of its runtime: benchhouse profile MODEL
--update --upsert --overwrite --replace :: --replace --overwrite :: no file is overwritten: give a new name
--force --assume-yes --no-confirm --non-interactive --noconfirm --no-input -y :: --yes --replace --overwrite :: no
  file is overwritten: give a new name
--preview --dry --simulate --what-if --no-act --plan --plan-only --show-plan --explain :: --dry-run :: the reasons are
  part of what is printed
--comment --pr-comment :: --note --markdown
--reason --message --why --notes --note :: --note --description :: the reasons are part of what is printed
--env --environment --set-env :: a variable is set in front of a command: NAME=VALUE benchhouse run MODEL
--pipeline :: --task
--offline --local-files-only --download --no-download :: folders and models of the catalog need no network;
  HF_HUB_OFFLINE=1 in front forbids the hub
--until-stable --repeat-until --steady --converge :: calls are repeated until the interval of their median is narrow,
  by --profile standard or reference
--latest --newest :: the newest session is the selection latest; check judges it without a selection
--allow-missing --ignore-missing :: what is missing has no verdict, is listed, and fails no gate but --fail-on
  slower,not-judged
--remeasure --measure-again --re-run --rerun --again :: --confirm --again
--accept --approve --update-baseline --set-baseline --reset-baseline --baseline-run --new-baseline :: every stored run
  is history; the level of an alert is accepted with benchhouse alert set ID intended --note WHY, and as well with
  hardware, method or improvement
--assert --require --expect --criteria :: --limit
--stages --levels :: --request-rates --concurrency
--clients --streams --slots --in-flight --inflight --api-mode -api :: --concurrency
--rpm --requests-per-minute :: rates are per second: --request-rate 2 is 120 requests a minute
--system-prompt :: --shared-prefix
--start --launch --docker --start-server --server-command --server-cmd :: --serve
--health --health-check --healthcheck :: --start-timeout :: a server is up when its page /health answers
--soak --spike --stress :: a long level is --duration 1h; bursts and ramps are --arrivals burst and ramp
--highest-rate --breaking-point --adaptive-scale --adaptive --auto-rate --auto-tune-rate --binary-search --search-rate
  --find-max-rate --max-throughput --saturate --autoscale :: --find-rate
--ssl --tls --https :: an address that begins with https:// is encrypted; --ca-file FILE names its authority
--proxy --http-proxy :: no proxy is used: its time would be part of every latency
--raw --raw-output --samples-output :: every request and sample is stored: benchhouse query reads them
--gpu-metrics --dcgm --dcgm-url :: --device-metrics
--status --state :: --triage
--attainment --slo-attainment --slo-share --goodput-ratio --goodput-share --success-rate --limit-share
  --target-percentile --slo-percentile :: --share :: {SHARE}
--find-concurrency --max-concurrency-search :: the most requests in flight within limits are the last level that holds:
  --concurrency 1,2,4,8 --limit LIMITS; a rate is found by --find-rate
--apply --deploy --write-config --save-config --use-best --export-config :: nothing is changed on this machine:
  benchhouse tune prints the lines that deploy what it found
# Charts and pages.
--chart --charts --plot --graph --chart-type --plot-type --plot-timeline :: --chart :: benchhouse charts draws what is
  stored
--type --kind :: --from-format --chart --format
--title --xlabel --ylabel --x --y --x-axis --y-axis --hue --color-by --log --log-scale --logx --logy :: each chart has
  its own title and axes: benchhouse charts --list; a metric is chosen by --metric
--dpi --width --height --figsize --size --scale :: an image of any size is --format svg, or pdf
--group-by --groupby --group --group-by-func --group-by-fullname --group-by-class :: groups are made by SQL in
  benchhouse query, or with compare --by
--open :: if --find-rate: {LOOPS} :: if --triage: open alerts are --triage new,regression :: no window is opened: open
  the file or the address that is printed; open alerts are listed by benchhouse alert list
--show --open-browser --browser --no-browser --launch-browser --interactive :: no window is opened: open the
  file or the address that is printed; open alerts are listed by benchhouse alert list
--bind --address --addr --listen --ip --server-address --server-name :: --host
# Setting up a warehouse, and exporting models.
--init --create --migrate --upgrade --initialize --schema-only --create-schema :: benchhouse setup without flags
  creates a warehouse or upgrades it
--reset --drop --recreate --wipe --truncate --clear --clean :: --overwrite :: benchhouse delete removes runs,
  benchhouse cache delete builds
--reload --refresh --auto-refresh --watch :: pages show what is stored when they are opened
--url :: a server is load-tested by benchhouse load MODEL --url URL; other commands take files
--limit :: {LIMITED}; rows are limited in SQL: benchhouse query
--restore --from-backup :: a backup is a warehouse: use it as --db-path, or copy it back
--check --validate --verify --integrity --doctor :: --verify :: benchhouse setup --verify checks a warehouse,
  benchhouse check judges the newest results; an export is always compared with torch
--new-tokens :: --output-length :: {OF_MEASURING}
--sequence-lengths :: --input-length :: {OF_MEASURING}
--runtime --runtimes --device --devices --precision --precisions --batch-sizes --num-threads :: {OF_MEASURING}
--import --load --add :: --ingest :: {FILES}
--dynamic --dynamic-axes --dynamic-batch --dynamic-shapes :: batch and lengths are free in every export
--no-validation --skip-validation --no-check --skip-verify :: every export is compared with torch
--atol --rtol :: how far an export may be from torch follows from its precision
--monolith --single-file --one-file :: --output
--config --config-file --config-dir --config-name :: a batch reads its settings from --model-list FILE.yaml
--tags --label --labels --metadata --experiment --experiment-name --experiment-id --experiment-ids --run-name --name
  :: --tag
--launcher --isolation --process-isolation --device-isolation --isolated --fork --spawn :: each launch is a new
  process, alone on its device
--dry-run :: if --find-rate: a level takes --duration times --repetitions, and --find-rate up to 60 times that :: if
  --no-alerts: nothing is measured without --confirm, nor stored with --no-alerts :: all arguments are checked before a
  command begins; run, batch, benches, compare-runtimes, tune, quality, import, merge, compact and delete have --dry-run
--server-metrics --prometheus-url :: the server's own metrics are read at its address during each level by themselves
--ui --ui-type :: --quiet
--variant --variants :: a variant is a configuration of a benchmark: --include NAME chooses benchmarks
-dev :: --device --devices
--benchmark --benchmarks --only --filter :: --include :: results are selected by words such as model=NAME,runtime=NAME
--exclude --skip --without --ignore :: --include :: if --confirm: what is judged is selected, as in benchhouse check
  runtime=eager; an alert is accepted by benchhouse alert set ID noise --note WHY :: only what is named is measured:
  --runtimes, --devices, --include
--interleave --alternate --random-order --paired --in-turns :: the runtimes of a command are measured in turns; two
  commands are by benchhouse ab
--list-benchmarks --list-benches --collect-only :: --dry-run
--args --script-arguments --argv :: --script-args :: the words of a command follow --, or are in quotes
--suite :: --model-list --include
--ssh --hosts --hostfile --inventory --nodes :: --remote-host :: several machines measure with benchhouse batch
  --cluster
--join --scheduler --coordinator :: the address of the scheduler is an argument
--share --public --expose --allow-remote :: if --request-rate: {SHARE} :: benchhouse publish writes a site; other
  machines reach benchhouse dashboard by its --host and a token
--flamegraph --flame-graph --flame :: benchhouse profile --save, then benchhouse charts --chart flame_graph
--to --target-format :: if --find-rate: levels are a list, --request-rate 1,2,4 :: --format --output --output-dir
--for :: --prefer {MODELS}
--no-display-prompt --trtllm --trtexec :: --help-all lists every flag, --help-options those of a runtime
--infer-precision -ip :: --precision --precisions
--io-binding :: --io-mode
--sdpa-backend :: --attention :: set it in the configurations of your benchmarks
--push-result-to-dataset --push --push-to-hub :: benchhouse publish writes a site, benchhouse export files
--onnx --onnx-path --onnx-file --onnx-model :: a graph file is a model: give it as MODEL
--mode :: --scenario --profile
--rt-args --runtime-args :: the options of a runtime are flags: --help-options lists them
--export-only :: --build-only
--revision --model-revision :: a revision is downloaded first: give its folder as MODEL
--no-save :: nothing is stored unless --save is given
--scenario --use-case :: a load as in MLPerf is benchhouse load MODEL --scenario server
--bettertransformer --sdpa :: it is --attention sdpa
--peft-type --peft --adapter --lora-modules --lora-path :: --lora :: an adapter is asked for as MODEL
--wait --wait-for-ready --ready-check-timeout-sec --wait-for-server --startup-timeout :: --start-timeout
--max-errors --max-error-rate --max-failures --fail-fast :: if --confirm: all series are judged together, and one that
  regressed is exit code 1 :: if --url: requests that fail are counted by kind, and a level with too many of them
  is invalid :: what fails is listed, and the rest goes on
--quality --kl --max-kl --agreement :: --quality :: if --objective: {LOSS} :: {QUALITY}
--bench-dir --bench-folder --benches-dir --benchmark-dir --benchmarks-dir :: --benches
--perplexity --ppl :: --quality :: if --objective: {LOSS} :: --max-perplexity-increase :: {QUALITY}
--across :: if --share: all options at a point are ranked, whatever they differ in: --among SELECTION restricts them
  :: benchhouse compare A B --across FIELD compares stored results that differ in a field
--accuracy --test-mode --accuracy-mode :: --quality :: if --objective: {LOSS} :: --min-accuracy :: outputs are
  compared with torch in every run; quality is benchhouse run --quality
--tasks --num-fewshot --fewshot --n-shot --log-samples --gen-kwargs --include-path :: {QUALITY}
--model-args --multirun --sweeper --hydra --hub-kwargs --model-kwargs --engine-args :: each setting is a flag of its
  own: --help-all lists every flag
--user-conf --mlperf-conf --audit-conf --test01 --test04 --test05 --test06 :: loadgen's settings are flags:
  --scenario, --request-rate, --limit
--all-devices --all-hardware :: --devices :: benchhouse batch --devices cpu,cuda measures on several
--model-type --architecture --arch :: the architecture follows from the model's configuration
--family --families --architecture-type :: the family follows from the model; several models are named, as in
  benchhouse batch MODEL MODEL
--profile-export-prefix --profile-export-file --export-prefix :: {RESULT_FILES}
--export --to-onnx :: a runtime exports a model itself; benchhouse export-model MODEL writes the graphs
--yes :: nothing is asked
--model-file --models-file --model-config :: --model-list
--hardware-comparison --device-comparison --batch-size-comparison --all-charts :: --chart
--list :: --list-devices --list-models --list-charts --list-formats --describe --dry-run :: benchhouse show lists what
  is stored, benchhouse run --list-models, --list-runtimes and --list-devices what can be measured
--commit-id --git-commit --commit --branch-name --branch --commit-message :: if --worktree-a: {WORKTREE} :: commit and
  branch of this folder are recorded by themselves; another label is --tag NAME=VALUE
--version -V :: benchhouse version prints the version
--threshold --tolerance --max-regression --fail-threshold --alpha --max-slowdown --max-change --fail-under
  --fail-above --factor --confidence --significance --p-value --noise --noise-threshold --alert-threshold
  --sensitivity --sigma --percent --max-increase --delta --thresholds :: if --find-rate: a limit is --limit, and
  --fail-on missed makes it a gate :: {NO_THRESHOLD}
--count :: --rows --num-requests --iterations
"""


BY_PART: tuple[tuple[frozenset[str], tuple[Answer, ...] | str], ...] = tuple(
    (frozenset(words.split()), ours)
    for alternatives, ours in (
        ("seed", ("--seed", "inputs and random weights have a fixed seed")),
        ("ramp, rampup", RAMPED),
        ("cancellation, cancel", "no request is cancelled: one that takes longer than --timeout has failed"),
        ("turn delay, think time", ("--think-time",)),
        ("delay", "a closed loop sends the next request when one has ended"),
        ("image, audio, video", "a server gets texts; benchhouse run MODEL measures models of images and sounds"),
        ("connection, keepalive, socket", "each request in flight has a connection, which stays open for the next"),
        ("hf split, hf name, hf subset, data sampler", PROMPTS),
        ("lora", ("--lora",)),
        ("penalty", ONE_ANSWER),
        ("stddev, std, range ratio", VARIED),
        ("warmup", WARM_UP),
        ("cooldown", "what precedes and follows the steady state is left out"),
        ("timeout, grace period", ("--timeout",)),
        ("list hardware", ("--list-devices",)),
        ("limit latency, limit ttft, limit memory, max latency, max memory, min throughput", ("--limit", LIMITED)),
        ("energy, power, memory, monitor, telemetry", ALWAYS),
        ("pin, affinity, cores, cpuset", ("--cpu-list",)),
        ("fail, miss, missed, violated", ("--fail-on", "the exit code says it: benchhouse COMMAND --help lists them")),
        ("comment, annotations", ("--markdown", "--note", "--description")),
        ("mock", ("--enable-mock",)),
        ("conversation, session", ("--turns", ("--sharegpt", PROMPTS))),
        ("hydra", "each setting is a flag of its own: --help-all lists every flag"),
        ("saturated, saturation", "a level at which the queue only grows is invalid by itself"),
        ("turn", ("--turns",)),
        ("dataset, data", PROMPTS),
        ("prefix", ("--shared-prefix", "--prefix-cache")),
        ("schedule", ("--arrivals", "--trace")),
        ("arrival, rate mode", ("--arrivals",)),
        ("endpoint, request type", ("--endpoint", "--url")),
        ("rate, qps", ("--request-rates", "--request-rate")),
        ("concurrency, concurrent", ("--concurrency",)),
        ("stats", "use of the device and of this machine is recorded beside every result"),
        ("console", ("--quiet",)),
        ("seq, sequence, input length, input len, input tokens", LENGTHS),
        ("prompt length, prompt len, prompt tokens", LENGTHS),
        ("output length, output len, output tokens, new tokens, generate tokens", OUTPUTS),
        ("prompts, requests, queries, query count", ("--num-requests",)),
        ("batch, batchsize", ("--batch-sizes", "--batch-size")),
        ("thread", ("--num-threads",)),
        ("iteration, iters, runs", ("--iterations", "--repetitions")),
        ("latency, throughput", ("--limit", ALWAYS)),
        ("duration", ("--duration", "--timeout")),
        ("precision, dtype, quant", ("--precisions", "--precision")),
        ("hardware, device, gpu", ("--devices", "--device")),
        ("runtime, backend, engine", ("--engine", "--runtimes", "--runtime")),
        ("database, db, duckdb", ("--db-path",)),
        ("model", MODELS),
        ("chart, plot", ("--chart",)),
        ("comparison", ("--chart", "--by", "benchhouse compare --by FIELD compares what is stored")),
        ("config, conf", "settings are flags; a batch reads them from --model-list FILE.yaml"),
        ("log", ("--log-level",)),
        ("tag", ("--tag",)),
        ("output, outputs, result, save, export", ("--output", "--report", RESULT_FILES)),
    )
    for words in alternatives.split(", ")
)
"""Parts of a flag ("input tokens" in --synthetic-input-tokens-mean) -> our flags, or advice, for a flag that is not in
`other_words`; the first whose parts the flag all has, in the singular or plural."""


@cache
def other_words() -> Mapping[str, tuple[Answer, ...]]:
    """A flag of another tool, or of another command -> our flags for it, of which a command has one or none, and advice
    where it has none."""

    def filled(advice: str) -> str:
        return CONSTANT.sub(lambda name: globals()[name[1]], advice)

    found: dict[str, tuple[Answer, ...]] = {}
    for row in re.split(r"\n(?=-)", re.sub(r"^#.*\n", "", TABLE, flags=re.MULTILINE).strip()):
        flags, *fields = " ".join(row.split()).split(" :: ")
        answers: list[Answer] = []
        for field in fields:
            if field.startswith("if --"):
                condition, _, advice = field.removeprefix("if ").partition(": ")
                answers.append((condition, filled(advice)))
            elif all(word.startswith(("-", "{")) for word in field.split()):
                for word in field.split():
                    known = globals()[word[1:-1]] if word.startswith("{") else word
                    answers += (known,) if isinstance(known, str) else known
            else:
                answers.append(filled(field))
        found |= dict.fromkeys(flags.split(), tuple(answers))
    return MappingProxyType(found)
