"""Nothing is said of a time on which a guess decides; what is certain stands, and what to give is printed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from advisor.comparison.kernels.time_verdict import TIME_VERDICTS, _work_of_a_thread
from advisor.comparison.settings import read_settings
from advisor.compiled.demand import demand
from advisor.compiled.demand.likely_places import LOOKED_AT
from advisor.learned.analytical import AnalyticalPredictor
from advisor.rendering.comparison_files import to_comment
from advisor.result.comparison_schema import SAME_CODE

from .repository import Repository, compared_files

pytest.importorskip("triton")

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\n"
"""Begins the files."""


def one(repository, base, head, toml="", **options):
    """What there is to say of the only kernel that two versions of a file differ in."""
    settings_file = {"advisor.toml": toml} if toml else {}
    found = compared_files(
        repository,
        AnalyticalPredictor(),
        {"k.py": HEAD + base, **settings_file},
        {"k.py": HEAD + head, **settings_file},
        compiling=True,
        **options,
    )
    return found, found.subjects[0]


def told_in(text):
    """What a printed line of advisor.toml says of the kernel."""
    (said,) = read_settings(text.encode()).kernels.values()
    return said


NESTED = """def copy(x_ptr, y_ptr, n, parts, BLOCK: tl.constexpr):
    for part in range(parts):
        for start in range(0, n // parts, BLOCK):
            offsets = part * (n // parts) + start + tl.arange(0, BLOCK)
            inside = start + tl.arange(0, BLOCK) < n // parts
            tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=inside) + 1, mask=inside)


def run(x, y, n, parts, rows):
    copy[(rows,)](x, y, n, parts, BLOCK=512)
