-- Requests of a load on a server. Like raw samples they have no key, and columns of like values next to each other, so
-- that DuckDB compresses them: a request with 100 token times takes a few hundred bytes.

CREATE TABLE requests (
    result_id VARCHAR NOT NULL,
    launch INTEGER NOT NULL CHECK (launch >= 0),
    phase VARCHAR NOT NULL CHECK (phase IN ('warmup', 'measure')),
    ordinal INTEGER NOT NULL CHECK (ordinal >= 0),
    started_at TIMESTAMP NOT NULL,
    intended_ms DOUBLE NOT NULL CHECK (isfinite(intended_ms)),
    sent_ms DOUBLE CHECK (isfinite(sent_ms)),
    first_token_ms DOUBLE CHECK (isfinite(first_token_ms)),
    token_ms DOUBLE[] NOT NULL,
    end_ms DOUBLE CHECK (isfinite(end_ms)),
    tokens_in BIGINT CHECK (tokens_in >= 0),
    tokens_out BIGINT CHECK (tokens_out >= 0),
    cached_tokens BIGINT CHECK (cached_tokens >= 0),
    error VARCHAR,
    detail VARCHAR,
    meets_limits BOOLEAN,
    conversation INTEGER CHECK (conversation >= 0),
    turn INTEGER CHECK (turn >= 0)
);
COMMENT ON TABLE requests IS 'Requests of a load on a server. Times are in ms from started_at, by the generator''s clock; NULL for what did not happen. The view request_times has the latencies.';
COMMENT ON COLUMN requests.result_id IS 'The load: benchmark_results.result_id.';
COMMENT ON COLUMN requests.launch IS 'Repetition of the load, from 0.';
COMMENT ON COLUMN requests.phase IS 'warmup or measure.';
COMMENT ON COLUMN requests.ordinal IS 'Place in the order of the intended starts, from 0.';
COMMENT ON COLUMN requests.started_at IS 'The time 0 of the repetition, UTC.';
COMMENT ON COLUMN requests.intended_ms IS 'When the request was to be sent, in ms: by the schedule of an open loop; in a closed loop, when its place became free.';
COMMENT ON COLUMN requests.sent_ms IS 'When the request was sent, in ms.';
COMMENT ON COLUMN requests.first_token_ms IS 'Arrival of the first chunk with output, in ms.';
COMMENT ON COLUMN requests.token_ms IS 'Arrival of each chunk with output, in ms. A chunk is not always one token. Empty where they were too many to keep.';
COMMENT ON COLUMN requests.end_ms IS 'End of the reply or of the attempt, in ms.';
COMMENT ON COLUMN requests.tokens_in IS 'Tokens of the prompt, as the server counts them.';
COMMENT ON COLUMN requests.tokens_out IS 'Tokens of the output, as the server counts them.';
COMMENT ON COLUMN requests.cached_tokens IS 'Tokens of the prompt that the server took from its prefix cache; NULL where it does not say.';
COMMENT ON COLUMN requests.error IS 'Kind of the error: refused, http_429, truncated, ...; NULL for a request that succeeded.';
COMMENT ON COLUMN requests.detail IS 'The error in words.';
COMMENT ON COLUMN requests.meets_limits IS 'Whether it succeeded within every limit of the SLO; NULL without one.';
COMMENT ON COLUMN requests.conversation IS 'Number of the conversation that it is a turn of; NULL for a single request.';
COMMENT ON COLUMN requests.turn IS 'Place in the conversation, from 0; NULL for a single request.';

COMMENT ON COLUMN benchmark_runs.model_source IS 'Where the model came from: catalog, local, hub, module (a torch module passed in), bench (a user-written benchmark), file (a graph in a file), server (what a server under load calls by this name), import (another tool''s file).';
COMMENT ON COLUMN benchmark_runs.runtime IS 'How the model was run: eager, compiled, onnxruntime, ...; of a load, what the server runs: vllm, llama.cpp, ...';
COMMENT ON COLUMN benchmark_runs.runtime_mode IS 'Settings of the runtime that make a different series: attention, cache, compile mode, ...; of a load also loop, arrivals, lengths and limits.';
