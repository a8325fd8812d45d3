"""A network as a web page: the C of microcontrollers as WebAssembly, inside one HTML file that loads nothing else."""

import base64
import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from membound.data.pictures import sides
from membound.errors import ModelError
from membound.export.c_project import project_files
from membound.export.hub_folder import check_folder
from membound.export.web_page import page_text
from membound.run.micro_net import MicroNet
from membound.run.pictures import picture_size
from membound.store.whole import write_whole

# What the page calls, and all of libc that the runtime needs.
WEB_C = """#include "net.h"

#include <string.h>

static net_context context;
static uint8_t image[NET_CHANNELS * NET_HEIGHT * NET_WIDTH];

void *memcpy(void *to, const void *from, size_t n) {
  size_t i;
  for (i = 0; i < n; i++) ((char *)to)[i] = ((const char *)from)[i];
  return to;
}

void *memset(void *to, int value, size_t n) {
  size_t i;
  for (i = 0; i < n; i++) ((char *)to)[i] = (char)value;
  return to;
}

/* Where the page writes an image: pixel by pixel, NET_CHANNELS bytes each. */
__attribute__((export_name("image"))) uint8_t *web_image(void) { return image; }

__attribute__((export_name("run"))) void web_run(void) {
  uint32_t y;
  net_start(&context);
  for (y = 0; y < NET_HEIGHT; y++) net_feed_row(&context, image + y * NET_WIDTH * NET_CHANNELS, 1, NET_CHANNELS);
}

__attribute__((export_name("output"))) int32_t web_output(uint32_t index) { return net_output(&context, index); }
"""
STRING_H = """#include <stddef.h>
void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);
"""
SOURCES = ("web.c", "net.c", "membound_micro.c", "membound_micro_conv.c")
FLAGS = ("-Os", "-ffreestanding", "-fno-builtin", "-nostdlib", "-Wl,--no-entry", "-Wl,--strip-all", "-I.")


def compiler() -> list[str]:
    """A compiler for WebAssembly: zig from the package index, or clang with its linker."""
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-freestanding"]
    clang, linker = shutil.which("clang"), shutil.which("wasm-ld")
    if clang and linker:
        return ["clang", "-target", "wasm32"]
    found, remedy = "there is no compiler for WebAssembly", "install clang and lld"
    if clang:
        found, remedy = "clang is here, but its linker for WebAssembly, wasm-ld, is not", "install lld"
    raise ModelError(
        f"{found}: pip install ziglang (in a checkout, pip install '.[web]'), or {remedy}", about="web"
    )


def compile_wasm(net: MicroNet) -> bytes:
    """The network as a WebAssembly module that exports image, run, output and its memory."""
    command = compiler()
    with tempfile.TemporaryDirectory() as folder:
        files = {**project_files(net.plan), "web.c": WEB_C, "string.h": STRING_H}
        for name, text in files.items():
            Path(folder, name).write_text(text)
        done = subprocess.run(
            [*command, *FLAGS, *SOURCES, "-o", "net.wasm"], cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            said = next((line for line in done.stderr.splitlines() if "error" in line), "it does not say why")
            raise ModelError(f"{command[0]} cannot compile the network to WebAssembly: {said[:300]}")
        return Path(folder, "net.wasm").read_bytes()


def write_page(folder: str | os.PathLike[str], net: MicroNet) -> dict[str, int]:
    """A folder with index.html and net.wasm, whole or not at all; their bytes."""
    target = Path(folder)
    check_folder(target)
    if not net.plan.net.takes_pixels or net.input_shape[:1] not in ((1,), (3,)) or len(net.input_shape) != 3:
        raise ModelError(
            f"a page shows gray or color pictures, and this network takes {list(net.input_shape)} of what its file "
            "does not prepare from pixels: save it with its preprocess",
            about="web",
        )
    module = compile_wasm(net)
    page = page_text(json.dumps(_about(net, len(module))), base64.b64encode(module).decode())
    aside = target.absolute().with_name(f".membound-{secrets.token_hex(8)}.part")
    try:
        aside.mkdir()
        write_whole(aside / "index.html", [page.encode()], target)
        write_whole(aside / "net.wasm", [module], target)
        aside.rename(target)
    except OSError as error:
        raise ModelError(f"{target}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return {"page_bytes": len(page.encode()), "wasm_bytes": len(module)}


def _about(net: MicroNet, wasm_bytes: int) -> dict[str, object]:
    last, memory = net.plan.net.quantizations[net.plan.net.output], net.memory()
    channels, height, width = net.input_shape
    picture = picture_size(net.model, net.input_shape)
    outputs = 1
    for side in net.output_shape:
        outputs *= side
    return {
        "channels": channels,
        "height": height,
        "width": width,
        "picture": [height, width] if picture is None else [*sides(picture)],
        "outputs": outputs,
        "scale": last.scale,
        "zero": last.zero,
        "classes": net.classes or [str(index) for index in range(outputs)],
        "constants": memory.constants,
        "context": memory.context,
        "wasm": wasm_bytes,
    }
