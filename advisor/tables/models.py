"""Public mixture-of-experts models, and which of them a table name fits.

A table name says E and N of one rank; hidden size and top-k have to come from the model. Figures are those of each
model's published `config.json` on Hugging Face (`hidden_size`, `num_experts_per_tok`, `moe_intermediate_size` and the
number of routed experts, under whatever name the model gives them).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from advisor.system.errors import UsageError
from advisor.tables.names import SIZE_LIMIT, TableName

DEFAULT_HIDDEN_SIZE = 4096
DEFAULT_TOP_K = 8
"""What is assumed where no model fits: the commonest hidden size and top-k of the models below."""

MAX_TENSOR_PARALLEL = 64
MAX_EXPERT_PARALLEL = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A public mixture-of-experts model.

    `E` routed experts, `top_k` of them per token, hidden size `H`, intermediate size `N` per expert.
    `shared_experts` is how many shared experts of that same size every token passes (0: none, or of another size):
    a stack may run them as routed ones (`fused_experts`: E + 1 experts, top-k + 1). `gated` is False where an expert has no
    gate projection, so that w13 is only N wide.
    """

    name: str
    E: int
    top_k: int
    H: int
    N: int
    shared_experts: int = 0
    gated: bool = True
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A way to get a table's (E, N): a model, split over ranks, with or without its shared experts fused in."""

    model: Model
    tensor_parallel: int
    expert_parallel: int
    fused_shared: int  # experts added to the routed ones

    @property
    def H(self) -> int:
        """Hidden size, the K of w13."""
        return self.model.H

    @property
    def top_k(self) -> int:
        """Experts per token; a fused shared expert is one more that every token takes."""
        return self.model.top_k + (self.model.shared_experts if self.fused_shared else 0)

    @property
    def label(self) -> str:
        """`Qwen3-235B-A22B, tensor-parallel 2`."""
        splits = {"tensor-parallel": self.tensor_parallel, "expert-parallel": self.expert_parallel}
        parts = [self.model.name, *(f"{name} {ranks}" for name, ranks in splits.items() if ranks > 1)]
        return ", ".join([*parts, *(["shared expert fused"] if self.fused_shared else [])])


