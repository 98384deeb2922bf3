"""The place from which a new project installs ks-actors: as the running ks-actors was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

if TYPE_CHECKING:
    from importlib.metadata import Distribution

EXTRAS = "cli,kafka,prometheus,uvloop,web"
_NAME = f"ks-actors[{EXTRAS}]"
# These make the package, and no others of the checkout's files do.
_FILES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
_PACKAGES = ("actors", "ks_actors")


class Source(NamedTuple):
    """A requirement, and the local file or directory that it names, if any."""

    requirement: str
    path: Path | None = None

    def copies(self) -> str:
        """Return the lines of a Dockerfile that copy the local source to its own path."""
        if self.path is None:
            return ""
        if self.path.is_dir():
            copied = [
                ([*_FILES], f"{self.path}/"),
                *(([each], f"{self.path / each}") for each in _PACKAGES),
            ]
        else:
            copied = [([self.path.name], str(self.path))]
        lines = (json.dumps([*names, to], ensure_ascii=False) for names, to in copied)
        return "".join(f"COPY --from=ks-actors {line}\n" for line in lines)

    def contexts(self) -> str:
        """Return the lines of a compose file that give `copies` its source."""
        if self.path is None:
            return ""
        directory = self.path if self.path.is_dir() else self.path.parent
        quoted = json.dumps(str(directory), ensure_ascii=False).replace("$", "$$")
        return f"      additional_contexts:\n        ks-actors: {quoted}\n"


def source_of(installed: Distribution, checkout: Path) -> Source:
    """Return the source of an installation; `checkout` is the directory above its packages.

    The source is the checkout that ks-actors runs from, or the file, directory or repository that
    it was installed from (PEP 610), or else the package index, for at least this version.
    """
    if (checkout / _FILES[0]).is_file() and (checkout / _FILES[1]).is_file():
        return Source(f"{_NAME} @ {checkout.as_uri()}", checkout)
    text = installed.read_text("direct_url.json")
    if text is None:
        return Source(f"{_NAME}>={installed.version}")
    found = json.loads(text)
    url = found["url"]
    if "vcs_info" in found:
        url = f"{found['vcs_info']['vcs']}+{url}@{found['vcs_info']['commit_id']}"
    fragment = f"#subdirectory={found['subdirectory']}" if "subdirectory" in found else ""
    parts = urlsplit(url)
    path = Path(url2pathname(parts.path)) if parts.scheme == "file" else None
    return Source(f"{_NAME} @ {url}{fragment}", path)
