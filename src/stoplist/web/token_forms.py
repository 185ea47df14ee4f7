"""The form of each grant, shared by the token endpoint and its OpenAPI description.

Source: docs/interface.md section 4.1.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

ClientId = Annotated[
    str | UnsetType, Meta(description="Where `Authorization: Basic` cannot be sent: the `client_id` of your key.")
]
ClientSecret = Annotated[
    str | UnsetType,
    Meta(
        description="Where `Authorization: Basic` cannot be sent: its secret. Never both.",
        extra_json_schema={"format": "password"},
    ),
]


class ClientCredentials(msgspec.Struct, kw_only=True):
    """A new session with the credentials of a key."""

    grant_type: Literal["client_credentials"]
    client_id: ClientId = UNSET
    client_secret: ClientSecret = UNSET


class Refresh(msgspec.Struct, kw_only=True):
    """A new pair for a refresh token that has not been used. Credentials that are sent all the same must be right."""

    grant_type: Literal["refresh_token"]
    refresh_token: Annotated[str, Meta(min_length=1, description="The latest one, which is used up by this.")]
    client_id: ClientId = UNSET
    client_secret: ClientSecret = UNSET


FORMS: dict[str, type[msgspec.Struct]] = {"client_credentials": ClientCredentials, "refresh_token": Refresh}
PARAMETERS = frozenset(name for form in FORMS.values() for name in form.__struct_fields__)
