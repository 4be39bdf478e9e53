-- Calls that are timed in blocks have a mean and a median only: how single calls vary cannot be read from the blocks' means.
-- Results that were stored before keep their values.

COMMENT ON COLUMN benchmark_results.ci_scope IS 'What the confidence interval speaks of: between launches (3 or more), or within: the calls of these processes only.';
COMMENT ON COLUMN benchmark_results.latency_median_ms IS 'Latency of a call in ms: median inside a launch (of the blocks'' means where calls are timed in blocks), median over launches.';
COMMENT ON COLUMN benchmark_results.latency_std_ms IS 'Sample standard deviation of latency inside a launch in ms, median over launches; NULL when calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_mad_ms IS 'Median absolute deviation of latency inside a launch in ms, median over launches; NULL when calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_min_ms IS 'Lowest latency of all launches in ms; NULL when calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_p25_ms IS '25th percentile of latency inside a launch in ms, median over launches; NULL when calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_p75_ms IS '75th percentile of latency inside a launch in ms, median over launches; NULL when calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_p90_ms IS '90th percentile of latency inside a launch in ms, median over launches; NULL when there are too few samples, or calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_p95_ms IS '95th percentile of latency inside a launch in ms, median over launches; NULL when there are too few samples, or calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_p99_ms IS '99th percentile of latency inside a launch in ms, median over launches; NULL when there are too few samples, or calls are timed in blocks.';
COMMENT ON COLUMN benchmark_results.latency_max_ms IS 'Highest latency of all launches in ms; NULL when calls are timed in blocks.';
