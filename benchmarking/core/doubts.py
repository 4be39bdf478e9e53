"""The kinds of doubt: how severe each one is, what it means and what to do about it.

"invalid" results are not ranked. "throttled" and "noisy" results, whose measurement was disturbed, are marked. "info"
is for information only, including that a number is imprecise (few samples, a missed target), which its interval already
shows. A stored doubt keeps its stored severity. Kinds that only importers raise are in `IMPORTED`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Doubt, Json, Severity, Validity
from benchmarking.core.sample_statistics import SlowCalls
from benchmarking.core.text import listed, number, visible

SEVERITIES: tuple[Severity, ...] = ("info", "noisy", "throttled", "invalid")
"""From mild to severe."""
FIT: tuple[Validity, ...] = ("valid", "noisy")
"""Validities of results that are judged: the numbers of others do not depend on the code alone."""
MAX_PLACES = 3
"""Places listed with a kind of doubt; further ones are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of reason not to take a number at face value."""

    name: str
    severity: Severity
    meaning: str
    """What was found, for readers who do not know the statistics."""
    advice: str
    """What to do about it."""

    @property
    def sentence(self) -> str:
        """Meaning and advice in one sentence."""
        return f"{self.meaning[0].upper()}{self.meaning[1:]}; {self.advice}."


_MEANINGS: Mapping[Severity, Mapping[str, str]] = {
    "invalid": {
        "zero_spread": "all calls of a launch took exactly the same time, as real calls do only by a coarse clock; "
        "check the machine's clock, or the benchmark's own timing code",
        "wrong_output": "the output failed its check (NaN, Inf or a wrong number of tokens, for example); try another "
        "precision, runtime or driver",
        "foreign_process": "another process was using the device; stop that process or choose another device, and "
        "measure again",
        "compiled_in_window": "graphs or kernels were compiled during the timed calls; raise "
        "--warmup-iterations (a profile has no such flag: repeat it)",
        "major_faults": "the process kept reading memory pages from disk during the timed calls; free memory so that "
        "the weights stay in it, and measure again",
        "peak_below_weights": "the peak device memory is smaller than the weights, so part of the model was not on "
        "the device; check in the run file which device the model ran on",
        "cpu_fallback": "parts of the model ran on the CPU although another device was requested; choose a runtime or "
        "precision that supports these operations on the device",
        "not_as_requested": "the calls did not run as requested (with another attention kernel, for example); see in "
        "the evidence what ran instead, then request that or remove the obstacle",
        "output_differs": "the output differs from the eager float32 reference by more than the precision's "
        "tolerance; choose a higher precision or another runtime",
        "claimed_time": "the benchmark reported times that its calls cannot have taken: above three times or below a "
        "hundredth of the wall time, as when seconds are returned as milliseconds; return milliseconds from "
        "measure_latency(self), and seconds from measure_latency(self, config) and in a TimingResult",
        "affinity_escaped": "threads ran on processors outside the requested --cpu-list; choose a runtime that "
        "respects the binding, or omit the flag",
        "emulated_precision": "the runtime converts the weights to another precision before computing; request the "
        "precision that it computes in",
        "late_generator": "requests were sent late, by more than 1% of the time to first token; give the generator "
        "processors that neither the server nor other programs use (--cpu-list), or send from another machine",
        "rate_not_achieved": "requests were sent at less than 98% of the requested rate; give the generator dedicated "
        "processors with --cpu-list, or lower the rate",
        "slow_generator": "the load exceeded half of the generator's own capacity, so its queueing adds to the "
        "latencies; give it dedicated processors with --cpu-list, or spread the load over several machines",
        "no_sockets": "this machine had no open files or ports left for some requests, which the server never saw and "
        "which count as failed; raise the limit of open files (ulimit -n), or spread the load over several machines",
        "over_saturated": "the server's queue kept growing, so the latencies depend on how long the load lasted; "
        "lower the rate",
        "failed_requests": "more than 1% of the requests failed, and the latencies cover only the others; see the "
        "kinds of errors in the evidence, and lower the load",
        "mlperf_invalid": "MLPerf's loadgen considers the test invalid; see its reasons in the evidence: usually the "
        "rate is too high for the limits, or the test is too short",
        "early_stopping_unmet": "there were too few queries for MLPerf's early stopping to estimate the percentile; "
        "use a longer --duration or more --num-requests: the evidence shows how many loadgen needs",
        "prefix_cache_hit": "the server took at least 1% of the prompts from its prefix cache although they share no "
        "prefix; disable its prefix cache, restart it, or change --seed",
        "whole_replies": "at least 10% of the replies arrived in one chunk, so time to first token and per output "
        "token are wrong; disable what buffers the stream (a proxy, the server's stream interval), or lower the load",
    },
    "throttled": {
        "throttle_reason": "the device reported that heat or power throttled it; improve its cooling, or let it cool "
        "down and measure again",
        "violation_time": "the device counted time during which heat throttled it; improve its cooling, or let it "
        "cool down and measure again",
        "low_clock": "the device ran at less than 75% of its default clock; check its power mode, power limit and "
        "cooling",
        "quota_throttled": "the container's CPU quota throttled the timed calls; raise the quota, or set "
        "--num-threads no higher than the quota",
    },
    "noisy": {
        "noisy": "call times vary by more than 10% of the median, so small differences between results are not "
        "significant; close other programs and measure again",
        "very_noisy": "call times vary by more than 25% of the median, so only large changes stand out; find what "
        "else is running on the machine and measure again",
        "correlated": "slow calls come in clusters, as when another program runs intermittently; look for programs "
        "that run intermittently, or use more --launches",
        "severe_outliers": "more than 5% of the calls are extreme outliers, more than 5% from the median; look for "
        "programs that run periodically: high percentiles depend on them, the median hardly does",
        "slow_calls": "a few extremely slow calls take more than 5% of the time, so the throughput is lower than the "
        "median latency suggests; see throughput_at_median for the throughput without them, and look for what stops "
        "the process periodically",
        "drift": "calls became faster or slower during the measurement; raise --warmup-iterations (a profile has no "
        "such flag: repeat it), or let the device cool down first",
        "coarse_clock": "the clock's resolution is coarser than 1% of the call, so the median is off by up to half a "
        "step; measure a larger batch, or enable a finer clock in the browser or system",
        "swapped_in": "the machine was swapping memory in during the timed calls; free memory or use a smaller batch "
        "size",
        "suspended": "the machine was suspended during the timed calls; measure again without suspending it",
        "cpu_pressure": "other programs were competing for the CPU before the timed calls; close them and measure "
        "again",
        "run_queue_wait": "the timed calls had to wait for a CPU; close other programs, use idle processors "
        "(--cpu-list), or fewer threads (--num-threads) where a run or its server has several",
        "steal": "the hypervisor gave CPU time to another virtual machine; measure on a dedicated machine, or use "
        "more --launches",
        "launch_failed": "at least one launch failed, and the result is from the others; see the error in the "
        "evidence before relying on the result",
        "launch_spread": "the medians of the launches differ by more than 10%; more --launches narrow the interval, "
        "but a single one may be off by as much",
        "shared_processors": "the generator and the server ran on the same processors; separate them: --cpu-list for "
        "the generator, taskset for the server",
        "no_steady_window": "hardly any request, or conversation, ended before the last one was sent, so the "
        "throughput includes the filling and draining of the server; raise --duration or --num-requests to several "
        "times the time that one takes",
        "unsteady": "requests in flight differ from throughput times latency (Little's law): the server was in no "
        "steady state; look for stalls or a warm-up of the server, and use a longer --duration or more --num-requests",
        "slowing_down": "requests became slower during the level although as many were in flight, so its figures "
        "depend on how long it lasted; find out what the server lacks after a while (cooling, memory), or compare only "
        "levels of one length",
        "tokens_counted_as_chunks": "the server did not report the tokens of some replies, or reported fewer than "
        "chunks, so each chunk counts as one token: there may be more; enable the server's usage report "
        "(stream_options.include_usage), or count them with --tokenizer (used where it finds no fewer than chunks)",
        "other_output_length": "the server, or your benchmark, did not generate the requested number of tokens; check "
        "whether it supports ignore_eos, or stops at an end token, and its context length",
        "profiler_overhead": "the profiler slowed calls by more than half, so parts with many short operators look "
        "larger than they are; profile a larger batch or a longer sequence, or compare the shares of two runtimes' "
        "profilers",
    },
    "info": {
        "target_missed": "the confidence interval is wider than the profile's target; choose a longer --profile or "
        "more --iterations",
        "few_samples": "fewer than 20 calls were timed, so the interval is wide and there is no 90th percentile; set "
        "--iterations, or --num-runs of a profile, to at least 20",
        "not_steady": "the warm-up reached its limit before call times were stable; raise --warmup-iterations (a "
        "profile has no such flag: repeat it)",
        "not_compared": "the output was not compared with the eager float32 reference; see the reason in the "
        "evidence, and check the output in another way",
        "compared_at_smaller_shape": "the output was compared with the eager float32 reference at a smaller shape of "
        "the same model; see the shape and the reason in the evidence, and check the output at the full shape in "
        "another way",
        "not_verified": "whether the calls ran as requested could not be verified; see the reason in the evidence, "
        "and check with the vendor's profiler what ran",
        "governor": "the CPU frequency governor is not set to performance; set it to performance for stable clocks, "
        "or compare only results with the same governor",
        "on_battery": "the machine ran on battery power, which lowers clocks; connect it to mains power and measure "
        "again",
        "vm": "this is a virtual machine, whose host may be shared; use several --launches, and prefer bare metal for "
        "small differences",
        "container": "this is a container, whose host may be shared; make sure that the host is idle, and use several "
        "--launches",
        "power_cap": "the device's power limit differs from its default; restore the default, or compare only results "
        "with the same limit",
        "power_capped": "the device reached its power limit; treat the result as specific to this limit, or raise it",
        "random_routing": "the weights are random, so a mixture of experts does not route tokens as the trained model "
        "does; measure with --weights pretrained for a realistic load of the experts",
        "timed_by_itself": "the benchmark measured its own times; check in its code what the times include and that "
        "it synchronizes with the device",
        "partly_timed": "the benchmark reported less than a third of the wall time of its calls; check that it "
        "returns milliseconds from measure_latency(self) and seconds from measure_latency(self, config), and move "
        "preparations to setup_model",
        "mig": "the device is a MIG partition of a GPU that others may use; make sure that the other partitions are "
        "idle, or compare only results on such a partition",
        "unshared_lock": "another user made the device's lock unusable, so commands of other users may have measured "
        "at the same time; have the folder or file in the evidence removed, or set BENCHHOUSE_LOCK_DIR for all users "
        "of this machine",
        "oversubscribed": "there were more threads than available processors; set --num-threads no higher than the "
        "processors or the CPU quota",
        "remote_memory": "part of the memory was on another NUMA node; bind the process to the processors of one node "
        "with --cpu-list",
        "application_clock": "the device's clocks are set or locked, or stay below their maximum for no reason that "
        "the driver names; reset them (nvidia-smi -rgc, amd-smi set --perf-level AUTO), or compare only results with "
        "the same clocks",
        "display": "the GPU also drives a display; measure on a GPU without a display, or close graphical programs",
        "dequantized": "the quantized weights were converted to floating point when they were loaded, so calls "
        "compute and occupy memory as those of an unquantized model; measure on a device with kernels for this kind "
        "of quantization, or in an engine",
        "simulator": "an emulator ran in place of the device; measure on real hardware, since an emulator's times say "
        "nothing about it",
        "clock_set_back": "the system clock was set back during the run, so its start and end times are unreliable; "
        "keep the clock synchronized (durations use a monotonic clock and are correct)",
        "clock_jumped": "the system clock jumped by more than a second during the timed calls (or the machine was "
        "suspended, where the system does not tell), so the result's start and end times are unreliable; keep the "
        "clock synchronized (durations use a monotonic clock and are correct)",
        "server_preempted": "the server ran out of KV cache and interrupted requests, whose tokens it computed again; "
        "give it more memory for the KV cache, or let it run fewer requests at once",
        "kv_cache_full": "the server's KV cache was full, so that further requests wait for memory; give it more "
        "memory for the KV cache, or read the level as the limit of this configuration",
        "latency_from_sending": "the other tool counts from sending, so its latencies are service times, and its time "
        "to first token lacks the delay of requests that were sent late; see service_time_* in other_metrics, and the "
        "doubts about late requests",
        "saturation_unknown": "the level was too short to tell whether the server's queue keeps growing; raise "
        "--duration to the needed duration in the evidence (or --num-requests, where that is given), or lower the "
        "rate",
        "short_window": "the steady window is shorter than three replies, or conversations, so throughput and requests "
        "in flight are imprecise; raise --duration to the needed duration in the evidence (or --num-requests, where "
        "that is given)",
        "varying_rate": "the rate changed during the level (a ramp or a trace), so its figures are means over all "
        "rates; use --arrivals poisson or constant for the figures of one rate",
        "warming_up": "requests became faster during the level, as while a server warms up; raise --warmup-requests, "
        "or discard the first level",
        "level_full": "the level ended early, because a level holds at most 200000 requests; choose a shorter "
        "--duration or --num-requests",
        "some_requests_failed": "some requests failed, and the latencies cover only the others; see the kinds of "
        "errors in the evidence",
        "chunks_not_tokens": "tokens did not arrive one by one in their chunks, so gaps between chunks are not "
        "inter-token latencies, and the time per output token is too short if the first chunk has several tokens, or "
        "if tokens of reasoning are counted but neither streamed nor told apart; use the time per output token of long "
        "replies, on which the first chunk has little effect, of servers that stream all tokens",
        "other_input_length": "the server counted more than 20% more or fewer prompt tokens than --input-length "
        "requested (in words); see tokens_in of the stored requests, or request exact lengths with --prompt-ids",
        "held_open": "the server kept the connection open after the end of the response, which no latency includes; "
        "look for a proxy or middleware that delays the end, which in a closed loop delays the next request too",
        "ill_conditioned": "the model's own float32 output is far from its float64 output, so no runtime's output can "
        "be judged by it; check the model's outputs by their use, or choose a numerically stable form of it",
        "software_adapter": "the GPU was a software renderer on the CPU; measure where the browser or the engine can "
        "use a GPU",
    },
}
"""Severity -> name -> meaning; advice."""

KINDS: Mapping[str, Kind] = {
    name: Kind(name=name, severity=severity, meaning=meaning, advice=advice)
    for severity, kinds in _MEANINGS.items()
    for name, text in kinds.items()
    for meaning, advice in (text.split("; "),)
}
"""By name."""


def doubt(kind: str, severity: Severity | None = None, /, **evidence: Json) -> Doubt:
    """A doubt of a kind in the table, with that kind's severity, or of another kind with the given one."""
    return Doubt(kind=kind, severity=severity or KINDS[kind].severity, evidence=evidence)


