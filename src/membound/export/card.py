"""The model card of a network: what the Hugging Face Hub shows, in Markdown below YAML."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from membound.data.named import NAMED
from membound.data.preprocess import taken_by
from membound.run.layers import show_values

SHOWN_CLASSES = 20

CARD = """\
{metadata}
# {name}

A network stored by its nonzeros: membound runs it from this file, without a dense copy of it and without torch.

{table}

## Run it

```
pip install '.[hub]'  # in a checkout of membound
membound run hf://ORG/{name} images.npy
```

```python
import membound as mb

net = mb.load("hf://ORG/{name}")
scores = net({prepared})
```

`ORG` is whose repository this is. {inputs}

## Layers

{layers}
"""


def make_card(
    name: str,
    facts: Mapping[str, Any],
    *,
    accuracy: float | None,
    accuracy_on: str,
    data: str | None,
    dense: Mapping[str, Any],
) -> str:
    """The card of a network with these facts, as `inspect` gives them; what is not known is left out or says so."""
    pictures = len(facts["input_shape"]) == 3 and len(facts["output_shape"]) == 1
    described = facts["preprocess"] is not None
    return CARD.format(
        metadata=_metadata(name, accuracy, data, pictures),
        name=name,
        table=_compare(facts, accuracy, f"{accuracy_on} images" + (f" of {data}" if data else ""), dense),
        prepared="net.preprocess(images)" if described else "x",
        inputs=_inputs(facts, described),
        layers=_layers(facts["layers"]),
    )


def _metadata(name: str, accuracy: float | None, data: str | None, pictures: bool) -> str:
    """YAML; texts are quoted as in JSON, which is YAML, too."""
    lines = ["---", "library_name: membound", "tags:", "- membound", "- sparse", "- pruning"]
    if pictures:
        lines.append("pipeline_tag: image-classification")
    if data in NAMED:
        lines += ["datasets:", f"- {NAMED[data].hub}"]
    if accuracy is not None and data is not None and pictures:
        kind = NAMED[data].hub if data in NAMED else data
        lines += [
            "model-index:",
            f"- name: {json.dumps(name)}",
            "  results:",
            "  - task:",
            "      type: image-classification",
            "    dataset:",
            f"      name: {json.dumps(data)}",
            f"      type: {json.dumps(kind)}",
            "    metrics:",
            "    - type: accuracy",
            f"      value: {accuracy:.2f}",
        ]
    return "\n".join([*lines, "---", ""])


def _compare(facts: Mapping[str, Any], accuracy: float | None, where: str, dense: Mapping[str, Any]) -> str:
    """This network beside the dense one: its file in float32, where nothing else is known of it."""
    size = dense.get("file_bytes") or facts["dense_file_bytes"]
    rows = [
        ("bytes of the file", f"{facts['file_bytes']:,}", f"{size:,}"),
        ("nonzeros", f"{facts['nonzeros']:,}", f"{dense.get('nonzeros') or facts['parameters']:,}"),
    ]
    parts = facts["parts"]
    if parts["palette_bytes"] or any(layer["distinct"] is not None for layer in facts["layers"]):
        said = (
            f"{parts['value_bytes']:,} values, {parts['position_bytes']:,} positions, "
            f"{parts['scale_bytes'] + parts['bias_bytes']:,} scales and biases, {parts['palette_bytes']:,} palettes"
        )
        rows.insert(1, ("of which", said, f"{size:,} values"))
    if accuracy is not None:
        beside = dense.get("accuracy")
        rows.append(
            (
                f"accuracy on {where}",
                f"{accuracy:.2f} %",
                "not measured" if beside is None else f"{beside:.2f} %",
            )
        )
    return _table(("", "this network", "dense, float32"), rows)


def _inputs(facts: Mapping[str, Any], described: bool) -> str:
    shape = " x ".join(map(str, facts["input_shape"]))
    text = (
        f"It takes {taken_by(facts['preprocess'])} arrays of [batch, {shape}] and prepares them as the file says"
        if described and facts["preprocess"].get("crop") is None
        else f"It takes prepared float32 of [batch, {shape}]"
    )
    if facts["arena_bytes"] is not None:
        text += f", with {facts['arena_bytes']:,} bytes of working memory at batch 1"
    classes = facts["classes"]
    if not classes:
        return f"{text}."
    more = f", and {len(classes) - SHOWN_CLASSES} more" if len(classes) > SHOWN_CLASSES else ""
    return f"{text}; its {len(classes)} classes are {', '.join(map(_plain, classes[:SHOWN_CLASSES]))}{more}."


def _layers(layers: list[dict[str, Any]]) -> str:
    rows = [
        (
            _plain(layer["name"]),
            " x ".join(map(str, layer["shape"])),
            f"{layer['nonzeros']:,}",
            f"{layer['density']:.2%}",
            f"{layer['format']}, {show_values(layer)}",
            f"{layer['bytes']:,}",
        )
        for layer in layers
    ]
    return _table(("layer", "shape", "nonzeros", "density", "format", "bytes"), rows)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _plain(text: str) -> str:
    """A name without what Markdown would make of it.

    >>> _plain("a|b\\nc*")
    'a\\\\|b c\\\\*'
    """
    return "".join(f"\\{sign}" if sign in r"\`*_[]<>|#" else sign for sign in " ".join(text.split()))
