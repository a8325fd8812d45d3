"""Two networks in one program; a runtime that is another network's; input that is no whole image."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from micro_networks import Builder, micro, some_images

import membound as mb
from membound.cli import main
from membound.errors import ModelError
from membound.export.c_project import write_project
from membound.run.calibration import with_activations
from membound.run.micro_net import MicroNet

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
STRICT = ["gcc", "-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]

BOTH = r"""#include <stdio.h>

#include "digits.h"
#include "kws.h"

int main(void) {
  static kws_context word;
  static digits_context digit;
  static uint8_t row[DIGITS_WIDTH * DIGITS_CHANNELS + KWS_WIDTH * KWS_CHANNELS];
  kws_start(&word);
  digits_start(&digit);
  for (uint32_t y = 0; y < KWS_HEIGHT; y++) { /* by turns: neither disturbs the other */
    if (fread(row, 1, KWS_WIDTH * KWS_CHANNELS, stdin) == 0) return 1;
    kws_feed_row(&word, row, 1, KWS_CHANNELS);
    if (fread(row, 1, DIGITS_WIDTH * DIGITS_CHANNELS, stdin) == 0) return 1;
    digits_feed_row(&digit, row, 1, DIGITS_CHANNELS);
  }
  for (uint32_t i = 0; i < KWS_OUTPUTS; i++) printf("%d ", kws_output(&word, i));
  for (uint32_t i = 0; i < DIGITS_OUTPUTS; i++) printf("%d ", digits_output(&digit, i));
  return 0;
}
"""


def small(channels: int, seed: int, *, stride: int = 1, values: str = "p4") -> MicroNet:
    """A network of one convolution over 6 x 5 pixels: with another stride it uses other parts of the runtime."""
    build = Builder((channels, 6, 5), seed)
    build.conv(0, 3, 3, stride)
    return micro(build.store(values, preprocess={"scale": 0.01}))


def rows_of(images: np.ndarray) -> np.ndarray:
    """As a program reads them: [row, bytes]."""
    return images[0].transpose(1, 2, 0).reshape(images.shape[2], -1)


def compiled(sources: list[Path], program: Path, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*STRICT, *options, *map(str, sources), "-o", str(program)], capture_output=True, text=True
    )


@pytest.mark.parametrize("flat", [False, True])
def test_two_networks_in_one_program_give_the_bits_of_each(tmp_path, flat):
    nets = {"kws": small(1, 0), "digits": small(3, 1, stride=2)}
    for prefix, net in nets.items():
        write_project(tmp_path / prefix, net, prefix)
    sources = [path for prefix in nets for path in (tmp_path / prefix).glob(f"{prefix}*.c")]
    folders = list(nets)
    if flat:  # all files in one folder, as in many an embedded project
        (tmp_path / "all").mkdir()
        for prefix in nets:
            for path in (tmp_path / prefix).glob(f"{prefix}*"):
                shutil.copy(path, tmp_path / "all")
        sources, folders = list((tmp_path / "all").glob("*.c")), ["all"]
    assert len(sources) == 8  # each with its self test
    main = tmp_path / "both.c"
    main.write_text(BOTH)
    done = compiled([main, *sources], tmp_path / "both", *(f"-I{tmp_path / folder}" for folder in folders))
    assert done.returncode == 0, done.stderr
    images = {prefix: some_images(net.model, 1) for prefix, net in nets.items()}
    given = np.concatenate([rows_of(images["kws"]), rows_of(images["digits"])], 1).tobytes()
    found = subprocess.run([str(tmp_path / "both")], input=given, capture_output=True, check=True)
    wanted = [net.integers(images[prefix]).reshape(-1) for prefix, net in nets.items()]
    assert np.array_equal(np.array(found.stdout.split(), int), np.concatenate(wanted))


def test_a_runtime_of_another_network_does_not_link(tmp_path):
    write_project(tmp_path / "a", small(1, 0))
    write_project(tmp_path / "b", small(1, 0, stride=2))
    mixed = [tmp_path / "a" / "main.c", tmp_path / "a" / "net.c", *(tmp_path / "b").glob("membound*.c")]
    done = compiled(mixed, tmp_path / "program")
    assert done.returncode != 0
    assert "mb_feed_row_for_" in done.stderr
    assert not (tmp_path / "program").exists()


def test_a_config_of_another_network_does_not_compile(tmp_path):
    write_project(tmp_path / "a", small(1, 0))
    write_project(tmp_path / "b", small(1, 0, stride=2))
    shutil.copy(tmp_path / "a" / "membound_micro_config.h", tmp_path / "b")
    done = compiled(list((tmp_path / "b").glob("*.c")), tmp_path / "program")
    assert done.returncode != 0
    assert "membound_micro_config.h is of another network" in done.stderr


def test_an_export_under_a_prefix_builds_and_is_replaced_like_any_other(tmp_path):
    net, folder = small(1, 0), tmp_path / "c"
    write_project(folder, net, "kws")
    first = {path.name: path.read_text() for path in folder.iterdir()}
    assert {"kws.c", "kws.h", "kws_membound_micro.c", "kws_membound_micro_config.h", "main.c"} <= set(first)
    assert not [name for name in first if name.startswith(("net", "membound"))]
    assert write_project(folder, net, "kws") == []
    assert {path.name: path.read_text() for path in folder.iterdir()} == first
    done = compiled(list(folder.glob("*.c")), tmp_path / "program")
    assert done.returncode == 0, done.stderr
    with pytest.raises(
        ModelError, match="holds an export with the prefix kws: give prefix='kws', or name"
    ) as raised:
        write_project(folder, net)
    assert raised.value.about == ("prefix",)
    (folder / "kws.h").write_text("/* mine */\n")
    with pytest.raises(ModelError, match=r"has files in it, and no net\.h that membound wrote"):
        write_project(folder, net)


def test_only_whole_images_are_run(tmp_path):
    write_project(tmp_path / "c", small(1, 0))
    assert compiled(list((tmp_path / "c").glob("*.c")), tmp_path / "program").returncode == 0
    for given, lines, said in (
        (b"", 0, f"usage: {tmp_path / 'program'} < FILE, of 30 bytes for each example\n"),
        (bytes(7), 0, "short input: an example has 30 bytes, 7 came\n"),
        (bytes(30), 1, ""),
        (bytes(75), 2, "short input: an example has 30 bytes, 15 came\n"),
    ):
        done = subprocess.run([str(tmp_path / "program")], input=given, capture_output=True)
        assert (done.returncode, done.stderr.decode()) == (int(said != ""), said)
        assert len(done.stdout.splitlines()) == lines


@pytest.fixture
def file(tmp_path):
    net = small(1, 0)
    path = tmp_path / "net.safetensors"
    path.write_bytes(b"".join(with_activations(net.model, {})))
    return path


@pytest.mark.parametrize(
    "prefix",
    [
        *(
            "Kws",
            "9",
            "while",
            "mb",
            "context",
            "row",
            "memset",
            "scale_0",
            3,
            "stdint",
            "stddef",
            "string",
            "math",
        ),
        *(
            "time",
            "errno",
            "assert",
            "linux",
            "unix",
            "membound_micro",
            "membound_micro_conv",
            "test",
            "int8",
        ),
    ],
)
def test_a_prefix_that_cannot_be_is_refused(file, tmp_path, prefix):
    with pytest.raises(ModelError, match=r"^prefix=.*such as") as raised:
        mb.export_c(file, tmp_path / "c", images=np.zeros((2, 1, 6, 5), np.uint8), prefix=prefix)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "c").exists()


def test_calibrate_is_another_name_of_images(file, tmp_path):
    images = some_images(small(1, 0).model, 24)
    one = mb.export_c(file, tmp_path / "one", images=images)
    two = mb.export_c(file, tmp_path / "two", calibrate=images)
    assert np.array_equal(one.integers(images), two.integers(images))
    with pytest.raises(ModelError, match="images= and calibrate= mean the same"):
        mb.export_c(file, tmp_path / "three", images=images, calibrate=images)


def test_the_command_takes_a_prefix(file, tmp_path, capsys):
    net = mb.export_c(file, tmp_path / "one", images=some_images(small(1, 0).model, 24), prefix="kws")
    path = tmp_path / "calibrated.safetensors"
    path.write_bytes(b"".join(with_activations(net.model, net._remake.keywords["activations"])))
    for prefix, code in (("kws", 0), ("mb", 1)):
        with pytest.raises(SystemExit) as stopped:
            main(["export", str(path), "--c", str(tmp_path / f"c-{prefix}"), "--prefix", prefix])
        assert stopped.value.code == code
    said = capsys.readouterr()
    assert "kws.c, kws.h, the runtime, kws_test.c" in said.out
    assert "the exported C uses that name itself" in said.err
    for name in ("kws.c", "kws.h", "kws_membound_micro_config.h"):
        assert (tmp_path / "c-kws" / name).read_text() == (tmp_path / "one" / name).read_text()
    assert not (tmp_path / "c-mb").exists()
