// A client of twotier in one file. It needs Node.js 18 and nothing else.
//
//   import { Twotier } from "./twotier.mjs";
//
//   const tt = new Twotier("127.0.0.1:8080");
//   if (await tt.isActionAllowed("alice", "reply", "1m", 5)) { ... }
//   const answer = await tt.acquire({ key: "user:42", limits: { "1m": 15, "24h": 50 } });
//   if (!answer.allowed) console.log("try again in", answer.retry_after_ms, "ms");
//   tt.close();
//
// Operations and answers are the JSON objects of the HTTP API (/openapi.json); durations are
// strings such as "90s" or numbers of milliseconds.
//
// A client has one connection, which it keeps open. Calls made while a request is in flight go out
// together with the next one. Every request is numbered within a session: if its answer is lost, it
// is sent again, and the server executes it once. An overloaded server answers when to try again,
// and the client waits as long as its timeout allows. UnknownOutcome is the only error after which
// something may have been counted.

import { createHash, randomUUID } from "node:crypto";
import http from "node:http";
import https from "node:https";
import { setTimeout as sleep } from "node:timers/promises";

// TwotierError is the base of all errors. status is the HTTP status, or 0 if there was no answer;
// retryAfter is in milliseconds, or undefined if it is unknown when to try again.
export class TwotierError extends Error {
  constructor(detail, status = 0, retryAfter = undefined) {
    super(detail);
    this.name = new.target.name;
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

// Invalid: the operation can't be executed as it is. Nothing was counted.
export class Invalid extends TwotierError {}
// Denied: the token is missing, unknown, or does not grant this. Nothing was counted.
export class Denied extends TwotierError {}
// Overloaded: a limit of the server itself is reached. Nothing was counted.
export class Overloaded extends TwotierError {}
// Unavailable: there is no honest answer now. Nothing was counted.
export class Unavailable extends TwotierError {}
// UnknownOutcome: it may have been counted, or not.
export class UnknownOutcome extends TwotierError {}

const mostAtOnce = 1000; // operations in one request
const leastAtOnce = 16; // even if the server has found less too large
const mostText = 256 << 10; // their characters, unless it is a single one: a body has at most 1 MiB

// Twotier is a connection to a server at "host:port" or a URL. Options: token; timeout in
// milliseconds, which bounds each call (5000); tls, options for node:tls where the URL is https.
export class Twotier {
  #url;
  #options;
  #agent;
  #request;
  #waiting = [];
  #busy = false;
  #atOnce = mostAtOnce; // less after a request that was too large
  #session;
  #process;
  #sequence = 0;

  constructor(address = "127.0.0.1:8080", { token, timeout = 5000, tls = {} } = {}) {
    this.#url = new URL(address.includes("://") ? address : `http://${address}`);
    this.#options = { token, timeout };
    const { Agent, request } = this.#url.protocol === "https:" ? https : http;
    this.#agent = new Agent({ ...tls, keepAlive: true, maxSockets: 1 });
    this.#request = request;
  }

  // close closes the connection. The next call opens another one.
  close() {
    this.#agent.destroy();
  }

  // add counts n events of a key, or takes them back if n is negative.
  // op: { key, n, ns, ts, ack, limits, rules }
  add(op) {
    return this.#one({ ...op, op: "add" });
  }

  // count returns the counts of a key in one window or several. op: { key, window: "1m" or
  // ["1m", ...], ns, at }
  count(op) {
    return this.#one({ ...op, op: "count" });
  }

  // acquire decides whether events may pass, and counts them if so.
  // op: { key, n, ns, limits, rules, values, value_limits } or { checks: [...of these] }, and ts,
  // ack, count_denied, charge, dry_run, hold, on_expiry. With a hold, such as "90s", the answer has
  // its id, to settle later; limits may bound how many are open: { "1m": 800, concurrent: 2 }.
  // Values (texts) are added to the key, and value_limits, { "24h": 3 }, bound the different ones.
  acquire(op) {
    return this.#one({ ...op, op: "acquire" });
  }

  // settle makes what a hold has counted n events, in the buckets of its acquire, even if they
  // exceed a limit: the answer lists such limits in over. It has late if the hold had ended. A hold is
  // settled once, so a request without an answer is sent again.
  // op: { hold, n } or { hold, checks: [{ key, n, ns }] }; other keys stay as they were counted
  settle(op) {
    return this.#repeat("POST", "/v1/settle", op);
  }

  // release settles a hold with 0: it ends the hold and takes back what was counted.
  release(hold) {
    return this.settle({ hold, n: 0 });
  }

  // renew moves the end of a hold to some time from now, at most 24 hours after it began. It
  // returns the new id and the end, { hold, until }; the old id is void. op: { hold, for: "5m" }
  renew(op) {
    return this.#repeat("POST", "/v1/renew", { ...op, for: duration(op.for) });
  }

  // explain returns why a key is refused: the verdict of each rule, or of one, its counts, and the
  // recent refusals. An answer that refuses has the id of its refusal.
  // op: { key, ns, rule } or { id }
  explain(op) {
    const given = Object.entries(op).filter(([, v]) => v != null);
    const query = given.map(([k, v]) => `${k}=${encodeURIComponent(v)}`).join("&");
    return this.#repeat("GET", `/v1/explain?${query}`);
  }

  // isActionAllowed reports whether a user may do this once more, at most max times in any period,
  // and counts it if so. Any text will do.
  async isActionAllowed(user, action, period, max) {
    const key = safeKey(`${[...user].length}:${user}:${action}`);
    return (await this.acquire({ key, limits: [{ window: period, max }] })).allowed;
  }

  // distinct adds values (texts) to a key, unless a limit, or one of a rule, forbids it, and
  // returns the number of different ones for each limit and window. Without values it only counts.
  // A value counts once, so a request without an answer is sent again.
  // op: { key, values, limits, rules, window: ["1h", ...], ns, ts or at, ack }
  distinct(op) {
    const given = Object.fromEntries(Object.entries(encoded(op)).filter(([, v]) => v != null));
    const { values = [], limits = [], rules = [], ...rest } = given;
    // The server refuses limits and rules without values.
    if (values.length + limits.length + rules.length > 0) {
      return this.#repeat("POST", "/v1/distinct", { ...given, values });
    }
    const query = Object.entries(rest).map(([k, v]) => `${k}=${encodeURIComponent(v)}`).join("&");
    return this.#repeat("GET", `/v1/distinct?${query}`);
  }

  // batch executes many operations, in order for each key. Each has op ("add", "count", "acquire"
  // or "distinct") and its fields. It returns their answers in order, with a TwotierError in the
  // place of a refused one.
  batch(ops) {
    const deadline = Date.now() + this.#options.timeout;
    return Promise.all(ops.map((op) => this.#enqueue(op, deadline).catch((err) => err)));
  }

  async #one(op) {
    const deadline = Date.now() + this.#options.timeout;
    for (;;) {
      try {
        return await this.#enqueue(op, deadline);
      } catch (err) {
        await waitOrThrow(err, deadline);
      }
    }
  }

  // repeat sends a request that is safe to repeat until there is an answer.
  async #repeat(method, path, message) {
    const deadline = Date.now() + this.#options.timeout;
    for (let sent = false; ; ) {
      try {
        const text = message && JSON.stringify(message, wellFormed);
        const { status, body } = await this.#exchange(method, path, text, {}, deadline);
        if (status === 200) return body;
        let err = failure(body, status);
        if (err instanceof UnknownOutcome || status === 503 && !ours(body)) {
          sent = true;
          err = new (message ? UnknownOutcome : Unavailable)(err.message, status, 100);
        }
        await waitOrThrow(err, deadline).catch((last) => { // it only covers the last attempt
          throw sent && message ? new UnknownOutcome(last.message, last.status) : last;
        });
      } catch (err) {
        if (err instanceof TwotierError) throw err;
        const connected = err.code !== "ECONNREFUSED" && err.syscall !== "getaddrinfo";
        sent ||= connected;
        if (connected && Date.now() < deadline) {
          await sleep(20);
          continue;
        }
        const Kind = sent && message ? UnknownOutcome : Unavailable;
        throw new Kind(`no answer from ${this.#url.host}: ${err.message}`);
      }
    }
  }

  // enqueue sends an operation with the next request.
  #enqueue(op, deadline) {
    return new Promise((resolve, reject) => {
      // An operation that can't be sent must not fail the calls next to it.
      const sent = encoded(op);
      this.#waiting.push({ op: sent, text: JSON.stringify(sent, wellFormed), deadline, resolve,
        reject });
      if (!this.#busy) {
        this.#busy = true;
        queueMicrotask(() => this.#sendWaiting());
      }
    });
  }

