"""The notebook of the documentation, cell by cell: from a live kernel to its page and a better `triton.Config`."""

from __future__ import annotations

import ast
import json
import linecache
from pathlib import Path

import pytest

pytest.importorskip("torch")
triton = pytest.importorskip("triton")

NOTEBOOK = json.loads((Path(__file__).parents[2] / "reports/docs/notebook.ipynb").read_text(encoding="utf-8"))
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def shown_by(cells: list[str]) -> list[object]:
    """What each cell shows, run as a notebook runs it: its text is in no file."""
    names, found = {"__name__": "__main__"}, []
    for number, text in enumerate(cells):
        file = f"<ipython-input-{number}-{hash(text)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        tree = ast.parse(text)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, file, "exec"), names)
        found.append(eval(compile(ast.Expression(last.value), file, "eval"), names) if isinstance(last, ast.Expr) else None)
    return found


@pytest.mark.parametrize("apart", [False, True], ids=["as printed", "its imports in a cell of their own"])
def test_three_cells_lead_to_a_better_configuration(apart: bool) -> None:
    imports, gap, kernel = CELLS[0].partition("\n\n\n")
    assert len(CELLS) == 3 and gap
    *_, result, config = shown_by([imports, kernel, *CELLS[1:]] if apart else CELLS)
    page = result._repr_html_()  # type: ignore[attr-defined]
    assert page.startswith("<iframe srcdoc=") and "Bound by the start of its programs: each does too little." in page
    (launch,) = result.launches  # type: ignore[attr-defined]
    assert launch.configuration.parameters == {"BLOCK": 128} and launch.headroom > 1
    assert isinstance(config, triton.Config) and config.kwargs["BLOCK"] > 128
