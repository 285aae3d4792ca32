"""Builds the documentation's site: `python reports/docs/build.py FOLDER` writes README.md and the pages of this folder there as HTML."""

from __future__ import annotations

import itertools
import re
import shutil
import sys
from pathlib import Path

try:
    import jinja2
    from markdown_it import MarkdownIt  # rich brings it
except ModuleNotFoundError as error:
    sys.exit(f"{error}: run it with the Python that triton-advisor is installed in (make advise: .venv/bin/python)")

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parents[1]
REPOSITORY = "https://github.com/triton-advisor/triton-advisor/blob/main/"
FRONT = ROOT / "README.md"
PAGE = jinja2.Template((DOCS / "page.html.jinja").read_text(encoding="utf-8"), autoescape=True)


def build(folder: Path) -> list[Path]:
    """Write the site; the paths of its pages, the front page first, the others as it names them and then by name."""
    front = FRONT.read_text(encoding="utf-8")
    named = [DOCS / name for name in dict.fromkeys(re.findall(r"\(reports/docs/([\w-]+\.md)", front))]
    pages = [FRONT, *named, *sorted(set(DOCS.glob("*.md")) - set(named))]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    titles = {page: MarkdownIt().renderInline(text.partition("\n")[0].lstrip("# ")) for page, text in texts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    index = [entry for page, text in texts.items() for entry in headings(text, page, titles[page])]
    for page, text in texts.items():
        links = [(address(other), titles[other], other == page) for other in pages]
        title = re.sub("<.*?>", "", titles[page])
        (folder / address(page)).write_text(
            PAGE.render(title=title, links=links, index=index, content=html_of(text, page)), encoding="utf-8"
        )
    shutil.copy(ROOT / "reports" / "page.css", folder)
    shutil.copy(DOCS / "page.png", folder)
    return [folder / address(page) for page in pages]


def headings(text: str, page: Path, title: str) -> list[dict[str, str]]:
    """What the search finds: every section of a page, with its words."""
    found = []
    for part in re.split(r"^(?=#{1,3} )", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE):
        head, _, body = part.partition("\n")
        if head.startswith("#"):
            name = head.lstrip("# ").strip()
            words = " ".join(re.findall(r"[\w.@-]+", body.lower()))
            shown = re.sub("<.*?>", "", title)
            found.append({"href": f"{address(page)}#{slug(name)}", "title": name, "page": shown, "words": f"{name.lower()} {words}"})
    return found


def address(page: Path) -> str:
    """The file of a page in the site."""
    return "index.html" if page == FRONT else f"{page.stem}.html"


def html_of(text: str, page: Path) -> str:
    """A page's text as HTML: headings have ids as on GitHub; links lead to pages of the site where there is one, else to the repository."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(text)
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", slug(inline.content))
    for token in (child for inline in tokens for child in inline.children or ()):
        for key in ("href", "src"):
            if (target := token.attrGet(key)) and not re.match(r"\w+:|#", str(target)):
                token.attrSet(key, _in_site(str(target), page))
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def _in_site(target: str, page: Path) -> str:
    path, sharp, section = target.partition("#")
    file = (page.parent / path).resolve()
    if file == FRONT or (file.parent == DOCS and file.suffix in (".md", ".png")):
        return (address(file) if file.suffix == ".md" else file.name) + sharp + section
    return REPOSITORY + file.relative_to(ROOT).as_posix() + sharp + section


def slug(title: str) -> str:
    """The id that GitHub gives a heading."""
    return re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for written in build(Path(sys.argv[1])):
        print(written)
