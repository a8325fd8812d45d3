"""Classes in the report: those that lost the most against dense first; and examples that are no images."""

import re

from membound.report.page import make_page
from membound.report.text import Score
from membound.report.verdict import make_legend, make_lines

CLASSES = {"cat": (200, 30), "dog": (200, 10), "cow": (200, 4)}


def counted(**more: tuple[int, int]) -> list[dict[str, object]]:
    rows = (CLASSES | more).items()
    return [{"name": name, "images": images, "errors": errors} for name, (images, errors) in rows]


def section(**facts: object) -> str:
    net = {"name": "8KB", "accuracy": 92.67, "errors": 44, "images": 600, "classes": counted()}
    dense = {"accuracy": 94.0, "classes": counted(cat=(200, 34), dog=(200, 2), cow=(200, 4))}
    page = make_page({"finals": [net | facts], "dense": dense})
    return page.split("Accuracy of each class")[1].split("</section>")[0]


def test_the_class_that_lost_the_most_is_first():
    found = section()
    rows = re.findall(r'scope="row" class="text">(\w+)</th><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td>', found)
    assert rows == [
        ("dog", '95.0<small class="worse">\N{MINUS SIGN}4.0</small>', "99.0", "200"),
        ("cow", "98.0", "98.0", "200"),
        ("cat", '85.0<small class="better">+2.0</small>', "83.0", "200"),
    ]
    assert "<details>" in found
    assert "The class that lost the most against dense comes first." in found
    assert "says little" not in found


def test_names_are_escaped_and_few_images_are_said():
    found = section(classes=counted(**{"<b>": (4, 1)}))
    assert "&lt;b&gt;" in found
    assert "<b>" not in found
    assert "A class of few images says little" in found


def test_without_counts_there_is_no_such_part():
    assert "of each class" not in make_page({"finals": [{"accuracy": 99.0, "classes": None}]})
    assert "of each class" not in make_page({"finals": [{"accuracy": 99.0, "classes": counted()[:1]}]})


def test_the_iou_of_each_class_of_pixels():
    net = {"accuracy": 0.6, "class_iou": [0.98, 0.0, None], "class_names": ["road", "sign", "dog"]}
    result = {
        "finals": [net],
        "dense": {"accuracy": 0.7, "class_iou": [0.98, 0.41, None]},
        "score_name": "mean IoU",
    }
    found = make_page(result).split("IoU of each class")[1].split("</section>")[0]
    rows = re.findall(r'scope="row" class="text">(\w+)</th><td>(.*?)</td><td>(.*?)</td>', found)
    assert rows == [
        ("sign", '0.000<small class="worse">\N{MINUS SIGN}0.410</small>', "0.410"),
        ("road", "0.980", "0.980"),
    ]
    mean = re.search(r"mean of the classes</th><td>(.*?)</td><td>(.*?)</td>", found)
    assert mean is not None
    assert mean.groups() == ('0.490<small class="worse">\N{MINUS SIGN}0.205</small>', "0.695")
    assert "IoU of each class" not in make_page({"finals": [{"accuracy": 0.6, "class_iou": [0.98]}]})


def test_segmentation_says_both_means_and_the_error_of_its_own():
    net = {"accuracy": 0.6, "class_iou": [0.9, 0.5], "image_scores": [0.5, 0.7, 0.6, 0.6], "images": 4}
    dense = {"accuracy": 0.625, "class_iou": [0.9, 0.4], "image_scores": [0.5, 0.7, 0.6, 0.7], "images": 4}
    result = {"finals": [net], "dense": dense, "score_name": "mean IoU"}
    lines = make_lines(result, Score("mean IoU", percent=False))
    assert lines[:2] == [
        "mean IoU 0.600 ± 0.041: within the spread of dense (\N{MINUS SIGN}0.025 ± 0.080).",
        "The mean IoU above is a mean over images; over the pixels of all images together, it is 0.7000, dense 0.6500.",
    ]
    (brief,) = make_legend(result, Score("mean IoU", percent=False))
    assert brief == (
        "after a score: standard error; after a difference: half its 95 % interval, paired by test example; within "
        "the spread: neither a difference nor equality is shown; another seed may differ"
    )
    page = make_page(result)
    assert "After a score, ± is its standard error over 4 test images." in page
    assert "After a difference, ± is half its 95 % confidence interval." in page
    assert lines[1] in page
    assert "0.600 \N{PLUS-MINUS SIGN} 0.041" in page


def test_a_network_of_sequences_is_told_of_examples():
    net = {"accuracy": 97.5, "errors": 20, "images": 800, "input_shape": [40, 49], "latency_ms": 0.2,
           "file": "words.safetensors", "file_bytes": 900}  # fmt: skip
    result = {"finals": [net], "dense": {"accuracy": 98.0, "errors": 16, "images": 800, "latency_ms": 0.4}}
    page = make_page(result)
    assert "image" not in re.sub(r"<style>.*?</style>|<meta.*?>", "", page, flags=re.DOTALL)
    assert "latency of one example" in page
    assert "After a score, ± is its standard error over 800 test examples. Another seed" in page
    assert "net.preprocess(examples)  # as in training: [N, 40, 49]" in re.sub("</?span>", "", page)
    assert not [line for line in make_lines(result, Score()) if "image" in line]
    pictures = net | {"input_shape": [3, 32, 32]}
    assert "latency of one image" in make_page({**result, "finals": [pictures]})
