"""What to do about parts of a network that a microcontroller does not run."""

OVER_TIME = "take convolutions over time instead: Conv1d, on a sequence [channels, time]"
SEQUENCES = (
    "of a sequence [channels, time] it takes Conv1d, pools over time, and linear layers behind a Flatten; recurrent "
    "layers, attention and maps that are made of a sequence do not run there"
)
RECURRENT = f"GRU/LSTM is not supported on a microcontroller: {OVER_TIME}"
_RESIZING = "end the network before it, and resize what comes out"
_FOLDING = "fold a constant into the layer before it; train without gates, such as squeeze-and-excitation"
WAYS_OUT = {
    **dict.fromkeys(("add", "sub", "mul", "div"), _FOLDING),
    "constant": "let a bias hold it",
    "gather": "pad with zeros; pools and strides pick rows and columns",
    "matmul": "use convolutions and linear layers: attention has products of two values",
    "max": "use a max pool over the whole map",
    "maximum": "use relu or clamp",
    "minimum": "use clamp",
    "permute": "train a network that keeps channels first",
    "reshape": "flatten all of it, or leave out the layer that reshapes, as group norm, transposed convolutions, "
    "pixel shuffle, attention and recurrent layers do",
    "slice": "make a layer of each part",
    "lrn": "train the network without local response normalization, or with batch norm, which is folded away",
    "layernorm": "train it with batch norm, which is folded away",
    "softmax": "only one at the very end can go, and is left to the caller",
    "resize": _RESIZING,
    "upsample": _RESIZING,
}
