"""The loop for one network: what it learns, what it evaluates, how it stops and goes on."""

import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from kills import COMMAND, ROOT, kill_and_compare, same_weights, saved_step
from profiles import full
from safetensors.torch import load_file
from torch import nn

import membound as mb
from membound import data
from membound.cli import main
from membound.data import ArraySplit, Preprocess, subsample
from membound.errors import DataError, MemboundError, TrainingError
from membound.train import recipe as recipes
from membound.train.batches import Feeder
from membound.train.checkpoint import locked, read_tensors, write_tensors
from membound.train.evaluation import check_fits
from membound.train.loop import Interrupted, train
from membound.train.parallel import choose_device
from membound.train.recipe import Recipe
from membound.train.run import Settings


def small_split(images: int = 300, seed: int = 0) -> ArraySplit:
    """Images of two kinds that a small network can tell apart."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, images)
    pixels = rng.integers(0, 80, (images, 1, 8, 8))
    for label in range(3):
        pixels[labels == label, :, label * 2 : label * 2 + 2] += 120
    return ArraySplit(pixels.astype(np.uint8), labels)


class Small(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.fc1 = nn.Linear(4 * 16, 16)
        self.drop = nn.Dropout(dropout)
        self.fc2 = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        return self.fc2(self.drop(torch.relu(self.fc1(x.flatten(1)))))


def small_net(seed: int = 0, dropout: float = 0.0) -> Small:
    torch.manual_seed(seed)
    return Small(dropout)


def constant_recipe(steps: int = 60, lr: float = 0.05, batch_size: int = 20) -> Recipe:
    return Recipe("sgd", steps, batch_size, lambda step: lr, weight_decay=1e-3)


PREPROCESS = Preprocess(scale=1 / 255, mean=np.array([60.0]))


def weights_of(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_a_sparse_network_learns_and_ends_at_its_bound():
    net = small_net()
    rules = {"fc*": mb.l0_project(mb.ramp(1.0, 0.2), every=5)}
    result = train(
        net,
        small_split(),
        constant_recipe(200),
        rules,
        preprocess=PREPROCESS,
        held_out=small_split(200, seed=1),
    )
    assert result.score.accuracy > 95
    assert int(net.fc1.weight.count_nonzero()) == round(0.2 * net.fc1.weight.numel())
    assert [entry["iteration"] for entry in result.history] == list(range(20, 201, 20))
    assert result.history[-1]["loss"] < result.history[0]["loss"]


def test_it_does_what_a_hand_written_loop_does():
    """Same order, same preprocessing, same SGD: against plain torch code."""
    from membound.train.batches import index_stream

    split, net, reference = small_split(), small_net(), small_net()
    train(net, split, constant_recipe(30), preprocess=PREPROCESS, settings=Settings(seed=3))
    weights, biases = [], []
    for name, value in reference.named_parameters():
        (biases if name.endswith("bias") else weights).append(value)
    optimizer = torch.optim.SGD(
        [{"params": weights, "weight_decay": 1e-3}, {"params": biases}], lr=0.05, momentum=0.9
    )
    stream = index_stream(len(split), 20, seed=3)
    for _ in range(30):
        chosen = next(stream)
        x = (torch.from_numpy(split.images[chosen]).float() - 60.0) * (1 / 255)
        optimizer.zero_grad()
        nn.functional.cross_entropy(reference(x), torch.from_numpy(split.labels[chosen])).backward()
        optimizer.step()
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], value, rtol=1e-4, atol=1e-6)


def test_evaluation_is_of_the_projected_network():
    """Between projections the weights are dense; what is evaluated has at most the bound's nonzeros."""
    seen = []
    net = small_net()
    original = net.forward

    def spy(x: torch.Tensor) -> torch.Tensor:
        if not net.training:
            seen.append(int(net.fc1.weight.count_nonzero()))
        return original(x)

    net.forward = spy
    train(
        net, small_split(), constant_recipe(40), {"fc1": mb.l0_project(50, every=1000)},
        preprocess=PREPROCESS, held_out=small_split(50, seed=1), settings=Settings(evaluate_every=10),
    )  # fmt: skip
    assert set(seen[3:]) == {50}  # before: checks of shapes, of either split, and the loss at the start


