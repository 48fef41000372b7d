# SPDX-License-Identifier: BSD-3-Clause
"""check_links.py FOLDER: every link within a site leads to a file that is there, and to a place in it."""
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The places of a page, and where its links lead."""

    def __init__(self, path):
        super().__init__()
        self.places, self.links = set(), set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.places.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)


def fault(path, link, pages):
    """What is wrong with a link of the page at path, or None."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return "is not there"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
        return "has no such place"
    return None


top = Path(sys.argv[1]).resolve()
pages = {path: Page(path) for path in top.rglob("*.html")}
faults = [
    f"{path.relative_to(top)}: {link} {fault(path, link, pages)}"
    for path, page in sorted(pages.items())
    for link in sorted(page.links)
    if fault(path, link, pages)
]
print("\n".join(faults) if faults else f"{len(pages)} pages, all links lead to something")
sys.exit(bool(faults) or not pages)
