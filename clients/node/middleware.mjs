// Middleware for Express, Fastify, Koa and Hono that limits requests with twotier. It needs Node.js
// 18 and no package.
//
//   import * as twotier from "twotier/middleware";
//
//   app.use(twotier.express({ limits: { "1m": 15 }, onError: "allow" }));
//   await app.register(twotier.fastify, { limits: { "1m": 15 }, onError: "allow" });
//   app.use(twotier.koa({ limits: { "1m": 15 }, onError: "allow" }));
//   app.use("*", twotier.hono({ limits: { "1m": 15 }, onError: "allow" }));
//
// A request that a limit refuses gets 429, with Retry-After if waiting helps, and the id of the
// refusal in Twotier-Refusal. Every answer to a decision has the headers RateLimit-Policy and
// RateLimit of the server.
//
// Options:
//   onError         "allow" or "deny" (503): what happens to requests while no server can be
//                   reached. Required. While a server is overloaded, or does not decide in time,
//                   requests get 429, and while it can't decide, 503, whatever onError is: else
//                   senders could switch the limits off by overloading it
//   limits          { "1m": 15, "24h": 50 }, or a list of { window, max }
//   rules, ns       names of the server's rules; the namespace. Limits or rules are required
//   name            a part of every key, such as "login". Middleware with other limits needs another
//                   name, or else both share the counts of their keys
//   key             function of the framework's request (Koa, Hono: the context): the key to count
//                   under, null if the request is not limited. Default: the sender's address
//   trustedProxies  addresses and networks, such as "10.0.0.0/8", whose X-Forwarded-For is believed
//   n               how many events a request is, or a function of it. Default: 1
//   dryRun          true lets every request pass, but decides and counts as usual
//   url             the server, "127.0.0.1:8080", or a URL; token, and tls for node:tls
//   wait            milliseconds for a decision (250); maxSockets, connections to the server (64)
//   onFailure       function of an error and the key, called for each request without a decision

import { STATUS_CODES } from "node:http";
import { addressKey, networks } from "./address.mjs";
import { Asker } from "./asker.mjs";
import { encoded, safeKey } from "./twotier.mjs";

// express returns middleware for Express, Connect, and other servers that call (request, response,
// next) with the request and response of node:http.
export function express(options) {
  const gate = new Gate(options);
  return (request, response, next) => {
    gate.decide(request, request).then((decision) => {
      for (const [name, value] of decision.headers) response.setHeader(name, value);
      if (!decision.body) return next();
      response.statusCode = decision.status;
      response.end(decision.body);
    }).catch(next);
  };
}

// fastify is a plugin for Fastify: app.register(twotier.fastify, options). It limits the requests
// of the instance that registers it, before their bodies are read.
export async function fastify(app, options) {
  const gate = new Gate(options);
  app.addHook("onRequest", async (request, reply) => {
    const decision = await gate.decide(request, request.raw);
    for (const [name, value] of decision.headers) reply.header(name, value);
    if (decision.body) return reply.code(decision.status).send(decision.body);
  });
}
fastify[Symbol.for("skip-override")] = true; // the hook is the registering instance's
fastify[Symbol.for("fastify.display-name")] = "twotier";

// koa returns middleware for Koa.
export function koa(options) {
  const gate = new Gate(options);
  return async (ctx, next) => {
    const decision = await gate.decide(ctx, ctx.req);
    ctx.set(Object.fromEntries(decision.headers));
    if (!decision.body) return next();
    ctx.status = decision.status;
    ctx.body = decision.body;
  };
}

// hono returns middleware for Hono. Only @hono/node-server has the sender's address: elsewhere the
// option key is needed.
export function hono(options) {
  const gate = new Gate(options);
  return async (c, next) => {
    const incoming = c.env?.incoming;
    if (!incoming && !options.key) {
      throw new Error("key is missing: only @hono/node-server has the sender's address");
    }
    const decision = await gate.decide(c, incoming);
    if (decision.body) {
      return new Response(decision.body, { status: decision.status, headers: decision.headers });
    }
    await next();
    for (const [name, value] of decision.headers) c.header(name, value);
  };
}

