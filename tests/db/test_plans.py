"""Every statement that a request waits for uses an index, on tables without statistics.

PostgreSQL guesses without statistics, and SQLite has none unless told to gather them: a plan that is good by luck can
turn into a scan of a million rows.
"""

import asyncio
import itertools
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Any

import asyncpg
import pytest

from stoplist.db.query import Query, load_queries
from tests.builders import migrated
from tests.services.postgresql import PostgresqlServer

QUERIES: dict[str, Query] = {}
for _package in (
    "db",
    "databases",
    "audit",
    "organizations",
    "oauth",
    "unsubscribes",
    "records",
    "rights",
    "links",
    "lists.exports",
    "lists.imports",
    "lists.uploads",
    "proof",
    "staff",
    "notices",
):
    QUERIES |= load_queries(f"stoplist.{_package}")

PRIMARY_KEY = "clients_pkey"
BY_ACCESS, BY_REFRESH, BY_ORIGIN = "token_pairs_access", "token_pairs_refresh", "token_pairs_rotated_from"
CLIENT_DAYS = "client_days_pkey"
FEED, RECORD, CHANGE = "feeds_pkey", "unsubscribes_pkey", "unsubscribes_seq"
FOLLOWER, POSITION = "feed_followers_pkey", "feed_positions_position"
VERSION, VERSION_CHANGE = "unsubscribe_versions_pkey", "unsubscribe_versions_seq"
RANGE = "confirmed_ranges_pkey"
GROUP, ORGANIZATION = "groups_pkey", "organizations_pkey"
CLIENT_ORGANIZATIONS = "client_organizations_pkey"
PERSON, ADDRESS, ROLE = "people_pkey", "people_email_key", "person_organizations_pkey"
IMPORT_PARTS = ("import_parts_submission", "import_parts_pkey", "imports_pkey")
REVERSALS = ("reversals_pkey", "reversals_by", "reversals_part_of", "submissions_pkey")
TICKET = "sign_in_tickets_pkey"
SESSION, LINK, ATTEMPT = "sessions_pkey", "sign_in_links_pkey", "sign_in_attempts_pkey"

