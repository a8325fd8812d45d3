"""HTML and SVG as text, in which everything is escaped that was not made here."""

import html
import re

VOID = {"br", "link", "meta", "wbr"}
SHAPES = {"circle", "line", "path", "rect"}  # elements of SVG that close themselves
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]"
)  # HTML has no way to write them


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(value: object) -> Markup:
    """`value` as text for HTML; what is Markup stays as it is.

    >>> escape("a<b"), escape(Markup("<b>"))
    ('a&lt;b', '<b>')
    """
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(value))))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element; a child or an attribute that is None is left out.

    >>> tag("p", "1 < 2", tag("b", "yes"), class_="note", data_key="x")
    '<p class="note" data-key="x">1 &lt; 2<b>yes</b></p>'
    """
    written = [
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    ]
    inside = join(*children)
    opening = f"<{name}{''.join(written)}"
    if name in VOID:
        return Markup(f"{opening}>")
    if name in SHAPES and not inside:
        return Markup(f"{opening}/>")
    return Markup(f"{opening}>{inside}</{name}>")


def join(*children: object) -> Markup:
    """The children one after the other, escaped where needed, without those that are None.

    >>> join("a", None, tag("br"), "&")
    'a<br>&amp;'
    """
    return Markup("".join(escape(child) for child in children if child is not None))


def breakable(text: str) -> Markup:
    """Where a line is too long, it ends after a dot, a colon or a slash rather than within a name.

    >>> breakable("examples.digits:digits in 8KB")
    'examples.<wbr>digits:<wbr>digits in 8KB'
    """
    parts = re.split(r"(?<=[.:/\\])(?=\S)", text)
    return join(*(part if number == 0 else join(tag("wbr"), part) for number, part in enumerate(parts)))


def _attribute(value: object) -> str:
    """A tenth of a pixel is enough."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return escape(value)


def code(text: str) -> Markup:
    """Lines that wrap, but never within the dashes of an option."""
    return tag("pre", tag("code", *keep_options(text)))


def keep_options(text: str) -> list[Markup | str]:
    """Words, those that are options in one piece, also in parentheses.

    >>> "".join(keep_options("a wider one (--widths 1,2)"))
    'a wider one <span>(--widths</span> 1,2)'
    """
    words = re.split(r"(\s+)", text)
    return [tag("span", word) if re.match(r"\W*-\w", word) else word for word in words]
