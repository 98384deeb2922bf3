"""An extension of Griffe for the site: attributes and parameters in tables, of which docstrings in prose have none."""

from __future__ import annotations

import re

import griffe

LEAST_PARAMETERS = 4
FIELDS_ARE_PARAMETERS = ("Struct", "Enum", "NamedTuple", "TypedDict", "Message", "Protocol")
SENTENCE = re.compile(r"(?<=[.:])\s+(?=[A-Z`(])")


def naming(name: str, docstring: griffe.Docstring | None) -> str:
    """Return the sentences of a docstring that name an attribute or a parameter."""
    text = "" if docstring is None else " ".join(docstring.value.split())
    return " ".join(sentence for sentence in SENTENCE.split(text) if f"`{name}`" in sentence)


class Tables(griffe.Extension):
    """Move attributes of classes into a table, and give functions a table of their parameters."""

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        """Change all classes and functions of a package."""
        self.change(pkg)

    def change(self, parent: griffe.Module | griffe.Class) -> None:
        """Change what a module or a class has."""
        for member in list(parent.members.values()):
            if isinstance(member, griffe.Module):
                self.change(member)
            elif isinstance(member, griffe.Class):
                self.change(member)
                if not member.name.startswith("_"):  # what public classes inherit from private ones is shown with them
                    self.attributes(member)
                init = member.members.get("__init__")
                if isinstance(init, griffe.Function) and init.docstring is None and member.docstring is not None:
                    self.parameters(init, member.docstring)
            elif isinstance(member, griffe.Function) and member.docstring is not None:
                self.parameters(member, member.docstring)

    def attributes(self, kind: griffe.Class) -> None:
        """Replace the sections of attributes by one table."""
        fields = "dataclass" in kind.labels or any(str(base).split("[")[0].endswith(FIELDS_ARE_PARAMETERS) for base in kind.bases)
        found = [
            each
            for name, each in kind.members.items()
            if isinstance(each, griffe.Attribute) and not name.startswith("_") and (each.docstring is not None or fields)
        ]
        if not found:
            return
        rows = [
            griffe.DocstringAttribute(
                name=each.name,
                annotation=each.annotation,
                value=str(each.value) if each.value is not None else None,
                description=each.docstring.value if each.docstring else naming(each.name, kind.docstring),
            )
            for each in found
        ]
        if kind.docstring is None:
            kind.docstring = griffe.Docstring("", parent=kind)
        kind.docstring.parsed.append(griffe.DocstringSectionAttributes(rows))
        for each in found:
            del kind.members[each.name]

    def parameters(self, function: griffe.Function, docstring: griffe.Docstring) -> None:
        """Add a table of the parameters; the sentences that name one are its description."""
        named = [each for each in function.parameters if each.name not in ("self", "cls") and not each.name.startswith("_")]
        rows = [
            griffe.DocstringParameter(
                name=each.name,
                annotation=each.annotation,
                value=each.default,
                description=naming(each.name, docstring),
            )
            for each in named
        ]
        if len(rows) >= LEAST_PARAMETERS and any(row.description for row in rows):
            docstring.parsed.append(griffe.DocstringSectionParameters(rows))