HOT = {
    "find_client": [PRIMARY_KEY],
    "find_access_token": [BY_ACCESS, PRIMARY_KEY],
    "find_refresh_token": [BY_REFRESH, PRIMARY_KEY, BY_ORIGIN],
    "issue_pair": [PRIMARY_KEY],
    "rotate_pair": [BY_REFRESH, PRIMARY_KEY],
    "revoke_if_epoch": [PRIMARY_KEY],
    "delete_expired_pairs": ["token_pairs_pkey"],
    "add_use": [],
    "add_refusal": [],
    "forget_refusals": ["client_refusals_pkey"],
    "append": [],
    "concern": ["organizations_slug_key"],
    "place_of": ["audit_pkey"],
    "concerned": ["audit_organizations_audit", "organizations_pkey"],
    "numbers_of_organizations": ["organizations_slug_key"],
    "latest_of_target": ["audit_target_time"],
    "floor_of_all": ["audit_time"],
    "page_of_all": ["audit_time"],
    "floor_of_target": ["audit_target_time"],
    "page_of_target": ["audit_target_time", "audit_organizations_audit"],
    "floor_of_person": ["audit_actor"],
    "page_of_person": ["audit_actor"],
    "floor_of_action": ["audit_action"],
    "page_of_action": ["audit_action"],
    "floor_of_organization": ["audit_organizations_pkey"],
    "page_of_organization": ["audit_organizations_pkey", "audit_pkey", "audit_organizations_audit"],
    "alarms": ["audit_action"],
    "lock_client": [PRIMARY_KEY],
    "deactivate_client": [PRIMARY_KEY],
    "activate_client": [PRIMARY_KEY],
    "revoke_tokens": [PRIMARY_KEY],
    "replace_secret": [PRIMARY_KEY],
    "set_ceilings": [PRIMARY_KEY],
    "ceilings": [PRIMARY_KEY],
    "replace_client": [PRIMARY_KEY],
    "replace_client_organizations": [CLIENT_ORGANIZATIONS],
    "update_client": [PRIMARY_KEY, "organizations_slug_key"],
    "credential": [PRIMARY_KEY, CLIENT_DAYS],
    "use_by_day": [CLIENT_DAYS],
    "refusals": ["client_refusals_pkey"],
    "organization_by_slug": ["organizations_slug_key"],
    "lock_organization": ["organizations_slug_key"],
    "group_by_id": [GROUP],
    "rename_group": [GROUP],
    "group_numbers": [],
    "target_default": [PRIMARY_KEY, ORGANIZATION, GROUP],
    "target_by_slug": ["organizations_slug_key", CLIENT_ORGANIZATIONS, GROUP],
    "target_by_group": [GROUP, ORGANIZATION, CLIENT_ORGANIZATIONS],
    "feed": [FEED],
    "probe_feed": [FEED],
    "probe_all_feeds": [FEED],
    "probe_lock": [FEED],
    "open_feed": [],
    "owner_of_feed": [FEED],
    "uid_of_organization": [ORGANIZATION],
    "add_entry": [],
    "entries_of_feed": ["feed_outbox_pkey"],
    "take_entry": [],
    "forget_entries": ["feed_outbox_pkey"],
    "lock_feed": [FEED],
    "give_back_numbers": [FEED],
    "renew_generation": [FEED],
    "current_records": [RECORD, RANGE],
    "keep_versions": [RECORD],
    "add_records": [FEED],
    "put_records": [FEED],
    "put_records_of_acts": [FEED],
    "put_records_with_audit": [],
    "touch_records": [RECORD],
    "confirm_records": [CHANGE],
    "confirm_ranges": [FEED],
    "superseded_versions": [VERSION_CHANGE, VERSION, RECORD],
    "delete_versions": [VERSION_CHANGE],
    "old_submissions": ["submissions_pkey", CHANGE, VERSION_CHANGE, "erasures_standing"],
    "delete_submissions": ["submissions_pkey"],
    "delete_import_parts": ["import_parts_submission"],
    "delete_reversals": ["reversals_pkey", "submissions_pkey"],
    "delete_reversals_by": ["reversals_by", "submissions_pkey"],
    "delete_positions": ["feed_positions_pkey"],
    "old_audit_entries": ["audit_time"],
    "delete_audit_organizations": ["audit_organizations_audit"],
    "delete_audit_entries": ["audit_pkey"],
    "delete_moved_entries": ["moved_entries_added", "moved_entries_pkey", "audit_time", "notices_created"],
    "begin_import": [],
    "imports_into": ["imports_pkey", "feeds_pkey"],
    "advance_import": ["imports_pkey"],
    "change_import_state": ["imports_pkey"],
    "add_import_part": [],
    "submissions_of_import": ["import_parts_pkey"],
    "import_of_submission": ["import_parts_submission"],
    "interrupted_reversal": ["import_parts_pkey", "reversals_pkey"],
    "taken_back_of_import": ["import_parts_pkey", "reversals_pkey", "submissions_pkey"],
    "begin_upload": [],
    "add_piece": [],
    "add_rejects": [],
    "request_work": [],
    "extend_upload": ["uploads_pkey"],
    "complete_upload": ["uploads_pkey"],
    "set_upload_options": ["uploads_pkey"],
    "end_upload": ["uploads_pkey"],
    "forget_upload": ["uploads_pkey"],
    "find_upload": ["uploads_pkey"],
    "place_of_feed": [FEED],
    "uploads_of_feed": ["uploads_pkey"],
    "piece": ["upload_pieces_pkey"],
    "delete_pieces": ["upload_pieces_pkey"],
    "rejects_after": ["import_rejects_pkey"],
    "rejects_of_feed_after": ["import_rejects_pkey"],
    "replace_rejects": ["import_rejects_pkey"],
    "file_names": [FEED, "imports_pkey", "uploads_pkey"],
    "forget_name_of_import": ["imports_pkey"],
    "forget_name_of_upload": ["uploads_pkey"],
    "delete_rejects": ["import_rejects_pkey"],
    "find_work": ["import_work_pkey"],
    "claim_work": ["import_work_pkey"],
    "renew_work": ["import_work_pkey"],
    "end_work": ["import_work_pkey"],
    "cancel_work": ["import_work_pkey"],
    "set_result": ["import_work_pkey"],
    "forget_work": ["import_work_pkey"],
    "record_submission": [],
    "record_submissions": [FEED],
    "count_changes": [FEED],
    "records_after": [CHANGE, FEED],
    "state_records_after": [CHANGE],
    "erased_records": [RECORD, RANGE],
    "erased_forms_of_feed": [RECORD],
    "rename_records": [RECORD],
    "erasures_of_digests": ["erasures_of_person", CHANGE, VERSION_CHANGE],
    "note_deleted_history": [FEED],
    "deleted_history": [FEED, "submissions_pkey"],
    "rename_versions": [VERSION],
    "note_erasures": [FEED],
    "set_digest_key": [FEED],
    "reversible_erased": ["erasures_standing", CHANGE, VERSION, RANGE],
    "erase_record_again": [RECORD],
    "erase_versions_again": [VERSION],
    "erasures_at": ["erasures_pkey"],
    "digest_keys_of": [FEED],
    "erased_everywhere": [RECORD],
    "returns_of": ["erasures_of_person"],
    "feeds_that_know": [FEED, RECORD],
    "records_to_erase": [RECORD],
    "take_erasing_numbers": [FEED],
    "erase_versions": [VERSION],
    "keep_erased_states": [RECORD],
    "erase_record": [RECORD, RANGE],
    "forget_sources_of_links": ["submissions_pkey", RECORD, VERSION],
    "record_erasure": [],
    "erasures": ["erasures_of_person"],
    "was_read": ["person_reads_pkey"],
    "add_read": [],
    "returns": ["erasures_of_person"],
    "set_state": [FEED],
    "set_last_recorded": [FEED],
    "heads": [FEED],
    "add_followers": [FEED],
    "lock_follower": [FOLLOWER],
    "put_followers": [FEED],
    "mark_follower": [],
    "add_position": [POSITION],
    "heads_and_generations": [FEED],
    "followers_of_feeds": [FOLLOWER],
    "oldest_after": [CHANGE, VERSION_CHANGE],
    "since_when": [POSITION],
    "seq_after": [CHANGE],
    "records_of_group": [CHANGE, FEED],
    "look_up": [RECORD],
    "feed_and_records_of_address": [FEED, RECORD, RANGE],
    "records_of_addresses": [RECORD],
    "addresses_after": [RECORD],
    "records_everywhere": [RECORD],
    "seq_at": [FEED],
    "seq_before": [CHANGE],
    "records_before": [CHANGE],
    "count_between": [CHANGE],
    "last_recorded": [CHANGE],
    "address_at": [CHANGE, VERSION_CHANGE],
    "records_of_address": [RECORD, RANGE],
    "versions_of_record": [VERSION],
    "senders_of_submissions": ["submissions_pkey", "reversals_by"],
    "labels_of_clients": [PRIMARY_KEY],
    "some_credentials": [PRIMARY_KEY, CLIENT_DAYS],
    "organizations_of_some_clients": [CLIENT_ORGANIZATIONS],
    "changes_by_day": ["feed_days_pkey"],
    "standing_now": ["feed_days_pkey"],
    "target_of_people": ["organizations_slug_key", GROUP],
    "organizations_named": ["organizations_slug_key"],
    "groups_of_organizations": [],
    "names_of_target": [ORGANIZATION, "groups_organization_id_group_no_key"],
    "link_key": ["link_keys_pkey", ORGANIZATION],
    "link_key_and_group": ["link_keys_pkey", ORGANIZATION, GROUP],
    "submissions_of_link_key": ["submissions_sent_by", "reversals_by"],
    "lock_link_key": ["link_keys_pkey"],
    "retire_link_key": ["link_keys_pkey"],
    "revoke_link_key": ["link_keys_pkey"],
    "link_key_secrets_after": ["link_keys_pkey"],
    "replace_link_key_secret": ["link_keys_pkey"],
    "count_link_events": ["link_keys_pkey"],
    "count_acts_of_link_key": ["submissions_sent_by", "reversals_by"],
    "reversals_of": ["reversals_pkey", "reversals_by"],
    "records_of_submission": [CHANGE, VERSION_CHANGE, VERSION, RANGE],
    "reversible": [CHANGE, VERSION_CHANGE, VERSION, RECORD, RANGE, "reversals_pkey", "submissions_pkey"],
    "count_reversible": [CHANGE, VERSION_CHANGE, VERSION, RECORD, RANGE, "reversals_pkey", "submissions_pkey"],
    "record_reversal": [],
    "submissions_before": [FEED, "submissions_listed", *REVERSALS, *IMPORT_PARTS],
    "submissions_of_sender_before": [FEED, "submissions_sent_by", *REVERSALS, *IMPORT_PARTS],
    "current_states": [FEED, CHANGE],
    "states_changed_since": [VERSION_CHANGE, RECORD, VERSION],
    "all_states": [CHANGE, VERSION_CHANGE, RECORD, "submissions_pkey"],
    "left_out_of_reversal": [CHANGE, VERSION_CHANGE, VERSION, RECORD, RANGE, "reversals_pkey"],
    "account": [ADDRESS],
    "account_of_ticket": [TICKET, PERSON],
    "use_ticket": [TICKET],
    "delete_tickets": ["sign_in_tickets_person"],
    "totp_secrets_after": [PERSON],
    "replace_totp_secret": [PERSON],
    "lock_account": [ADDRESS],
    "lock_account_of_link": [PERSON, LINK],
    "person": [ADDRESS, ROLE, ORGANIZATION],
    "people_of": ["person_organizations_organization", ROLE, ORGANIZATION],
    "invitation": ["invitations_link_hash_key"],
    "invitation_of_link": ["invitations_link_hash_key", ORGANIZATION],
    "invitations_of_organization": ["invitations_pkey", ORGANIZATION],
    "invitations_for_person": ["invitations_email", ORGANIZATION],
    "delete_invitation": ["invitations_pkey"],
    "delete_invitation_of_link": ["invitations_link_hash_key"],
    "has_role": [ADDRESS, ROLE],
    "person_of_link": [LINK, PERSON, ROLE, ORGANIZATION],
    "set_password": [PERSON],
    "set_let_in_by": [PERSON],
    "rehash_password": [PERSON],
    "set_two_step": [PERSON],
    "use_totp_step": [PERSON],
    "note_sign_in": [PERSON],
    "use_recovery_code": ["recovery_codes_pkey"],
    "use_link": [LINK],
    "find_session": [SESSION, PERSON, ROLE, ORGANIZATION],
    "touch_session": [SESSION],
    "sessions_of": [ADDRESS, "sessions_person"],
    "owner_of_session": ["sessions_session_id_key", PERSON],
    "end_session": ["sessions_session_id_key"],
    "end_sessions_but": ["sessions_person"],
    "sign_out": [SESSION],
    "add_session": [],
    "recent_attempts": ["sign_in_attempts_source"],
    "add_attempt": [],
    "settle_attempt": [ATTEMPT],
    "forget_attempt": [ATTEMPT],
    "delete_old_attempts": ["sign_in_attempts_time"],
    "add_notice": [],
    "add_sealed_delivery": [],
    "due_deliveries": ["notice_deliveries_next", "notices_pkey"],
    "claim_delivery": ["notice_deliveries_pkey"],
    "release_delivery": ["notice_deliveries_pkey"],
    "end_delivery": ["notice_deliveries_pkey"],
    "postpone_delivery": ["notice_deliveries_pkey"],
    "end_expired_deliveries": ["notice_deliveries_next"],
    "old_notices": ["notices_created"],
    "delete_deliveries": ["notice_deliveries_pkey"],
    "delete_notice": ["notices_pkey"],
    "replace_sealed": ["notice_deliveries_pkey"],
    "probe_read": ["notice_states_pkey"],
    "probe_write": [],
    "probe_write_of_feeds": [],
    "undo_probe_write_of_feeds": ["feed_outbox_pkey"],
    "set_notice_state": [],
    "end_state": ["notice_states_pkey"],
    "noted_subjects": ["notice_states_pkey"],
}
"""The statements of requests, chores and changes of one key or organization, with the indexes they use."""

