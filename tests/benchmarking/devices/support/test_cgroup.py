"""CPU quotas and memory limits of control groups."""

from benchmarking.devices.support.host_linux import limits


def test_version_2_takes_the_lowest_of_a_group_and_those_above_it(plant):
    root = plant(
        {
            "proc/self/cgroup": "0::/pods/one",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory",
            "sys/fs/cgroup/pods/cpu.max": "150000 100000",
            "sys/fs/cgroup/pods/memory.max": 8_000_000_000,
            "sys/fs/cgroup/pods/one/cpu.max": "400000 100000",
            "sys/fs/cgroup/pods/one/memory.max": "max",
        }
    )
    assert limits(root).values == {
        "cgroup_version": 2,
        "cgroup_cpu_quota_cores": 1.5,
        "cgroup_memory_limit_bytes": 8_000_000_000,
    }


def test_version_1_reads_each_controllers_own_group(plant):
    root = plant(
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/a\n3:memory:/b\n0::/c",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": 50_000,
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": 100_000,
            "sys/fs/cgroup/memory/b/memory.limit_in_bytes": 1_000_000_000,
        }
    )
    assert limits(root).values == {
        "cgroup_version": 1,
        "cgroup_cpu_quota_cores": 0.5,
        "cgroup_memory_limit_bytes": 1_000_000_000,
    }


def test_no_limit_is_not_applicable_in_both_versions(plant):
    root = plant(
        {
            "proc/self/cgroup": "2:cpu:/\n3:memory:/\n0::/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": -1,
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": 100_000,
            "sys/fs/cgroup/memory/memory.limit_in_bytes": 9_223_372_036_854_771_712,
            "sys/fs/cgroup/cpu.max": "max 100000",
        }
    )
    assert limits(root).missing == {
        "cgroup_cpu_quota_cores": "not_applicable: no CPU quota",
        "cgroup_memory_limit_bytes": "not_applicable: no memory limit",
    }


def test_a_path_of_the_host_is_answered_by_the_containers_root(plant):
    root = plant(
        {
            "proc/self/cgroup": "0::/../../system.slice/docker-abc.scope",
            "sys/fs/cgroup/cgroup.controllers": "cpu",
            "sys/fs/cgroup/cpu.max": "200000 100000",
        }
    )
    assert limits(root).values["cgroup_cpu_quota_cores"] == 2.0


def test_without_proc_there_is_a_reason(tmp_path):
    missing = limits(tmp_path).missing
    assert missing["cgroup_cpu_quota_cores"] == f"not_supported: no {tmp_path}/proc/self/cgroup"
    assert missing["cgroup_version"] == f"not_supported: no {tmp_path}/sys/fs/cgroup"
