"""capture() leaves the user's module alone, whatever it is wrapped in and made of."""

import copy
import warnings

import numpy as np
import pytest
import torch
from interpreter import interpret
from torch import nn
from torch.nn.utils import parametrizations, prune

from membound.capture import capture


def small():
    parts = [
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(64, 2),
    ]
    return nn.Sequential(*parts)


def agree(module, model, shape=(3, 6, 6)):
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = interpret(model.graph, model.tensors, x, model.scales)
        torch.testing.assert_close(found, module(x), rtol=1e-4, atol=1e-5)


def test_the_module_is_not_changed():
    module = small().train()
    module[0].weight.requires_grad_(False)
    module[4].weight.grad = torch.ones(2, 64)
    hook = module[0].register_forward_hook(lambda *_: None)
    before = copy.deepcopy(module.state_dict())
    parameters = dict(module.named_parameters())
    attributes = {name: vars(part).keys() for name, part in module.named_modules()}
    model = capture(module, torch.zeros(2, 3, 6, 6))
    assert all(part.training for part in module.modules())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter is parameters[name] for name, parameter in module.named_parameters())
    assert [p.requires_grad for p in module.parameters()] == [False, True, True, True, True]
    assert module[4].weight.grad.sum() == 128
    assert list(module[0]._forward_hooks) == [hook.id]
    assert {name: vars(part).keys() for name, part in module.named_modules()} == attributes
    for array in model.tensors.values():
        array[...] = 7  # the model has weights of its own
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_become_float32(dtype):
    module = small().to(dtype).eval()
    model = capture(module, torch.zeros(1, 3, 6, 6, dtype=dtype))
    assert {array.dtype for array in model.tensors.values()} == {np.dtype(np.float32)}
    assert next(module.parameters()).dtype is dtype
    agree(module.float(), model)


@pytest.mark.parametrize(
    "example", [np.zeros((1, 3, 6, 6)), np.zeros((4, 3, 6, 6), np.float32)[::2], torch.zeros(7, 3, 6, 6)]
)
def test_examples_of_any_kind_and_batch(example):
    module = small().eval()
    agree(module, capture(module, example))


def test_wrappers_are_taken_off():
    module = small().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(nn.DataParallel(module))
        inner = nn.Sequential(torch.compile(module))
    names = {"0.weight", "4.weight", "4.bias"}
    assert set(capture(compiled, torch.zeros(1, 3, 6, 6)).tensors) == names
    assert set(capture(inner, torch.zeros(1, 3, 6, 6)).tensors) == {f"0.{name}" for name in names}
    module.compile()
    agree(small_like(module), capture(module, torch.zeros(1, 3, 6, 6)))
    assert module._compiled_call_impl is not None


def small_like(module):
    other = small().eval()
    other.load_state_dict(module.state_dict())
    return other


def test_distributed_wrappers_are_taken_off(tmp_path):
    store = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        module = small().eval()
        agree(module, capture(nn.parallel.DistributedDataParallel(module), torch.zeros(1, 3, 6, 6)))
    finally:
        torch.distributed.destroy_process_group()


def test_weights_computed_from_others_are_computed_once():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 5, 1)).eval()
    prune.l1_unstructured(module[0], "weight", amount=0.5)
    parametrizations.weight_norm(module[1])
    parametrizations.orthogonal(module[2])
    module(torch.zeros(1, 3, 6, 6))  # leaves a weight that is no leaf
    model = capture(module, torch.zeros(1, 3, 6, 6))
    assert set(model.tensors) == {f"{layer}.{role}" for layer in range(3) for role in ("weight", "bias")}
    assert np.count_nonzero(model.tensors["0.weight"]) == 54
    agree(module, model)


def test_tied_weights_are_stored_once():
    module = nn.Sequential(
        nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    ).eval()
    module[2].weight = module[0].weight
    module[3].weight.data = module[0].weight.data  # another parameter on the same memory
    module[4] = module[0]
    model = capture(module, torch.zeros(1, 4))
    weights = [node.tensors["w"] for node in model.graph.nodes]
    assert weights == ["0.weight"] * 4
    assert sorted(model.tensors) == ["0.bias", "0.weight", "2.bias", "3.bias"]
    agree(module, model, (4,))


def test_a_norm_after_tied_weights_is_not_folded_into_them():
    conv = nn.Conv2d(3, 3, 1)
    module = nn.Sequential(conv, nn.BatchNorm2d(3), conv, nn.BatchNorm2d(3)).eval()
    module[1].running_mean += 1
    module[3].running_var *= 2
    model = capture(module, torch.zeros(1, 3, 6, 6))
    assert [node.op for node in model.graph.nodes] == ["conv", "mul", "add"] * 2
    agree(module, model)


def test_a_norm_is_folded_where_nothing_else_reads_the_convolution():
    module = small().eval()
    module[1].running_mean += 0.3
    model = capture(module, torch.zeros(1, 3, 6, 6))
    assert [(node.op, node.attributes.get("act")) for node in model.graph.nodes] == [
        ("conv", ["relu"]),
        ("reshape", None),
        ("linear", None),
    ]
    agree(module, model)


def test_hooks_take_part():
    module = small().eval()
    module[0].register_forward_hook(lambda part, inputs, out: out * 2)
    agree(module, capture(module, torch.zeros(1, 3, 6, 6)))


def test_channels_last_and_frozen_and_inference_weights():
    with torch.inference_mode():
        module = small().eval().to(memory_format=torch.channels_last).requires_grad_(False)
    agree(module, capture(module, torch.zeros(1, 3, 6, 6)))
    with torch.inference_mode():
        agree(module, capture(module, torch.zeros(1, 3, 6, 6)))


def test_without_simplification_every_channel_stays():
    module = small().eval()
    with torch.no_grad():
        module[0].weight.zero_()
    model = capture(module, torch.zeros(1, 3, 6, 6), simplify=False)
    assert model.tensors["0.weight"].shape == (4, 3, 3, 3)
    assert not model.original_shapes


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_modules_on_a_gpu_stay_there():
    module = small().eval().cuda()
    model = capture(module, torch.zeros(1, 3, 6, 6, device="cuda"))
    assert next(module.parameters()).is_cuda
    agree(module.cpu(), model)
