"""What an hour of a device costs, from a user's YAML file:

currency: EUR
per_hour:
  cuda: 2.50                      # a type of device
  NVIDIA H100 80GB HBM3: 3.90     # its name, which counts before the type
  4f1c09d2a7be5310: 0             # a hardware_id, which counts before both
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarking.core.errors import StorageError, UsageError

KEYS = ("currency", "per_hour")
SECONDS_PER_HOUR = 3600
MILLION = 1_000_000
MAX_BYTES = 1_000_000
"""No list of prices is longer, and aliases of aliases make memory run out of what is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices per hour, all in one currency."""

    currency: str
    per_hour: Mapping[str, float]
    """By hardware_id, name or type of the device, names and types in lower case."""

    def of(self, hardware_id: str, device_name: str | None, device_type: str) -> float | None:
        """The price of an hour of the device, None where the file has none."""
        for key in (hardware_id, device_name, device_type):
            if key is not None and key.lower() in self.per_hour:
                return self.per_hour[key.lower()]
        return None


def cost_per_million(price_per_hour: float, throughput_per_sec: float) -> float:
    """What a million costs of what a device does so many of in a second: price / 3600 / throughput * 10^6.

    3.60 an hour at 1000 tokens a second is 0.001 a second, so 1 a million tokens.
    """
    return price_per_hour / SECONDS_PER_HOUR / throughput_per_sec * MILLION


def read_prices(path: Path) -> Prices:
    """The prices in a file. Raises UsageError that names the file and what is wrong in it, StorageError."""
    data = _yaml(path)
    if not isinstance(data, dict) or set(data) != set(KEYS):
        found = ", ".join(map(str, data)) if isinstance(data, dict) else type(data).__name__
        raise UsageError(f"{path}: takes the keys currency and per_hour, both: found {found or 'nothing'}")
    currency, per_hour = data["currency"], data["per_hour"]
    if not isinstance(currency, str) or not currency.strip():
        raise UsageError(f"{path}: currency takes a word such as EUR: found {currency!r}")
    if not isinstance(per_hour, dict) or not per_hour:
        raise UsageError(f"{path}: per_hour takes devices and their prices, such as cuda: 2.50")
    prices: dict[str, float] = {}
    for device, price in per_hour.items():
        key = str(device).lower()
        if key in prices:
            raise UsageError(f"{path}: per_hour: {device} is there twice")
        prices[key] = _price(path, device, price)
    return Prices(currency=currency.strip(), per_hour=prices)


def _price(path: Path, device: object, price: object) -> float:
    if isinstance(price, bool) or not isinstance(price, int | float) or not math.isfinite(price) or price < 0:
        raise UsageError(f"{path}: per_hour: {device}: takes a number from 0: found {price!r}")
    return float(price)


def _yaml(path: Path) -> Any:
    import yaml

    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path}: too long for a list of prices")
        return yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file (UTF-8)") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: no YAML: {' '.join(str(error).split())}") from error