"""
FLAT = """def copy(x_ptr, y_ptr, n, parts, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


def run(x, y, n, parts, rows):
    copy[(rows,)](x, y, n, parts, BLOCK=512)
"""


@pytest.fixture
def evaluated(monkeypatch):
    """How many programs of a launch each evaluation looks at."""
    sizes, evaluate = [], demand.evaluate
    monkeypatch.setattr(demand, "evaluate", lambda *given: (sizes.append(len(given[3])), evaluate(*given))[1])
    return sizes


def test_a_loop_of_which_the_count_is_not_known_gives_no_verdict(repository, evaluated):
    found, subject = one(repository, NESTED, FLAT)
    assert 0 < max(evaluated) <= LOOKED_AT  # where no time is told, a few programs say what decides
    (row,), (compiled,) = subject.static, subject.resources
    assert (row.verdict, row.reason, row.change, row.base, row.head) == ("cannot-tell", "without parts", None, None, None)
    assert compiled.base != compiled.head and compiled.guessed == ()
    assert "no time can be predicted for copy without parts" in found.headline and "%" not in found.headline
    said = told_in(subject.hint)
    assert set(said.args) == {"n", "parts", "rows"} and "Cannot tell the time of copy without parts." in to_comment(found).replace("\\", "")
    # With the printed line in it, the same comparison has a verdict.
    _, told = one(repository, NESTED, FLAT, subject.hint.replace("parts = 1024", "parts = 64"))
    assert told.static[0].verdict == "predicted-improved" and told.static[0].change is not None and max(evaluated) > LOOKED_AT


@pytest.mark.parametrize(
    ("words", "grids", "trips", "work"),
    [
        ("grid=(batch,) → grid=(tokens,)", (4, 8), (3, 3), 1.0),
        ("grid=(rows,) → grid=(2 * rows,)", (4, 8), (3, 3), 0.5),
        ("grid=(rows,) → grid=(2 * rows,)", (4, 8), (4, 2), 0.0),
        ("BLOCK=512 → BLOCK=4096", (4, 4), (16, 2), 0.0),
    ],
)
def test_two_typical_sizes_are_of_no_one_work(words, grids, trips, work):
    """One program of 4 does not do what 2,048 of 8,192 do, where the one are sequences and the others tokens; and the code of a trip is
    nothing to go by where a program makes more of them, be it of fewer programs or of a smaller block."""
    sides = [
        SimpleNamespace(launch=SimpleNamespace(grid=(grid,)), sizes={"rows": grid, **size})
        for grid, size in zip(grids, ({}, {"tokens": 8}), strict=True)
    ]
    resources = SimpleNamespace(num_warps=4)
    loops = [[SimpleNamespace(depth=0, entries=9.0, mean_trips=float(count))] for count in trips]
    pair = [SimpleNamespace(compiled=SimpleNamespace(resources=resources), demand=SimpleNamespace(loops=each)) for each in loops]
    assert _work_of_a_thread(*sides, pair, [SimpleNamespace(words=words, names={"grid"})]) == work


FILL = """def fill(y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.program_id(0) * n + offsets, 7, mask=offsets < n)


def run(y, requests, n):
    fill[(requests, 96)](y, n, BLOCK=128)
"""
FILL_TAIL = """def fill(y_ptr, n, BLOCK: tl.constexpr, TAIL: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.program_id(0) * n + offsets, 7, mask=offsets < n)
    tail = tl.arange(0, TAIL)
    tl.store(y_ptr + tl.program_id(0) * n + n + tail, -1)


def run(y, requests, n, tail):
    fill[(requests, 96)](y, n, BLOCK=128, TAIL=triton.next_power_of_2(tail))
"""


def test_a_grid_that_is_not_known_is_one_grid_and_no_verdict(repository):
    _, subject = one(repository, FILL, FILL_TAIL)
    (row,), (compiled,) = subject.static, subject.resources
    assert row.verdict == "cannot-tell" and row.label.startswith("grid unknown") and "requests" in row.reason
    assert compiled.work == 1.0
    said = told_in(subject.hint)
    assert {"requests", "TAIL"} <= set(said.args)
    _, told = one(repository, FILL, FILL_TAIL, subject.hint)
    assert (told.static[0].verdict, told.static[0].change) == ("not comparable", None), "the head stores more"
    assert "stored" in told.static[0].reason


def test_one_grid_is_not_asked_for_where_the_launch_has_another(repository):
    """No one grid is both sides'."""
    base = FILL.replace("(requests, 96)", "tiles(requests)")
    head = base.replace("tiles(requests)", "tiles(2 * requests)").replace("7", "8")
    for other, asked in ((base.replace("7", "8"), True), (head, False)):
        _, subject = one(repository, base, other)
        assert "grid" in subject.static[0].reason and ("grid = " in subject.hint) is asked


PLAIN = """def decay(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    for _ in range(48):
        x = tl.exp2(x.to(tl.float32)) * 0.5
    tl.store(y_ptr + offsets, x, mask=offsets < n)


def run(x, y, rows, n, mask):
    decay[(rows * 128,)](x, y, n, BLOCK=1024)
"""


@pytest.mark.parametrize("default", ["", " = False"])
def test_code_that_a_guess_removes_gives_no_verdict(repository, default):
    """Also where the flag has a default, which is not what the launch passes."""
    head = PLAIN.replace("n, BLOCK: tl.constexpr", f"n, BLOCK: tl.constexpr, KEEP: tl.constexpr{default}")
    head = head.replace("    offsets = tl.program", "    if not KEEP:\n        return\n    offsets = tl.program").replace(
        "BLOCK=1024", "BLOCK=1024, KEEP=mask[0]"
    )
    _, subject = one(repository, PLAIN, head)
    (row,) = subject.static
    assert row.verdict == "cannot-tell" and "without KEEP" in row.reason and row.change is None
    assert told_in(subject.hint).args["KEEP"] is True
    _, told = one(repository, PLAIN, head, subject.hint)
    assert told.static[0].verdict in ("predicted-unchanged", "within-doubt") and told.static[0].change == pytest.approx(0, abs=0.01)


def test_code_without_a_store_gives_no_verdict_whatever_is_known(repository):
    head = PLAIN.replace("    tl.store(y_ptr + offsets, x, mask=offsets < n)\n", "    tl.device_assert(tl.sum(x, 0) > 0)\n")
    _, subject = one(repository, PLAIN, head)
    assert {row.verdict for row in subject.static} == {"cannot-tell"} and "it stores nothing" in subject.static[0].reason
    assert subject.resources[0].base is None and "nothing is stored in the head" in subject.resources[0].reason


BY_ARCHITECTURE = """def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def run(x, y, n):
    BRANCH
    double[(triton.cdiv(n, block),)](x, y, n, BLOCK=block, num_warps=warps)
"""


@pytest.mark.parametrize(
    "asked",
    ["triton.runtime.driver.active.get_current_target().arch", "arch_info.get_arch()", "triton.runtime.driver.active.get_current_target()"],
)
def test_a_branch_on_the_architecture_is_taken_per_gpu(repository, asked):
    test = f"if {asked} == 'gfx942':" if not asked.endswith("target()") else f"target = {asked}\n    if target.arch == 'gfx942':"
    base = BY_ARCHITECTURE.replace("BRANCH", "block, warps = 4096, 1")
    head = BY_ARCHITECTURE.replace(
        "BRANCH", f"{test}\n        block = 512\n        warps = 4\n    else:\n        block = 4096\n        warps = 1"
    )
    _, subject = one(repository, base, head, gpus=("H100", "MI300X"))
    labels = {row.gpu: row.label for row in subject.resources}
    assert labels == {"H100": "BLOCK=4096 num_warps=1", "MI300X": "BLOCK=4096 → 512 num_warps=1 → 4"}
    assert {row.gpu: row.verdict for row in subject.static if row.gpu == "H100"} == {"H100": "predicted-unchanged"}


DOT = """def product(a_ptr, w_ptr, s_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    scales = tl.load(s_ptr + columns)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + rows[:, None] * K + (k + depth)[None, :])
        w = tl.load(w_ptr + (k + depth)[:, None] * N + columns[None, :])
        sums = tl.dot(a, WEIGHT, sums)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], sums.to(c_ptr.dtype.element_ty))


def run(a, w, s, c, M, N, K):
    product[(triton.cdiv(M, 64), triton.cdiv(N, 64))](a, w, s, c, M, N, K, BM=64, BN=64, BK=32)
"""


def test_what_fails_under_guessed_types_is_tried_with_the_next_ones(repository):
    base = DOT.replace("WEIGHT", "w.to(tl.float16) * scales[None, :]")
    head = DOT.replace("WEIGHT", "(w.to(tl.float32) * scales[None, :]).to(tl.float16)")
    found, subject = one(repository, base, head)
    (compiled,) = subject.resources
    assert compiled.base is not None and compiled.head is not None and not found.gate.failed and not subject.failures


def test_what_cannot_be_read_is_not_called_a_guess(repository):
    """Of a kernel that asks torch something no argument is asked for."""
    head = PLAIN.replace("    offsets = tl.program", "    if tl.constexpr(torch.are_there()):\n        n = n - 1\n    offsets = tl.program")
    found, subject = one(repository, PLAIN, head)
    (compiled,) = subject.resources
    assert compiled.head is None and "torch is neither a literal of the file" in compiled.reason and "guessed" not in compiled.reason
    assert subject.hint == "" and "registers" not in to_comment(found)


def test_what_fails_under_every_guess_is_not_called_certain(repository):
    base = DOT.replace("WEIGHT", "w")
    head = DOT.replace("WEIGHT", "w.to(tl.float64)")
    found, subject = one(repository, base, head)
    (compiled,) = subject.resources
    assert compiled.head is None and "could not be compiled with guessed" in compiled.reason and compiled.unfinished
    assert not found.gate.failed and "does not compile" not in to_comment(found) and "Certain to fail" not in found.headline


def test_a_rank_that_no_type_of_a_tensor_mends_is_not_called_a_guess(repository):
    """A number has no three dimensions, whatever tensors hold."""
    sides = [HEAD + FILL.replace("offsets, 7", f"offsets, 7 + ({factor} * n)[None, None, :]") for factor in (1, 2)]
    text = to_comment(compared_files(repository, AnalyticalPredictor(), {"k.py": sides[0]}, {"k.py": sides[1]}, compiling=True))
    assert "base and head" in text and "too many indices for tensor of rank 0" in text and "guessed" not in text


def test_an_assertion_of_the_file_is_a_source_of_guesses(repository):
    asserted = PLAIN.replace("n, BLOCK: tl.constexpr", "n, BLOCK: tl.constexpr, GROUP: tl.constexpr")
    asserted = asserted.replace("BLOCK=1024", "BLOCK=1024, GROUP=mask.shape[0] // 7")
    head = asserted.replace("    offsets = tl.program", "    tl.static_assert(GROUP >= 16)\n    offsets = tl.program")
    _, subject = one(repository, asserted, head)
    assert subject.resources[0].head is not None and "GROUP=16" in subject.resources[0].label


COUNTS = {"literal": "4", "typical": "n_rows // 512", "unknown": "depth", "constant": "DEPTH"}
FLAGS = {
    "none": None,
    "literal": "True",
    "called": "keep",
    "unknown": "mask[0]",
    "default": "mask[0]",
    "off": "keep",
    "gradient": "x.requires_grad",
    "optional": "bias is not None",
    "heuristic": None,
    "above": "mask[0].item()",
}
GRIDS = {"literal": "(4096,)", "typical": "(n_rows,)", "unknown": "(jobs,)"}
TYPES = {"none": None, "literal": "tl.float32", "unknown": "kinds[x.ndim]", "adapted": None}
CHANGES = ("terms", "warps")


def drawn(count, flag, grid, kind, terms=1, warps=4):
    """A file whose kernel has a loop, a flag, a grid and a type that are known so or so, that works out so many terms per trip, and is
    launched with so many warps."""
    parameters = "x_ptr, y_ptr, b_ptr, n_rows, depth, BLOCK: tl.constexpr, DEPTH: tl.constexpr"
    passed = "x, y, bias, n_rows, steps, BLOCK=1024, DEPTH=" + ("steps.bit_count()" if count == "constant" else "4")
    test, before = "", ""
    if FLAGS[flag] or flag == "heuristic":
        parameters += ", KEEP: tl.constexpr" + (" = False" if flag == "default" else "")
        passed += f", KEEP={FLAGS[flag]}" if FLAGS[flag] else ""
        test = f"        if KEEP{' > 0' if flag == 'above' else ''}:\n            x += 1.0\n"
        before = "@triton.heuristics({'KEEP': lambda args: args['b_ptr'] is not None})\n" if flag == "heuristic" else ""
    if TYPES[kind]:
        parameters, passed = f"{parameters.replace('BLOCK', 'KIND: tl.constexpr, BLOCK')}", f"{passed}, KIND={TYPES[kind]}"
    cast = "(KIND)" if TYPES[kind] else "(tl.float32)"
    body = "".join("        x = tl.exp2(x) * 0.5 + 0.25\n" for _ in range(terms))
    calls = "\n\ndef main(x, y, n_rows, steps, jobs, mask, kinds):\n    run(x, y, n_rows, steps, jobs, mask, kinds, keep=True)\n"
    return HEAD.removesuffix("@triton.jit\n") + (
        f"{before}@triton.jit\ndef k({parameters}):\n"
        "    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        f"    x = tl.load(x_ptr + offsets){'.to(y_ptr.dtype.element_ty)' * (kind == 'adapted')}.to(tl.float32)\n"
        f"    for _ in range({COUNTS[count]}):\n{test}{body}"
        f"    tl.store(y_ptr + offsets, x.to{cast})\n\n\n"
        "def run(x, y, n_rows, steps, jobs, mask, kinds, keep=False, bias=None):\n"
        f"    k[{GRIDS[grid]}]({passed}, num_warps={warps})\n"
        f"{calls if flag == 'called' else ''}"
    )


GUESSED = {"count": {"unknown": "depth", "constant": "DEPTH"}, "grid": {"unknown": "jobs"}, "kind": {"unknown": "KIND", "adapted": "x_ptr"}}
GUESSED |= {"flag": dict.fromkeys(FLAGS.keys() - {"none", "literal", "called"}, "KEEP")}
"""What is asked for, by what is drawn."""


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    count=st.sampled_from(sorted(COUNTS)),
    flag=st.sampled_from(sorted(FLAGS)),
    grid=st.sampled_from(sorted(GRIDS)),
    kind=st.sampled_from(sorted(TYPES)),
    change=st.sampled_from(CHANGES),
)
@example(count="literal", flag="gradient", grid="literal", kind="none", change="terms")
@example(count="literal", flag="optional", grid="typical", kind="none", change="terms")
@example(count="literal", flag="heuristic", grid="literal", kind="literal", change="warps")
@example(count="literal", flag="off", grid="literal", kind="none", change="terms")
@example(count="typical", flag="called", grid="typical", kind="literal", change="terms")
@example(count="literal", flag="above", grid="literal", kind="none", change="terms")
@example(count="literal", flag="none", grid="literal", kind="adapted", change="terms")
def test_no_verdict_of_time_has_a_guess_behind_it(tmp_path_factory, count, flag, grid, kind, change):
    """Of drawn kernels and drawn changes: whatever decides has to be said by the launch, its callers or typical sizes."""
    repository = Repository(tmp_path_factory.mktemp("drawn"))
    known = (count, flag, grid, kind)
    sides = [drawn(*known, **each) for each in ({"terms": 1}, {"terms": 24} if change == "terms" else {"warps": 8})]
    subject = compared_files(repository, AnalyticalPredictor(), {"k.py": sides[0]}, {"k.py": sides[1]}, compiling=True).subjects[0]
    (row,) = subject.static
    asked = {"count": count, "flag": flag, "grid": grid, "kind": kind}
    lacking = {GUESSED[what][how] for what, how in asked.items() if how in GUESSED[what]}
    if lacking:
        assert (row.verdict, row.change, row.base, row.head) == ("cannot-tell", None, None, None)
        assert all(name in row.reason or "more" in row.reason for name in lacking)
        assert lacking - {"x_ptr"} <= told_in(subject.hint).args.keys() and (told_in(subject.hint).types.keys() == lacking & {"x_ptr"})
    elif change == "terms":
        assert row.verdict == "predicted-regressed" and row.change is not None and row.change > 0.05
    else:
        assert row.verdict in TIME_VERDICTS


