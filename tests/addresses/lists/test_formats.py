"""Each format, with a sample that follows the documentation which its entry names."""

import json

import pytest
from stoplist_addresses.lists import FORMATS, ListError, ListOptions, OptOut, Part, open_list
from stoplist_addresses.lists.model import OPT_OUT_REASONS

from tests.addresses.lists.reading import NOW_MS, Pipe, only_part, opened, opt_outs

ANN, BOB, CID = "ann@example.com", "bob@example.com", "cid@example.com"

# 2024-02-29T09:30:00Z
AT_S = 1_709_199_000
AT_MS = AT_S * 1000

# By the name of the format: channel, file, options, and what the file says. Sources: `based_on` of each entry.
SAMPLES: dict[str, tuple[str, str, dict[str, str], list[OptOut]]] = {
    "amazon-ses": (
        "email",
        "EmailAddress,Reason,LastUpdateTime\n"
        f"{ANN},BOUNCE,2024-02-29T09:30:00.125000+00:00\n{BOB},COMPLAINT,2024-02-29T10:30:00+01:00\n",
        {},
        [(2, ANN, AT_MS + 125, "bounce", None), (3, BOB, AT_MS, "complaint", None)],
    ),
    "mailchimp": (
        "email",
        '"Email Address","First Name","OPTIN_TIME","OPTIN_IP","UNSUB_TIME","UNSUB_CAMPAIGN_TITLE","UNSUB_REASON"\n'
        f'"{ANN}","Ann","2020-01-01 00:00:00","","2024-02-29 10:30:00","March, ""sale""","NORMAL"\n',
        {"time_zone": "Europe/Berlin"},
        [(2, ANN, AT_MS, "unsubscribe", None)],
    ),
    "mailgun": (
        "email",
        f'address,tags,created_at\n{ANN},*,"Thu, 29 Feb 2024 09:30:00 UTC"\n'
        f'{BOB},news,"Thu, 29 Feb 2024 10:30:00 +0100"\n',
        {},
        [(2, ANN, AT_MS, "unsubscribe", None), (3, BOB, AT_MS, "unsubscribe", None)],
    ),
    "mailgun-bounces": (
        "email",
        f'address,code,error,created_at\n{ANN},550,No such mailbox,"Thu, 29 Feb 2024 09:30:00 GMT"\n',
        {},
        [(2, ANN, AT_MS, "bounce", None)],
    ),
    "mailgun-complaints": (
        "email",
        f'address,created_at\n{ANN},"29 Feb 2024 09:30:00 +0000"\n',
        {"format": "mailgun-complaints"},
        [(2, ANN, AT_MS, "complaint", None)],
    ),
    "postmark": (
        "email",
        "EmailAddress,SuppressionReason,Origin,CreatedAt\n"
        f"{ANN},ManualSuppression,Recipient,2024-02-29T04:30:00-05:00\n"
        f"{BOB},HardBounce,Recipient,2024-02-29T09:30:00Z\n{CID},SpamComplaint,Admin,2024-02-29T09:30:00Z\n",
        {},
        [
            (2, ANN, AT_MS, "manual", "Recipient"),
            (3, BOB, AT_MS, "bounce", "Recipient"),
            (4, CID, AT_MS, "complaint", "Admin"),
        ],
    ),
    "sendgrid": ("email", f"email,created\n{ANN},{AT_S}\n", {}, [(2, ANN, AT_MS, "unsubscribe", None)]),
    "sendgrid-bounces": (
        "email",
        f'status,reason,email,created\n5.1.1,"550 5.1.1 No such user, sorry",{ANN},{AT_S}\n',
        {"format": "sendgrid-bounces"},
        [(2, ANN, AT_MS, "bounce", None)],
    ),
    "sendgrid-spam-reports": (
        "email",
        f"email,created,ip\n{ANN},{AT_S},192.0.2.7\n",
        {},
        [(2, ANN, AT_MS, "complaint", None)],
    ),
    "sendgrid-invalid-emails": (
        "email",
        f"created,email,reason\n{AT_S},{ANN},Mail domain mentioned in email address is unknown\n",
        {"format": "sendgrid-invalid-emails"},
        [(2, ANN, AT_MS, "invalid_address", None)],
    ),
    "sparkpost": (
        "email",
        "recipient,type,source,description,created,updated\n"
        f"{ANN},non_transactional,List Unsubscribe,By header,2024-02-29T09:30:00+00:00,2024-03-01T00:00:00+00:00\n"
        f"{BOB},transactional,Compliance,,2024-02-29T09:30:00+00:00,2024-03-01T00:00:00+00:00\n",
        {},
        [(2, ANN, AT_MS, "unsubscribe", "By header"), (3, BOB, AT_MS, "legal", None)],
    ),
    "stoplist": (
        "email",
        "id,address,address_digest,group_id,status,reason,occurred_at,recorded_at,source,seq\r\n"
        f"uns_1,{ANN},,,unsubscribed,complaint,2024-02-29T09:30:00.000Z,2024-03-01T00:00:00.000Z,'=SUM(1),1\r\n"
        f"uns_2,{BOB},,,resubscribed,consent,2024-02-29T09:30:00.000Z,2024-03-01T00:00:00.000Z,,2\r\n",
        {},
        [(2, ANN, AT_MS, "complaint", "=SUM(1)")],
    ),
    "telnyx": (
        "sms",
        "from,to,messaging_profile_id,keyword,created_at\n"
        "+12025550100,+12025550143,4001,STOP,2024-02-29 09:30:00.631252\n",
        {"time_zone": "UTC"},
        [(2, "+12025550143", AT_MS + 631, "stop_keyword", "STOP")],
    ),
    "twilio": (
        "sms",
        "contact_id,correlation_id,sender_id,status,source,date_of_consent\n"
        "+12025550143,ad38,MG00,opt-out,opt-out-message,2024-02-29T09:30:00Z\n"
        "+12025550144,ad39,MG00,opt-in,website,2024-02-29T09:30:00Z\n",
        {},
        [(2, "+12025550143", AT_MS, "unsubscribe", "opt-out-message")],
    ),
}


