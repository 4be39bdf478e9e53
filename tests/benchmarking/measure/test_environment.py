import subprocess
import sys

import pytest

from benchmarking.measure.machine_state import capture, relevant_variables


def write(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def laptop(root):
    return write(
        root,
        {
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "intel_pstate\n",
            "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "proc/sys/kernel/randomize_va_space": "2\n",
            "proc/sys/vm/swappiness": "60\n",
            "proc/pressure/cpu": "some avg10=12.50 avg60=0.38 avg300=0.21 total=6094477\n",
            "sys/class/power_supply/AC/type": "Mains\n",
            "sys/class/power_supply/AC/online": "0\n",
            "sys/class/power_supply/BAT0/type": "Battery\n",
            "sys/class/power_supply/BAT0/status": "Discharging\n",
            "sys/class/power_supply/mouse/type": "Battery\n",
            "sys/class/power_supply/mouse/scope": "Device\n",
            "sys/class/power_supply/mouse/status": "Discharging\n",
        },
    )


def test_a_recorded_laptop_is_read_completely(tmp_path):
    values = capture(laptop(tmp_path), {}).values
    assert values["cpu_governor"] == "performance,powersave"
    assert values["cpu_scaling_driver"] == "intel_pstate"
    assert values["is_turbo_on"] is False
    assert values["transparent_hugepages"] == "madvise"
    assert (values["address_space_randomization"], values["swappiness"]) == (2, 60)
    assert values["cpu_pressure_avg10_percent"] == 12.5
    assert values["power_source"] == "battery"
    assert values["environment_variables"] == {}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"AC/online": "1", "AC/type": "Mains", "BAT0/type": "Battery", "BAT0/status": "Discharging"}, "mains"),
        ({"BAT0/type": "Battery", "BAT0/status": "Charging"}, "mains"),
        ({"BAT0/type": "Battery", "BAT0/status": "Discharging"}, "battery"),
        ({"AC/online": "1", "AC/type": "Mains"}, "mains"),
        ({"AC/online": "1", "AC/type": "Mains", "usb/online": "?", "usb/type": "USB"}, "mains"),
        ({"BAT0/type": "Battery", "BAT0/status": "Discharging", "usb/online": "?", "usb/type": "USB"}, "battery"),
    ],
)
def test_power_source(tmp_path, files, expected):
    write(tmp_path, {f"sys/class/power_supply/{name}": text for name, text in files.items()})
    assert capture(tmp_path, {}).values["power_source"] == expected


def test_the_power_source_is_unknown_if_the_supply_that_tells_it_cannot_be_read(tmp_path):
    files = {"AC/online": "?", "AC/type": "Mains", "BAT0/type": "Battery", "BAT0/status": "Full"}
    write(tmp_path, {f"sys/class/power_supply/{name}": text for name, text in files.items()})
    assert capture(tmp_path, {}).missing["power_source"].startswith("failed: ")


def test_a_server_without_supplies_or_cpufreq_has_reasons(tmp_path):
    (tmp_path / "sys/class/power_supply").mkdir(parents=True)
    missing = capture(tmp_path, {}).missing
    assert missing["power_source"].startswith("not_applicable")
    assert missing["cpu_governor"].startswith("not_supported")
    assert missing["is_turbo_on"].startswith("not_supported")


def test_turbo_of_other_drivers_is_on_with_one(tmp_path):
    write(tmp_path, {"sys/devices/system/cpu/cpufreq/boost": "1\n"})
    assert capture(tmp_path, {}).values["is_turbo_on"] is True


def test_only_relevant_variables_are_kept_without_secrets():
    variables = {
        "OMP_NUM_THREADS": "4",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "HOME": "/home/somebody",
        "HF_TOKEN": "hf_abc",
        "HUGGING_FACE_HUB_TOKEN": "hf_abc",
        "HF_HUB_API_KEY": "abc",
        "ZE_AFFINITY_MASK": "1",
        "MLX_ENABLE_TF32": "1",
        "HF_ENDPOINT": "https://user:secret@mirror.example/path",
        "LD_PRELOAD": "/home/somebody/lib/libjemalloc.so.2:/usr/lib/libiomp5.so",
    }
    assert relevant_variables(variables) == {
        "HF_ENDPOINT": "https://mirror.example/path",
        "LD_PRELOAD": "libjemalloc.so.2:libiomp5.so",
        "MLX_ENABLE_TF32": "1",
        "OMP_NUM_THREADS": "4",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "ZE_AFFINITY_MASK": "1",
    }


def test_capturing_this_machine_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from benchmarking.measure.machine_state import capture\n"
        "readings = capture()\n"
        "assert readings.values and 'environment_variables' in readings.values\n"
        "heavy = {'numpy', 'scipy', 'torch', 'pandas', 'duckdb'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["aggregate", "context", "doubt_rules", "memory", "machine_state"])
def test_the_supervisor_imports_nothing_heavy(module):
    code = f"import sys, benchmarking.measure.{module}\nassert not {{'numpy', 'scipy', 'torch'}} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