def test_the_type_of_a_tensor_that_one_side_alone_has_is_no_typical_one(repository):
    """A mask that is read in place of what was worked out: of one byte or of two decides which version is faster."""
    head = PLAIN.replace("x_ptr, y_ptr", "x_ptr, m_ptr, y_ptr").replace("(x, y, n", "(x, mask, y, n")
    head = head.replace("    for _ in", "    x *= tl.load(m_ptr + offsets, mask=offsets < n)\n    for _ in")
    _, subject = one(repository, PLAIN, head)
    (row,) = subject.static
    assert (row.verdict, row.reason) == ("cannot-tell", "without m_ptr's type") and told_in(subject.hint).types.keys() == {"m_ptr"}
    unread = PLAIN.replace("x_ptr, y_ptr", "x_ptr, m_ptr, y_ptr").replace("(x, y, n", "(x, mask, y, n").replace("* 0.5", "* 0.25 + 1")
    _, told = one(repository, PLAIN, unread)  # the kernel does nothing with the tensor
    assert told.static[0].verdict in TIME_VERDICTS
    _, told = one(repository, PLAIN, head, subject.hint)
    assert told.static[0].verdict in TIME_VERDICTS


TYPED = """def mixed(w_ptr, b_ptr, i_ptr, q_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bias = tl.load(b_ptr)
    rows = tl.load(i_ptr + offsets)
    x = tl.load(w_ptr + rows).to(y_ptr.dtype.element_ty) + bias.to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + offsets, x * 1.0)
    tl.store(z_ptr + offsets, x.to(tl.int8))
    tl.store(q_ptr + offsets, tl.clamp(x.to(tl.float32), -448.0, 448.0).to(q_ptr.dtype.element_ty))


def run(w, b, i, q, y, z, n):
    mixed[(4096,)](w, b, i, q, y, z, n, BLOCK=1024)
"""


