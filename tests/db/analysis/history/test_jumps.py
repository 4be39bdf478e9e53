"""Steps beside a slope and in correlated noise: the statistic against generalised least squares, and what is found."""

import numpy as np
import pytest

from benchmarking.core.student_t import cumulative
from db.analysis.history.detector import CORRELATIONS, detect, jumps

RUNS = 80
HISTORIES = 40


def correlated(rng, correlation=0.9, sd=0.02):
    values = np.zeros(3 * RUNS)
    for run, shock in enumerate(rng.normal(0, sd * (1 - correlation**2) ** 0.5, len(values) - 1), start=1):
        values[run] = correlation * values[run - 1] + shock
    return values[-RUNS:]


def after(place):
    return (np.arange(RUNS) >= place).astype(float)


def places(logs):
    return [change.index for change in detect(np.exp(logs))]


def share_found(history, place):
    rng = np.random.default_rng(8)
    return sum(any(abs(at - place) <= 5 for at in places(history(rng))) for _ in range(HISTORIES)) / HISTORIES


def test_the_p_value_is_that_of_generalised_least_squares_at_the_likeliest_correlation():
    logs = correlated(np.random.default_rng(4))[:40] + 0.2 * after(25)[:40]
    runs = np.arange(40)
    model = np.column_stack([np.ones(40), runs, runs >= 25])

    def fit(correlation):
        """Restricted log likelihood and t, from the inverse of the whole covariance."""
        inverse = np.linalg.inv(correlation ** np.abs(runs[:, None] - runs) / (1 - correlation**2))
        information = model.T @ inverse @ model
        estimate = np.linalg.solve(information, model.T @ inverse @ logs)
        rest = logs - model @ estimate
        squares = rest @ inverse @ rest
        volume = np.linalg.slogdet(inverse)[1] - np.linalg.slogdet(information)[1]
        error = (squares / 37 * np.linalg.inv(information)[2, 2]) ** 0.5
        return (volume - 37 * np.log(squares)) / 2, estimate[2] / error

    _, t = max(fit(correlation) for correlation in CORRELATIONS)
    assert jumps(logs, 60, 1e-3) == {25: pytest.approx(2 * cumulative(-abs(t), 37), rel=1e-6)}


def test_a_step_is_found_in_strongly_correlated_noise_and_beside_a_leak_of_either_direction():
    leak = 0.002 * np.arange(RUNS)
    assert share_found(lambda rng: correlated(rng) + 0.1 * after(40), 40) >= 0.95
    for slope in (leak, -leak):
        assert share_found(lambda rng, slope=slope: rng.normal(0, 0.01, RUNS) + slope + 0.1 * after(40), 40) >= 0.95


def test_the_size_of_a_step_is_not_that_of_the_leak_beside_it():
    logs = np.random.default_rng(1).normal(0, 0.002, RUNS) - 0.002 * np.arange(RUNS) + np.log(1.1) * after(40)
    (change,) = detect(np.exp(logs))
    assert change.index == 40
    assert change.relative_change == pytest.approx(0.08, abs=0.01)  # ten runs of the leak lie between the medians


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_correlated_noise_leaks_and_ramps_have_no_jumps(correlation):
    rng = np.random.default_rng(9)
    ramp = np.clip((np.arange(RUNS) - 30) / 10, 0, 1)
    for _ in range(HISTORIES):
        noise = correlated(rng, correlation, 0.01)
        assert not jumps(noise, 60, 1e-6)
        assert not jumps(noise + 0.1 * ramp, 60, 1e-6)


@pytest.mark.parametrize("values", [[], [0.0] * 5, [1.0] * 40], ids=["none", "few", "constant"])
def test_too_few_or_equal_values_have_no_jump(values):
    assert jumps(np.asarray(values), 60, 1e-6) == {}
