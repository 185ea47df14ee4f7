"""The tables of the templates, which become cards on phones. docs/interface.md section D11."""

import re
from pathlib import Path

import pytest

from stoplist.web import admin
from stoplist.web.admin.rendering import address

TEMPLATES = Path(next(iter(admin.__path__)))
TABLES = [
    pytest.param(table, id=f"{path.name}-{number}")
    for path in sorted(TEMPLATES.rglob("*.html"))
    for number, table in enumerate(re.findall(r'<div class="wide.*?</table>', path.read_text(), re.DOTALL))
]
ROLES = {"table": "table", "thead": "rowgroup", "tbody": "rowgroup", "tr": "row", "td": "cell"}


@pytest.mark.parametrize("table", TABLES)
def test_each_part_of_a_table_states_its_role(table: str) -> None:
    """Browsers drop the meaning of a table that a style shows as cards."""
    for tag, attributes in re.findall(r"<(table|thead|tbody|tr|td|th)\b([^>]*)>", table):
        role = ROLES.get(tag) or {"col": "columnheader", "row": "rowheader"}[re.findall('scope="(.*?)"', attributes)[0]]
        assert f'role="{role}"' in attributes, (tag, attributes)


@pytest.mark.parametrize("table", [one for one in TABLES if 'class="wide figures"' not in str(one.values[0])])
def test_each_cell_is_labelled_with_a_column_of_its_table(table: str) -> None:
    """On a card, the label is all that says what a value means."""
    columns = re.findall(r'<th role="columnheader"[^>]*>(.*?)</th>', table)
    for attributes in re.findall(r"<td\b([^>]*)>", table):
        (label,) = re.findall('data-label="(.*?)"', attributes)
        assert label in columns


def test_an_address_breaks_before_its_at_sign() -> None:
    assert address("greta.fischer58@example.com") == "greta.fischer58<wbr>@example.com"
    assert address("<b>&@x.org") == "&lt;b&gt;&amp;<wbr>@x.org"
    assert address("+442079460958") == "+442079460958"