@pytest.mark.parametrize("optimizer", [full("caffe"), full("sgd"), "adamw"])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, optimizer):
    recipe = recipes.Recipe(optimizer, 90, 20, recipes.WarmCosine(0.01, 10, 90), weight_decay=1e-3)
    few = mb.palette(6, every=11, begin=0.4)  # two of the three stops are behind its beginning
    rules = {"fc*": mb.chain(mb.l1_shrink(1e-3), mb.l0_project(mb.ramp(1.0, 0.2), every=7), few)}

    def run(folder, stop_at=None):
        net = small_net(dropout=0.3)

        def show(progress):
            if progress.step == stop_at:
                os.kill(os.getpid(), signal.SIGINT)

        settings = Settings(seed=1, run_dir=folder, evaluate_every=15, checkpoint_seconds=1e9)
        result = train(
            net, small_split(), recipe, rules,
            preprocess=PREPROCESS, held_out=small_split(60, seed=1), settings=settings, show=show,
        )  # fmt: skip
        return net, result

    whole, uninterrupted = run(tmp_path / "whole")
    for stop_at in (15, 45, 75):
        with pytest.raises(Interrupted):
            run(tmp_path / "parts", stop_at)
    resumed, result = run(tmp_path / "parts")
    assert result.resumed == 76  # the step that was under way is finished
    assert_same_bits(weights_of(whole), weights_of(resumed))
    assert [layer.distinct for layer in result.report.layers] == [6, 6]
    drop_time = [{k: v for k, v in entry.items() if k != "seconds"} for entry in result.history]
    assert drop_time == [
        {k: v for k, v in entry.items() if k != "seconds"} for entry in uninterrupted.history
    ]
    again, result = run(tmp_path / "parts")  # a finished run is loaded, not trained again
    assert_same_bits(weights_of(whole), weights_of(again))
    assert result.score == uninterrupted.score


def test_a_stopped_run_goes_on_with_what_updates_keep(tmp_path):
    def before(weight, moment):
        moment.state.setdefault("sum", torch.zeros_like(weight)).add_(weight.grad)

    def rank(weight, state):
        return state["sum"].abs()

    rule = mb.chain(mb.Update(("own",), (), before=before), mb.l0_project(0.2, every=7, rank=rank))

    def run(folder, stop_at=None):
        def show(progress):
            if progress.step == stop_at:
                os.kill(os.getpid(), signal.SIGINT)

        net, settings = small_net(), Settings(run_dir=folder, evaluate_every=5, checkpoint_seconds=1e9)
        train(
            net, small_split(), constant_recipe(30), {"fc*": rule},
            preprocess=PREPROCESS, held_out=small_split(60, seed=1), settings=settings, show=show,
        )  # fmt: skip
        return net

    whole = run(tmp_path / "whole")
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", 15)
    assert_same_bits(weights_of(whole), weights_of(run(tmp_path / "parts")))


@pytest.fixture
def few_digits(tmp_path) -> str:
    """A data set that is evaluated in a moment: 600 of MNIST's training and 100 of its test images."""
    mnist = data.load("mnist")
    train, test = subsample(mnist.train, 600), subsample(mnist.test, 100)
    file = tmp_path / "digits.npz"
    np.savez(
        file, x_train=train.images[:, 0], y_train=train.labels, x_test=test.images[:, 0], y_test=test.labels
    )
    return str(file)


