"""Schemas, as a registry keeps them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SchemaType: TypeAlias = Literal["AVRO", "PROTOBUF", "JSON"]

SubjectName: TypeAlias = Literal["topic", "record", "topic_record"]
"""The subject of a schema: `<topic>-key` or `<topic>-value`, the record's name, or both joined."""

IdPlace: TypeAlias = Literal["prefix", "header"]
"""The place of a schema's id: in front of the data, or in a header of the record (its GUID)."""


class Options(TypedDict, total=False):
    """Options of a registry's serdes.

    `subject` names subjects by topic (default), by record, or by both. `ids` puts the ids of
    schemas in front of the data (default) or into a header. `auto_register` (default True)
    registers the schema at the start of an app; without it the schema must be registered already.
    `use_latest_version` writes by the subject's latest version instead. `normalize` has the
    registry bring the schema to a canonical form. `references` are those of the schema. `topics`
    are further topics that the app may write to, which a function chooses for each record.
    """

    subject: SubjectName
    ids: IdPlace
    auto_register: bool
    use_latest_version: bool
    normalize: bool
    references: Sequence[Reference]
    topics: Sequence[str]


class Reference(msgspec.Struct, frozen=True):
    """A reference to another schema: its name in the text, its subject and its version."""

    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True):
    """A schema: its text, its type and the schemas to which it refers.

    The text of a Protobuf schema is the base64 of its `FileDescriptorProto`.
    """

    text: str
    type: SchemaType = "AVRO"
    references: tuple[Reference, ...] = ()

    def request(self) -> dict[str, Any]:
        """Return the body of a request about this schema."""
        body: dict[str, Any] = {"schema": self.text}
        if self.type != "AVRO":
            body["schemaType"] = self.type
        if self.references:
            body["references"] = [msgspec.to_builtins(each) for each in self.references]
        return body

    @classmethod
    def of_answer(cls, answer: Mapping[str, Any]) -> Schema:
        """Return the schema of an answer. Raises msgspec.ValidationError."""
        return msgspec.convert(
            {
                "text": answer.get("schema"),
                "type": answer.get("schemaType") or "AVRO",
                "references": answer.get("references") or (),
            },
            cls,
        )


class RegisteredSchema(msgspec.Struct, frozen=True):
    """A schema in a registry.

    The id and the GUID name the schema, whatever its subjects are; the version is the number in the
    subject. `version` and `guid` are None where the registry does not tell.
    """

    schema: Schema
    id: int
    subject: str
    version: int | None = None
    guid: str | None = None


def as_base64(data: bytes) -> str:
    """Return bytes in base64, as text."""
    return base64.standard_b64encode(data).decode("ascii")
