import os
import sys

import pytest

from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.records import Readings
from benchmarking.devices.support import system_values
from benchmarking.devices.support.system_values import UnreadableError
from benchmarking.measure import machine_state
from benchmarking.measure.machine_state import summarise_states
from benchmarking.measure.timing import latency_pass

PROC_STAT = "cpu  12602 0 4347 205892 1964 0 73 {steal} 7 8\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 1\n"
PRESSURE = "some avg10={avg10} avg60=0.38 avg300=0.21 total={total}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
V1_STAT = "nr_periods 3904\nnr_throttled {periods}\nthrottled_time {ns}\n"
V2_STAT = "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods 80\nnr_throttled {periods}\nthrottled_usec {us}\n"


def write(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def machine(root, *, steal=249, avg10="0.03", total=6_094_477, threads=None, periods=3, us=900, pswpin=5):
    files = {
        "proc/stat": PROC_STAT.format(steal=steal),
        "proc/pressure/cpu": PRESSURE.format(avg10=avg10, total=total),
        "proc/vmstat": f"pswpout 99\npswpin {pswpin}\npgmajfault 738\n",
        "proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 2000.5\n\nprocessor\t: 1\ncpu MHz\t\t: 3000.5\n",
        "proc/self/cgroup": "0::/user.slice/job\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        "sys/fs/cgroup/user.slice/job/cpu.stat": V2_STAT.format(periods=periods, us=us),
        "sys/fs/cgroup/user.slice/cpu.stat": V2_STAT.format(periods=10, us=100),
        "sys/fs/cgroup/cpu.stat": "usage_usec 9\n",
        "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp\n",
        "sys/class/thermal/thermal_zone0/temp": "54000\n",
    }
    for thread, (ran, waited) in (threads or {"10": (1_000, 50)}).items():
        files[f"proc/self/task/{thread}/schedstat"] = f"{ran} {waited} 3\n"
    return write(root, files)


def test_counters_are_read_from_recorded_files(tmp_path):
    read = machine_state.counters(machine(tmp_path)).values
    assert read["steal"] == {"steal": 249, "total": 12602 + 4347 + 205892 + 1964 + 73 + 249}
    assert read["cpu_pressure"] == {"avg10_percent": 0.03, "total_us": 6_094_477}
    assert read["run_queue"] == {"10": [1_000, 50]}
    assert read["throttling"] == {"periods": 13, "ns": 1_000_000}
    assert read["swapped_in_pages"] == 5
    assert read["cpu_frequency_hz"] == 2_500_500_000.0
    assert read["temperatures_c"] == {"thermal_zone0 x86_pkg_temp": 54.0}


def test_differences_over_a_window_by_hand(tmp_path):
    threads = {"10": (1_000, 50), "11": (0, 0)}
    before = machine_state.counters(machine(tmp_path / "a", threads=threads))
    later = {"10": (1_900_001_000, 100_000_050), "11": (300_000_000, 20_000_000), "12": (5_000, 80_000_000)}
    after = machine_state.counters(
        machine(tmp_path / "b", steal=259, avg10="47.11", total=6_494_477, threads=later, periods=7, us=2_900, pswpin=9)
    )
    changed = machine_state.differences(before, after, elapsed_s=2.0).values
    assert changed["steal_share"] == 1.0  # all ticks that passed in this recording were stolen ones
    assert changed["cpu_pressure_before"] == pytest.approx(0.0003)
    assert changed["cpu_pressure_share"] == pytest.approx(0.2)  # 400 ms of 2 s
    assert changed["run_queue_wait_share"] == pytest.approx(0.1)  # 100 + 20 + 80 ms of 2 s
    assert changed["busy_threads"] == 2  # 1.9 s and 0.3 s; 5 us is no work
    assert (changed["throttled_periods"], changed["throttled_s"]) == (4, pytest.approx(0.002))
    assert changed["swapped_in_pages"] == 4
    assert (changed["cpu_frequency_before_hz"], changed["temperatures_after_c"]) == (
        2_500_500_000.0,
        {"thermal_zone0 x86_pkg_temp": 54.0},
    )


def test_clocks_apart_tell_a_step_of_the_system_clock_from_a_suspension():
    before = {"wall_s": 1_000.0, "running_s": 50.0, "boot_s": 60.0}
    after = {"wall_s": 1_400.0, "running_s": 52.0, "boot_s": 362.0}  # 2 s of running, 300 s suspended, set by 98 s
    both = [Readings(values={"clocks": clocks}) for clocks in (before, after)]
    changed = machine_state.differences(*both, elapsed_s=2.0).values
    assert changed == {"clock_step_s": 98.0, "suspended_s": 300.0}
    now = machine_state.counters()
    unchanged = machine_state.differences(now, machine_state.counters(), elapsed_s=1.0).values
    assert abs(unchanged["clock_step_s"]) < 1.0
    assert abs(unchanged["suspended_s"]) < 1.0


def test_a_machine_without_these_files_has_reasons(tmp_path):
    read = machine_state.counters(tmp_path)
    unread = {"steal", "cpu_pressure", "run_queue", "throttling", "swapped_in_pages", "temperatures_c"}
    assert unread <= read.missing.keys()
    assert all(read.missing[name].startswith("not_supported") for name in unread)
    changed = machine_state.differences(read, read, elapsed_s=1.0)
    assert not {"steal_share", "run_queue_wait_share"} & changed.values.keys()
    assert unread <= changed.missing.keys()


def test_clocks_of_cpufreq_are_preferred_to_those_of_cpuinfo(tmp_path):
    root = machine(tmp_path)
    write(root, {f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq": "1800000\n" for cpu in range(64)})
    assert machine_state.counters(root).values["cpu_frequency_hz"] == 1_800_000_000.0


def test_sensors_of_hwmon_replace_missing_thermal_zones(tmp_path):
    write(tmp_path, {"sys/class/hwmon/hwmon3/name": "k10temp\n", "sys/class/hwmon/hwmon3/temp1_input": "61250\n"})
    assert machine_state.counters(tmp_path).values["temperatures_c"] == {"hwmon3 k10temp temp1_input": 61.25}


@pytest.mark.parametrize("text", ["", "no data"])
def test_a_sensor_that_cannot_be_read_takes_no_other_with_it(tmp_path, text):
    """As that of a radio that is switched off."""
    root = write(
        machine(tmp_path),
        {"sys/class/thermal/thermal_zone1/type": "iwlwifi_1\n", "sys/class/thermal/thermal_zone1/temp": text},
    )
    assert machine_state.counters(root).values["temperatures_c"] == {"thermal_zone0 x86_pkg_temp": 54.0}
    (root / "sys/class/thermal/thermal_zone0/temp").unlink()
    assert machine_state.counters(root).missing["temperatures_c"].startswith("failed: ")
    write(root, {"sys/class/hwmon/hwmon3/name": "k10temp\n", "sys/class/hwmon/hwmon3/temp1_input": "61250\n"})
    assert machine_state.counters(root).values["temperatures_c"] == {"hwmon3 k10temp temp1_input": 61.25}


def test_throttling_of_version_1_groups_is_in_nanoseconds(tmp_path):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/x\n1:cpu,cpuacct:/docker/abc\n0::/\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.stat": V1_STAT.format(periods=6, ns=1_500),
        },
    )
    assert system_values.throttling(tmp_path) == {"periods": 6, "ns": 1_500}


def test_control_groups_without_throttling_counts_are_a_reason(tmp_path):
    write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "usage_usec 9\n"})
    with pytest.raises(UnreadableError, match="not_supported: no control group"):
        system_values.throttling(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="the counters are Linux's")
