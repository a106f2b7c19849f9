// Tests the client against the server at TWOTIER, which loses the first answers about "lost" and
// "astray", and all about "vanished". TWOTIER_BEHIND_A_PROXY is behind a proxy that fails once for
// each of the keys "closed", "repeated", "reset" and "gateway".

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { Denied, Invalid, Twotier, Unavailable, UnknownOutcome, safeKey } from "./twotier.mjs";

const address = process.env.TWOTIER;
const tt = new Twotier(address, { timeout: 20000 });
after(() => tt.close());

const counted = async (key) => (await tt.count({ key, window: 3600000 })).counts[0].max;

test("too large", async () => {
  let refused = 0;
  const seen = [];
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const part of request) text += part;
    const { ops } = JSON.parse(text);
    response.setHeader("Twotier-Process", "p");
    if (ops.length > 20) {
      refused++;
      response.writeHead(413).end('{"title":"Request body too large","status":413}');
      return;
    }
    seen.push(...ops.map((op) => op.key));
    response.end(JSON.stringify({ results: ops.map(() => ({ counts: [] })) }));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const small = new Twotier(`127.0.0.1:${server.address().port}`);
  const keys = Array.from({ length: 100 }, (_, i) => `k${i}`);
  const ask = () => Promise.all(keys.map((key) => small.add({ key })));
  await ask();
  assert.deepEqual(seen, keys); // each once, in order
  const before = refused;
  await ask();
  assert.equal(refused, before); // it remembers
  small.close();
  server.close();
});

test("operations", async () => {
  const { ts } = await tt.add({ key: "js", n: 5 });
  assert.equal(await counted("js"), 5);
  await tt.add({ key: "js", n: -2, ts });
  assert.equal(await counted("js"), 3);
  const daily = [{ window: "day", zone: "Europe/Lisbon", anchor: 6, max: 1 }];
  const [day] = (await tt.acquire({ key: "js calendar", limits: daily })).limits;
  assert.deepEqual([day.window, day.remaining], ["day.6@Europe/Lisbon", 0]);
  const again = { key: "js calendar", limits: { "day.6@Europe/Lisbon": 1 } };
  assert.equal((await tt.acquire(again)).allowed, false);
  const limits = { "1m": 4, "1h": 100 };
  assert.ok((await tt.acquire({ key: "js", limits, dry_run: true })).allowed);
  assert.ok((await tt.acquire({ key: "js", limits })).allowed);
  const refused = await tt.acquire({ key: "js", limits });
  assert.deepEqual([refused.allowed, refused.refused_by], [false, ["limits[0]"]]);
  const checks = [{ key: "js", limits: { "1m": 9 } }, { key: "js2", limits: { "1m": 0 } }];
  assert.equal((await tt.acquire({ checks })).allowed, false);
});

test("charge", async () => {
  const limits = { "1h": 10 }, key = "js charged";
  const all = [];
  for (const n of [8, 5, 0]) all.push((await tt.acquire({ key, n, limits, charge: true })).allowed);
  assert.deepEqual(all, [true, false, false]); // a charge of 0 asks for room
  assert.equal(await counted(key), 13);
});

