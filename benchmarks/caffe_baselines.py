"""LeNet and CIFAR-10-quick trained with Caffe's own solvers, over several seeds: do they reach what Caffe reaches?

    python benchmarks/caffe_baselines.py --seeds 5 --out results/caffe-baselines.json

Caffe documents 98.97 % for LeNet and 75.33 % for quick; the paper's quick baseline is 75.85 %. The test set is looked
at once, after the last step.
"""

import statistics

import torch
from _record import arguments, record

import membound as mb
from membound.train.loop import train
from membound.train.preprocessing import preprocess_for
from membound.train.recipe import caffe
from membound.train.run import Settings

TARGETS = {"lenet": ("mnist", 98.97), "cifar10_quick": ("cifar10", 75.85)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", default="results/caffe-baselines.json")
    options = parser.parse_args()
    networks = {}
    for name, (data, target) in TARGETS.items():
        runs = [run(name, data, seed, options.device) for seed in range(options.seeds)]
        accuracies = [entry["accuracy"] for entry in runs]
        mean, spread = statistics.mean(accuracies), statistics.stdev(accuracies)
        print(f"{name}: {mean:.3f} +- {spread:.3f} % (target {target} %)", flush=True)
        networks[name] = {"target": target, "mean": mean, "std": spread, "met": mean >= target, "runs": runs}
    record(options.out, {"networks": networks})


def run(name: str, data: str, seed: int, device: str) -> dict[str, float]:
    torch.manual_seed(seed)
    net = mb.zoo.build(name)
    dataset = mb.data.load(data)
    recipe = caffe(net.caffe_solver)
    result = train(
        net, dataset.train, recipe,
        preprocess=preprocess_for(net, dataset.train), held_out=dataset.test,
        settings=Settings(seed=seed, device=device, evaluate_every=recipe.steps),
    )  # fmt: skip
    print(f"  {name} seed {seed}: {result.score.accuracy:.2f} % in {result.seconds:.1f} s", flush=True)
    entry = {"seed": seed, "accuracy": result.score.accuracy, "errors": result.score.errors}
    return entry | {"seconds": result.seconds, "iterations": recipe.steps}


if __name__ == "__main__":
    main()
