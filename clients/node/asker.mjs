// Asks a server for single decisions, on several connections. It is a part of the middleware.

import http from "node:http";
import https from "node:https";

const mostSilent = 3000; // milliseconds without any answer, after which a server can't be reached
const mostRetry = 60000; // milliseconds that senders are asked to wait for an overloaded server
const mostIdle = 30000; // milliseconds, after which the server may close an idle connection

// Asker sends acquires and tells an overloaded server from one that can't be reached.
export class Asker {
  #request;
  #options;
  #wait;
  #answers = false; // the server has answered since it last was unreachable
  #asked = 0; // the time of the oldest request without an answer, 0 if there is none

  constructor({ url = "127.0.0.1:8080", token, tls = {}, wait = 250, maxSockets = 64 }) {
    const base = new URL(url.includes("://") ? url : `http://${url}`);
    const { Agent, request } = base.protocol === "https:" ? https : http;
    const headers = { "Content-Type": "application/json", "Twotier-Timeout": String(wait) };
    if (token) headers.Authorization = `Bearer ${token}`;
    this.#request = request;
    this.#wait = wait;
    this.#options = { method: "POST", headers, url: new URL("/v1/acquire?deny=429", base),
      agent: new Agent({ ...tls, keepAlive: true, maxSockets, timeout: mostIdle }) };
  }

  // ask sends an acquire. It returns the status for the sender; policy, state and retryAfter, the
  // values of its headers; refusal, its id; error, if there is no decision; and unreachable, if no
  // server is there.
  async ask(op) {
    const began = Date.now();
    this.#asked ||= began;
    for (;;) {
      try {
        const answer = await this.#send(op, began + this.#wait);
        const unreachable = answer.status >= 500 && !isProblem(answer.body);
        if (unreachable) this.#answers = false; // a proxy has answered in the server's place
        else [this.#answers, this.#asked] = [true, 0];
        return decision(answer, unreachable);
      } catch (error) {
        // The server has closed an idle connection, hardly after it has counted.
        if (error.stale) continue;
        if (error.name !== "TimeoutError") this.#answers = false;
        if (this.#answers && Date.now() - this.#asked < mostSilent) {
          return { status: 429, retryAfter: "1", retryAfterMS: 1000, error };
        }
        return { error, unreachable: true };
      }
    }
  }

  #send(op, deadline) {
    const { url, ...options } = this.#options;
    return new Promise((resolve, reject) => {
      const signal = AbortSignal.timeout(Math.max(1, deadline - Date.now()));
      const fail = (error) => {
        error.stale = request.reusedSocket && ["ECONNRESET", "EPIPE"].includes(error.code);
        reject(signal.aborted ? signal.reason : error);
      };
      const request = this.#request(url, { ...options, signal }, (response) => {
        const parts = [];
        response.on("data", (part) => parts.push(part));
        response.on("error", fail);
        response.on("end", () => {
          const text = Buffer.concat(parts).toString();
          resolve({ status: response.statusCode, headers: response.headers, body: parsed(text) });
        });
      });
      request.on("error", fail);
      request.end(op);
    });
  }
}

// parsed returns a JSON object, or an empty one in place of a proxy's page.
function parsed(text) {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}

const isProblem = (body) => `${body.type}`.startsWith("urn:twotier:problem:");

// decision returns what a server's answer means for the sender of a request.
function decision({ status, headers, body }, unreachable) {
  if (typeof body.allowed === "boolean") {
    return { status, policy: headers["ratelimit-policy"], state: headers.ratelimit,
      refusal: body.id, retryAfter: headers["retry-after"],
      retryAfterMS: Math.max(1, body.retry_after_ms) };
  }
  const detail = body.detail ?? body.title;
  const error = new Error(detail ?? `status ${status} without a problem; is that twotier?`);
  if (unreachable) return { error, unreachable };
  if (status !== 429 && status !== 408 && status < 500) return { status: 500, error };
  const retryAfterMS = Math.min(body.retry_after_ms || 1000, mostRetry);
  return { status: status === 429 ? 429 : 503, error, retryAfterMS,
    retryAfter: String(Math.ceil(retryAfterMS / 1000)) };
}
