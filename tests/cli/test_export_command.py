"""export: trained weights become a model file, a model file becomes ONNX; and save() as a function."""

import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from deployed import images, refused, run, write_network
from safetensors.numpy import save_file
from torch import nn

import membound as mb
from membound.store.file import read

NETS = """
from torch import nn
def small(classes=2):
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, classes))
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """In a folder with a network in export_nets.py and images in own.npz."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "export_nets.py").write_text(NETS)
    x, y = images(60)
    np.savez("own.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    yield
    sys.modules.pop("export_nets", None)


def train(*more):
    options = (
        "--steps",
        "40",
        "--batch-size",
        "20",
        "--keep",
        "*=0.5",
        "--every",
        "5",
        "--device",
        "cpu",
    )
    assert (
        run(
            "train", "export_nets:small", "--data", "own.npz", *options, "--out", "weights.safetensors", *more
        )
        == 0
    )


def test_from_training_to_every_command_of_the_file(own, capsys):
    train()
    assert (
        run("export", "export_nets:small", "--init", "weights.safetensors", "--out", "net.safetensors") == 0
    )
    capsys.readouterr()
    assert (
        run("evaluate", "export_nets:small", "--init", "weights.safetensors", "--data", "own.npz", "--json")
        == 0
    )
    in_torch = json.loads(capsys.readouterr().out)
    assert run("evaluate", "net.safetensors", "--data", "own.npz", "--json") == 0
    deployed = json.loads(capsys.readouterr().out)
    assert deployed["errors"] == in_torch["errors"]
    assert deployed["file_bytes"] == os.path.getsize("net.safetensors")
    assert run("inspect", "net.safetensors", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["classes"] == ["0", "1"]
    assert facts["preprocess"].keys() == {"mean", "std"}
    np.save("x.npy", images(4)[0])
    assert run("run", "net.safetensors", "x.npy", "--out", "y.npy") == 0
    assert np.load("y.npy").shape == (4, 2)
    assert run("export", "net.safetensors", "--onnx", "net.onnx") == 0
    assert os.path.getsize("net.onnx") > 0


def test_values_and_preference(own, capsys):
    train()
    capsys.readouterr()
    sizes = {}
    for values in ("f32", "f16"):
        command = (
            "export",
            "export_nets:small",
            "--init",
            "weights.safetensors",
            "--values",
            values,
            "--json",
        )
        assert run(*command, "--out", f"{values}.safetensors") == 0
        facts = json.loads(capsys.readouterr().out)
        assert {layer["values"] for layer in facts["layers"]} == {values}
        sizes[values] = facts["weight_bytes"]
    assert sizes["f16"] < sizes["f32"]
    assert run(*command, "--prefer", "speed", "--out", "fast.safetensors") == 0
    assert {layer["format"] for layer in json.loads(capsys.readouterr().out)["layers"]} <= {"dense", "csr"}


ROUNDED = ("export", "export_nets:small", "--init", "weights.safetensors", "--data", "own.npz", "--values")


def test_few_bits_without_training(own, capsys):
    """What is said of the file is what it is: its bytes, and its errors through the runtime."""
    train()
    assert (
        run("export", "export_nets:small", "--init", "weights.safetensors", "--out", "f32.safetensors") == 0
    )
    capsys.readouterr()
    assert run(*ROUNDED, "p4", "--out", "p4.safetensors", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["out"] == "p4.safetensors"
    for file, said in (("f32.safetensors", facts["before"]), ("p4.safetensors", facts["after"])):
        assert run("evaluate", file, "--data", "own.npz", "--json") == 0
        assert json.loads(capsys.readouterr().out) == said
        assert said["file_bytes"] == os.path.getsize(file)
    assert facts["after"]["file_bytes"] < 0.6 * facts["before"]["file_bytes"]
    assert facts["calibrated_on"] == 40
    assert {layer["values"] for layer in facts["layers"]} == {"p8", "p4", "i8", "f16"}
    before = sorted(os.listdir())
    assert run(*ROUNDED, "p4") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["values", "bytes", "accuracy", "errors"]
    assert lines[1].split()[:3] == ["before", "f32", f"{facts['before']['file_bytes']:,}"]
    assert lines[2].split()[:3] == ["after", "p4", f"{facts['after']['file_bytes']:,}"]
    assert "calibrated on 40 training images" in lines[3]
    assert "not written" in lines[4]
    assert sorted(os.listdir()) == before


def test_few_bits_without_data_are_rounded_all_the_same(own, capsys):
    train()
    capsys.readouterr()
    assert run(*ROUNDED[:4], "--values", "p2", "--out", "net.safetensors") == 0
    assert "tensors were rounded without data, which costs accuracy" in capsys.readouterr().out
    assert {tensor.value_type.name for tensor in mb.load("net.safetensors").model.tensors.values()} >= {
        "p2",
        "p8",
    }


def test_weights_that_say_nothing_take_it_from_the_data(own, capsys):
    sys.path.insert(0, os.getcwd())
    from export_nets import small

    sys.path.pop(0)
    torch.save(small().state_dict(), "plain.pt")
    command = ("export", "export_nets:small", "--init", "plain.pt", "--out", "net.safetensors")
    assert "such as 3,32,32 (--data, --shape)" in refused(capsys, *command)
    assert not os.path.exists("net.safetensors")
    assert run(*command, "--shape", "1,6,6") == 0
    assert "neither the weights nor data say how images are prepared" in capsys.readouterr().out
    assert run(*command, "--data", "own.npz", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["classes"] == ["0", "1"]
    assert facts["preprocess"] is not None
    assert "choose image, channel, none or imagenet" in refused(
        capsys, *command, "--data", "own.npz", "--mean", "median"
    )


def test_what_an_onnx_file_does_not_say_is_said(own, capsys, monkeypatch):
    """How images were prepared for its weights: the data's mean is a guess, and another one can be named."""
    namespace: dict = {}
    exec(NETS, namespace)
    monkeypatch.setattr("membound.zoo.networks.read_onnx", lambda path: namespace["small"]())
    command = ("export", "small.onnx", "--data", "own.npz", "--out", "net.safetensors")
    for more in ((), ("--values", "p8"), ("--json",)):
        assert run(*command, *more) == 0
        (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("prepared")]
        found = read("net.safetensors").preprocess
        assert (
            f"(pixel - {found['mean'][0]:.1f}) / {found['std'][0]:.1f}, the mean and deviation of own.npz"
            in said
        )
        assert "divided by 255, give the mean 0/1" in said
    assert run(*command, "--mean", "0/1") == 0
    assert "prepared" not in capsys.readouterr().err
    assert read("net.safetensors").preprocess == {"mean": [0.0], "std": [255.0]}
    fit = ("fit", "small.onnx", "--data", "own.npz", "--budget", "150", "--out", "fitted.safetensors")
    assert run(*fit) == 1
    assert "prepared  (pixel - " in capsys.readouterr().err
    assert run(*fit, "--mean", "0/1") == 1
    assert "prepared  (pixel - " not in capsys.readouterr().err
    whole = round(found["mean"][0])
    assert whole != found["mean"][0]
    assert run(*fit, "--target", "micro") == 1
    said = capsys.readouterr().err
    assert f"prepared  (pixel - {whole}.0) / " in said, "as the fit prepares them"
    assert f"prepared by mean {whole}, std " in said


def test_a_mean_image_travels(own, capsys):
    train("--mean", "image")
    assert (
        run("export", "export_nets:small", "--init", "weights.safetensors", "--out", "net.safetensors") == 0
    )
    assert mb.load("net.safetensors").preprocess.mean_image.shape == (1, 6, 6)
    assert run("evaluate", "net.safetensors", "--data", "own.npz") == 0


@pytest.mark.parametrize(
    "said", ["nonsense", {"classes": 7, "shape": "a", "seed": "b"}, {"shape": [-1], "classes": [1]}]
)
def test_what_weights_say_about_themselves_is_not_trusted(said, own, capsys):
    tensors = {name: value.numpy() for name, value in mb.zoo.lenet().state_dict().items()}
    save_file(tensors, "odd.safetensors", {"membound": json.dumps(said)})
    assert run("export", "lenet", "--init", "odd.safetensors", "--out", "net.safetensors", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["classes"] is None
    assert facts["input_shape"] == [1, 28, 28]


REFUSED = [
    (("lenet",), "say what to write: --onnx OUT (other runtimes), --hub FOLDER (the Hugging Face Hub), "),
    (("lenet",), "--int8 OUT (microcontroller scales)"),
    (("lenet", "--onnx", "a.onnx", "--out", "b.safetensors"), "--onnx and --out: one at a time"),
    (("lenet", "--out", "net.safetensors"), "name their file (--init)"),
    (
        ("lenet", "--init", "no.safetensors", "--out", "net.safetensors"),
        "no file of weights at no.safetensors",
    ),
    (("lenett", "--init", "w.pt", "--out", "net.safetensors"), "did you mean 'lenet'"),
    (("lenet", "--init", "w.pt", "--out", "net.pt"), "let its name end in .safetensors"),
    (
        ("lenet", "--init", "w.pt", "--out", "no/net.safetensors"),
        "no/net.safetensors: there is no folder no: create it with mkdir -p no",
    ),
    (("lenet", "--init", "w.pt", "--out", "folder.safetensors"), "Is a directory"),
    (("lenet", "--init", "w.safetensors", "--out", "w.safetensors"), "is the file of weights"),
    (
        ("lenet", "--init", "w.pt", "--out", "n.safetensors", "--values", "f8"),
        "no values 'f8': choose auto, f32, f16, p1",
    ),
    (("lenet", "--init", "w.pt", "--out", "n.safetensors", "--prefer", "size"), "choose bytes or speed"),
    (("lenet", "--init", "w.pt", "--values", "p4"), "say what to write"),
    (("lenet", "--init", "w.pt", "--values", "p9", "--data", "own.npz"), "no values 'p9': choose"),
    (("lenet", "--init", "w.pt", "--values", "p4", "--data", "no.npz", "--out", "n.safetensors"), "no.npz"),
    (
        ("lenet", "--init", "w.pt", "--values", "p4", "--data", "own.npz", "--out", "n.safetensors"),
        "w.pt does not fit the network",
    ),
    (("lenet", "--init", "no.pt", "--values", "p4", "--data", "own.npz"), "no file of weights at no.pt"),
    (("lenet", "--init", "w.pt", "--out", "n.safetensors", "--shape", "1,x"), "not a list of sizes"),
    (("lenet", "--init", "w.pt", "--out", "n.safetensors", "--shape", "3,28,28"), "shape"),
    (
        ("lenet", "--init", "w.pt", "--out", "n.safetensors", "--mean", "image"),
        "--mean, --layout and --size go with --data",
    ),
    (("net.safetensors", "--onnx", "net.txt"), "end in .onnx"),
    (("net.safetensors", "--onnx", "no/net.onnx"), "there is no folder no: create it with mkdir -p no"),
    (("net.safetensors", "--onnx", "folder.onnx"), "Is a directory"),
    (("net.safetensors", "--onnx", "net.onnx", "--init", "w.pt"), "--init goes with --out, not with"),
    (("lenet", "--init", "w.pt", "--out", "net.safetensors", "--sparse"), "--sparse goes with --onnx"),
    (("net.safetensors", "--hub", "new", "--sparse"), "--sparse goes with --onnx"),
    (("net.safetensors", "--hub", "new", "--onnx", "net.onnx"), "--onnx and --hub: one at a time"),
    (("net.safetensors", "--cpp", "a", "--cpp-file", "b"), "--cpp and --cpp-file: one at a time"),
    (("net.safetensors", "--hub", "new", "--init", "w.pt"), "--init goes with --out, not with"),
    (("net.safetensors", "--hub", "new", "--size", "6"), "--layout and --size go with --data"),
    (("net.safetensors", "--hub", "folder.onnx/no/new"), "there is no folder folder.onnx/no"),
    (("net.safetensors", "--hub", "w.pt"), "w.pt is a file: give a folder, new or empty"),
    (("no.safetensors", "--hub", "new"), "there is no file no.safetensors"),
    (("w.safetensors", "--hub", "new"), "not a model file"),
    (("net.safetensors", "--hub", "new", "--data", "minst"), "did you mean mnist?"),
    (("hf://org", "--hub", "new"), "is not an address on the Hugging Face Hub"),
    (("net.safetensors", "--onnx", "no/net.onnx", "--sparse"), "there is no folder no: create it"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_what_is_refused(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.save(mb.zoo.lenet().state_dict(), "w.pt")
    (tmp_path / "w.safetensors").write_bytes(b"")
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "folder.onnx").mkdir()
    write_network(tmp_path / "net.safetensors")
    x, y = images(20)
    np.savez("own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    before = sorted(tmp_path.iterdir())
    assert words in refused(capsys, "export", *arguments)
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_for_the_hub(own, capsys):
    write_network(Path("net.safetensors"))
    assert run("export", "net.safetensors", "--hub", "plain") == 0
    assert "accuracy not known, for there is no data" in capsys.readouterr().out
    assert run("export", "net.safetensors", "--hub", "known", "--data", "own.npz") == 0
    said = capsys.readouterr().out
    assert "the model file and its card (accuracy 100.00 %)" in said
    assert "hf upload ORG/known known" in said
    for folder in ("plain", "known"):
        assert sorted(os.listdir(folder)) == ["README.md", "model.safetensors"]
        assert Path(folder, "model.safetensors").read_bytes() == Path("net.safetensors").read_bytes()
    assert "accuracy on" not in Path("plain", "README.md").read_text()
    assert (
        "| accuracy on test images of own.npz | 100.00 % | not measured |"
        in Path("known", "README.md").read_text()
    )


def test_a_file_for_an_app(tmp_path, capsys):
    file, target = write_network(tmp_path / "net.safetensors"), tmp_path / "newer.net"
    assert run("export", file, "--cpp-file", target, "--json") == 0
    digest = sha256(file.read_bytes()).hexdigest()[:16]
    written = {"out": str(target), "file_bytes": target.stat().st_size, "engine": "float", "network": digest}
    assert json.loads(capsys.readouterr().out) == written
    assert run("export", file, "--cpp-file", target) == 0
    said = capsys.readouterr().out
    assert f"{target.stat().st_size:,} bytes, for net_open_file" in said
    assert "engine    float; this network runs in float, even in an app exported with --engine int8" in said
    assert f"network   {digest}: " in said
    assert run("export", file, "--cpp-file", target, "--engine", "int8") == 0
    assert (
        "in 8-bit integers; this network runs in int8, even in an app exported with --engine float"
        in capsys.readouterr().out
    )
    assert "--prefix goes with" in refused(capsys, "export", file, "--cpp-file", target, "--prefix", "cats")
    assert "is the model file itself" in refused(capsys, "export", file, "--cpp-file", file)


def test_cpp_for_apps(tmp_path, capsys):
    file, folder = write_network(tmp_path / "net.safetensors"), tmp_path / "cpp"
    assert run("export", file, "--cpp", folder, "--prefix", "cats", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["file_bytes"] == file.stat().st_size
    assert f"constexpr size_t weight_bytes = {facts['weight_bytes']};" in (folder / "cats.cpp").read_text()
    assert "cats *cats_open(int threads);" in (folder / "cats.h").read_text()
    assert "cpp holds an export with the prefix cats: give --prefix cats, or name" in refused(
        capsys, "export", file, "--cpp", folder
    )
    assert run("export", file, "--cpp", tmp_path / "other") == 0
    said = capsys.readouterr().out
    assert "net.h, net.cpp, weights.cpp" in said
    assert f"weights   {facts['weight_bytes']:,} bytes of the program: unpacked" in said
    assert "\ncode      less than a megabyte on 64-bit Arm, 1.2 MB on x86-64" in said
    assert "\nengine    float\n" in said, "its convolution is too small for integers"
    for words, reason in (
        (("--cpp", tmp_path / "new", "--prefix", "No"), "--prefix"),
        (("--cpp", tmp_path / "new", "--data", "mnist"), "--data goes with"),
        (("--onnx", tmp_path / "new.onnx", "--prefix", "cats"), "--prefix goes with --cpp"),
        (("--cpp", tmp_path / "no" / "where"), "there is no folder"),
    ):
        assert reason in refused(capsys, "export", file, *words)
    assert "there is no file" in refused(
        capsys, "export", tmp_path / "none.safetensors", "--cpp", tmp_path / "new"
    )
    assert not (tmp_path / "new").exists()


def test_an_export_in_floats_names_the_engine_that_may_be_faster(tmp_path, capsys):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 2)).eval()
    file = tmp_path / "own net.safetensors"
    mb.save(net, file, torch.zeros(1, 8, 8, 8))
    hint = f"(int8 may be faster: membound bench '{file}' --int8; export with --engine int8)"
    for engine, says in (("float", f"float {hint}"), ("int8", "int8: convolutions in 8-bit integers")):
        assert run("export", file, "--cpp", tmp_path / engine, "--engine", engine) == 0
        assert f"\nengine    {says}\n" in capsys.readouterr().out


def test_onnx_with_sparse_initializers_says_what_they_do_not_save(tmp_path, capsys):
    torch.manual_seed(0)
    net = mb.zoo.lenet().eval()
    with torch.no_grad():
        for weight in net.parameters():
            weight *= torch.rand_like(weight) < 0.05
    mb.save(net, tmp_path / "net.safetensors", torch.zeros(1, 1, 28, 28))
    sizes = {}
    for name, more in (("dense", ()), ("sparse", ("--sparse",))):
        target = tmp_path / f"{name}.onnx"
        assert run("export", tmp_path / "net.safetensors", "--onnx", target, "--json", *more) == 0
        captured = capsys.readouterr()
        facts = json.loads(captured.out)
        assert facts["onnx_bytes"] == os.path.getsize(target)
        sizes[name] = (facts["onnx_bytes"], facts["dense_onnx_bytes"])
        assert ("note: sparse initializers save bytes of the file only" in captured.err) == bool(more)
        assert captured.err.count("\n") == len(more)
    assert sizes["sparse"][1] == sizes["dense"][0] == sizes["dense"][1]
    assert sizes["sparse"][0] < sizes["dense"][0] / 5
    assert run("export", tmp_path / "net.safetensors", "--onnx", tmp_path / "sparse.onnx", "--sparse") == 0
    assert (
        f"{sizes['sparse'][0]:,} bytes, sparse initializers, {sizes['dense'][0]:,} dense"
        in capsys.readouterr().out
    )


# save


def test_save_and_load(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)).eval()
    preprocess = mb.data.Preprocess(scale=0.5, mean=np.array([3.0]))
    x = torch.randn(5, 1, 6, 6)
    stored = mb.save(net, tmp_path / "net.safetensors", x, preprocess=preprocess, classes=("no", "yes"))
    assert stored.file_bytes == os.path.getsize(tmp_path / "net.safetensors")
    loaded = mb.load(tmp_path / "net.safetensors")
    with torch.no_grad():
        np.testing.assert_allclose(loaded(x.numpy()), net(x).numpy(), atol=1e-5)
    assert loaded.preprocess == preprocess
    assert loaded.classes == ["no", "yes"]
    half = mb.save(net, tmp_path / "half.safetensors", np.zeros((1, 1, 6, 6), np.float32), values="f16")
    assert {tensor.values.dtype for tensor in half.tensors.values()} == {np.dtype(np.float16)}
    assert half.preprocess is None


def test_what_save_refuses(tmp_path):
    net, x = nn.Linear(3, 2), torch.zeros(1, 3)
    with pytest.raises(mb.ModelError, match=r"let its name end in \.safetensors"):
        mb.save(net, tmp_path / "net.pt", x)
    with pytest.raises(mb.ModelError, match=r"give a membound\.data\.Preprocess"):
        mb.save(net, tmp_path / "net.safetensors", x, preprocess={"scale": 0.5})
    for classes, says in (
        ("cat", "classes is 'cat': give a list"),
        (10, "classes is 10: give a list"),
        (["cat", "cat"], "1 of them different"),
        ([], "0 names"),
        (["cat", "dog", "bird"], "3 names for 2 outputs"),
        (["cat"], "1 names for 2 outputs"),
    ):
        with pytest.raises(mb.ModelError, match=says):
            mb.save(net, tmp_path / "net.safetensors", x, classes=classes)
    with pytest.raises(mb.ModelError, match="the path is None"):
        mb.save(net, None, x)
    images, crop = torch.zeros(1, 1, 8, 8), mb.data.Preprocess(crop=5)
    with pytest.raises(mb.ModelError, match="crops images to 5 pixels a side"):
        mb.save(nn.Conv2d(1, 1, 3), tmp_path / "net.safetensors", images, preprocess=crop)
    with pytest.raises(mb.ModelError, match="no value type 'f8'"):
        mb.save(net, tmp_path / "net.safetensors", x, values="f8")
    with pytest.raises(mb.ModelError, match="no preference 'size'"):
        mb.save(net, tmp_path / "net.safetensors", x, prefer="size")
    with pytest.raises(mb.ModelError, match=r"there is no folder .*no: create it with mkdir -p .*no$"):
        mb.save(net, tmp_path / "no" / "net.safetensors", x)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("values", ["p4", "f16"])
def test_a_model_file_is_written_anew(values, tmp_path, capsys):
    """In formats for speed it computes the same; with another type of values it is rounded."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 5)), torch.randn(4, 40)
    for layer in (model[0], model[2]):
        layer.weight.data *= layer.weight.data.abs() > 0.8 * layer.weight.data.abs().max()
    before, fast, few = (tmp_path / f"{name}.safetensors" for name in ("before", "fast", "few"))
    mb.save(model, before, x, values=values)
    for out, options in ((fast, ["--prefer", "speed"]), (few, ["--values", "p2"])):
        assert run("export", before, *options, "--out", out) == 0
    np.testing.assert_allclose(mb.load(fast)(x.numpy()), mb.load(before)(x.numpy()), rtol=1e-5, atol=1e-6)
    formats = {layer["format"] for layer in mb.inspect(fast)["layers"] if layer["name"].endswith("weight")}
    assert formats <= {"csr", "dense"}
    assert mb.inspect(few)["file_bytes"] < mb.inspect(before)["file_bytes"]
    capsys.readouterr()
    assert "choose another name" in refused(capsys, "export", before, "--prefer", "speed", "--out", before)


@pytest.mark.full
def test_the_example_deploys_what_it_trains(tmp_path):
    script = Path(__file__).parents[2] / "examples" / "deploy.py"
    command = [sys.executable, str(script), "--steps", "60", "--out", str(tmp_path / "net.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"accuracy ([\d.]+)%, file (\d+) bytes, memory (\d+) bytes\n", done.stdout)
    assert float(found[1]) > 60
    assert int(found[2]) == os.path.getsize(tmp_path / "net.safetensors") < 4 * 784 * 300 / 10


def test_few_values_take_few_bits_without_being_asked(own, capsys):
    torch.manual_seed(0)
    sys.path.insert(0, ".")
    net = mb.zoo.build("export_nets:small")
    with torch.no_grad():
        for layer in (net[0], net[4]):
            layer.weight.copy_(layer.weight.sign() * torch.tensor(0.1))
    torch.save(net.state_dict(), "w.pt")
    weights = ("export", "export_nets:small", "--init", "w.pt", "--shape", "1,6,6")
    sizes, decoded = {}, {}
    for values in ("auto", "f32"):
        assert run(*weights, "--out", f"{values}.safetensors", "--values", values) == 0
    assert run(*weights, "--out", "usual.safetensors") == 0
    assert run("export", "f32.safetensors", "--values", "auto", "--out", "again.safetensors") == 0
    for name in ("auto", "f32", "usual", "again"):
        stored = read(f"{name}.safetensors")
        sizes[name], decoded[name] = stored.file_bytes, stored.decode().tensors
    assert sizes["usual"] == sizes["auto"] < sizes["f32"]
    assert sizes["again"] < sizes["f32"]
    for name in ("auto", "again"):
        for tensor, array in decoded["f32"].items():
            np.testing.assert_array_equal(decoded[name][tensor], array)


def test_a_network_with_weights_is_told_how_it_becomes_c(own, capsys):
    """By commands that run as they are printed."""
    train()
    capsys.readouterr()
    asked = (
        "export",
        "export_nets:small",
        "--init",
        "weights.safetensors",
        "--c",
        "board",
        "--data",
        "own.npz",
    )
    assert run(*asked) == 1
    first, second = re.findall(
        r"membound (export .*?)(?:, then|$)", capsys.readouterr().err.strip(), re.MULTILINE
    )
    assert run(*first.split(), "--data", "own.npz") == 0  # this network's weights say nothing of the shape
    assert run(*second.split()) == 0
    assert Path("board", "net.c").is_file()


def test_arrays_are_no_network(own, capsys):
    assert run("export", "own.npz", "--c", "board") == 1
    assert "own.npz holds arrays, not a network: name the model file" in capsys.readouterr().err
