// What a partner writes around the client that @hey-api/openapi-ts generates. Prints what the test compares.
// usage: BASE_URL, CLIENT_ID and CLIENT_SECRET as variables
import { createClient } from "./generated/client/index.js";
import { getTokens, listEmailUnsubscribes, submitEmailUnsubscribes } from "./generated/sdk.gen.js";
import type { ClientCredentials, Item, Refresh } from "./generated/types.gen.js";

const { BASE_URL: baseUrl = "", CLIENT_ID: id = "", CLIENT_SECRET: secret = "" } = process.env;

function present<T>(value: T | undefined, error?: unknown): T {
  if (value === undefined) throw new Error(JSON.stringify(error));
  return value;
}

const token = (body: ClientCredentials | Refresh, password: string) =>
  getTokens({ client: createClient({ baseUrl, auth: `${id}:${password}` }), body });
const first = await token({ grant_type: "client_credentials" }, secret);
const refreshToken = present(first.data, first.error).refresh_token;
const second = await token({ grant_type: "refresh_token", refresh_token: refreshToken }, secret);
const pair = present(second.data, second.error);
const refused = present((await token({ grant_type: "client_credentials" }, "wrong")).error);

const client = createClient({ baseUrl, auth: pair.access_token });
const items: Item[] = [
  { address: "Ann@Example.com", status: "unsubscribed", occurred_at: "2026-03-01T09:30:00Z", reason: "complaint", source: "form" },
  { address: "bob@example.com", status: null, occurred_at: null, reason: null },
];
const submitted = await submitEmailUnsubscribes({ client, body: { items } });
const submission = present(submitted.data, submitted.error);
const listed = await listEmailUnsubscribes({ client });
const page = present(listed.data, listed.error);
const query = { address: ["ANN@example.com", "nobody@example.com"], limit: 1000 };
const looked = await listEmailUnsubscribes({ client, query });
const found = present(looked.data, looked.error);
await submitEmailUnsubscribes({ client, body: { items: [{ address: "carla@example.com" }], all_groups: true } });
const changed = await listEmailUnsubscribes({ client, query: { cursor: page.next_cursor ?? "" } });
const later = present(changed.data, changed.error);
const badItem = present((await submitEmailUnsubscribes({ client, body: { items: [{ address: "nobody" }] } })).error);
if (badItem.error !== "invalid_item") throw new Error(badItem.message);
const badCursor = present((await listEmailUnsubscribes({ client, query: { cursor: "x" } })).error);
const strangers = createClient({ baseUrl, auth: "svc_at_x" });
const stranger = present((await listEmailUnsubscribes({ client: strangers })).error);

console.log(
  JSON.stringify({
    token_type: pair.token_type,
    expires_in: pair.expires_in,
    submitted: [submission.received, submission.created, submission.items?.map((one) => one.result)],
    listed: page.items.map((one) => [one.address, one.status, one.reason, one.source]),
    looked_up: [found.looked_up, found.items.map((one) => one.address), found.next_cursor],
    later: later.items.map((one) => [one.address, one.group_id]),
    refusals: [refused.error, badItem.error, badCursor.error, stranger.error],
    bad_items: badItem.item_errors.map((one) => one.item_index),
  }),
);
