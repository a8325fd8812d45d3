"""The Lightning callback: the same weights as attach() by hand, in checkpoints, resumed, accumulated, logged."""

import importlib
import logging
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("lightning.pytorch")
pytest.importorskip("tensorboard")
from event_files import curves
from lightning import pytorch as lightning
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

import membound as mb
from membound.errors import RuleError
from membound.train.lightning import MemoryBound

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own, about loaders and loggers
SIZE, KEPT = 20 * 30, 60
BATCHES, EPOCHS, ACCUMULATE = 7, 4, 2
STEPS = EPOCHS * 4  # of 7 batches, two by two, the last alone


@pytest.fixture(scope="module", autouse=True)
def quiet():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 3))
        self.seen: list[int] = []

    def training_step(self, batch):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch):
        self.seen.append(int(self.net[0].weight.count_nonzero()))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def loader() -> DataLoader:
    chance = torch.Generator().manual_seed(1)
    x = torch.randn(BATCHES * 8, 20, generator=chance)
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8)


def rules():
    return {"net.0": mb.l0_project(mb.ramp(1.0, KEPT / SIZE, 0.0, 0.8), every=3), "net.2": mb.l1_shrink(1e-3)}


def trainer(package=lightning, callbacks=(), **options):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    options = {
        "max_epochs": EPOCHS,
        "accumulate_grad_batches": ACCUMULATE,
        "enable_checkpointing": False,
    } | options
    return package.Trainer(accelerator="cpu", devices=1, callbacks=list(callbacks), **quiet | options)


def fit(module=None, callback=None, **options):
    module = Net() if module is None else module
    callback = MemoryBound(rules()) if callback is None else callback
    more, path = options.pop("more", ()), options.pop("ckpt_path", None)
    trainer(callbacks=[*more, callback], **options).fit(module, loader(), loader(), ckpt_path=path)
    return module, callback


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.fixture(scope="module")
def whole():
    return fit()


def test_it_trains_as_attach_by_hand_does(whole):
    module = Net()
    optimizer = module.configure_optimizers()
    reg = mb.attach(optimizer, module, rules(), total_steps=STEPS)
    for _ in range(EPOCHS):
        for number, batch in enumerate(loader(), 1):
            (module.training_step(batch) / ACCUMULATE).backward()
            if number % ACCUMULATE == 0 or number == BATCHES:
                optimizer.step()
                optimizer.zero_grad()
    assert reg.step == STEPS
    reg.finish()
    assert same(module, whole[0])
    assert int(module.net[0].weight.count_nonzero()) == KEPT


def test_the_handle_is_finished_and_let_go(whole):
    module, callback = whole
    assert callback.reg.finished
    assert callback.reg.step == STEPS
    assert callback.reg.report().layers[0].nonzeros == KEPT
    mb.attach(module.configure_optimizers(), module, rules(), total_steps=5).detach()


def test_validation_sees_the_network_at_its_bound(whole):
    module, _ = whole
    kept = mb.ramp(1.0, KEPT / SIZE, 0.0, 0.8)
    sanity, epochs = module.seen[:2], module.seen[2:]
    assert sanity == [SIZE, SIZE]
    wanted = [round(kept(step / STEPS) * SIZE) for step in (4, 8, 12, 16) for _ in range(BATCHES)]
    assert epochs == pytest.approx(wanted, abs=1)


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_run_that_goes_on_ends_with_the_same_weights(whole, tmp_path, epoch):
    saver = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)
    first, _ = fit(more=[saver], enable_checkpointing=True)
    assert same(first, whole[0])
    path = tmp_path / f"epoch={epoch}.ckpt"
    assert torch.load(path)["callbacks"]["MemoryBound"]["step"] == 4 * (epoch + 1)
    again, callback = fit(ckpt_path=path)
    assert callback.reg.step == STEPS
    assert same(again, whole[0])


def test_the_last_checkpoint_is_within_its_bound(whole, tmp_path):
    fit(more=[ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)], enable_checkpointing=True)
    nonzeros = [
        int(torch.load(tmp_path / f"epoch={epoch}.ckpt")["state_dict"]["net.0.weight"].count_nonzero())
        for epoch in range(EPOCHS)
    ]
    assert nonzeros[-1] == KEPT
    assert nonzeros[0] == SIZE, "a checkpoint on the way has the weights of training"
    done, _ = fit(ckpt_path=tmp_path / f"epoch={EPOCHS - 1}.ckpt")
    assert same(done, whole[0])


def test_a_bound_without_schedule_goes_on_beyond_its_end(tmp_path):
    constant = {"net.0": mb.l0_project(KEPT, every=3)}
    first = trainer(callbacks=[MemoryBound(constant)], max_epochs=2)
    first.fit(Net(), loader())
    first.save_checkpoint(tmp_path / "two.ckpt")
    module, callback = fit(callback=MemoryBound(constant), ckpt_path=tmp_path / "two.ckpt")
    assert callback.reg.step == STEPS
    assert int(module.net[0].weight.count_nonzero()) == KEPT


def test_it_finishes_where_training_is_stopped_early():
    class Stop(lightning.Callback):
        def on_train_epoch_end(self, trainer, module):
            trainer.should_stop = True

    module, callback = fit(more=[Stop()])
    assert callback.reg.step == 4
    assert callback.reg.finished
    assert int(module.net[0].weight.count_nonzero()) == KEPT


