"""The kinds of doubt: how bad each is, what it means and what to do about it, for whoever raises, stores or shows one.

invalid results are not ranked; throttled and noisy ones are shown with their mark; info is good to know. Imported
results may have kinds of their own, which their importer raises and whose evidence says what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from benchmarking.core.records import Doubt, Json, Severity, Validity

SEVERITIES: tuple[Severity, ...] = ("info", "noisy", "throttled", "invalid")
"""From the mildest to the worst."""
UNKNOWN = "See the evidence in the run file."


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One reason not to take a number at its face."""

    name: str
    severity: Severity
    meaning: str
    """What was found, in words for people who did not write the statistics."""
    advice: str
    """What to do about it."""

    @property
    def sentence(self) -> str:
        """What it means and what to do."""
        return f"{self.meaning[0].upper()}{self.meaning[1:]}; {self.advice}."


_TABLE: tuple[tuple[str, Severity, str, str], ...] = (
    (
        "noisy",
        "noisy",
        "the calls differ by more than a tenth of the median: small differences between results mean nothing",
        "close other programs and measure again",
    ),
    (
        "very_noisy",
        "noisy",
        "the calls differ by more than a quarter of the median",
        "find what else runs on the machine and measure again: gates do not judge such a result",
    ),
    (
        "correlated",
        "noisy",
        "slow calls come in stretches, so the interval says less than it seems to",
        "take more launches, whose spread the interval then speaks of",
    ),
    (
        "severe_outliers",
        "noisy",
        "more than one call in twenty was far off the others",
        "trust the median and not the mean, and look for programs that wake up now and then",
    ),
    (
        "drift",
        "noisy",
        "the calls became faster or slower while they were timed",
        "give --warmup-iterations a larger number, or let the device cool first",
    ),
    (
        "target_missed",
        "noisy",
        "the interval did not become as narrow as the profile asks for",
        "choose a longer --profile or more --iterations",
    ),
    (
        "few_samples",
        "info",
        "fewer than 20 calls were timed",
        "give --iterations at least 20 for an interval and a 90th percentile",
    ),
    (
        "not_steady",
        "info",
        "the warm-up reached its limit before the calls were alike",
        "give --warmup-iterations a larger number",
    ),
    (
        "zero_spread",
        "invalid",
        "every call took exactly the same time, which no real call does",
        "check the clock of the machine or the benchmark that takes its own times",
    ),
    (
        "wrong_output",
        "invalid",
        "the output is not what the model should give",
        "take another precision, runtime or driver: the time of a wrong answer is worth nothing",
    ),
    (
        "foreign_process",
        "invalid",
        "another process used the device",
        "end it, or take another device, and measure again",
    ),
    (
        "compiled_in_window",
        "invalid",
        "something was compiled while calls were timed",
        "give --warmup-iterations a larger number",
    ),
    (
        "swapped_in",
        "invalid",
        "memory was swapped in while calls were timed",
        "free memory or take a smaller batch",
    ),
    (
        "major_faults",
        "invalid",
        "files were read into memory while calls were timed",
        "free memory, so that the weights stay in it, and measure again",
    ),
    (
        "throttle_reason",
        "throttled",
        "the device said that heat or power held it back",
        "improve its cooling, or wait until it is cool, and measure again",
    ),
    (
        "violation_time",
        "throttled",
        "the device spent time held back by heat or power",
        "improve its cooling, or wait until it is cool, and measure again",
    ),
    (
        "low_clock",
        "throttled",
        "the device's clock stayed far below its usual one",
        "check its power mode, power limit and cooling",
    ),
    (
        "cpu_pressure",
        "noisy",
        "other programs were waiting for the CPU before the calls",
        "close them and measure again",
    ),
    (
        "run_queue_wait",
        "noisy",
        "the calls had to wait for a CPU",
        "close other programs, or bind the calls to free processors with --cpu-list",
    ),
    (
        "steal",
        "noisy",
        "the hypervisor gave CPU time to another machine",
        "measure on a machine of your own, or compare many launches",
    ),
    (
        "quota_throttled",
        "throttled",
        "the container's CPU quota held the calls back",
        "raise the quota, or set --num-threads no higher than it",
    ),
    (
        "launch_failed",
        "noisy",
        "one of the launches failed, the others did not",
        "read its error in the evidence before you rely on the rest",
    ),
    (
        "launch_spread",
        "noisy",
        "the launches differ by more than a tenth of the median",
        "take more --launches, since one alone may be off by as much",
    ),
    (
        "peak_below_weights",
        "invalid",
        "the memory peak that was read is smaller than the weights, so it missed them",
        "check in the run file which device the model really ran on",
    ),
    (
        "cpu_fallback",
        "invalid",
        "parts of the model ran on the CPU although nobody asked for that",
        "take a runtime or precision that has these operations on the device",
    ),
    (
        "output_differs",
        "invalid",
        "the output is further from the eager float32 model's than the precision allows",
        "take a higher precision or another runtime",
    ),
    (
        "not_compared",
        "info",
        "there was no output of the eager float32 model to compare with",
        "read in the evidence why, and check the output in another way",
    ),
    (
        "governor",
        "info",
        "the CPU's clock governor is not set to performance",
        "set it for steadier clocks, or compare only with results under the same one",
    ),
    (
        "on_battery",
        "info",
        "the machine ran on its battery",
        "plug it in, since batteries lower the clocks",
    ),
    (
        "vm",
        "info",
        "this is a virtual machine, whose host may be busy with others",
        "compare several launches, and prefer bare metal for small differences",
    ),
    (
        "container",
        "info",
        "this is a container, whose host may be busy with others",
        "see that the host is idle, and compare several launches",
    ),
    (
        "power_cap",
        "info",
        "the device's power limit is not the one it came with",
        "set it back, or compare only with results under the same limit",
    ),
    (
        "power_capped",
        "info",
        "a limit on its power held the device back",
        "take it as how the device is set up, or raise the limit",
    ),
    (
        "random_routing",
        "info",
        "the weights are random, so the experts are chosen by chance and not as a trained router would",
        "measure with --weights pretrained for the load of real experts",
    ),
    (
        "timed_by_itself",
        "info",
        "the benchmark took the times itself",
        "check in its code what they take in, and that it waits for the device",
    ),
    (
        "mig",
        "info",
        "the device is a part of a GPU that others use, too",
        "see that the other parts are idle, or compare only with results of such a part",
    ),
    (
        "affinity_escaped",
        "invalid",
        "threads ran on processors that the process was not bound to",
        "take a runtime that keeps to --cpu-list, or leave the flag out",
    ),
    (
        "oversubscribed",
        "info",
        "there were more threads than processors, or more than the quota of processor time allows",
        "set --num-threads no higher than that",
    ),
    (
        "remote_memory",
        "info",
        "part of the memory was another NUMA node's",
        "bind the process to the processors of one node with --cpu-list",
    ),
    (
        "application_clock",
        "info",
        "the clocks that applications get were set away from the device's own",
        "reset them, or compare only with results under the same clocks",
    ),
    (
        "display",
        "info",
        "the GPU also draws a display",
        "measure on one that does not, or close what is drawn",
    ),
    (
        "emulated_precision",
        "invalid",
        "the weights are converted to another precision before anything is computed",
        "ask for the precision that is computed in",
    ),
    (
        "simulator",
        "info",
        "an emulator computed in the place of the device",
        "measure on the device itself: the time of an emulator says nothing of it",
    ),
    (
        "software_adapter",
        "info",
        "the browser's GPU was a renderer on the processor, which is no device",
        "start the browser where it has a GPU",
    ),
)
"""Name, severity, meaning, advice."""

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        name: Kind(name=name, severity=severity, meaning=meaning, advice=advice)
        for name, severity, meaning, advice in _TABLE
    }
)
"""By name."""


def doubt(kind: str, /, **evidence: Json) -> Doubt:
    """A doubt of a kind in the table, of its severity."""
    return Doubt(kind=kind, severity=KINDS[kind].severity, evidence=evidence)


def validity(doubts: Iterable[Doubt]) -> Validity:
    """The worst severity; what is only good to know leaves a result valid."""
    worst: Severity = max((one.severity for one in doubts), key=SEVERITIES.index, default="info")
    return "valid" if worst == "info" else worst


def sentence(kind: str) -> str:
    """What a kind means and what to do about it; of a kind that is not in the table, where to look."""
    return KINDS[kind].sentence if kind in KINDS else UNKNOWN
