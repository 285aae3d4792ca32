"""Charts as SVG: what comes from outside is text."""

from __future__ import annotations

from advisor.rendering import svg
from advisor.rendering.charts import Chart, Series

HOSTILE = '"><script>window.attacked=true</script>'


def test_draw_escapes_every_text_that_comes_from_outside() -> None:
    chart = Chart(
        id="c",
        title=HOSTILE,
        summary=HOSTILE,
        x_title=HOSTILE,
        y_title=HOSTILE,
        series=(Series(name=HOSTILE, kind="points", colour="measured", x=(1.0, 2.0), y=(3.0, 4.0)),),
        columns=("x", "y"),
        rows=(("1", "3"), ("2", "4")),
        places=((1.0, 3.0), (2.0, 4.0)),
    )
    drawn = svg.draw(chart, svg.WIDE, " wide")
    assert "<script" not in drawn and drawn.count('aria-label="&quot;&gt;&lt;script&gt;') == 1
    assert drawn.count("&lt;script&gt;") >= 3