def test_a_sigkill_changes_nothing(tmp_path, few_digits):
    """Killed as soon as there is a checkpoint; it goes on in this process, which starts faster."""
    command = [*COMMAND, "--data", few_digits, "--steps", "60"]
    killed, peace = (["--run-dir", str(tmp_path / name)] for name in ("killed", "peace"))
    while saved_step(tmp_path / "killed") in (0, 60):  # not begun, or done before the kill
        shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        process = subprocess.Popen([*command, *killed], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(tmp_path / "killed" / "checkpoint.safetensors")
        process.kill()
        process.wait()
    for name, where in (("killed", killed), ("peace", peace)):
        with pytest.raises(SystemExit) as stopped:
            main([*command[3:], *where, "--out", str(tmp_path / f"{name}.safetensors")])
        assert stopped.value.code == 0
    assert same_weights(tmp_path)


@pytest.mark.full
def test_sigkill_at_random_moments_changes_nothing(tmp_path):
    kill_and_compare(tmp_path, kills=2, seed=0, steps=150)


@pytest.mark.full
def test_sigkill_at_twenty_random_moments_changes_nothing(tmp_path):
    kill_and_compare(tmp_path, kills=20, seed=1, steps=1500)


@pytest.mark.full
def test_ctrl_c_leaves_a_resumable_run(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "--steps", "100000", "--run-dir", str(tmp_path / "run")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    wait_for(tmp_path / "run" / "checkpoint.safetensors")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.strip().splitlines() == ["membound: interrupted: run the same command again to go on"]


def wait_for(path: Path, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not appear"
        time.sleep(0.1)


def test_a_run_directory_that_is_in_use_is_refused(tmp_path, few_digits, capsys):
    with locked(tmp_path / "run"), pytest.raises(SystemExit) as stopped:  # as another process holds it
        main([*COMMAND[3:], "--data", few_digits, "--run-dir", str(tmp_path / "run")])
    assert stopped.value.code == 1
    assert "another process is training" in capsys.readouterr().err


@pytest.mark.full
def test_a_second_process_in_the_same_run_directory_is_refused(tmp_path, capsys):
    first = subprocess.Popen(
        [*COMMAND, "--steps", "100000", "--run-dir", str(tmp_path / "run")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    try:
        wait_for(tmp_path / "run" / "checkpoint.safetensors")
        with pytest.raises(SystemExit) as stopped:
            main([*COMMAND[3:], "--run-dir", str(tmp_path / "run")])
        assert stopped.value.code == 1
        assert "another process is training" in capsys.readouterr().err
    finally:
        first.kill()
        first.wait()


def one_pixel_other() -> ArraySplit:
    split = small_split()
    split.images[0, 0, 0, 0] ^= 1
    return split


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"recipe": constant_recipe(20)}, r"another recipe \(steps, lr\)"),
        ({"settings": Settings(seed=1)}, "another seed"),
        (
            {"rules": {"fc1": mb.l0_project(0.4)}},
            r"other rules \('fc1' was under .*, and is under l0_project\(0\.4, 100\) now\)",
        ),
        ({"model": small_net(seed=1)}, "another network"),  # it would start from other weights
        ({"model": small_net(dropout=0.5)}, "another network"),
        ({"split": small_split(seed=5)}, "other data"),
        ({"split": one_pixel_other()}, "other data"),
        ({"held_out": small_split(50, seed=6)}, "other data"),
        ({"preprocess": Preprocess(scale=1 / 256, mean=np.array([60.0]))}, r"other preprocessing \(scale\)"),
        ({"preprocess": Preprocess(scale=1 / 255)}, r"other preprocessing \(mean\)"),
        (
            {"preprocess": Preprocess(scale=1 / 255, mean=np.zeros((1, 8, 8)))},
            r"other preprocessing \(mean\)",
        ),
    ],
)
def test_another_run_in_the_same_run_directory_is_refused(tmp_path, change, words):
    def run(**changes):
        how = {
            "model": small_net(), "split": small_split(), "recipe": constant_recipe(10),
            "rules": {"fc1": mb.l0_project(0.5)}, "preprocess": PREPROCESS, "held_out": small_split(50, seed=1),
            "settings": Settings(),
        } | changes  # fmt: skip
        train(**how | {"settings": replace(how["settings"], run_dir=tmp_path)})

    run()
    run()  # the same one is loaded
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with pytest.raises(TrainingError, match=f"{words}: choose another run directory, or delete it"):
        run(**change)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before


def test_another_mean_image_is_other_preprocessing(tmp_path):
    def run(mean):
        preprocess = Preprocess(mean=np.full((1, 8, 8), mean, np.float32))
        settings = Settings(run_dir=tmp_path)
        train(small_net(), small_split(), constant_recipe(5), preprocess=preprocess, settings=settings)

    run(60)
    with pytest.raises(TrainingError, match="other preprocessing"):
        run(61)


class PrintsItsAddress(Small):
    def extra_repr(self) -> str:
        return f"activation={object()}"


def test_an_address_in_how_a_network_prints_itself_does_not_make_it_another(tmp_path):
    for _ in range(2):
        torch.manual_seed(0)
        settings = Settings(run_dir=tmp_path)
        result = train(
            PrintsItsAddress(), small_split(), constant_recipe(5), preprocess=PREPROCESS, settings=settings
        )
    assert result.resumed == 5


def test_a_damaged_checkpoint_is_said_and_kept(tmp_path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(TrainingError, match="not a readable safetensors file"):
        train(
            small_net(), small_split(), constant_recipe(10),
            preprocess=PREPROCESS, settings=Settings(run_dir=tmp_path),
        )  # fmt: skip
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == b"not a checkpoint"


def without_tensor(tensors, about):
    del tensors["model/fc1.weight"]


def of_another_shape(tensors, about):
    tensors["optimizer/0.momentum_buffer"] = torch.ones(3)
    tensors["model/fc1.weight"] = torch.ones(3)


def without_step(tensors, about):
    del about["iteration"]


def with_history_of_another_kind(tensors, about):
    about["history"] = 3


def of_somebody_else(tensors, about):
    about.clear()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (without_tensor, r"is damaged \(RuntimeError\): delete it to start over"),
        (of_another_shape, "is damaged"),
        (without_step, r"is damaged \(KeyError\)"),
        (with_history_of_another_kind, r"is damaged \(TypeError\)"),
        (of_somebody_else, "is not a membound checkpoint: choose another run directory, or delete it"),
    ],
)
def test_a_checkpoint_that_lacks_something_is_said_in_one_line(tmp_path, damage, words):
    def run():
        settings = Settings(run_dir=tmp_path)
        train(small_net(), small_split(), constant_recipe(10), preprocess=PREPROCESS, settings=settings)

    run()
    path = tmp_path / "checkpoint.safetensors"
    tensors, metadata = read_tensors(path)
    damage(tensors, metadata["membound"])
    write_tensors(path, tensors, metadata)
    with pytest.raises(TrainingError, match=words) as caught:
        run()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damaged", [None, torch.ones(3), torch.zeros(4)])