COLD = {
    # A pair of databases: when it is made, at a start, and by chores.
    "pair", "set_pair", "any_feed", "any_organization", "owners_of_feeds", "uids", "complete_uids", "highest_owner",
    "skip_numbers", "set_owner", "entries", "oldest_entry", "probe_read_of_feeds",
    # Used on an empty or small database only, or on a table of a few rows.
    "has_deployment", "any_table", "deployment", "create_deployment", "record_migration", "copy_under_way",
    # Full lists, for people.
    "create_link_key", "link_keys", "set_link_page",
    "credentials", "key_alerts", "organizations_of_clients", "organizations", "groups_of",
    "organizations_of_client",
    # Changes by hand, in tables of some hundred rows.
    "create_client", "add_client_organization", "remove_client_organizations", "create_organization",
    "rename_organization", "close_organization", "set_default_group", "unset_default_group", "create_group",
    "retire_group",
    # Once an hour, in the background, by key: a step of feeds or of readers.
    "feeds_to_clean", "readers_to_clean",
    # Reads no table.
    "may_delete_expired", "may_delete_old",
    # After a restore: a lost group, in a table of some hundred rows.
    "create_lost_group",
    # After a restore: all rows.
    "feeds", "revoke_everything", "delete_every_link", "delete_every_ticket", "end_every_session",
    "delete_every_invitation", "end_all_deliveries",
    # At a start: the deliveries of a month. When a link is made by hand: those that are open.
    "sealed_after", "end_sealed_deliveries",
    # Searches every feed (three per organization), because an id does not name its feed.
    "find_submission", "find_import",
    # The imports of every feed of an organization: some hundred, for people.
    "imports_of",
    # The uploads and the work of the last days.
    "find_upload_anywhere", "unfinished_uploads", "old_uploads", "old_work", "waiting_work",
    # Only where a process writes late: the list of one reader.
    "drop_outrun_positions",
    # Some hundred people, listed, locked or changed by hand.
    "create_person", "lock_administrators", "people", "put_role", "remove_role", "set_administrator", "set_disabled",
    "add_recovery_code", "delete_recovery_codes",
    "add_ticket", "put_invitation", "add_link", "delete_links", "delete_links_of_others",
    # Once a minute, in the background: scans the sessions of a week and the links of a day.
    "incomplete_feeds", "feeds_without_digest_key", "feeds_with_digest_keys",
    # The one row of the deployment.
    "first_erasure", "first_erasure_known", "begin_erasing", "reading_key", "make_reading_key",
    # A row for each person, address and hour.
    "forget_reads",
    "delete_ended_sessions", "delete_expired_links", "delete_expired_tickets", "delete_expired_invitations",
    # Reads some hundred people.
    "add_deliveries", "recipient",
    # Reads no table.
    "lock_source", "may_delete_ended",
}  # fmt: skip