def test_an_exception_in_validation_gives_the_weights_back_and_lets_go():
    class Broken(Net):
        def validation_step(self, batch):
            super().validation_step(batch)
            if len(self.seen) > 3:
                raise ZeroDivisionError

    module = Broken()
    with pytest.raises(ZeroDivisionError):
        fit(module)
    assert module.seen[-1] < SIZE
    assert int(module.net[0].weight.count_nonzero()) == SIZE
    mb.attach(module.configure_optimizers(), module, rules(), total_steps=5).detach()


def test_it_logs_nonzeros_and_bytes_to_every_logger(tmp_path):
    _, callback = fit(logger=TensorBoardLogger(tmp_path, "", ""), log_every_n_steps=3)
    found = curves(tmp_path)
    report = callback.reg.report()
    for tag, value in (
        ("nonzeros", report.nonzeros),
        ("bytes", report.bytes),
        ("nonzeros/net.0.weight", KEPT),
    ):
        assert list(found[tag]) == [3, 6, 9, 12, 15, STEPS]
        assert found[tag][STEPS] == value
    assert found["bytes/net.2.weight"][3] == 30 * 3 * 4


def test_the_older_name_of_lightning(whole):
    older = pytest.importorskip("pytorch_lightning")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Older(older.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net().net

        def training_step(self, batch):
            return Net.training_step(self, batch)

        def configure_optimizers(self):
            return Net.configure_optimizers(self)

    module = Older()
    trainer(older, [MemoryBound(rules())]).fit(module, loader())
    assert same(module, whole[0])


# What is refused


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield torch.randn(20), torch.tensor(1)


def test_what_is_refused_before_training():
    class Two(Net):
        def configure_optimizers(self):
            return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.net[0], self.net[2])]

    manual = Net()
    manual.automatic_optimization = False
    with pytest.raises(RuleError, match=r"set to manual optimization and has 1: in its configure_optimizers"):
        fit(manual, accumulate_grad_batches=1)
    two = Two()
    two.automatic_optimization = False  # or else Lightning itself refuses
    with pytest.raises(RuleError, match=r"optimization and has 2: .* membound\.attach\(optimizer"):
        fit(two, accumulate_grad_batches=1)
    with pytest.raises(RuleError, match="rules map layer names"):
        MemoryBound({})
    before = Net()
    with pytest.raises(RuleError, match="conv9"):
        fit(before, MemoryBound({"conv9": mb.l0_project(5)}))
    assert same(before, Net())


def test_a_schedule_needs_an_end(tmp_path):
    endless = DataLoader(Endless(), batch_size=8)
    with pytest.raises(RuleError, match="give it max_steps, or MemoryBound total_steps"):
        trainer(callbacks=[MemoryBound(rules())], max_epochs=-1).fit(Net(), endless)
    told = MemoryBound(rules(), total_steps=6)
    trainer(callbacks=[told], max_epochs=-1, max_steps=8).fit(Net(), endless)
    assert told.reg.finished
    assert told.reg.total_steps == 6


def test_another_end_is_refused_where_the_schedule_depends_on_it(tmp_path):
    first = trainer(callbacks=[MemoryBound(rules())], max_epochs=2)
    first.fit(Net(), loader())
    first.save_checkpoint(tmp_path / "two.ckpt")
    with pytest.raises(RuleError, match="total_steps=8, here it is 16"):
        fit(ckpt_path=tmp_path / "two.ckpt")


def test_without_lightning_it_says_what_to_install(monkeypatch):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "membound.train.lightning", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'lightning>=2\.5'"):
        importlib.import_module("membound.train.lightning")


TWO_PROCESSES = """
import os, sys, torch
from lightning import pytorch as lightning
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
import membound as mb
from membound.train.lightning import MemoryBound

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 3)).double()
    def training_step(self, batch):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

processes, out = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
x = torch.randn(64, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
data = TensorDataset(x, x[:, :3].argmax(1))
share = DistributedSampler(data, processes, int(os.environ.get("RANK", 0)), shuffle=False)
data = DataLoader(data, batch_size=16 // processes, sampler=share)
bound = MemoryBound({"net.0": mb.l0_project(mb.ramp(1.0, 0.1), every=2)})
trainer = lightning.Trainer(
    accelerator="cpu", devices=processes, strategy="ddp" if processes > 1 else "auto", use_distributed_sampler=False,
    max_epochs=6, callbacks=[bound], logger=False, enable_checkpointing=False, enable_progress_bar=False,
)
net = Net()
trainer.fit(net, data)
torch.save(net.state_dict(), f"{out}-{processes}-{trainer.global_rank}.pt")
"""


@pytest.mark.full
def test_two_processes_are_as_one(tmp_path):
    """Data parallel: both end with the same weights, and with those of one process that sees the same batches.

    Every other image is dealt to each, so that a batch of both has those of a batch of one.
    """
    script = tmp_path / "train.py"
    script.write_text(TWO_PROCESSES)
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for processes, launch in ((1, []), (2, run)):
        command = [sys.executable, *launch, str(script), str(processes), str(tmp_path / "net")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    one, first, second = (torch.load(tmp_path / f"net-{name}.pt") for name in ("1-0", "2-0", "2-1"))
    assert int(first["net.0.weight"].count_nonzero()) == KEPT
    for name, value in one.items():
        assert torch.equal(first[name], second[name])
        assert torch.allclose(first[name], value, rtol=0, atol=1e-10)