def test_a_damaged_palette_in_a_checkpoint_is_said_in_one_line(tmp_path, damaged):
    def run(show=None):
        rules = {"fc1": mb.palette(4, every=3, begin=0.2)}
        settings = Settings(run_dir=tmp_path, evaluate_every=5)
        train(
            small_net(), small_split(), constant_recipe(10), rules,
            preprocess=PREPROCESS, settings=settings, show=show,
        )  # fmt: skip

    with pytest.raises(Interrupted):
        run(lambda progress: os.kill(os.getpid(), signal.SIGINT) if progress.step == 5 else None)
    path = tmp_path / "checkpoint.safetensors"
    tensors, metadata = read_tensors(path)
    assert json.loads(json.dumps(metadata))["membound"]["regularizer"]["palette"] == {
        "fc1.weight": ["floats", "entries"]
    }
    assert tensors["palette/floats/fc1.weight"].unique().numel() > 5
    assert tensors.pop("palette/entries/fc1.weight").shape == (4,)
    if damaged is not None:
        tensors["palette/floats/fc1.weight" if len(damaged) == 3 else "palette/entries/fc1.weight"] = damaged
    write_tensors(path, tensors, metadata)
    with pytest.raises(TrainingError, match=r"is damaged \((KeyError|RuleError)\)") as caught:
        run()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    left_over = tmp_path / ".checkpoint.safetensors.12345.part"
    left_over.write_bytes(b"half")
    (tmp_path / "notes.part").write_bytes(b"the user's own")
    settings = Settings(run_dir=tmp_path)
    train(small_net(), small_split(), constant_recipe(5), preprocess=PREPROCESS, settings=settings)
    assert not left_over.exists()
    assert (tmp_path / "notes.part").exists()


def test_a_full_disk_is_said_with_the_name_of_the_checkpoint(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TrainingError, match=r"checkpoint\.safetensors cannot be written: No space left"):
        train(
            small_net(), small_split(), constant_recipe(5),
            preprocess=PREPROCESS, settings=Settings(run_dir=tmp_path),
        )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_clocks_that_jump_backwards(tmp_path, monkeypatch):
    """The time of day falls with every look at it, and the machine was started again between the parts of a run."""

    def run(folder, stop_at=None):
        def show(progress):
            if progress.step == stop_at:
                os.kill(os.getpid(), signal.SIGINT)

        net = small_net(dropout=0.3)
        settings = Settings(seed=1, run_dir=folder, evaluate_every=15, checkpoint_seconds=0)
        result = train(
            net, small_split(), constant_recipe(),
            preprocess=PREPROCESS, held_out=small_split(60, seed=1), settings=settings, show=show,
        )  # fmt: skip
        return net, result

    whole, _ = run(tmp_path / "whole")
    days, since_start = itertools.count(20_000, -1), time.monotonic
    monkeypatch.setattr(time, "time", lambda: 86_400.0 * next(days))
    monkeypatch.setattr(time, "time_ns", lambda: 86_400 * 10**9 * next(days))
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", stop_at=30)
    os.utime(tmp_path / "parts" / "checkpoint.safetensors", (4e9, 4e9))  # of a day to come
    monkeypatch.setattr(time, "monotonic", lambda: since_start() - 1e6)
    resumed, result = run(tmp_path / "parts")
    assert result.resumed == 31
    assert_same_bits(weights_of(whole), weights_of(resumed))
    seconds = [entry["seconds"] for entry in result.history]
    assert seconds == sorted(seconds)
    assert seconds[0] >= 0
    assert result.seconds < 1000


