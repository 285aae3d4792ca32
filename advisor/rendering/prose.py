"""Sentences as a page carries them: a line ends neither within an option's name nor between a number and its unit.

A browser breaks lines after a hyphen, so that `--cache` is torn in two, and at every blank, so that `86 %` is. The style sheet keeps such
words together, not other characters in their place: what is copied from the page, or looked for on it, is what stands in the result.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from advisor.rendering import figures

# Both are short, whatever a text from outside holds: what is kept together must fit a phone.
_TOGETHER = re.compile(
    r"(?<![\w-])--[a-z][a-z0-9-]{0,30}"  # --expert-parallel
    r"|[^\s&;]{0,24}\d (?:%|[µm]s|[kMGTP]?B(?:/s)?|[kMGTP]?FLOP(?:/s)?)(?![\w/])"  # −10/+35 %, 1.27 GB
)


def prose(text: object) -> Markup:
    """A sentence from the result, escaped, unprintable characters written out."""
    escaped = str(escape(figures.clean(text, lines=True)))
    return Markup(_TOGETHER.sub(lambda words: f'<span class="together">{words.group()}</span>', escaped))
