"""Encoded forms: a plain one is split at once, and means what the general parser of the standard library says."""

from urllib.parse import parse_qsl

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoplist.web.forms import parse_pairs

pytestmark = pytest.mark.interpreter

word = st.lists(st.sampled_from([*"xyZ_.~-+ %", "%41"]), max_size=4).map("".join)
pair = st.builds(
    "{}{}{}".format,
    word,
    st.sampled_from(["=", "=", "=", "==", ""]),
    word,
)


@given(st.lists(pair, max_size=9).map("&".join))
@example("grant_type=client_credentials")
@example("grant_type=refresh_token&refresh_token=svc_rt_0")
@example("a=&b=1\n")
def test_a_form_is_read_as_the_general_parser_reads_it(body: str) -> None:
    assert parse_pairs(body.encode(), max_fields=100) == parse_qsl(body, keep_blank_values=True)
