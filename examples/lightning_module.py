"""A LightningModule on MNIST under a memory bound: the dense script and two lines, marked below."""

import argparse
import logging
import warnings

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import membound as mb
from membound.train.lightning import MemoryBound  # membound


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 10))

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def digits(split: mb.data.ArraySplit) -> TensorDataset:
    return TensorDataset(torch.from_numpy(split.images).float() / 255, torch.from_numpy(split.labels))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=2000)
    steps = arguments.parse_args().steps

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*does not have many workers.*")  # the images are in memory
    torch.manual_seed(0)
    data = mb.data.load("mnist")
    loader = DataLoader(digits(data.train), batch_size=128, shuffle=True, drop_last=True)
    model = Classifier()
    trainer = lightning.Trainer(
        max_steps=steps,
        callbacks=[MemoryBound({"*": mb.l0_project(mb.ramp(1.0, 0.05), 10)})],  # membound
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)

    images, labels = digits(data.test).tensors
    with torch.no_grad():
        accuracy = (model.net(images).argmax(1) == labels).float().mean().item()
    nonzeros = sum(int(weight.count_nonzero()) for weight in model.parameters())
    print(f"accuracy {accuracy:.2%}, nonzeros {nonzeros}")


if __name__ == "__main__":
    main()
