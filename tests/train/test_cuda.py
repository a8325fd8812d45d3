"""What is different on a GPU: the projection's kernels, fused optimizers under a GradScaler, training and resuming."""

import numpy as np
import pytest
import torch
from torch import nn

import membound as mb
from membound.data import ArraySplit, Preprocess
from membound.errors import RuleError, TrainingError
from membound.train.loop import train
from membound.train.magnitudes import NonFiniteError
from membound.train.palette import assigned, fit_entries, make_table
from membound.train.projection import project_, project_torch_
from membound.train.recipe import Recipe
from membound.train.run import Settings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def made(kind: str, n: int, generator: torch.Generator) -> torch.Tensor:
    w = torch.randn(n, generator=generator)
    if kind == "tied":
        return torch.randint(-3, 4, (n,), generator=generator).float()
    if kind == "equal":
        return torch.full((n,), -2.5)
    if kind == "denormal":
        return w * 1e-42
    if kind == "sparse":
        w[torch.rand(n, generator=generator) < 0.9] = -0.0
    if kind == "any bits":
        bits = torch.randint(-(2**31), 2**31, (n,), generator=generator).to(torch.int32)
        w = bits.view(torch.float32)
        w[~w.isfinite()] = 1.0
    return w


@pytest.mark.parametrize("kind", ["normal", "tied", "equal", "denormal", "sparse", "any bits"])
def test_the_gpus_projection_has_the_reference_s_bits(kind):
    generator = torch.Generator().manual_seed(0)
    sizes = [1, 2, 3, 500, 2047, 2048, 2049, 25_600, (1 << 17) + 1, 400_000, 3_000_001]
    for n in sizes:
        w = made(kind, n, generator)
        for count in {0, 1, n // 20, n // 2, n - 1, n, n + 5}:
            on_gpu, expected = w.cuda(), w.clone()
            project_(on_gpu, count)
            project_torch_(expected, count)
            assert torch.equal(on_gpu.cpu().view(torch.int32), expected.view(torch.int32)), (n, count)
            by_torch = w.cuda()
            project_torch_(by_torch, count)
            assert torch.equal(by_torch.cpu().view(torch.int32), expected.view(torch.int32)), (n, count)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("count", [0, 5, 5000])
def test_a_nonfinite_weight_is_found_and_nothing_written(bad, count):
    w = torch.randn(5000, device="cuda")
    w[77] = bad
    before = w.clone()
    with pytest.raises(NonFiniteError):
        project_(w, count)
    assert torch.equal(w.view(torch.int32), before.view(torch.int32))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_float_types_go_through_torch(dtype):
    w = torch.randn(1000, device="cuda").to(dtype)
    expected = w.cpu()
    project_(w, 100)
    project_torch_(expected, 100)
    assert torch.equal(w.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_palettes_have_the_cpus_bits(dtype):
    """From quantiles and from entries before; the table, and what it makes of weights."""
    generator = torch.Generator().manual_seed(0)
    for kind in ("normal", "tied", "equal", "sparse"):
        for n in (1, 500, 400_000):
            w = (made(kind, n, generator) * 0.1).to(dtype)
            for levels in (1, 4, 16, 256):
                entries, expected = fit_entries(w.cuda(), levels), fit_entries(w, levels)
                assert torch.equal(entries.cpu(), expected), (kind, n, levels)
                assert torch.equal(
                    fit_entries(w.cuda() * 0.75, levels, entries).cpu(),
                    fit_entries(w * 0.75, levels, expected),
                )
                table, right = make_table(entries), make_table(expected)
                assert torch.equal(table.entries.cpu().nan_to_num(), right.entries.nan_to_num())
                assert torch.equal(table.scale.cpu(), right.scale)
                assert torch.equal(assigned(w.cuda(), table).cpu(), assigned(w, right))
    with pytest.raises(NonFiniteError):
        fit_entries(torch.tensor([1.0, torch.nan], device="cuda").to(dtype), 2)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.filterwarnings("ignore:every=50 is more than the 19 steps")
def test_steps_between_fits_do_not_wait_for_the_gpu():
    model = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rules = {"*": mb.chain(mb.l0_project(100, every=50), mb.palette(4, every=50, begin=0))}
    reg = mb.attach(optimizer, model, rules)
    x = torch.randn(8, 64, device="cuda")
    for step in range(1, 20):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        torch.cuda.set_sync_debug_mode("error" if step > 2 else "default")
        optimizer.step()
        torch.cuda.set_sync_debug_mode("default")
    reg.finish()
    assert len(model.weight.unique()) <= 5
    assert int(model.weight.count_nonzero()) <= 100


@pytest.mark.parametrize("fused", [False, True])
def test_grad_scaler_on_the_gpu(fused):
    """Scaled gradients get scaled penalties, and a skipped step neither counts nor changes a weight."""
    torch.manual_seed(0)
    model, twin = nn.Linear(6, 4).cuda(), nn.Linear(6, 4).cuda()
    twin.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=fused)
    plain = torch.optim.Adam(twin.parameters(), lr=0.01, fused=fused)
    rules = {"*": mb.chain(mb.l2_decay(0.1), mb.l0_project(10, every=2), mb.palette(24, every=2, begin=0))}
    reg, reg_twin = mb.attach(optimizer, model, rules), mb.attach(plain, twin, rules)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    for step in range(6):
        x = torch.randn(8, 6, device="cuda")
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        if step == 3:
            model.weight.grad[0, 0] = float("inf")
        before = model.weight.clone()
        scaler.step(optimizer)
        scaler.update()
        if step == 3:
            assert torch.equal(before, model.weight)
            continue
        plain.zero_grad()
        twin(x).square().mean().backward()
        plain.step()
    assert reg.step == reg_twin.step == 5
    torch.testing.assert_close(model.weight, twin.weight, rtol=2e-3, atol=1e-6)  # entries have 11 bits


def test_a_captured_step_is_refused():
    model = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mb.attach(optimizer, model, {"*": mb.l0_project(4)})
    x = torch.randn(2, 4, device="cuda")
    model(x).sum().backward()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.add_(1.0)  # torch warns of a graph with nothing in it
        with pytest.raises(RuleError, match="CUDA graph"):
            optimizer.step()


def test_training_on_the_gpu_learns_resumes_and_names_a_diverged_layer(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    pixels = rng.integers(0, 99, (400, 1, 8, 8)) + 120 * labels[:, None, None, None]
    split = ArraySplit(pixels.astype(np.uint8), labels)

    def run(lr=0.05, steps=60, folder=None):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2))
        result = train(
            net, split, Recipe("sgd", steps, 20, lambda step: lr),
            {"*": mb.chain(mb.l0_project(0.3, every=5), mb.palette(8, every=7, begin=0.4))},
            preprocess=Preprocess(scale=1 / 255), held_out=split,
            settings=Settings(device="cuda", run_dir=folder, checkpoint_seconds=0),
        )  # fmt: skip
        return net, result

    net, result = run(folder=tmp_path)
    assert result.score.accuracy > 95
    again, resumed = run(folder=tmp_path)
    assert resumed.resumed
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))
    with pytest.raises(TrainingError, match="diverged"):
        run(lr=1e30)


