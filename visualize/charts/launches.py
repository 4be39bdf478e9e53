"""Charts of a launch besides its calls: load time by stage, memory by phase, and utilization, memory and power over
time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from benchmarking.core.metrics import PEAK_MEMORY
from visualize.drawing import words
from visualize.drawing.batch_charts import MOST_LINES
from visualize.drawing.configurations import configurations, rows_height_in
from visualize.drawing.figure import Block, Colour, Element, Entry, Mark, Note, Panel
from visualize.drawing.loads import LEVELS, level_names
from visualize.drawing.marks import Series, figure, legend, mark
from visualize.drawing.rows import CELL, POINT_COLUMNS, SUBJECT, ChartPlugin, Drawing, Row, grouped, trust
from visualize.drawing.scales import name_axis, number, row_axis, value_axis

STAGES = {
    "spawn": "starting the process",
    "import": "importing libraries",
    "device_init": "opening the device",
    "tokenizer": "loading the tokenizer",
    "weights_read": "reading the weights",
    "to_device": "moving weights to the device",
    "quantize": "quantizing the weights",
}
"""Stages in loading order, with their labels; unknown stages follow."""
MOST_BARS, LEAST_SHARE = 24, 0.002
"""Maximum configurations, and the share of the longest bar from which on a stage is visible and in the legend."""
STAGES_NOTE = "Of each configuration's newest run, the launch (a fresh process) with the median load time."


class LoadStages(ChartPlugin):
    name = "load_stages"
    title = "Load time by stage"
    needs = "a model with timed loading"
    columns = "run.loads, run.load_time_s"
    condition = "r.status = 'ok'"
    qualify = "QUALIFY row_number() OVER (PARTITION BY run.run_id ORDER BY r.result_id) = 1"
    alike = SUBJECT

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        """One bar per configuration, fastest on top; each stage has the same colour in every figure."""
        times = []
        for line in configurations(members):
            row = max(line.rows, key=lambda one: str(one["started_at"]))  # of the newest run
            if own := stages(row):
                times.append((line.label, row, own))
        if not times:
            return "no run has timed load stages"
        times.sort(key=lambda one: sum(one[2].values()))
        shown = times[:MOST_BARS]
        left_out = words.left_out(len(times) - len(shown), len(times), "configurations", "slowest")
        elements: list[Element] = []
        for place, (label, _, own) in enumerate(shown):
            left = 0.0
            for name, seconds in own.items():
                about = f"{label}: {STAGES.get(name, name)} {number(seconds)} s"
                elements.append(
                    Block(
                        left=left, right=left + seconds, bottom=place - 0.31, top=place + 0.31, role=f"{name} {label}",
                        fill=_colour(name), words=about,
                    )
                )  # fmt: skip
                left += seconds
            elements.append(Note(x=left, y=place, text=f"{number(left)} s", dx=4))
        # The finding is the dominant stage of a single configuration, or the range of load times of several.
        sums = [sum(own.values()) for _, _, own in shown]
        real = [total for total, (_, row, _) in zip(sums, shown, strict=True) if not row["simulated"]]
        finding = None
        if len(shown) == 1:
            own = shown[0][2]
            stage = max(own, key=lambda name: own[name])
            share = own[stage] / (sums[0] or 1)
            if stage in STAGES and share > 0.5:
                finding = f"{STAGES[stage]} takes {share:.0%} of the load time"
        elif real:
            ends = dict.fromkeys((number(real[0]), number(real[-1])))
            finding = f"loading takes {'from ' if len(ends) > 1 else ''}{' to '.join(ends)} s"
        labels = [label for label, _, _ in shown]
        axis_title = "Load time (s), from a fresh process to a loaded model\nlower is better"
        x = value_axis(axis_title, sums, room=1.12, may_be_log=False)
        least = LEAST_SHARE * max(sums)
        names = {name for _, _, own in shown for name, seconds in own.items() if seconds > least}
        return figure(
            self, key, [row for _, row, _ in shown],
            [Panel(x=x, y=row_axis(labels), elements=tuple(elements), height_in=rows_height_in(labels))], finding,
            notes=words.sentences([STAGES_NOTE], [left_out]), width_in=8.4,
            legend=tuple(
                Entry(label=STAGES.get(name, name.replace("_", " ")), colour=_colour(name))
                for name in sorted(names, key=_place)
            ),
            columns_of_table=("setup", "stage", "seconds"),
            rows=tuple(
                (label, STAGES.get(name, name), seconds) for label, _, own in shown for name, seconds in own.items()
            ),
        )  # fmt: skip


def stages(row: Row) -> dict[str, float]:
    """Seconds by stage, in loading order, of the launch with the median load time. Medians of each stage would not add
    up to a load time."""
    launches = [load["stages_s"] for load in json.loads(row["loads"]) if load.get("stages_s")]
    launches.sort(key=lambda launch: sum(launch.values()))
    typical = launches[(len(launches) - 1) // 2] if launches else {}
    return {name: typical[name] for name in sorted(typical, key=_place)}


def _place(stage: str) -> int:
    return list(STAGES).index(stage) if stage in STAGES else len(STAGES)


def _colour(stage: str) -> Colour:
    return _place(stage) if stage in STAGES else "grey"


PANELS: Mapping[str, Mapping[str, str]] = {
    "Memory of the process (MB)\nlower is better": {
        "memory_rss_base_mb": "before\nloading",
        "memory_peak_rss_load_mb": "peak while\nloading",
        "memory_rss_mean_mb": "mean while\ninferring",
        "memory_peak_rss_infer_mb": "peak while\ninferring",
    },
    "Memory of the device (MB)\nlower is better": {
        "memory_weights_mb": "weights\nalone",
        "memory_device_used_mean_mb": "mean while\ninferring",
        "memory_device_allocated_peak_mb": "peak\nallocated",
        "memory_device_reserved_peak_mb": "peak\nreserved",
        "memory_device_process_peak_mb": "peak of the\nprocess",
    },
    "Device utilization (%)": {
        "utilization_mean_percent": "mean while\ninferring",
        "utilization_max_percent": "maximum while\ninferring",
    },
}
"""Axis title of each panel -> its columns in phase order, with their labels."""
PEAKS = tuple(name for name in PEAK_MEMORY if any(name in phases for phases in PANELS.values()))
"""Candidates for the title; the first column with a reading is used."""
OF_THE_DEVICE = "memory_device_"
PANEL_IN, HEIGHT_IN = 4.2, 3.4
NOTE = "Medians over launches, one reading each; no interval."


class MemoryPhases(ChartPlugin):
    name = "memory_phases"
    title = "Memory by phase"
    needs = "a result with memory readings of two phases"
    columns = ", ".join(f"r.{column}" for phases in PANELS.values() for column in phases)
    condition = "r.status = 'ok'"
    of_cell = True
    alike = CELL

    def drawing(self, key: Row, drawn: Sequence[Row]) -> Drawing:
        phases = {title: found for title in PANELS if len(found := measured(drawn, title)) > 1}
        if not any(title.startswith("Memory") for title in phases):
            return "no memory readings of two phases"
        groups = grouped(drawn, ("batch_size", *POINT_COLUMNS))
        shown = groups[-MOST_LINES:]  # the largest points need the most memory
        rows = [found[-1] for _, found in shown]
        series = [Series(label=words.point(row), rows=(row,), style=style) for style, row in enumerate(rows)]
        rest = len(groups) - len(shown)
        left_out = words.left_out(rest, len(groups), "points", "smallest")
        panels = []
        for title, columns in phases.items():
            values = [row[column] for row in rows for column in columns if row[column] is not None]
            lines = tuple(
                one.line(
                    mark(one.rows[0], place, one.rows[0][column])
                    for place, column in enumerate(columns)
                    if one.rows[0][column] is not None
                )
                for one in series
            )
            x = name_axis([PANELS[title][column] for column in columns], edge=0.3)
            panels.append(
                Panel(x=x, y=value_axis(title, values, may_be_log=False), elements=lines, height_in=HEIGHT_IN)
            )
        # The highest peak memory of a valid result during inference.
        column = next((name for name in PEAKS if any(row[name] is not None for row in rows)), None)
        sound = [row for row in rows if trust(row) == "valid" and column and row[column] is not None]
        finding = None
        if column is not None and sound and not key["simulated"]:
            most = max(sound, key=lambda row: float(row[column]))
            finding = f"memory peaks at {number(most[column])} MB at {words.point(most)}"
        return figure(
            self, key, rows, panels, finding, columns=len(panels),
            notes=words.sentences([words.readings(rows, NOTE)], (words.doubts(rows), left_out)),
            width_in=max(6.4, PANEL_IN * len(panels)), legend=legend(series, rows),
        )  # fmt: skip


def measured(rows: Sequence[Row], title: str) -> tuple[str, ...]:
    """The columns of a panel with a value in any row. The size of the weights alone is not a device reading."""
    columns = tuple(column for column in PANELS[title] if any(row[column] is not None for row in rows))
    is_read = any(column.startswith(OF_THE_DEVICE) for column in columns)
    return columns if is_read or "memory_weights_mb" not in columns else ()


TIMES = "monitor_time"
"""Raw metric with the time of each sample, in ms since the first."""
READINGS: Mapping[str, str] = {
    "utilization": "Device\nutilization (%)",
    "memory_device_used": "Device memory\nin use (MB)",
    "memory_resident": "Memory of the\nprocess (MB)",
    "power": "Power (W)",
    "server_running": "Requests\nrunning",
    "server_waiting": "Requests\nwaiting",
    "server_kv_cache_percent": "KV cache\nin use (%)",
    "server_preemptions": "Requests\ninterrupted",
    "server_prefix_hits": "Prompt tokens from\nthe prefix cache",
    "server_queue_time": "Time in the queue,\nof all requests (s)",
}
"""Other raw metrics of the monitor -> axis titles. A server's own metrics are sampled during the load."""
MOST_POINTS = 6
"""Maximum points of a picture; each has one line per launch."""
WIDTH_IN, READING_IN = 7.6, 1.6
READINGS_NOTE = "Sampled ten times a second during extra calls after the timed ones; one line per launch."
NOTE_OF_LOADS = "Sampled twice a second during the load; one line per repetition."


