// Tests the middleware against the server at TWOTIER, and against servers that go wrong. The tests
// of docs/middleware.md run it in the frameworks.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { test } from "node:test";
import { addressKey, networks } from "./address.mjs";
import { express, hono } from "./middleware.mjs";

const problem = (status, more = {}) =>
  [status, { type: "urn:twotier:problem:x", title: "no", status, ...more }];

// listening returns a listening server and its address.
async function listening(context, handler) {
  const server = createServer(handler);
  await once(server.listen(0, "127.0.0.1"), "listening");
  context.after(() => { server.close(); server.closeAllConnections(); });
  return `127.0.0.1:${server.address().port}`;
}

// site returns a function that visits a site behind the middleware. served counts requests.
async function site(context, options) {
  const limits = { "1h": 3 }, served = { count: 0 };
  const limit = express({ limits, onError: "allow", url: process.env.TWOTIER, wait: 20000,
    ...options });
  const address = await listening(context, (request, response) =>
    limit(request, response, (error) => {
      served.count++;
      response.statusCode = error ? 599 : 200;
      response.end(`${error ?? "hello"}`);
    }));
  const visit = async (headers = {}) => {
    const answer = await fetch(`http://${address}/`, { headers });
    return { status: answer.status, headers: answer.headers, text: await answer.text() };
  };
  return Object.assign(visit, { served });
}

// stub returns the address of a server that gives these answers, the last one again and again, and
// its requests. An answer of null is none.
async function stub(context, ...answers) {
  const asked = [];
  const url = await listening(context, async (request, response) => {
    let text = "";
    for await (const part of request) text += part;
    asked.push({ ...JSON.parse(text), path: request.url, token: request.headers.authorization });
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    if (answer) {
      response.writeHead(answer[0], answer[2]).end(
        typeof answer[1] === "string" ? answer[1] : JSON.stringify(answer[1]));
    }
  });
  return { url, asked };
}

test("addresses", () => {
  const rows = JSON.parse(readFileSync(new URL("../testdata/addresses.json", import.meta.url)));
  for (const { peer, forwarded, trusted = [], key } of rows) {
    assert.equal(addressKey(peer, forwarded, networks(trusted)), key, JSON.stringify(
      { peer, forwarded, trusted }));
  }
  assert.equal(addressKey(undefined, "192.0.2.1", networks(["::/0", "0.0.0.0/0"])), "none");
  for (const wrong of ["10.0.0.0/33", "proxy", "::1/129", "", "10.0.0.1/"]) {
    assert.throws(() => networks([wrong]), /trustedProxies: /, wrong);
  }
});

test("shared counts", async () => {
  const rows = JSON.parse(readFileSync(new URL("../testdata/sharing.json", import.meta.url)));
  for (const [i, { first, second, warns }] of rows.entries()) {
    const seen = [], hear = ({ code, message }) => seen.push([code, message]);
    process.on("warning", hear);
    for (const options of [first, second]) {
      express({ onError: "allow", url: `127.0.0.1:${i + 1}`, ...options });
    }
    await new Promise(setImmediate); // warnings are emitted on the next tick
    process.off("warning", hear);
    const want = warns ? ["TWOTIER_SHARED_COUNTS"] : [];
    assert.deepEqual(seen.map(([code]) => code), want, `row ${i}`);
    if (warns) assert.match(seen[0][1], /give each a name$/);
  }
});

test("names", async (context) => {
  const { url, asked } = await stub(context, [200, { allowed: true }]);
  let key = "ann";
  const visit = await site(context, { url, name: "login", key: () => key });
  for (key of ["ann", "", "k".repeat(256), "sha256:"]) await visit();
  assert.deepEqual(asked.map((op) => op.key.replace(/[0-9a-f]{64}$/, "#")),
    ["login:ann", "login:", "sha256:#", "login:sha256:"]);
});

test("a limit by key", async (context) => {
  const visit = await site(context, { ns: "js-middleware", n: (request) => +request.headers.n,
    key: async (request) => request.headers.user });
  const statuses = [];
  for (const [user, n] of [["ann", 2], ["ann", 1], ["ann", 1], ["bob", 3], ["bob", 1]]) {
    statuses.push((await visit({ user, n })).status);
  }
  assert.deepEqual(statuses, [200, 200, 429, 200, 429]);
  const refused = await visit({ user: "bob", n: 1 });
  const { id } = JSON.parse(refused.text);
  assert.equal(refused.headers.get("Twotier-Refusal"), id);
  const explained = await fetch(`http://${process.env.TWOTIER}/v1/explain?id=${id}`);
  assert.equal((await explained.json()).key, "bob");
  for (let i = 0; i < 5; i++) {
    const { status, headers } = await visit();
    assert.deepEqual([status, headers.get("RateLimit")], [200, null]);
  }
});

test("many at the same time", async (context) => {
  const visit = await site(context, { ns: "js-crowd", limits: { "1h": 30 }, maxSockets: 8 });
  const answers = await Promise.all(Array.from({ length: 100 }, () => visit()));
  assert.equal(answers.filter(({ status }) => status === 200).length, 30);
  assert.equal(answers.filter(({ status }) => status === 429).length, 70);
  assert.equal(visit.served.count, 30);
});

