// A server whose requests express-rate-limit limits, with its counts in Redis.
import express from "express";
import { rateLimit } from "express-rate-limit";
import { Redis } from "ioredis";
import { RedisStore } from "rate-limit-redis";

const [redis, windowMs, limit] = process.argv.slice(2);
const client = new Redis(redis);
const app = express();
app.use(
  rateLimit({
    windowMs: Number(windowMs),
    limit: Number(limit),
    standardHeaders: "draft-6",
    store: new RedisStore({ sendCommand: (...args) => client.call(...args) }),
  }),
);
app.get("/", (_, response) => response.send("hello"));
const server = app.listen(0, "127.0.0.1", () => console.log(server.address().port));