# The index columns that bound what a statement reads: with fewer it would scan a whole feed.
BOUND_BY = {
    "current_records": ("feed_id", "address", "group_no"),
    "keep_versions": ("feed_id", "address", "group_no"),
    "touch_records": ("feed_id", "address", "group_no"),
    "confirm_records": ("feed_id", "seq"),
    "records_of_addresses": ("feed_id", "address"),
    "feed_and_records_of_address": ("feed_id", "address"),
    "erased_records": ("feed_id", "address"),
    "erased_forms_of_feed": ("feed_id", "address"),
    "records_after": ("feed_id", "seq"),
    "state_records_after": ("feed_id", "seq"),
    "seq_after": ("feed_id", "seq"),
    "records_of_group": ("feed_id", "seq"),
    "addresses_after": ("feed_id", "address"),
    "records_everywhere": ("feed_id", "address"),
    "seq_before": ("feed_id", "seq"),
    "records_before": ("feed_id", "seq"),
    "count_between": ("feed_id", "seq"),
    "last_recorded": ("feed_id", "seq"),
    "records_of_address": ("feed_id", "address"),
    "versions_of_record": ("feed_id", "address", "group_no"),
}
SUBMISSION_STATEMENTS = (
    *("records_of_submission", "reversible", "reversible_erased", "count_reversible", "left_out_of_reversal"),
)
"""They read a range of numbers of one submission, and each of its records by key."""
RANGE_BOUND = "(feed_id=? AND last_seq>?)"
"""It bounds the search for the range that confirms a record, of at most one row."""
WITH_FEED_ROW = ("records_after", "records_of_group", "records_of_addresses", "feed_and_records_of_address")
"""They read the row of the feed, too."""
BATCH_STATEMENTS = ("current_records", "erased_records", "keep_versions", "touch_records", "records_of_addresses")
"""They begin with the given addresses, and find the records of each."""
PAGE_STATEMENTS = (
    "records_after",
    "state_records_after",
    "seq_after",
    "addresses_after",
    "seq_before",
    "current_states",
)
"""They scan an index only to the end of the page."""

GROWING_TABLES = (
    "token_pairs", "clients", "client_days", "client_refusals", "audit", "audit_organizations",
    "unsubscribes", "unsubscribe_versions", "submissions", "feeds", "feed_days", "reversals",
    "imports", "import_parts", "upload_pieces", "import_rejects", "sessions", "sign_in_attempts",
    "feed_followers", "feed_positions", "confirmed_ranges", "moved_entries",
)  # fmt: skip
"""The tables that grow with requests; none may be scanned."""

# SQLite's names for the indexes of primary keys and unique columns.
_SQLITE_INDEXES = {
    "clients_pkey": "sqlite_autoindex_clients_1",
    "client_days_pkey": "sqlite_autoindex_client_days_1",
    "client_refusals_pkey": "sqlite_autoindex_client_refusals_1",
    "organizations_slug_key": "sqlite_autoindex_organizations_1",
    "groups_pkey": "sqlite_autoindex_groups_1",
    "organizations_pkey": "INTEGER PRIMARY KEY",
    "client_organizations_pkey": "sqlite_autoindex_client_organizations_1",
    "feeds_pkey": "sqlite_autoindex_feeds_1",
    "erasures_pkey": "sqlite_autoindex_erasures_1",
    "feed_outbox_pkey": "sqlite_autoindex_feed_outbox_1",
    "moved_entries_pkey": "sqlite_autoindex_moved_entries_1",
    "confirmed_ranges_pkey": "sqlite_autoindex_confirmed_ranges_1",
    "person_reads_pkey": "sqlite_autoindex_person_reads_1",
    "feed_days_pkey": "sqlite_autoindex_feed_days_1",
    "unsubscribes_pkey": "sqlite_autoindex_unsubscribes_1",
    "token_pairs_pkey": "INTEGER PRIMARY KEY",
    "audit_pkey": "INTEGER PRIMARY KEY",
    "audit_organizations_pkey": "sqlite_autoindex_audit_organizations_1",
    "unsubscribe_versions_pkey": "sqlite_autoindex_unsubscribe_versions_1",
    "submissions_pkey": "sqlite_autoindex_submissions_1",
    "imports_pkey": "sqlite_autoindex_imports_1",
    "import_parts_pkey": "sqlite_autoindex_import_parts_1",
    "uploads_pkey": "sqlite_autoindex_uploads_1",
    "upload_pieces_pkey": "sqlite_autoindex_upload_pieces_1",
    "import_rejects_pkey": "sqlite_autoindex_import_rejects_1",
    "import_work_pkey": "sqlite_autoindex_import_work_1",
    "feed_followers_pkey": "sqlite_autoindex_feed_followers_1",
    "feed_positions_pkey": "sqlite_autoindex_feed_positions_1",
    "reversals_pkey": "sqlite_autoindex_reversals_1",
    "groups_organization_id_group_no_key": "sqlite_autoindex_groups_2",
    "notice_states_pkey": "sqlite_autoindex_notice_states_1",
    "notice_deliveries_pkey": "sqlite_autoindex_notice_deliveries_1",
    "notices_pkey": "sqlite_autoindex_notices_1",
    "people_pkey": "INTEGER PRIMARY KEY",
    "people_email_key": "sqlite_autoindex_people_1",
    "person_organizations_pkey": "sqlite_autoindex_person_organizations_1",
    "recovery_codes_pkey": "sqlite_autoindex_recovery_codes_1",
    "link_keys_pkey": "sqlite_autoindex_link_keys_1",
    "sign_in_tickets_pkey": "sqlite_autoindex_sign_in_tickets_1",
    "invitations_pkey": "sqlite_autoindex_invitations_2",
    "invitations_link_hash_key": "sqlite_autoindex_invitations_1",
    "sign_in_links_pkey": "sqlite_autoindex_sign_in_links_1",
    "sessions_pkey": "sqlite_autoindex_sessions_1",
    "sessions_session_id_key": "sqlite_autoindex_sessions_2",
    "sign_in_attempts_pkey": "sqlite_autoindex_sign_in_attempts_1",
}

