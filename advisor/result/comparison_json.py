"""A comparison as JSON, and back; see `advisor.result.result_json`, whose codec of dataclasses it uses."""

from __future__ import annotations

import json
import re
from typing import Any

from advisor.result.comparison_schema import COMPARISON_SCHEMA_VERSION, ComparisonResult
from advisor.result.result_json import codec_of
from advisor.system.errors import InputError

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
LARGEST_BYTES = 64 * 1024 * 1024


def comparison_to_json(comparison: ComparisonResult) -> str:
    """The comparison as canonical JSON text, ending in a newline."""
    text = json.dumps(codec_of(ComparisonResult).encode(comparison, "comparison"), indent=1, ensure_ascii=False, allow_nan=False)
    # A file name that is no valid UTF-8 reaches us with lone surrogates, which no encoding carries: escape only these.
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text) + "\n"


def comparison_from_json(text: str | bytes, *, name: str = "comparison.json") -> ComparisonResult:
    """The comparison that JSON text describes. Unknown keys are ignored.

    Raises:
        InputError: Not a comparison, of an unknown major version, or a field is missing or of the wrong type.
    """
    if len(text) > LARGEST_BYTES:
        raise InputError(f"{name}: too large", f"{len(text):,} bytes", f"at most {LARGEST_BYTES:,} bytes")
    try:
        data: Any = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: not valid JSON: {error}", remedy="give a comparison.json of `advisor compare`") from None
    if not isinstance(data, dict) or "subjects" not in data or "gate" not in data:
        raise InputError(f"{name}: not a comparison", remedy="give a comparison.json of `advisor compare`")
    version = str(data.get("schema_version"))
    if version.split(".")[0] != COMPARISON_SCHEMA_VERSION.split(".")[0]:
        raise InputError(f"{name}: unknown major schema_version", version, f"{COMPARISON_SCHEMA_VERSION.split('.')[0]}.x")
    return codec_of(ComparisonResult).decode(data, name)


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")
