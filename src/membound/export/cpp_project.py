"""A folder with a network as C++ for apps: its plan and weights, the kernels' sources, a C header, how to build it."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from membound.errors import ModelError, check_path_like, shown
from membound.export import cpp_templates as templates
from membound.export import folder as folders
from membound.export.cpp_build import CMAKE, makefile_text
from membound.export.cpp_selftest import selftest_files
from membound.export.cpp_source import Source, check_prefix, make_source, renamed
from membound.run.common import preprocess_of
from membound.run.files import find_model_file
from membound.run.net import Net, chosen_engine, in_integers
from membound.signatures import known_keywords
from membound.store.file import read

KERNELS = "membound"  # the folder of their sources
NOT_TO_RUN = ("bindings", "project")  # how names begin of what Python and training need
# What a stripped program has beside the weights, in results/cpp-export-arm.json and cpp-export-size-x86.json.
CODE = "less than a megabyte on 64-bit Arm, 1.2 MB on x86-64"


@dataclass(frozen=True)
class CppFolder:
    """What was written: `weight_bytes` are the constants that the network adds to a program, beside the code."""

    folder: Path
    weight_bytes: int
    file_bytes: int
    prepares: bool = True  # whether it has net_prepare,
    takes_pixels: bool = True  # and that takes pixels, as they are in pictures
    kept: tuple[str, ...] = ()  # files of an earlier export that you edited, and stay
    changed: str | None = None  # what an app relies on and is not as in the earlier export: shapes, classes
    engine: str = "float"  # how it computes
    may_use_integers: bool = field(
        default=False, repr=False
    )  # whether the engine int8 has convolutions to compute in integers


@known_keywords
def export_cpp(
    net: Net | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    prefix: str = "net",
    engine: str | None = None,
) -> CppFolder:
    """Write a network as C++ for apps into a folder: the fast runtime, weights compiled in, behind a C header.

    `net` is a model file or a network that `load` gave. `prefix` begins the names of functions and files, so that a
    program can have several networks: `digits` makes `digits.h` with `digits_open`.

    The folder is new or empty, or holds an earlier export, which is replaced: a `main.cpp`, `CMakeLists.txt` or
    `Makefile` that you edited stays (`kept` names it), and so do your own files.

    The folder builds with CMake and any C++17 compiler for a 64-bit CPU, and needs nothing else. Its outputs are those
    of `net(x)`, bit for bit on the same kind of CPU. `engine` is how it computes there, "float" or "int8": by default
    as `net` does.
    """
    check_prefix(prefix)
    check_path_like(folder, "folder")
    folders.check_target(Path(folder), f"{prefix}.h", _first_line(prefix))
    if isinstance(net, Net):
        model, engine = net.model, chosen_engine(engine, net.engine)
    else:
        check_path_like(net, "net")
        model, engine = read(find_model_file(Path(net))), chosen_engine(engine)
    ready = Net(model, threads=1, engine=engine)  # what cannot be run is refused here, not on a phone
    source = make_source(model, prefix, engine)
    before = _read_earlier(Path(folder) / f"{prefix}.cpp")
    kept = write_project(Path(folder), source, selftest_files(ready, prefix), prefix, engine)
    how = preprocess_of(model)
    pixels = how is not None and how.takes == "uint8"
    return CppFolder(
        Path(folder),
        source.constants.nbytes,
        model.file_bytes,
        how is not None,
        pixels,
        tuple(kept),
        None if before is None else describe_change(before, source.source, prefix),
        engine,
        ready.engine == "float" and in_integers(ready) is not None,
    )


def say_engine(engine: str, source: str | None = None) -> str:
    """How a program computes; `source` is the model file of which the engine int8 could compute a part in integers.

    The command line writes keywords as its options.

    >>> say_engine("int8", "net.safetensors"), say_engine("float")
    ('int8: convolutions in 8-bit integers', 'float')
    >>> say_engine("float", "net.safetensors")
    "float (int8 may be faster: membound bench net.safetensors int8=True; export with engine='int8')"
    """
    if engine == "int8":
        return "int8: convolutions in 8-bit integers"
    if source is None:
        return engine
    race = f"membound bench {shlex.quote(source)} int8=True"
    return f"{engine} (int8 may be faster: {race}; export with engine='int8')"


def describe_change(before: str, after: str, prefix: str = "net") -> str | None:
    """What two texts of net.cpp say of inputs, outputs and classes, where they differ, and what must change with it."""
    (old, old_names), (new, new_names) = map(_interface, (before, after))
    was, now = ([part for part in one if part not in other] for one, other in ((old, new), (new, old)))
    said = []
    if was or now:
        had, has = (", ".join(parts) or "nothing of these" for parts in (was, now))
        said.append(
            f"the old export had {had}, this one has {has}; update any code that relies on the sizes in {prefix}.h"
        )
    if len(old_names) != len(new_names):
        had, has = (str(len(names)) if names else "none" for names in (old_names, new_names))
        said.append(
            f"the old export named {'1 class' if had == '1' else 'no classes' if had == 'none' else f'{had} classes'}, "
            f"this one names {has}; update any code that uses {prefix}_class"
        )
    elif old_names != new_names:
        number = next(i for i, name in enumerate(old_names) if name != new_names[i])
        had, has = (shown(names[number]) for names in (old_names, new_names))
        said.append(
            f"the old export named class {number} {had}, this one names it {has}; update any code that uses "
            f"{prefix}_class or expects that class"
        )
    return "; ".join(said) or None


def _interface(source: str) -> tuple[list[str], list[str]]:
    """Shapes and sizes, as describe_interface lists them, and the names of the classes."""
    found = re.search(r"const membound::Interface needed\{(?:\w+, )?\"([^\"]*)\"", source)
    parts = [] if found is None else found[1].split(", ")
    listed = re.search(
        r"^static const char\* const class_names\[\] = \{\n(.*?)^\};", source, re.DOTALL | re.MULTILINE
    )
    escaped = [] if listed is None else re.findall(r'^    "(.*)",$', listed[1], re.MULTILINE)
    names = [re.sub(rb"\\(\d{3})", lambda code: bytes([int(code[1], 8)]), name.encode()) for name in escaped]
    plain = [part for part in parts if not re.search(r"classes \(\w+\)$", part)]
    return plain, [name.decode(errors="replace") for name in names]


def _read_earlier(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return None


def kernel_files() -> list[Path]:
    """The sources of the kernels: in an installed package, or in a checkout."""
    here = Path(__file__).parent
    for folder in (here / "cpp", here.parents[1] / "kernels"):
        if (folder / "app.cpp").is_file():
            found = [path for path in folder.iterdir() if path.suffix in (".h", ".inc", ".cpp", ".cmake")]
            licenses = (folder / "LICENSE", here.parents[2] / "LICENSE")
            found += [path for path in licenses if path.is_file()][:1]
            return sorted(path for path in found if not path.name.startswith(NOT_TO_RUN))
    raise ModelError("the sources of the kernels are not installed: reinstall membound")


def write_project(
    folder: Path, source: Source, tests: Mapping[str, str], prefix: str, engine: str
) -> list[str]:
    """The folder, whole or not at all. Gives the names of files that were edited since an earlier export, and stay."""
    files: dict[str, Iterable[bytes]] = {
        f"{prefix}.h": [source.header.encode()],
        f"{prefix}.cpp": [source.source.encode()],
        "weights.cpp": source.constants.text(prefix),
        **{name: [text.encode()] for name, text in tests.items()},
        "main.cpp": [source.main.encode()],
        "CMakeLists.txt": [renamed(CMAKE, prefix).encode()],
        "Makefile": [makefile_text(prefix).encode()],
        "README.md": [renamed(readme_text(source, engine), prefix).encode()],
        **{f"{KERNELS}/{path.name}": [path.read_bytes()] for path in kernel_files()},
    }
    may_be_edited = ("main.cpp", "CMakeLists.txt", "Makefile")
    return folders.write_files(folder, files, f"{prefix}.h", _first_line(prefix), may_be_edited)


def _first_line(prefix: str) -> str:
    return renamed(templates.HEADER, prefix).split("\n", 1)[0]


def readme_text(source: Source, engine: str = "float") -> str:
    """What is in the folder, and how it becomes part of an app."""
    pictures = ""
    if "_TAKES_PIXELS" in source.header:
        pictures = """
