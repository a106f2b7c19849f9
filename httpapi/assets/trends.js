// Trends: how many acquires each rule refused over time.
import { $, clock, figure, number, read, tabs } from "./page.js";
import { spark } from "./chart.js";

// How long a picture of a span is good for, in milliseconds.
const LASTS = { "1h": 10000, "24h": 60000 };
const SPANS = { "1h": "the last hour", "24h": "the last 24 hours" };
const state = { span: "1h", rules: [], read: new Map() };

// verdictOf returns the verdict that counts the refusals of a rule.
export const verdictOf = (r) => (r.state === "shadow" ? "shadow_refused" : "refused");

// summary describes the refusals of a rule in a sentence.
function summary(r, { points }) {
  const verb = r.state === "shadow" ? "would have refused" : "refused";
  const total = points.reduce((n, p) => n + p[1], 0);
  if (!total) return `${r.name} ${verb} nothing in ${SPANS[state.span]}.`;
  const most = points.reduce((a, b) => (b[1] > a[1] ? b : a));
  return (
    `${r.name} ${verb} ${number.format(total)} in ${SPANS[state.span]}, ` +
    `most of them, ${figure(most[1])}, from ${clock(most[0], false)} on.`
  );
}

// showTrend draws the refusals of a rule in its row.
function showTrend(r, series) {
  const rows = [...$("rules-rows").querySelectorAll("[data-trend]")];
  const at = rows.find((row) => row.dataset.trend === r.name);
  if (!at || !series.points.length) return;
  const values = series.points.map((p) => p[1]);
  spark(at, values, 24, 120, values.length);
  at.classList.toggle("shadow", r.state === "shadow");
  at.setAttribute("aria-label", summary(r, series));
  at.title = at.getAttribute("aria-label");
}

async function refreshTrend(r) {
  const key = `${r.namespace || "default"}/${verdictOf(r)}/${r.name}`,
    of = state.span + " " + key,
    now = performance.now();
  const known = state.read.get(of);
  if (known && now - known.at < LASTS[state.span]) return showTrend(r, known.series);
  const query = new URLSearchParams({ ns: "@verdicts", key, window: state.span });
  const series = await read("/v1/series?" + query);
  state.read.set(of, { at: now, series });
  if (of === state.span + " " + key) showTrend(r, series);
}

// refreshTrends draws the refusals of rules. What can't be read stays as it is.
export function refreshTrends(rules) {
  state.rules = rules;
  return Promise.all(rules.map((r) => refreshTrend(r).catch(() => {})));
}

export function openTrends() {
  tabs("rules-span", (span) => {
    state.span = span;
    state.read.clear();
    refreshTrends(state.rules);
  });
}