class FailsAtTheThirdStep(Small):
    steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += self.training
        if self.steps == 3:
            raise RuntimeError("out of memory\nand a long explanation")
        return super().forward(x)


def test_a_step_that_fails_is_named_with_its_number():
    with pytest.raises(TrainingError, match=r"step 3 failed with RuntimeError: out of memory$"):
        train(FailsAtTheThirdStep(), small_split(), constant_recipe(5), preprocess=PREPROCESS)


def test_a_network_without_anything_to_train_is_refused():
    with pytest.raises(TrainingError, match="no parameter that can be trained"):
        train(small_net().requires_grad_(False), small_split(), constant_recipe(5), preprocess=PREPROCESS)


def test_the_check_of_shapes_leaves_every_module_in_its_mode():
    net = small_net()
    net.drop.eval()
    seen = []
    original = net.forward

    def spy(x: torch.Tensor) -> torch.Tensor:
        seen.append((net.training, net.fc1.training))
        return original(x)

    net.forward = spy
    feeder = Feeder(small_split(), PREPROCESS, torch.device("cpu"), torch.float32)
    check_fits(net, feeder)
    assert seen == [(False, False)]
    assert (net.training, net.fc1.training, net.drop.training) == (True, True, False)


def test_a_diverging_run_stops_and_leaves_no_bad_checkpoint(tmp_path):
    with pytest.raises(TrainingError, match="diverged"):
        train(
            small_net(), small_split(), constant_recipe(500, lr=1e6),
            preprocess=PREPROCESS, settings=Settings(run_dir=tmp_path, checkpoint_seconds=0),
        )  # fmt: skip
    checkpoint = tmp_path / "checkpoint.safetensors"
    if checkpoint.exists():
        assert all(
            value.isfinite().all() for value in load_file(checkpoint).values() if value.is_floating_point()
        )


def test_what_does_not_fit_is_said_before_training():
    with pytest.raises(DataError, match="does not take images of shape"):
        train(mb.zoo.lenet(), small_split(), constant_recipe(), preprocess=PREPROCESS)
    with pytest.raises(DataError, match="labels up to 2"):
        train(
            nn.Sequential(nn.Flatten(), nn.Linear(64, 2)),
            small_split(),
            constant_recipe(),
            preprocess=PREPROCESS,
        )
    with pytest.raises(MemboundError, match="precision"):
        Settings(precision="fp8")
    with pytest.raises(MemboundError, match="device"):
        train(
            small_net(),
            small_split(),
            constant_recipe(),
            preprocess=PREPROCESS,
            settings=Settings(device="tpu"),
        )


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # where the processor has no bf16, torch says so
def test_bf16_trains_close_to_float32():
    scores = []
    for precision in ("float32", "bf16"):
        net = small_net()
        result = train(
            net, small_split(), constant_recipe(150), preprocess=PREPROCESS, held_out=small_split(200, seed=1),
            settings=Settings(precision=precision),
        )  # fmt: skip
        assert net.fc1.weight.dtype == torch.float32
        scores.append(result.score.accuracy)
    assert abs(scores[0] - scores[1]) < 5


@pytest.mark.parametrize("name", ["tpu", "cuda:", "cuda:x", "cuda:-1", "CPU", "", "cuda:0\n"])
def test_a_device_that_cannot_be_is_refused(name):
    with pytest.raises(MemboundError, match=r"there is no device .*: choose auto, cpu, cuda or a cuda:N"):
        choose_device(name)


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MemboundError, match="device 'cuda:9': torch sees no CUDA device here"):
        choose_device("cuda:9")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(MemboundError, match="there is no CUDA device 9; torch sees 2, counted from 0"):
        choose_device("cuda:9")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(MemboundError, match="there is no CUDA device 2"):
        choose_device("cuda")


FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
PARALLEL = """
import json, sys
sys.path[:0] = {folders!r}
import torch
torch.set_num_threads(1)
from test_loop import PREPROCESS, constant_recipe, small_net, small_split
import membound as mb
from membound.train.loop import train
from membound.train.run import Settings
net = small_net()
few = mb.palette(8, every=4, begin=0.4)
rules = {{"fc1": mb.chain(mb.l2_decay(1e-3), mb.l0_project(0.3, every=5), few), "fc2": mb.l1_shrink(1e-3)}}
rules["conv1"] = few
result = train(net, small_split(), constant_recipe(30, batch_size=23), rules, preprocess=PREPROCESS,
      held_out=small_split(51, seed=1), settings=Settings(precision="float64", device="cpu"))
from membound.train.parallel import join
if join(torch.device("cpu")).leads:
    torch.save({{"weights": net.state_dict(), "correct": result.score.correct}}, sys.argv[1])
"""


@pytest.mark.full  # a fit under torchrun is in make test: tests/search/test_torchrun_fit.py
@pytest.mark.parametrize("processes", [2, 3])
def test_torchrun_gives_the_weights_of_one_process(tmp_path, processes):
    """The same global batch, 30 steps, float64: 1e-10. The shares of 23 images are uneven."""
    script = tmp_path / "script.py"
    script.write_text(PARALLEL.format(folders=FOLDERS))
    results = []
    for count in (1, processes):
        out = tmp_path / f"{count}.pt"
        command = [sys.executable, str(script), str(out)]
        if count > 1:
            launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
            command = [sys.executable, *launcher, *command[1:]]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr
        results.append(torch.load(out, weights_only=True))
    assert results[0]["correct"] == results[1]["correct"]
    for name, value in results[0]["weights"].items():
        assert (value - results[1]["weights"][name]).abs().max() < 1e-10, name


NORMALISED = """
import sys
sys.path[:0] = {folders!r}
import torch
torch.set_num_threads(1)
from test_loop import PREPROCESS, constant_recipe, small_split
from torch import nn
from membound.train.batches import Feeder
from membound.train.evaluation import evaluate
from membound.train.loop import train
from membound.train.run import Settings
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
judge = small_split(90, seed=1)
result = train(net, small_split(), constant_recipe(12), preprocess=PREPROCESS, held_out=judge,
               settings=Settings(device="cpu"))
alone = evaluate(net, Feeder(judge, PREPROCESS, torch.device("cpu"), torch.float32))
assert (alone.correct, round(alone.loss, 5)) == (result.score.correct, round(result.score.loss, 5))
"""


@pytest.mark.full
def test_processes_evaluate_with_the_statistics_of_the_leader(tmp_path):
    """Each has batch-norm statistics of its own on a CPU; what is reported is of the network that is saved."""
    script = tmp_path / "script.py"
    script.write_text(NORMALISED.format(folders=FOLDERS))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *launcher, str(script)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_the_command_prints_json_and_writes_weights_that_evaluate_alike(tmp_path, few_digits, capsys):
    more = ("--data", few_digits, "--levels", "conv*=8", "--steps", "60")
    where = ("--run-dir", str(tmp_path / "run"), "--out", str(tmp_path / "run.safetensors"))
    with pytest.raises(SystemExit) as stopped:
        main([*COMMAND[3:], *more, *where])
    assert stopped.value.code == 0
    facts = json.loads(capsys.readouterr().out)
    layers = {layer["name"]: layer for layer in facts["layers"]}
    assert layers["fc1.weight"]["nonzeros"] == layers["fc1.weight"]["bound"]
    assert layers["conv2.weight"]["distinct"] == layers["conv2.weight"]["levels"] == 8
    out = tmp_path / "run.safetensors"
    assert len(set(load_file(out)["conv2.weight"].flatten().tolist()) - {0.0}) == 8
    for weights in (out, tmp_path / "run"):  # the weights, and the run directory's checkpoint
        with pytest.raises(SystemExit) as stopped:
            main(["evaluate", "lenet", "--init", str(weights), "--data", few_digits, "--json"])
        again = json.loads(capsys.readouterr().out)
        assert stopped.value.code == 0
        assert again["errors"] == facts["errors"]
        assert again["nonzeros"] == facts["nonzeros"]
