// What is known of a key.
import {
  $,
  clock,
  element,
  figure,
  limitParts,
  limitsIn,
  long,
  milliseconds,
  number,
  read,
  show,
  sync,
  write,
} from "./page.js";
import { Chart } from "./chart.js";
import { rulesOf } from "./rules.js";

const state = { key: null, seriesWindow: "1h", drawn: null };
let chart;

// limitsOf returns the limits of the rules of a namespace for a key, as the server chooses them.
function limitsOf(rules, key) {
  return rules.flatMap((r) => {
    const over = (r.overrides || [])
      .filter((o) => o.limits && (o.key === key || (o.prefix && key.startsWith(o.prefix))))
      .sort(
        (a, b) =>
          (b.key === key) - (a.key === key) || (b.prefix || "").length - (a.prefix || "").length,
      )[0];
    const own = limitsIn(r).map(limitParts);
    // An override has windows only: what is open stays limited as in the rule.
    const limits = over
      ? [...limitsIn(over).map(limitParts), ...own.filter((limit) => limit.open)]
      : own;
    return limits.map((limit) => ({ rule: r.name, state: r.state || "on", ...limit }));
  });
}

const PLAIN = ["1m", "1h", "24h"];

// windowsOf returns what to show of a key: each limit with its window, the usual windows, and the one
// that is drawn.
function windowsOf(limits, drawn) {
  const known = new Set(limits.map((l) => l.window));
  const others = new Set([...PLAIN, drawn]);
  return [...limits, ...[...others].filter((w) => !known.has(w)).map((window) => ({ window }))];
}

function countRow(l) {
  const id = `${l.rule || ""} ${l.max} ${l.window}`;
  const row = element(
    "tr",
    {},
    element("th", { scope: "row" }, l.rule || "no limit"),
    element("td", {}, l.window),
    element("td", { class: "num" }),
    element("td", { class: "num" }, l.rule ? number.format(l.max) : "–"),
    element("td", { class: "num" }),
    element("td", {}),
  );
  if (l.state && l.state !== "on")
    row.firstChild.append(" ", element("span", { class: "badge warn" }, l.state));
  if (l.rule && !l.open) {
    const box = element("input", {
      type: "radio",
      name: "drawn",
      "aria-label": `draw ${l.rule} ${l.max}/${l.window}`,
    });
    box.addEventListener("change", () => {
      state.drawn = id;
      refreshKey();
    });
    row.lastChild.append(box);
  }
  return row;
}

function showCounts(rows, counts, { open }) {
  const by = new Map(counts.map((c) => [c.window, c]));
  const held = { count: open, min: open, max: open };
  const each = rows.map((l) => ({ ...l, c: l.open ? held : by.get(l.window) }));
  // Unless somebody has chosen one, the limit is drawn that is nearest to being reached, of a rule
  // that is on if there is one.
  const limits = each.filter((l) => l.rule && !l.open);
  let drawn = limits.find((l) => `${l.rule} ${l.max} ${l.window}` === state.drawn);
  const near = (l) => (l.c ? l.c.count / (l.max || 0.5) : 0);
  if (!drawn) {
    drawn = limits.sort((a, b) => (b.state === "on") - (a.state === "on") || near(b) - near(a))[0];
  }
  sync(
    $("counts"),
    each,
    (l) => `${state.key.ns} ${state.key.key} ${l.rule || ""} ${l.state} ${l.max} ${l.window}`,
    countRow,
    (row, l) => {
      const [, , count, , left, at] = row.children,
        c = l.c;
      write(
        count,
        c
          ? figure(c.count) + (c.min === c.max ? "" : ` (${figure(c.min)} to ${figure(c.max)})`)
          : "–",
      );
      write(left, c && l.rule ? figure(Math.max(0, l.max - c.count)) : "–");
      row.classList.toggle("over", Boolean(c && l.rule && c.count >= l.max));
      if (at.firstChild) at.firstChild.checked = l === drawn;
    },
  );
  return drawn;
}

// showHolds says how many holds of the key are open, if any are.
function showHolds({ open, next_end_ms: next }) {
  const end = next ? `, the next ends in ${long(next)}` : "";
  show("open-holds", open ? `Open holds: ${number.format(open)}${end}.` : "");
}

// rolling returns how many there were in the window before the end of each bucket.
function rolling(values, n) {
  let sum = 0;
  return values.map((v, i) => {
    sum += v - (i >= n ? values[i - n] : 0);
    return i >= n - 1 ? sum : null;
  });
}

