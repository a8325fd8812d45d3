

def images(count=60) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(count) % 2
    return torch.rand(count, 1, 6, 6, generator=generator) + y[:, None, None, None], y


def test_two_fits_in_one_run_directory(tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    with (
        locked(tmp_path / "run"),  # as another process holds it
        pytest.raises(mb.MemboundError, match=r"another process is training in .*run: wait for it, or choose"),
    ):
        mb.fit(net, images(), "90%", steps=2, run_dir=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]
    mb.fit(net, images(), "90%", steps=2, run_dir=tmp_path / "run")


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    """Trained twice and saved twice: weights, and the model file of them; another seed gives others."""
    x, y = images()
    split = ArraySplit((100 * x).byte().numpy(), y.numpy())
    found = []
    for number, seed in enumerate((3, 3, 4)):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, 2))
        rules = {"*": mb.l0_project(mb.ramp(1.0, 0.2), every=5)}
        train(
            net, split, modern("adamw", 30, 20, lr=0.01), rules,
            preprocess=Preprocess(scale=0.01), settings=Settings(seed=seed, device="cpu"),
        )  # fmt: skip
        net.eval()
        save_weights(tmp_path / f"{number}.weights", net, Preprocess(scale=0.01), {})
        mb.save(net, tmp_path / f"{number}.model", x[:1])
        found.append([(tmp_path / f"{number}.{kind}").read_bytes() for kind in ("weights", "model")])
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]
    assert found[0][1] != found[2][1]


FLAT = """
import sys
import numpy as np
from membound.errors import ModelError
from membound.run import load

def resident():
    found = dict(line.split(":") for line in open("/proc/self/status") if ":" in line)
    return 1024 * sum(int(found[name].split()[0]) for name in ("RssAnon", "RssFile", "RssShmem"))

net = load(sys.argv[1], threads=2)
x, wrong = np.zeros((1, 1, 28, 28), np.float32), np.zeros((1, 1, 28, 27), np.float32)
for count in (5_000, int(sys.argv[2])):
    for number in range(count):
        net(x)
        if number % 10 == 0:
            try:
                net(wrong)
            except ModelError:
                pass
    print(resident())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc/self/status")
@pytest.mark.parametrize("calls", [50_000, pytest.param(200_000, marks=pytest.mark.full)])
def test_memory_is_flat_over_many_calls(tmp_path, calls):
    net = mb.zoo.lenet()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(torch.rand(weight.shape) < 0.02)  # some 8,600 are left
    mb.save(net, tmp_path / "lenet.safetensors", torch.zeros(1, 1, 28, 28))
    command = [sys.executable, "-c", FLAT, str(tmp_path / "lenet.safetensors"), str(calls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    before, after = map(int, done.stdout.split())
    assert after - before < 1 << 20