def test_the_types_on_which_a_time_hangs_are_asked_for(repository):
    """Neither that of one number that is read, nor those that what is stored tells."""
    _, subject = one(repository, TYPED, TYPED.replace("x * 1.0", "tl.exp2(x.to(tl.float32))"))
    (row,), said = subject.static, told_in(subject.hint).types
    assert (row.verdict, row.reason) == ("cannot-tell", "without w_ptr's type, i_ptr's type and q_ptr's type")
    assert said == {"i_ptr": "*i64", "q_ptr": "*bf16", "w_ptr": "*bf16"}


def test_two_runs_give_the_same_comment(tmp_path, monkeypatch):
    """The second finds every compiled kernel in the cache, the first none."""
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    comments = []
    for name in ("first", "second"):
        found, _ = one(Repository(tmp_path / name), NESTED, FLAT)
        text = to_comment(found)
        for side in (found.base, found.head):
            text = text.replace((side.revision or "")[:12], "")
        comments.append(text)
    assert comments[0] == comments[1]


TUNED = """@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def run(x, y, n):
    scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)
"""


def test_a_list_that_cannot_be_read_is_not_counted_as_empty(repository):
    """Nor is what the other side lists new."""
    imports = "import triton\nimport triton.language as tl\n\n\n"
    base = imports + "from settings import tuned\n\n" + TUNED.replace("CONFIGS", "tuned('scale')")
    head = imports + TUNED.replace("CONFIGS", "[triton.Config({'BLOCK': 512}), triton.Config({'BLOCK': 1024})]")
    found = compared_files(repository, AnalyticalPredictor(), {"k.py": base}, {"k.py": head})
    (subject,) = found.subjects
    assert (subject.configurations, subject.configurations_added, subject.configurations_removed) == ((0, 0), (), ())
    assert "to tune over" not in found.headline and any("not a literal" in note for note in subject.notes)


def test_what_torch_does_beside_the_launch_is_said(repository):
    base = PLAIN.replace("    decay[(rows", "    x = x.contiguous()\n    y.zero_()\n    decay[(rows")
    found, _ = one(repository, base, PLAIN.replace("* 0.5", "* 0.25"))
    assert found.around == ("k.py::run: no longer calls x.contiguous(), y.zero_()",)


CONVERTED = """def scale(x_ptr, y_ptr, factor: tl.float32, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * factor, mask=offsets < n)


def run(x, y, n):
    scale[(triton.cdiv(n, 1024),)](x, y, 2.0, n, BLOCK=1024)
"""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("x.to(y_ptr.dtype.element_ty) * factor", True),
        ("x.to(tl.bfloat16) * factor", True),
        ("factor * x", False),
        ("x * factor.to(tl.float32)", False),
    ],
)
def test_the_types_are_said_for_which_code_with_other_conversions_is_the_same(repository, changed, said):
    _, subject = one(repository, CONVERTED, CONVERTED.replace("x * factor", changed))
    sentence = "Conversions changed, and the code is the same with types that nothing says: x_ptr, y_ptr: bf16. Say them by `types`"
    assert any(note.startswith(sentence) for note in subject.notes) == said


