// Talks to a node with ioredis and node-redis, as their users would: see TestNodeClients.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import Redis from "ioredis";
import { createClient } from "redis";

const { HOST, PORT, TOKEN, CA } = process.env;
const ca = readFileSync(CA);

async function withIORedis() {
  const client = new Redis({
    host: HOST, port: Number(PORT), username: "default", password: TOKEN, tls: { ca },
    connectionName: "from-ioredis",
  });
  const call = (...args) => client.call(...args);
  assert.deepEqual(await call("TT.ACQUIRE", "io", "LIMIT", "30s", "2"), [1, 0, 1, 1]);
  const replies = await client.pipeline()
    .call("TT.ADD", "io", "N", "3").call("TT.COUNT", "io", "30s", "24h")
    .call("TT.ACQUIRE", "io", "LIMIT", "30s", "2").call("TT.ADD", "io", "N", "x").exec();
  assert.deepEqual(replies.slice(0, 3).map(([, reply]) => reply),
    ["OK", [4, 4], [0, 30000, 4, 0]]);
  assert.match(replies[3][0].message, /^ERR n: want 1 to 2147483647/);
  assert.deepEqual(await call("CL.THROTTLE", "io", "15", "30", "60"), [0, 16, 11, -1, 32]);
  const both = await client.multi().call("TT.ACQUIRE", "io", "LIMIT", "30s", "6")
    .call("TT.ACQUIRE", "io", "LIMIT", "30s", "6").exec();
  assert.deepEqual(both, [[null, [1, 0, 6, 0]], [null, [0, 30000, 6, 0]]]);
  await assert.rejects(client.multi().call("TT.ADD", "io").call("TT.ADD", "io", "N", "x").exec(),
    /EXECABORT/);
  assert.deepEqual(await call("TT.COUNT", "io", "30s"), [6]);
  assert.equal(await client.ping(), "PONG");
  assert.equal(await client.client("GETNAME"), "from-ioredis");
  await client.quit();
}

async function withNodeRedis(RESP) {
  const key = `node${RESP}`;
  const client = createClient({
    RESP, username: "default", password: TOKEN, name: "from-node-redis",
    socket: { host: HOST, port: Number(PORT), tls: true, ca },
  });
  client.on("error", (error) => { throw error; });
  await client.connect();
  const call = (...args) => client.sendCommand(args);
  assert.deepEqual(await call("TT.ACQUIRE", key, "LIMIT", "30s", "2"), [1, 0, 1, 1]);
  const replies = await Promise.all([ // node-redis sends as one pipeline what is sent at once
    call("TT.ADD", key, "N", "3"), call("TT.COUNT", key, "30s", "24h"),
    call("TT.ACQUIRE", key, "LIMIT", "30s", "2"),
  ]);
  assert.deepEqual(replies, ["OK", [4, 4], [0, 30000, 4, 0]]);
  await assert.rejects(call("TT.ADD", key, "N", "x"), /ERR n: want 1 to 2147483647/);
  const acquire = ["TT.ACQUIRE", key, "LIMIT", "30s", "5"];
  assert.deepEqual(await client.multi().addCommand(acquire).addCommand(acquire).exec(),
    [[1, 0, 5, 0], [0, 30000, 5, 0]]);
  await assert.rejects(client.multi().addCommand(["TT.ADD", key])
    .addCommand(["TT.ADD", key, "N", "x"]).exec());
  assert.deepEqual(await call("TT.COUNT", key, "30s"), [5]);
  assert.equal(await client.ping(), "PONG");
  await client.close();
}

await withIORedis();
await withNodeRedis(2);
await withNodeRedis(3);
console.log("ok");
