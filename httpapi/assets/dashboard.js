"use strict";
// Everything that comes from the server is put on the page as text or as a number in an SVG attribute, never as HTML:
// keys are chosen by whoever sends traffic.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const PERIOD = 1000;
const KEPT = 120;

const state = { rates: [], pending: [], last: null, members: new Map(), colours: new Map(), topWindow: "1m", seriesWindow: "1h", key: null };

function element(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

function shape(tag, attributes, text) {
  const e = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

const number = new Intl.NumberFormat("en");
const brief = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const figure = (n) => (Math.abs(n) >= 1e5 ? brief : number).format(n);

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)) + " " + units[i];
}

function facts(id, rows) {
  // A value that does not fit beside its name moves to a line of its own.
  const row = ([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, String(value)));
  $(id).replaceChildren(...rows.map(row));
}

function badge(id, text, kind) {
  $(id).textContent = text;
  $(id).className = "badge " + kind;
}

// The token is kept for this tab only, and sent in a header: no other page can have the browser send it.
const TOKEN = "twotier-token";

function askForToken(detail) {
  $("login").hidden = false;
  $("login-error").textContent = sessionStorage.getItem(TOKEN) ? detail : "";
  badge("state", "a token is needed", "warn");
}

async function get(path) {
  const token = sessionStorage.getItem(TOKEN);
  const response = await fetch(path, { cache: "no-store", headers: token ? { Authorization: "Bearer " + token } : {} });
  if (response.ok) return response;
  let detail = response.status + " " + response.statusText;
  try { detail = (await response.json()).detail; } catch { /* the status line has to do */ }
  const error = new Error(detail);
  error.unauthorized = response.status === 401 || response.status === 403;
  throw error;
}

// metrics reads the Prometheus text format into a map from name to a list of labels and values.
function metrics(text) {
  const all = new Map();
  for (const line of text.split("\n")) {
    const m = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!m) continue;
    const labels = {};
    for (const l of (m[2] || "").matchAll(/([a-z]+)="([^"]*)"/g)) labels[l[1]] = l[2];
    if (!all.has(m[1])) all.set(m[1], []);
    all.get(m[1]).push({ labels, value: Number(m[3]) });
  }
  return all;
}

const sum = (all, name, has = () => true) => (all.get(name) || []).filter((s) => has(s.labels)).reduce((n, s) => n + s.value, 0);