A picture becomes pixels as in training: RGB (or gray, 0.299 R + 0.587 G + 0.114 B), resized with an antialiased
bilinear filter to just cover NET_IMAGE_HEIGHT x NET_IMAGE_WIDTH, then its center. `net_prepare` does the rest.
"""
    how = ""
    if engine == "int8":
        how = """
It computes convolutions that keep many weights in 8-bit integers (`--engine int8`); give an update (`--cpp-file`) the
same option.
"""
    return f"""# A network as C++, with {source.constants.nbytes:,} bytes of weights

`net.h` says how it is called, in plain C; `main.cpp` calls it. `weights.cpp` has the weights in the formats of the
model file, `net.cpp` what is computed with them, and `membound/` the kernels: NEON on Arm, AVX2 and AVX-512 on x86-64,
chosen as the program runs. Any C++17 compiler of the GCC or Clang family builds it for a 64-bit CPU. It needs no other
library.
{how}
    cmake -S . -B build && cmake --build build -j 4 && build/main --check && build/main

or, without CMake,

    make -j 4 && make check

Both give each kernel the compiler flags that it needs, such as -mavx2, and all others none: built without them, a
network runs on the scalar kernels, many times slower. `main` prints which kernels run, and `net_kernels()` tells your
app. In a build system of your own, take the flags from `Makefile`, file by file.

`main --check` is the self test: the network runs on noise, and its outputs must be those that Python gave. `net_test.h`
declares it as `net_selftest`, for an app to call when you try another phone or another compiler; a program that does
not call it does not contain it. Outputs may be off by NET_TEST_TOLERANCE of the largest, because CPUs of another kind
add in another order; on the kind that exported it, they are the same, bit for bit. One input cannot catch every flipped
bit.

In a CMake project of your own:

    add_subdirectory(path/to/this/folder)
    target_link_libraries(app PRIVATE net)

Android: name this CMakeLists.txt, or yours that adds this folder, under externalNativeBuild; use the ABIs arm64-v8a and
x86_64. iOS: cmake -G Xcode -DCMAKE_SYSTEM_NAME=iOS -DCMAKE_OSX_ARCHITECTURES=arm64, or add all files but `main.cpp` and
those with avx in their names to a target that defines MEMBOUND_NEON. Swift takes `net.h` as its bridging header.
{pictures}
The kernels take a minute to compile, and are compiled with optimization in debug builds, too. `membound/LICENSE` is
theirs.
"""
