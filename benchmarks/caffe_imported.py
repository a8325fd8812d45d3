"""Weights that others trained with Caffe, imported and evaluated: do they give the accuracies they are known for?

    python benchmarks/caffe_imported.py CAFFEMODELS --out results/caffe-imported.json

CAFFEMODELS is a folder with the files named below; MEMBOUND_DATA must have CIFAR-10.
"""

import argparse
from pathlib import Path

from _record import record

import membound as mb
from membound.train.job import evaluate_weights

# name: network, data, errors of 10,000 known from an independent implementation, nonzeros
KNOWN = {
    "lenet_a": ("lenet", "mnist", 86, 431_080),
    "lenet_b": ("lenet", "mnist", 95, 431_080),
    "lenet_dns_original": ("lenet", "mnist", 91, 431_080),
    "lenet_dns_sparse": ("lenet", "mnist", 91, 3_993),
    "cifar10_quick_a": ("cifar10_quick", "cifar10", 2509, 145_578),
    "cifar10_quick_b": ("cifar10_quick", "cifar10", 2453, 145_578),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("caffemodels", type=Path)
    parser.add_argument("--out", default="results/caffe-imported.json")
    options = parser.parse_args()
    found = {}
    for name, (network, data, errors, nonzeros) in KNOWN.items():
        weights = options.caffemodels / f"{name}.caffemodel"
        facts = evaluate_weights(mb.zoo.build(network), weights, mb.data.load(data))
        met = abs(facts["errors"] - errors) <= 2 and facts["nonzeros"] == nonzeros
        found[name] = facts | {"known_errors": errors, "known_nonzeros": nonzeros, "met": met}
        print(f"{name:20} {facts['accuracy']:.2f} %  {facts['errors']} errors  {facts['nonzeros']} nonzeros")
    record(options.out, {"networks": found})


if __name__ == "__main__":
    main()