MADE = "y = torch.empty(n, dtype=torch.int32)"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("x = x.contiguous()", "", "no longer calls x.contiguous()"),
        ("z = torch.empty(n, dtype=x.dtype)", "z = torch.empty(n)", "calls torch.empty no longer with dtype=x.dtype"),
    ],
)
def test_what_changed_beside_the_launch_alone_is_no_change_of_the_kernel(repository, before, after, said):
    sides = [{"k.py": HEAD + PLAIN.replace("    decay[(rows", f"    {line}\n    decay[(rows")} for line in (before, after)]
    found = compared_files(repository, AnalyticalPredictor(), *sides)
    assert not found.subjects and found.around == (f"k.py::run: {said}",)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (MADE, MADE.replace("int32", "long"), "the type of y_ptr int32 → int64"),
        ("", MADE, "the type of y_ptr that of y → int32"),
        (MADE.replace("torch.int32", "x.dtype"), MADE, "the type of y_ptr that of x → int32"),
        ("y = x.view(-1, 2)", MADE, "the type of y_ptr that of x → int32"),
        ("y = torch.empty_like(x)", "y = x.to(torch.int8)", "the type of y_ptr that of x → int8"),
    ],
)
def test_tensors_of_another_type_are_another_launch(repository, before, after, said):
    sides = [{"k.py": HEAD + PLAIN.replace("    decay[(rows", f"    {line}\n    decay[(rows")} for line in (before, after)]
    (subject,) = compared_files(repository, AnalyticalPredictor(), *sides).subjects
    assert f"The kernel is the same; its launch in its file changed: {said}." in subject.notes


@pytest.mark.parametrize("line", ["assert x.dtype == torch.bfloat16", "if x.dtype != torch.bfloat16:\n        raise TypeError"])
def test_a_type_that_is_asserted_is_what_it_was(repository, line):
    """As in ao d089c6ad35."""
    found = compared_files(
        repository,
        AnalyticalPredictor(),
        {"k.py": HEAD + DOUBLED},
        {"k.py": HEAD + DOUBLED.replace("    n = x", f"    {line}\n    n = x")},
        compiling=True,
    )
    assert "the type of" not in "".join(note for subject in found.subjects for note in subject.notes)


def test_a_type_of_either_arm_is_none_of_the_two(repository):
    """As in flash-attention c7f32a8409."""
    one_arm, both = "y = torch.empty(n, dtype=torch.float)", "y = y.contiguous() if mask else torch.empty(n, dtype=torch.float)"
    sides = [{"k.py": HEAD + PLAIN.replace("    decay[(rows", f"    {line}\n    decay[(rows")} for line in (one_arm, both)]
    found = compared_files(repository, AnalyticalPredictor(), *sides)
    assert "the type of" not in "".join(note for subject in found.subjects for note in subject.notes)


def test_what_a_type_costs_is_put_down_to_it(repository):
    """Though `num_warps` changed, too."""
    kernel = """@triton.jit
def double(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) * 2)


def main():
    x = torch.randn(1 << 26, dtype=torch.bfloat16)
    y = torch.empty(1 << 26, dtype=torch.bfloat16)
    double[(1 << 16,)](x, y, BLOCK=1024, num_warps=4)
"""
    base = f"import torch\nimport triton\nimport triton.language as tl\n\n\n{kernel}"
    head = base.replace("y = torch.empty(1 << 26, dtype=torch.bfloat16)", "y = torch.empty(1 << 26, dtype=torch.float32)")
    for more in (head, head.replace("num_warps=4", "num_warps=8")):
        (subject,) = compared_files(repository, AnalyticalPredictor(), {"k.py": base}, {"k.py": more}, compiling=True).subjects
        (row,) = subject.static
        assert row.verdict == "predicted-regressed" and row.cause.startswith("the type of y_ptr bfloat16 → float32; ")


DOUBLED = """def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


def run(x):
    x = x.contiguous()
    n = x.numel()
    y = torch.empty(n, dtype=x.dtype)
    double[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
"""


def test_a_type_that_one_side_says_is_not_the_other_s(repository):
    """Nor is what advisor.toml says of the other that side's; each is asked for by the argument that has it."""
    head = DOUBLED.replace("dtype=x.dtype", "dtype=torch.float32")
    _, subject = one(repository, DOUBLED, head)
    (row,) = subject.static
    assert row.verdict == "cannot-tell" and row.reason == "without x_ptr's type"
    assert told_in(subject.hint).types == {"x_ptr": "*bf16"}
    _, subject = one(repository, DOUBLED, head, 'kernels."k.py::double" = {args = {n = 67_108_864}, types = {x_ptr = "*bf16"}}')
    (row,) = subject.static
    assert row.verdict == "predicted-regressed" and row.cause.startswith("the type of y_ptr that of x → float32; ")
    assert 0.4 < row.change < 0.6  # 6 bytes of each element for 4


MOVED = """def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


def settings(n):
    block = triton.next_power_of_2(n)
    return block, 8 if block > 512 else 4


def run(x, y):
    rows, n = x.shape
    block, warps = settings(n)
    double[(rows,)](x, y, n, BLOCK=block, num_warps=warps)
"""
INTO = """def launched(x, y, block, warps):
    rows, n = x.shape
    double[(rows,)](x, y, n, BLOCK=block, num_warps=warps)


def run(x, y):
    rows, n = x.shape
    block, warps = settings(n)
    launched(x, y, block, warps)
"""