_WITHOUT_AUTOVACUUM = [f"ALTER TABLE {table} SET (autovacuum_enabled = off)" for table in GROWING_TABLES]
_FILL = [
    "INSERT INTO organizations (slug, name, created_ms) VALUES ('acme', 'Acme', 0)",
    """INSERT INTO clients SELECT 'svc_ci_' || i, 'a key', '\\x00', 'svc_cs_', 1, 1, 1, 'read', NULL, NULL, 0
        FROM generate_series(1, 2000) i""",
    """INSERT INTO token_pairs (client_id, epoch, access_hash, refresh_hash, access_expires_ms, refresh_expires_ms)
        SELECT 'svc_ci_' || i % 1000, 1, sha256(CAST('a' || i AS bytea)), sha256(CAST('r' || i AS bytea)), i, i
        FROM generate_series(1, 20000) i""",
    """INSERT INTO unsubscribes
        SELECT 17 + 16 * (i % 2), 'a' || i || '@example.org', i % 3, 'uns_' || i, i, 'unsubscribed', 'unsubscribe',
               NULL, i, i, 'sub_' || i, i, 0
        FROM generate_series(1, 60000) i""",
    """INSERT INTO unsubscribe_versions
        SELECT 17 + 16 * (i % 2), 'a' || i || '@example.org', i % 3, 60000 + i, 'unsubscribed', 'unsubscribe',
               NULL, i, i, 'sub_' || i
        FROM generate_series(1, 60000) i""",
    """INSERT INTO submissions
        SELECT 17 + 16 * (i % 2), 'sub_' || i, 1, 'client', 'a', NULL, NULL, i, 1, 1, 0, 0, 0, 0, i, i
        FROM generate_series(1, 60000) i""",
    "INSERT INTO reversals SELECT 17, 'sub_' || i, 'sub_' || i + 1, i FROM generate_series(1, 1000) i",
    """INSERT INTO audit (at_ms, actor_kind, actor_id, action, target, detail)
        SELECT i, 'person', 'p' || i % 50, CASE WHEN i % 3 = 0 THEN 'key.update' ELSE 'key.create' END,
               'svc_ci_' || i % 1000, '{}'
        FROM generate_series(1, 60000) i""",
    """INSERT INTO audit_organizations SELECT 1 + audit_id % 2, at_ms, audit_id FROM audit""",
    "INSERT INTO feeds SELECT i, i / 16, 'email', 'generation', 60000, 1 FROM generate_series(1, 2000) i",
]
_RECORDS, _VERSIONS = (statement for statement in _FILL if statement.startswith("INSERT INTO unsubscribe"))
_ONE_ROW_BEFORE = [
    _RECORDS.replace("60000)", "1)"),
    _VERSIONS.replace("60000)", "1)"),
    "ANALYZE unsubscribes, unsubscribe_versions",
    "DELETE FROM unsubscribes",
    "DELETE FROM unsubscribe_versions",
    _RECORDS.replace("60000)", "10000)"),
    _VERSIONS.replace("60000)", "10000)"),
]

# The values for which the first executions on a connection are planned; a generic plan competes with that plan later.
_VALUES = {
    "feed_id": "17",
    "group_no": "1",
    "addresses": """'["a2@example.org", "a4@example.org", "nobody@example.org"]'""",
    "touched": """'{"0": ["a2@example.org", 5, 1], "1": ["a4@example.org", 5, 1]}'""",
    "seqs": "'[3, 7, 60001]'",
    "superseded": "'{}'",
    "recorded_ms": "1",
    "submission_id": "'sub_'",
    "after": "20",
    "after_address": "'a2@example.org'",
    "until": "4020",
    "most": "10000",
    "examined": "2000",
    "feed_ids": "'[17, 33]'",
    "address": "'a2@example.org'",
    "at_ms": "3000",
    "before": "40000",
    "from_seq": "39000",
    "recorded_from_ms": "0",
    "recorded_until_ms": "100000",
    "from_day": "20000",
    "target": "'svc_ci_7'",
    "person": "'p7'",
    "action": "'key.update'",
    "organization_id": "1",
    "mine": "'[1]'",
    "sees_all": "0",
    "before_ms": "50000",
    "before_id": "50000",
    "floor_ms": "10000",
    "floor_id": "0",
    "scan": "2000",
    "first_seq": "20",
    "last_seq": "10019",
    "head": "60000",
    "from_ms": "0",
    "actor_id": "'a'",
}


def test_every_statement_is_hot_or_cold() -> None:
    """Add a new statement to one of the two lists, with its indexes or with a reason."""
    assert set(HOT) | COLD == set(QUERIES)
    assert not set(HOT) & COLD