function spark(at, values, height, width = 600, kept = KEPT) {
  values = values.slice(-kept);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", height: height, "aria-hidden": "true" });
  const top = Math.max(1, ...values) * 1.08;
  const x = (i) => width - (values.length - 1 - i) * (width / (kept - 1));
  const y = (v) => height - 1 - (v / top) * (height - 3);
  const points = values.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`);
  svg.append(shape("line", { class: "axis", x1: 0, x2: width, y1: height - .5, y2: height - .5 }));
  if (points.length > 1) {
    svg.append(shape("polygon", { class: "area", points: `${x(0)},${height} ${points.join(" ")} ${width},${height}` }));
    svg.append(shape("polyline", { class: "line", points: points.join(" ") }));
  }
  at.replaceChildren(svg);
}

function push(list, value) {
  list.push(value);
  if (list.length > KEPT) list.shift();
}

const perSecond = (a, b, ms) => Math.max(0, Math.round((a - b) / (ms / 1000)));

function showMetrics(all, now) {
  const byOp = {};
  for (const s of all.get("twotier_ops_total") || []) byOp[s.labels.op] = (byOp[s.labels.op] || 0) + s.value;
  const batches = sum(all, "twotier_flush_batches_total", (l) => l.result === "ok");
  const trips = sum(all, "twotier_redis_roundtrips_total");
  const pending = sum(all, "twotier_pending_buckets");
  push(state.pending, pending);
  $("pending").textContent = figure(pending);
  spark($("pending-spark"), state.pending, 34);
  const before = state.last;
  state.last = { byOp, batches, trips, now };
  if (!before) return;
  const per = (a, b) => perSecond(a, b || 0, now - before.now);
  const total = Object.keys(byOp).reduce((n, op) => n + per(byOp[op], before.byOp[op]), 0);
  push(state.rates, total);
  $("rate").textContent = figure(total);
  spark($("spark"), state.rates, 84);
  $("mix").replaceChildren(...Object.keys(byOp).sort().map((op) =>
    element("li", {}, op + " ", element("b", {}, figure(per(byOp[op], before.byOp[op]))))));
  const lag = sum(all, "twotier_max_lag_seconds"), waiting = sum(all, "twotier_lag_waiting");
  facts("flush", [
    ["oldest", sum(all, "twotier_unflushed_age_seconds").toFixed(1) + " s" + (lag ? " of " + lag + " s" : "")],
    ...(waiting ? [["writes waiting", figure(waiting)]] : []),
    ["batches/s", figure(per(batches, before.batches))],
    ["dropped", figure(sum(all, "twotier_dropped_total"))],
  ]);
  state.tripRate = per(trips, before.trips);
  state.evicted = sum(all, "twotier_evictions_total");
}

function showState(c) {
  const silent = c.members.filter((m) => m.state === "suspect").map((m) => m.id);
  if (!c.redis.up) badge("state", "degraded: Redis can't be reached", "bad");
  else if (silent.length) badge("state", (silent.length > 3 ? silent.length + " members do" : silent.join(", ") + (silent.length > 1 ? " do" : " does")) + " not answer", "warn");
  else badge("state", "healthy", "good");
}

function showStore(redis, offset) {
  const embedded = redis.kind === "embedded";
  $("store").textContent = embedded ? "Store" : "Redis";
  $("redis-state").textContent = embedded ? "In memory" : redis.up ? "Up" : "Down";
  facts("redis", embedded ? [["nothing outlives the process", ""]] : [
    ["store", redis.kind],
    ...(redis.address ? [["address", redis.address]] : []),
    ["round trip", !redis.rtt_us ? "-" : redis.rtt_us >= 1000 ? (redis.rtt_us / 1000).toFixed(1) + " ms" : redis.rtt_us + " µs"],
    ["exchanges a second", figure(state.tripRate || 0)],
    ["clock offset", offset + " ms"],
    ...(redis.error ? [["error", redis.error]] : []),
  ]);
}

function showMemory(c) {
  $("memory").textContent = bytes(c.memory_bytes);
  const used = c.max_memory_bytes ? Math.min(1, c.memory_bytes / c.max_memory_bytes) : 0;
  $("memory-bar").style.width = (used * 100).toFixed(1) + "%";
  facts("memory-facts", [
    ["keys", figure(c.keys)],
    ["bound", c.max_memory_bytes ? bytes(c.max_memory_bytes) : "none"],
    ["evicted", figure(state.evicted || 0)],
  ]);
}

// colour is the class of a member's colour, of which there are eight. It keeps the one that it had first.
function colour(m) {
  if (!state.colours.has(m.id)) state.colours.set(m.id, state.colours.size % 8);
  return "m" + state.colours.get(m.id);
}

function showShares(members) {
  const svg = shape("svg", { viewBox: "0 0 1000 16", preserveAspectRatio: "none", "aria-hidden": "true" });
  let x = 0;
  for (const m of members) {
    const rect = shape("rect", { class: colour(m), x: (x * 1000).toFixed(1), width: Math.max(0, m.share * 1000 - (members.length > 1 ? 2 : 0)).toFixed(1), height: 16 });
    rect.append(shape("title", {}, `${m.id}: ${number.format(m.partitions)} partitions, ${(m.share * 100).toFixed(1)} %`));
    svg.append(rect);
    x += m.share;
  }
  $("shares").replaceChildren(svg);
}

// rates compares what a member says of itself with what it said before.
function rates(m, now) {
  const s = m.status, id = m.id + " " + m.started;
  const known = state.members.get(id) || { rates: [], now: 0 };
  state.members.set(id, known);
  known.seen = now;
  const before = known.before;
  known.before = s && { ops: s.ops_total, forwarded: s.forwarded_total, served: s.served_total, now };
  if (!s || !before || now - before.now > 5 * PERIOD) return { history: known.rates };
  const ops = s.ops_total - before.ops;
  const traffic = perSecond(s.ops_total, before.ops, now - before.now);
  push(known.rates, traffic);
  return {
    history: known.rates, traffic, served: perSecond(s.served_total, before.served, now - before.now),
    forwarded: ops > 0 ? Math.round(((s.forwarded_total - before.forwarded) / ops) * 100) + " %" : "–",
  };
}

function moving(s) {
  const from = s.outgoing + s.moving;
  return [...(s.incoming ? ["+" + figure(s.incoming)] : []), ...(from ? ["−" + figure(from)] : [])].join(" ") || "–";
}

function memberRow(m, c, now) {
  const s = m.status, r = rates(m, now), unknown = "?";
  const cell = (label, kind, ...content) => element("td", { "data-label": label, class: kind }, ...content);
  const link = element("a", { href: location.protocol + "//" + m.address + "/", title: m.address }, m.id);
  const states = [element("span", { class: "badge " + ({ alive: "good", suspect: "bad" }[m.state] || "warn") }, m.state)];
  const mode = s ? s.mode : m.mode;
  if (mode && mode !== c.mode) states.push(element("span", { class: "badge warn" }, mode));
  if (s && s.ring_version !== c.ring_version) states.push(element("span", { class: "badge warn" }, "sees other members"));
  if (s && !s.redis_up) states.push(element("span", { class: "badge bad" }, "its store is down"));
  const line = element("span", { class: "plot inline" });
  spark(line, r.history, 22, 120, KEPT / 4);
  return element("tr", {},
    cell("Member", "who", element("span", { class: "swatch " + colour(m) }), link, element("small", {}, m.address + (m.self ? ", this node" : ""))),
    cell("State", "states", ...states),
    cell("Partitions", "num", number.format(m.partitions), element("small", {}, ` ${(m.share * 100).toFixed(1)} %`)),
    cell("Moving", "num", s ? moving(s) : unknown),
    cell("Traffic", "traffic", element("b", {}, r.traffic === undefined ? "–" : figure(r.traffic)), line),
    cell("Forwarded", "num", r.forwarded || "–"),
    cell("For others", "num", r.served === undefined ? "–" : figure(r.served)),
    cell("Pending", "num", s ? figure(s.pending_buckets) : unknown));
}

function showCluster(c, now) {
  badge("mode", c.mode, "");
  showState(c);
  showStore(c.redis, c.clock_offset_ms);
  showMemory(c);
  const count = c.members.length;
  const under = c.members.reduce((n, m) => n + (m.status ? m.status.incoming : 0), 0);
  $("ring").textContent = `${count} ${count === 1 ? "member" : "members"}, ${number.format(c.partitions)} partitions` + (under ? `, ${figure(under)} on their way to another` : "");
  $("ring").title = "ring version " + c.ring_version;
  document.body.classList.toggle("many", count > 1);
  showShares(c.members);
  const focused = document.activeElement && document.activeElement.closest && document.activeElement.closest("#members a") && document.activeElement.textContent;
  $("members").replaceChildren(...c.members.map((m) => memberRow(m, c, now)));
  if (focused) for (const a of $("members").querySelectorAll("a")) if (a.textContent === focused) a.focus();
  for (const [id, known] of state.members) if (known.seen !== now) state.members.delete(id);
}

// showTop shows the rows of a list: of the busiest keys, or of those that refused most.
function showTop(list, keys) {
  $(list + "-empty").hidden = keys.length > 0;
  const most = Math.max(1, ...keys.map((k) => k.count));
  const active = document.activeElement;
  const focused = active && $(list).contains(active) && active.dataset.at;
  $(list).replaceChildren(...keys.map((k, i) => {
    const svg = shape("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    svg.append(shape("rect", { width: Math.max(0, (k.count / most) * 100), height: 10, rx: .8 }));
    const name = element("span", { class: "name" });
    if (k.ns !== "default") name.append(element("span", { class: "ns" }, k.ns + " / "));
    name.append(k.key);
    const button = element("button", { type: "button", title: k.key, "data-at": i }, svg, name, element("span", { class: "n" }, figure(k.count)));
    button.addEventListener("click", () => lookup(k.ns, k.key));
    return element("li", {}, button);
  }));
  if (focused) { const again = $(list).querySelector(`[data-at="${Number(focused)}"]`); if (again) again.focus(); }
}

function time(ms, window) {
  const seconds = window === "1m" ? { second: "2-digit" } : {};
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...seconds });
}

function showSeries(s) {
  const width = 640, height = 190, left = 40, bottom = 20, right = 4, top = 8;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Count per bucket" });
  const most = Math.max(1, ...s.points.map((p) => p[1]));
  const y = (v) => height - bottom - (v / most) * (height - bottom - top);
  for (const v of new Set([0, Math.round(most / 2), most])) {
    svg.append(shape("line", { class: "axis", x1: left, x2: width - right, y1: y(v), y2: y(v) }));
    svg.append(shape("text", { class: "tick", x: left - 6, y: y(v) + 4, "text-anchor": "end" }, figure(v)));
  }
  if (s.points.length) {
    const from = s.points[0][0], to = s.points[s.points.length - 1][0] + s.bucket_ms;
    const x = (t) => left + ((t - from) / (to - from)) * (width - left - right);
    const gap = Math.min(1, (x(from + s.bucket_ms) - left) * .2);
    for (const [start, count] of s.points) {
      if (count <= 0) continue;
      const bar = shape("rect", { class: "bar", x: x(start) + gap / 2, y: y(count), width: x(start + s.bucket_ms) - x(start) - gap, height: height - bottom - y(count), rx: 1 });
      bar.append(shape("title", {}, `${time(start, state.seriesWindow)}: ${number.format(count)}`));
      svg.append(bar);
    }
    for (let i = 0; i <= 4; i++) {
      const t = from + ((to - from) * i) / 4;
      svg.append(shape("text", { class: "tick", x: x(t), y: height - 4, "text-anchor": ["start", "middle", "middle", "middle", "end"][i] }, time(t, state.seriesWindow)));
    }
  }
  $("series").replaceChildren(svg);
}

function showCounts(c) {
  $("counts").replaceChildren(...c.counts.map((w) => element("div", { class: "count" },
    element("p", { class: "w" }, "last " + w.window), element("p", { class: "figure" }, figure(w.count)),
    element("p", { class: "range" }, w.min === w.max ? "exact" : `between ${figure(w.min)} and ${figure(w.max)}`))));
}

async function refreshKey() {
  const asked = state.key;
  if (!asked) return;
  const query = new URLSearchParams(asked);
  try {
    const [counts, series] = await Promise.all([
      get(`/v1/count?${query}&window=1m,1h,24h`).then((r) => r.json()),
      get(`/v1/series?${query}&window=${state.seriesWindow}`).then((r) => r.json()),
    ]);
    if (state.key !== asked) return;
    showCounts(counts);
    showSeries(series);
    $("found").hidden = false;
    $("lookup-error").hidden = true;
  } catch (e) {
    if (state.key !== asked) return;
    $("found").hidden = true;
    $("lookup-error").hidden = false;
    $("lookup-error").textContent = e.message;
  }
}

function lookup(ns, key) {
  $("ns").value = ns;
  $("key").value = key;
  $("lookup-empty").hidden = true;
  state.key = { ns: ns || "default", key };
  history.replaceState(null, "", "#" + new URLSearchParams(state.key));
  refreshKey();
}

function tabs(id, changed) {
  for (const button of $(id).querySelectorAll("button")) {
    button.addEventListener("click", () => {
      for (const b of $(id).querySelectorAll("button")) b.setAttribute("aria-pressed", String(b === button));
      changed(button.dataset.window);
    });
  }
}

const list = (id, query) => get(`/v1/top?${query}&window=${state.topWindow}`).then((r) => r.json()).then((t) => showTop(id, t.keys));
const refreshTop = () => Promise.all([list("top", "n=12"), list("refused", "n=5&by=refused")]);

async function refresh() {
  try {
    const text = await get("/metrics").then((r) => r.text());
    showMetrics(metrics(text), performance.now());
    const cluster = await get("/v1/cluster?nodes=true").then((r) => r.json());
    showCluster(cluster, performance.now());
    $("clock").textContent = "updated " + new Date().toLocaleTimeString();
    $("login").hidden = true;
  } catch (e) {
    state.last = null;
    if (e.unauthorized) return askForToken(e.message);
    badge("state", e instanceof TypeError ? "this node can't be reached" : e.message, "bad");
  }
  await refreshTop().catch(() => {}); // degraded: the rest of the page says so
  await refreshKey();
}

async function run() {
  if (!document.hidden) await refresh();
  setTimeout(run, PERIOD);
}

// showRaw shows what a link of the footer leads to: following it would send no token. It is left alone
// where none is needed.
async function showRaw(e) {
  if (e.ctrlKey || e.metaKey || e.shiftKey || !sessionStorage.getItem(TOKEN) && $("login").hidden) return;
  e.preventDefault();
  const path = e.currentTarget.getAttribute("href");
  try {
    const response = await get(path);
    const json = response.headers.get("Content-Type").startsWith("application/json");
    $("raw-text").textContent = json ? JSON.stringify(await response.json(), null, 2) : await response.text();
    $("raw-title").textContent = path;
    $("raw").showModal();
  } catch (e) {
    if (!e.unauthorized) return badge("state", e instanceof TypeError ? "this node can't be reached" : e.message, "bad");
    askForToken(e.message);
    $("token").focus();
  }
}

for (const link of $("links").querySelectorAll("a[data-guarded]")) link.addEventListener("click", showRaw);
$("raw-close").addEventListener("click", () => $("raw").close());
$("login").addEventListener("submit", (e) => {
  e.preventDefault();
  sessionStorage.setItem(TOKEN, $("token").value.trim());
  $("token").value = "";
  refresh();
});
tabs("top-window", (w) => { state.topWindow = w; refreshTop().catch(() => {}); });
tabs("series-window", (w) => { state.seriesWindow = w; refreshKey(); });
$("lookup").addEventListener("submit", (e) => { e.preventDefault(); lookup($("ns").value.trim() || "default", $("key").value); });
const linked = new URLSearchParams(location.hash.slice(1));
if (linked.get("key")) lookup(linked.get("ns") || "default", linked.get("key"));
document.addEventListener("visibilitychange", () => { state.last = null; state.members.clear(); });
run();
