"""The port to a log, and its implementations."""

from ks_actors.log._delegating_log import DelegatedFetcher as DelegatedFetcher
from ks_actors.log._delegating_log import DelegatedMembership as DelegatedMembership
from ks_actors.log._delegating_log import DelegatingLog as DelegatingLog
from ks_actors.log._delegating_log import LogRequest as LogRequest
from ks_actors.log._groups import GroupMember, ManagesGroups
from ks_actors.log._groups import TellsGroups as TellsGroups
from ks_actors.log._lease import Lease
from ks_actors.log._open import kafka_log as kafka_log
from ks_actors.log._open import open_log
from ks_actors.log._port import (
    Assignor,
    Fetcher,
    Log,
    Membership,
    MembershipEvent,
    NewMember,
    Producer,
    TransactionalProducer,
    Writer,
    WritesBytes,
)
from ks_actors.log._port import BaseLog as BaseLog
from ks_actors.log._port import BaseMembership as BaseMembership
from ks_actors.log._port import TellsOperations as TellsOperations
from ks_actors.log._port import TellsOutages as TellsOutages
from ks_actors.log._port import cluster_of as cluster_of
from ks_actors.log._request_figures import MeasuresRequests as MeasuresRequests
from ks_actors.log._request_figures import RequestFigures as RequestFigures
from ks_actors.log._retrying_log import PatientLog as PatientLog
from ks_actors.log._retrying_log import patient as patient
from ks_actors.log._token_endpoint import check_token_endpoint as check_token_endpoint
from ks_actors.log._types import (
    Assigned,
    Fetched,
    GroupMetadata,
    IsolationLevel,
    Lost,
    MemberAssignment,
    MemberInfo,
    NewTopic,
    OffsetAndMetadata,
    Outgoing,
    Revoked,
    TopicDescription,
    TransactionScope,
)
from ks_actors.records import TopicPartition

__all__ = [
    "Assigned",
    "Assignor",
    "Fetched",
    "Fetcher",
    "GroupMember",
    "GroupMetadata",
    "IsolationLevel",
    "Lease",
    "Log",
    "Lost",
    "ManagesGroups",
    "MemberAssignment",
    "MemberInfo",
    "Membership",
    "MembershipEvent",
    "NewMember",
    "NewTopic",
    "OffsetAndMetadata",
    "Outgoing",
    "Producer",
    "Revoked",
    "TopicDescription",
    "TopicPartition",
    "TransactionScope",
    "TransactionalProducer",
    "Writer",
    "WritesBytes",
    "open_log",
]