def test_a_launch_that_moves_into_a_function_of_its_own_is_the_same(repository):
    """And what that is handed counts: twice the warps, which no one value of advisor.toml is the value of on both sides."""
    head = MOVED[: MOVED.index("def run")] + INTO
    found, _ = one(repository, MOVED, head)
    assert found.headline == "double: the same code, launched alike"
    warps = head.replace("8 if block", "16 if block")
    _, subject = one(repository, head, warps)
    (row,) = subject.resources
    assert (row.base.resident_warps_per_sm, row.head.resident_warps_per_sm) == (64, 64) and "num_warps=8 → 16" in row.label
    _, subject = one(repository, head, warps, 'kernels."k.py::double" = {args = {num_warps = 8}}')
    (row,) = subject.static
    assert row.verdict == "cannot-tell" and "num_warps, whatever advisor.toml says" in row.reason


FLAGGED = """def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr, TWICE: tl.constexpr, num_warps: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    if TWICE:
        x = tl.exp2(x.to(tl.float32))
    tl.store(y_ptr + at, x, mask=at < n)


def run(x, y, n, flag):
    double[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024, TWICE=flag.twice, num_warps=4)
"""


def test_a_kernel_that_no_longer_takes_what_it_does_not_use_is_the_same_whatever_a_flag_is(repository):
    """As in Liger-Kernel 5151712ea1, which no longer gives `num_warps` to kernels of which it is no argument."""
    _, subject = one(repository, FLAGGED, FLAGGED.replace(", num_warps: tl.constexpr", ""))
    assert [row.verdict for row in subject.static] == ["predicted-unchanged"]
    _, subject = one(repository, FLAGGED, FLAGGED.replace("tl.store(y_ptr + at, x,", "tl.store(y_ptr + at, x + num_warps,"))
    assert [row.verdict for row in subject.static] == ["cannot-tell"]


TILED = """def wide(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * n + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=inside) + 1, mask=inside)


@triton.jit
def tiled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    inside = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = tl.program_id(0) * n + inside
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=inside < n) + 1, mask=inside < n)


def run(x, y, rows, n):
TILES    wide[(rows,)](x, y, n, BLOCK=triton.next_power_of_2(n))
"""


def test_a_kernel_that_is_launched_in_its_place_leaves_no_verdict_where_it_may_be(repository):
    """On Blackwell another kernel runs for long rows; on other GPUs nothing changed."""
    launch = "        return tiled[(rows, triton.cdiv(n, 1024))](x, y, n, BLOCK=1024)\n"
    head = TILED.replace("TILES", f"    if torch.cuda.get_device_capability()[0] == 10 and n > 8192:\n{launch}")
    kernel, _, rest = TILED.partition("@triton.jit\n")
    _, subject = one(repository, kernel + rest[rest.index("def run") :].replace("TILES", ""), head, gpus=("H100", "B200"))
    verdicts = {row.gpu: row for row in subject.static}
    assert verdicts["H100"].verdict == "predicted-unchanged"
    assert verdicts["B200"].verdict == "cannot-tell" and "run launches tiled in its place where" in verdicts["B200"].reason


def test_a_condition_that_has_a_name_may_hold_or_not(repository):
    launch = "        return tiled[(rows, triton.cdiv(n, 1024))](x, y, n, BLOCK=1024)\n"
    head = TILED.replace("TILES", f"    small = rows * n <= 4096 and x.is_contiguous()\n    if small:\n{launch}")
    kernel, _, rest = TILED.partition("@triton.jit\n")
    _, subject = one(repository, kernel + rest[rest.index("def run") :].replace("TILES", ""), head)
    (row,) = subject.static
    assert row.verdict == "cannot-tell" and "run launches tiled in its place where small" in row.reason


TWO = (
    PLAIN
    + """

@triton.jit
def total(y_ptr, n, BLOCK: tl.constexpr):
    tl.store(y_ptr, tl.sum(tl.load(y_ptr + tl.arange(0, BLOCK))))
"""
)


@pytest.mark.parametrize("came", [True, False], ids=["came", "went"])
def test_a_kernel_that_is_launched_besides_is_said(repository, came):
    """Two launches that became one: the time of the kernel alone is told all the same, and what went beside it."""
    one_more = TWO.replace("BLOCK=1024)\n", "BLOCK=1024)\n    total[(1,)](y, n, BLOCK=1024)\n", 1)
    sides = (TWO.replace("* 0.5", "* 0.25"), one_more) if came else (one_more, TWO.replace("* 0.5", "* 0.25"))
    assert one_more != TWO
    found, _ = one(repository, *sides)
    assert found.around == (f"k.py::run: {'now launches' if came else 'no longer launches'} total",)
    assert "in its place" not in to_comment(found)
    if came:
        under = one_more.replace("    total[(1,)]", "    if n > 8:\n        total[(1,)]")
        assert one(repository, sides[0], under)[0].around == ("k.py::run: now launches total (if n > 8)",)
        always = one_more.replace("* 0.5", "* 0.25")
        assert one(repository, always, under)[0].around == ("k.py::run: launches total if n > 8, where it was always",)
        assert one(repository, under, always)[0].around == ("k.py::run: launches total always, where it was if n > 8",)


def test_a_launch_that_became_tuned_is_no_prediction_of_no_change(repository):
    """The same code at the one launch that both have: what tuning finds besides is not told."""
    plain = TUNED.replace('@triton.autotune(configs=CONFIGS, key=["n"])\n', "").replace("(x, y, n)", "(x, y, n, BLOCK=512, num_warps=4)")
    plain = plain.removeprefix("@triton.jit\n")
    tuned = TUNED.replace("CONFIGS", "[triton.Config({'BLOCK': 512}, num_warps=4), triton.Config({'BLOCK': 1024}, num_warps=8)]")
    grid = 'lambda meta: (triton.cdiv(n, meta["BLOCK"]),)'
    head = HEAD.removesuffix("@triton.jit\n") + tuned
    found = compared_files(
        repository,
        AnalyticalPredictor(),
        {"k.py": HEAD + plain.replace(grid, "(triton.cdiv(n, 512),)")},
        {"k.py": head},
        compiling=True,
    )
    (row,) = found.subjects[0].static
    assert row.verdict == "cannot-tell" and "do not choose among the same" in row.reason


