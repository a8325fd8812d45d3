"""Data sets as numpy arrays and folders, and preprocessing as data. Never imports torch.

>>> from membound import data
>>> mnist = data.load("mnist")
>>> mnist.shape, len(mnist.train), len(mnist.test)
((1, 28, 28), 60000, 10000)
"""

from membound.data.augment import Augment
from membound.data.pictures import FolderSplit
from membound.data.preprocess import Preprocess
from membound.data.source import available, load
from membound.data.splits import ArraySplit, Dataset, Split, bag, subsample, validation_split
from membound.data.statistics import channel_moments, describe, mean_channels, mean_image, std_channels

__all__ = [
    "ArraySplit",
    "Augment",
    "Dataset",
    "FolderSplit",
    "Preprocess",
    "Split",
    "available",
    "bag",
    "channel_moments",
    "describe",
    "load",
    "mean_channels",
    "mean_image",
    "std_channels",
    "subsample",
    "validation_split",
]
