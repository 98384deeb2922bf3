"""Parsers of settings: return the runtime's value, or raise ValueError with the reason."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ks_actors import serdes
from ks_actors import topology as timestamps
from ks_actors._errors import TopologyError
from ks_actors._times import whole_ms
from ks_actors.config import _exception_handlers as handlers
from ks_actors.config._durations import duration
from ks_actors.config._kafka import servers
from ks_actors.processors.api import ProcessorWrapper, check_function
from ks_actors.serdes import Serde, of_type
from ks_actors.topology import STORE_NAMES, check_store_type

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_TOPIC = 249
BY_DURATION = "by_duration:"
LAST_INT = (1 << 63) - 1
# Kafka's requests have these types for numbers, and its clients refuse larger ones.
INT16 = (1 << 15) - 1
INT32 = (1 << 31) - 1

RESPONSES: dict[str, Any] = {"fail": handlers.log_and_fail, "continue": handlers.log_and_continue}

_STOP_AFTER = re.compile(
    r"stop_after\(\s*(\d{1,9})\s*,\s*per_seconds\s*=\s*(\d{1,9}(?:\.\d+)?)\s*\)", re.ASCII
)

JAVA_SERDES = "org.apache.kafka.common.serialization.Serdes$"
JAVA_ERRORS = "org.apache.kafka.streams.errors."
JAVA_PROCESSOR = "org.apache.kafka.streams.processor."
JAVA: dict[str, Any] = {
    **{
        f"{JAVA_SERDES}{name}Serde": serde
        for name, serde in {
            "String": serdes.STRING,
            "ByteArray": serdes.BYTES,
            "Short": serdes.SHORT,
            "Integer": serdes.INTEGER,
            "Long": serdes.LONG,
            "Float": serdes.FLOAT,
            "Double": serdes.DOUBLE,
            "Boolean": serdes.BOOLEAN,
            "UUID": serdes.UUID,
            "Void": serdes.VOID,
        }.items()
    },
    JAVA_ERRORS + "LogAndFailExceptionHandler": handlers.log_and_fail,
    JAVA_ERRORS + "LogAndContinueExceptionHandler": handlers.log_and_continue,
    JAVA_ERRORS + "LogAndFailProcessingExceptionHandler": handlers.log_and_fail,
    JAVA_ERRORS + "LogAndContinueProcessingExceptionHandler": handlers.log_and_continue,
    JAVA_ERRORS + "DefaultProductionExceptionHandler": handlers.log_and_fail,
    JAVA_PROCESSOR + "FailOnInvalidTimestamp": timestamps.FailOnInvalidTimestamp,
    JAVA_PROCESSOR + "LogAndSkipOnInvalidTimestamp": timestamps.LogAndSkipOnInvalidTimestamp,
    JAVA_PROCESSOR
    + "UsePartitionTimeOnInvalidTimestamp": timestamps.UsePartitionTimeOnInvalidTimestamp,
    JAVA_PROCESSOR + "WallclockTimestampExtractor": timestamps.WallclockTimestampExtractor,
}
"""Names in a Java app's .properties file for objects that exist here, too."""

_SERDES = frozenset(name for name in serdes.__all__ if isinstance(getattr(serdes, name), Serde))


class ProcessingGuarantee(Enum):
    """The effect of failures on results: some records are repeated, or none."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE_V2 = "exactly_once_v2"


def optional(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Also accept None, for no value."""
    return lambda value: None if value is None else parse(value)


