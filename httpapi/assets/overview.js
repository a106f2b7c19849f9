// What the cluster does now: decisions, latency, lag, Redis, memory.
import { $, badge, bytes, facts, figure, meter, read, seconds, show, tabs, write } from "./page.js";
import { Chart, spark } from "./chart.js";

const VERDICTS = [
  ["allowed", "allowed", "allowed"],
  ["refused", "refused", "refused"],
  ["shadow_refused", "refused in shadow", "shadow"],
];
// How long a picture of a window is good for, in milliseconds.
const LASTS = { "1m": 0, "1h": 5000, "24h": 30000 };

const state = { window: "1h", drawn: 0, drawnOf: "", latency: [], p99: [] };
let chart;

// history reads what was decided over a window, from the counts of the cluster.
const history = (window) =>
  Promise.all(
    VERDICTS.map(([verdict]) =>
      read(`/v1/series?ns=@verdicts&key=@all/${verdict}&window=${window}`),
    ),
  );

// rate is the average over the last ten seconds that are complete: what nodes decided is added to
// the history every second.
function rate(series) {
  const points = series.points.slice(0, -2).slice(-10);
  if (!points.length) return 0;
  return points.reduce((n, p) => n + p[1], 0) / ((points.length * series.bucket_ms) / 1000);
}

// rateOf returns the rate in a bucket that began at start. In the bucket that contains now, by the
// clock of the servers, it is the rate so far, or null until a part of it has passed. Nodes add to
// the history every second.
function rateOf(count, start, bucket, now) {
  const passed = now - 1000 - start;
  if (passed > bucket) return count / (bucket / 1000);
  return passed < Math.max(2000, bucket / 20) ? null : count / (passed / 1000);
}

// draw shows the series at a time of the servers. Each was read by itself: one may begin a bucket
// later than another.
function draw(series, now) {
  const [first] = series,
    bucket = first.bucket_ms;
  if (!first.points.length) return;
  const from = first.points[0][0];
  chart.show({
    from,
    to: from + first.points.length * bucket,
    bucket,
    series: series.map((s, i) => {
      const counts = new Map(s.points);
      return {
        name: VERDICTS[i][1],
        kind: VERDICTS[i][2],
        values: first.points.map(([start]) =>
          counts.has(start) ? rateOf(counts.get(start), start, bucket, now) : null,
        ),
      };
    }),
  });
}

// showNote greys the decisions while they can't be read, and shows the reason.
function showNote(reason) {
  show("decisions-note", reason);
  $("decisions").closest("article").classList.toggle("stale", Boolean(reason));
}

// refreshDecisions shows the rates, and the picture unless it is still good.
export async function refreshDecisions(now) {
  try {
    const minute = await history("1m");
    VERDICTS.forEach(([, , id], i) => write($("rate-" + id), figure(rate(minute[i]))));
    const window = state.window;
    if (state.drawnOf !== window || now - state.drawn >= LASTS[window]) {
      const [{ points, bucket_ms }] = minute; // the last bucket is the present one
      draw(window === "1m" ? minute : await history(window), points.at(-1)[0] + bucket_ms);
      state.drawn = now;
      state.drawnOf = window;
    }
    showNote("");
  } catch (e) {
    if (e.unauthorized || e.lost) throw e;
    showNote("The figures are old, because the history can't be read: " + e.message);
  }
}

// quantile reads a histogram: how long the fastest share q of its decisions took at most.
function quantile(bounds, counts, q) {
  const all = counts.reduce((n, c) => n + c, 0);
  if (!all) return null;
  let before = 0;
  for (let i = 0; i < bounds.length; i++) {
    if (before + counts[i] >= q * all) {
      const from = i ? bounds[i - 1] : 0;
      return from + (bounds[i] - from) * ((q * all - before) / counts[i]);
    }
    before += counts[i];
  }
  return Infinity;
}

// total adds up the histograms of all members.
function total(members) {
  const all = members.map((m) => m.status && m.status.latency).filter(Boolean);
  if (!all.length) return null;
  return {
    bounds: all[0].bounds,
    who: members.map((m) => m.id + m.started + Boolean(m.status)).join(),
    counts: all[0].bounds.concat(0).map((_, i) => all.reduce((n, l) => n + l.counts[i], 0)),
  };
}

const MINUTE = 60;

