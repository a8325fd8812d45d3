"""How long networks take on a Cortex-M4: instructions and cycles, counted on an emulated one, and as estimated.

    python benchmarks/micro_speed.py digits.safetensors keywords.safetensors --out results/micro-speed.json

What each step of the runtime takes, at -Os and at -O2, is found by least squares over networks of random shapes: these
numbers are printed, and belong into src/membound/micro/cost.py. The rows are other networks: known architectures with
random weights, and the files that are given, which say how near the estimates are. Cycles are those of Arm's table for
the Cortex-M4 (tools/cortex_m4.py), for memory without wait states: no physical board was measured.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _record import ROOT, arguments, record
from numpy.typing import NDArray

import membound as mb
from membound.micro.cost import STEPS, estimate, steps_of
from membound.run.micro_net import MicroNet
from membound.units import LEVELS

sys.path.insert(0, str(ROOT / "tools"))
from cortex_m4 import count_cycles
from emulated_boards import BOARDS, run_on
from micro_networks import NETWORKS, Builder, dscnn, micro, mobilenet, some_images

RANDOM = 60  # networks that the numbers are found on
BOARD = BOARDS["cortex-m4"]
COUNTED = ("instructions", "cycles")


def count(net: MicroNet) -> dict[str, dict[str, int]]:
    """Instructions and cycles of one image at each level; outputs must be the engine's."""
    image, found = some_images(net.model, 1), {}
    wanted = np.empty((1, int(np.prod(net.output_shape))), np.int8)
    net._core.run(image.reshape(1, -1), wanted, net.plan.net.takes_pixels)
    for level in LEVELS:
        with tempfile.TemporaryDirectory() as folder:
            ran = run_on(BOARD, net, image, Path(folder) / "c", level)
            counts = count_cycles(BOARD.emulator, Path(folder) / "c" / "board.elf")
        assert np.array_equal(ran.outputs, wanted)
        found[level] = dict(zip(COUNTED, counts, strict=True))
    return found


def random_net(seed: int) -> MicroNet:
    """A few layers of any size and density, as networks for images and sequences have them."""
    draw = np.random.default_rng(seed)
    height, width = int(draw.integers(8, 41)), int(draw.choice([1, 10, *range(8, 41)]))
    net = Builder(
        (int(draw.choice([1, 3, 10])), height, width), seed, float(draw.choice([0.05, 0.15, 0.4, 1.0]))
    )
    value = 0
    for number in range(int(draw.integers(2, 6))):
        channels, height, width = net.shapes[value]
        kernel = tuple(min(int(draw.choice([1, 3, 5])), side) for side in (height, width))
        stride = tuple(int(draw.choice([1, 1, 2])) if side > 4 else 1 for side in (height, width))
        act = ("relu",) if draw.random() < 0.8 else ("silu",)
        if number and draw.random() < 0.3:
            value = net.conv(value, channels, kernel, stride, groups=channels, act=act)
        else:
            value = net.conv(value, int(draw.integers(4, 33)), kernel, stride, act=act)
        height, width = net.shapes[value][1:]
        if draw.random() < 0.3 and min(height, width) >= 4:
            kind = "maxpool" if draw.random() < 0.7 else "avgpool"
            value = net.add(kind, (value,), kernel=(2, 2), stride=(2, 2))
        elif draw.random() < 0.3:
            branch = net.conv(value, net.shapes[value][0], 3)
            value = net.add("add", (branch, value), act=("relu",))
    if draw.random() < 0.4:
        value = net.add("mean", (value,), axes=(1, 2))
    net.flat_linear(value, int(draw.integers(2, 33)))
    return micro(net.store(str(draw.choice(["p2", "p4", "p5", "p8"])), preprocess={"scale": 1 / 64}))


def least_squares(steps: NDArray[np.float64], counted: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each step takes, none below 0, so that relative errors are least."""
    used = list(range(steps.shape[1]))
    while True:
        found = np.zeros(steps.shape[1])
        found[used] = np.linalg.lstsq(steps[:, used] / counted[:, None], np.ones(len(counted)), rcond=None)[0]
        if (found >= 0).all():
            return found
        used.remove(int(found.argmin()))


def calibrate() -> dict[str, dict[str, list[float]]]:
    """For each level and kind of count, what each of STEPS takes."""
    nets = [random_net(seed) for seed in range(RANDOM)]
    counts = [count(net) for net in nets]
    found: dict[str, dict[str, list[float]]] = {}
    for level in LEVELS:
        steps = np.array(
            [sum(steps_of(net.plan, n) for n in range(len(net.plan.net.ops))) for net in nets], float
        )
        found[level] = {}
        for kind in COUNTED:
            numbers = np.array([each[level][kind] for each in counts], float)
            best = least_squares(steps, numbers)
            errors = steps @ best / numbers - 1
            print(level, kind, f"{np.abs(errors).mean():.1%}, at most {np.abs(errors).max():.1%}")
            found[level][kind] = [round(number, 1) for number in best.tolist()]
    return found


def judge(name: str, net: MicroNet) -> dict[str, Any]:
    """What was counted of one network, and the estimate."""
    row: dict[str, Any] = {"name": name, "levels": count(net)}
    for level, counted in row["levels"].items():
        about = estimate(net.plan, level)
        counted |= {"estimated_instructions": about.instructions, "estimated_cycles": about.cycles}
        counted |= summary_of(counted)
    print(row, flush=True)
    return row


def summary_of(counted: dict[str, int]) -> dict[str, float]:
    """What the page shows: the time, and how far the estimate of it is off."""
    off = counted["estimated_cycles"] / counted["cycles"] - 1
    return {"ms_at_80_mhz": round(counted["cycles"] / 80e3, 1), "off_percent": round(100 * off, 1)}


def errors_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How far estimates are from what was counted, in percent."""
    found: dict[str, Any] = {}
    for level in LEVELS:
        found[level] = {}
        for kind in COUNTED:
            each = [row["levels"][level] for row in rows]
            off = [abs(one[f"estimated_{kind}"] / one[kind] - 1) for one in each]
            found[level][kind] = {
                "mean": round(100 * float(np.mean(off)), 1),
                "most": round(100 * max(off), 1),
            }
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="model files for microcontrollers")
    parser.add_argument(
        "--calibrate", action="store_true", help="find the numbers of cost.py, and print them"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.calibrate:
        for level, kinds in calibrate().items():
            for kind, numbers in kinds.items():
                print(level, kind, dict(zip(STEPS, numbers, strict=True)))
        return
    made = {name: mobilenet(96) if name == "mobilenet" else make() for name, make in NETWORKS.items()}
    made["dscnn, dense"] = dscnn(1.0)
    rows = [judge(f"{name}, random weights", micro(model)) for name, model in made.items()]
    rows += [judge(path.stem, mb.load(path, engine="micro")) for path in options.files]
    if options.out is not None:
        record(options.out, {"board": "cortex-m4", "rows": rows, "errors_percent": errors_of(rows)})


if __name__ == "__main__":
    main()
