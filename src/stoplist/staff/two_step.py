"""A code besides the password: TOTP (RFC 6238), and recovery codes for whoever has lost the device.

No code is accepted twice (RFC 6238 section 5.2): the step of the last one is kept, and only moves forward.
Source: docs/interface.md section D11.
"""

import base64
import hmac
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
from stoplist.staff.model import StaffStores
from stoplist.staff.passwords import WRONG_PASSWORD, confirm, own_account
from stoplist.staff.store import Account, lock_account

_QUERIES = load_queries(__package__)
_ADD_CODE = _QUERIES["add_recovery_code"]
_DELETE_CODES = _QUERIES["delete_recovery_codes"]
_SET = _QUERIES["set_two_step"]
_USE_CODE = _QUERIES["use_recovery_code"]
_USE_STEP = _QUERIES["use_totp_step"]

STEP_S = 30
_AROUND = (-1, 0, 1)
ISSUER = "Stoplist"
RECOVERY_CODES = 10
_CODE_BYTES = 10  # 80 bits: the plain hash of one cannot be turned round
_SECRET = re.compile(r"[A-Z2-7]{32}")
_CODE = re.compile(r"[0-9]{6}")
WRONG_CODE = "That code is not right, or was used before: type the one that the app shows now."


class Enrolment(msgspec.Struct, frozen=True):
    """What an app is told, as text and as the address that is drawn as a QR code."""

    secret: str
    uri: str


def begin(email: str) -> Enrolment:
    """A new secret to be put into an app. Nothing holds until `turn_on` has seen a code that the app made of it."""
    secret = pyotp.random_base32()
    return Enrolment(secret, uri_of(secret, email))


def uri_of(secret: str, email: str) -> str:
    """The address of a secret, for a QR code."""
    return pyotp.TOTP(secret, interval=STEP_S).provisioning_uri(name=email, issuer_name=ISSUER)


async def turn_on(actor: Actor, stores: StaffStores, *, secret: str, code: str, password: str) -> list[str]:
    """The person who acts is asked for a code from now on; the ten recovery codes are shown this once.

    The password is asked for, since whoever finds an open browser could lock its owner out with an app of his own.
    """
    if not _SECRET.fullmatch(secret):
        raise Refused("Begin anew: this page has come apart.", field="code")
    now_ms = stores.clock.now_ms()
    step = step_of(secret, code, now_ms)
    if step is None:
        raise Refused(WRONG_CODE, field="code")
    account = await own_account(actor, stores)
    attempt = await confirm(actor, stores, account, password, field="password", what="two_step")

    async def turn(transaction: Transaction) -> list[str]:
        held = await _confirmed(transaction, account, attempt)
        if held.totp_secret is not None:
            raise Refused("Two-step sign-in is on already: turn it off before you set up another app.")
        await transaction.run(_SET, person_id=held.person_id, totp_secret=secret, totp_step=step)
        await trail.record(transaction, actor, "person.two_step", held.email, at_ms=now_ms, is_on=True)
        return await _renew_codes(transaction, held)

    return await stores.database.write(turn)


async def turn_off(actor: Actor, stores: StaffStores, *, password: str) -> None:
    """The person who acts is asked for no code any more; his recovery codes are gone."""
    account = await own_account(actor, stores)
    attempt = await confirm(actor, stores, account, password, field="password", what="two_step")
    now_ms = stores.clock.now_ms()

    async def turn(transaction: Transaction) -> None:
        held = await _confirmed(transaction, account, attempt)
        if held.totp_secret is not None:
            await take_away(transaction, actor, held, now_ms)

    await stores.database.write(turn)


async def new_recovery_codes(actor: Actor, stores: StaffStores, *, password: str) -> list[str]:
    """Ten fresh recovery codes, shown this once; the earlier ones are dead."""
    account = await own_account(actor, stores)
    attempt = await confirm(actor, stores, account, password, field="password", what="two_step")
    now_ms = stores.clock.now_ms()

    async def renew(transaction: Transaction) -> list[str]:
        held = await _confirmed(transaction, account, attempt)
        if held.totp_secret is None:
            raise Refused("Two-step sign-in is off: turn it on, and recovery codes come with it.")
        await trail.record(transaction, actor, "person.two_step", held.email, at_ms=now_ms, are_codes_new=True)
        return await _renew_codes(transaction, held)

    return await stores.database.write(renew)


async def take_away(transaction: Transaction, actor: Actor, account: Account, now_ms: int) -> None:
    """Within a transaction that holds the person: no code is asked for any more."""
    await transaction.run(_SET, person_id=account.person_id, totp_secret=None, totp_step=None)
    await transaction.run(_DELETE_CODES, person_id=account.person_id)
    await trail.record(transaction, actor, "person.two_step", account.email, at_ms=now_ms, is_on=False)


async def use_code(transaction: Transaction, account: Account, code: str, now_ms: int) -> str | None:
    """Within a transaction that holds the person: the code is used up, and this kind of code it was; None: no good."""
    typed = _bare(code)
    if not _CODE.fullmatch(typed):
        used = await transaction.run(_USE_CODE, person_id=account.person_id, code_hash=ids.hash_secret(typed))
        return "recovery code" if used else None
    step = None if account.totp_secret is None else step_of(account.totp_secret, typed, now_ms)
    if step is None:
        return None
    return "code" if await transaction.run(_USE_STEP, person_id=account.person_id, totp_step=step) else None


def step_of(secret: str, code: str, now_ms: int) -> int | None:
    """Which step of 30 s this code is of: the present one, the one before or the one after; None: of none of them."""
    typed = _bare(code)
    if not _CODE.fullmatch(typed):
        return None
    totp, now_step = pyotp.TOTP(secret, interval=STEP_S), now_ms // (STEP_S * 1000)
    right = [
        step for step in (now_step + one for one in _AROUND) if hmac.compare_digest(totp.generate_otp(step), typed)
    ]
    return max(right, default=None)


async def _confirmed(transaction: Transaction, account: Account, attempt: Attempt) -> Account:
    """The account whose password was just seen to be right, held; Refused if it changed meanwhile."""
    held = await lock_account(transaction, account.email)
    if held.password_hash != account.password_hash or held.is_disabled:
        raise Refused(WRONG_PASSWORD, field="password")
    await attempts.forget(transaction, attempt)
    return held


async def _renew_codes(transaction: Transaction, account: Account) -> list[str]:
    await transaction.run(_DELETE_CODES, person_id=account.person_id)
    codes = [_new_code() for _ in range(RECOVERY_CODES)]
    for code in codes:
        await transaction.run(_ADD_CODE, person_id=account.person_id, code_hash=ids.hash_secret(_bare(code)))
    return codes


def _new_code() -> str:
    """16 characters of base32 in four groups, to be written down."""
    text = base64.b32encode(os.urandom(_CODE_BYTES)).decode().lower()
    return "-".join(text[at : at + 4] for at in range(0, len(text), 4))


def _bare(code: str) -> str:
    return "".join(code[:100].split()).replace("-", "").lower()