// showSeries draws the buckets, and what counts against a limit beside it.
function showSeries(s, drawn) {
  const values = s.points.map((p) => p[1]);
  if (!values.length) return;
  const from = s.points[0][0],
    to = from + values.length * s.bucket_ms;
  const series = [{ name: "count", kind: "count", bars: true, values }],
    limits = [];
  let note = `Bars: one for each ${bucketText(s.bucket_ms)}.`;
  if (drawn) {
    const n = milliseconds(drawn.window) / s.bucket_ms,
      text = `${drawn.rule} ${drawn.max}/${drawn.window}`;
    if (n === 0) note += ` The count of ${text} begins anew with each period.`;
    else if (n < 1)
      note += ` The window of ${text} is shorter than a bar; look at less to see it drawn.`;
    else if (n > values.length)
      note += ` The window of ${text} is longer than what is shown; look at more to see it drawn.`;
    else {
      series.push({
        name: "in " + drawn.window,
        kind: "rolling",
        values: rolling(values, Math.round(n)),
      });
      limits.push({ name: text, max: drawn.max });
      note += ` Curve: the last ${drawn.window} at each moment, whose limit is the dashed line.`;
    }
  }
  chart.show({ from, to, bucket: s.bucket_ms, series, limits });
  write($("series-note"), note);
  const rows = s.points.filter((p) => p[1] > 0).reverse();
  if ($("series-rows").closest("details").open) {
    sync(
      $("series-rows"),
      rows,
      (p) => p[0],
      (p) => element("tr", {}, element("td", {}, clock(p[0])), element("td", { class: "num" })),
      (row, p) => write(row.lastChild, number.format(p[1])),
    );
  }
}

function bucketText(ms) {
  for (const [unit, word] of [
    [36e5, "h"],
    [6e4, "min"],
    [1e3, "s"],
  ])
    if (ms % unit === 0) return ms / unit + " " + word;
  return ms + " ms";
}

export async function refreshKey() {
  const asked = state.key,
    window = state.seriesWindow;
  if (!asked) return;
  const query = new URLSearchParams(asked);
  try {
    const rows = windowsOf(limitsOf(rulesOf(asked.ns), asked.key), window);
    const windows = [...new Set(rows.filter((l) => !l.open).map((l) => l.window))].slice(0, 16);
    const [counts, series, holds] = await Promise.all([
      read(`/v1/count?${query}&window=${windows.map(encodeURIComponent).join(",")}`),
      read(`/v1/series?${query}&window=${window}`),
      read(`/v1/holds?${query}`),
    ]);
    if (state.key !== asked || state.seriesWindow !== window) return;
    write($("found-title"), (asked.ns === "default" ? "" : asked.ns + " / ") + asked.key);
    $("found").hidden = false; // before it is drawn, which takes its width
    showHolds(holds);
    showSeries(series, showCounts(rows, counts.counts, holds));
    show("lookup-error", "");
  } catch (e) {
    if (state.key !== asked) return;
    if (e.lost) throw e;
    $("found").hidden = true;
    show("lookup-error", e.message);
  }
}

// reveal scrolls to the key, or to why there is none, if that is not on the screen.
export function reveal() {
  if (!state.key) return;
  const shown = $("found").hidden ? $("lookup") : $("found");
  const { top } = shown.getBoundingClientRect(),
    { bottom } = $("lookup").parentElement.getBoundingClientRect();
  if (top > innerHeight - 120 || bottom < 120) $("lookup").scrollIntoView({ block: "start" });
}

// openKey shows a key, keeps it in the address of the page, and scrolls to it: at once, because the
// answer may take a while, and again when it has arrived.
export async function openKey(ns, key) {
  $("ns").value = ns;
  $("key").value = key;
  $("lookup-empty").hidden = true;
  const asked = (state.key = { ns, key });
  state.drawn = null;
  window.history.replaceState(null, "", "#" + new URLSearchParams(asked));
  reveal();
  await refreshKey().catch(() => {});
  if (state.key === asked) reveal();
}

// closeKey shows no key.
function closeKey() {
  state.key = null;
  $("found").hidden = true;
  $("lookup-empty").hidden = false;
  show("lookup-error", "");
}

// follow shows the key that the address of the page names, and none if the address ends before it.
function follow() {
  const linked = new URLSearchParams(location.hash.slice(1));
  if (linked.get("key")) openKey(linked.get("ns") || "default", linked.get("key"));
  else if (!location.hash) closeKey();
}

export function openKeys() {
  chart = new Chart($("series"), "Counts of the key", 210);
  $("lookup").addEventListener("submit", (e) => {
    e.preventDefault();
    state.seriesWindow = $("series-window").value;
    openKey($("ns").value.trim() || "default", $("key").value);
  });
  $("series-window").addEventListener("change", (e) => {
    if (!e.target.checkValidity()) return;
    state.seriesWindow = e.target.value;
    refreshKey().catch(() => {});
  });
  window.addEventListener("hashchange", follow);
  follow();
}