PRODUCT = """def product(x_ptr, y_ptr, n, TRIPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + rows * BLOCK + columns)
    for row in range(ROWS):
        x += tl.load(x_ptr + (tl.program_id(0) * ROWS + row) * BLOCK * BLOCK + rows * BLOCK + columns)
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(TRIPS):
        sums = tl.dot(x, x, sums)
    tl.store(y_ptr + tl.program_id(0) * BLOCK * BLOCK + rows * BLOCK + columns, sums)


def run(x, y, n):
    product[(512,)](x, y, n, TRIPS=64, ROWS=16, BLOCK=64)
"""


@pytest.mark.parametrize(
    ("less", "reason"),
    [("TRIPS=2,", "products of"), ("TRIPS=40,", ""), ("TRIPS=64, ROWS=2,", "distinct bytes are read"), ("TRIPS=64, ROWS=10,", "")],
)
def test_two_launches_that_do_not_do_the_same_work_are_not_compared(repository, less, reason):
    """Both store as much: a loop that turns less often, over products or over rows."""
    head = PRODUCT.replace("TRIPS=64, ROWS=16," if "ROWS" in less else "TRIPS=64,", less)
    assert head != PRODUCT
    _, subject = one(repository, PRODUCT, head)
    (row,) = subject.static
    if reason:
        assert (
            row.verdict == "not comparable" and row.change is None and "compute different things: " in row.reason and reason in row.reason
        )
    else:
        assert row.verdict in ("predicted-improved", "within-doubt") and row.change is not None and row.change < 0


TWICE = """def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x)


def run(x, y, n):
    copy[(4096,)](x, y, n, BLOCK=1024)
"""


def test_a_load_that_the_compiler_merges_changes_no_code(repository):
    """What is said leads with that, and asks for no measurement."""
    text = TWICE.replace("offsets, x)", "offsets, x + x)")
    found, subject = one(repository, text, text.replace("x + x", "x + tl.load(x_ptr + offsets)"))
    assert [(row.verdict, row.reason) for row in subject.static] == [("predicted-unchanged", SAME_CODE)]
    assert found.headline == f"copy: {SAME_CODE}" and f"**predicted unchanged**: {SAME_CODE}" in to_comment(found)


def test_a_side_that_stores_some_elements_again_computes_nothing_else(repository):
    again = TWICE.replace("    tl.store(", "    tl.store(y_ptr + offsets, x)\n    tl.debug_barrier()\n    tl.store(").replace(
        "offsets, x)\n\n", "offsets, x * 2)\n\n"
    )
    _, subject = one(repository, TWICE, again)
    (row,) = subject.static
    assert row.verdict == "not comparable" and row.reason.startswith("one side stores some elements again: 4,194,304 elements")


def test_an_argument_of_another_name_has_the_type_of_the_one_in_its_place(repository):
    """`index_ptr` and `block_ptr` are guessed otherwise by their names and uses; one launch passes one tensor."""
    text = TWICE.replace("x_ptr", "chunk_idx_ptr").replace("offsets, x)", "offsets, x + 1)")
    _, subject = one(repository, text, text.replace("chunk_idx_ptr", "block_ptr").replace("x + 1", "1 + x"))
    assert "The kernel takes block_ptr in place of chunk_idx_ptr." in subject.notes
    assert [row.reason for row in subject.static] == [SAME_CODE]


SEVEN = "[" + ", ".join(f"triton.Config({{'BLOCK': {64 << power}}})" for power in range(7)) + "]"
BLOCKS = "[triton.Config({'BLOCK': 512}), triton.Config({'BLOCK': 1024})]"


@pytest.mark.parametrize(
    ("both", "configs", "verdict"),
    [
        (BLOCKS, "[triton.Config({'BLOCK': 512})]", "within-doubt"),
        (BLOCKS, SEVEN, "cannot-tell"),
        (BLOCKS, "listed()", "cannot-tell"),
        ("listed()", "listed(512)", None),
    ],
)
def test_another_list_is_no_prediction_of_no_change(repository, both, configs, verdict):
    """The same code at one configuration of both says nothing of which one is chosen, and the best of short lists is a prediction; a list
    that is long, or cannot be read, says less."""
    imports = HEAD.removesuffix("@triton.jit\n") + "from somewhere import listed\n\n\n"
    base, head = (imports + TUNED.replace("CONFIGS", each) for each in (both, configs))
    found = compared_files(repository, AnalyticalPredictor(), {"k.py": base}, {"k.py": head}, compiling=True)
    (subject,) = found.subjects
    assert [row.verdict for row in subject.static] == ([verdict] if verdict else [])
    assert all(row.verdict != "cannot-tell" or row.change is None for row in subject.static) and not subject.hint
    assert verdict or (not subject.resources and "What lists its configurations changed, and cannot be read." in subject.notes)


def test_of_short_lists_the_best_of_either_is_compared(repository):
    """Not the one that both have: the base has a faster one beside it, which the head gave up."""
    small = "triton.Config({'BLOCK': 32}, num_warps=1)"
    text = HEAD.removesuffix("@triton.jit\n") + TUNED.replace("    scale[", "    n = 1 << 27\n    scale[")
    base, head = (text.replace("CONFIGS", each) for each in (f"[{small}, triton.Config({{'BLOCK': 2048}})]", f"[{small}]"))
    found = compared_files(repository, AnalyticalPredictor(), {"k.py": base}, {"k.py": head}, compiling=True)
    (subject,) = found.subjects
    (row,) = subject.static
    assert row.verdict == "predicted-regressed" and row.change > 0.5 and row.label.startswith("best of each list, grid 65536 → 4194304")
    assert (row.base.configuration.parameters["BLOCK"], row.head.configuration.parameters["BLOCK"]) == (2048, 32)
    assert "BLOCK=2048 num_warps=4 num_stages=3 in the base, BLOCK=32 num_warps=1" in " ".join(subject.notes)
    assert subject.resources[0].label.startswith("BLOCK=32")  # what both list says what became of the code


