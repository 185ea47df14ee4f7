"""The list of screens. To add one, create a module with ROUTES and add it here."""

from stoplist.web.admin.account import account, account_change, account_two_step, invitation, sign_in, sign_in_link
from stoplist.web.admin.audit import audit
from stoplist.web.admin.imports import (
    import_change,
    import_new,
    import_page,
    import_rejects,
    import_reverse,
    imports,
    upload,
)
from stoplist.web.admin.keys import key, key_change, key_edit, key_new, key_sheet, keys
from stoplist.web.admin.link_keys import link_key, link_key_change, link_key_new, link_keys, link_page
from stoplist.web.admin.opt_outs import (
    address_erase,
    address_person,
    export,
    feed,
    manual_entry,
    overview,
    record,
    record_change,
    record_erase,
    record_person,
    submission,
    submission_reverse,
    submissions,
    unsubscribes,
)
from stoplist.web.admin.organizations import (
    group_change,
    group_edit,
    group_new,
    invitations,
    organization,
    organization_close,
    organization_edit,
    organization_new,
    organization_person,
    organization_person_new,
    organizations,
)
from stoplist.web.admin.people import people, person, person_change, person_link, person_new
from stoplist.web.admin.propagation import propagation, propagation_mark

# The first matching path wins, so `new` comes before any name.
_SCREENS = (
    sign_in,
    sign_in_link,
    invitation,
    overview,
    audit,
    keys,
    key_new,
    key,
    key_edit,
    key_change,
    key_sheet,
    unsubscribes,
    # Before a submission's, whose path has any word there.
    address_erase,
    address_person,
    propagation,
    submissions,
    submission,
    submission_reverse,
    feed,
    manual_entry,
    export,
    upload,
    record,
    record_change,
    record_erase,
    record_person,
    imports,
    import_new,
    import_page,
    import_change,
    import_rejects,
    import_reverse,
    # After those of opt-outs, because an organization may be called propagation.
    propagation_mark,
    organizations,
    organization_new,
    organization_edit,
    organization_close,
    link_keys,
    link_page,
    link_key_new,
    link_key,
    link_key_change,
    group_new,
    group_edit,
    group_change,
    invitations,
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
