"""The layout maps that KerasHub publishes, linted on small models: the table of docs/layouts.md.

`python tools/published_maps.py` builds each backbone that has a map, on three meshes of virtual
devices, and writes the table.
"""

import os
from collections import Counter
from pathlib import Path

import marked

import distlab
from distlab import layouts

PAGE = Path(__file__).resolve().parent.parent / "docs" / "layouts.md"
MESHES = ((1, 8), (2, 4), (8, 1))
SMALL = {
    "vocabulary_size": 64,
    "num_layers": 2,
    "num_query_heads": 8,
    "num_key_value_heads": 8,
    "hidden_dim": 32,
    "intermediate_dim": 64,
}
EXPERTS = {"moe_intermediate_dim": 64, "num_experts": 8, "top_k": 2}
BACKBONES: dict[str, dict[str, int]] = {
    "Gemma": SMALL | {"head_dim": 4},
    "Llama": SMALL,
    "Llama3": SMALL,
    "Qwen": SMALL,
    "Qwen2": SMALL,
    "QwenMoe": SMALL | EXPERTS | {"shared_expert_intermediate_dim": 64},
    "Qwen3Moe": SMALL | EXPERTS,
}
HEADS = ("map", "mesh", "bytes", "on each device", "no rule", "findings", "with the rules printed")


def row(name: str, shape: tuple[int, int]) -> tuple[str, ...]:
    """Build one backbone under its map, and once more with the rules that the lint prints."""
    import keras
    import keras_hub

    kind = getattr(keras_hub.models, f"{name}Backbone")
    layout_map = kind.get_layout_map(keras.distribution.DeviceMesh(shape, ["batch", "model"]))

    def checked() -> tuple[layouts.Table, layouts.Report]:
        keras.backend.clear_session()
        keras.distribution.set_distribution(
            keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name="batch")
        )
        model = kind(**BACKBONES[name])
        return layouts.table(model), layouts.lint(model)

    table, report = checked()
    bare = sum(each.nbytes for each in table.rows if not each.rule)
    total = sum(each.nbytes for each in table.rows)
    found = ", ".join(f"{n} {kind}" for kind, n in Counter(report.kinds()).items()) or "none"
    lines = [f.message.partition(" Write: ")[2] for f in report.findings]
    exec("\n".join(filter(None, lines)), {"layout_map": layout_map})
    better = f"{max(checked()[0].bytes_by_device.values()):,}" if any(lines) else ""
    each = f"{max(table.bytes_by_device.values()):,}"
    mesh = f"{shape[0]} x {shape[1]}"
    return name, mesh, f"{total:,}", each, f"{100 * bare // total} %", found, better


if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "jax"
    distlab.virtual_devices(8, "jax")
    rows = [row(name, shape) for name in BACKBONES for shape in MESHES]
    made = marked.table(HEADS, rows)
    PAGE.write_text(marked.filled(PAGE.read_text(), {"published maps": made}))
