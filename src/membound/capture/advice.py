"""What to do where a network cannot be captured: a way out for each operator that people ask for."""

AFTER = "return what it is computed from, and compute it after the network, in numpy"
BEFORE = "compute it before the network, and give it as an input"
REAL = f"the runtime has real numbers only: {BEFORE}, or write it as products with constant sines and cosines"
CHOICE = "a size would depend on numbers: use torch.where, which keeps the size, or choose after the network"
RANDOM = "random numbers cannot be stored: leave them out in eval mode (if self.training: ...)"
ROUNDED = "for fake quantization, give the network without it: `save` and `fit` store few bits themselves"
PLACES = (
    "places that depend on numbers have no operator: use constant indices, nn.Embedding, or a product with a matrix of "
    "ones and zeros"
)
NO_BATCH = "give the example input a batch, as in x[None]"
BATCH_FIRST = (
    "the batch must be the first axis of each input, as attention and LSTM take it with batch_first=True"
)
SAMPLES = "sampling at computed places has no operator: resize, crop or turn images before the network"
ROWS = "use nn.Embedding and sum or average its rows"
EMBEDDING_BAG = f"positions in the batch have no operator; for nn.EmbeddingBag, {ROWS}"
MATRIX = f"decompositions of matrices have no operator: {AFTER}"

SUPPORTED = (
    "supported are convolutions, linear layers, embeddings, batch, layer, group and instance norm, pooling, LRN, "
    "interpolation, attention, the usual activations, arithmetic, softmax, mean, max, padding, concatenation, slices, "
    "reshapes and permutations"
)
PLAIN = f"{SUPPORTED}: write it with these, or compute it before or after the network"

OPERATORS = {
    **dict.fromkeys(
        ("topk", "sort", "argsort", "argmax", "argmin", "kthvalue", "median", "mode", "msort", "nms"), AFTER
    ),
    **dict.fromkeys(("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"), CHOICE),
    **dict.fromkeys(
        ("_fft_r2c", "_fft_c2c", "_fft_c2r", "complex", "view_as_real", "view_as_complex", "polar", "stft"), REAL
    ),
    **dict.fromkeys(
        ("rand", "randn", "rand_like", "randn_like", "randint", "randperm", "bernoulli", "normal", "multinomial"),
        RANDOM,
    ),
    **dict.fromkeys(("round", "floor", "ceil", "trunc", "fake_quantize_per_tensor_affine"), ROUNDED),
    **dict.fromkeys(
        ("_linalg_svd", "linalg_inv_ex", "_linalg_eigh", "linalg_qr", "_linalg_det", "linalg_cholesky_ex"), MATRIX
    ),
    **dict.fromkeys(("gather", "scatter", "scatter_add", "index_put", "_unsafe_index_put"), PLACES),
    "sign": "tanh or clamp may stand in for it; an LPPool is an average pool of powers, and a root of it",
    "_unsafe_index": "resizing of volumes has no operator: resize their slices as images",
    "im2col": "write it as a convolution, or as slices that are concatenated",
    "col2im": "write it as a transposed convolution, or as sums of padded slices",
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d", "affine_grid_generator"), SAMPLES),
    "_cdist_forward": "write a distance as sums: |a|^2 - 2 a b + |b|^2, with matmul",
    "log": f"log_softmax has an operator, log has none: {AFTER}",
    "prod": "write a product along an axis as x[:, 0] * x[:, 1] * ...",
    "erf": "GELU as a whole, F.gelu or x * 0.5 * (1 + erf(x / sqrt(2))), has an operator",
    "_embedding_bag": ROWS,
    "bincount": AFTER,
}  # fmt: skip

# What torch.export says where it gives up, and what to do then.
TRACES = {
    "numpy": "compute with torch, not with numpy",
    "ScriptModule": "give the module that was scripted",
    "quantized": "give the network as it was before it was quantized: `save` and `fit` store few bits themselves",
    "pack_padded_sequence": "give sequences of one length to the recurrent layer, without packing them",
}
TRACE = "write this part with plain tensor operations, or compute it before or after the network"


def for_operator(name: str) -> str:
    """A way out where there is no such operator.

    >>> for_operator("argmax").startswith("return what it is computed from")
    True
    """
    return OPERATORS.get(name, PLAIN)


def for_trace(text: str) -> str:
    """A way out where torch.export fails with these words."""
    return next((advice for word, advice in TRACES.items() if word in text), TRACE)
