// What is known of a key.
import {
  $,
  clock,
  element,
  figure,
  milliseconds,
  number,
  read,
  show,
  sync,
  write,
} from "./page.js";
import { Chart } from "./chart.js";
import { noteOf, rowsOf, showHolds, showLargest, showRefusals, showVerdict } from "./explain.js";

// filled is the key that was last written into the form for its refusal.
const state = { key: null, filled: null, seriesWindow: "1h", drawn: null };
let chart;

const PLAIN = ["1m", "1h", "24h"];

// othersOf returns the windows to count that no limit has: the usual ones, and the one that is drawn.
function othersOf(limits, drawn) {
  const known = new Set(limits.map((l) => l.window));
  return [...new Set([...PLAIN, drawn])].filter((w) => !known.has(w));
}

const idOf = (l) => `${l.rule} ${l.max} ${l.window}`;

function countRow(l) {
  const row = element(
    "tr",
    {},
    element("th", { scope: "row" }, element("span", {}, l.rule || "no limit"), element("small", {})),
    element("td", {}, l.window),
    element("td", { class: "num" }),
    element("td", { class: "num" }, l.max === undefined ? "–" : number.format(l.max)),
    element("td", { class: "num" }),
    element("td", {}),
  );
  if (l.state && l.state !== "on")
    row.firstChild.firstChild.after(" ", element("span", { class: "badge warn" }, l.state));
  if (l.drawable) {
    const box = element("input", {
      type: "radio",
      name: "drawn",
      "aria-label": `draw ${l.rule} ${l.max}/${l.window}`,
    });
    box.addEventListener("change", () => {
      state.drawn = idOf(l);
      refreshKey();
    });
    row.lastChild.append(box);
  }
  return row;
}

// drawnOf returns the limit to draw. Unless somebody has chosen one, it is the one that is nearest
// to being reached, of a rule that is on if there is one.
function drawnOf(rows) {
  const limits = rows.filter((l) => l.drawable);
  const near = (l) => l.c.count / (l.max || 0.5);
  return (
    limits.find((l) => idOf(l) === state.drawn) ||
    limits.sort((a, b) => (b.state === "on") - (a.state === "on") || near(b) - near(a))[0]
  );
}

// showCounts shows the limits of an explanation, and counts in other windows.
function showCounts(rows, at) {
  const drawn = drawnOf(rows);
  sync(
    $("counts"),
    rows,
    (l) => `${state.key.ns} ${state.key.key} ${l.state} ${idOf(l)}`,
    countRow,
    (row, l) => {
      const [name, , count, , left, box] = row.children,
        c = l.c;
      write(
        count,
        c
          ? figure(c.count) + (c.min === c.max ? "" : ` (${figure(c.min)} to ${figure(c.max)})`)
          : "–",
      );
      write(name.lastChild, noteOf(l, at));
      write(left, l.left === undefined ? "–" : figure(l.left));
      row.classList.toggle("over", l.window === "ban" || l.left <= 0);
      if (box.firstChild) box.firstChild.checked = l === drawn;
    },
  );
  return drawn;
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

// explained asks why a key, or the refusal with an id, is refused.
const explained = ({ ns, key, id }) =>
  read("/v1/explain?" + new URLSearchParams(id ? { id } : { ns, key }));

// countOthers counts in windows that no limit has.
async function countOthers(query, windows) {
  if (!windows.length) return [];
  const list = windows.map(encodeURIComponent).join(",");
  return (await read(`/v1/count?${query}&window=${list}`)).counts;
}

export async function refreshKey() {
  const asked = state.key,
    window = state.seriesWindow;
  if (!asked || asked.unknown) return;
  try {
    const a = await explained(asked);
    const query = new URLSearchParams({ ns: a.ns, key: a.key });
    const limits = rowsOf(a),
      others = othersOf(limits, window);
    const [counts, series] = await Promise.all([
      countOthers(query, others),
      read(`/v1/series?${query}&window=${window}`),
    ]);
    if (state.key !== asked || state.seriesWindow !== window) return;
    Object.assign(asked, { ns: a.ns, key: a.key });
    if (asked.id) fillFields(a);
    write($("found-title"), (a.ns === "default" ? "" : a.ns + " / ") + a.key);
    $("found").hidden = false; // before it is drawn, which takes its width
    showVerdict(a);
    showHolds(a);
    showRefusals(a);
    const drawn = showCounts([...limits, ...counts.map((c) => ({ window: c.window, c }))], a.at);
    showLargest(drawn);
    showSeries(series, drawn);
    show("lookup-error", "");
  } catch (e) {
    if (state.key !== asked) return;
    if (e.lost) throw e;
    asked.unknown = asked.id && e.status === 404; // it won't come back
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

// fillFields writes the key of a refusal into the form, once.
function fillFields({ ns, key }) {
  if (state.filled === state.key) return;
  state.filled = state.key;
  $("ns").value = ns;
  $("key").value = key;
}

// openKey shows a key, keeps it in the address of the page, and scrolls to it: at once, because the
// answer may take a while, and again when it has arrived.
export function openKey(ns, key) {
  $("ns").value = ns;
  $("key").value = key;
  $("refusal").value = "";
  return open({ ns, key });
}

// openRefusal shows the key of a refusal, and the refusal first.
function openRefusal(id) {
  $("key").value = "";
  $("refusal").value = id;
  return open({ id });
}

async function open(asked) {
  $("lookup-empty").hidden = true;
  state.key = asked;
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
  if (linked.get("id")) openRefusal(linked.get("id"));
  else if (linked.get("key")) openKey(linked.get("ns") || "default", linked.get("key"));
  else if (!location.hash) closeKey();
}

export function openKeys() {
  chart = new Chart($("series"), "Counts of the key", 210);
  $("lookup").addEventListener("submit", (e) => {
    e.preventDefault();
    state.seriesWindow = $("series-window").value;
    const id = $("refusal").value.trim();
    if (id && (id !== state.key?.id || state.key.unknown)) return openRefusal(id);
    if (!$("key").value) return show("lookup-error", "Type a key, or the id of a refusal.");
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
