"""Hooks of MkDocs: diagrams in the colors of the page, Markdown beside each page, and llms.txt."""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

IN_SHORT = re.compile(r'^!!! abstract "In short"\n((?:    .+\n)+)', re.MULTILINE)
OBJECT = re.compile(r"^::: (\S+)\n(?:    .*\n)*", re.MULTILINE)
PICTURE = re.compile(r'<img alt="[^"]*" src="([^"]+\.svg)"[^>]*>')
QUOTED = re.compile(r"(: |-> )'([^']*)'")
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
ORDER: list[Page] = []
signature: Callable[[Any], str] = runpy.run_path(str(Path(__file__).with_name("public_api")))["signature"]


def on_nav(nav: Navigation, **_: Any) -> None:
    """Keep the pages in the order of the navigation."""
    ORDER[:] = nav.pages


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Put diagrams into the page itself: only there does `currentColor` follow its light and dark colors."""
    here = Path(page.file.abs_src_path or "").parent
    return PICTURE.sub(lambda found: drawing(here / found[1]), html)


def drawing(path: Path) -> str:
    """Return a diagram without the style that it has for itself."""
    return re.sub(r"<style>.*?</style>\n?", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Write the Markdown of each page beside it, and the list of all pages for programs."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    section: str | None = None
    for page in ORDER:
        text = Path(page.file.abs_src_path or "").read_text(encoding="utf-8")
        place = page.file.dest_uri.removesuffix(".html") + ".md"
        (site / place).write_text(OBJECT.sub(lambda found: described(found[1]), text), encoding="utf-8")
        top = next(reversed([*page.ancestors]), page).title
        if top != section:
            section = top
            lines += ["", f"## {section}", ""]
        lines.append(f"- [{page.title}]({place}): {in_short(text)}")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def in_short(text: str) -> str:
    """Return the summary at the top of a page, without links."""
    found = IN_SHORT.search(text)
    return "" if found is None else LINK.sub(r"\1", " ".join(found[1].split()))


def described(path: str) -> str:
    """Return an object of the reference as Markdown: signature and docstring, and those of its public methods."""
    module, name = path, ""
    while True:
        module, _, last = module.rpartition(".")
        name = f"{last}.{name}" if name else last
        try:
            value: Any = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        break
    for part in name.split("."):
        value = getattr(value, part)
    lines = [f"### {path}{signature(value) if callable(value) else ''}", "", documented(value), ""]
    members = vars(value).items() if inspect.isclass(value) else ()
    for member, raw in members:
        method = getattr(raw, "__func__", raw)
        if not member.startswith("_") and inspect.isfunction(method) and method.__doc__:
            lines += [f"#### {member}", "", *code(method, member), documented(method), ""]
    return "\n".join(lines) + "\n"


def code(value: Any, name: str) -> list[str]:
    """Return a block with the signature of what can be called."""
    return ["```", name + QUOTED.sub(r"\1\2", signature(value)), "```", ""] if callable(value) else []


def documented(value: Any) -> str:
    """Return the docstring of a class or a function; those of other objects are about their class."""
    own = inspect.isclass(value) or inspect.isroutine(value)
    return (inspect.getdoc(value) or "") if own else ""
