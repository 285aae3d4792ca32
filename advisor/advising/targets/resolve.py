"""Which target a TARGET of the command line is: a table, a bundled kernel, a file's kernel with a closed-form family, or code.

Kernels read from source without such a family, and launch records, come from `compiled`.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from advisor.advising.targets import Request, Target
from advisor.advising.targets.table_targets import table_target
from advisor.system.errors import InputError, UsageError
from advisor.system.reading import files_below, not_permitted
from advisor.system.resources import folder
from advisor.tables.names import is_table_name
from advisor.tables.tables import is_own_result


def is_code(text: str) -> bool:
    """Whether a target is a kernel in source, or a record; what a table needs loads without the compiler's part."""
    there = os.path.exists(text)  # noqa: PTH110 - pathlib raises where a name is too long to be a path
    if (text.isidentifier() and not there) or text.endswith(".json"):
        return False
    from advisor.compiled.launch_report import is_compiled_target

    return is_compiled_target(text)


def resolve_target(text: str, request: Request) -> Target:
    """The target a user named.

    Raises:
        UsageError, InputError: It is nothing the advisor knows, or cannot be read.
    """
    path = Path(text)
    if text.endswith(".json"):  # what reads kernels is not loaded for a table
        if not _exists(path):
            raise InputError(f"{text}: no such file", None, None, "check the path")
        return table_target(path, request)
    from advisor.advising.targets.kernel_targets import closed_form_kernel, fused_moe_kernel
    from advisor.python_source.source import read_source

    if text == "fused_moe" and not _exists(path):
        return fused_moe_kernel(request)
    stem, _, kernel = text.partition("::")
    bundled = folder("triton_kernels") / f"{stem}.py"
    if stem.isidentifier() and _exists(bundled) and not _exists(path):
        return closed_form_kernel(bundled, kernel or None, request)
    if stem.endswith(".ipynb"):
        read_source(stem)  # says what to do instead
    known = ", ".join(sorted(file.stem for file in folder("triton_kernels").glob("*.py")))
    there = _exists(path)
    near = difflib.get_close_matches(stem, ["fused_moe", *known.split(", ")], n=1)
    raise UsageError(
        "not a target: this file is nothing the advisor reads" if there else "not a target: nothing has this name",
        text,
        "a tuned table (E=…,N=…,device_name=….json), a folder of them, FILE.py::KERNEL, a record of `advisor record`, a cache "
        f"of @advisor.autotune, or a bundled kernel ({known})",
        "it may be damaged" if there else f"did you mean {near[0]}?" if near else "check the path and the spelling",
    )


def bundled_kernel(text: str) -> str:
    """`gemm::gemm_kernel` as the path of the bundled file; another target, and a file of that name, as it is."""
    stem, mark, kernel = text.partition("::")
    bundled = folder("triton_kernels") / f"{stem}.py"
    return f"{bundled}{mark}{kernel}" if stem.isidentifier() and _exists(bundled) and not _exists(Path(stem)) else text


def _exists(path: Path) -> bool:
    """Whether there is something; what is no path at all (too long, a null byte) is not there.

    Raises:
        InputError: It lies in a folder that may not be read.
    """
    try:
        return path.exists()
    except PermissionError:
        raise not_permitted(path) from None
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether a target is a folder of tables; one that is named like a table is a mistake, and read as the table it claims to be."""
    return _exists(path) and path.is_dir() and not is_table_name(path)


def tables_in(folder: Path) -> list[Path]:
    """Every .json below a folder, symbolic links and the advisor's own results left out, sorted."""
    return [path for path in files_below(folder, ".json") if path.is_file() and not path.is_symlink() and not is_own_result(path)]