def test_the_real_counters_see_this_process_work():
    before = machine_state.counters()
    if "run_queue" not in before.values:
        pytest.skip(before.missing["run_queue"])
    sum(i * i for i in range(2_000_000))
    changed = machine_state.differences(before, machine_state.counters(), elapsed_s=0.1).values
    assert changed["busy_threads"] >= 1
    assert changed["run_queue_wait_share"] >= 0
    assert changed["involuntary_switches"] >= 0


class Handle(DeviceHandle):
    def __init__(self, states):
        self.states = states

    def state(self):
        return self.states.pop(0)


def test_a_window_joins_the_hosts_counters_and_the_devices_states(tmp_path):
    states = [Readings(values={"temperature_c": 50}), Readings(values={"temperature_c": 60}, missing={"power_w": "x"})]
    window = machine_state.Window(Handle(states), machine(tmp_path))
    window.sample()
    closed = window.close()
    assert closed["elapsed_s"] > 0
    assert closed["throttled_periods"] == 0
    assert (closed["device_before"], closed["device_after"]) == ({"temperature_c": 50}, {"temperature_c": 60})
    assert closed["missing"]["power_w"] == "x"


def test_threads_waiting_for_a_cpu_are_counted():
    before = Readings(values={"run_queue": {"10": [0, 0]}})
    after = Readings(values={"run_queue": {"10": [50_000_000, 900_000_000]}})
    assert machine_state.differences(before, after, elapsed_s=1.0).values["busy_threads"] == 1


