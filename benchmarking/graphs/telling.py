"""What a family tells of a call besides its times, where no torch model can be asked."""

from __future__ import annotations

from benchmarking.graphs.bundle import Bundle
from benchmarking.records import NOT_APPLICABLE, NOT_SUPPORTED, Point, Readings, Workload


def family_readings(workload: Workload, point: Point, bundle: Bundle) -> Readings:
    """Seconds of audio, active parameters, ...: as the family's torch operation reads them, or why not."""
    if workload.family == "speech":
        return _speech(point, bundle)
    if workload.family == "mixture-of-experts":
        return _experts(bundle)
    return Readings()


def _speech(point: Point, bundle: Bundle) -> Readings:
    from benchmarking.workloads import _audio

    why = f"{NOT_APPLICABLE}: what is taken in is sound, not tokens"
    missing = {"prefill_tokens_per_sec": why} if bundle.kind == "encoder-decoder" else {}
    return _audio.audio_per_call(point) | Readings(missing=missing)


def _experts(bundle: Bundle) -> Readings:
    """The number of active parameters is the configuration's; what the router chose stays inside the graph."""
    missing = {"expert_load_imbalance": f"{NOT_SUPPORTED}: the router's choices are no output of the graph"}
    active = bundle.facts.get("active_parameter_count")
    if active is None:
        missing["active_parameter_count"] = f"{NOT_SUPPORTED}: the bundle does not say"
        return Readings(missing=missing)
    return Readings(values={"active_parameter_count": active}, missing=missing)
