"""Two-step sign-in: TOTP (RFC 6238), and recovery codes for those who have lost the device.

No code is accepted twice (RFC 6238 section 5.2): the step of the last code is stored, and only moves forward.
Source: docs/interface.md section D11.
"""

import base64
import hmac
import logging
import os
import re

import msgspec
import pyotp

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.staff import attempts
from stoplist.staff.attempts import Attempt
from stoplist.staff.model import Person, StaffStores
from stoplist.staff.passwords import WRONG_PASSWORD, confirm, own_account
from stoplist.staff.store import Account, find_person, lock_account
from stoplist.staff.tickets import delete_tickets
from stoplist.staff.totp_secrets import LOST, encrypted_secret, readable_secret

_LOG = logging.getLogger(__name__)
_QUERIES = load_queries(__package__)
_ADD_CODE = _QUERIES["add_recovery_code"]
_DELETE_CODES = _QUERIES["delete_recovery_codes"]
_SET = _QUERIES["set_two_step"]
_USE_CODE = _QUERIES["use_recovery_code"]
_USE_STEP = _QUERIES["use_totp_step"]

STEP_S = 30
_STEP_OFFSETS = (-1, 0, 1)
ISSUER = "Stoplist"
RECOVERY_CODES = 10
_CODE_BYTES = 10  # 80 bits: a plain hash of them cannot be reversed
_SECRET = re.compile(r"[A-Z2-7]{32}")
_CODE = re.compile(r"[0-9]{6}")
WRONG_CODE = "That code is wrong, or was used before. Enter the one that the app shows now."


class Enrolment(msgspec.Struct, frozen=True):
    """The secret for an authenticator app, as text and as the address to show as a QR code."""

    secret: str
    uri: str


def is_required(person: Person, require_two_step: str) -> bool:
    """Return whether the setting demands two-step sign-in of this person."""
    return require_two_step == "everybody" or (require_two_step == "administrators" and person.is_administrator)


def begin(email: str) -> Enrolment:
    """Return a new secret for an app. It has no effect until `turn_on` gets a code made with it."""
    secret = pyotp.random_base32()
    return Enrolment(secret, provisioning_uri(secret, email))


def provisioning_uri(secret: str, email: str) -> str:
    """Return the `otpauth:` address of a secret, for a QR code."""
    return pyotp.TOTP(secret, interval=STEP_S).provisioning_uri(name=email, issuer_name=ISSUER)


async def turn_on(actor: Actor, stores: StaffStores, *, secret: str, code: str, password: str) -> list[str]:
    """Turn two-step sign-in on for the person who acts, and return ten recovery codes, which are shown only here.

    The password is required: somebody at an unattended browser could otherwise lock its owner out with another app.
    """
    if not _SECRET.fullmatch(secret):
        raise Refused("This page is incomplete. Open it again and start over.", field="code")
    now_ms = stores.clock.now_ms()
    step = matching_step(secret, code, now_ms)
    if step is None:
        raise Refused(WRONG_CODE, field="code")
    account = await own_account(actor, stores)
    attempt = await confirm(actor, stores, account, password, field="password", what="two_step")

    async def turn(transaction: Transaction) -> list[str]:
        held = await _lock_confirmed(transaction, account, attempt)
        if held.totp_secret is not None:
            raise Refused("Two-step sign-in is on already. Turn it off before you set up another app.")
        encrypted = encrypted_secret(stores.secret_keys, held.person_id, secret)
        await transaction.run(_SET, person_id=held.person_id, totp_secret=encrypted, totp_step=step)
        await trail.record(transaction, actor, "person.two_step", held.email, at_ms=now_ms, is_on=True)
        return await _renew_codes(transaction, held)

    return await stores.database.write(turn)


async def turn_off(actor: Actor, stores: StaffStores, *, password: str) -> None:
    """Turn two-step sign-in off for the person who acts, and delete the recovery codes."""
    account = await own_account(actor, stores)
    attempt = await confirm(actor, stores, account, password, field="password", what="two_step")
    now_ms = stores.clock.now_ms()

    async def turn(transaction: Transaction) -> None:
        held = await _lock_confirmed(transaction, account, attempt)
        if is_required(await find_person(transaction, held.email), stores.require_two_step):
            raise Refused(
                "Two-step sign-in is required of you here. To use another device, ask for a new sign-in link."
            )
        if held.totp_secret is not None:
            await remove(transaction, actor, held, now_ms)

    await stores.database.write(turn)


