"""Output of `--list-devices`."""

import json

from benchmarking.commands.listings import devices_json, devices_text
from benchmarking.core.records import Device, from_json

FOUND = {
    "cpu": (
        Device(
            type="cpu",
            selector="cpu",
            found=True,
            name="AMD EPYC",
            memory_bytes=25_276_514_304,
            precisions=("float32", "int8"),
        ),
    ),
    "cuda": (Device(type="cuda", selector="cuda", found=False, why_not="no driver: install it"),),
    "qnn": (Device(type="qnn", selector="qnn", found=True, name="Emulator", driver="QNN 2", simulated=True),),
    "null": (Device(type="null", selector="null", found=True, name="null device"),),
}


def test_table_is_aligned_and_gives_the_reasons():
    assert devices_text(FOUND).splitlines() == [
        "device  name                                memory  precisions    driver",
        "─" * 72,
        "cpu     AMD EPYC                           25.3 GB  float32 int8  -",
        "qnn     Emulator (emulated, never ranked)        -  -             QNN 2",
        "",
        "not found  why",
        "─" * 32,
        "cuda       no driver: install it",
        "",
        "null: computes nothing, to try commands: its times are those of the JSON file $BENCHHOUSE_NULL_SCRIPT, such "
        'as {"latency_ms": {"*": [5.0, 5.1]}}, or about 0.01 ms per token',
    ]


def test_without_absent_devices_there_is_no_second_table():
    assert "not found" not in devices_text({"cpu": FOUND["cpu"]})


def test_json_is_the_records_without_the_null_device():
    listed = devices_json(FOUND)
    assert [entry["selector"] for entry in listed] == ["cpu", "cuda", "qnn"]
    assert from_json(Device, json.loads(json.dumps(listed[0]))) == FOUND["cpu"][0]
    assert listed[1]["why_not"] == "no driver: install it"
