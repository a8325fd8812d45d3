"""Numbers in fixed point as the bytes that a network is fed: in C, against whole numbers of Python."""

import shutil
import subprocess
from fractions import Fraction

import numpy as np
import pytest
from test_micro_firmware import FLAGS, PAGE, of_floats
from tools.micro_networks import Builder, micro

import membound as mb
from membound.cli import main
from membound.errors import ModelError
from membound.export.c_project import project_files, write_project
from membound.micro.numbers import FIXED_CHANNEL_BYTES, FIXED_CODE_BYTES, fix_input, steps_of
from membound.run.micro_net import MicroNet