test("holds", async () => {
  const key = "js held", key2 = "js held 2"; // the first answer about it is lost
  const limits = { "1h": 1000, concurrent: 1 };
  const checks = [{ key, n: 800, limits }, { key: key2, n: 800, limits: [{ concurrent: 5 }] }];
  const { allowed, hold, until } = await tt.acquire({ checks, hold: 90000 });
  assert.ok(allowed && until > Date.now() + 80000);
  const refused = await tt.acquire({ key, limits, hold: "90s" });
  assert.deepEqual([refused.allowed, refused.refused_by, refused.hold],
    [false, ["concurrent"], undefined]);
  assert.deepEqual(await tt.settle({ hold, n: 1357 }), // the answer to the first attempt is lost
    { settled: true, repeated: true, over: ["checks[0].limits[0]"] });
  assert.deepEqual([await counted(key), await counted(key2)], [1357, 1357]);
  const more = { window: "1h", max: 9999 };
  const next = await tt.acquire({ key, n: 5, limits: [more, { concurrent: 1 }], hold: "2m",
    on_expiry: "release" });
  const some = { hold: next.hold, checks: [{ key, n: 7, ns: "default" }] };
  assert.deepEqual(await tt.settle(some), { settled: true });
  assert.equal(await counted(key), 1364);
  for (const wrong of [{ hold: next.hold }, { hold: next.hold, n: -1 }, { hold: "none", n: 1 },
    { hold: next.hold, checks: [{ key: "js other", n: 1 }] }])
    await assert.rejects(tt.settle(wrong), Invalid);
  await assert.rejects(tt.settle({ hold: "AAAA" + hold.slice(4), n: 1 }), Denied);
  await assert.rejects(tt.acquire({ key, limits }), Invalid); // concurrent without a hold
  await assert.rejects(tt.acquire({ key, n: 1, limits: { "1h": 9999 }, hold: 0 }), Invalid);
  assert.equal(await counted(key), 1364);
});

test("explain", async () => {
  const refused = await tt.acquire({ key: "js why", n: 3, limits: { "1m": 2 } });
  assert.equal(refused.allowed, false);
  const { refusal } = await tt.explain({ id: refused.id });
  assert.deepEqual([refusal.key, refusal.window, refusal.limit, refusal.n],
    ["js why", "1m", 2, 3]);
  const explained = await tt.explain({ key: "js why" });
  assert.equal(explained.refusals[0].id, refused.id);
  assert.ok(explained.rules.every((r) => r.passes));
  const unknown = (err) => err instanceof Invalid && err.status === 404;
  await assert.rejects(tt.explain({ id: "nobody.1" }), unknown);
});

test("leases", async () => {
  const take = () => tt.acquire({ key: "js lease", n: 3, limits: { concurrent: 1 }, hold: "1m" });
  const first = await take();
  const renewed = await tt.renew({ hold: first.hold, for: 300000 });
  assert.ok(renewed.hold !== first.hold && renewed.until > Date.now() + 290000);
  assert.equal((await take()).allowed, false);
  const gone = (err) => err instanceof Invalid && err.status === 410;
  await assert.rejects(tt.renew({ hold: first.hold, for: "5m" }), gone);
  assert.deepEqual(await tt.release(renewed.hold), { settled: true });
  assert.equal(await counted("js lease"), 0);
  assert.deepEqual(await tt.release(renewed.hold), { settled: true, repeated: true });
  const { hold } = await take(); // there is room again
  await assert.rejects(tt.renew({ hold, for: "77m" }), UnknownOutcome); // the answer is lost
});

test("actions", async () => {
  const all = [1, 2, 3, 4, 5].map(() => tt.isActionAllowed("js\n", "reply", "1m", 3));
  assert.deepEqual(await Promise.all(all), [true, true, true, false, false]);
  assert.ok(await tt.isActionAllowed("js", "\nreply", 60000, 3));
  assert.ok(await tt.isActionAllowed("j\u00ff:\u{1f40d}", "reply", "1h", 1));
  assert.equal(await counted("4:j\u00ff:\u{1f40d}:reply"), 1); // like the other clients
});

