"""Local response normalisation: torch exports it in pieces, found here by what they compute."""

from dataclasses import dataclass
from typing import Any

from torch import fx


@dataclass(frozen=True)
class Lrn:
    """x / (k + alpha / size sum x^2)^beta, the sum over `size` channels around."""

    input: fx.Node
    size: int
    alpha: float
    beta: float
    k: float


def find_lrn(node: fx.Node) -> Lrn | None:
    """The normalisation that ends in `node`, a division: x / (mean(x * x) * alpha + k) ** beta."""
    x, power = _operands(node, "div")
    base, beta = _operands(power, "pow")
    scaled, k = _operands(base, "add")
    mean, alpha = _operands(scaled, "mul")
    if not (isinstance(x, fx.Node) and _is_number(beta) and _is_number(k) and _is_number(alpha)):
        return None
    mean = _behind(mean, "view", "reshape", "squeeze")
    if _name(mean) not in ("avg_pool3d", "avg_pool2d"):
        return None
    padded, kernel, stride, *others = mean.args
    size = kernel[0]
    if any(n != 1 for n in (*kernel[1:], *stride)) or others:
        return None
    squares = padded
    if _name(padded) in ("pad", "constant_pad_nd"):
        squares, pads, *fill = padded.args
        if list(pads) != [0] * (2 * (len(kernel) - 1)) + [size // 2, (size - 1) // 2] or fill not in (
            [],
            ["constant"],
        ):
            return None
    elif size != 1:
        return None
    squares = _behind(squares, "view", "reshape", "unsqueeze")
    left, right = _operands(squares, "mul")
    if left is not x or right is not x:
        return None
    return Lrn(x, int(size), float(alpha), float(beta), float(k))


def _operands(node: Any, op: str) -> tuple[Any, Any]:
    if _name(node) != op or len(node.args) != 2 or node.kwargs:
        return None, None
    return node.args[0], node.args[1]


def _behind(node: Any, *ops: str) -> Any:
    """The node behind reshapes."""
    while _name(node) in ops:
        node = node.args[0]
    return node


def _name(node: Any) -> str:
    target = getattr(node, "target", None)
    return str(getattr(target, "_opname", "")) if isinstance(node, fx.Node) else ""


def _is_number(found: Any) -> bool:
    return isinstance(found, (int, float))
