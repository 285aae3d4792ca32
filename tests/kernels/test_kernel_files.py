"""What every file of `triton_kernels/` promises (README.md there): a literal, functions, and no torch to import it."""

import ast
import itertools
import math
import re
import subprocess
import sys

import pytest
from kernel_harness import FILES, FOLDER, load, read_kernels

from advisor.result.schema import FAMILIES

ENTRIES = [(path.stem, name, entry) for path in FILES for name, entry in read_kernels(path).items()]
IDS = [name for _, name, _ in ENTRIES]
FUNCTIONS = ("valid", "default", "arguments", "make_inputs", "prepare", "reference")
KEYS = {
    "family",
    "ops",
    "dtype",
    "weight_dtype",
    "output_dtype",
    "precision",
    "dtypes",
    "block_shape",
    "space",
    "min_capability",
    "example",
    "tolerance",
    "tolerance_beyond",
    "grid",
    "shapes",
    "routing",
    *FUNCTIONS,
}
SIZES = {
    "gemm": {"M", "N", "K"},
    "fused_moe": {"M", "E", "topk", "H", "N"},
    "attention": {"B", "H", "H_kv", "M", "N", "D", "causal"},
    "normalization": {"B", "H"},
    "elementwise": {"B", "H"},
}
each_kernel = pytest.mark.parametrize(("file", "kernel", "entry"), ENTRIES, ids=IDS)


def problems(entry):
    """The example, in each operator and type, and a small odd one."""
    for op, dtype in itertools.product(entry["ops"], entry["dtypes"]):
        yield {**entry["example"], "op": op, "dtype": dtype}
        small = {name: value if name in ("H_kv", "topk", "E", "D", "causal") else 1 for name, value in entry["example"].items()}
        if entry["family"] == "attention":
            small["H"] = small["H_kv"]
        yield {**small, "op": op, "dtype": dtype}


@each_kernel
def test_entry(file, kernel, entry):
    module = load(file)
    assert entry == module.KERNELS[kernel]
    assert set(entry) <= KEYS, set(entry) - KEYS
    assert entry["family"] in FAMILIES
    names = set(getattr(module, kernel).arg_names)
    for name in ("dtype", "weight_dtype", "output_dtype", "precision"):
        assert entry.get(name, entry["dtype"]) in names
    for function in FUNCTIONS:
        assert getattr(module, entry[function]).__doc__, function
    for op in entry["ops"].values():
        assert set(op["sizes"]) == SIZES[entry["family"]] == set(entry["example"])
        for expression in (*op["sizes"].values(), op.get("when", "1")):
            tree = ast.parse(expression, mode="eval")
            assert {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} <= names
    assert set(entry["dtypes"]) <= set(entry["tolerance"])
    options = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
    assert set(entry["space"]) - options <= names and {"num_warps", "num_stages"} <= set(entry["space"])


@each_kernel
def test_space_default_and_arguments(file, kernel, entry):
    module = load(file)
    names = set(getattr(module, kernel).arg_names)
    valid, default, arguments = (getattr(module, entry[name]) for name in ("valid", "default", "arguments"))
    space = entry["space"]
    for problem in problems(entry):
        assert set(default(problem)) == set(space)
        assert set(arguments(problem, default(problem))) | set(space) >= names
        assert not set(arguments(problem, default(problem))) & set(space)
    example = next(problems(entry))
    combinations = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    count = sum(valid(config, example) for config in combinations)
    assert 0.05 * len(combinations) < count <= len(combinations)
    config = default(example)
    assert valid(config, example)
    assert all(config[name] in space[name] for name in space)


@each_kernel
def test_sizes_follow_from_the_arguments(file, kernel, entry):
    """The `sizes` expressions give back the problem that `arguments` was made for, shapes aside."""
    module = load(file)
    for problem in problems(entry):
        config = getattr(module, entry["default"])(problem)
        values = {**getattr(module, entry["arguments"])(problem, config), **config}
        holds = [op for op, how in entry["ops"].items() if eval(how.get("when", "True"), {}, values)]
        assert holds[0] == problem["op"]
        for size, expression in entry["ops"][problem["op"]]["sizes"].items():
            if ".shape" not in expression:
                assert int(eval(expression, {}, values)) == problem[size], (size, expression)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_file_stands_alone(path):
    source = path.read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
            assert all(name.split(".")[0] in {*sys.stdlib_module_names, "triton", "__future__"} for name in modules)
    assert not re.search(r"\badvisor\b", source)


def test_no_file_needs_torch_to_be_imported():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from kernel_harness import FILES, load\n"
        "for path in FILES:\n"
        "    module = load(path.stem)\n"
        "    for entry in module.KERNELS.values():\n"
        "        problem = {**entry['example'], 'op': next(iter(entry['ops'])), 'dtype': entry['dtypes'][0]}\n"
        "        getattr(module, entry['arguments'])(problem, getattr(module, entry['default'])(problem))\n"
    )
    folder = FOLDER.parent / "tests" / "kernels"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


MAIN = [case for case in ENTRIES if case[1] not in ("activation_kernel", "combine_kernel")]