class UseOverTime(ChartPlugin):
    name = "use_over_time"
    title = "Device utilization over time"
    needs = "raw samples of a device with readable utilization"
    columns = f"{LEVELS}, raw.launch, raw.metric, raw.samples"
    joins = "JOIN raw_benchmark_data raw ON raw.result_id = r.result_id"
    condition = f"""r.status = 'ok' AND raw.phase = 'measure' AND len(raw.samples) > 0
        AND raw.metric IN ({", ".join(f"'{name}'" for name in (TIMES, *READINGS))})"""
    then_by = "raw.launch, raw.metric"
    loads = "also"
    of_cell = True
    alike = (*CELL, "loop")

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        results = [samples for _, samples in grouped(members, ("batch_size", *POINT_COLUMNS, "result_id"))]
        points = [(samples, found) for samples in results if (found := launches(samples))]
        if not points:
            return "no readings with time stamps"
        shown, is_load = points[-MOST_POINTS:], key["device"] == "server"
        named = level_names([rows[0] for rows, _ in shown]) if key["loop"] else words.point
        # The state of a result is in its name: crossed readings would hide each other, and no line would join them.
        states = [("" if (state := trust(rows[0])) == "valid" else f" ({state})") for rows, _ in shown]
        series = [
            Series(label=named(rows[0]) + state, rows=tuple(rows), style=style)
            for style, ((rows, _), state) in enumerate(zip(shown, states, strict=True))
        ]
        readings = [found for _, found in shown]
        times = [time for launched in readings for one in launched for time in one[TIMES]]
        x = value_axis("Time since the first reading (s)", times, may_be_log=False)
        panels = []
        for name, title in READINGS.items():
            lines = []  # one for each launch with the reading
            for one, launched in zip(series, readings, strict=True):
                for place, reading in enumerate(launched):
                    if name in reading:
                        about = f"launch {place + 1}"
                        pairs = zip(reading[TIMES], reading[name], strict=True)
                        marks = [Mark(x=time, y=value, words=about) for time, value in pairs]
                        lines.append(one.line(marks, role=name, width=1.0, size=3.5))
            if lines:
                y = value_axis(title, [one.y for line in lines for one in line.marks], may_be_log=False)
                panels.append(Panel(x=x, y=y, elements=tuple(lines), height_in=READING_IN))
        rows = [one.rows[0] for one in series]
        left_out = words.left_out(len(points) - len(shown), len(points), "points", "smallest")
        lacking = (words.doubts(rows, None), left_out)
        return figure(
            self, key, rows, panels, width_in=WIDTH_IN, legend=legend(series, ()),
            title=f"{'The server during the load' if is_load else self.title}: {key['model_id']}",
            subtitle=words.SEPARATOR.join((words.cell(key), str(key["task"]))),
            notes=words.sentences([NOTE_OF_LOADS if is_load else READINGS_NOTE], lacking),
        )  # fmt: skip


def launches(rows: Sequence[Row]) -> list[dict[str, list[float]]]:
    """For each launch, readings by raw metric with their times in s; readings without matching times are dropped."""
    readings = []
    for _, of_launch in grouped(rows, ("launch",)):
        series = {str(row["metric"]): list(row["samples"]) for row in of_launch}
        times = [time_ms / 1e3 for time_ms in series.pop(TIMES, ())]
        whole = {name: values for name, values in series.items() if len(values) == len(times)}
        if whole:
            readings.append({TIMES: times, **whole})
    return readings


PLUGINS = (LoadStages(), MemoryPhases(), UseOverTime())
