CREATE OR REPLACE VIEW all_quality AS
SELECT
    run_id,
    max(value) FILTER (WHERE metric = 'perplexity') AS perplexity,
    max(value) FILTER (WHERE metric = 'perplexity_increase') AS perplexity_increase,
    max(value) FILTER (WHERE metric = 'kl_divergence') AS kl_divergence,
    max(value) FILTER (WHERE metric = 'kl_divergence_p99') AS kl_divergence_p99,
    max(value) FILTER (WHERE metric = 'top1_agreement') AS top1_agreement,
    max(value) FILTER (WHERE metric = 'embedding_cosine') AS embedding_cosine,
    max(value) FILTER (WHERE metric = 'embedding_rank_correlation') AS embedding_rank_correlation,
    max(value) FILTER (WHERE metric = 'confidence_error') AS confidence_error,
    max(value) FILTER (WHERE metric = 'token_error_rate') AS token_error_rate,
    max(value) FILTER (WHERE metric = 'latent_error') AS latent_error,
    max(value) FILTER (WHERE metric = 'exact_match') AS exact_match,
    max(value) FILTER (WHERE metric = 'choice_accuracy') AS choice_accuracy,
    max(value) FILTER (WHERE metric = 'task_accuracy') AS task_accuracy
FROM all_measures_of_quality
GROUP BY run_id;

COMMENT ON VIEW all_quality IS 'The quality of the model of each run, one column per metric; the intervals and reasons are in quality_results.';
COMMENT ON COLUMN all_quality.perplexity IS 'exp of the mean surprise per token of a text, in the runtime: lower is better.';
COMMENT ON COLUMN all_quality.perplexity_increase IS 'Increase of the perplexity over the eager float32 model on the same tokens, in %.';
COMMENT ON COLUMN all_quality.kl_divergence IS 'Mean Kullback-Leibler divergence from the eager float32 model, in nats: per token of a text, or per input.';
COMMENT ON COLUMN all_quality.kl_divergence_p99 IS '99th percentile of that divergence over the tokens, in nats.';
COMMENT ON COLUMN all_quality.top1_agreement IS 'Share of tokens or inputs whose most likely choice is that of the eager float32 model.';
COMMENT ON COLUMN all_quality.embedding_cosine IS 'Mean cosine similarity of embeddings with those of the eager float32 model.';
COMMENT ON COLUMN all_quality.embedding_rank_correlation IS 'Spearman correlation of the similarities of all pairs of inputs with those of the eager float32 model.';
COMMENT ON COLUMN all_quality.confidence_error IS 'Mean absolute difference of the probability of the first choice from that of the eager float32 model.';
COMMENT ON COLUMN all_quality.token_error_rate IS 'Edit distance of the generated tokens from those of the eager float32 model, relative to their number.';
COMMENT ON COLUMN all_quality.latent_error IS 'Norm of the difference of the latents from those of the eager float32 model, relative to the norm of these.';
COMMENT ON COLUMN all_quality.exact_match IS 'Share of the prompts of a user''s file whose greedy text is an expected answer.';
COMMENT ON COLUMN all_quality.choice_accuracy IS 'Share of the prompts of a user''s file whose right choice has the largest log-probability.';
COMMENT ON COLUMN all_quality.task_accuracy IS 'Mean score of the tasks of the newest imported evaluation of the same model, precision and engine.';