test("distinct", async () => {
  const key = "js distinct", limits = { "24h": 2 };
  const counts = (answer) => answer.counts.map((c) => c.count);
  const first = await tt.distinct({ key, values: ["a", "b\n", "a"], limits, ack: "memory" });
  assert.deepEqual([first.over, counts(first)], [false, [2]]);
  const second = await tt.distinct({ key, values: ["c"], limits, window: [3600000] });
  assert.deepEqual([second.over, counts(second)], [true, [2, 2]]);
  assert.ok(second.retry_after_ms > 86e6);
  const third = await tt.distinct({ key, window: ["1h", 60000], at: Date.now() });
  assert.deepEqual(counts(third), [2, 2]);
  const again = await tt.distinct({ key: "js astray", values: ["a"], window: "1h" });
  assert.deepEqual(counts(again), [1]);
  for (const [rule, over] of [["devices", true], ["watched", false]]) {
    const ruled = await tt.distinct({ key: "js ruled", values: ["a", "b"], rules: [rule] });
    assert.deepEqual([ruled.over, ruled.rules_version > 0], [over, true]);
  }
  await assert.rejects(tt.distinct({ key, values: [""] }), Invalid);
});

test("acquire with values", async () => {
  const more = { value_limits: { "24h": 2 }, limits: [{ window: 3600000, max: 2 }] };
  const both = await tt.acquire({ key: "js both", values: ["a", "b"], ...more });
  assert.deepEqual([both.allowed, both.values.counts[0].count], [true, 2]);
  const over = await tt.acquire({ checks: [{ key: "js both", values: ["c"], ...more }] });
  assert.deepEqual(over.refused_by, ["checks[0].value_limits[0]"]);
  assert.equal(await counted("js both"), 1);
});

test("distinct without some fields", async () => {
  const key = "js sparse", window = ["1h"];
  await tt.distinct({ key, values: ["a"], ns: undefined, ack: null, window });
  for (const none of [undefined, null, []]) {
    const answer = await tt.distinct({ key, values: none, limits: none, rules: none, window,
      ns: undefined, at: null });
    assert.deepEqual(answer.counts.map((c) => c.count), [1]);
  }
  const lacksValues = (err) => err instanceof Invalid && /values: missing/.test(err.message);
  await assert.rejects(tt.distinct({ key, limits: { "1h": 2 } }), lacksValues);
  await assert.rejects(tt.distinct({ key, rules: ["devices"], window }), lacksValues);
});

test("unknown outcomes of reads", async () => {
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const part of request) text += part;
    const error = { title: "no answer", status: 500, outcome: "unknown" };
    response.setHeader("Twotier-Process", "p");
    response.end(JSON.stringify({ results: JSON.parse(text).ops.map(() => ({ error })) }));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const other = new Twotier(`127.0.0.1:${server.address().port}`);
  const op = "distinct", key = "js", window = ["1h"];
  const [none, empty, some] = await other.batch([{ op, key, window },
    { op, key, window, values: [] }, { op, key, window, values: ["a"] }]);
  other.close();
  server.close();
  assert.ok(none instanceof Unavailable && empty instanceof Unavailable);
  assert.ok(some instanceof UnknownOutcome);
});

test("batch of values", async () => {
  const key = "js values", op = "distinct", limits = { "1h": 2 };
  const [first, over, by, asked, wrong] = await tt.batch([
    { op, key, values: ["a", "b"], limits }, { op, key, values: ["c"], limits },
    { op, key, values: ["c"], rules: ["devices"] }, { op, key, window: ["1h"] },
    { op, key, values: [] },
  ]);
  assert.deepEqual([first.over, over.over, by.over], [false, true, true]);
  assert.deepEqual([over.refused_by, by.refused_by], [["limits[0]"], ["devices"]]);
  assert.equal(asked.counts[0].count, 2);
  assert.ok(wrong instanceof Invalid);
});

test("batch", async () => {
  const ops = Array.from({ length: 2500 }, (_, i) => ({ op: "add", key: `js${i % 7}` }));
  const answers = await tt.batch([...ops, { op: "add", key: "" }]);
  assert.deepEqual(answers.slice(0, -1).map((a) => a.key), ops.map((o) => o.key));
  assert.ok(answers.at(-1) instanceof Invalid);
});

test("errors", async () => {
  await assert.rejects(tt.acquire({ key: "js", limits: { "1000h": 1 } }),
    (err) => err instanceof Invalid && err.status === 422 && err.retryAfter === undefined);
  await assert.rejects(new Twotier("127.0.0.1:1").add({ key: "js" }), Unavailable);
});