def test_a_renamed_kernel_is_not_launched_in_anothers_place(repository):
    """Two arms that launch two kernels: the one of the other arm has another name now, and is what it was."""
    arms = TILED.replace("TILES", "    if n > 8192:\n        return tiled[(rows, triton.cdiv(n, 1024))](x, y, n, BLOCK=1024)\n")
    _, subject = one(repository, arms, arms.replace("tiled", "tiles").replace("+ 1, mask=inside)", "+ 2, mask=inside)", 1))
    assert subject.static and all("in its place" not in row.reason for row in subject.static)


ROWS = """def add(x_ptr, b_ptr, y_ptr, T, D, BT: tl.constexpr, BD: tl.constexpr):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    x = tl.load(x_ptr + t[:, None] + d[None, :] * T)
    tl.store(y_ptr + t[:, None] * D + d[None, :], x + tl.load(b_ptr + d)[None, :])


def run(x, b, y):
    T, D = 8192, 4096
    add[(triton.cdiv(T, 16), triton.cdiv(D, 256))](x, b, y, T, D, BT=16, BD=256)
"""


def test_what_is_read_in_other_sectors_is_the_cause_and_no_small_tensor_that_is_read_more_often(repository):
    head = ROWS.replace("16), triton.cdiv(D, 256)", "1), triton.cdiv(D, 4096)").replace("BT=16, BD=256", "BT=1, BD=4096")
    _, subject = one(repository, ROWS, head)
    (row,) = subject.static
    assert row.verdict == "predicted-regressed"
    assert row.cause.startswith("neighbouring threads read other places of x_ptr: 67.1 MB → 1.07 GB of sectors fetched")
    assert "b_ptr" not in row.cause


def test_sizes_that_are_assumed_on_one_side_alone_tell_of_no_other_work(repository):
    """As in lightllm 66a5e8af9f: the head counts by `rows` what the base counted by `seq_len`; another length is typical of either."""
    text = TWICE.replace("copy[(4096,)]", "seq_len = x.numel() // x.size(-1)\n    copy[(seq_len,)]")
    head = text.replace("seq_len", "rows").replace("x.size(-1)", "n").replace("offsets, x)", "offsets, x * 2)")
    _, subject = one(repository, text, head)
    (row,) = subject.static
    assert row.verdict == "cannot-tell" and "seq_len" in row.reason and "rows" in row.reason
    _, subject = one(repository, text, head, 'kernels."k.py::copy" = {args = {rows = 4096, seq_len = 4096}}')
    assert subject.static[0].verdict in ("predicted-unchanged", "within-doubt")


def test_no_time_is_told_of_a_kernel_of_narrow_elements_that_nothing_types(repository):
    """As in torchao fbe08c32: `fp8_gemm`, whose tensors were taken for bf16; typed, or of another name, it has one."""
    text = TWICE.replace("offsets, x)", "offsets, x + 1)")
    head = text.replace("BLOCK=1024", "BLOCK=1024, num_warps=8")
    for name, told in (("copy", True), ("copy_fp8", False)):
        _, subject = one(repository, text.replace("copy", name), head.replace("copy", name))
        (row,) = subject.static
        assert (row.change is not None) == told and ("x_ptr's type" in row.reason) != told
    toml = 'kernels."k.py::copy_fp8" = {types = {x_ptr = "*i8", y_ptr = "*i8"}}'
    _, subject = one(repository, text.replace("copy", "copy_fp8"), head.replace("copy", "copy_fp8"), toml)
    assert subject.static[0].change is not None


ADDED = """def amax(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(y_ptr, tl.max(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)))


def run(x: torch.Tensor, y: torch.Tensor, n):
    amax[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK)
"""


def test_programs_that_add_to_one_place_do_the_same_work_in_any_number(repository):
    """As in torchao 63993207: half as many programs, with twice the block, add half as often."""
    sides = [ADDED.replace("BLOCK=BLOCK", f"BLOCK={block}").replace("(n, BLOCK)", f"(n, {block})") for block in (1024, 4096)]
    _, subject = one(repository, *sides, 'kernels."k.py::amax" = {args = {n = 16777216}, types = {x_ptr = "*fp32", y_ptr = "*fp32"}}')
    (row,) = subject.static
    assert row.verdict in ("within-doubt", "predicted-improved") and row.change is not None and row.change < 0


def test_what_is_stored_by_inline_assembly_is_said_to_be(repository):
    """As in Megatron-LM 8018459d: no value of what is guessed would make a store of Triton's of it."""
    asm = """tl.inline_asm_elementwise("st.global.f32 [$1], $2; mov.u32 $0, 0;", "=r,l,f", [y_ptr + offsets, x], tl.int32, False, 1)"""
    text = TWICE.replace("tl.store(y_ptr + offsets, x)", asm)
    toml = 'kernels."k.py::copy" = {args = {n = 1024}, types = {x_ptr = "*fp32", y_ptr = "*fp32"}}'
    _, subject = one(repository, text, text.replace("offsets, x]", "offsets, x + x]"), toml)
    (row,) = subject.static
    assert row.verdict == "cannot-tell" and row.reason == "as it stores by inline assembly, which is not counted"
    assert "store by inline assembly alone" in subject.resources[0].reason
