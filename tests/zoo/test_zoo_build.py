"""Networks by name, and the user's own."""

import sys

import pytest

from membound import zoo
from membound.errors import MemboundError, WeightsError

OWN = """
import torch
answer = 42
made = torch.nn.Linear(2, 2)
class Net(torch.nn.Linear):
    def __init__(self, outputs=3):
        super().__init__(2, outputs)
class Group:
    net = Net
def make_net(): return Net()
def wrong(): return [1, 2]
def broken(): raise KeyError("no\\nsuch key")
def leaves(): raise SystemExit(2)
def for_classes(width=4, *, classes): return Net(classes)
def for_num(num_classes): return Net(num_classes)
def for_depth(depth, classes=3): return Net(classes)
def for_anything(**options): return Net(options.get("classes", 3))
def lazy():
    import own_helper_module
    return own_helper_module.net()
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_nets.py").write_text(OWN)
    (tmp_path / "own_helper_module.py").write_text("import own_nets\nnet = own_nets.Net\n")
    (tmp_path / "own_syntax.py").write_text("def net(:\n")
    (tmp_path / "own_needs.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield
    assert sys.path == before
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def test_names_of_the_zoo():
    caffes = ["lenet", "cifar10_quick", "alexnet"]
    assert zoo.names() == [*caffes, "efficientnet_lite0", "resnet8", "mobilenet_v1", "ds_cnn"]
    assert type(zoo.build("lenet")).__name__ == "LeNet"
    assert type(zoo.build("quick")) is type(zoo.build("cifar10_quick"))
    assert zoo.build("lenet", classes=3).fc2.out_features == 3


@pytest.mark.parametrize("spec", ["own_nets:Net", "own_nets:make_net", "own_nets:Group.net", "own_nets:lazy"])
def test_a_users_own_network(own, spec):
    assert zoo.build(spec).out_features == 3
    assert zoo.build(spec) is not zoo.build(spec)


def test_options_reach_a_users_network(own):
    assert zoo.build("own_nets:Net", outputs=5).out_features == 5


def test_a_network_is_told_the_classes_where_it_has_the_parameter(own):
    assert zoo.build_for("lenet", 7).fc2.out_features == 7
    assert zoo.build_for("own_nets:for_classes", 7).out_features == 7
    assert zoo.build_for("own_nets:for_num", 7).out_features == 7
    with pytest.raises(
        WeightsError, match=r"needs its parameter 'depth', which nothing fills: give it a default"
    ):
        zoo.build_for("own_nets:for_depth", 7)
    for spec in ("own_nets:Net", "own_nets:make_net", "own_nets:for_anything"):
        assert zoo.build_for(spec, 7).out_features == 3
    with pytest.raises(WeightsError, match="name a function or class"):
        zoo.build_for("own_nets:answer", 7)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lenett", "no network called 'lenett'; did you mean 'lenet'.*package.module:callable"),
        ("", "no network called ''"),
        (
            "model.tflite",
            "^model.tflite: there is no such file; membound does not read TensorFlow Lite models: start from",
        ),
        ("nets/a.pt", "^nets/a.pt: there is no such file$"),
        ("own_missing:net", "no module 'own_missing' in .* install it"),
        ("own_nets.sub:net", "no module 'own_nets.sub'"),
        ("own_net:net", "no module 'own_net' in .* did you mean own_nets:net[?] Otherwise run from"),
        ("own_nets:make_nett", "has no 'make_nett'; did you mean 'make_net'"),
        ("own_nets:Group.nett", "has no 'nett'"),
        ("own_nets:answer", "is an int; name a function or class"),
        ("own_nets:made", "one network already made"),
        ("own_nets:wrong", "returned a list; it must return a torch.nn.Module"),
        ("own_nets:broken", "calling 'own_nets:broken' failed with KeyError: .*such key"),
        ("own_nets:leaves", "failed with SystemExit: 2"),
        ("own_syntax:net", "importing 'own_syntax' .* failed with SyntaxError"),
        ("own_needs:net", "failed with ModuleNotFoundError: .*a_package_that_is_not_there"),
        ("own_nets.py:Net", "names a file; name the module, as in own_nets:Net"),
        ("./own_nets.py:Net", "as in own_nets:Net"),
        ("own_nets:", "write package.module:callable"),
        (":Net", "write package.module:callable"),
        ("own nets:Net", "write package.module:callable"),
        ("..own_nets:Net", "write package.module:callable"),
    ],
)
def test_what_can_be_wrong_with_a_name(own, spec, message):
    with pytest.raises(WeightsError, match=message) as caught:
        zoo.build(spec)
    assert isinstance(caught.value, MemboundError)
    assert "\n" not in str(caught.value)
