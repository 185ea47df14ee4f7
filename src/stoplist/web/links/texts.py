"""The texts of the page behind an opt-out link. Each language has a module with all of them."""

import msgspec


class Texts(msgspec.Struct, frozen=True, kw_only=True):
    """All texts in one language. `leave_everything` and `has_left_everything` have one text per channel.

    A text may contain {organization}, {group}, {address} or {contact}: the same ones in every language.
    """

    language: str
    direction: str = "ltr"
    title: str
    ask: str
    about: str
    leave_group: str
    leave_everything: dict[str, str]
    has_left_group: str
    has_left_everything: dict[str, str]
    done: str
    one_click: str
    undo: str
    undo_hint: str
    undone: str
    undone_text: str
    not_undone: str
    not_undone_text: str
    undo_expired: str
    undo_expired_text: str
    unknown: str
    unknown_text: str
    ended: str
    ended_text: str
    unusable: str
    unusable_text: str
    unavailable: str
    unavailable_text: str
    too_many: str
    too_many_text: str
    failed: str
    failed_text: str
    contact: str