def test_windows_include_worker_processes(tmp_path):
    """A browser's page waits 400 ms of a second and reads 70 pages; the process that drives it does neither."""

    def page(root, waited, faults):
        stat = f"4711 (Page (x) y) S 1 4711 4711 0 -1 4194560 9000 0 {faults} 0 55 11 0 0 20 0 9 0 100 1 1"
        return write(root, {"proc/4711/task/4712/schedstat": f"{waited} {waited} 9\n", "proc/4711/stat": stat})

    before = machine_state.counters(page(machine(tmp_path / "a"), 0, 30), processes=[4711])
    after = machine_state.counters(page(machine(tmp_path / "b"), 400_000_000, 100), processes=[4711])
    changed = machine_state.differences(before, after, elapsed_s=1.0).values
    assert changed["run_queue_wait_share"] == pytest.approx(0.4)
    assert changed["busy_threads"] == 1
    assert changed["major_faults"] >= 70
    assert machine_state.counters(tmp_path / "b", processes=[999]).values["run_queue"] == {"10": [1_000, 50]}


def test_the_latency_pass_watches_the_processes_of_its_operation(fake, monkeypatch):
    watched = []
    monkeypatch.setattr(machine_state, "counters", lambda root, processes: watched.append(processes) or Readings())
    handle = fake.handle()
    handle.has_scripted_clock = False
    operation = fake.operation(handle, [5.0, 5.1, 4.9])
    operation.process_ids = lambda: (4711, 4713)
    latency_pass(fake.context([], handle=handle, operation=operation, fixed_iterations=3), 1)
    assert watched == [(4711, 4713), (4711, 4713)]


def test_a_scripted_clock_is_not_touched_by_the_hosts_noise(fake):
    window = machine_state.Window(fake.handle())
    closed = window.close()
    assert "run_queue_wait_share" not in closed
    assert closed["missing"]["host"].startswith("not_applicable")


def test_states_are_combined_by_hand():
    joined = summarise_states(
        [
            Readings(
                values={"clock_hz": 900.0, "throttle_reasons": ["gpu_idle"], "violation_ns": 5, "foreign_pids": []}
            ),
            Readings(values={"clock_hz": 1500.0, "throttle_reasons": ["software_thermal"], "foreign_pids": [9]}),
            Readings(
                values={
                    "clock_hz": 1400.0,
                    "clock_default_hz": 1600.0,
                    "throttle_reasons": ["gpu_idle"],
                    "violation_ns": 12,
                    "foreign_pids": [],
                },
                missing={"power_w": "no_permission"},
            ),
        ]
    )
    assert joined.values["clock_hz_median"] == 1400.0
    assert joined.values["clock_default_hz"] == 1600.0
    assert joined.values["throttle_reasons"] == ["gpu_idle", "software_thermal"]
    assert joined.values["foreign_pids"] == [9]
    assert joined.values["violation_ns"] == 7
    assert joined.missing == {"power_w": "no_permission"}


def test_activity_of_other_processes_before_the_pass_is_excluded():
    use = {"pid": 9, "busy_percent": 80, "memory_bytes": 1}
    busy, quiet = (
        Readings(values={"foreign_pids": pids, "foreign_use": found}) for pids, found in (([9], [use]), ([], []))
    )
    assert "foreign_use" not in summarise_states([busy, quiet]).values
    assert summarise_states([busy, quiet]).values["foreign_pids"] == []
    window = summarise_states([quiet, busy, quiet]).values
    assert (window["foreign_pids"], window["foreign_use"]) == ([9], [use])


def test_violation_times_by_policy_are_summed():
    first, last = ({"violation_ns": {"thermal": a, "power": b}} for a, b in ((1, 2), (4, 10)))
    assert summarise_states([Readings(values=first), Readings(values=last)]).values["violation_ns"] == 11


def test_a_device_without_state_adds_nothing():
    assert summarise_states([Readings(), Readings()]).values == {}


def test_without_cpu_affinity_allowed_cpus_are_missing_with_a_reason(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    with pytest.raises(UnreadableError, match="not_supported"):
        machine_state.allowed_cpus()
