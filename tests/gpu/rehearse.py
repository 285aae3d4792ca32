"""What to run on a borrowed GPU in three half hours, and their rehearsal on the fake device, within the limits of such a machine.

`python tests/gpu/rehearse.py` rehearses, and says for each half hour how many rows, how many problems with default, recommended and best,
and how many minutes on a GPU; `--commands` prints the commands for the GPU instead, `--seconds N` cuts every measuring run of the
rehearsal short, `--wheels DIR` takes packages along that the machine lacks (optuna and what it needs), `--hours 1,3` rehearses those.

A borrowed machine is bare and has no network. A command gets a copy of the tree and at most 64 MiB, ten minutes, and brings back eight
files of 16 MiB from `$OUT`, which is empty when it begins: what earlier ones brought is taken along in the folder `.hours`. It has Python
3.12, torch 2.11 and Triton 3.6, and neither optuna nor rich-argparse.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

COMMAND_S, HALF_HOUR_S, START_S = 600, 1800, 150
CARRIED_BYTES, FILES, FILE_BYTES, COMMAND_CHARACTERS = 64 << 20, 8, 16 << 20, 2000
LACKING = ("optuna", "rich_argparse", "plotly")
BATCH_S, LAUNCH_S, ROUND_S = 0.6, 0.06, 0.011
"""Seconds on a GPU, estimated: inputs and reference of a batch; loading, checking and capturing a launch; one side of one round."""

PREPARE = (
    'export PYTHONPATH="$PWD:$PWD/.site" PYTHONUNBUFFERED=1 ADVISOR_TEST_OUTPUT="$OUT"; set -o pipefail; '
    "ls .hours/*.whl >/dev/null 2>&1 && python3 -m pip install -q --no-index --no-deps --target .site .hours/*.whl; "
    'for f in .hours/*.csv; do [ -e "$f" ] && cp "$f" "$OUT/"; done; '
)
MEASURE = (
    "python3 -m advisor measure --device {device} --time-limit {limit}s --plan tests/gpu/{plan}.toml -o $OUT/{plan}.csv --ceilings-dir $OUT"
)
PACK = "gzip -f $OUT/{plan}.csv && timeout 90 "
JUDGE = "python3 tests/gpu/judge.py $OUT/{plan}.csv >$OUT/judge-{plan}.txt; tail -1 $OUT/judge-{plan}.txt"
TESTS = "timeout {limit} python3 -m pytest -p no:cacheprovider -m gpu {tests} -s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of a command: a campaign with its time limit, or a shell command that takes `seconds` at most.

    A campaign of many rows is `packed` before it is judged: unpacked they might be too many to come back.
    """

    seconds: int
    plan: str | None = None
    packed: bool = False
    shell: str | None = None

    def text(self, device: str, cut_s: float) -> str:
        """As shell; `cut_s` is the longest that a campaign may take."""
        if self.plan is None:
            return (self.shell or "").format(device=device, limit=self.seconds)
        limit = int(min(self.seconds, cut_s))
        judge = PACK + JUDGE.replace(".csv", ".csv.gz") if self.packed else JUDGE
        return f"{MEASURE} && {judge}".format(device=device, limit=limit, plan=self.plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What one command runs, and what it finds out; `carried` are rows of earlier commands that it goes on with."""

    finds: str
    steps: tuple[Step, ...]
    carried: tuple[str, ...] = ()

    @property
    def seconds(self) -> int:
        return sum(step.seconds for step in self.steps)

    def text(self, device: str, cut_s: float) -> str:
        """The whole command; a step that fails does not keep the next from running."""
        return PREPARE + "; ".join(step.text(device, cut_s) for step in self.steps)


SMI = Step(seconds=5, shell="nvidia-smi -q -d CLOCK,POWER,PERFORMANCE >$OUT/smi.txt 2>&1 || true")
TIMERS = Step(seconds=60, shell="timeout {limit} python3 tests/gpu/timer_check.py {device} | tee $OUT/timers.txt")
FAULTS = Step(seconds=60, shell=TESTS.replace("{tests}", "tests/gpu/test_measure_gpu.py -k 'fault or slower'") + " | tee $OUT/faults.txt")
CORRECT = Step(
    seconds=560,
    shell="ADVISOR_TEST_SECONDS=500 " + TESTS.replace("{tests}", "tests/gpu/test_gpu_kernels_correct.py") + " | tee $OUT/correct.txt",
)
DOORS = Step(
    seconds=180,
    shell=TESTS.replace("{tests}", "tests/gpu/test_doors_gpu.py tests/autotuning/test_on_gpu.py") + " | tee $OUT/doors.txt",
)
TUNE = Step(
    seconds=120,
    shell="python3 -c 'import optuna' 2>/dev/null && timeout {limit} python3 -m advisor tune fused_moe --model Qwen3-30B-A3B "
    "--tokens 1,64,1024 --device {device} --time-limit 80s -o .tune --export .tune && tar czf $OUT/tune.tgz .tune "
    "|| echo 'not tuned: optuna is not here, see --wheels'",
)
COUNTERS = Step(
    seconds=60,
    shell="timeout {limit} ncu --profile-from-start off --clock-control none --cache-control none --csv --page raw --log-file $OUT/ncu.csv "
    "python3 tests/gpu/ncu_one.py {device} >/dev/null || timeout {limit} python3 tests/gpu/ncu_one.py {device}",
)
AGAINST_ITSELF = Step(
    seconds=330, shell=TESTS.replace("{tests}", "tests/gpu/test_measure_gpu.py -k 'against_a or bound'") + " | tee $OUT/against-itself.txt"
)
SPEED = Step(seconds=180, shell=TESTS.replace("{tests}", "tests/gpu/test_gpu_kernels_speed.py") + " | tee $OUT/speed.txt")

HOURS: tuple[tuple[Command, ...], ...] = (
    (
        Command(
            finds="timers against CUPTI, faults by name, the GPU's ceilings, first proofs",
            steps=(SMI, TIMERS, FAULTS, Step(seconds=270, plan="proofs")),
        ),
        Command(finds="whether the kernels are right on silicon", steps=(CORRECT,)),
        Command(
            finds="default, recommended and best of the other problems, and of whole small spaces",
            steps=(Step(seconds=100, plan="proofs"), Step(seconds=370, plan="exhaustive")),
            carried=("proofs",),
        ),
    ),
    tuple(
        Command(
            finds="the true best of two fused-MoE and two GEMM spaces",
            steps=(Step(seconds=520, plan="whole"),),
            carried=("whole",) * (n > 0),
        )
        for n in range(3)
    ),
    (
        Command(finds="campaign rows to learn from", steps=(Step(seconds=480, plan="campaign", packed=True),)),
        Command(
            finds="record, replay and autotune; a tuned table; counters against counted demand",
            steps=(DOORS, TUNE, COUNTERS),
        ),
        Command(finds="A/A, the bound, speed beside cuBLAS and SDPA", steps=(AGAINST_ITSELF, SPEED)),
    ),
)


@dataclass(slots=True)
class Finding:
    """What a rehearsed half hour came to; `spent_s` are the seconds that a GPU is expected to have measured for a plan."""

    rows: dict[str, int] = field(default_factory=dict)
    problems: int = 0
    complete: int = 0
    whole: int = 0
    expected_s: float = 0.0
    spent_s: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def expected_s(plan: str, device: str) -> float:
    """Estimated seconds on a GPU until a plan is done."""
    from advisor.gpus.hardware import load_gpu
    from advisor.measurement.plan import batches_of, read_plan

    if plan == "campaign":
        return math.inf  # more than anyone has time for
    read = replace(read_plan(ROOT / "tests" / "gpu" / f"{plan}.toml"), recommended=0)  # the order does not matter
    gpu = load_gpu(re.search(r"gpu=([^,]*)", device)[1] if "gpu=" in device else "H200")
    sides = [len(batch.launches) for batch in batches_of(read, gpu)]
    one = [BATCH_S + n * LAUNCH_S + (n + 1) * read.rounds * ROUND_S for n in sides]
    return sum(one)


def rehearse(hour: int, device: str, python: str, cut_s: float, wheels: Path | None) -> Finding:
    """Runs a half hour's commands as on a borrowed machine, and reports what broke a limit."""
    from advisor.measurement.measured_rows import read_measured
    from tests.gpu.judge import judge

    found = Finding()
    with tempfile.TemporaryDirectory(prefix="half-hour-") as place:
        machine, kept = Path(place) / "machine", Path(place) / "kept"
        kept.mkdir()
        copy_tree(machine)
        for number, command in enumerate(HOURS[hour - 1], 1):
            name, text = f"{hour}.{number}", command.text(device, cut_s)
            carry(machine / ".hours", [kept / f"{plan}.csv" for plan in command.carried], wheels)
            out = Path(place) / "out"
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            begin = time.monotonic()
            code, log = run(text, machine, out, python, Path(place))
            took = time.monotonic() - begin
            wrong = broken_limits(text, machine, out, took, command.seconds)
            for line in re.findall(r"^.*(?:Traceback|advisor: error|[1-9]\d* failed|No module named).*$", log, re.MULTILINE):
                wrong.append(line.strip()[:200])
            for step in command.steps:
                path = next((each for each in (out / f"{step.plan}.csv", out / f"{step.plan}.csv.gz") if each.exists()), None)
                if path is not None:
                    rows = shutil.copy(path, kept / path.name)
                    found.rows[step.plan] = sum(row.latency_us is not None for row in read_measured(rows))
                    spent_s = found.spent_s.get(step.plan, 0.0)
                    takes_s = min(step.seconds, max(0.0, expected_s(step.plan, device) - spent_s))
                    found.spent_s[step.plan] = spent_s + takes_s
                    found.expected_s += takes_s
                elif step.plan is not None:
                    wrong.append(f"no rows of {step.plan}")
                else:
                    found.expected_s += step.seconds
            print(f"{name}: {command.finds}; {took:.0f} s here, at most {command.seconds} s there; exit code {code}", flush=True)
            brought = [f"{path.relative_to(out)} ({path.stat().st_size >> 10} KiB)" for path in sorted(out.rglob("*")) if path.is_file()]
            print(f"   brings {', '.join(brought) or 'nothing'}", flush=True)
            for each in [*re.findall(r"^not tuned.*$", log, re.MULTILINE), *wrong]:
                print(f"   {each}", flush=True)
            found.wrong += [f"{name}: {each}" for each in wrong]
        for plan in found.rows:
            (rows,) = kept.glob(f"{plan}.csv*")
            judged = judge(read_measured(rows))
            found.problems += len(judged)
            found.complete += sum(each.complete for each in judged)
            found.whole += sum(each.whole for each in judged)
    return found


def copy_tree(machine: Path) -> None:
    """What git tracks, or would: what travels to a borrowed machine."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (machine / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, machine / name)


def carry(folder: Path, files: list[Path], wheels: Path | None) -> None:
    """Puts into `.hours` what is taken along beside the tree."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in [*(each for each in files if each.exists()), *(sorted(wheels.glob("*.whl")) if wheels else ())]:
        shutil.copy(path, folder / path.name)


def run(text: str, machine: Path, out: Path, python: str, place: Path) -> tuple[int, str]:
    """Runs a command without network and without what the machine lacks; its exit code and what it said."""
    lacking = place / "lacking"
    lacking.mkdir(exist_ok=True)
    names = repr(LACKING)
    (lacking / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        f"for name in {names}:\n"
        "    found = importlib.util.find_spec(name)\n"
        "    if found is None or '.site' not in str(found.origin):\n"
        "        sys.modules[name] = None\n"
    )
    tools = place / "bin"
    if not tools.exists():
        tools.mkdir()
        (tools / "python3").write_text(f'#!/bin/sh\nPYTHONPATH="{lacking}:$PYTHONPATH" exec "{python}" "$@"\n')
        (tools / "python3").chmod(0o755)
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    known = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    environment = {**known, **proxies, "PATH": f"{tools}:/usr/bin:/bin", "OUT": str(out), "ADVISOR_TEST_DEVICE": "fake"}
    environment |= {"TRITON_CACHE_DIR": str(place / "triton"), "PIP_NO_INDEX": "1"}
    try:
        done = subprocess.run(
            ["bash", "-c", text], cwd=machine, env=environment, timeout=COMMAND_S, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired as late:
        return 124, f"{(late.stdout or b'').decode(errors='replace')}\n{(late.stderr or b'').decode(errors='replace')}"
    return done.returncode, done.stdout + done.stderr


def broken_limits(text: str, machine: Path, out: Path, took: float, seconds: int) -> list[str]:
    """Which limits of a borrowed machine a command broke."""
    wrong = []
    if took > COMMAND_S or seconds > COMMAND_S:
        wrong.append(f"took {took:.0f} s, may take {seconds} s: a command has {COMMAND_S}")
    if len(text) > COMMAND_CHARACTERS:
        wrong.append(f"a command of {len(text)} characters: at most {COMMAND_CHARACTERS}")
    carried = sum(path.stat().st_size for path in machine.rglob("*") if path.is_file() and ".site" not in path.parts)
    if carried > CARRIED_BYTES:
        wrong.append(f"{carried >> 20} MiB travel: at most {CARRIED_BYTES >> 20}")
    files = [path for path in out.rglob("*") if path.is_file()]
    if len(files) > FILES:
        wrong.append(f"{len(files)} files come back: at most {FILES}")
    for path in files:
        inside = path.relative_to(out)
        if path.stat().st_size > FILE_BYTES or len(inside.parts) > 3 or not re.fullmatch(r"[\w./-]+", inside.as_posix(), re.ASCII):
            wrong.append(f"{inside} does not come back: {path.stat().st_size} bytes, {len(inside.parts)} deep")
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """Rehearses, or prints the commands; 1 where a limit was broken or something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", action="store_true")
    parser.add_argument("--hours", default="1,2,3")
    parser.add_argument("--seconds", type=float, default=COMMAND_S)
    parser.add_argument("--device", default="fake,gpu=H200")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--wheels", type=Path)
    given = parser.parse_args(arguments)
    hours = [int(each) for each in given.hours.split(",")]
    if given.commands:
        for hour in hours:
            for number, command in enumerate(HOURS[hour - 1], 1):
                carried = f" (in .hours: {', '.join(f'{plan}.csv' for plan in command.carried)})" if command.carried else ""
                print(f"# {hour}.{number}: {command.finds}{carried}\n{command.text('cuda', COMMAND_S)}\n")
        return 0
    print(versions(given.python))
    failed = 0
    for hour in hours:
        found = rehearse(hour, given.device, given.python, given.seconds, given.wheels)
        total = found.expected_s + START_S
        rows = ", ".join(f"{count} of {plan}" for plan, count in found.rows.items()) or "none"
        known = f"problems {found.problems}, {found.complete} with default, recommended and best, {found.whole} of them whole spaces"
        minutes = f"about {total / 60:.0f} of 30 minutes on a GPU, {START_S} s of start included"
        print(f"half hour {hour}: rows {sum(found.rows.values())} ({rows}); {known}; {minutes}; {len(found.wrong)} complaints", flush=True)
        failed += bool(found.wrong) + (total > HALF_HOUR_S)
    return int(failed > 0)


def versions(python: str) -> str:
    """Which Python and packages rehearse, beside those of a borrowed machine."""
    code = (
        "import sys, importlib.metadata as m\n"
        "def v(n):\n    try: return m.version(n)\n    except Exception: return 'none'\n"
        'print(f\'Python {sys.version_info[0]}.{sys.version_info[1]} (there 3.12), Triton {v("triton")} (3.6), torch {v("torch")} (2.11)\')'
    )
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