  async #sendWaiting() {
    while (this.#waiting.length > 0) {
      let n = 0;
      for (let length = 0; n < Math.min(this.#waiting.length, this.#atOnce); n++) {
        length += this.#waiting[n].text.length;
        if (n > 0 && length > mostText) break;
      }
      await this.#carryOut(this.#waiting.splice(0, n));
    }
    this.#busy = false;
  }

  // carryOut sends calls in one request, or in halves if that is too large for the server.
  async #carryOut(calls) {
    try {
      const { results } = await this.#inSession(calls);
      calls.forEach(({ op, resolve, reject }, i) =>
        results[i].error ? reject(failed(op, results[i].error)) : resolve(results[i]));
    } catch (err) {
      if (err.status !== 413 || calls.length === 1) {
        calls.forEach(({ reject }) => reject(err));
        return;
      }
      const half = Math.ceil(calls.length / 2);
      this.#atOnce = Math.max(half, leastAtOnce);
      await this.#carryOut(calls.slice(0, half));
      await this.#carryOut(calls.slice(half));
    }
  }

  // inSession sends a request until there is an answer; the server executes it once.
  async #inSession(calls) {
    const ops = calls.map((c) => c.op);
    const text = `{"ops":[${calls.map((c) => c.text).join()}]}`;
    const deadline = Math.max(...calls.map((c) => c.deadline));
    const reads = ops.every(readsOnly);
    for (let sent = false; ; ) {
      let answer;
      try {
        if (!this.#process) await this.#begin(deadline);
        this.#sequence += sent ? 0 : 1;
        answer = await this.#send(text, deadline);
      } catch (err) {
        if (err instanceof TwotierError) throw err;
        const connected = err.code !== "ECONNREFUSED" && err.syscall !== "getaddrinfo";
        sent ||= connected && this.#process !== undefined;
        if (connected && Date.now() < deadline) {
          await sleep(20);
          continue;
        }
        this.#process = undefined;
        const Kind = sent && !reads ? UnknownOutcome : Unavailable;
        throw new Kind(`no answer from ${this.#url.host}: ${err.message}`);
      }
      if (answer.status === 200) return answer.body;
      if (!answer.process && (sent || answer.status >= 500 &&
          !(answer.status === 503 && ours(answer.body)))) {
        // The answer is not about the request, which may have been executed: the server sent it
        // before it looked at sessions, or a proxy did.
        sent = true;
        if (this.#process && Date.now() + 100 < deadline) {
          await sleep(100);
          continue;
        }
        const Kind = reads ? Unavailable : UnknownOutcome;
        throw new Kind(failure(answer.body, answer.status).message, answer.status);
      }
      if (answer.status !== 409 && answer.status !== 421) throw failure(answer.body, answer.status);
      this.#process = undefined; // it is gone, or has forgotten the session
      if (sent && !reads) throw new UnknownOutcome(`${this.#url.host} has restarted`);
      sent = false;
    }
  }

  // begin begins a session, and learns the name of its process: no other one may execute a repeated
  // request.
  async #begin(deadline) {
    this.#session = randomUUID();
    this.#sequence = 1;
    const { status, body } = await this.#send('{"ops":[]}', deadline);
    if (status === 200) return;
    const err = failure(body, status);
    throw err instanceof UnknownOutcome ? new Unavailable(err.message, status, 1000) : err;
  }

  async #send(text, deadline) {
    const headers = {
      "Twotier-Session": this.#session,
      "Twotier-Sequence": String(this.#sequence),
    };
    if (this.#process) headers["Twotier-Process"] = this.#process;
    const answer = await this.#exchange("POST", "/v1/batch", text, headers, deadline);
    this.#process = answer.process ?? this.#process;
    return answer;
  }

  #exchange(method, path, body = "", headers, deadline) {
    headers["Content-Type"] = "application/json";
    headers["Content-Length"] = Buffer.byteLength(body);
    if (this.#options.token) headers.Authorization = `Bearer ${this.#options.token}`;
    return new Promise((resolve, reject) => {
      const request = this.#request(new URL(path, this.#url),
        { method, agent: this.#agent, headers,
          signal: AbortSignal.timeout(Math.max(1, deadline - Date.now())) },
        (response) => {
          const parts = [];
          response.on("data", (part) => parts.push(part));
          response.on("error", reject);
          response.on("end", () => {
            const status = response.statusCode, process = response.headers["twotier-process"];
            const title = `status ${status} without a problem; is that a twotier server?`;
            const answer = parsed(Buffer.concat(parts).toString());
            if (answer) resolve({ status, body: answer, process });
            else if (status >= 400 && status < 500) resolve({ status, body: { title }, process });
            else reject(new Error(title)); // the server may or may not have received it
          });
        });
      request.on("error", reject);
      request.end(body);
    });
  }
}