# SQLite


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """Return a database with the schema. SQLite plans without statistics, so rows would change nothing."""
    path = tmp_path_factory.mktemp("plans") / "stoplist.db"
    asyncio.run(_make(f"sqlite:///{path}"))
    with closing(sqlite3.connect(path)) as connection:
        yield connection


@pytest.mark.parametrize("name", HOT)
def test_on_sqlite_statements_use_their_indexes(sqlite: sqlite3.Connection, name: str) -> None:
    """No growing table is scanned."""
    query = QUERIES[name]
    rows = sqlite.execute(f"EXPLAIN QUERY PLAN {query.sqlite}", dict.fromkeys(query.parameters))
    plan = [str(row[3]) for row in rows]
    for index in HOT[name]:
        assert any(_SQLITE_INDEXES.get(index, index) in step for step in plan), plan
    temporary = {step.split()[1] for step in plan if step.startswith(("CO-ROUTINE", "MATERIALIZE"))}
    for step in plan:
        if step.startswith("SCAN") and "VIRTUAL TABLE" not in step and step.split()[1] not in temporary:
            # The oldest rows in key order, read only to the number to delete.
            assert name == "delete_expired_pairs", plan


@pytest.mark.parametrize("name", BOUND_BY)
def test_on_sqlite_the_whole_key_bounds_the_search(sqlite: sqlite3.Connection, name: str) -> None:
    """The batch comes first, then each address is searched by the whole key; no feed is scanned."""
    query = QUERIES[name]
    plan = [
        str(row[3]) for row in sqlite.execute(f"EXPLAIN QUERY PLAN {query.sqlite}", dict.fromkeys(query.parameters))
    ]
    searches = [at for at, step in enumerate(plan) if step.startswith("SEARCH") and RANGE_BOUND not in step]
    (search,) = searches[name in WITH_FEED_ROW :]
    assert re.search(r"[=>]\? AND ".join(BOUND_BY[name]) + r"[=>]\?", plan[search]), plan
    if name in BATCH_STATEMENTS:
        assert "VIRTUAL TABLE" in plan[search - 1], plan


def test_sqlite_has_no_statistics(sqlite: sqlite3.Connection) -> None:
    """So a deployment has the plans above."""
    assert not sqlite.execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'sqlite_stat%'").fetchall()


# PostgreSQL


