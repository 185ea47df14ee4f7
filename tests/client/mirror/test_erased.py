"""A mirror forgets an erased person's address, and goes on barring them (docs/interface.md section D13)."""

from collections.abc import Callable

from stoplist_client import Client, Item, Mirror

from tests.client.partners import Partner

ANN, BOB = "ann.unique-name@example.org", "bob@example.org"


def _erase(partner: Partner, address: str) -> None:
    partner.service.installation.json(
        "person", "erase", address, "--channel", "email", "--org", partner.org_slug, "--yes", "--all-upgraded"
    )


def _bytes(mirror: Mirror) -> bytes:
    path = mirror._file.path
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def test_an_erased_person_stays_barred(
    partner: Partner, client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror]
) -> None:
    """A mirror that never knew the address bars it too; no byte of the file holds it, and both states agree."""
    client.unsubscribe("email", [ANN, Item(BOB, source="a form")], group_id=partner.group_id)
    mirror.sync()
    assert ANN.encode() in _bytes(mirror)
    _erase(partner, ANN)
    fresh = new_mirror(client, name="fresh.db", page_records=3)
    fresh.follow("email")
    for one in (mirror, fresh):
        one.sync()
        assert one.is_barred("email", "Ann.Unique-Name@EXAMPLE.org", group_id=partner.group_id)
        assert not one.is_barred("email", "else@example.org", group_id=partner.group_id)
        verdicts = one.check("email", [ANN, "else@example.org", BOB], group_id=partner.group_id)
        assert [each.verdict for each in verdicts] == ["barred", "allowed", "barred"]
        assert sorted(record.address or "" for record in one.records("email")) == ["", BOB]
        assert [feed.records for feed in one.verify()] == [2]
        assert ANN.encode() not in _bytes(one)


def test_a_returned_address_replaces_the_digest(partner: Partner, client: Client, mirror: Mirror) -> None:
    """And a page of changes can be read by clients, too."""
    client.unsubscribe("email", [ANN], group_id=partner.group_id)
    _erase(partner, ANN)
    mirror.sync()
    (page,) = client.changes("email").pages()
    assert (page.records[0].address, len(page.records[0].address_digest or "")) == (None, 64)
    assert page.digest_key is not None
    (looked_up,) = client.look_up("email", [ANN])
    assert [record.address for record in looked_up.records] == [ANN]
    now = page.records[0].recorded_at
    client.resubscribe("email", [Item(ANN, now)], group_id=partner.group_id)
    mirror.sync()
    assert [record.address for record in mirror.records("email")] == [ANN]
    assert not mirror.is_barred("email", ANN, group_id=partner.group_id)
    client.unsubscribe("email", [ANN], group_id=partner.group_id)
    mirror.sync()
    assert mirror.is_barred("email", ANN, group_id=partner.group_id)
    assert [feed.records for feed in mirror.verify()] == [1]
