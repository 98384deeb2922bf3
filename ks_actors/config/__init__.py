"""Settings: their names, sources, values and checks."""

from ks_actors.config._client_ids import ClientIds
from ks_actors.config._config import StreamsConfig
from ks_actors.config._durations import duration
from ks_actors.config._exception_handlers import LETTER_PREFIX as LETTER_PREFIX
from ks_actors.config._exception_handlers import (
    DeadLetter,
    DeserializationExceptionHandler,
    ErrorContext,
    FailedRecord,
    HandlerResponse,
    ProcessingExceptionHandler,
    ProductionExceptionHandler,
    Response,
    log_and_continue,
    log_and_fail,
    stop_after,
)
from ks_actors.config._forms import config_of
from ks_actors.config._kafka import SCHEME, servers
from ks_actors.config._members import MEMBERS
from ks_actors.config._open_log import kafka_options, missing_directory, open_patiently, opened
from ks_actors.config._parsers import ProcessingGuarantee
from ks_actors.config._queries import is_loopback, query_token, split_server
from ks_actors.config._reset_to import ResetTo, ShiftBy, clamped, is_target, milliseconds
from ks_actors.config._settings import Keywords, Options, SettingsOfApp
from ks_actors.snapshots import without_login as without_login

__all__ = [
    "MEMBERS",
    "SCHEME",
    "ClientIds",
    "DeadLetter",
    "DeserializationExceptionHandler",
    "ErrorContext",
    "FailedRecord",
    "HandlerResponse",
    "Keywords",
    "Options",
    "ProcessingExceptionHandler",
    "ProcessingGuarantee",
    "ProductionExceptionHandler",
    "ResetTo",
    "Response",
    "SettingsOfApp",
    "ShiftBy",
    "StreamsConfig",
    "clamped",
    "config_of",
    "duration",
    "is_loopback",
    "is_target",
    "kafka_options",
    "log_and_continue",
    "log_and_fail",
    "milliseconds",
    "missing_directory",
    "open_patiently",
    "opened",
    "query_token",
    "servers",
    "split_server",
    "stop_after",
]
