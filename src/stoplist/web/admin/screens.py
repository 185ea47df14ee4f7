"""The list of screens. To add one, create a module with ROUTES and add it here."""

from stoplist.web.admin.account import account, account_change, account_two_step, sign_in, sign_in_link
from stoplist.web.admin.audit import audit
from stoplist.web.admin.keys import key, key_change, key_edit, key_new, key_sheet, keys
from stoplist.web.admin.opt_outs import (
    feed,
    manual_entry,
    overview,
    record,
    record_change,
    submission,
    submission_reverse,
    unsubscribes,
)
from stoplist.web.admin.organizations import (
    group_change,
    group_edit,
    group_new,
    organization,
    organization_close,
    organization_edit,
    organization_new,
    organization_person,
    organization_person_new,
    organizations,
)
from stoplist.web.admin.people import people, person, person_change, person_link, person_new

# The first matching path wins, so `new` comes before any name.
_SCREENS = (
    sign_in,
    sign_in_link,
    overview,
    audit,
    keys,
    key_new,
    key,
    key_edit,
    key_change,
    key_sheet,
    unsubscribes,
    submission,
    submission_reverse,
    feed,
    manual_entry,
    record,
    record_change,
    organizations,
    organization_new,
    organization_edit,
    organization_close,
    group_new,
    group_edit,
    group_change,
    organization_person_new,
    person_link,
    organization_person,
    organization,
    people,
    person_new,
    person_change,
    person,
    account,
    account_two_step,
    account_change,
)

ROUTES = tuple(route for screen in _SCREENS for route in screen.ROUTES)