def _check(option: str, value: int | None, high: int) -> None:
    if value is not None and (type(value) is not int or not 0 < value <= high):
        raise UsageError(option, value, f"an integer from 1 to {high}", f"correct {option}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """The user's statements about the model behind a table; None: not stated.

    Attributes:
        model: Its name.
        hidden_size: The K of w13.
        top_k: Experts per token. Under expert parallelism a token takes more than one rank may hold.
        tensor_parallel, expert_parallel: Ranks that N and E are split over.

    Raises:
        UsageError: A number is out of range; not of `top_k`, which `resolve` holds against the experts of the table.
    """

    model: str | None = None
    hidden_size: int | None = None
    top_k: int | None = None
    tensor_parallel: int | None = None
    expert_parallel: int | None = None

    def __post_init__(self) -> None:
        _check("--hidden-size", self.hidden_size, SIZE_LIMIT - 1)
        _check("--tensor-parallel", self.tensor_parallel, 1024)
        _check("--expert-parallel", self.expert_parallel, 1024)

    def splits(self, candidate: Candidate) -> bool:
        """Whether a candidate is split over the ranks that are said."""
        tensor, expert = candidate.tensor_parallel, candidate.expert_parallel
        return self.tensor_parallel in (None, tensor) and self.expert_parallel in (None, expert)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Hidden size, top-k and model behind a table, and whether they had to be assumed."""

    H: int
    top_k: int
    model: str | None
    gated: bool = True
    tensor_parallel: int | None = None
    expert_parallel: int | None = None
    assumption: str | None = None  # a sentence, where the user did not say and the table does not settle it


def _model(
    name: str,
    E: int,
    top_k: int,
    H: int,
    N: int,
    aliases: tuple[str, ...] = (),
    *,
    shared_experts: int = 0,
    gated: bool = True,
) -> Model:
    return Model(name=name, E=E, top_k=top_k, H=H, N=N, shared_experts=shared_experts, gated=gated, aliases=aliases)


# In the order in which they are assumed where several fit.
MODELS: tuple[Model, ...] = (
    _model("Qwen3-30B-A3B", 128, 8, 2048, 768, ("Qwen3-Coder-30B-A3B", "Qwen3-VL-30B-A3B", "Qwen3-Omni-30B-A3B")),
    _model("Qwen3-235B-A22B", 128, 8, 4096, 1536, ("Qwen3-VL-235B-A22B",)),
    _model("DeepSeek-V3", 256, 8, 7168, 2048, ("DeepSeek-R1", "DeepSeek-V3.1", "DeepSeek-V3.2"), shared_experts=1),
    _model("Mixtral-8x7B", 8, 2, 4096, 14336, ("Mixtral-8x7B-v0.1", "Mixtral-8x7B-Instruct-v0.1")),
    _model("Mixtral-8x22B", 8, 2, 6144, 16384, ("Mixtral-8x22B-v0.1", "Mixtral-8x22B-Instruct-v0.1")),
    _model("Qwen3-Next-80B-A3B", 512, 10, 2048, 512, ("Qwen3-Coder-Next",), shared_experts=1),
    _model("Qwen3-Coder-480B-A35B", 160, 8, 6144, 2560),
    _model("Kimi-K2", 384, 8, 7168, 2048, ("Kimi-K2-Instruct", "Kimi-K2-Thinking", "Kimi-K2.5"), shared_experts=1),
    _model("GLM-4.5", 160, 8, 5120, 1536, ("GLM-4.6", "GLM-4.7"), shared_experts=1),
    _model("GLM-4.5-Air", 128, 8, 4096, 1408, ("GLM-4.5V",), shared_experts=1),
    _model("gpt-oss-120b", 128, 4, 2880, 2880),
    _model("gpt-oss-20b", 32, 4, 2880, 2880),
    _model("Llama-4-Maverick", 128, 1, 5120, 8192, ("Llama-4-Maverick-17B-128E",), shared_experts=1),
    _model("Llama-4-Scout", 16, 1, 5120, 8192, ("Llama-4-Scout-17B-16E",), shared_experts=1),
    _model("Qwen1.5-MoE-A2.7B", 60, 4, 2048, 1408),
    _model("Qwen2-57B-A14B", 64, 8, 3584, 2560),
    _model("DeepSeek-V2", 160, 6, 5120, 1536, ("DeepSeek-V2.5", "DeepSeek-Coder-V2"), shared_experts=2),
    _model("DeepSeek-V2-Lite", 64, 6, 2048, 1408, ("DeepSeek-Coder-V2-Lite", "DeepSeek-MoE-16B"), shared_experts=2),
    _model("OLMoE-1B-7B", 64, 8, 2048, 1024, ("OLMoE",)),
    _model("Phi-3.5-MoE", 16, 2, 4096, 6400),
    _model("DBRX", 16, 4, 6144, 10752, ("dbrx-instruct",)),
    _model("MiniMax-M2", 256, 8, 3072, 1536, ("MiniMax-M2.1", "MiniMax-M2.5")),
    _model("MiniMax-M1", 32, 2, 6144, 9216, ("MiniMax-Text-01",)),
    _model("Jamba-1.5-Mini", 16, 2, 4096, 14336, ("Jamba-v0.1",)),
    _model("Jamba-1.5-Large", 16, 2, 8192, 24576),
    _model("Grok-1", 8, 2, 6144, 32768),
    _model("Grok-2", 8, 2, 8192, 16384),
    _model("ERNIE-4.5-21B-A3B", 64, 6, 2560, 1536, shared_experts=2),
    _model("ERNIE-4.5-300B-A47B", 64, 8, 8192, 3584),
    _model("Hunyuan-A13B", 64, 8, 4096, 3072, shared_experts=1),
    _model("Granite-3.0-1B-A400M", 32, 8, 1024, 512, ("Granite-3.1-1B-A400M",)),
    _model("Granite-3.0-3B-A800M", 40, 8, 1536, 512, ("Granite-3.1-3B-A800M",)),
    _model("Granite-4.0-H-Small", 72, 10, 4096, 768),
    _model("dots.llm1", 128, 6, 4096, 1408, shared_experts=2),
    _model("Ling-lite", 64, 6, 2048, 1408, shared_experts=2),
    _model("Ling-mini-2.0", 256, 8, 2048, 512, ("Ring-mini-2.0",), shared_experts=1),
    _model("Ling-flash-2.0", 256, 8, 4096, 1024, ("Ring-flash-2.0",), shared_experts=1),
    _model("Ling-1T", 256, 8, 8192, 2048, ("Ring-1T",), shared_experts=1),
    _model("Gemma-4-26B-A4B", 128, 8, 2816, 704),
    _model("Qwen3.5-35B-A3B", 256, 8, 2048, 512, ("Qwen3.6-35B-A3B",)),
    _model("Qwen3.5-122B-A10B", 256, 8, 3072, 1024),
    _model("Qwen3.5-397B-A17B", 512, 10, 4096, 1024),
    _model("GLM-5", 256, 8, 6144, 2048, ("GLM-5.1", "GLM-5.2"), shared_experts=1),
    _model("LFM2-8B-A1B", 32, 4, 2048, 1792, ("LFM2.5-8B-A1B",)),
    # The routed experts of Nemotron 3 have no gate projection; those of Super work in a latent space of 1,024.
    _model("Nemotron-3-Nano-30B-A3B", 128, 6, 2688, 1856, gated=False),
    _model("Nemotron-3-Super-120B-A12B", 512, 22, 1024, 2688, gated=False),
)

HOW_TO_SAY = "say which with --model NAME, or give --hidden-size H --top-k K"


def find_model(name: str) -> Model:
    """The model of that name or alias; case, organisation and separators do not matter.

    Raises:
        UsageError: No such model; the message names the closest, what lists all, and the way round it.
    """
    wanted = _normalise(name)
    for model in MODELS:
        if wanted in map(_normalise, (model.name, *model.aliases)):
            return model
    # "Qwen3-30B-A3B-Instruct-2507-FP8" is the same architecture as the name it starts with.
    fits = [
        (len(known), model)
        for model in MODELS
        for known in map(_normalise, (model.name, *model.aliases))
        if len(known) >= 6 and wanted.startswith(known)
    ]
    if fits:
        return max(fits, key=lambda fit: fit[0])[1]
    known_names = {_normalise(known): known for model in MODELS for known in (model.name, *model.aliases)}
    if name.endswith(".json"):
        limit = "a known name (`advisor models` lists them)"
        raise UsageError("--model takes no file", name, limit, "leave it out and say the sizes of one rank: --sizes E=…,N=…,H=…,topk=…")
    close = [known_names[key] for key in difflib.get_close_matches(wanted, known_names, n=4, cutoff=0.4)]
    raise UsageError(
        "unknown model",
        name,
        "a known name, such as " + ", ".join(list(dict.fromkeys([*close, *(model.name for model in MODELS)]))[:4]),
        "list all with `advisor models`, or leave it out and say the sizes (of a table: --hidden-size H --top-k K; "
        "of a kernel: --sizes E=…,N=…,H=…,topk=…)",
    )


_STORED = re.compile(r"(?<![a-z0-9])(fp8|nvfp4|fp4|mxfp4|awq|gptq|int4|w4a16|gguf)(?![a-z0-9])")
BLOCK = (128, 128)
"""Weights that share a scale in the fp8 models that DeepSeek and Qwen publish; NVIDIA's (ModelOpt) have one scale."""


def stored_as(name: str) -> tuple[str, tuple[int, int] | None]:
    """How the weights of a published model are stored, by its name, and how many share a scale: of `Qwen3-30B-A3B-FP8` `fp8` and 128 x 128;
    an empty form where the name does not say it."""
    named = _STORED.search(name.lower())
    form = {"fp4": "nvfp4"}.get(named[1], named[1]) if named else ""
    return form, BLOCK if form == "fp8" and not name.lower().startswith("nvidia/") else None


FUSED_IN_SGLANG = ("DeepSeek-V3", "GLM-4.5", "GLM-4.5-Air", "GLM-5")
"""Models whose shared expert SGLang runs as one more routed expert, on NVIDIA GPUs of compute capability 8.0 and later and on AMD's of the
MI300 series, unless experts are spread over ranks (`determine_num_fused_shared_experts` in its deepseek_v2.py and glm4_moe.py). Its tables
are named so: E=257."""
APART_IN_SGLANG = "v32"
"""In the name of one that is built like them, and whose architecture SGLang does not take there: DeepSeek-V3.2."""


def fused_experts(name: str, stack: str, expert_parallel: int) -> int:
    """Shared experts of a model that a stack runs as routed ones.

    Raises:
        UsageError: No such model is known.
    """
    model = find_model(name)
    fused = stack == "sglang" and expert_parallel == 1 and model.name in FUSED_IN_SGLANG and APART_IN_SGLANG not in _normalise(name)
    return model.shared_experts if fused else 0


def _normalise(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.rsplit("/", 1)[-1].lower())


def candidates(E: int, N: int, choice: ModelChoice = ModelChoice()) -> tuple[Candidate, ...]:
    """The models a table's (E, N) fits, the plainest splits first, then in the order of `MODELS`.

    Tensor parallelism divides N, expert parallelism divides E; both at once are considered only where neither alone
    fits. A fused shared expert adds one expert (SGLang), or, in SGLang's older scheme, one per tensor-parallel rank.

    Args:
        E: Experts of one rank, as the table names it.
        N: Intermediate size of one rank.
        choice: Only splits over the ranks that it says.
    """
    ranked: list[tuple[tuple[int, ...], Candidate]] = []
    for rank, model in enumerate(MODELS):
        for candidate in candidates_of(model, E, N):
            tensor, expert = candidate.tensor_parallel, candidate.expert_parallel
            if tensor > MAX_TENSOR_PARALLEL or expert > MAX_EXPERT_PARALLEL:
                continue
            if not choice.splits(candidate):
                continue
            hybrid = tensor > 1 and expert > 1
            odd = tensor & (tensor - 1) != 0 or expert & (expert - 1) != 0
            ranked.append(((int(hybrid), int(odd), int(expert > 1), tensor * expert, rank), candidate))
    ranked.sort(key=lambda pair: pair[0])
    if ranked:
        # Odd or two-way splits are guesses beside a plain one.
        best = ranked[0][0][:2]
        ranked = [pair for pair in ranked if pair[0][:2] == best]
    return tuple(candidate for _, candidate in ranked)


def resolve(name: TableName, choice: ModelChoice, *, assume: bool = False) -> Resolution:
    """Hidden size and top-k behind a fused-MoE table: what the user gave, else what the known models settle.

    Args:
        name: The table's.
        choice: What the user gave.
        assume: Take the commonest model where the table does not settle it, and say so in `assumption`: for batch use.

    Raises:
        UsageError: What was given contradicts the table or the model. Several models fit and they differ, or none does, and nothing is
            to be assumed; lists the candidates and how to say which.
    """
    if name.kind != "fused_moe" or name.E is None:
        raise UsageError(f"{name.file_name()}: a GEMM table belongs to no model", None, "a fused-MoE table", None)
    _check("--top-k", choice.top_k, name.E * (choice.expert_parallel or 1))
    if choice.model is not None:
        return _of_model(name, find_model(choice.model), choice)
    if choice.hidden_size is not None and choice.top_k is not None:
        return Resolution(H=choice.hidden_size, top_k=choice.top_k, model=None, tensor_parallel=choice.tensor_parallel)
    matching = [
        candidate
        for candidate in candidates(name.E, name.N, choice)
        if choice.hidden_size in (None, candidate.H) and choice.top_k in (None, candidate.top_k)
    ]
    if len({(candidate.H, candidate.top_k, candidate.model.gated) for candidate in matching}) == 1:
        return _resolution(matching)
    if assume:
        return _commonest(name, matching) if matching else _usual(name, choice)
    if matching:
        listed = "; ".join(f"{candidate.label} (H={candidate.H}, top-k={candidate.top_k})" for candidate in matching[:8]) + (
            "; …" if len(matching) > 8 else ""
        )
        raise UsageError(f"{name.file_name()} fits several models: {listed}", None, None, HOW_TO_SAY)
    raise UsageError(
        f"{name.file_name()} fits no model the advisor knows, and does not say the hidden size and top-k",
        f"E={name.E}, N={name.N}",
        None,
        HOW_TO_SAY,
    )


OTHERS_NAMED = 3
"""Models of other shapes that an assumption names."""


def _commonest(name: TableName, matching: Iterable[Candidate]) -> Resolution:
    """The commonest of several candidates that differ."""
    # `MODELS` stands in the order of how common they are; a split over experts is rarer than any of them.
    order = {model.name: rank for rank, model in enumerate(MODELS)}
    first, *_ = ranked = sorted(matching, key=lambda candidate: (candidate.expert_parallel > 1, order[candidate.model.name]))
    shapes: dict[tuple[int, int], str] = {}
    for item in ranked:
        shapes.setdefault((item.H, item.top_k), item.label)
    _, *others = shapes.values()
    listed = "; ".join(others[:OTHERS_NAMED]) + ("; …" if len(others) > OTHERS_NAMED else "")
    return replace(
        _resolution([first]),
        assumption=f"{first.label} (H={first.H}, top-k={first.top_k}) is assumed; "
        f"E={name.E}, N={name.N} fits {len(others)} other shape{'s' if len(others) != 1 else ''} too ({listed})",
    )


def _usual(name: TableName, choice: ModelChoice) -> Resolution:
    """A typical layer, assumed for a table that fits no known model."""
    H = choice.hidden_size or DEFAULT_HIDDEN_SIZE
    k = choice.top_k or min(DEFAULT_TOP_K, name.E or 1)
    return Resolution(
        H=H,
        top_k=k,
        model=None,
        tensor_parallel=choice.tensor_parallel,
        assumption=f"H={H}, top-k={k} are assumed; E={name.E}, N={name.N} fits no known model",
    )


def _resolution(matching: Iterable[Candidate]) -> Resolution:
    agreeing = list(matching)
    first = agreeing[0]
    labels = list(dict.fromkeys(candidate.label for candidate in agreeing))
    same_split = len({(c.tensor_parallel, c.expert_parallel) for c in agreeing}) == 1
    return Resolution(
        H=first.H,
        top_k=first.top_k,
        model=" or ".join(labels[:3]),
        gated=first.model.gated,
        tensor_parallel=first.tensor_parallel if same_split else None,
        expert_parallel=first.expert_parallel if same_split else None,
    )


def _of_model(name: TableName, model: Model, choice: ModelChoice) -> Resolution:
    """The resolution for a model the user named; the table has to be one of its splits."""
    assert name.E is not None
    if choice.hidden_size not in (None, model.H):
        raise UsageError(f"--hidden-size contradicts {model.name}", choice.hidden_size, f"{model.H}", "leave out one of the two")
    splits = candidates_of(model, name.E, name.N)
    fits = [candidate for candidate in splits if choice.splits(candidate)]
    if not fits:
        raise _no_table_of(name, model, splits, choice)
    resolution = _resolution(fits[:1])
    return resolution if choice.top_k is None else replace(resolution, top_k=choice.top_k)


def _no_table_of(name: TableName, model: Model, splits: tuple[Candidate, ...], choice: ModelChoice) -> UsageError:
    """Why a table is none of a model as it was said to be split, and what to pass instead.

    The E and N of a table are those of one rank: a model's experts divided by expert-parallel, its N by tensor-parallel.
    """
    holds = f"E={name.E} experts of N={name.N} on a rank"
    if splits:
        right = splits[0]
        given = (("tensor", choice.tensor_parallel), ("expert", choice.expert_parallel))
        options = [f"--{kind}-parallel {size}" for kind, size in given if size is not None]
        return UsageError(
            f"{name.file_name()}: with {holds}, {model.name} (E={model.E}, N={model.N} in all) is split otherwise",
            " ".join(options),
            f"--tensor-parallel {right.tensor_parallel} --expert-parallel {right.expert_parallel}",
            "pass these, or leave both out: the table settles them",
        )
    others = list(dict.fromkeys(candidate.model.name for candidate in candidates(name.E or 1, name.N)))
    known = f", which {' or '.join(others[:3])} would have" if others else ""
    return UsageError(
        f"{name.file_name()} is no table of {model.name}, however it is split",
        f"{holds}{known}",
        f"E = {model.E} / expert-parallel and N = {model.N} / tensor-parallel, both whole",
        f"pass --model {others[0]}, or give --hidden-size H --top-k K" if others else "pass another --model, or --hidden-size H --top-k K",
    )


def candidates_of(model: Model, E: int, N: int) -> tuple[Candidate, ...]:
    """The splits of one model that give (E, N), without weighing them against other models'."""
    tensor, remainder = divmod(model.N, N)
    matching = []
    if not remainder and tensor:
        for fused in sorted({0, model.shared_experts, tensor if model.shared_experts == 1 else 0}):
            expert, rest = divmod(model.E + fused, E)
            if not rest and expert and not (fused and expert > 1):
                matching.append(Candidate(model=model, tensor_parallel=tensor, expert_parallel=expert, fused_shared=fused))
    return tuple(matching)
