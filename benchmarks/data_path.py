"""Images a second of the data path, from a folder and from its packed cache, beside what a training step takes.

python benchmarks/data_path.py imagenette160 --net alexnet --size 256 --out results/data-path.json
"""

import tempfile
import time
from itertools import islice
from pathlib import Path

import torch
from _record import arguments, record, settings
from _timing import wait

import membound as mb
from membound.train.batches import Feeder, index_stream
from membound.train.parallel import choose_device
from membound.train.preprocessing import preprocess_for
from membound.train.recipe import modern
from membound.train.run import Run, Settings


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data")
    parser.add_argument("--net", default="alexnet")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    device = choose_device(options.device)
    with tempfile.TemporaryDirectory() as cache:
        begun = time.monotonic()
        packed = mb.data.load(options.data, size=options.size, cache=cache)
        packing = time.monotonic() - begun
        images = len(packed.train) + len(packed.test)
        model = mb.zoo.build_for(options.net, len(packed.classes))
        preprocess = preprocess_for(model, packed.train, "channel")
        plain = mb.data.load(options.data, size=options.size)
        rows = {
            name: feed(data.train, preprocess, device, options)
            for name, data in (("folder", plain), ("packed", packed))
        }
        rows["training step alone"] = train(model, packed.train, preprocess, device, options)
    summary = {
        "images_a_second": rows,
        "packing_images_a_second": images / packing,
        "packed_over_step": rows["packed"] / rows["training step alone"],
    }
    print(summary)
    record(
        options.out,
        {**settings(options), "data": Path(options.data).name, "on": device.type, "summary": summary},
    )


def feed(split, preprocess, device, options) -> float:
    """Augmented batches on the device, as training takes them."""
    feeder = Feeder(split, preprocess, device, torch.float32)
    feeder.images = None  # as if there were too many to live on the device
    stream = feeder.augmented(index_stream(len(split), options.batch_size, 0), 0)
    for _ in islice(stream, 3):
        wait(device)
    begun = time.monotonic()
    for _ in islice(stream, options.batches):
        wait(device)
    seconds = time.monotonic() - begun
    stream.close()
    return options.batches * options.batch_size / seconds


def train(model, split, preprocess, device, options) -> float:
    """Steps on the same batch again and again: what the device could take."""
    recipe = modern("sgd", options.steps + 5, options.batch_size, lr=1e-4)
    settings = Settings(device=device.type, precision=options.precision, evaluate_every=10**9)
    run = Run(model, split, recipe, preprocess, settings, device)
    feeder = Feeder(split, preprocess, device, torch.float32)
    x, y = next(feeder.augmented(index_stream(len(split), options.batch_size, 0), 0))
    model.train()
    for number in range(options.steps + 5):
        if number == 5:
            wait(device)
            begun = time.monotonic()
        run.optimizer.zero_grad(set_to_none=True)
        run.backward(model, x, y)
        run.optimizer.step()
    wait(device)
    return options.steps * options.batch_size / (time.monotonic() - begun)


if __name__ == "__main__":
    main()