@pytest.mark.parametrize(("file", "kernel", "entry"), MAIN, ids=[kernel for _, kernel, _ in MAIN])
def test_configurations_are_the_valid_ones(file, kernel, entry):
    module = load(file)
    example = next(problems(entry))
    several = "kernel" in module.configurations.__code__.co_varnames[: module.configurations.__code__.co_argcount]
    configs = list(module.configurations(example, kernel) if several else module.configurations(example))
    assert len(configs) == sum(
        getattr(module, entry["valid"])(dict(zip(entry["space"], values, strict=True)), example)
        for values in itertools.product(*entry["space"].values())
    )
    first = configs[0]
    assert {*first.kwargs, "num_warps", "num_stages"} == set(entry["space"])
    assert first.num_warps in entry["space"]["num_warps"] and math.isfinite(first.num_stages)


def test_the_readme_names_every_kernel_and_key():
    text = (FOLDER / "README.md").read_text()
    for path in FILES:
        assert f"`{path.name}`" in text
    for kernel in IDS:
        assert f"`{kernel}`" in text or kernel.removesuffix("_kernel") + ".py" in text, kernel
    for key in KEYS:
        assert f"`{key}`" in text or f"`{key}(" in text, key


def test_all_split_launches_of_a_product_share_one_scratch():
    """A batch holds its launches together: with a scratch each, the campaign's largest products need more than a GPU has."""
    torch = pytest.importorskip("torch")
    gemm = load("gemm")
    problem = {"op": "gemm", "M": 48, "N": 80, "K": 1024, "dtype": "bf16"}
    inputs = gemm.make_inputs(problem, "cpu", torch.Generator().manual_seed(0))
    found = [gemm._scratch(inputs, split) for split in (2, 16, 8)]
    assert len({each.data_ptr() for each in found}) == 1 and [tuple(each.shape) for each in found] == [(s, 48, 80) for s in (2, 16, 8)]
    assert inputs["scratch"].shape[0] == 16 and gemm._scratch(inputs, 32).shape[0] == 32  # not a valid one: its own
    large = {"op": "gemm", "M": 8192, "N": 57344, "K": 8192, "dtype": "bf16"}
    splits = {config.kwargs["SPLIT_K"] for config in gemm.configurations(large)}
    assert splits == {1} and gemm.valid(gemm.default(large), large)


@pytest.mark.parametrize("name", ["softmax", "rms_norm", "layer_norm", "silu_and_mul"])
def test_references_in_pieces_are_the_same(name, monkeypatch):
    torch = pytest.importorskip("torch")
    module = load(name)
    inputs = module.make_inputs({"B": 37, "H": 51, "dtype": "fp32"}, "cpu", torch.Generator().manual_seed(0))
    whole = module.reference(inputs)
    monkeypatch.setattr(module, "ELEMENTS_AT_ONCE", 500)
    assert torch.equal(module.reference(inputs), whole) and whole.dtype == torch.float64 and whole.shape == inputs["output"].shape


def test_long_fp8_sums_are_allowed_more():
    from advisor.measurement.kernel_file import DEFAULT_TOLERANCE, tolerance_of

    for entry in load("gemm").KERNELS.values():
        found = [tolerance_of(entry, "fp8", {"M": 1, "N": 1, "K": k}) for k in (16384, 16385, 28672)]
        assert found == [(2e-2, 3e-2), (2e-2, 4e-2), (2e-2, 4e-2)]
        assert tolerance_of(entry, "bf16", {"K": 28672}) == (1e-2, 1e-3)
    assert tolerance_of({}, "fp8", {}) == DEFAULT_TOLERANCE


@pytest.mark.parametrize("columns", [1, 20, 64, 96, 128, 300, 4096, 40000])
@pytest.mark.parametrize("file", ["rms_norm", "layer_norm", "softmax", "silu_and_mul"])
def test_short_rows_fill_their_blocks(file, columns):
    """Heads of 64 or 128 leave few lanes idle and share CTAs; longer rows take no more passes for it."""
    module = load(file)
    rows = 65536
    for problem in ({"B": rows, "H": columns}, {"B": 100, "H": columns}):
        configs = list(module.configurations(problem))
        blocks = {config.kwargs["BLOCK_SIZE"] for config in configs}
        assert all(block < max(2 * columns, 33) for block in blocks)
        if columns <= 256:
            assert len(blocks) == 1
        else:
            assert min(blocks) >= 256
        default = module.default(problem)
        assert module.valid(default, problem)
        assert -(-problem["B"] // default["ROWS_PER_CTA"]) >= min(problem["B"], 512)  # CTAs enough for every SM
        # Of a short row a thread has a few elements at least, together with other rows where there are many.
        if columns <= 128 and problem["B"] == rows:
            assert default["BLOCK_SIZE"] * default["ROWS_PER_CTA"] >= 4 * 32 * default["num_warps"]
            assert default["ROWS_PER_CTA"] >= 8


@pytest.mark.parametrize("columns", [1, 20, 64, 100, 300, 4096, 40000])
@pytest.mark.parametrize(("op", "kernel"), [("activation", "activation_kernel"), ("combine", "combine_kernel")])
def test_narrow_rows_of_a_layer_fill_their_blocks(op, kernel, columns):
    module = load("fused_moe")
    space = module.KERNELS[kernel]["space"]
    problem = {"op": op, "M": 64, "E": 8, "topk": 2, "H": 7777, "N": 7777, "N" if op == "activation" else "H": columns}
    choices = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    valid = [config for config in choices if module.valid_row_block(config, problem)]
    assert valid and all(config["BLOCK_SIZE"] < max(2 * columns, 33) for config in valid)
    assert all(config["BLOCK_SIZE"] >= min(columns, 256) for config in valid)
    assert all(32 * config["num_warps"] <= config["BLOCK_SIZE"] for config in valid)
    assert module.default_row_block(problem) in valid