EVIDENCE_UNITS = frozenset({"s", "ms", "us", "ns", "mb", "bytes", "mhz", "w", "j", "c"})
WHERE = frozenset({"launch", "launches", "of"})
"""Keys of evidence that tell where a doubt arose rather than what was found."""


def evidence_words(evidence: Mapping[str, Json]) -> list[str]:
    """What was found, in words: "needed duration 30 s" of needed_duration_s, "offered 12/s" of offered_per_s."""
    found = []
    for name, value in evidence.items():
        *words, last = name.split("_")
        shown = "unknown" if value is None else _value_words(value)
        is_unit = bool(words) and last in EVIDENCE_UNITS and not isinstance(value, str)
        unit = "" if not is_unit or value is None else f"/{last}" if words[-1] == "per" else f" {last}"
        named = words[:-1] if is_unit and words[-1] == "per" else words if is_unit else [*words, last]
        if name not in WHERE:
            found.append(f"{visible(' '.join(named))} {shown}{unit}")
    return found


def _value_words(value: Json) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{visible(str(name))}={_value_words(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_value_words, value))
    return number(value) if isinstance(value, float) else visible(str(value))


def of_slow_calls(slow: SlowCalls, n: int) -> Doubt | None:
    """The doubt about a launch of n calls whose slow ones take much of the time."""
    if not slow.is_much:
        return None
    return doubt("slow_calls", time_share=slow.time_share, threshold=slow.threshold, slow_calls=slow.calls, n=n)


