"""A handful of questions that people ask, each as one statement: to run, and to start from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A question and its SQL."""

    question: str
    sql: str


EXAMPLES = (
    Example(
        question="Which runtime is fastest for each model and point?",
        sql="""SELECT model_id, batch_size, sequence_length, device_name, runtime, precision, latency_median_ms
FROM hardware_comparison
WHERE times_fastest = 1""",
    ),
    Example(
        question="How much faster than eager float32 is each runtime, and how far off are its outputs?",
        sql="""SELECT model_id, batch_size, sequence_length, runtime, precision,
    speedup, speedup_ci_low, speedup_ci_high, output_error
FROM runtime_comparison
WHERE is_ranked AND speedup IS NOT NULL""",
    ),
    Example(
        question="How does throughput grow with the batch?",
        sql="""SELECT model_id, runtime, precision, sequence_length, batch_size, throughput_samples_per_sec,
    memory_peak_mb
FROM hardware_comparison
ORDER BY model_id, runtime, precision, sequence_length, batch_size""",
    ),
    Example(
        question="What could not be measured, and why?",
        sql="""SELECT model_id, device, runtime, precision, batch_size, sequence_length, status, error
FROM latest_results
WHERE status <> 'ok'""",
    ),
    Example(
        question="Which numbers should not be taken at their face, and for which reasons?",
        sql="""SELECT doubt, validity, count(*) AS results
FROM (SELECT unnest(doubts) AS doubt, validity FROM all_results)
GROUP BY doubt, validity
ORDER BY results DESC, doubt""",
    ),
    Example(
        question="What was run lately, and on which versions?",
        sql="""SELECT started_at, model_id, device, runtime, precision, status, versions['torch'] AS torch, host
FROM benchmark_runs
ORDER BY started_at DESC
LIMIT 20""",
    ),
    Example(
        question="How much do the launches of a result differ?",
        sql="""SELECT model_id, runtime, batch_size, raw.launch, raw.sample_count,
    raw.median AS median_ms, raw.p99 AS p99_ms
FROM raw_benchmark_data raw JOIN all_results USING (result_id)
WHERE raw.phase = 'measure' AND raw.metric = 'latency_wall'
ORDER BY model_id, runtime, batch_size, result_id, raw.launch""",
    ),
    Example(
        question="Where does the time of a fresh process go before its first call?",
        sql="""SELECT model_id, runtime, load_spawn_s, load_import_s, load_device_init_s, load_weights_read_s,
    load_to_device_s, load_time_s
FROM benchmark_runs
WHERE load_time_s IS NOT NULL
ORDER BY load_time_s DESC
LIMIT 20""",
    ),
)
