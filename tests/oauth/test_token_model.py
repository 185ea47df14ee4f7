"""Any sequence of acts, on the product and on a naive model of the same rules: docs/interface.md sections 3 and D2."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from stoplist import ids
from stoplist.oauth.authentication import PresentedCredentials
from stoplist.oauth.model import TokenPair
from stoplist.oauth.outcome import Outcome
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.keys import Key
from tests.oauth.naive import NaiveClient, NaiveTokens
from tests.oauth.partner import TokenDeployment, answer_of, pair_of

CLIENTS = st.sampled_from([0, 1])

OWN_OR_OTHER = st.sampled_from([0, 0, 0, 1])

# What is sent with a client's id: nothing, its latest secret, its first one, or one that was never right.
SECRETS = st.sampled_from(["none", "latest", "latest", "latest", "first", "wrong"])

# Mostly short; else most of a lifetime of either kind of token, or one to the millisecond.
PAUSES_MS = st.one_of(
    st.integers(1, 60_000),
    st.sampled_from([899_999, 900_000, 86_400_000, 15 * 86_400_000, 30 * 86_400_000 - 1, 30 * 86_400_000]),
)

# An administrator's acts; activation twice as often as each other, or most keys would be inactive.
ACTS = st.sampled_from(["activate", "activate", "deactivate", "revoke", "rotate secret"])


class TokenMachine(RuleBasedStateMachine):
    """Two clients, their administrator, a finder of their tokens, and time."""

    tokens: Bundle[tuple[str, int]] = Bundle("tokens")
    """Refresh tokens that were given out, each with the number of its client."""

    def __init__(self, shared_database: SharedDatabase) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.deployment = TokenDeployment.on(shared_database, self.clock)
        self.model = NaiveTokens()
        self.secrets: list[list[str]] = []
        self.pairs: list[TokenPair] = []

    @initialize(target=tokens)
    def begin(self) -> Any:
        """Create two active keys, each with a pair."""
        pairs = []
        for client in range(2):
            key = self.run(self.deployment.new_key())
            self.model.clients.append(NaiveClient(key.client_id, key.client_secret))
            self.secrets.append([key.client_secret])
            pairs.append(self.given(self.run(self.deployment.issue(self.presented(client, "latest")))))
        return multiple(*pairs)

    @rule(target=tokens, client=CLIENTS, secret=SECRETS)
    def issue(self, client: int, secret: str) -> Any:
        shown = self.presented(client, secret)
        outcome = self.run(self.deployment.issue(shown))
        assert answer_of(outcome) == self.model.issue(shown.client_id, shown.client_secret)
        return self.given(outcome) if outcome.pair else multiple()

    @rule(target=tokens, token=tokens)
    def refresh(self, token: tuple[str, int]) -> Any:
        return self.present(token[0], PresentedCredentials())

    @rule(target=tokens, token=tokens, distance=OWN_OR_OTHER, secret=SECRETS)
    def refresh_with_credentials(self, token: tuple[str, int], distance: int, secret: str) -> Any:
        return self.present(token[0], self.presented((token[1] + distance) % 2, secret))

    @rule(target=tokens, token=tokens)
    def refresh_with_an_unknown_id(self, token: tuple[str, int]) -> Any:
        return self.present(token[0], PresentedCredentials(client_id=ids.new_id(ids.CLIENT_ID)))

    @rule(target=tokens, what=st.sampled_from(["access token", "secret", "unknown"]), client=CLIENTS)
    def present_something_else(self, what: str, client: int) -> Any:
        token = {
            "access token": self.pairs[-1].access_token,
            "secret": self.secrets[client][-1],
            "unknown": ids.new_secret(ids.REFRESH_TOKEN),
        }[what]
        return self.present(token, self.presented(client, "none"))

    @rule(act=ACTS, client=CLIENTS)
    def administer(self, act: str, client: int) -> None:
        key, known = self.key(client), self.model.clients[client]
        if act == "activate":
            self.run(self.deployment.activate(key))
            self.model.activate(known)
        elif act == "deactivate":
            self.run(self.deployment.deactivate(key))
            self.model.deactivate(known)
        elif act == "revoke":
            self.run(self.deployment.revoke(key))
            self.model.revoke(known)
        else:
            self.secrets[client].append(self.run(self.deployment.rotate_secret(key)).client_secret)
            self.model.rotate_secret(known, self.secrets[client][-1])

    @rule(pause_ms=PAUSES_MS)
    def wait(self, pause_ms: int) -> None:
        self.clock.advance(pause_ms / 1000)

    @rule()
    def delete_expired(self) -> None:
        assert self.run(self.deployment.delete_expired()) == self.model.delete_expired(self.clock.now_ms())

    @invariant()
    def exactly_the_right_tokens_are_alive(self) -> None:
        """Check every access token ever issued, after each act."""
        now_ms = self.clock.now_ms()
        alive = self.run(self.deployment.are_alive(*self.pairs))
        assert alive == [self.model.is_alive(pair.access_token, now_ms) for pair in self.pairs]

    def teardown(self) -> None:
        for client in range(len(self.secrets)):
            alarms = self.run(self.deployment.alarms(self.key(client)))
            assert len(alarms) == self.model.clients[client].alarms

    def present(self, token: str, shown: PresentedCredentials) -> Any:
        outcome = self.run(self.deployment.refresh(token, shown))
        expected = self.model.refresh(token, shown.client_id, shown.client_secret, self.clock.now_ms())
        assert (answer_of(outcome), outcome.raised_alarm) == expected
        return self.given(outcome) if outcome.pair else multiple()

    def given(self, outcome: Outcome) -> tuple[str, int]:
        """Record the issued pair in the model; the refresh token is used by later acts."""
        pair = pair_of(outcome)
        assert outcome.client_id is not None
        self.model.given(outcome.client_id, pair.access_token, pair.refresh_token, self.clock.now_ms())
        self.pairs.append(pair)
        of_whom = [client.client_id for client in self.model.clients].index(outcome.client_id)
        return pair.refresh_token, of_whom

    def presented(self, client: int, secret: str) -> PresentedCredentials:
        known = self.secrets[client]
        wrong = ids.new_secret(ids.CLIENT_SECRET)
        return PresentedCredentials(
            client_id=self.model.clients[client].client_id,
            client_secret={"none": None, "latest": known[-1], "first": known[0], "wrong": wrong}[secret],
        )

    def key(self, client: int) -> Key:
        return Key(self.model.clients[client].client_id, self.secrets[client][-1])

    def run(self, work: Any) -> Any:
        return self.deployment.run(work)


# Both run the same statements; PostgreSQL gets fewer examples because they take longer.
EXAMPLES = {"sqlite": 60, "postgresql": 10}


def test_any_acts_agree_with_the_naive_model(shared_database: SharedDatabase) -> None:
    """Answers, alarms, and which tokens are valid after each act."""
    run_state_machine_as_test(
        lambda: TokenMachine(shared_database),  # type: ignore[arg-type]  # documented: any factory will do
        settings=settings(max_examples=EXAMPLES[shared_database.database.kind], stateful_step_count=40),
    )
