from benchmarking.measure.context import Reporter


def test_reports_come_at_most_four_times_a_second_and_at_the_start_of_each_phase():
    seconds = iter([0.0, 0.0, 0.1, 0.2, 0.25, 0.3])
    seen = []
    live = Reporter(seen.append, clock_s=lambda: next(seconds))
    live("warmup")  # 0.0
    live("warmup", [1.0])  # 0.1: too soon
    live("measure")  # 0.2: another phase
    live("measure", [1.0])  # 0.25: too soon
    live("memory")  # 0.3
    assert [(one.phase, one.elapsed_s) for one in seen] == [("warmup", 0.0), ("measure", 0.2), ("memory", 0.3)]


def test_a_report_has_calls_median_and_interval():
    seen = []
    Reporter(seen.append)("measure", [float(i) for i in range(30, 0, -1)])
    assert (seen[0].calls, seen[0].median_ms, seen[0].low_ms, seen[0].high_ms) == (30, 16.0, 9.0, 22.0)


def test_no_calls_have_no_median():
    seen = []
    Reporter(seen.append)("measure")
    assert (seen[0].calls, seen[0].median_ms, seen[0].low_ms) == (0, None, None)


def test_without_a_receiver_the_values_are_not_read():
    assert Reporter(None)("measure", None) is None  # which nothing could be computed from
