"""What each kind of doubt means, in a sentence for people who did not write the statistics."""

from __future__ import annotations

from collections.abc import Mapping

DOUBT_WORDS: Mapping[str, str] = {
    "noisy": "the calls differ by more than a tenth of the median: small differences between results mean nothing",
    "very_noisy": "the calls differ by more than a quarter of the median",
    "correlated": "slow calls come in stretches, so the interval says less than it seems to",
    "severe_outliers": "more than one call in twenty was far off the others",
    "drift": "the calls became faster or slower while they were timed",
    "target_missed": "the interval did not become as narrow as the profile asks for",
    "few_samples": "fewer than 20 calls were timed",
    "not_steady": "the warm-up reached its limit before the calls were alike",
    "zero_spread": "every call took exactly the same time, which no real call does",
    "wrong_output": "the output is not what the model should give",
    "foreign_process": "another process used the device",
    "compiled_in_window": "something was compiled while calls were timed",
    "swapped_in": "memory was swapped in while calls were timed",
    "major_faults": "files were read into memory while calls were timed",
    "throttle_reason": "the device said that heat or power held it back",
    "violation_time": "the device spent time held back by heat or power",
    "low_clock": "the device's clock stayed far below its usual one",
    "cpu_pressure": "other programs were waiting for the CPU before the calls",
    "run_queue_wait": "the calls had to wait for a CPU",
    "steal": "the hypervisor gave CPU time to another machine",
    "quota_throttled": "the container's CPU quota held the calls back",
    "launch_failed": "one of the launches failed, the others did not",
    "launch_spread": "the launches differ by more than a tenth of the median",
    "peak_below_weights": "the memory peak that was read is smaller than the weights, so it missed them",
    "cpu_fallback": "parts of the model ran on the CPU although nobody asked for that",
    "output_differs": "the output is further from the eager float32 model's than the precision allows",
    "not_compared": "there was no output of the eager float32 model to compare with",
    "governor": "the CPU's clock governor is not set to performance",
    "on_battery": "the machine ran on its battery",
    "vm": "this is a virtual machine, whose host may be busy with others",
    "container": "this is a container, whose host may be busy with others",
    "power_cap": "the device's power limit is not the one it came with",
    "power_capped": "a limit on its power held the device back",
    "random_routing": "the weights are random, so the experts are chosen by chance and not as a trained router would",
    "timed_by_itself": "the benchmark took the times itself",
    "mig": "the device is a part of a GPU that others use, too",
    "affinity_escaped": "threads ran on processors that the process was not bound to",
    "oversubscribed": "there were more threads than processors, or more than the quota of processor time allows",
    "remote_memory": "part of the memory was another NUMA node's",
    "application_clock": "the clocks that applications get were set away from the device's own",
    "display": "the GPU also draws a display",
    "emulated_precision": "the weights are converted to another precision before anything is computed",
    "simulator": "an emulator computed in the place of the device",
    "software_adapter": "the browser's GPU was a renderer on the processor, which is no device",
}


def words(kind: str) -> str:
    """The meaning of a kind; kinds that have no words here have their evidence in the run file."""
    return DOUBT_WORDS.get(kind, "see the evidence in the run file")