def whole_number(
    least: int, *, most: int = LAST_INT, unlimited: bool = False
) -> Callable[[Any], int]:
    """Accept a number from `least` to `most`, or its digits; if `unlimited`, also -1."""

    def parse(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("is not a whole number")  # noqa: TRY004 - one error type for bad values
        if value < least and not (unlimited and value == -1):
            raise ValueError(
                f"is less than {least}" + (" (or -1 for no limit)" if unlimited else "")
            )
        if value > most:
            raise ValueError(f"is more than {most}")
        return value

    return parse


def milliseconds(
    least: int, *, most: int = LAST_INT, unlimited: bool = False
) -> Callable[[Any], int]:
    """Accept a time in ms, as `whole_number` does, or as a timedelta."""
    parse = whole_number(least, most=most, unlimited=unlimited)
    return lambda value: parse(whole_ms(value))


def one_of(**words: Any) -> Callable[[Any], Any]:
    """Accept one of these words, in any case, or an Enum member with such a value.

    Return the word's meaning.
    """

    def parse(value: Any) -> Any:
        word = value.value if isinstance(value, Enum) else value
        if isinstance(word, str) and word.lower() in words:
            return words[word.lower()]
        close = difflib.get_close_matches(word, words, n=1) if isinstance(word, str) else []
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(f"is not one of {', '.join(words)}{hint}")

    return parse


_OFFSETS = one_of(earliest="earliest", latest="latest", none="none")


def offset_reset(value: Any) -> Any:
    """Accept a policy for starts without a committed offset, also in Kafka's words (KIP-1106)."""
    if isinstance(value, str) and value.lower().startswith(BY_DURATION):
        try:
            value = duration(value[len(BY_DURATION) :])
        except ValueError as error:
            raise ValueError(f"has a duration that {error}") from None
    if not isinstance(value, timedelta):
        try:
            return _OFFSETS(value)
        except ValueError as error:
            raise ValueError(f"{error}, or a duration such as by_duration:P1D") from None
    if value < timedelta():
        raise ValueError("has a negative duration, which lies after now")
    return value


def switch(value: Any) -> bool:
    """Accept True or False, or these words, in any case."""
    word = str(value).strip().lower() if isinstance(value, bool | str) else ""
    if word not in {"true", "false"}:
        raise ValueError("is neither true nor false")
    return word == "true"


def always(value: Any) -> bool:
    """Accept True, or the word, for a property that cannot be switched off."""
    if not switch(value):
        raise ValueError("is not true, the only value: remove the setting")
    return True


def text(value: Any) -> str:
    """Accept text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is not text")
    return value


def topic_name(value: Any) -> str:
    """Accept a valid topic name."""
    name = text(value)
    if (
        not re.fullmatch(r"[a-zA-Z0-9._-]+", name)
        or name in {".", ".."}
        or len(name) > LONGEST_TOPIC
    ):
        raise ValueError(
            f"is not a valid topic name: use 1 to {LONGEST_TOPIC} letters, digits, dots, "
            "underscores and hyphens, and not . or .."
        )
    return name


def names(value: Any) -> tuple[str, ...]:
    """Accept a list of names, or one text with commas between them."""
    found = value.split(",") if isinstance(value, str) else value
    if not isinstance(found, list | tuple | set | frozenset) or not all(
        isinstance(each, str) for each in found
    ):
        raise ValueError("is not a list of names: expected name,name")
    return tuple(sorted({each.strip() for each in found} - {""}))


# The limits of Kafka Streams on the tags of a client, in tags and characters.
_TAGS, _TAG_NAME, _TAG_TEXT = 5, 20, 30


def client_tags(value: Any) -> Mapping[str, str]:
    """Accept tags by name, `{"zone": "a"}` or `zone=a,cluster=b`, with the limits of Kafka."""
    if isinstance(value, str):
        value = dict(each.split("=", 1) for each in value.split(",") if "=" in each) or value
    if not isinstance(value, Mapping) or not all(
        isinstance(each, str) and each.strip() for pair in value.items() for each in pair
    ):
        raise ValueError("is not a mapping of names to texts: expected {'zone': 'a'} or zone=a")
    tags = {name.strip(): text.strip() for name, text in sorted(value.items())}
    if len(tags) > _TAGS or any(
        len(name) > _TAG_NAME or len(text) > _TAG_TEXT for name, text in tags.items()
    ):
        raise ValueError(
            "has more than Kafka Streams allows: 5 tags, 20 characters of a name and 30 of its text"
        )
    return MappingProxyType(tags)


def topic_configs(value: Any) -> Mapping[str, str]:
    """Accept configs of topics by their names: `{"retention.ms": 1000}`, or `retention_ms`."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
        raise ValueError("is not a mapping of configs: expected {'retention.ms': '1000'}")
    found: dict[str, str] = {}
    for given, each in value.items():
        name = given.replace("_", ".")  # Kafka's names have no underscores
        if not isinstance(each, str | int | float):
            raise ValueError(  # noqa: TRY004 - as all wrong settings
                f"has {given}={each!r}, which is neither a text nor a number"
            )
        if name in found:
            raise ValueError(f"has {name} twice, as {given}, too")
        found[name] = str(each).lower() if isinstance(each, bool) else str(each)
    return MappingProxyType(dict(sorted(found.items())))


def directory(value: Any) -> Path:
    """Accept a path, as text or Path; `~` is the home directory."""
    if isinstance(value, Path):
        return value
    path = text(value)
    if "\0" in path:
        raise ValueError("has a null character, which no path can have")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"is not a path on this system: {error}") from error


def log_url(value: Any) -> str:
    """Accept `memory://`, `embedded:///path` or `kafka://host:port,host:port`."""
    url = text(value)
    scheme, separator, rest = url.partition("://")
    if url == "memory://":
        return url
    if separator and scheme == "embedded":
        # The path of a URL is absolute, and `open_log` refuses the same.
        if not rest.startswith("/") or not rest.strip("/") or any(sign in rest for sign in "?#"):
            raise ValueError(
                "names no directory: use three slashes and an absolute path, embedded:///path"
            )
        return url
    if separator and scheme == "kafka":
        return f"kafka://{servers(rest)}"
    raise ValueError(
        "is not the URL of a log: expected memory://, embedded:///path or kafka://host:port"
    )