class Planner:
    """A connection to a database that says how it would run a statement."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._connection: Any = self._runner.run(asyncpg.connect(url))

    def plan(
        self, query: Query, *, mode: str = "force_generic_plan", values: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """Return the generic plan, which a prepared statement comes to use, or the plan for these values."""
        arguments = ", ".join(values.get(name, "NULL") for name in query.parameters)
        return "\n".join(self._explain(query, mode, "COSTS OFF", arguments))

    def ninth_plan(self, query: Query, values: Mapping[str, str]) -> str:
        """Return the plan for these values after eight others: from the sixth on, a generic one is considered."""
        arguments = ", ".join(values[name] for name in query.parameters)
        return "\n".join(self._explain(query, "auto", "COSTS OFF", arguments, times=9))

    def pages(self, query: Query, mode: str, *values: str) -> int:
        """Run the statement, and return how many pages it read."""
        (found,) = self._explain(query, mode, "ANALYZE, BUFFERS, FORMAT JSON", ", ".join(values))
        top = json.loads(found)[0]["Plan"]
        return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()

    def _explain(self, query: Query, mode: str, options: str, arguments: str, *, times: int = 1) -> list[str]:
        async def run() -> list[str]:
            await self._connection.execute(f"SET plan_cache_mode = {mode}")
            await self._connection.execute(f"PREPARE it AS {query.postgresql}")
            for _ in range(times):
                rows = await self._connection.fetch(f"EXPLAIN ({options}) EXECUTE it {arguments and f'({arguments})'}")
            await self._connection.execute("DEALLOCATE it")
            return [row[0] for row in rows]

        return self._runner.run(run())


@pytest.fixture(scope="module")
def empty(postgresql: PostgresqlServer) -> Iterator[Planner]:
    """Return an empty database with the schema."""
    yield from _planner(postgresql, [])


@pytest.fixture(scope="module")
def filled(postgresql: PostgresqlServer) -> Iterator[Planner]:
    """Return a database with many rows and no statistics."""
    yield from _planner(postgresql, _WITHOUT_AUTOVACUUM + _FILL)


@pytest.fixture(scope="module")
def begun(postgresql: PostgresqlServer) -> Iterator[Planner]:
    """Return a database with the first few records, for which any index of a feed seems to do."""
    first = """INSERT INTO unsubscribes
        SELECT 17, 'a' || i || '@example.org', 1, 'uns_' || i, i, 'unsubscribed', 'unsubscribe',
               NULL, i, i, 'sub_' || i, i, 0
        FROM generate_series(1, 50) i"""
    yield from _planner(postgresql, [*_WITHOUT_AUTOVACUUM, first])


@pytest.fixture(scope="module")
def analysed_with_one_row(postgresql: PostgresqlServer) -> Iterator[Planner]:
    """Return a filled database with the statistics of one row, by which any index of a feed seems to find one row."""
    yield from _planner(postgresql, _WITHOUT_AUTOVACUUM + _ONE_ROW_BEFORE)


@pytest.fixture(scope="module")
def restored_with_one_row(postgresql: PostgresqlServer) -> Iterator[Planner]:
    """Return `analysed_with_one_row` with its indexes in the order of pg_restore: of equal ones, the newest is used."""
    keys = [
        f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey, ADD CONSTRAINT {table}_pkey PRIMARY KEY ({columns})"
        for table, columns in (
            ("unsubscribes", "feed_id, address, group_no"),
            ("unsubscribe_versions", "feed_id, address, group_no, seq"),
        )
    ]
    yield from _planner(postgresql, _WITHOUT_AUTOVACUUM + keys + _ONE_ROW_BEFORE)


# `delete_expired_pairs` is planned for its values each time, as a test below shows.
@pytest.mark.parametrize("name", sorted(HOT.keys() - {"delete_expired_pairs"}))
def test_on_an_empty_postgresql_statements_use_their_indexes(empty: Planner, name: str) -> None:
    """A connection may keep the plan of a new deployment for its whole life, so it must be right from the start."""
    _check(empty.plan(QUERIES[name]), name)


@pytest.mark.parametrize(
    "name",
    [
        "find_client",
        "find_access_token",
        "find_refresh_token",
        "issue_pair",
        "rotate_pair",
        "feed",
        "lock_feed",
        "give_back_numbers",
    ],
)
def test_on_a_full_postgresql_statements_use_their_indexes(filled: Planner, name: str) -> None:
    """The tables have many rows and no statistics."""
    _check(filled.plan(QUERIES[name]), name)


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize(
    ("size", "name"),
    [
        *itertools.product(["empty", "begun", "filled"], BOUND_BY),
        *itertools.product(["analysed_with_one_row", "restored_with_one_row"], (*BATCH_STATEMENTS, "confirm_records")),
        ("analysed_with_one_row", "feed_and_records_of_address"),
    ],
)
def test_on_postgresql_the_whole_key_bounds_the_search(
    request: pytest.FixtureRequest, size: str, mode: str, name: str
) -> None:
    """The generic plan and one for these values begin with the batch, and use no hash join."""
    plan = request.getfixturevalue(size).plan(QUERIES[name], mode=mode, values=_VALUES)
    assert "Hash" not in plan, plan
    conditions = [each for each in re.findall(r"Index Cond: (.+)", plan) if "last_seq >=" not in each]
    (condition,) = conditions[name in WITH_FEED_ROW :]
    assert all(re.search(rf"\({column} [=<>]+ ", condition) for column in BOUND_BY[name]), plan
    if name in BATCH_STATEMENTS:
        assert plan.index("Function Scan") < plan.index(" on unsubscribes u"), plan
        assert "Nested Loop" in plan, plan


@pytest.mark.parametrize("name", PAGE_STATEMENTS)
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("size", ["empty", "filled"])
def test_on_postgresql_a_full_page_ends_the_scan(
    request: pytest.FixtureRequest, size: str, mode: str, name: str
) -> None:
    """The index gives the order: a sort would first read to the end of the feed."""
    plan = request.getfixturevalue(size).plan(QUERIES[name], mode=mode, values=_VALUES)
    assert re.search(rf"Index (?:Only )?Scan (?:Backward )?using {HOT[name][0]}\b", plan), plan
    assert "Sort" not in plan, plan


def test_on_a_full_postgresql_the_oldest_pairs_use_their_key(filled: Planner) -> None:
    """They still do once PostgreSQL has considered a generic plan, so a deletion costs the same for ever."""
    plan = filled.ninth_plan(QUERIES["delete_expired_pairs"], {"most": "500", "now_ms": "10000"})
    _check(plan, "delete_expired_pairs")


def _check(plan: str, name: str) -> None:
    for index in HOT[name]:
        assert re.search(rf"(?:using|on) {index}\b", plan), plan
    for table in GROWING_TABLES:
        assert not re.search(rf"Seq Scan on {table}\b", plan), plan


def _planner(postgresql: PostgresqlServer, statements: list[str]) -> Iterator[Planner]:
    url = postgresql.fresh_database("plans")
    asyncio.run(_make(url))
    own = PostgresqlServer(url)
    for statement in statements:
        own.execute(statement)
    planner = Planner(url)
    yield planner
    planner.close()
    postgresql.drop_database(url)


async def _make(url: str) -> None:
    async with migrated(url):
        pass


@pytest.fixture(scope="module")
def analysed(postgresql: PostgresqlServer) -> Iterator[Planner]:
    """Return a filled database with statistics of the feeds existing when they were gathered."""
    yield from _planner(postgresql, _WITHOUT_AUTOVACUUM + _FILL + ["ANALYZE"])


@pytest.mark.parametrize("name", BOUND_BY)
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("feed_id", ["17", "49"])
def test_on_postgresql_with_statistics_the_key_bounds_a_new_feed(
    analysed: Planner, mode: str, feed_id: str, name: str
) -> None:
    """PostgreSQL could expect one row of a feed missing from the statistics, by whichever index, and scan it."""
    plan = analysed.plan(QUERIES[name], mode=mode, values={**_VALUES, "feed_id": feed_id})
    conditions = re.findall(r"Index Cond: (.+)", plan)
    assert any(
        all(re.search(rf"\({column} [=<>]+ ", condition) for column in BOUND_BY[name]) for condition in conditions
    ), plan
    assert re.search(rf"(?:using|on) {HOT[name][0]}\b", plan), plan


SUBMISSION_KEYS = (
    ("feed_id", "seq", "seq"),
    ("feed_id", "address", "group_no"),
    ("feed_id", "submission_id"),
    ("feed_id", "seq"),
    ("feed_id", "stands_seq", "stands_seq"),
    ("feed_id", "last_seq"),
)
ONE_RECORD_RANGE = (
    r"\(ROW\(address, group_no, seq\) >= ROW\(u\.address, u\.group_no, 0\)\) AND "
    r"\(ROW\(address, group_no, seq\) < ROW\(u\.address, u\.group_no, [^)]+\)\)"
)
"""The index condition for a range of positions of one record."""


@pytest.mark.parametrize("name", SUBMISSION_STATEMENTS)
def test_on_sqlite_changes_of_a_submission_are_found_by_key(sqlite: sqlite3.Connection, name: str) -> None:
    """The key is a number or a record: no feed is scanned, and only the versions of the record itself are read."""
    query = QUERIES[name]
    rows = sqlite.execute(f"EXPLAIN QUERY PLAN {query.sqlite}", dict.fromkeys(query.parameters))
    searches = [str(row[3]) for row in rows if str(row[3]).startswith("SEARCH")]
    bounds = [tuple(re.findall(r"(\w+)[=<>]+\?", search)) for search in searches]
    assert searches
    for bound, search in zip(bounds, searches, strict=True):
        # A version of a record may be searched by its number too.
        assert bound in SUBMISSION_KEYS or bound[:3] == ("feed_id", "address", "group_no"), search


@pytest.mark.parametrize("name", SUBMISSION_STATEMENTS)
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("size", ["empty", "filled", "analysed", "analysed_with_one_row"])
def test_on_postgresql_changes_of_a_submission_are_found_by_key(
    request: pytest.FixtureRequest, size: str, mode: str, name: str
) -> None:
    """The key is a number or a record; this holds with any statistics, and without a hash join."""
    plan = request.getfixturevalue(size).plan(QUERIES[name], mode=mode, values=_VALUES)
    conditions = re.findall(r"Index Cond: (.+)", plan)
    assert conditions
    for condition in conditions:
        by_key = re.sub(ONE_RECORD_RANGE, "(address = u.address) AND (group_no = u.group_no)", condition)
        columns = tuple(re.findall(r"\((\w+) (?:=|>|<|>=|<=) ", by_key))
        assert columns in SUBMISSION_KEYS, plan
    assert not re.search(r"Seq Scan on (?:unsub|subm|rev)", plan), plan
    assert not re.search(r"Hash (?:Left |Anti |Semi )?Join", plan), plan


def test_on_sqlite_a_time_is_found_by_binary_search(sqlite: sqlite3.Connection) -> None:
    """Each step reads the first record of a half, in the order of the index."""
    query = QUERIES["seq_at"]
    rows = sqlite.execute(f"EXPLAIN QUERY PLAN {query.sqlite}", dict.fromkeys(query.parameters))
    plan = [str(row[3]) for row in rows]
    assert "SEARCH u USING INDEX unsubscribes_seq (feed_id=? AND seq>? AND seq<?)" in plan
    assert not any("B-TREE" in step for step in plan)


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("size", ["filled", "analysed"])
def test_on_postgresql_a_time_is_found_by_binary_search(request: pytest.FixtureRequest, size: str, mode: str) -> None:
    """EXPLAIN of PostgreSQL 15 does not show how the feed is read, so this counts the pages.

    The feed has a thousand pages; each of 16 steps reads three levels of an index, and a record.
    """
    pages = request.getfixturevalue(size).pages(QUERIES["seq_at"], mode, "17", "3000")
    assert 17 < pages < 17 * 6


def test_on_sqlite_a_submission_is_found_by_its_key_in_each_feed(sqlite: sqlite3.Connection) -> None:
    """There is no index on its id alone."""
    query = QUERIES["find_submission"]
    rows = sqlite.execute(f"EXPLAIN QUERY PLAN {query.sqlite}", dict.fromkeys(query.parameters))
    plan = [str(row[3]) for row in rows]
    assert any(step.startswith("SEARCH s ") and "(feed_id=? AND submission_id=?)" in step for step in plan), plan
    assert not any(step.startswith("SCAN s") for step in plan), plan


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("size", ["empty", "filled", "analysed"])
def test_on_postgresql_a_submission_is_found_by_its_key_in_each_feed(
    request: pytest.FixtureRequest, size: str, mode: str
) -> None:
    """This holds with any statistics."""
    plan = request.getfixturevalue(size).plan(QUERIES["find_submission"], mode=mode, values=_VALUES)
    assert re.search(r"Scan (?:using|on) submissions_pkey\b", plan), plan
    assert re.search(r"Index Cond: \(\(feed_id = f\.feed_id\) AND \(submission_id = ", plan), plan
    assert not re.search(r"Seq Scan on submissions", plan), plan


FLOORS = sorted(name for name in HOT if name.startswith("floor_of_"))
"""They scan an index of the audit up to the row they look for."""
AUDIT_STATEMENTS = sorted(name for name in HOT if name.startswith(("floor_of_", "page_of_")))
"""They read a range of an index of the audit."""


@pytest.mark.parametrize("name", AUDIT_STATEMENTS)
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("size", ["empty", "filled", "analysed"])
def test_on_postgresql_audit_pages_read_a_range_of_an_index(
    request: pytest.FixtureRequest, size: str, mode: str, name: str
) -> None:
    """Bounded by every column, so that a page costs what it examines, and no table is scanned."""
    values = {**_VALUES, "most": "51", "floor_ms": "48000"}
    plan = request.getfixturevalue(size).plan(QUERIES[name], mode=mode, values=values)
    _check(plan, name)
    place = r"ROW\([a-z_., ]*at_ms, (?:\w+\.)?audit_id\)"
    assert re.search(rf"Index Cond: .*{place} < ROW.*{place} >= ROW", plan), plan


@pytest.mark.parametrize("name", [*FLOORS, "latest_of_target"])
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("size", ["empty", "filled", "analysed"])
def test_on_postgresql_audit_floors_need_no_sort(
    request: pytest.FixtureRequest, size: str, mode: str, name: str
) -> None:
    """The index gives the order: there may be a million older rows."""
    values = {**_VALUES, "most": "51", "floor_ms": "0"}
    plan = request.getfixturevalue(size).plan(QUERIES[name], mode=mode, values=values)
    assert re.search(rf"Index (?:Only )?Scan Backward using {HOT[name][0]}\b", plan), plan
    assert "Sort" not in plan, plan


@pytest.mark.parametrize("name", [*AUDIT_STATEMENTS, "latest_of_target"])
def test_on_sqlite_audit_pages_read_a_range_of_an_index(sqlite: sqlite3.Connection, name: str) -> None:
    """Bounded by the condition and by position, in the order of the index."""
    query = QUERIES[name]
    rows = sqlite.execute(f"EXPLAIN QUERY PLAN {query.sqlite}", dict.fromkeys(query.parameters))
    plan = [str(row[3]) for row in rows]
    assert not any("TEMP B-TREE" in step for step in plan), plan
    if name != "latest_of_target":
        assert re.search(r"at_ms(?:,audit_id\))?[<>]", plan[0]), plan
