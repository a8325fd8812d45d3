"""A stored network written anew in Keras, channels last, for TensorFlow's converter to int8."""

import math
from typing import Any

import tensorflow as tf

from membound.store.graph import Node
from membound.store.model import StoredModel
from membound.store.operators import attributes

ACTS = {None: None, ("relu",): "relu", ("clip", 0.0, 6.0): "relu6"}


def in_keras(model: StoredModel) -> Any:
    """The same layers, channels last."""
    channels, height, width = model.shapes[0]
    values = [tf.keras.Input((height, width, channels), batch_size=1)]
    padded = {number for number, node in enumerate(model.graph.nodes, 1) if node.op == "pad"}
    for number, node in enumerate(model.graph.nodes, 1):
        inputs = [values[v] for v in node.inputs]
        if number in padded:  # part of the convolutions behind it
            values.append(inputs[0])
            continue
        values.append(_layer(model, node, inputs, not padded.isdisjoint(node.inputs)))
        wanted = model.shapes[number]
        found = tuple(values[-1].shape[1:])
        assert math.prod(found) == math.prod(wanted), (node.op, found, wanted)
    return tf.keras.Model(values[0], values[model.graph.output])


def _layer(model: StoredModel, node: Node, inputs: list[Any], padded: bool) -> Any:
    a, layers = attributes(node), tf.keras.layers
    x = inputs[0]
    if node.op == "conv":
        out, _, kh, kw = model.tensors[node.tensors["w"]].shape
        pad = "same" if padded or any(a["pad"]) else "valid"
        if a["groups"] > 1:
            x = layers.DepthwiseConv2D((kh, kw), a["stride"], pad)(x)
        else:
            x = layers.Conv2D(out, (kh, kw), a["stride"], pad)(x)
        return _act(x, a["act"])
    if node.op == "linear":
        return _act(layers.Dense(model.tensors[node.tensors["w"]].shape[0])(x), a["act"])
    if node.op in ("maxpool", "avgpool"):
        pool = layers.MaxPooling2D if node.op == "maxpool" else layers.AveragePooling2D
        even = any(a["pad"]) or any(a.get("over", (0, 0)))
        return pool(a["kernel"], a["stride"], "same" if even else "valid")(x)
    if node.op == "add":
        return _act(layers.Add()(inputs), a["act"])
    if node.op in ("mean", "adaptive"):
        return layers.GlobalAveragePooling2D(keepdims=node.op == "adaptive")(x)
    if node.op == "act":
        return _act(x, a["act"])
    assert node.op == "reshape", node.op
    return layers.Flatten()(x)


def _act(x: Any, act: Any) -> Any:
    name = ACTS[act if act is None else tuple(act)]
    return x if name is None else tf.keras.layers.Activation(name)(x)
