// What a partner writes around openapi-fetch and the types of openapi-typescript. Prints what the test compares.
// usage: BASE_URL, CLIENT_ID and CLIENT_SECRET as variables
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Item = components["schemas"]["Item"];

const { BASE_URL: baseUrl = "", CLIENT_ID: id = "", CLIENT_SECRET: secret = "" } = process.env;
const basic = (password: string) => ({ Authorization: `Basic ${btoa(`${id}:${password}`)}` });
const form = { "Content-Type": "application/x-www-form-urlencoded" };

function present<T>(value: T | undefined, error?: unknown): T {
  if (value === undefined) throw new Error(JSON.stringify(error));
  return value;
}

const strangers = createClient<paths>({ baseUrl });
const token = (body: components["schemas"]["ClientCredentials"] | components["schemas"]["Refresh"], password: string) =>
  strangers.POST("/oauth/token", { body, headers: { ...basic(password), ...form } });
const first = await token({ grant_type: "client_credentials" }, secret);
const refreshToken = present(first.data, first.error).refresh_token;
const second = await token({ grant_type: "refresh_token", refresh_token: refreshToken }, secret);
const pair = present(second.data, second.error);
const refused = present((await token({ grant_type: "client_credentials" }, "wrong")).error);

const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${pair.access_token}` } });
const path = "/api/v1/unsubscribe/email";
const items: Item[] = [
  { address: "Ann@Example.com", status: "unsubscribed", occurred_at: "2026-03-01T09:30:00Z", reason: "complaint", source: "form" },
  { address: "bob@example.com", status: null, occurred_at: null, reason: null },
];
const submitted = await client.POST(path, { body: { items } });
const submission = present(submitted.data, submitted.error);
const listed = await client.GET(path, {});
const page = present(listed.data, listed.error);
const query = { address: ["ANN@example.com", "nobody@example.com"], limit: 1000 };
const looked = await client.GET(path, { params: { query } });
const found = present(looked.data, looked.error);
await client.POST(path, { body: { items: [{ address: "carla@example.com" }], all_groups: true } });
const changed = await client.GET(path, { params: { query: { cursor: page.next_cursor ?? "" } } });
const later = present(changed.data, changed.error);
const badItem = present((await client.POST(path, { body: { items: [{ address: "nobody" }] } })).error);
if (badItem.error !== "invalid_item") throw new Error(badItem.message);
const badCursor = present((await client.GET(path, { params: { query: { cursor: "x" } } })).error);
const stranger = present((await strangers.GET(path, { headers: { Authorization: "Bearer svc_at_x" } })).error);

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
