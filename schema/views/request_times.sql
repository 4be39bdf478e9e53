-- Latencies in an open loop count from the intended start: a delayed request is late for its user, even if the
-- generator could not send it in time. The service time counts from sending.
CREATE OR REPLACE VIEW request_times AS
SELECT
    result_id,
    launch,
    phase,
    ordinal,
    TRY(started_at + to_microseconds(CAST(intended_ms * 1000 AS BIGINT))) AS intended_at,
    sent_ms - intended_ms AS lateness_ms,
    first_token_ms - intended_ms AS time_to_first_token_ms,
    CASE WHEN tokens_streamed > 1 AND coalesce(last_token_ms, token_ms[-1], end_ms) - first_token_ms >= 0.1
        THEN (coalesce(last_token_ms, token_ms[-1], end_ms) - first_token_ms) / (tokens_streamed - 1) END
        AS time_per_output_token_ms,
    end_ms - intended_ms AS latency_ms,
    end_ms - sent_ms AS service_time_ms,
    tokens_in,
    tokens_out,
    tokens_counted_by,
    cached_tokens,
    error,
    detail,
    meets_limits,
    conversation,
    turn,
    CASE WHEN len(token_ms) > 0 OR (first_token_ms IS NULL AND (tokens_out = 0 OR (tokens_out IS NULL AND error <> '')))
        THEN len(token_ms) END AS chunks
FROM (
    SELECT *, CASE WHEN tokens_counted_by = 'hidden' THEN len(token_ms) ELSE tokens_out END AS tokens_streamed
    FROM requests
);

COMMENT ON VIEW request_times IS 'One row per request under load, with its latencies from the intended start.';
COMMENT ON COLUMN request_times.phase IS 'warmup or measure.';
COMMENT ON COLUMN request_times.launch IS 'Repetition of the load, from 0.';
COMMENT ON COLUMN request_times.ordinal IS 'Place in the order of the intended starts, from 0.';
COMMENT ON COLUMN request_times.intended_at IS 'Intended start of the request, UTC.';
COMMENT ON COLUMN request_times.lateness_ms IS 'Delay of sending after the intended start, in ms.';
COMMENT ON COLUMN request_times.time_to_first_token_ms IS 'From the intended start to the first output, in ms.';
COMMENT ON COLUMN request_times.time_per_output_token_ms IS 'From the first output to the last, over the output tokens after the first, in ms; NULL for fewer than two tokens, or if all arrived together (within 0.1 ms). To the end if the time of the last output is unknown, as in imported load tests. At most this long where tokens_counted_by is chunks or hidden: each chunk counts as one token.';
COMMENT ON COLUMN request_times.latency_ms IS 'From the intended start to the end of the response, in ms.';
COMMENT ON COLUMN request_times.service_time_ms IS 'From sending to the end, in ms.';
COMMENT ON COLUMN request_times.chunks IS 'Chunks with output that arrived, of which one is not always one token; NULL if unknown, as in imported load tests and where the times were too many to keep or were compacted.';
COMMENT ON COLUMN request_times.tokens_in IS 'Tokens of the prompt, as the server counts them.';
COMMENT ON COLUMN request_times.tokens_out IS 'Tokens of the output; see tokens_counted_by.';
COMMENT ON COLUMN request_times.tokens_counted_by IS 'tokenizer, chunks (at most the number of tokens), or hidden (a server that did not stream all); NULL for the count of the server, runtime or imported tool.';
COMMENT ON COLUMN request_times.cached_tokens IS 'Prompt tokens that the server took from its prefix cache; NULL if it does not report them.';
COMMENT ON COLUMN request_times.error IS 'Kind of error; NULL for a successful request.';
COMMENT ON COLUMN request_times.detail IS 'Text of the error.';
COMMENT ON COLUMN request_times.meets_limits IS 'Whether it succeeded within every limit of the SLO; NULL without one.';
COMMENT ON COLUMN request_times.conversation IS 'Number of the conversation that the request belongs to; NULL for a single request.';
COMMENT ON COLUMN request_times.turn IS 'Place in the conversation, from 0; NULL for a single request.';
