"""Bytes of LiteRT's library, which an app would carry in place of membound's C++, as its wheels have it.

    pip download ai-edge-litert==2.3.0 --no-deps --only-binary :all: --platform manylinux_2_27_aarch64 -d wheels
    python benchmarks/litert_size.py wheels/*.whl --out results/litert-size.json

`library_bytes` is libLiteRt.so, the runtime with its C interface, XNNPACK and its operators, as it lies in the wheel
(stripped). Accelerators for GPUs are libraries of their own, and not counted. A file's size depends on no machine.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from _record import arguments, record

LIBRARY = "ai_edge_litert/libLiteRt.so"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    rows = []
    for wheel in sorted(options.wheels):
        package, version, *_, platform = wheel.stem.split("-")
        with zipfile.ZipFile(wheel) as archive:
            library_bytes = archive.getinfo(LIBRARY).file_size
        rows.append(
            {"package": package, "version": version, "platform": platform, "library_bytes": library_bytes}
        )
        print(platform, f"{library_bytes:,}")
    record(options.out, {"library": LIBRARY, "rows": rows})


if __name__ == "__main__":
    main()