// showLatency shows what has changed within a minute, or since the start if nobody has looked for
// so long.
function showLatency(members) {
  const now = total(members);
  if (!now) return;
  state.latency = state.latency.filter((l) => l.who === now.who);
  const before = state.latency[0];
  state.latency.push(now);
  if (state.latency.length > MINUTE) state.latency.shift();
  let counts = before ? now.counts.map((c, i) => c - before.counts[i]) : now.counts;
  const fresh = before && counts.some((c) => c > 0);
  if (!fresh) counts = now.counts;
  const text = (s) => (s === null ? "–" : s === Infinity ? "> 2.5 s" : seconds(s));
  const p99 = quantile(now.bounds, counts, 0.99);
  write($("p50"), text(quantile(now.bounds, counts, 0.5)));
  write($("p99"), text(p99));
  write(
    $("latency-span"),
    fresh
      ? `p99 in the last ${state.latency.length - 1} s, all members`
      : "since the members have started",
  );
  if (fresh && p99 !== Infinity) {
    state.p99.push(p99);
    if (state.p99.length > 120) state.p99.shift();
    spark($("latency-spark"), state.p99, 34, 300, 60);
  }
}

function showLag(c) {
  const all = c.members.map((m) => m.status).filter(Boolean);
  const age = Math.max(0, ...all.map((s) => s.unflushed_age_ms)) / 1000;
  const bound = Math.max(0, ...all.map((s) => s.max_lag_ms)) / 1000;
  const sum = (name) => all.reduce((n, s) => n + s[name], 0);
  write($("lag"), seconds(age));
  write($("lag-bound"), bound ? "of " + seconds(bound) : "no --max-lag");
  meter(
    "lag-meter",
    bound ? age / bound : 0,
    `${seconds(age)}${bound ? " of " + seconds(bound) : ""}`,
  );
  facts("flush", [
    ["buckets to flush", figure(sum("pending_buckets"))],
    ["writes waiting", figure(sum("waiting"))],
    ["refused for it", figure(sum("behind_total"))],
  ]);
}

function showStore(c) {
  const redis = c.redis,
    embedded = redis.kind === "embedded";
  const down = c.members.filter((m) => m.status && !m.status.redis_up).map((m) => m.id);
  write($("store"), embedded ? "Store" : "Redis");
  write($("redis-state"), embedded ? "In memory" : redis.up ? "Up" : "Down");
  $("redis-state").className = redis.up ? "" : "alarm";
  facts(
    "redis",
    embedded
      ? [["nothing outlives the process", ""]]
      : [
          ...(redis.error ? [["error", redis.error]] : []),
          ...(down.length ? [["down for", down.join(", ")]] : []),
          ["store", redis.kind],
          ...(redis.address ? [["address", redis.address]] : []),
          ["round trip", redis.up && redis.rtt_us ? seconds(redis.rtt_us / 1e6) : "–"],
          ["clock offset", redis.up ? c.clock_offset_ms + " ms" : "–"],
          ...(c.clock_doubt ? [["clock", c.clock_doubt]] : []),
        ],
  );
}

function showMemory(c) {
  const of = c.max_memory_bytes;
  write($("memory"), bytes(c.memory_bytes));
  meter(
    "memory-meter",
    of ? c.memory_bytes / of : 0,
    bytes(c.memory_bytes) + (of ? " of " + bytes(of) : ""),
  );
  facts("memory-facts", [
    ["keys", figure(c.keys)],
    ["bound", of ? bytes(of) : "none"],
  ]);
}

// named lists IDs with a verb for one and for several, unless there are none.
function named(ids, one, several) {
  if (!ids.length) return [];
  const list = ids.length > 3 ? ids.length + " members" : ids.join(", ");
  return [`${list} ${ids.length > 1 ? several : one}`];
}

// showState shows the condition of the cluster. missing are the IDs of members that have crashed.
function showState(c, missing) {
  const silent = c.members.filter((m) => m.state === "suspect").map((m) => m.id);
  const all = c.members.length + missing.length;
  const lacking = [
    ...named(silent, "does not answer", "do not answer"),
    ...named(missing, "is missing", "are missing"),
  ].join(", ");
  badge("mode", c.mode, "");
  if (!c.redis.up) badge("state", "degraded: Redis can't be reached", "bad");
  else if (c.clock_doubt) badge("state", "degraded: the time is in doubt", "warn");
  else if (lacking)
    badge("state", `${all - silent.length - missing.length} of ${all} nodes: ${lacking}`, "warn");
  else badge("state", "healthy", "good");
}

export function showOverview(c, missing) {
  showState(c, missing);
  showLatency(c.members);
  showLag(c);
  showStore(c);
  showMemory(c);
}

export function openOverview(failed) {
  chart = new Chart($("decisions"), "Decisions a second", 150, "/s");
  tabs("decisions-window", (w) => {
    state.window = w;
    refreshDecisions(performance.now()).catch(failed);
  });
}
