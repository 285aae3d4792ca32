"""A profile beside a record: times by kernel and grid, and what stays without one is said."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from advisor.advising.measured.profiles import timed
from advisor.compiled.launch_report import KernelTarget
from advisor.system.errors import InputError

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
    '"gpu__time_duration.sum"\n"","","","","","","","","","","","us"\n'
)


def _target(kernel, *grid, more=""):
    return KernelTarget(id=f"{kernel}-{grid[0]}{more}", launch=SimpleNamespace(kernel=kernel, grid=grid))


def _ncu(tmp_path, *rows):
    path = tmp_path / "ncu.csv"
    lines = [
        f'"{i}","1","python","h","{name}","1","7","(128, 1, 1)","{grid}","0","9.0","{us}"\n' for i, (name, grid, us) in enumerate(rows)
    ]
    path.write_text(HEAD + "".join(lines))
    return str(path)


def test_launches_take_the_time_of_their_grid(tmp_path):
    path = _ncu(tmp_path, ("add", "(64, 1, 1)", 4.0), ("add", "(64, 1, 1)", 6.0), ("add", "(128, 2, 1)", 9.0), ("other", "(1, 1, 1)", 1.0))
    found, lacking = timed([_target("add", 64), _target("add", 128, 2), _target("scale", 64)], path)
    assert [each.measured_us for each in found] == [5.0, 9.0, None]
    assert len(lacking) == 1 and "scale-64" in lacking[0] and "no kernel of that name" in lacking[0]


def test_what_is_ambiguous_stays_without_a_time(tmp_path):
    path = _ncu(tmp_path, ("add", "(64, 1, 1)", 4.0))
    found, lacking = timed([_target("add", 64), _target("add", 64, more="b")], path)
    assert [each.measured_us for each in found] == [None, None] and all("several launches fit" in each for each in lacking)


def test_proton_says_no_grid(tmp_path):
    path = tmp_path / "proton.hatchet"
    leaf = {"frame": {"name": "add", "type": "function"}, "metrics": {"time (ns)": 8000.0, "count": 2}, "children": []}
    path.write_text(json.dumps([{"frame": {"name": "ROOT", "type": "function"}, "metrics": {}, "children": [leaf]}]))
    found, _ = timed([_target("add", 64), _target("scale", 64)], str(path))
    assert found[0].measured_us == pytest.approx(4.0) and found[1].measured_us is None
    found, lacking = timed([_target("add", 64), _target("add", 128)], str(path))
    assert [each.measured_us for each in found] == [None, None] and len(lacking) == 2


def test_what_is_no_profile_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="no profile"):
        timed([], str(tmp_path / "rows.csv"))
