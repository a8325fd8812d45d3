"""A network brought under bounds in stages: the way there, and what it ends with."""

from matplotlib.figure import Figure

from membound.paper import imagenet
from membound.paper.pictures.looks import (
    BLACK,
    BLUE,
    GREY,
    VERMILLION,
    Look,
    Numbers,
    add_legend,
    add_title,
    draw_spread,
    make_figure,
    set_log,
)

WAYS = {"dense": Look(BLACK, "o"), "thresholded": Look(BLUE, "v"), "sparse": Look(VERMILLION, "s")}


def draw_imagenet(numbers: Numbers) -> Figure:
    """Every step that was tried, and the three networks on the test images."""
    figure = make_figure(7.4)
    way, end = figure.subplots(2, 1)
    for row in numbers["rows"]:
        path = row["path"]
        accepted = [each for each in path if each["accepted"]]
        refused = [each for each in path if not each["accepted"]]
        xs, ys = ([each[name] for each in accepted] for name in ("nonzeros", "validation"))
        way.plot(xs, ys, color=BLUE, marker="o", label="accepted")
        if refused:
            xs, ys = ([each[name] for each in refused] for name in ("nonzeros", "validation"))
            way.plot(xs, ys, color=GREY, marker="x", linestyle="none", label="taken back, or trained on")
    set_log(way, "x", [each["nonzeros"] for row in numbers["rows"] for each in row["path"]])
    way.set(xlabel="nonzeros in all", ylabel="validation accuracy, %")
    add_title(way, f"{numbers['data']}, {numbers['classes']:,} classes: step by step")
    found = imagenet.means(numbers)
    for number, (name, look) in enumerate(WAYS.items()):
        points = [(at, value) for at, value in enumerate((found[name]["top1"], found[name]["top5"])) if value]
        draw_spread(
            end,
            [(at + (number - 1) / 12, value) for at, value in points],
            Look(look.colour, look.marker, ""),
            name,
        )
    end.set(xticks=[0, 1], xticklabels=["top-1", "top-5"], xlim=(-0.5, 1.5), ylabel="test accuracy, %")
    add_legend(figure, [way, end], 3)
    return figure
