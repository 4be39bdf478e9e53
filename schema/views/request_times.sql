-- Latencies in an open loop count from the intended start: a request that the server kept waiting was late for its user,
-- also where the generator could not send it. The service time, from sending, is beside it.
CREATE OR REPLACE VIEW request_times AS
SELECT
    result_id,
    launch,
    phase,
    ordinal,
    started_at + to_microseconds(CAST(intended_ms * 1000 AS BIGINT)) AS intended_at,
    sent_ms - intended_ms AS lateness_ms,
    first_token_ms - intended_ms AS time_to_first_token_ms,
    (end_ms - first_token_ms) / nullif(tokens_out - 1, 0) AS time_per_output_token_ms,
    end_ms - intended_ms AS latency_ms,
    end_ms - sent_ms AS service_time_ms,
    tokens_in,
    tokens_out,
    cached_tokens,
    error,
    detail,
    meets_limits,
    conversation,
    turn,
    len(token_ms) AS chunks
FROM requests;

COMMENT ON VIEW request_times IS 'One row per request under load, with its latencies from the intended start.';
COMMENT ON COLUMN request_times.phase IS 'warmup or measure.';
COMMENT ON COLUMN request_times.launch IS 'Repetition of the load, from 0.';
COMMENT ON COLUMN request_times.ordinal IS 'Place in the order of the intended starts, from 0.';
COMMENT ON COLUMN request_times.intended_at IS 'When the request was to be sent, UTC.';
COMMENT ON COLUMN request_times.lateness_ms IS 'By how much the generator sent it later than intended, in ms.';
COMMENT ON COLUMN request_times.time_to_first_token_ms IS 'From the intended start to the first output, in ms.';
COMMENT ON COLUMN request_times.time_per_output_token_ms IS 'From the first output to the end, over the output tokens after the first, in ms; NULL for fewer than two tokens.';
COMMENT ON COLUMN request_times.latency_ms IS 'From the intended start to the end, in ms.';
COMMENT ON COLUMN request_times.service_time_ms IS 'From sending to the end, in ms.';
COMMENT ON COLUMN request_times.chunks IS 'Chunks with output that arrived; a chunk is not always one token.';
COMMENT ON COLUMN request_times.tokens_in IS 'Tokens of the prompt, as the server counts them.';
COMMENT ON COLUMN request_times.tokens_out IS 'Tokens of the output, as the server counts them.';
COMMENT ON COLUMN request_times.cached_tokens IS 'Tokens of the prompt that the server took from its prefix cache; NULL where it does not say.';
COMMENT ON COLUMN request_times.error IS 'Kind of the error; NULL for a request that succeeded.';
COMMENT ON COLUMN request_times.detail IS 'The error in words.';
COMMENT ON COLUMN request_times.meets_limits IS 'Whether it succeeded within every limit of the SLO; NULL without one.';
COMMENT ON COLUMN request_times.conversation IS 'Number of the conversation that it is a turn of; NULL for a single request.';
COMMENT ON COLUMN request_times.turn IS 'Place in the conversation, from 0; NULL for a single request.';