def test_a_weight_is_projected_again_and_again_whatever_it_holds_by_then() -> None:
    """With other values, other counts, and after a failure."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.empty(300_000, device="cuda")
    for count in (1000, 1000, 250_000, 1, 300_000, 77, 1000):
        values = torch.randn(len(weight), generator=generator)
        weight.copy_(values)
        project_(weight, count)
        project_torch_(values, count)
        assert torch.equal(weight.cpu(), values)
        weight[5] = torch.nan
        with pytest.raises(NonFiniteError):
            project_(weight, count)
        assert weight[5].isnan()
        weight.fill_(1.0)  # all tied
        project_(weight, count)
        assert torch.equal(weight.cpu() != 0, torch.arange(len(weight)) < count)


@pytest.mark.parametrize("how", ["mirror,shift=2,cutout=3", "shift=1,turn=10,zoom=0.1"])
def test_recorded_steps_augment_as_those_of_a_cpu_do(how, tmp_path):
    """The same numbers are drawn on the host; resumed, the same images come again."""
    random = np.random.default_rng(0)
    split = ArraySplit(random.integers(0, 256, (64, 3, 12, 12), np.uint8), random.integers(0, 4, 64))
    recipe = Recipe("sgd", 400, 16, lambda step: 0.01)
    augment = mb.data.Augment.parse(how, split.shape)

    def weights(device, run_dir=None, show=None):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 4))
        settings = Settings(device=device, run_dir=run_dir, checkpoint_seconds=0, evaluate_every=50)
        preprocess = Preprocess(scale=1 / 255)
        train(model, split, recipe, preprocess=preprocess, settings=settings, augment=augment, show=show)
        return torch.cat([weight.detach().cpu().flatten() for weight in model.parameters()])

    def stop(progress):
        if progress.step == 300:  # behind the first block of numbers
            raise KeyboardInterrupt

    on_gpu = weights("cuda")
    torch.testing.assert_close(on_gpu, weights("cpu"), rtol=2e-2, atol=2e-3)
    with pytest.raises(KeyboardInterrupt):
        weights("cuda", tmp_path, stop)
    torch.testing.assert_close(weights("cuda", tmp_path), on_gpu, rtol=1e-4, atol=1e-5)
