// Tests the client in the processes of a cluster and in their threads, against the server at
// TWOTIER. Each of them evaluates this file, and so makes a client.

import assert from "node:assert/strict";
import cluster from "node:cluster";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { Worker, isMainThread, parentPort, threadId } from "node:worker_threads";
import { express } from "./middleware.mjs";
import { Twotier } from "./twotier.mjs";

const processes = 3;
const tt = new Twotier(process.env.TWOTIER, { timeout: 20000 });
const passes = async (key) => (await tt.acquire({ key, limits: { "1h": 1 } })).allowed;

const limit = express({ url: process.env.TWOTIER, wait: 20000, onError: "deny",
  limits: { "1h": 1 }, key: (request) => request.url });

if (!isMainThread) {
  parentPort.on("message", async ({ key, port }) =>
    port.postMessage({ allowed: await passes(key), by: threadId }));
} else if (cluster.isWorker) {
  serve();
} else {
  test("processes and threads", checkCluster);
}

// serve answers every second request in a thread, and those below /limited by middleware. A path
// passes once.
async function serve() {
  await tt.add({ key: "js before the thread" });
  const thread = new Worker(new URL(import.meta.url));
  let requests = 0;
  createServer(async (request, response) => {
    if (request.url.startsWith("/limited/")) {
      response.setHeader("By", `${process.pid} middleware`);
      return limit(request, response, () => response.end());
    }
    let answer;
    if (requests++ % 2 === 0) {
      answer = { allowed: await passes(request.url), by: threadId };
    } else {
      const { port1, port2: port } = new MessageChannel();
      thread.postMessage({ key: request.url, port }, [port]);
      [answer] = await once(port1, "message");
      port1.close();
    }
    response.setHeader("By", `${process.pid} ${answer.by}`);
    response.writeHead(answer.allowed ? 200 : 429).end();
  }).listen(0, "127.0.0.1");
}

async function checkCluster() {
  await tt.add({ key: "js before the fork" });
  after(() => {
    tt.close();
    for (const worker of Object.values(cluster.workers)) worker.process.kill("SIGKILL");
  });
  const workers = Array.from({ length: processes }, () => cluster.fork());
  const listening = await Promise.all(workers.map((worker) => once(worker, "listening")));
  const [[{ port }]] = listening;
  const by = new Set();
  for (let i = 0; i < 50; i++) {
    const path = i % 2 ? `/limited/${i}` : `/js-cluster/${i}`;
    const asked = Array.from({ length: 4 * processes }, async () => {
      const response = await fetch(`http://127.0.0.1:${port}${path}`);
      await response.arrayBuffer();
      by.add(response.headers.get("By"));
      return response.status;
    });
    const passed = (await Promise.all(asked)).filter((status) => status === 200);
    assert.equal(passed.length, 1, path);
  }
  assert.equal(by.size, 3 * processes); // all processes, threads and middleware have answered
}