test("lost answer", async () => {
  await tt.add({ key: "js lost", n: 3 });
  assert.equal(await counted("js lost"), 3);
});

test("no answer", async () => {
  const hasty = new Twotier(address, { timeout: 500 });
  // Without a session the error would be Unavailable. Beginning one may take longer.
  for (let begun = false, i = 0; !begun && i < 40; i++) {
    begun = await hasty.add({ key: "js begun" }).then(() => true, () => false);
  }
  await assert.rejects(hasty.add({ key: "js vanished" }), UnknownOutcome);
  hasty.close();
});

test("close", async () => {
  const key = "js closing", other = new Twotier(address, { timeout: 20000 });
  const before = Array.from({ length: 20 }, () => other.add({ key }));
  other.close(); // before they are sent
  await other.add({ key });
  const after = other.add({ key });
  await new Promise((resolve) => setImmediate(resolve));
  other.close(); // the request may be on its way
  await Promise.all([...before, after]);
  other.close();
  await other.add({ key }); // opens another connection
  other.close();
  other.close();
  assert.equal(await counted(key), 23);
});

test("proxy", async () => {
  for (const key of ["js closed", "js repeated", "js reset", "js gateway"]) {
    const proxied = new Twotier(process.env.TWOTIER_BEHIND_A_PROXY, { timeout: 20000 });
    await proxied.add({ key });
    await proxied.add({ key });
    proxied.close();
    assert.equal(await counted(key), 2, key);
  }
});

test("strangers", async () => {
  for (const [status, text, Kind] of [[502, "<html>", Unavailable],
    [502, '{"status":"Failure"}', Unavailable], [403, "<html>", Denied], [413, "[]", Invalid],
    [404, "{}", Invalid]]) {
    const server = createServer((request, response) => {
      request.resume();
      response.writeHead(status).end(text);
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    // Only a 502 makes the client try again, for as long as the timeout allows.
    const timeout = status === 502 ? 300 : 20000;
    const other = new Twotier(`127.0.0.1:${server.address().port}`, { timeout });
    // Only an empty batch was ever sent.
    await assert.rejects(other.add({ key: "js" }), Kind);
    await assert.rejects(other.count({ key: "js", window: ["1m"] }), Kind);
    await assert.rejects(other.distinct({ key: "js", window: ["1m"] }), Kind);
    other.close();
    server.close();
  }
});

test("lost by a proxy", async () => {
  // A proxy's 503 does not cover what its server has done, nor does the refusal that follows.
  const answers = [[503, '{"status":"error"}'], [410, '{"title":"Gone","status":410}']];
  for (const call of [(c) => c.renew({ hold: "id", for: "1m" }), (c) => c.release("id")]) {
    const left = [...answers];
    const server = createServer((request, response) => {
      request.resume();
      const [status, text] = left.length > 1 ? left.shift() : left[0];
      response.writeHead(status).end(text);
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    const other = new Twotier(`127.0.0.1:${server.address().port}`, { timeout: 20000 });
    await assert.rejects(call(other), UnknownOutcome);
    await assert.rejects(call(other), Invalid);
    other.close();
    server.close();
  }
});

test("calls beside others that can't be sent", async () => {
  const key = "js beside", ns = "x".repeat(1500);
  const bad = [{ key: "\ud800" }, ...Array(900).fill({ key, ns })].map((op) => tt.add(op));
  const good = tt.add({ key });
  for (const { reason } of await Promise.allSettled(bad)) assert.ok(reason instanceof Invalid);
  await good;
  assert.equal(await counted(key), 1);
});

test("keys", () => {
  assert.equal(safeKey("naïve"), "naïve");
  for (const key of ["", "a\tb", "é".repeat(129), safeKey("")])
    assert.ok(safeKey(key).startsWith("sha256:") && safeKey(key) !== key, key);
});