// safeKey returns the key, or "sha256:" and its digest if it can't be a key: if it is empty, longer
// than 256 bytes or has control characters. The Go client's SafeKey gives the same.
export function safeKey(key) {
  const raw = Buffer.from(key);
  const fits = raw.length > 0 && raw.length <= 256 && !/\p{Cc}|\p{Cs}/u.test(key);
  if (fits && !key.startsWith("sha256:")) return key;
  return "sha256:" + createHash("sha256").update(raw).digest("hex");
}

const duration = (window) => (typeof window === "number" ? `${Math.round(window)}ms` : window);

// wellFormed, for JSON.stringify, refuses text that can't be sent.
function wellFormed(_, value) {
  if (typeof value === "string" && /\p{Cs}/u.test(value)) {
    throw new Invalid("a text has half of a surrogate pair", 0);
  }
  return value;
}

const ours = (problem) => `${problem?.type}`.startsWith("urn:twotier:problem:");

// encoded returns an operation as the server reads it: windows as texts, limits as a list.
export function encoded(op) {
  const { checks, window, hold, ...rest } = op;
  if (checks) rest.checks = checks.map(encoded);
  if (window) rest.window = [window].flat().map(duration);
  if (hold != null) rest.hold = duration(hold);
  for (const name of ["limits", "value_limits"]) {
    const limits = rest[name];
    delete rest[name];
    if (!limits) continue;
    const list = Array.isArray(limits) ? limits : Object.entries(limits).map(([window, max]) =>
      (window === "concurrent" ? { concurrent: max } : { window, max }));
    rest[name] = list.map((limit) => ({ ...limit, window: duration(limit.window) }));
  }
  return rest;
}

// parsed returns a JSON object, or undefined if the text is not one.
function parsed(text) {
  try {
    const answer = JSON.parse(text);
    if (typeof answer === "object" && !Array.isArray(answer)) return answer;
  } catch { /* it is a proxy's */ }
}

const readsOnly = (op) =>
  op.op === "count" || op.dry_run || op.op === "distinct" && !op.values?.length;

function failed(op, problem) {
  const err = failure(problem);
  return err instanceof UnknownOutcome && readsOnly(op)
    ? new Unavailable(err.message, err.status, 1000) : err;
}

function failure(problem, status = problem.status) {
  const kinds = { 401: Denied, 403: Denied, 429: Overloaded, 503: Unavailable };
  const Kind = problem.outcome === "unknown" ? UnknownOutcome
    : kinds[status] ?? (status < 500 ? Invalid : UnknownOutcome);
  const waits = Kind === Overloaded || Kind === Unavailable;
  return new Kind(problem.detail ?? problem.title ?? "refused", status,
    waits ? problem.retry_after_ms ?? 1000 : undefined);
}

async function waitOrThrow(err, deadline) {
  if (err.retryAfter === undefined || Date.now() + err.retryAfter >= deadline) throw err;
  await sleep(err.retryAfter);
}
