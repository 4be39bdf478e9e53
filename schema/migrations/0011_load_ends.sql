-- When a response really ended: its last output, its end as stated, and the end of its body, which some servers hold open.
-- The time per output token ends with the last output, the latency with the stated end. Requests stored before have no
-- such times: their end is that of the body.

ALTER TABLE requests ADD COLUMN last_token_ms DOUBLE;
ALTER TABLE requests ADD COLUMN closed_ms DOUBLE;
ALTER TABLE requests ADD COLUMN tokens_counted_by VARCHAR;
