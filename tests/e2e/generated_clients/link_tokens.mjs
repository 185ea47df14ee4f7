// What a sender writes in Node.js: makes the token of each content on stdin, and opens each token.
import { createHash } from "node:crypto";
import { text } from "node:stream/consumers";
import { aessiv } from "@noble/ciphers/aes.js";

function make({ link_key: linkKey, content }) {
  // The three lines of the partner guide.
  const head = Buffer.concat([Buffer.of(1), createHash("sha256").update(linkKey).digest().subarray(0, 8)]);
  const siv = aessiv(createHash("sha512").update(linkKey).digest(), head);
  const token = Buffer.concat([head, siv.encrypt(Buffer.from(JSON.stringify(content)))]).toString("base64url");
  return token;
}

function open({ link_key: linkKey, token }) {
  const head = Buffer.concat([Buffer.of(1), createHash("sha256").update(linkKey).digest().subarray(0, 8)]);
  const siv = aessiv(createHash("sha512").update(linkKey).digest(), head);
  const bytes = Buffer.from(token, "base64url");
  if (bytes.toString("base64url") !== token || !bytes.subarray(0, 9).equals(head)) return null;
  try {
    return JSON.parse(Buffer.from(siv.decrypt(bytes.subarray(9))));
  } catch {
    return null;
  }
}

const vectors = JSON.parse(await text(process.stdin));
console.log(JSON.stringify(vectors.map((vector) => [vector.content ? make(vector) : null, open(vector)])));