def test_every_format_has_a_sample_and_says_its_source() -> None:
    assert [each.name for each in FORMATS] == list(SAMPLES)
    assert all(each.based_on and each.title for each in FORMATS)


def test_formats_give_reasons_that_the_service_knows() -> None:
    for each in FORMATS:
        assert {*each.reasons.values(), each.reason or "import"} <= OPT_OUT_REASONS


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_of_a_format(name: str) -> None:
    channel, content, options, expected = SAMPLES[name]
    found = opened(content, channel, **options)
    assert found.format == name
    (part,) = found.parts()
    assert (part.opt_outs, part.bad, part.redated, part.reasons_replaced) == (expected, [], 0, 0)


@pytest.mark.parametrize("name", ["amazon-ses", "sparkpost", "twilio"])
def test_named_and_recognised_formats_read_alike(name: str) -> None:
    channel, content, options, expected = SAMPLES[name]
    assert opt_outs(content, channel, **{**options, "format": name}) == expected


def test_time_zone_that_is_not_documented_must_be_stated() -> None:
    channel, content, _, _ = SAMPLES["telnyx"]
    with pytest.raises(ListError, match="line 2 has no offset") as refusal:
        opened(content, channel)
    assert (refusal.value.is_usage, refusal.value.option) == (True, "time_zone")


def test_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(ListError, match="amazon-ses, mailchimp") as refusal:
        opened("email\n", format="nobody")
    assert (refusal.value.is_usage, refusal.value.option) == (True, "format")


def test_format_of_another_channel_is_refused() -> None:
    with pytest.raises(ListError, match="no lists of the channel sms"):
        opened("email,created\n", "sms", format="sendgrid")


def test_word_that_a_format_does_not_know_makes_a_bad_row() -> None:
    channel, content, _, _ = SAMPLES["twilio"]
    part = only_part(content.replace("opt-in", "maybe"), channel)
    assert [(each.line, each.error, each.cells[3]) for each in part.bad] == [(3, "unknown_status", "maybe")]
    assert (len(part.opt_outs), part.not_opted_out) == (1, 0)


OWN = "id,address,address_digest,group_id,status,reason,occurred_at,recorded_at,source,seq\n"


def _own(*groups: str, address: str = ANN, digest: str = "") -> str:
    rows = (f"uns_1,{address},{digest},{group},unsubscribed,bounce,2024-02-29T09:30:00Z,,,1\n" for group in groups)
    return OWN + "".join(rows)


def test_own_export_of_several_targets_is_refused_with_counts() -> None:
    with pytest.raises(ListError, match=r"all groups \(2\), grp_a \(1\)") as refusal:
        opened(_own("", "grp_a", ""))
    assert (refusal.value.is_usage, refusal.value.option) == (True, "opted_out_when")


@pytest.mark.parametrize(("picked", "lines"), [("grp_a", [3]), ("", [2, 4])])
def test_target_of_an_own_export_can_be_picked(picked: str, lines: list[int]) -> None:
    part = only_part(_own("", "grp_a", ""), opted_out_when=(("group_id", picked),))
    assert [each[0] for each in part.opt_outs] == lines
    assert part.not_opted_out == 3 - len(lines)


