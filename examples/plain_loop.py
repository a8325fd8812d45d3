"""A plain PyTorch loop on MNIST under a memory bound: the dense script and two lines, marked below."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import membound as mb


def digits(split: mb.data.Split) -> TensorDataset:
    images = torch.from_numpy(split.read(range(len(split))))
    return TensorDataset(images.float() / 255, torch.from_numpy(split.labels))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=2000)
    steps = arguments.parse_args().steps

    torch.manual_seed(0)
    data = mb.data.load("mnist")
    loader = DataLoader(digits(data.train), batch_size=128, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    reg = mb.attach(optimizer, model, {"*": mb.l0_project(mb.ramp(1.0, 0.05), every=10)}, steps)  # membound

    step = 0
    while step < steps:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            optimizer.step()
            step += 1
            if step == steps:
                break
    reg.finish()  # membound

    images, labels = digits(data.test).tensors
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    nonzeros = sum(int(weight.count_nonzero()) for weight in model.parameters())
    print(f"accuracy {accuracy:.2%}, nonzeros {nonzeros}")


if __name__ == "__main__":
    main()