const details = {
  429: "too many requests for a limit, or for the moment",
  500: "the limits of this request can't be checked",
  503: "no decision about the limits of this request",
};

const known = ["onError", "limits", "rules", "ns", "name", "key", "trustedProxies", "n", "dryRun",
  "url", "token", "tls", "wait", "maxSockets", "onFailure"];

// gates has the limits of the middleware in this process by what identifies its counts: server,
// namespace and name. It compares up to MOST_GATES.
const gates = new Map(), MOST_GATES = 1000;

// warnOfSharing warns if middleware shares its counts with an earlier one that has other limits.
function warnOfSharing({ url, ns, name, limits, rules }) {
  const of = JSON.stringify([url, ns ?? "default", name || ""]);
  const { limits: list = [] } = encoded({ limits });
  const text = JSON.stringify([list.map((l) => JSON.stringify(l)).sort(), rules && [rules].flat()]);
  if (!gates.has(of) && gates.size < MOST_GATES) gates.set(of, text);
  if ((gates.get(of) ?? text) === text) return;
  process.emitWarning(`two limiters with different limits share their counts (namespace ` +
    `${ns ?? "default"}, ${name ? `name ${name}` : "no name"}): give each a name`,
    { code: "TWOTIER_SHARED_COUNTS" });
}

// Gate decides about the requests of one middleware.
class Gate {
  #options;
  #prefix;
  #trusted;
  #asker;

  constructor(options = {}) {
    const { limits, rules, onError, trustedProxies = [] } = options, name = options.name ?? "";
    for (const name of Object.keys(options)) {
      if (!known.includes(name)) throw new TypeError(`${name} is no option of twotier`);
    }
    if (!limits && !rules) throw new TypeError("limits or rules are missing");
    if (onError !== "allow" && onError !== "deny") {
      throw new TypeError('onError is missing: "allow" lets requests pass while no server can be ' +
        'reached, "deny" refuses them with 503');
    }
    if (!/^[A-Za-z0-9._-]{0,64}$/.test(name)) {
      throw new TypeError(`name: ${name} is not up to 64 letters, digits, ".", "-" and "_"`);
    }
    warnOfSharing(options);
    this.#prefix = name && `${name}:`;
    this.#options = { n: 1, onFailure: () => {}, ...options };
    this.#trusted = networks(trustedProxies);
    this.#asker = new Asker(options);
  }

  // decide decides about a request, with incoming as node:http has it. It returns the status, the
  // headers of the answer, and its body if the request does not pass.
  async decide(request, incoming) {
    const { key: keyOf, n, limits, rules, ns, dryRun, onFailure } = this.#options;
    const key = keyOf ? await keyOf(request) : addressKey(incoming.socket.remoteAddress,
      incoming.headers["x-forwarded-for"], this.#trusted);
    if (key == null) return { status: 200, headers: [] };
    const op = encoded({ key: safeKey(`${this.#prefix}${key}`), ns, limits,
      rules: rules && [rules].flat(), n: typeof n === "function" ? await n(request) : n });
    let answer = await this.#asker.ask(JSON.stringify(op));
    if (answer.error) {
      onFailure(answer.error, op.key);
      if (answer.unreachable) answer = { status: this.#options.onError === "allow" ? 200 : 503 };
    }
    return finish(answer, dryRun);
  }
}

// finish completes an answer to a request.
function finish({ status, policy, state, refusal, retryAfter, retryAfterMS }, dryRun) {
  if (dryRun) status = 200;
  const headers = policy ? [["RateLimit-Policy", policy], ["RateLimit", state]] : [];
  if (refusal) headers.push(["Twotier-Refusal", refusal]);
  if (status === 200) return { status, headers };
  if (status === 503 && !retryAfter) [retryAfter, retryAfterMS] = ["1", 1000];
  if (retryAfter) headers.push(["Retry-After", retryAfter]);
  headers.push(["Content-Type", "application/problem+json"]);
  const body = { title: STATUS_CODES[status], status, detail: details[status], id: refusal };
  if (retryAfter) body.retry_after_ms = retryAfterMS;
  return { status, headers, body: Buffer.from(JSON.stringify(body)) };
}
