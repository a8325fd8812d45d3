"""Networks that Caffe trained, with their solvers, their weights, and a way to name one's own."""

from membound.zoo.alexnet import alexnet
from membound.zoo.caffe import load_caffemodel, read_binaryproto, read_caffemodel
from membound.zoo.cifar10_quick import cifar10_quick
from membound.zoo.efficientnet_lite0 import efficientnet_lite0
from membound.zoo.lenet import lenet
from membound.zoo.networks import build, build_for, names
from membound.zoo.solver import Solver

__all__ = [
    "Solver",
    "alexnet",
    "build",
    "build_for",
    "cifar10_quick",
    "efficientnet_lite0",
    "lenet",
    "load_caffemodel",
    "names",
    "read_binaryproto",
    "read_caffemodel",
]
