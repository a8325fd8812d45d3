"""The paper's AlexNet: what is said about its numbers, and the whole of it on made-up images in ImageNet's layout."""

import json

import numpy as np
import pytest
from PIL import Image

from membound.cli import main
from membound.paper import imagenet
from membound.paper.pictures import save


def row(seed, dense, thresholded, sparse, fc6=3_000_000):
    scores = {"dense": dense, "thresholded": thresholded, "sparse": sparse}
    path = [(60_965_224, dense, True), (20_000_000, dense - 9, False), (30_000_000, dense - 0.2, True)]
    return {
        "seed": seed,
        **{way: {"top1": value, "top5": value + 20} for way, value in scores.items()},
        "counts": {"fc8.weight": 400_000, "fc6.weight": fc6, "fc7.weight": 3_000_000},
        "steps": 2,
        "path": [{"nonzeros": n, "validation": v, "accepted": a} for n, v, a in path],
        "bytes": 42_000_000,
        "bytes_f16": 22_000_000,
        "kept": 0.14,
    }


def result(*rows):
    wanted = {"fc8.weight": 400_000, "fc6.weight": 3_000_000, "fc7.weight": 3_000_000}
    about = {"data": "photos", "classes": 1000, "wanted": wanted, "dense_bytes": 243_860_896}
    return {**about, "rows": list(rows)}


def holds(numbers):
    return [each["holds"] for each in imagenet.claims(numbers)]


def test_claims_follow_from_the_numbers():
    assert holds(result(row(0, 57.3, 38.9, 57.0), row(1, 57.1, 38.5, 56.9))) == [True, True, True, True]
    assert holds(result(row(0, 57.3, 38.9, 55.6))) == [True, False, True, True]  # the paper's own
    assert holds(result(row(0, 57.3, 38.9, 45.0, fc6=4_000_000))) == [False, False, False, True]
    assert holds(result(row(0, 57.3, 57.0, 57.3)))[2] is None  # thresholding costs nothing here


def test_a_difference_that_its_seeds_do_not_decide_is_no_verdict():
    near = [row(seed, dense, 38.9, dense - 0.4) for seed, dense in enumerate((57.3, 56.1, 57.0, 56.5, 57.2))]
    for seeds, verdict in (
        (2, "too few seeds to tell"),
        (4, "too few seeds to tell"),
        (5, "within the spread"),
    ):
        found = imagenet.claims(result(*near[:seeds]))
        assert [each["verdict"] for each in found][:2] == ["holds", verdict]
    far = result(row(0, 57.3, 38.9, 50.0), row(1, 56.1, 38.5, 50.4), row(2, 57.0, 38.5, 50.1))
    assert imagenet.claims(far)[1]["verdict"] == "does not hold"


def test_the_table_has_the_papers_numbers_beside(tmp_path):
    numbers = result(row(0, 57.3, 38.9, 57.0), row(1, 57.1, 38.5, 56.9))
    rows = {cells[0]: cells for cells in imagenet.table(numbers)}
    assert rows["dense"][1:] == ["57.20 ± 0.14", "77.20 ± 0.14", "232.6", "57.28 / 80.44"]
    assert rows["sparse"][3] == "40.1"
    save(tmp_path, "imagenet", {"numbers": numbers, "about": imagenet.__doc__})
    assert (tmp_path / "imagenet.svg").stat().st_size > 5000


def run(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return stopped.value.code


def refused(capsys, *arguments):
    assert run(*arguments) == 1
    return capsys.readouterr().err


def test_images_are_asked_for_and_not_where_they_would_not_be_used(capsys, tmp_path):
    assert "reproduce imagenet needs its images: add --data FOLDER" in refused(
        capsys, "reproduce", "imagenet"
    )
    assert "--data is for imagenet" in refused(capsys, "reproduce", "memory", "--data", str(tmp_path))
    assert "--batch-size is for imagenet" in refused(capsys, "reproduce", "memory", "--batch-size", "3")


@pytest.mark.full
def test_every_stage_passes_on_a_folder_with_a_thousand_classes(tmp_path, capsys):
    """Three files a class to train on, some of them corrupt, some CMYK."""
    random = np.random.default_rng(0)
    corrupt = 0
    for half, count in (("train", 3), ("val", 2)):
        for number in range(1000):
            folder = tmp_path / "net" / half / f"n{1_440_764 + 37 * number:08d}"
            folder.mkdir(parents=True)
            for copy in range(count):
                image = Image.fromarray(random.integers(0, 256, (6, 8, 3), np.uint8)).resize((90, 64))
                file = folder / f"{folder.name}_{copy}.JPEG"
                (image.convert("CMYK") if number % 97 == copy else image).save(file, quality=80)
                if (3 * number + copy) % 211 == 5:
                    corrupt += 1
                    file.write_bytes(file.read_bytes()[:100])
    command = ["reproduce", "imagenet", "--quick", "--skip-corrupt", "--device", "cpu", "--json"]
    command += [
        "--data",
        str(tmp_path / "net"),
        "--cache",
        str(tmp_path / "cache"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert run(*command) == 0
    said = capsys.readouterr()
    assert f"cannot be decoded: {corrupt}" in said.err
    found = json.loads(said.out)
    assert found["numbers"]["classes"] == 1000
    assert found["numbers"]["rows"][0]["counts"] == found["numbers"]["wanted"]
    assert found["quick"] is True
    assert run(*command) == 0  # what was trained is not trained again
    assert json.loads(capsys.readouterr().out)["date"] == found["date"]
