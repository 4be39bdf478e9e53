"""Prices per hour of devices, from a user's YAML file:

currency: EUR
per_hour:
  cuda: 2.50                      # a type of device
  NVIDIA H100 80GB HBM3: 3.90     # its name, preferred to the type
  4f1c09d2a7be5310: 0             # a hardware_id, preferred to both
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarking.core.errors import UsageError
from benchmarking.core.yaml_files import read_yaml

KEYS = ("currency", "per_hour")
SECONDS_PER_HOUR = 3600
MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices per hour, all in one currency."""

    currency: str
    per_hour: Mapping[str, float]
    """By hardware_id, name or type of the device, names and types in lower case."""

    def of(self, hardware_id: str, device_name: str | None, device_type: str) -> float | None:
        """The price of an hour of the device; None where the file has none."""
        for key in (hardware_id, device_name, device_type):
            if key is not None and key.lower() in self.per_hour:
                return self.per_hour[key.lower()]
        return None


def cost_per_million(price_per_hour: float, throughput_per_sec: float) -> float:
    """The price of a million items (or tokens) at a throughput: price / 3600 / throughput * 10^6.

    3.60 per hour at 1000 tokens/s is 0.001 per second, so 1 per million tokens.
    """
    return price_per_hour / SECONDS_PER_HOUR / throughput_per_sec * MILLION


def read_prices(path: Path) -> Prices:
    """The prices in a file. Raises UsageError for an invalid one, StorageError for one that cannot be read."""
    data = read_yaml(path).plain()
    if not isinstance(data, dict) or set(data) != set(KEYS):
        found = ", ".join(map(str, data)) if isinstance(data, dict) else type(data).__name__
        raise UsageError(f"{path}: expected the keys currency and per_hour, found {found or 'nothing'}")
    currency, per_hour = data["currency"], data["per_hour"]
    if not isinstance(currency, str) or not currency.strip():
        raise UsageError(f"{path}: currency: expected a word such as EUR, found {currency!r}")
    if not isinstance(per_hour, dict) or not per_hour:
        raise UsageError(f"{path}: per_hour: expected devices with prices, such as cuda: 2.50, found {per_hour!r}")
    prices: dict[str, float] = {}
    for device, price in per_hour.items():
        key = str(device).lower()
        if key in prices:
            raise UsageError(f"{path}: per_hour: {device} occurs twice")
        prices[key] = _price(path, device, price)
    return Prices(currency=currency.strip(), per_hour=prices)


def _price(path: Path, device: object, price: object) -> float:
    if isinstance(price, bool) or not isinstance(price, int | float) or not math.isfinite(price) or price < 0:
        raise UsageError(f"{path}: per_hour: {device}: expected a number from 0, found {price!r}")
    return float(price)
