"""Networks to begin with: Caffe's, with their solvers and weights, and small ones; and a way to name one's own."""

from membound.zoo.alexnet import alexnet
from membound.zoo.caffe import load_caffemodel, read_binaryproto, read_caffemodel
from membound.zoo.cifar10_quick import cifar10_quick
from membound.zoo.efficientnet_lite0 import efficientnet_lite0
from membound.zoo.lenet import lenet
from membound.zoo.networks import build, build_for, names
from membound.zoo.solver import Solver
from membound.zoo.tiny import ds_cnn, mobilenet_v1, resnet8

__all__ = [
    "Solver",
    "alexnet",
    "build",
    "build_for",
    "cifar10_quick",
    "ds_cnn",
    "efficientnet_lite0",
    "lenet",
    "load_caffemodel",
    "mobilenet_v1",
    "names",
    "read_binaryproto",
    "read_caffemodel",
    "resnet8",
]