test("dry run", async (context) => {
  const visit = await site(context, { ns: "js-dry", dryRun: true });
  for (let i = 0; i < 5; i++) {
    const { status, headers, text } = await visit();
    assert.deepEqual([status, text, headers.get("Retry-After")], [200, "hello", null]);
    assert.match(headers.get("RateLimit"), i < 3 ? /;r=[012]$/ : /;r=0;t=\d+$/);
  }
  const { url } = await stub(context, problem(422));
  assert.equal((await (await site(context, { url, dryRun: true }))()).status, 200);
});

test("what is sent", async (context) => {
  const { url, asked } = await stub(context, [200, { allowed: true }]);
  const key = () => "a\tb";
  const visit = await site(context, { url, rules: "login", limits: [{ window: 1500, max: 2 }],
    ns: "x", token: "secret", key });
  assert.equal((await visit()).status, 200);
  const { key: sent, ...rest } = asked[0];
  assert.deepEqual(rest, { path: "/v1/acquire?deny=429", token: "Bearer secret", ns: "x", n: 1,
    rules: ["login"], limits: [{ window: "1500ms", max: 2 }] });
  assert.match(sent, /^sha256:[0-9a-f]{64}$/);
});

test("no decision", async (context) => {
  for (const [answer, allow, deny, after] of [
    [problem(429), 429, 429, "1"],
    [problem(429, { retry_after_ms: 2350 }), 429, 429, "3"],
    [problem(429, { retry_after_ms: 9e15 }), 429, 429, "60"],
    [problem(503), 503, 503, "1"],
    [problem(503, { outcome: "unknown" }), 503, 503, "1"],
    [problem(500), 503, 503, "1"],
    [problem(408), 503, 503, "1"],
    [problem(422), 500, 500, null],
    [problem(401), 500, 500, null],
    [[404, "no such page"], 500, 500, null],
    [[502, "<html>"], 200, 503, "1"],
    [[503, '{"title":"a proxy"}'], 200, 503, "1"],
  ]) {
    for (const [onError, want] of [["allow", allow], ["deny", deny]]) {
      const { url } = await stub(context, answer);
      const failures = [];
      const onFailure = (error, key) => failures.push([error.constructor, key]);
      const visit = await site(context, { url, onError, onFailure });
      const { status, headers, text } = await visit();
      const label = `${JSON.stringify(answer)}, ${onError}`;
      assert.equal(status, want, label);
      assert.equal(headers.get("Retry-After"), want === 200 ? null : after, label);
      assert.deepEqual(failures, [[Error, "127.0.0.1"]], label);
      assert.equal(visit.served.count, want === 200 ? 1 : 0, label);
      if (want !== 200) assert.equal(JSON.parse(text).status, want, label);
    }
  }
});

test("a server that is too slow", async (context) => {
  const allowed = [200, { allowed: true }];
  const { url } = await stub(context, allowed, null);
  const visit = await site(context, { url, wait: 250 });
  assert.equal((await visit()).status, 200);
  const slow = await visit(); // it has just answered, so it can be reached
  assert.deepEqual([slow.status, slow.headers.get("Retry-After")], [429, "1"]);
  const began = Date.now();
  while ((await visit()).status === 429) assert.ok(Date.now() - began < 60000);
  assert.ok(Date.now() - began > 2000); // it was silent for long enough

  const silent = await stub(context, null);
  const never = await site(context, { url: silent.url, wait: 250, onError: "deny" });
  assert.equal((await never()).status, 503);
});

test("closed connections", async (context) => {
  const used = new Set();
  let refused = 0;
  const url = await listening(context, (request, response) => {
    if (used.has(request.socket) && refused++ < 2) return request.socket.destroy();
    used.add(request.socket);
    request.resume().on("end", () => response.end('{"allowed":true}'));
  });
  const visit = await site(context, { url, onError: "deny" });
  for (let i = 0; i < 4; i++) assert.equal((await visit()).status, 200);
  assert.ok(refused >= 2);
});

test("errors of the application's functions", async (context) => {
  const key = () => { throw new Error("no user"); };
  const { status, text } = await (await site(context, { key }))();
  assert.deepEqual([status, text], [599, "Error: no user"]);
});

test("options", async () => {
  const limits = { "1m": 1 };
  for (const [options, want] of [
    [undefined, /limits or rules are missing/],
    [{ onError: "allow" }, /limits or rules are missing/],
    [{ limits }, /onError is missing/],
    [{ limits, onError: "open" }, /onError is missing/],
    [{ limits, onError: "deny", trusted: [] }, /trusted is no option/],
    [{ limits, onError: "deny", trustedProxies: ["x"] }, /trustedProxies: x/],
    [{ limits, onError: "deny", name: "a:b" }, /name: a:b/],
    [{ limits, onError: "deny", name: "a".repeat(65) }, /name: a/],
  ]) {
    assert.throws(() => express(options), want);
  }
  await assert.rejects(hono({ limits, onError: "allow" })({ env: {} }), /key is missing/);
});