async def new_recovery_codes(actor: Actor, stores: StaffStores, *, password: str) -> list[str]:
    """Return ten new recovery codes, which are shown only here, and delete the earlier ones."""
    account = await own_account(actor, stores)
    attempt = await confirm(actor, stores, account, password, field="password", what="two_step")
    now_ms = stores.clock.now_ms()

    async def renew(transaction: Transaction) -> list[str]:
        held = await _lock_confirmed(transaction, account, attempt)
        if held.totp_secret is None:
            raise Refused("Two-step sign-in is off. Turn it on to get recovery codes.")
        await trail.record(transaction, actor, "person.two_step", held.email, at_ms=now_ms, are_codes_new=True)
        return await _renew_codes(transaction, held)

    return await stores.database.write(renew)


async def remove(transaction: Transaction, actor: Actor, account: Account, now_ms: int) -> None:
    """Turn two-step sign-in off, within a transaction that holds the person's lock."""
    await transaction.run(_SET, person_id=account.person_id, totp_secret=None, totp_step=None)
    await transaction.run(_DELETE_CODES, person_id=account.person_id)
    await delete_tickets(transaction, account.person_id)
    await trail.record(transaction, actor, "person.two_step", account.email, at_ms=now_ms, is_on=False)


async def use_code(
    transaction: Transaction, stores: StaffStores, account: Account, code: str, now_ms: int
) -> str | None:
    """Use the code up, within a transaction that holds the person's lock.

    Returns the kind of code, `code` or `recovery code`, or None if the code is wrong.
    """
    typed = _normalized(code)
    if not _CODE.fullmatch(typed):
        used = await transaction.run(_USE_CODE, person_id=account.person_id, code_hash=ids.hash_secret(typed))
        return "recovery code" if used else None
    secret = _readable_secret(stores, account)
    step = None if secret is None else matching_step(secret, typed, now_ms)
    if step is None:
        return None
    return "code" if await transaction.run(_USE_STEP, person_id=account.person_id, totp_step=step) else None


def matching_step(secret: str, code: str, now_ms: int) -> int | None:
    """Return the step of 30 s that the code belongs to: the current, previous or next one; None if to none of them."""
    typed = _normalized(code)
    if not _CODE.fullmatch(typed):
        return None
    totp, now_step = pyotp.TOTP(secret, interval=STEP_S), now_ms // (STEP_S * 1000)
    matching = [
        step
        for step in (now_step + offset for offset in _STEP_OFFSETS)
        if hmac.compare_digest(totp.generate_otp(step), typed)
    ]
    return max(matching, default=None)


def _readable_secret(stores: StaffStores, account: Account) -> str | None:
    """Return the secret of the account; None if it has none, or if no key can read it, which is logged."""
    if account.totp_secret is None:
        return None
    secret = readable_secret(stores.secret_keys, account.person_id, account.totp_secret)
    if secret is None and account.totp_secret != LOST:
        _LOG.error("A TOTP secret was encrypted under a key that STOPLIST_SECRET_KEY of this host does not list")
    return secret


async def _lock_confirmed(transaction: Transaction, account: Account, attempt: Attempt) -> Account:
    """Lock the account whose password was just verified and forget the attempt; Refused if it changed meanwhile."""
    held = await lock_account(transaction, account.email)
    if held.password_hash != account.password_hash or held.is_disabled:
        raise Refused(WRONG_PASSWORD, field="password")
    await attempts.forget(transaction, attempt)
    return held


async def _renew_codes(transaction: Transaction, account: Account) -> list[str]:
    await transaction.run(_DELETE_CODES, person_id=account.person_id)
    codes = [_new_code() for _ in range(RECOVERY_CODES)]
    for code in codes:
        await transaction.run(_ADD_CODE, person_id=account.person_id, code_hash=ids.hash_secret(_normalized(code)))
    return codes


def _new_code() -> str:
    """Return 16 characters of base32 in four groups, to be written down."""
    text = base64.b32encode(os.urandom(_CODE_BYTES)).decode().lower()
    return "-".join(text[at : at + 4] for at in range(0, len(text), 4))


def _normalized(code: str) -> str:
    return "".join(code[:100].split()).replace("-", "").lower()
