"""membound: give it a network and a byte budget, get back the most accurate network that fits.

The public names are loaded when first used, so that importing membound costs nothing and a deployed
process never imports torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from membound.errors import (
    DataError,
    Diverged,
    MemboundError,
    ModelError,
    RuleError,
    TrainingError,
    WeightsError,
)
from membound.errors import install as _install

if TYPE_CHECKING:
    from membound import data, zoo
    from membound.capture.save import save
    from membound.export.cpp_file import export_cpp_file
    from membound.export.cpp_project import export_cpp
    from membound.export.micro import export_c
    from membound.export.onnx_file import export_onnx
    from membound.report.paired import Comparison
    from membound.run.inspection import Inspection, inspect
    from membound.run.micro_net import MicroNet
    from membound.run.net import Net, load
    from membound.search.cluster import ray_cluster
    from membound.search.deployed import Fitted
    from membound.search.fit import fit
    from membound.search.reports import write_report
    from membound.search.stages import Stages
    from membound.train.regularizer import Regularizer, attach
    from membound.train.schedules import constant, cosine, ramp, steps
    from membound.train.updates import (
        Update,
        chain,
        hold,
        l0_project,
        l1_shrink,
        l1_subgradient,
        l2_decay,
        palette,
    )

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "DataError",
    "Diverged",
    "Fitted",
    "Inspection",
    "MemboundError",
    "MicroNet",
    "ModelError",
    "Net",
    "Regularizer",
    "RuleError",
    "Stages",
    "TrainingError",
    "Update",
    "WeightsError",
    "attach",
    "chain",
    "constant",
    "cosine",
    "data",
    "export_c",
    "export_cpp",
    "export_cpp_file",
    "export_onnx",
    "fit",
    "hold",
    "inspect",
    "l0_project",
    "l1_shrink",
    "l1_subgradient",
    "l2_decay",
    "load",
    "palette",
    "ramp",
    "ray_cluster",
    "save",
    "steps",
    "write_report",
    "zoo",
]

_HOME = {
    "Comparison": "membound.report.paired",
    "Fitted": "membound.search.deployed",
    "Inspection": "membound.run.inspection",
    "MicroNet": "membound.run.micro_net",
    "Net": "membound.run.net",
    "Regularizer": "membound.train.regularizer",
    "Stages": "membound.search.stages",
    "Update": "membound.train.updates",
    "attach": "membound.train.regularizer",
    "chain": "membound.train.updates",
    "constant": "membound.train.schedules",
    "cosine": "membound.train.schedules",
    "export_c": "membound.export.micro",
    "export_cpp": "membound.export.cpp_project",
    "export_cpp_file": "membound.export.cpp_file",
    "export_onnx": "membound.export.onnx_file",
    "fit": "membound.search.fit",
    "hold": "membound.train.updates",
    "inspect": "membound.run.inspection",
    "l0_project": "membound.train.updates",
    "l1_shrink": "membound.train.updates",
    "l1_subgradient": "membound.train.updates",
    "l2_decay": "membound.train.updates",
    "load": "membound.run.net",
    "palette": "membound.train.updates",
    "ramp": "membound.train.schedules",
    "ray_cluster": "membound.search.cluster",
    "save": "membound.capture.save",
    "steps": "membound.train.schedules",
    "write_report": "membound.search.reports",
}


if not TYPE_CHECKING:  # a type checker knows the names above, and no others

    def __getattr__(name: str) -> Any:
        if name in ("data", "zoo"):
            value: Any = import_module(f"membound.{name}")
        elif name in _HOME:
            value = getattr(_import(_HOME[name], name), name)
        else:
            raise AttributeError(f"module 'membound' has no attribute {name!r}")
        globals()[name] = value
        return value


def _import(module: str, name: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(f"membound.{name} needs torch: {_install('train')}", name="torch") from None


def __dir__() -> list[str]:
    return sorted(__all__)
