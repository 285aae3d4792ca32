"""Sentences and words as a page carries them, words with what they mean.

A line ends neither within an option's name nor between a number and its unit.

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


MEANINGS = {
    "bound": "The least time that this GPU's specified peak rates allow for this work: no kernel can be faster.",
    "tunable ceiling": "The best latency that this kernel reaches with any configuration of its space.",
    "binding pipeline": "The hardware resource that takes longest for this work, and so sets the bound.",
    "binding": "The hardware resource that takes longest.",
    "demand": "What this launch asks of the resource, with padding and repeated reads.",
    "least demand": "What the problem alone asks of it, whatever the kernel.",
    "P(≥10 %)": "How likely it is, by the model's errors on data it has not seen, that the change makes the launch at least 10 % faster.",
    "waves": "How often the GPU is filled with thread blocks until all have run.",
    "resident per SM": "Thread blocks that run on one multiprocessor at the same time.",
    "CTAs": "Thread blocks, of which each runs one program of the kernel.",
    "tail wave": "The last thread blocks leave some multiprocessors idle.",
    "occupancy": "Too few warps run at a time to keep the resources busy.",
    "exposed latency": "Waiting for memory that nothing else fills.",
    "below peak rate": "Resources sustain less than their specified peak.",
    "padding": "Work on rows and columns that the tile has and the problem does not.",
    "extra traffic": "Bytes moved more often than the problem needs.",
    "power limit": "The board lowers its clock to stay within its power limit.",
    "tensor": "Tensor cores: matrix products.",
    "fma": "Vector units: multiply and add outside the tensor cores.",
    "xu": "Special-function units: exponentials, divisions, roots.",
    "alu": "Integer units: addresses, masks, conversions.",
    "issue": "Instruction issue: how many instructions an SM starts per clock.",
    "smem": "Shared memory, inside an SM.",
    "l2": "The cache that all SMs share.",
    "dram": "The GPU's memory.",
    "launch": "The fixed time from a launch to its first and from its last instruction.",
    "predicted": "By the model, not measured.",
    "specified": "From the vendor's documents.",
}


def term(word: str, key: str | None = None) -> Markup:
    """The word, and what it means (of `key` where that is another) as a tooltip; the bare word where nothing is said of it."""
    meaning = MEANINGS.get(key or word) or MEANINGS.get((key or word).lower())
    return Markup('<abbr tabindex="0" title="{}">{}</abbr>').format(meaning, word) if meaning else escape(word)
