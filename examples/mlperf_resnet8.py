"""ResNet-8 with the weights that MLPerf Tiny publishes (pretrainedResnet.h5 of mlcommons/tiny): a start, or a teacher.

pip install h5py
python examples/mlperf_resnet8.py pretrainedResnet.h5 mlperf.safetensors
membound evaluate resnet8 --init mlperf.safetensors --data cifar10
membound fit resnet8 --init mlperf.safetensors --data cifar10 --budget 20KB --out net.safetensors
"""

import sys
from pathlib import Path

import h5py
import torch

import membound as mb
from membound.train.weights import save_weights

# Where each convolution of the Keras model goes, and the number of the batch norm behind it.
CONVOLUTIONS = {
    "conv2d": ("stem", 0),
    "conv2d_1": ("blocks.0.conv1", 1),
    "conv2d_2": ("blocks.0.conv2", 2),
    "conv2d_3": ("blocks.1.conv1", 3),
    "conv2d_4": ("blocks.1.conv2", 4),
    "conv2d_5": ("blocks.1.shortcut", None),
    "conv2d_6": ("blocks.2.conv1", 5),
    "conv2d_7": ("blocks.2.conv2", 6),
    "conv2d_8": ("blocks.2.shortcut", None),
}


def main(published: Path, out: Path) -> None:
    """Write the published weights under the names of the zoo's network."""
    with h5py.File(published) as file:
        group = file["model_weights"]

        def tensor(layer: str, name: str) -> torch.Tensor:
            return torch.from_numpy(group[layer][layer][f"{name}:0"][()])

        state = {"fc.weight": tensor("dense", "kernel").T, "fc.bias": tensor("dense", "bias")}
        for keras, (ours, norm) in CONVOLUTIONS.items():
            kernel, bias = tensor(keras, "kernel").permute(3, 2, 0, 1), tensor(keras, "bias")
            if norm is None:
                state |= {f"{ours}.weight": kernel, f"{ours}.bias": bias}
                continue
            name = f"batch_normalization_{norm}" if norm else "batch_normalization"
            state |= {
                f"{ours}.0.weight": kernel,
                f"{ours}.1.weight": tensor(name, "gamma"),
                f"{ours}.1.bias": tensor(name, "beta"),
                # Ours have no bias before the batch norm, which subtracts its mean.
                f"{ours}.1.running_mean": tensor(name, "moving_mean") - bias,
                f"{ours}.1.running_var": tensor(name, "moving_variance"),
                f"{ours}.1.num_batches_tracked": torch.tensor(0),
            }
    net = mb.zoo.resnet8()
    net.load_state_dict({name: value.contiguous() for name, value in state.items()})
    about = {"classes": list(mb.data.load("cifar10").classes), "image_size": 32, "shape": [3, 32, 32]}
    save_weights(out, net, mb.data.Preprocess(), about)
    print(f"wrote {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "mlperf.safetensors"))
