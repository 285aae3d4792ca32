"""Names under which kernels of other authors have the parameters that the model of a family reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from advisor.result.schema import Configuration

_ALIASES: dict[str, dict[str, str]] = {
    family: {
        "BLOCK_M": "BLOCK_SIZE_M",
        "BLOCK_N": "BLOCK_SIZE_N",
        "BLOCK_K": "BLOCK_SIZE_K",
        "BM": "BLOCK_SIZE_M",
        "BN": "BLOCK_SIZE_N",
        "BK": "BLOCK_SIZE_K",
        "GROUP_M": "GROUP_SIZE_M",
    }
    for family in ("gemm", "fused_moe")
} | {
    "attention": {"BLOCK_SIZE_M": "BLOCK_M", "BLOCK_SIZE_N": "BLOCK_N", "BLOCK_Q": "BLOCK_M", "BLOCK_KV": "BLOCK_N"},
}
_NEEDED: dict[str, tuple[str, ...]] = {
    "gemm": ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"),
    "fused_moe": ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"),
    "attention": ("BLOCK_M", "BLOCK_N"),
}


def family_names(names: Iterable[str], family: str) -> dict[str, str]:
    """Kernel parameter -> the family's name of it (its own where there is none); no two map to the same name."""
    own = list(names)
    aliases: Mapping[str, str] = _ALIASES.get(family, {})
    stands: dict[str, str] = {}
    for alias, target in aliases.items():  # the usual names first; a kernel that has the family's own name means that
        if alias in own and target not in own:
            stands.setdefault(target, alias)
    chosen = {alias: target for target, alias in stands.items()}
    return {name: chosen.get(name, name) for name in own}


def needed_parameters(family: str) -> tuple[str, ...]:
    """The parameters that the model of the family cannot do without, by the family's names."""
    return _NEEDED.get(family, ())


def missing_parameters(configuration: Configuration, family: str) -> list[str]:
    """The needed parameters that a configuration does not name."""
    return [name for name in needed_parameters(family) if name not in configuration.parameters]
