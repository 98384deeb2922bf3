"""Error codes of a group and their meaning for the membership."""

from __future__ import annotations

from ks_actors.log.kafka.wire import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    error_of,
)


class MemberRemoved(Exception):
    """The group has removed the member.

    With `forget` the group no longer knows its id; with `fenced` another member has its place.
    """

    def __init__(self, why: str, *, forget: bool, fenced: bool = False) -> None:
        super().__init__(why)
        self.forget: bool = forget
        self.fenced: bool = fenced


def check_member_error(code: int, group_id: str, what: str, detail: str | None = None) -> None:
    """Raise MemberRemoved or another error for an error code.

    `what` names the failed action, `detail` the values that the coordinator may have refused.
    """
    if code in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID):
        fenced = code == FENCED_INSTANCE_ID
        raise MemberRemoved(
            "another member has the same instance id"
            if fenced
            else "the group does not know the member any more",
            forget=True,
            fenced=fenced,
        )
    if code in (ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS):
        raise MemberRemoved("the group is in a new generation", forget=False)
    if code:
        raise error_of(code, f"failed to {what} group {group_id!r}", detail)