def serde(value: Any) -> Serde[Any]:
    """Accept a serde, a type that has one, or the name of either."""
    if isinstance(value, str) and value not in JAVA:
        value = _imported(value, _serde_names)
    if not isinstance(value, type) or issubclass(value, Serde):
        value = _named(value)
    if isinstance(value, Serde):
        return value
    try:
        return of_type(value)
    except (TypeError, NameError) as error:
        raise ValueError(f"is neither a serde nor a type that has one: {error}") from error


def function(value: Any) -> Any:
    """Accept a callable, or its name."""
    return _callable(_named(value))


def token_callback(value: Any) -> Any:
    """Accept a function that returns tokens, or its name; no class of Java's."""
    if isinstance(value, str) and value.endswith("CallbackHandler"):
        raise ValueError(
            "is a class of Java: remove it if sasl_oauthbearer_token_endpoint_url is set, or name "
            "a function here that returns tokens"
        )
    return function(value)


def _callable(found: Any) -> Any:
    if not callable(found):
        raise ValueError("is not callable")  # noqa: TRY004 - likewise
    return found


def handler(value: Any) -> Any:
    """Accept an exception handler, its name, or one of the words fail, continue and stop_after."""
    if isinstance(value, str) and (stop := _STOP_AFTER.fullmatch(value.strip())):
        return handlers.stop_after(int(stop[1]), per_seconds=float(stop[2]))
    # The handlers' own names stand for them, too: log_and_continue.
    word = value.lower().removeprefix("log_and_") if isinstance(value, str) else None
    return (
        RESPONSES[word]
        if word in RESPONSES
        else _fitting(_callable(_named(value, _handler_names)), 3)
    )


def wrapper(value: Any) -> ProcessorWrapper:
    """Accept a wrapper of processors, its class, or the name of either."""
    found = _named(value)
    if not isinstance(found, ProcessorWrapper):
        raise ValueError("is not a ProcessorWrapper")  # noqa: TRY004 - likewise
    return found


def store_type(value: Any) -> Any:
    """Accept `rocksDB`, `in_memory`, or a function that makes a StoreEngine, or its name."""
    word = value.value if isinstance(value, Enum) else value
    if isinstance(word, str):
        if word.lower() in STORE_NAMES:
            return word.lower()
        if not any(sign in word for sign in ".:"):
            raise ValueError(
                f"is not one of {', '.join(STORE_NAMES)}, or the name of a function that makes a "
                "StoreEngine"
            )
        word = _imported(word)
    try:
        check_store_type(word, role="the value", of="this setting")
    except TopologyError as error:
        raise ValueError(f"does not fit: {error}") from None
    return word


def extractor(value: Any) -> Any:
    """Accept a timestamp extractor, or its name."""
    return _fitting(function(value), 2)


def _fitting(found: Any, arguments: int) -> Any:
    """Return a function if it takes this number of arguments and is synchronous.

    Raises ValueError.
    """
    try:
        check_function(found, arguments, role="the function", of="this setting")
    except TopologyError as error:
        raise ValueError(f"does not fit: {error}") from None
    return found


def _serde_names(word: str) -> str:
    """Return a hint at the serde that a word without dots may mean."""
    return f", such as ks_actors.serdes.{word.upper() if word.upper() in _SERDES else 'STRING'}"


def _handler_names(_: str) -> str:
    """Return a hint that lists the words for handlers."""
    return f", or one of {', '.join(RESPONSES)}, stop_after(10, per_seconds=60)"


def _named(value: Any, hint: Callable[[str], str] = lambda _: "") -> Any:
    """Return the object of a name: `package.module.name`, or a Java class with a counterpart here.

    A class is called to create the object. `hint` returns help for a word that is no such name.
    """
    if isinstance(value, str):
        value = JAVA[value] if value in JAVA else _imported(value, hint)
    try:
        return value() if isinstance(value, type) else value
    except TypeError as error:
        raise ValueError(f"cannot be created without arguments: {error}") from error


def _imported(name: str, hint: Callable[[str], str] = lambda _: "") -> Any:
    module, _, attribute = name.strip().replace(":", ".").rpartition(".")
    if not module:
        expected = f"package.module.name{hint(name.strip())}"
        raise ValueError(f"is not a name to import: expected {expected}")
    try:
        return getattr(importlib.import_module(module), attribute)
    # TypeError and ValueError: of names such as `..module` or `.name`.
    except (ImportError, TypeError, ValueError) as error:
        raise ValueError(f"cannot be imported: {error}") from error
    except AttributeError:
        raise ValueError(f"does not exist: {module} has no {attribute}") from None
