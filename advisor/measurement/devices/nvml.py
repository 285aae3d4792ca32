"""Clocks, throttle reasons, temperature and power of one GPU, through NVML (nvidia-ml-py, of the extra `[torch]`).

Reads only. Nothing here changes a setting of the GPU.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

# nvmlClocksEventReasons bits (NVML API reference, "NvmlClocksEventReasons"). Idle and applications-clock settings lower no
# clock of a busy GPU, so they are not reported.
REASONS: tuple[tuple[int, str], ...] = (
    (0x4, "sw-power-cap"),
    (0x8, "hw-slowdown"),
    (0x10, "sync-boost"),
    (0x20, "sw-thermal"),
    (0x40, "hw-thermal"),
    (0x80, "hw-power-brake"),
    (0x100, "display-clock"),
)
SLOW_INTERVAL_S = 0.25
"""How often NVML is asked for the memory clock, temperature and power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The state of a GPU at one moment; None where it does not say."""

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    temperature_c: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of a GPU that do not change while measuring."""

    default_clock_mhz: float | None = None
    driver: str | None = None
    power_cap_w: float | None = None
    mig: bool | None = None


def reasons(bits: int) -> tuple[str, ...]:
    """The names of the throttle reasons set in `bits`."""
    return tuple(name for bit, name in REASONS if bits & bit)


class Monitor:
    """Reads one GPU. A figure it cannot get is None; it never raises."""

    def __init__(self, uuid: str | None) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        self._slow_at = -1e9
        self._slow: tuple[float | None, float | None, float | None] = (None, None, None)
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else pynvml.nvmlDeviceGetHandleByIndex(0)
            self._nvml = pynvml
        except Exception:  # not installed, no driver, not permitted
            pass

    def read(self) -> Reading:
        """The state now."""
        sm_clock_mhz = self.sm_clock_mhz()  # first: what is timed meanwhile takes a millisecond, and so may each call
        bits = self._call("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # before driver 535, or an older pynvml
            bits = self._call("nvmlDeviceGetCurrentClocksThrottleReasons")
        memory_clock_mhz, temperature_c, power_w = self._slow_reading()
        return Reading(
            sm_clock_mhz=sm_clock_mhz,
            memory_clock_mhz=memory_clock_mhz,
            throttle=reasons(int(bits or 0)),
            temperature_c=temperature_c,
            power_w=power_w,
        )

    def sm_clock_mhz(self) -> float | None:
        """The clock of the SMs now."""
        return self._call("nvmlDeviceGetClockInfo", getattr(self._nvml, "NVML_CLOCK_SM", 1))

    def _slow_reading(self) -> tuple[float | None, float | None, float | None]:
        """Memory clock in MHz, temperature in degrees Celsius and power in watts: they change slowly, or never."""
        if time.monotonic() - self._slow_at >= SLOW_INTERVAL_S:
            memory_clock_mhz = self._call("nvmlDeviceGetClockInfo", getattr(self._nvml, "NVML_CLOCK_MEM", 2))
            milliwatts = self._call("nvmlDeviceGetPowerUsage")
            power_w = None if milliwatts is None else milliwatts / 1e3
            self._slow = (memory_clock_mhz, self._call("nvmlDeviceGetTemperature", 0), power_w)
            self._slow_at = time.monotonic()
        return self._slow

    def facts(self) -> Facts:
        """The facts that do not change while measuring."""
        clock = self._call("nvmlDeviceGetDefaultApplicationsClock", getattr(self._nvml, "NVML_CLOCK_SM", 1))
        clock = clock or self._call("nvmlDeviceGetMaxClockInfo", getattr(self._nvml, "NVML_CLOCK_SM", 1))
        cap, mig = self._call("nvmlDeviceGetEnforcedPowerLimit"), None
        try:
            driver = self._nvml.nvmlSystemGetDriverVersion()
        except Exception:
            driver = None
        try:
            mig = bool(self._nvml.nvmlDeviceGetMigMode(self._handle)[0])
        except Exception:
            mig = None
        return Facts(
            default_clock_mhz=clock,
            driver=driver.decode() if isinstance(driver, bytes) else driver,
            power_cap_w=None if cap is None else cap / 1e3,
            mig=mig,
        )

    def _call(self, name: str, *arguments: Any) -> float | None:
        try:
            return float(getattr(self._nvml, name)(self._handle, *arguments))
        except Exception:  # not supported on this GPU, not known to this version of pynvml, or there is none
            return None
