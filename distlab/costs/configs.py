"""Published configurations of models, as parts; architectures.json says which field is which part.

Each architecture there has the defaults of its fields, and where a part differs from the
architecture it is `like`. A part is a value, or the name of a field ("a|b" for either of two), or
three of these: if the first is true it is the second, else the third.
"""

import json
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from distlab.costs.checking import divisible, number, one_of, whole
from distlab.costs.parts import Attention, Feed, Layer

_NORMS = {"none": 0, "rms": 1, "plain": 1, "layer": 2}
"""Numbers for each of a normalization's width; `plain` is a layer normalization without biases."""
_ROOT = "*"
"""What all architectures are like that don't say another."""
_FULL, _WINDOW, _LINEAR = "full_attention", "sliding_attention", "linear_attention"
_KINDS = {_FULL: _FULL, _WINDOW: _WINDOW, "chunked_attention": _WINDOW, _LINEAR: _LINEAR}


@cache
def _architectures() -> dict[str, dict[str, Any]]:
    path = Path(__file__).with_name("architectures.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def described(config: Any) -> dict[str, Any]:
    """Return the sizes of a `Transformer`, and how many positions it takes at most."""
    c = _Config(_given(config))
    hidden, layers, experts = c.size("hidden"), c.size("layers"), c.size("experts", 0, least=0)
    if c.row["divides"]:
        divisible(c.value("hidden")[0], hidden, c.value("heads")[0], c.size("heads"))
    vocabulary, positions = c.size("vocabulary"), c.size("positions")
    types, sparse = _types(c, layers), _sparse(c, layers) if experts else [False] * layers
    norm = _NORMS[c.row["norm"]]
    norms = c.size("norms")
    blocks = tuple(
        (
            count,
            Layer(
                _attention(c, kind),
                _feed(c, routed),
                norms,
                norms * norm * hidden,
                c.row["norm"] == "rms",
                c.flag("parallel"),
            ),
        )
        for (kind, routed), count in Counter(zip(types, sparse, strict=True)).items()
    )
    learned = c.row["learned"]  # some embeddings begin with rows that no token has
    others = hidden * norm * (c.flag("last_norm") + c.flag("embedding_norm"))
    others += 0 if learned is None else hidden * (positions + learned)
    return {
        "layers": layers,
        "hidden": hidden,
        "heads": c.size("heads"),
        "vocabulary": vocabulary,
        "tied": c.flag("tied"),
        "dropout": number(*c.value("dropout"), zero=True) > 0,
        "blocks": blocks,
        "others": others + vocabulary * c.flag("head_bias"),
        "positions": positions,
    }


def _given(config: Any) -> dict[str, Any]:
    """The fields of a configuration, of which those of the text model count."""
    if isinstance(config, str | Path):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is no JSON: {error}") from None
    elif hasattr(config, "to_dict"):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise TypeError(f"config={config!r}: give a path, a dictionary or a config object")
    return dict(config)


class _Config:
    """The fields of a configuration, with the defaults of its architecture."""

    def __init__(self, given: dict[str, Any]) -> None:
        known, name, text = _architectures(), given.get("model_type"), given.get("text_config")
        if name == "llama4":  # transformers makes only its text model
            given, name = dict(text or {}), "llama4_text"
        elif isinstance(text, Mapping):
            raise ValueError(
                f"model_type={name!r}: only text models are described; give its field text_config"
            )
        if name not in known or name == _ROOT:
            near = get_close_matches(str(name or ""), known, n=3) or sorted(set(known) - {_ROOT})
            raise ValueError(
                f"model_type={name!r}: not described, as state spaces and encoders are not; give "
                f"one of {', '.join(near)}"
            )
        self.given, self.row, self.defaults = given, dict[str, Any](), dict[str, Any]()
        line = str(name)
        while line:
            row = known[line]
            self.row = row | self.row
            self.defaults = row.get("defaults", {}) | self.defaults
            line = "" if line == _ROOT else row.get("like", _ROOT)

    def value(self, part: str) -> tuple[str, Any]:
        """The value of a part, and the name of its field."""
        return self.resolved(part, self.row.get(part))

    def resolved(self, part: str, value: Any) -> tuple[str, Any]:
        if isinstance(value, list):
            condition, yes, no = value
            name, found = self.resolved(part, condition)
            if isinstance(found, str):
                raise TypeError(f"{name}={found!r}: give True or False")
            return self.resolved(part, yes if found else no)
        if not isinstance(value, str):
            return part, value
        names = value.split("|")
        for name in names:
            if name in self.given:
                return name, self.given[name]
        return names[0], self.defaults.get(names[0])

    def size(self, part: str, default: int | None = None, least: int = 1) -> int:
        """A whole number; the default where there is none."""
        name, value = self.value(part)
        if value is None and default is not None:
            return default
        return whole(name, value, least)

    def flag(self, part: str) -> bool:
        """True or False."""
        name, value = self.value(part)
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"{name}={value!r}: give True or False")
        return bool(value)

    def listed(self, part: str, kind: type, length: int | None = None) -> list[Any] | None:
        """A list, of one entry for each layer if there is a length; None where there is none."""
        name, value = self.value(part)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(each, kind) for each in value):
            raise TypeError(f"{name}={value!r}: give a list of {kind.__name__}")
        if length is not None and len(value) != length:
            raise ValueError(f"{name} has {len(value)} entries: give one for each layer, {length}")
        return list(value)


