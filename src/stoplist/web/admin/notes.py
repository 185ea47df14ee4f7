"""Messages at the top of a page after a form was sent. URLs hold the key, never the text."""

NOTES = {
    "key-updated": "Settings saved. Existing tokens stay valid and have the new permissions.",
    "key-limits": "Rate limits saved. They apply from the next request.",
    "key-deactivated": "The key was deactivated and all its tokens were revoked.",
    "key-activated": "The key was activated. Revoked tokens stay revoked; programs can get new ones.",
    "key-revoked": "All tokens of the key were revoked. Its secret stays valid.",
    "key-made-already": "This form was already sent. The secret was shown once and cannot be shown again.",
    "unsubscribed-created": "The opt-out was recorded.",
    "unsubscribed-updated": "The opt-out was recorded and replaces the resubscription.",
    "unsubscribed-unchanged": "Nothing changed: this address had already opted out. "
    "The record keeps its reason and date.",
    "unsubscribed-outranked": "Nothing changed: this person resubscribed after the time you entered, and the later "
    "act takes precedence. See Last known act.",
    "resubscribed-created": "The resubscription was recorded.",
    "resubscribed-updated": "The resubscription was recorded and replaces the opt-out.",
    "resubscribed-unchanged": "Nothing changed: this address had already resubscribed. "
    "The record keeps its date and source.",
    "resubscribed-outranked": "Nothing changed: the last known act of this person is at or after the time you entered. "
    "A resubscription must be later. See Last known act.",
    "person-erased": "The person was erased. What was blocked stays blocked.",
    "person-left-imports": "Rejected rows and file names of imports that held the address were erased.",
    "person-unknown": "Nothing was changed: no record, rejected row or file name holds the address.",
    "submission-reversed": "The submission was reversed. The counts below are up to date.",
    "submission-left": "Nothing was reversed: no record still depends on this submission alone.",
    "upload-discarded": "The file was deleted. Nothing of it was imported.",
    "import-discarded": "The rest of the import was discarded. What was stored stays.",
    "organization-created": "The organization was created.",
    "organization-renamed": "The organization was renamed.",
    "organization-closed": "The organization was closed. Its data is kept.",
    "group-created": "The group was created.",
    "group-renamed": "The group was renamed. Its group_id and opt-outs are unchanged.",
    "group-retired": "The group was retired. Its opt-outs are kept.",
    "group-default": "The default group was changed. Submissions without a group now go to it.",
    "group-no-default": "The default group was removed. Submissions without a group are now refused.",
    "propagation-marked": "The mark was saved.",
    "link-page-set": "The opt-out page was changed.",
    "link-key-retired": "The link key was retired. Its links keep working.",
    "link-key-revoked": "The link key was revoked. Its links no longer work.",
    "role-set": "The role was saved. It applies from the next page this person opens.",
    "role-set-known": "The role was added. This person already has an account, so no sign-in link was created.",
    "role-removed": "The role was removed.",
    "invitation-withdrawn": "The invitation was withdrawn. Its link no longer works.",
    "invitation-accepted": "You have accepted the invitation. The role applies from this page on.",
    "invitation-declined": "You have declined the invitation.",
    "person-disabled": "The account was disabled. All its sessions have ended and nobody can sign in to it.",
    "person-enabled": "The account was enabled. This person can sign in with the same password as before.",
    "administrator-made": "This person is now an administrator.",
    "administrator-unmade": "This person is no longer an administrator.",
    "password-changed": "Your password was changed and your other sessions have ended.",
    "two-step-off": "Two-step sign-in is off. You sign in with your password only.",
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
"""Notes that report no change. Pages show them as warnings, not as success."""
