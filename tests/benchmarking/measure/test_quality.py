"""Measures of quality against direct computations, by hand and by scipy, and at their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.sample_statistics import exact_share_interval
from benchmarking.measure.quality_measures import (
    edit_distance,
    embedding_values,
    label_values,
    latent_values,
    log_softmax,
    mean_value,
    percentile_value,
    rank_correlation,
    share_value,
    text_values,
    token_values,
    window_scores,
)

RANDOM = np.random.default_rng(5)


def test_log_softmax_is_exact_where_float32_would_lose_the_divergence() -> None:
    from scipy.special import log_softmax as by_scipy

    logits = (30 * RANDOM.standard_normal((4, 50_000)) + 1e4).astype(np.float32)
    assert np.allclose(log_softmax(logits), by_scipy(logits.astype(np.float64), axis=-1), atol=1e-11)


def test_a_masked_token_has_probability_zero_and_nan_is_refused() -> None:
    assert log_softmax(np.array([[0.0, -np.inf]])).tolist() == [[0.0, -math.inf]]
    for bad in ([math.nan, 0.0], [-math.inf, -math.inf], [math.inf, 0.0]):
        with pytest.raises(BenchhouseError, match="NaN or Inf"):
            log_softmax(np.array([bad]))


def test_scores_of_a_window_equal_those_of_scipy() -> None:
    from scipy.special import rel_entr, softmax

    reference, logits = RANDOM.standard_normal((2, 40, 300)).astype(np.float32)
    logits = (reference + 0.3 * logits).astype(np.float32)
    tokens = RANDOM.integers(0, 300, 40)
    found = window_scores(logits, tokens, reference)
    q, p = softmax(logits.astype(np.float64), axis=1), softmax(reference.astype(np.float64), axis=1)
    assert found.divergence is not None
    assert found.agrees is not None
    assert np.allclose(found.divergence, rel_entr(p, q).sum(axis=1), rtol=1e-9)
    assert np.allclose(found.surprise, -np.log(q[np.arange(40), tokens]), rtol=1e-9)
    assert (found.agrees == (p.argmax(axis=1) == q.argmax(axis=1))).all()


def test_scores_equal_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    reference, logits = RANDOM.standard_normal((2, 30, 200)).astype(np.float32)
    tokens = RANDOM.integers(0, 200, 30)
    found = text_values([window_scores(logits, tokens, reference)])
    p, q = (torch.log_softmax(torch.from_numpy(one).double(), -1) for one in (reference, logits))
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(logits).double(), torch.from_numpy(tokens))
    divergence = torch.nn.functional.kl_div(q, p, reduction="batchmean", log_target=True)
    assert found["perplexity"].value == pytest.approx(float(loss.exp()))
    assert found["kl_divergence"].value == pytest.approx(float(divergence))


def test_a_model_that_equals_the_reference_has_no_divergence_and_is_not_proven_to_agree_everywhere() -> None:
    windows = []
    for _ in range(6):
        logits = RANDOM.standard_normal((10, 50))
        windows.append(window_scores(logits, RANDOM.integers(0, 50, 10), logits))
    found = text_values(windows)
    assert {name: found[name].value for name in ("perplexity_increase", "kl_divergence", "kl_divergence_p99")} == {
        "perplexity_increase": 0.0,
        "kl_divergence": 0.0,
        "kl_divergence_p99": 0.0,
    }
    agreement = found["top1_agreement"]
    assert (agreement.value, agreement.high) == (1.0, 1.0)
    assert agreement.low == pytest.approx(0.025 ** (1 / 60))


def test_an_impossible_token_makes_the_perplexity_infinite_rather_than_large() -> None:
    logits = np.array([[0.0, -np.inf, 0.0]])
    found = text_values([window_scores(logits, np.array([1]), np.zeros((1, 3)))])
    assert math.isinf(found["perplexity"].value)
    assert math.isinf(found["kl_divergence"].value)
    assert found["top1_agreement"].value == 1.0


def test_another_vocabulary_is_refused() -> None:
    with pytest.raises(BenchhouseError, match="the reference's of 2 and 4"):
        window_scores(np.zeros((2, 3)), np.array([0, 1]), np.zeros((2, 4)))


def test_intervals_over_windows_are_students_or_wider_and_cover_the_truth() -> None:
    from scipy import stats

    values = RANDOM.normal(1.0, 0.2, 12).tolist()
    found = mean_value(values)
    low, high = stats.t.interval(0.95, 11, loc=np.mean(values), scale=stats.sem(values))
    assert found.low is not None
    assert found.high is not None
    assert low - 0.05 < found.low <= low + 1e-9
    assert high - 1e-9 <= found.high < high + 0.05
    even = mean_value([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (even.low, even.high) == pytest.approx(stats.t.interval(0.95, 4, loc=3.0, scale=math.sqrt(0.5)))
    inside = [mean_value(RANDOM.exponential(1.0, 16).tolist()) for _ in range(800)]
    assert sum((one.high or 0.0) < 1.0 for one in inside) / 800 < 0.065  # 9 % by Student's t
    assert sum((one.low or 0.0) > 1.0 for one in inside) / 800 < 0.025


def test_intervals_of_percentiles_and_correlations_cover_the_truth() -> None:
    chance, missed = np.random.default_rng(3), 0
    for _ in range(300):
        levels = chance.normal(0, 0.3, (16, 1))
        found = percentile_value(list(np.exp(levels + chance.normal(0, 1.0, (16, 64)))), 0.99)
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= math.exp(2.3263 * math.hypot(0.3, 1.0)) <= found.high
    assert missed / 300 < 0.08  # 15 % by a bootstrap
    missed = 0
    for _ in range(100):
        reference = chance.normal(0, 1, (16, 32))
        errors = 0.1 * np.exp(chance.normal(0, 1.0, (16, 1))) * chance.normal(0, 1, (16, 32))
        found = embedding_values(reference + errors, reference)["embedding_rank_correlation"]
        missed += found.low is None or found.high is None or not found.low <= 0.952 <= found.high
    assert missed / 100 < 0.1  # 17 % by a bootstrap


def test_fewer_than_five_windows_have_no_interval() -> None:
    found = mean_value([1.0, 2.0, 3.0, 4.0])
    assert (found.value, found.low, found.high) == (2.5, None, None)
    assert percentile_value([np.ones(3)] * 4, 0.99).low is None


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (7, 10), (10, 10), (1000, 1024), (1, 3)])
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(hits: int, count: int) -> None:
    from scipy import stats

    expected = stats.binomtest(hits, count).proportion_ci(0.95, method="exact")
    assert exact_share_interval(hits, count) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_a_share_is_no_surer_than_its_tokens_allow() -> None:
    found = share_value([1.0] * 8, 8 * 64)
    assert found.low == pytest.approx(0.9928, abs=1e-4)
    assert share_value([0.0, 1.0] * 4, 8 * 64).low == pytest.approx(mean_value([0.0, 1.0] * 4, least=0.0).low)


def test_the_interval_of_single_answers_is_exact_and_excludes_what_one_of_them_does() -> None:
    found = share_value([1.0] * 6 + [0.0] * 3, 9)
    assert (found.low, found.high) == (pytest.approx(0.2993, abs=1e-4), pytest.approx(0.9251, abs=1e-4))


def test_rank_correlation_is_spearmans_with_ties() -> None:
    from scipy import stats

    x, y = RANDOM.integers(0, 5, 40).astype(float), RANDOM.standard_normal(40)
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert math.isnan(rank_correlation(np.ones(4), np.arange(4.0)))


def test_embeddings_scaled_and_turned_keep_their_ranks_but_not_their_cosine() -> None:
    reference = RANDOM.standard_normal((8, 16))
    same = embedding_values(3 * reference, reference)
    assert same["embedding_cosine"].value == pytest.approx(1.0)
    assert same["embedding_rank_correlation"].value == pytest.approx(1.0)
    turned = embedding_values(-reference, reference)
    assert turned["embedding_cosine"].value == pytest.approx(-1.0)
    assert turned["embedding_rank_correlation"].value == pytest.approx(1.0)
    with pytest.raises(BenchhouseError, match="NaN"):
        embedding_values(np.full((2, 2), np.nan), np.ones((2, 2)))


def test_labels_by_hand() -> None:
    reference = np.log(np.array([[0.7, 0.3], [0.4, 0.6]]))
    output = np.log(np.array([[0.5, 0.5], [0.8, 0.2]]))
    found = label_values(output, reference)
    divergences = [0.7 * math.log(0.7 / 0.5) + 0.3 * math.log(0.3 / 0.5), 0.4 * math.log(0.5) + 0.6 * math.log(3)]
    assert found["kl_divergence"].by_window == pytest.approx(divergences)
    assert found["top1_agreement"].by_window == (1.0, 0.0)
    assert found["confidence_error"].by_window == pytest.approx([0.2, 0.4])
    frames = label_values(np.stack([output, output]), np.stack([reference, output]))  # inputs x frames x labels
    assert frames["top1_agreement"].by_window == (0.5, 1.0)


@pytest.mark.parametrize(
    ("tokens", "reference", "distance"),
    [((), (1, 2), 2), ((1, 2, 3), (1, 2, 3), 0), ((1, 3), (1, 2, 3), 1), ((9, 1, 2), (1, 2, 3), 2)],
)
def test_edit_distance_counts_the_fewest_changes(
    tokens: tuple[int, ...], reference: tuple[int, ...], distance: int
) -> None:
    assert edit_distance(tokens, reference) == distance


def test_token_and_latent_errors_by_hand() -> None:
    found = token_values(np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), np.array([[1, 2, 3, 9], [5, 6, 7, 8]]))
    assert found["token_error_rate"].by_window == (0.25, 0.0)
    error = latent_values(np.array([[[3.0], [4.0]]]), np.array([[[3.0], [0.0]]]))["latent_error"]
    assert error.by_window == (pytest.approx(4 / 3),)


def test_what_follows_the_end_of_a_text_is_no_error() -> None:
    """Against 1, 2, the end: a token is wrong, one is added before the end, one is missing, and only what follows the
    end differs."""
    reference = np.array([[1, 2, 0, 9, 9]] * 4)
    output = np.array([[1, 3, 0, 7, 7], [1, 2, 4, 0, 9], [1, 0, 2, 9, 9], [1, 2, 0, 0, 5]])
    assert token_values(output, reference, {0, 8})["token_error_rate"].by_window == (0.5, 0.5, 0.5, 0.0)
    assert token_values(output, reference)["token_error_rate"].by_window == (0.6, 0.4, 0.4, 0.4)
    with pytest.raises(BenchhouseError, match="no text"):
        token_values(output, np.zeros((4, 5)), {0})
