"""Clocks, throttle reasons, temperature and power of one GPU: through NVML (pynvml) where it is installed, else nvidia-smi.

Reads only. Nothing here changes a setting of the GPU.
"""

from __future__ import annotations

import contextlib
import subprocess
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
SMI_INTERVAL_S = 1.0
"""nvidia-smi takes tens of milliseconds: its answer is used again for this long, and is of no round in particular."""
SLOW_INTERVAL_S = 0.25
"""How often NVML is asked for the memory clock, temperature and power."""
# nvidia-smi answers nothing where it does not know one of the fields asked for: those that some drivers lack are asked for apart.
_SMI_FIELDS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "power.limit", "clocks.max.sm", "driver_version")
_SMI_CHANGING = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # the second before driver 535
_SMI_FIXED = ("clocks.default_applications.graphics", "mig.mode.current")


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

    def __init__(self, uuid: str | None, index: int = 0) -> None:
        self.selector = uuid or str(index)
        self.source = "none"
        self._nvml: Any = None
        self._handle: Any = None
        self._last: tuple[float, dict[str, str]] = (-1e9, {})
        self._reasons: str | None = None  # the field that names the throttle reasons, once one was answered
        self._slow_at = -1e9
        self._slow: tuple[float | None, float | None, float | None] = (None, None, None)
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else pynvml.nvmlDeviceGetHandleByIndex(index)
            self._nvml, self._handle, self.source = pynvml, handle, "nvml"
        except Exception:  # not installed, no driver, not permitted: nvidia-smi may still answer
            if self._smi():
                self.source = "nvidia-smi"

    def read(self) -> Reading:
        """The state now."""
        if self._nvml is not None:
            # The clock first: what is timed meanwhile takes a millisecond, and so may each call.
            sm_clock_mhz = self._call("nvmlDeviceGetClockInfo", getattr(self._nvml, "NVML_CLOCK_SM", 1))
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
        values = self._smi()
        # Its SM clock may be of before or after the launches that are timed: no round is judged by it.
        return Reading(
            memory_clock_mhz=_number(values.get("clocks.mem")),
            throttle=reasons(_bits(values)),
            temperature_c=_number(values.get("temperature.gpu")),
            power_w=_number(values.get("power.draw")),
        )

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
        if self._nvml is not None:
            nvml = self._nvml
            clock = self._call("nvmlDeviceGetDefaultApplicationsClock", getattr(nvml, "NVML_CLOCK_SM", 1))
            clock = clock or self._call("nvmlDeviceGetMaxClockInfo", getattr(nvml, "NVML_CLOCK_SM", 1))
            cap, mig = self._call("nvmlDeviceGetEnforcedPowerLimit"), None
            try:
                driver = nvml.nvmlSystemGetDriverVersion()
            except Exception:
                driver = None
            try:
                mig = bool(nvml.nvmlDeviceGetMigMode(self._handle)[0])
            except Exception:
                mig = None
            return Facts(
                default_clock_mhz=clock,
                driver=driver.decode() if isinstance(driver, bytes) else driver,
                power_cap_w=None if cap is None else cap / 1e3,
                mig=mig,
            )
        values = self._smi() | {name: value for field in _SMI_FIXED for name, value in self._asked((field,)).items()}
        default = _number(values.get("clocks.default_applications.graphics")) or _number(values.get("clocks.max.sm"))
        mig_text = values.get("mig.mode.current", "").lower()
        return Facts(
            default_clock_mhz=default,
            driver=values.get("driver_version"),
            power_cap_w=_number(values.get("power.limit")),
            mig={"enabled": True, "disabled": False}.get(mig_text),
        )

    def _call(self, name: str, *arguments: Any) -> float | None:
        try:
            return float(getattr(self._nvml, name)(self._handle, *arguments))
        except Exception:  # not supported on this GPU, or not known to this version of pynvml
            return None

    def _smi(self) -> dict[str, str]:
        taken, values = self._last
        if time.monotonic() - taken < SMI_INTERVAL_S:
            return values
        values = self._asked(_SMI_FIELDS)
        if values:
            for field in _SMI_CHANGING if self._reasons is None else (self._reasons,):
                if told := self._asked((field,)):
                    self._reasons, values = field, values | told
                    break
            else:
                self._reasons = _SMI_CHANGING[0]
        self._last = (time.monotonic(), values)
        return values

    def _asked(self, fields: tuple[str, ...]) -> dict[str, str]:
        """The answer of nvidia-smi to each query; empty where it is not installed or does not know one of them."""
        try:
            done = subprocess.run(
                ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "-i", self.selector],
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            cells = [cell.strip() for cell in done.stdout.strip().splitlines()[0].split(",")] if done.returncode == 0 else []
        except (OSError, subprocess.TimeoutExpired, IndexError):
            cells = []
        return dict(zip(fields, cells, strict=True)) if len(cells) == len(fields) else {}


def _bits(values: dict[str, str]) -> int:
    for field in _SMI_CHANGING:
        with contextlib.suppress(ValueError):
            return int(values.get(field, ""), 16)
    return 0


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:  # "[N/A]", "[Not Supported]"
        return None