FAILED, SOME_FAILED = "failed_requests", "some_requests_failed"
MAX_FAILED_SHARE = 0.01
"""The share of requests that may fail without making the result invalid."""


def failed_requests(share: float, /, **evidence: Json) -> Doubt:
    if share > MAX_FAILED_SHARE:
        return doubt("failed_requests", **evidence)
    return doubt("some_requests_failed", **evidence)


def validity(doubts: Iterable[Doubt]) -> Validity:
    """The worst severity among the doubts; "info" leaves a result valid."""
    worst: Severity = max((one.severity for one in doubts), key=SEVERITIES.index, default="info")
    return "valid" if worst == "info" else worst


IMPORTED: Mapping[str, str] = {
    "batch_size_differs": "The stated batch size differs from the shape of the input; the stated one is stored.",
    "batch_size_not_stated": "The file does not state the batch size; it is stored as 1.",
    "below_resolution": "Calls were shorter than the tool resolves: their time is 0 in the file.",
    "checker_errors": "The submission checker found errors in this result.",
    "command_failed": "The command failed in some of its runs and may not have done its work.",
    "concurrency_not_stated": "The file does not state how many requests were in flight; it is stored as 1.",
    "concurrency_unlimited": "The client did not limit the requests in flight; the concurrency is stored as 1.",
    "debug_library": "The library that took the times was built for debugging, which may affect them.",
    "device_clock": "The tool read the device's clock, which leaves out the time of the host.",
    "divided_by_batch": "The tool divides the time per token by the batch, so it is too small.",
    "engine_not_stated": "The file does not say which engine served the requests; name it with --runtime.",
    "estimated_energy": "The tool estimated the energy instead of reading a counter.",
    "first_token_not_counted": "Tokens followed a first one without a time: the time per token has the prompt.",
    "flash_attention_maybe_auto": "Flash attention is stated as on, but the tool may have chosen it by itself.",
    "guidellm_warning": "GuideLLM itself warned about this result.",
    "inferred_scenario": "The results were derived from another scenario instead of being measured.",
    "intended_start_not_stated": "The file states when requests were sent, not when they should have been.",
    "load_cut_short": "The load did not run to its end.",
    "mean_of_ratios": "The rate is the mean of the rates of each repetition, which is above the overall rate.",
    "mislabelled_throughput": "The file names another unit than the tool measures; the unit was corrected.",
    "negative_time": "Some times are negative, because the tool subtracted too much.",
    "not_stated": "The file does not state some settings, so results with different ones may be in one series.",
    "options_may_differ": "The file has several invocations, whose options may have differed.",
    "peak_below_mean": "The stated peak of tokens per second is below the stated mean: one of them is wrong, or "
    "the peak counts pieces of the stream.",
    "percentiles_disordered": "A stated percentile is below a lower one: the statistics are of different requests.",
    "processes_pooled": "The samples of several processes are pooled, so their differences cannot be told apart.",
    "prompt_cut": "The prompt was shorter than the stated sequence length.",
    "rate_exceeded": "More requests completed per second than the stated rate sends, so it is another rate.",
    "request_errors": "Some requests failed, and the times cover only the others.",
    "rounded": "The file states times with few digits, so small differences are lost.",
    "server_metrics": "The server measured the times itself, without the network and the client.",
    "several_tokens_a_step": "The stated time is that of a step, which gave several tokens (speculative decoding).",
    "size_left_out": "A size in the file is no number and was left out; the series may have other sizes.",
    "stated_validity": "The exported file states this validity, but no doubt that explains it.",
    "time_zone_unknown": "The file states no time zone; its times are read as UTC.",
    "token_divisor": "The tool divided by all tokens, including the first, so the time per token is too small.",
    "tokens_miscounted": "The output tokens differ by more than half from those that the client counted again.",
    "undated": "The file states no date; its modification time is stored, which changes when the file is copied.",
}
"""Kinds that only importers raise -> what they mean. They are not about disturbances, so there is nothing to repeat."""


def sentence(kind: str, *, with_advice: bool = True) -> str:
    """What a kind means and, if asked, what to do about it; a kind of another version is its name in words."""
    if kind in KINDS:
        meaning = KINDS[kind].meaning
        return KINDS[kind].sentence if with_advice else f"{meaning[0].upper()}{meaning[1:]}."
    return IMPORTED.get(kind) or f"{kind[:1].upper()}{kind[1:].replace('_', ' ')}: noted by the program that wrote it."


def doubt_notes(cases: Iterable[tuple[str, str]], told: Collection[str] = ()) -> list[str]:
    """A sentence for each kind of doubt, with what it means and what to do, from (kind, place) pairs. Those of `told`
    stand above already."""
    places: dict[str, list[str]] = {}
    for kind, place in cases:
        if place not in places.setdefault(kind, []):
            places[kind].append(place)
    meant = {kind: "see above" if kind in told else sentence(kind) for kind in places}
    return [f"{kind} ({listed(found, MAX_PLACES)}): {meant[kind]}" for kind, found in places.items()]
