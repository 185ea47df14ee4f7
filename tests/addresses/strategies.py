"""Hypothesis strategies for valid, nearly valid and invalid addresses."""

from hypothesis import strategies as st

# Characters that the rule treats specially occur more often than at random.
_ASCII = st.sampled_from(list("abcXYZ019") * 3 + list("!#$%&'*+/=?^_`{|}~-.") + list('@ \t"<>()[],;:\\\0\x7f'))
_NON_ASCII = st.sampled_from(
    [*"éÉßüİς例えאבن①ﬁ", *"\u0301\u030c\u0338\u0345\u037e\u212a\u212b\u1fef\u00ad\u200b\u200c\u200d\u3002\uff0e\uff61"]
)
_CHARACTER = _ASCII | _NON_ASCII | st.characters()

_ATOM = st.text(st.sampled_from("abcXYZ019+-_"), min_size=1, max_size=12)
_LABEL = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,12}[a-zA-Z0-9])?", fullmatch=True)
_UNICODE_LABEL = st.text(st.sampled_from("abcüößéÉàδβλς例えテスト"), min_size=1, max_size=8)
_ANY_LABEL = st.one_of(
    _LABEL,
    _UNICODE_LABEL,
    _UNICODE_LABEL.map(lambda label: f"xn--{label.encode('punycode').decode()}"),
    st.text(_ASCII | _NON_ASCII, max_size=6),
    st.sampled_from(["xn--", "a--b", "ab--c", "-a", "a-", "123", "a" * 63, "a" * 64, "ü" * 60, "test", "local", ""]),
)

any_text = st.text(_CHARACTER, max_size=40) | st.text(max_size=40)

plain_emails = st.builds(
    "{}@{}.{}".format,
    st.lists(_ATOM, min_size=1, max_size=3).map(".".join),
    st.lists(_LABEL, min_size=1, max_size=3).map(".".join),
    st.sampled_from(["com", "example", "co.uk", "DE", "x1", "1x", "c"]),
)
local_parts = st.one_of(
    st.lists(_ATOM, min_size=1, max_size=3).map(".".join),
    st.text(_CHARACTER, max_size=12),
    st.text(st.sampled_from("aJé\u0301\u030c\u0338"), max_size=80),
)
domains = st.lists(_ANY_LABEL, min_size=1, max_size=4).map(".".join)
emails = st.one_of(plain_emails, st.builds("{}@{}".format, local_parts, domains), any_text)

_SEPARATOR = st.sampled_from(["", "", "", " ", "-", ".", "(", ")"])
_CALLING_CODE = st.sampled_from(
    ["1", "7", "39", "44", "49", "52", "52 1", "54", "55", "81", "241", "261", "378", "672", "800"]
)
_TRUNK = st.sampled_from(
    ["", "", "0", "1", "8", "00", "01", "06", "15", "11 15", "0 11 15", "9 11", "90", "0 21", "044"]
)
numbers = st.builds(
    lambda code, trunk, digits: f"+{code}{trunk}" + "".join(map("".join, digits)),
    _CALLING_CODE | st.integers(0, 999).map(str),
    _TRUNK,
    st.lists(st.tuples(_SEPARATOR, st.sampled_from("0123456789")), max_size=13),
)
phones = st.one_of(numbers, st.text(st.sampled_from("+0123456789 -.()x\u00a0\u0660\uff0b"), max_size=20), any_text)
