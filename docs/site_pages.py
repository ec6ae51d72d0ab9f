"""Fits the pages of the repository to a site, for ``make docs``.

The README is its first page. Links to files outside the documentation, which a site has not, become
plain text; one to a file that does not exist fails the build.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Warnings of this logger fail a strict build.
_log = logging.getLogger("mkdocs.plugins.site_pages")
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the README as ``index.md``."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    content = readme.replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Makes links that lead out of the documentation plain text."""
    # Links of the README were relative to the root.
    is_first = page.file.src_uri == "index.md"
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def within(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[2]))
        if path.startswith("docs/") and ((ROOT / path).exists() or not is_first):
            return link[0]
        if not (ROOT / (link[2] if is_first else path)).exists():
            _log.warning("%s: there is no %s", page.file.src_uri, path)
        return link[1]

    return _LINK.sub(within, markdown)
