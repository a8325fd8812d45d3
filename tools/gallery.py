"""docs/gallery/*.png: pictures of the reports of real fits, whose numbers go to results/gallery.json.

python tools/gallery.py --out results/gallery.json

Needs chromium on the PATH. The fits are short, and the first is the tutorial's: they show what a report looks like.
"""

import argparse
import io
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from _record import ROOT, record

from membound.store.whole import replace_file

FITS = {
    "fit": "fit lenet --data mnist --budget 20KiB --steps 300 --out lenet.safetensors",
    "search": "fit lenet --data mnist --budget 10KiB --budget 20KiB --budget 40KiB --strategy greedy --greedy-step 0.5 "
    "--candidate-steps 20 --validation 1000 --steps 200 --out lenet.safetensors",
}
PICTURES = ROOT / "docs" / "gallery"
WIDTH, TALLEST, COLOURS = 900, 6000, 48


def fit(command: str, folder: Path) -> dict[str, Any]:
    """What a fit says of itself, as JSON; its report is in the folder."""
    arguments = [sys.executable, "-m", "membound", *shlex.split(command), "--json"]
    done = subprocess.run(arguments, cwd=folder, stdout=subprocess.PIPE, check=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    kept = (
        "accuracy",
        "errors",
        "images",
        "file_bytes",
        "memory_bytes",
        "latency_ms",
        "nonzeros",
        "parameters",
    )
    networks = {"dense": facts["dense"], **{final["name"]: final for final in facts["finals"]}}
    return {
        "command": f"membound {command}",
        "seconds": facts["seconds"],
        "candidates": len(facts["candidates"]),
        "networks": {name: {key: net[key] for key in kept} for name, net in networks.items()},
        "layers": {final["name"]: final["layers"] for final in facts["finals"]},
    }


def draw(page: Path, picture: Path) -> None:
    """The page as a browser shows it, down to where it ends, in few colours."""
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "page.png"
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{TALLEST}"]
        subprocess.run(
            ["chromium", *options, f"--screenshot={shot}", page.as_uri()],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        image = Image.open(shot).convert("RGB")
    blank = Image.new("RGB", image.size, image.getpixel((0, 0)))
    box = ImageChops.difference(image, blank).getbbox()
    assert box is not None, "an empty page"
    image = image.crop((0, 0, WIDTH, min(box[3] + 24, TALLEST))).quantize(COLOURS, dither=Image.Dither.NONE)
    written = io.BytesIO()
    image.save(written, "PNG", optimize=True)
    picture.parent.mkdir(exist_ok=True)
    replace_file(picture, [written.getvalue()])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, required=True)
    given = arguments.parse_args()
    fits = {}
    for name, command in FITS.items():
        with tempfile.TemporaryDirectory() as folder:
            fits[name] = fit(command, Path(folder))
            draw(Path(folder) / "lenet.report.html", PICTURES / f"{name}.png")
    record(given.out, {"fits": fits})


if __name__ == "__main__":
    main()
