"""What a page says at its top after something was done: the address line holds the name, never the text."""

NOTES = {
    "key-updated": "The key was changed. Its tokens live on, with the new rights.",
    "key-limits": "The ceilings of the key were changed, and hold from the next request on.",
    "key-deactivated": "The key was deactivated: it gets no token any more, and all its tokens are revoked.",
    "key-activated": "The key is active again. Tokens that were revoked stay so: the partner's program gets new ones.",
    "key-revoked": "All tokens of the key were revoked. Its secret stays good.",
    "key-made-already": "This form was sent before: its secret was shown then, and is not shown again.",
    "unsubscribed-created": "The opt-out was recorded.",
    "unsubscribed-updated": "The opt-out was recorded: it takes the place of the resubscription.",
    "unsubscribed-unchanged": "The person had opted out already: the record keeps its reason and date.",
    "unsubscribed-outranked": "Nothing was changed: the person resubscribed later than what you recorded, and the "
    "later act stands. Last known act says when.",
    "resubscribed-created": "The resubscription was recorded.",
    "resubscribed-updated": "The resubscription was recorded: it takes the place of the opt-out.",
    "resubscribed-unchanged": "The person had resubscribed already: the record keeps its date and source.",
    "resubscribed-outranked": "Nothing was changed: the person did something else at the time you stated, or later, "
    "and that stands. Last known act says when; a resubscription must be later.",
    "submission-reversed": "The submission was reversed. The counts below are those of now.",
    "submission-left": "Nothing was taken back: no record stands on this submission alone any more.",
    "organization-created": "The organization was created.",
    "organization-renamed": "The organization was renamed.",
    "organization-closed": "The organization was closed. What it holds stays.",
    "group-created": "The group was created.",
    "group-renamed": "The group was renamed. Its group_id and its opt-outs stay.",
    "group-retired": "The group was retired. Its opt-outs stay.",
    "group-default": "The default group was changed: submissions that name no group go to it from now on.",
    "group-no-default": "There is no default group now: submissions that name no group are refused.",
    "role-set": "The role holds from the person's next page on.",
    "role-set-known": "The role was given. The person has an account already, so no sign-in link was made.",
    "role-removed": "The role was taken away.",
    "person-disabled": "The person was disabled: all sessions have ended, and no password opens the account.",
    "person-enabled": "The person was enabled, and can sign in with the password of before.",
    "administrator-made": "The person is an administrator now.",
    "administrator-unmade": "The person is no administrator any more.",
    "password-changed": "Your password was changed, and your other sessions have ended.",
    "two-step-off": "Two-step sign-in is off: the password alone opens your account.",
    "session-ended": "The session has ended.",
    "sessions-ended": "All your other sessions have ended.",
    "signed-out": "You have signed out.",
}
NOTHING_DONE = frozenset(
    (
        "key-made-already",
        "unsubscribed-unchanged",
        "unsubscribed-outranked",
        "resubscribed-unchanged",
        "resubscribed-outranked",
        "submission-left",
    )
)
"""Those that say that nothing was changed: they are not to look like success."""
