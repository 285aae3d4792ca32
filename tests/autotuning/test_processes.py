"""Many processes tune at once; some are killed."""

from __future__ import annotations

import collections
import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from .reports import advised

RACE = Path(__file__).with_name("race.py")
PROCESSES, KILLED = 8, 3


def test_eight_processes_some_killed(tmp_path, fresh_cache):
    """Each key is measured once and decided alike by all that live, and a report on the cache that they wrote says so."""
    from .race import BLOCKS, KEYS

    log = tmp_path / "log"
    started = [
        subprocess.Popen([sys.executable, str(RACE), str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        for process in started:
            assert process.stdout.readline() == "ready\n"
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        dice = random.Random(7)
        for process in started[:KILLED]:
            time.sleep(dice.uniform(0.02, 0.15))
            process.send_signal(signal.SIGKILL)
        winners = []
        for process in started[KILLED:]:
            out, _ = process.communicate(timeout=60)
            assert process.returncode == 0
            winners.append(json.loads(out))
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stdin.close()
    assert all(each == winners[0] for each in winners)
    living = {str(process.pid) for process in started[KILLED:]}
    lines = [line.split() for line in log.read_text().splitlines()]
    firsts = {(key, block): pid for pid, key, block in reversed(lines)}
    # What lies near the best is measured again, in rounds, by one process at a time; everything else once by the living.
    measured = collections.Counter((key, block) for pid, key, block in lines if pid in living and pid == firsts[key, block])
    again = [(pid, key) for pid, key, block in lines if pid in living and (measured[key, block] > 1 or pid != firsts[key, block])]
    assert len(lines) <= 2 * len(KEYS) * len(BLOCKS) + KILLED and len({pid for pid, _ in again}) <= len(KEYS)
    everything = {(key, block) for _, key, block in (line.split() for line in log.read_text().splitlines())}
    assert everything == {(str(key), str(block)) for key in KEYS for block in BLOCKS}
    runs = {problem.key: problem for problem in advised(tmp_path, fresh_cache).tuned}
    assert len(runs) == len(KEYS)
    for key, winner in zip(KEYS, winners[0], strict=True):
        problem = runs[f"({key}, 'torch.bfloat16')"]
        assert problem.configuration.parameters["BLOCK"] == winner and problem.decided == "measured"
        assert {timing.configuration.parameters["BLOCK"] for timing in problem.timings} == set(BLOCKS)
        assert all(timing.us for timing in problem.timings)


def test_claims_of_the_dead_are_taken_over(fresh_cache):
    from advisor.autotuning.decisions import cache as leases
    from advisor.autotuning.decisions.cache import Cache
    from advisor.system import processes

    cache = Cache(fresh_cache)
    assert bool(cache.claim_some("p", ["c"], 1))
    other = Cache(fresh_cache)
    assert not bool(other.claim_some("p", ["c"], 1))  # this process lives
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    namespace = processes.owner_name().split("|")[0]
    for attempt in range(leases.ATTEMPTS):
        cache._do(lambda connection: connection.execute("UPDATE timings SET owner = ?", (f"{namespace}|{dead.pid}|1",)))
        assert bool(other.claim_some("p", ["c"], 1)) == (attempt < leases.ATTEMPTS - 1)
    assert other.rows("p")["c"].state == "crash" and "ended while" in other.rows("p")["c"].reason


def test_leases_run_out_and_are_extended(fresh_cache, monkeypatch):
    from advisor.autotuning.decisions import cache as module
    from advisor.system import processes

    cache = module.Cache(fresh_cache)
    monkeypatch.setattr(module, "LEASE_S", 0.05)
    now = [1000.0]
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    assert bool(cache.claim_some("p", ["c"], 1))
    extended = threading.Event()
    with processes.repeating(lambda: (cache.extend("p"), extended.set()), 0.01):
        for _ in range(6):
            now[0] += 0.02
            for _ in range(2):  # the first may have begun before the clock moved
                extended.clear()
                assert extended.wait(60)
        assert not bool(cache.claim_some("p", ["c"], 1))
    now[0] += 0.15
    assert bool(cache.claim_some("p", ["c"], 1))
    cache.release("p", "c")
    assert bool(cache.claim_some("p", ["c"], 1))


def test_another_machine_is_believed_until_its_lease_ends():
    from advisor.autotuning.decisions import cache as leases
    from advisor.system import processes

    assert processes.is_alive("elsewhere|1|1") is None
    assert not leases.may_take_over("elsewhere|1|1", 10.0, 5.0)
    assert leases.may_take_over("elsewhere|1|1", 10.0, 11.0)
    assert processes.is_alive(processes.owner_name()) is True


def test_the_dead_are_told_without_proc(monkeypatch):
    from advisor.autotuning.decisions import cache as leases
    from advisor.system import processes

    monkeypatch.setattr(processes, "namespace", lambda: None)
    monkeypatch.setattr(processes, "_stat", lambda pid: None)
    own = processes.owner_name()
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    machine, _, started = own.split("|")
    assert processes.is_alive(own) is True
    assert leases.may_take_over(f"{machine}|{child.pid}|{started}", 10.0, 5.0)