def _types(c: _Config, layers: int) -> list[str]:
    """The kind of attention of each layer."""
    found = c.listed("types", str, layers)
    if found is None:
        count, yes, no = c.row["every"]
        name, value = c.resolved("every", count)
        every = whole(name, value or 1)
        found = [no if (i + 1) % every else yes for i in range(layers)]
    for kind in found:
        if kind not in _KINDS or (kind == _LINEAR and not c.row["linear"]):
            raise ValueError(f"layer_types has {kind!r}: not a kind of layer that is described")
    return [_KINDS[kind] for kind in found]


def _sparse(c: _Config, layers: int) -> list[bool]:
    """Which layers have experts."""
    found = c.listed("sparse_types", str, layers)
    if found is not None:
        for kind in found:
            one_of("an entry of mlp_layer_types", kind, ("sparse", "dense"))
        return [kind == "sparse" for kind in found]
    chosen = c.listed("sparse_layers", int)
    if chosen is not None:
        return [i in chosen for i in range(layers)]
    first, step = c.size("dense_first", 0, least=0), c.size("step", 1)
    last, dense = c.size("sparse_last", -1, least=-1), c.listed("dense_layers", int) or ()
    last = layers if last == -1 else last
    return [first <= i <= last and (i + 1) % step == 0 and i not in dense for i in range(layers)]


def _attention(c: _Config, kind: str) -> Attention:
    hidden, heads = c.size("hidden"), c.size("heads")
    key_heads, head = c.size("kv_heads", heads), c.size("head", hidden // heads)
    value_heads, value_head, rank, state, gate = key_heads, head, 0, 0, 0
    query_heads = heads
    if kind == _LINEAR and c.row["linear"] == "lightning":  # https://arxiv.org/abs/2501.08313
        key_heads = value_heads = heads
        state = 4 * heads * head * head  # a token adds to each number, and reads it
        gate = vectors = heads * head
    elif kind == _LINEAR:  # Gated DeltaNet, https://arxiv.org/abs/2412.06464
        query_heads = key_heads = c.size("linear_key_heads")
        heads = value_heads = c.size("linear_value_heads")
        head, value_head = c.size("linear_key_head"), c.size("linear_value_head")
        divisible(c.value("linear_value_heads")[0], heads, "linear_num_key_heads", key_heads)
        state = 6 * heads * head * value_head  # it also reads what it is to correct
        gate = heads * (value_head + 2)
        convolved = (query_heads + key_heads) * head + heads * value_head
        vectors = convolved * c.size("convolution") + 2 * heads + value_head
    elif c.row["latent"]:  # DeepSeek's, https://arxiv.org/abs/2405.04434
        key_heads = value_heads = heads
        rank, query_rank = c.size("key_rank"), c.size("query_rank", 0, least=0)
        head, value_head = (
            c.size("own_key") + c.size("shared_key"),
            c.size("value_head", hidden // heads),
        )
        biased = query_rank + rank + c.size("shared_key") + hidden
        vectors = c.flag("qkv_bias") * biased + query_rank + rank
    else:
        divisible(c.value("heads")[0], heads, c.value("kv_heads")[0], key_heads)
        gate = heads * head * (c.row["gate"] is not None)
        query, key = heads * head, key_heads * head
        biased = query + 2 * key + gate * (c.row["gate"] == "biased")
        vectors = c.flag("qkv_bias") * biased + c.flag("out_bias") * hidden
        vectors += c.flag("head_norm") * 2 * head * _NORMS[c.row["norm"]]
        vectors += c.flag("full_norm") * (query + key) + c.flag("sinks") * heads
    return Attention(
        hidden,
        heads,
        key_heads,
        query=query_heads * head,
        key=key_heads * head,
        value=value_heads * value_head,
        mixed=heads * value_head,
        gate=gate,
        query_rank=query_rank if rank else 0,
        key_rank=rank,
        shared_key=c.size("shared_key") if rank else 0,
        joined=c.row["joined"],
        rotary=not state and c.row["learned"] is None,
        window=c.size("window", 0, least=0) or None if kind == _WINDOW else None,
        state=state,
        vectors=vectors,
        normed=(c.flag("head_norm") or c.flag("full_norm")) and not state,
    )


def _feed(c: _Config, routed: bool) -> Feed:
    hidden, gated, bias = c.size("hidden"), c.flag("gated"), c.flag("ffn_bias")
    count = 2 if gated else 1
    if not routed:
        inner = c.size("ffn", 4 * hidden)
        vectors = bias * (count * inner + hidden) + c.row["activation_vectors"]
        return Feed(hidden, inner, gated, vectors=vectors)
    experts, top_k = c.size("experts"), c.size("top_k", 1)
    if top_k > experts:
        names = c.value("top_k")[0], c.value("experts")[0]
        raise ValueError(f"{names[0]}={top_k}: give at most {names[1]}={experts}")
    inner = c.size("expert_ffn")
    shared = c.size("shared_ffn", 0, least=0) or inner * c.size("shared", 0, least=0)
    vectors = experts * (c.flag("router_bias") + c.flag("choice_bias"))
    vectors += c.flag("expert_bias") * experts * (count * inner + hidden)
    vectors += bias * (count * shared + hidden) * bool(shared)
    return Feed(
        hidden, inner, gated, experts, top_k, shared, c.flag("shared_gate") and shared > 0, vectors
    )
