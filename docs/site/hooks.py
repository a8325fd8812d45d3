"""What mkdocs does for our pages beyond its own: the files of the root are pages too, and links leave the site nowhere.

Numbers in tables stay on one line with their units, and dashes with the option that they begin.

The documents are written to be read in a checkout, so that they link to source, examples and results. On the site
such a link becomes its text. A link to what does not exist is a warning, which ends a strict build.
"""

import logging
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FROM_ROOT = {"index.md": "README.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
PAGE_OF = {ROOT / name: page for page, name in FROM_ROOT.items()}
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")
CELL = re.compile(r"<t[dh][^>]*>.*?</t[dh]>", re.DOTALL)
WITH_UNIT = re.compile(r"(?<=\d) (?=±|%|KB|MB|KiB|MiB|ms\b|bytes\b|points\b)|(?<=±) (?=\d)")
INLINE = re.compile(r"(<pre.*?</pre>)|<code>(.*?)</code>", re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
log = logging.getLogger("mkdocs.hooks")


def on_files(files: Files, config: Any) -> Files:
    for page, name in FROM_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = ROOT if page.file.src_uri in FROM_ROOT else DOCS / Path(page.file.src_uri).parent
    return LINK.sub(lambda found: _relink(found, folder, page.file.src_uri), markdown)


def on_page_content(html: str, **_: Any) -> str:
    html = CELL.sub(lambda cell: WITH_UNIT.sub("&nbsp;", cell[0]), html)
    return INLINE.sub(lambda code: code[1] or f"<code>{OPTION.sub(_whole, code[2])}</code>", html)


def _whole(option: re.Match[str]) -> str:
    return f'<span class="option">{option[0]}</span>'


def _relink(found: re.Match[str], folder: Path, page: str) -> str:
    picture, text, target, anchor = found.groups()
    path = Path(os.path.normpath(folder / target))
    if not path.exists():
        log.warning("%s links to %s, which does not exist", page, target)
    inside = PAGE_OF.get(path) or (path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else None)
    return text if inside is None else f"{picture}[{text}]({inside}{anchor or ''})"