def test_erased_records_are_counted_and_left_out() -> None:
    part: Part = only_part(_own("", "", address="", digest="9f86d081"))
    assert (part.rows, part.erased, part.opt_outs, part.bad) == (2, 2, [], [])
    assert only_part(_own("", address="", digest="")).opt_outs[0][1] == ""


HISTORY = OWN.replace("seq\n", "seq,submission_id,actor_kind,actor_id,actor_label\n")
VERSIONS = (
    ("uns_1", "unsubscribed", 1),
    ("uns_2", "unsubscribed", 2),
    ("uns_1", "resubscribed", 3),
    ("uns_2", "unsubscribed", 9),
)


def _history(end: str = ",sub_1,client,cli_1,\n") -> str:
    rows = (
        f"{id_},{id_}@x.org,,,{status},bounce,2024-02-29T09:30:0{seq}Z,,,{seq}{end}" for id_, status, seq in VERSIONS
    )
    return HISTORY + "".join(rows)


def test_only_the_last_version_of_each_record_is_taken() -> None:
    """A person who came back has opted out before: that version must not be imported."""
    part = only_part(_history())
    assert [(each[0], each[1]) for each in part.opt_outs] == [(5, "uns_2@x.org")]
    assert (part.rows, part.earlier_versions, part.not_opted_out) == (4, 2, 1)


def test_an_own_export_through_a_pipe_is_gone_through_first() -> None:
    """So the last versions are known, and several targets are refused before a row is taken."""
    (part,) = open_list(Pipe(_history().encode()), ListOptions("email", NOW_MS)).parts()
    assert (part.opt_outs, part.sha256) == (only_part(_history()).opt_outs, only_part(_history()).sha256)
    with pytest.raises(ListError, match="several targets"):
        open_list(Pipe(_own(*[""] * 3_000, "grp_a").encode(), 10_000), ListOptions("email", NOW_MS))


def test_a_version_without_number_is_refused() -> None:
    with pytest.raises(ListError, match="no number"):
        opened(_history().replace(",9,sub_1", ",nine,sub_1"))


@pytest.mark.parametrize(
    ("written", "source"),
    [("'=1+1", "=1+1"), ("a;'  +1", "a;  +1"), ("o'neil", "o'neil"), ("' plain", "' plain"), ("a '=1", "a '=1")],
)
def test_guards_of_formulas_are_taken_away(written: str, source: str) -> None:
    part = only_part(OWN + f"uns_1,{ANN},,,unsubscribed,bounce,2024-02-29T09:30:00Z,,{written},1\n")
    assert [each[4] for each in part.opt_outs] == [source]


def test_a_long_run_of_quotes_is_searched_once() -> None:
    """A search from each of them would take minutes."""
    quotes = "x" + "\t' " * 20_000
    part = only_part(OWN + f"uns_1,{ANN},,,unsubscribed,bounce,2024-02-29T09:30:00Z,,{quotes},1\n")
    assert len(part.opt_outs) == 1


def _ndjson(**fields: object) -> str:
    names = OWN.strip().split(",")
    values = dict.fromkeys(names) | {
        "id": "uns_1",
        "address": ANN,
        "status": "unsubscribed",
        "reason": "bounce",
        "seq": 1,
    }
    return json.dumps(values | {"occurred_at": "2024-02-29T09:30:00.000Z"} | fields) + "\n"


def test_own_ndjson_is_read() -> None:
    """Nothing is guarded in it, so no ' is taken away."""
    text = (
        _ndjson()
        + "\n"
        + _ndjson(source="'=1+1", status="resubscribed")
        + _ndjson(source="'=1+1", address='a,"b\n@x.org')
    )
    part = only_part(text)
    assert (part.rows, part.not_opted_out, part.bad) == (3, 1, [])
    assert [(each[0], each[1], each[4]) for each in part.opt_outs] == [(1, ANN, None), (4, 'a,"b\n@x.org', "'=1+1")]
    found = opened(text)
    found.skip(2)
    assert [each[0] for rest in found.parts() for each in rest.opt_outs] == [4]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (_ndjson() + "nobody\n", "Line 2 is not a JSON object"),
        (_ndjson() + "[" * 60_000 + "\n", "Line 2 is not a JSON object"),
        (_ndjson() + _ndjson(source=["x"]), "Line 2 has a value"),
        (_ndjson() + _ndjson(source="\ud800"), "Line 2 has an escape"),
        (f"[{_ndjson()}]", "Line 1 is not a JSON object"),
        ('{"email": "a@x.org"}\n', "no export of Stoplist"),
    ],
)
def test_other_json_is_refused(content: str, text: str) -> None:
    with pytest.raises(ListError, match=text):
        list(opened(content).parts())
