"""Opts out the person of a link, and undoes it. Source: docs/interface.md section D15."""

from typing import NamedTuple

from stoplist.actor import VIEWER, Actor
from stoplist.links.clicked_link import ClickedLink
from stoplist.organizations.target import ALL_GROUPS, Target, TargetGroup
from stoplist.records.reversal import undo
from stoplist.records.submissions import find_submission
from stoplist.unsubscribes.act_groups import ActGroups
from stoplist.unsubscribes.model import MAX_SOURCE_CHARS, Item, OptOutStores
from stoplist.unsubscribes.person_records import find_person_records


class OptOutState(NamedTuple):
    """Tells what the person has opted out of: the group of the link, or everything on its channel."""

    group: bool
    everything: bool


class OptedOut(NamedTuple):
    """The result of a click. `submission_id` names what can be undone; None if the click changed nothing."""

    submission_id: str | None


class UndoResult(NamedTuple):
    """The result of Undo. `is_undone` is false if an opt-out sent since then stands. `state` is the state now."""

    is_undone: bool
    state: OptOutState


async def find_opt_out_state(stores: OptOutStores, link: ClickedLink) -> OptOutState:
    """Return what the person of the link has opted out of by now."""
    records = await find_person_records(stores.database, link.feed_id, link.address)
    group_no = None if link.group is None else link.group.number
    return OptOutState(group_no is not None and records.is_opted_out(group_no), records.is_opted_out(ALL_GROUPS))


async def opt_out(
    acts: ActGroups, link: ClickedLink, *, everything: bool, default_source: str, request: Actor
) -> OptedOut:
    """Opt the person of the link out, durably: of its group, or of `everything` on its channel. May be repeated.

    `request` tells where the click came from. The organization may be closed, and the group retired.
    """
    target = Target(
        organization_id=link.organization.organization_id,
        org_slug=link.organization.slug,
        group=None if link.group is None or everything else TargetGroup(link.group.number, link.group.group_id),
        default_group=None,
    )
    item = Item(address=link.address, source=(link.source or default_source)[:MAX_SOURCE_CHARS])
    done = await acts.submit(_actor(link, request), link.channel, target, item)
    return OptedOut(done.submission_id if done.is_changed else None)


async def undo_opt_out(stores: OptOutStores, link: ClickedLink, submission_id: str, *, request: Actor) -> UndoResult:
    """Take back what a click on the link stored, unless something was sent since. May be repeated.

    Missing if the submission is not one of the link key.
    """
    actor = _actor(link, request)
    submission = await find_submission(actor, stores.database, submission_id)
    done = await undo(actor, stores, submission)
    state = await find_opt_out_state(stores, link)
    # An earlier Undo proves nothing: the person may have clicked again after it.
    has_left = state.everything if submission.group_no == ALL_GROUPS else state.group
    return UndoResult(done.changes > 0 or (done.taken_back > 0 and not has_left), state)


def _actor(link: ClickedLink, request: Actor) -> Actor:
    """Return the person who clicked, known by the key of the link alone."""
    return Actor(
        kind="link",
        id=link.link_key_id,
        roles={link.organization.slug: VIEWER},
        source_ip=request.source_ip,
        request_id=request.request_id,
    )
