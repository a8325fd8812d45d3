"""Install packages into the environment of this Python: by uv where it is here, which takes a third of pip's time.

python tools/install_packages.py requirements.txt [more packages]

uv does not read pip's settings, so it is given those that say where packages come from. What it cannot install, pip
installs, or says why not.
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAME = ("--quiet", "-c", str(ROOT / "constraints.txt"))
PLACES = {"index-url": "--default-index", "extra-index-url": "--index", "find-links": "--find-links"}


def uv_options(settings: str) -> list[str]:
    """uv's options for what `pip config list` says; among several indexes it takes the newest version, as pip does."""
    options = ["--index-strategy", "unsafe-best-match"]
    for line in settings.splitlines():
        name, _, value = line.partition("=")
        option = PLACES.get(name.rpartition(".")[2])
        if option is not None:
            options += [part for place in ast.literal_eval(value).split() for part in (option, place)]
    return options


def main(requirements: str, *more: str) -> int:
    wanted = [*SAME, "-r", requirements, *more]
    pip, uv = [sys.executable, "-m", "pip"], Path(sys.executable).with_name("uv")
    if uv.exists():
        said = subprocess.run([*pip, "config", "list"], capture_output=True, text=True).stdout
        command = [str(uv), "pip", "install", "--python", sys.executable, *uv_options(said), *wanted]
        if subprocess.run(command).returncode == 0:
            return 0
        print("uv cannot install these packages: pip tries", file=sys.stderr)
    return subprocess.run([*pip, "install", "--no-compile", *wanted]).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
