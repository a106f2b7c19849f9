// Explanations: why a key is refused, what used up its limits, and its recent refusals, all as
// GET /v1/explain answers.
import { $, clock, element, figure, long, number, show, sync, write } from "./page.js";

const named = (rule) => rule || "limits of requests";

// rowsOf returns the limits of an explanation, a row each.
export function rowsOf({ rules }) {
  return rules.flatMap((r) => {
    const of = { rule: named(r.rule), state: r.state };
    const { distinct = [], windows = [], concurrent: open } = r;
    const rows = [
      ...windows.map((w) => ({ ...of, ...w, max: w.limit, left: w.remaining, c: w, drawable: true })),
      ...distinct.map((d) => ({
        ...of,
        window: d.window + " different",
        max: d.limit,
        left: d.remaining,
        c: { count: d.count, min: d.count, max: d.count },
      })),
      ...(open
        ? [
            {
              ...of,
              window: "open holds",
              max: open.limit,
              left: open.remaining,
              c: { count: open.count, min: open.count, max: open.count },
            },
          ]
        : []),
    ];
    if (!rows.length) rows.push({ ...of, window: "–" }); // it can't judge the key
    // A ban leaves nothing, whatever the windows would. Otherwise the verdict stands at the last
    // limit that is used up.
    if (r.banned_until)
      return [
        { ...of, window: "ban", verdict: r },
        ...rows.map((row) => ({ ...row, left: undefined })),
      ];
    (rows.findLast((row) => row.left <= 0) || rows[0]).verdict = r;
    return rows;
  });
}

// passing describes when a rule lets the key pass again, by the clock of the server.
function passing(r, at) {
  if (r.error) return r.error;
  const until = (ms) => `${clock(ms)}, in ${long(ms - at)}`;
  if (r.banned_until) return `banned until ${until(r.banned_until)}`;
  if (r.unasked) return "would refuse it now, but no request has asked for it in a day";
  if (r.would_refuse) return "would refuse it now";
  if (r.passes) return "";
  if (r.never) return "refuses it, and waiting does not help";
  return r.passes_at ? `refuses it until ${until(r.passes_at)}` : "refuses it now";
}

// noteOf returns the verdict of the rule of a row.
export const noteOf = (row, at) => (row.verdict ? passing(row.verdict, at) : "");

// limitsOf spells limits, in the order in which they judge.
const limitsOf = (list) => list.map((l) => `${l.limit}/${l.window}`).join(", ");

// verdictOf returns the verdict on the next request for the key. Which rules it will ask is
// unknown: only those that have refused the key are expected to judge it again.
function verdictOf(a) {
  if (a.ban) {
    const { rule, until } = a.ban;
    return [`Banned by ${rule} until ${clock(until)}, for ${long(until - a.at)}.`, "refusing"];
  }
  const refusals = a.refusal ? [a.refusal, ...a.refusals] : a.refusals;
  const refusing = a.rules.filter((r) => !r.passes);
  const rules = refusing.map((r) => r.rule).filter(Boolean);
  const asked = rules.filter((rule) => refusals.some((f) => f.rule === rule));
  if (asked.length) return [`Refused now, by ${asked.join(", ")}.`, "refusing"];
  const may = rules.map((rule) => `${rule} would refuse it, if a request asked for that rule.`);
  for (const { windows = [], distinct = [] } of refusing.filter((r) => !r.rule)) {
    const limits = limitsOf([...windows, ...distinct]);
    const last = refusals.find((f) => !f.rule && limitsOf(f.limits || []) === limits);
    const at = last ? `, as at ${clock(last.at)},` : "";
    may.push(`A request with its own limit ${limits}${at} would be refused.`);
  }
  if (may.length) return [may.join(" "), "unsure"];
  const passes = "One more event passes every rule now.";
  return [a.rules.length ? passes : "No rule of its namespace limits it.", "passing"];
}

// showVerdict writes what became of the refusal that was looked up, whether the key passes now, and
// who decides that.
export function showVerdict(a) {
  const { refusal: r } = a;
  show(
    "asked-refusal",
    r ? `Refused ${long(a.at - r.at)} ago by ${r.rule || "limits of the request"}: ${why(r)}.` : "",
  );
  const [text, kind] = verdictOf(a);
  write($("verdict"), text);
  $("verdict").className = kind;
  const by = a.owner ? `${a.owner} decides about it` : "Redis decides about it";
  const degraded = a.degraded ? ", degraded" : "";
  write(
    $("decided"),
    `${by}; counts from ${a.source}${degraded}, rules version ${a.rules_version}, at ${clock(a.at)}.`,
  );
}

// showHolds writes how many holds of the key are open, if any are.
export function showHolds({ holds }) {
  const { open, next_end_ms: next } = holds[0] || {};
  const end = next ? `, the next ends in ${long(next)}` : "";
  show("open-holds", open ? `Open holds: ${number.format(open)}${end}.` : "");
}

// showLargest writes what used up a limit: the largest buckets in its window.
export function showLargest(row) {
  const buckets = row?.buckets || [];
  const text = buckets.map((b) => `${figure(b.count)} from ${clock(b.start)} (${long(b.width_ms)})`);
  const lent = row?.lent ? ` Other nodes may count ${figure(row.lent)} more.` : "";
  show(
    "largest",
    text.length ? `Largest in ${row.rule} ${row.max}/${row.window}: ${text.join(", ")}.${lent}` : "",
  );
}

// why describes the reason of a refusal.
function why(r) {
  const n = r.n > 1 ? `, asked for ${number.format(r.n)}` : "";
  if (r.reason === "ban") return `banned until ${clock(r.until)}`;
  if (r.reason === "cold") return "its counts could not be read";
  const of = { distinct: " different values", concurrent: " open holds" }[r.reason] || "";
  const window = r.window ? " in " + r.window : "";
  return `${figure(r.count)} of ${figure(r.limit)}${of}${window}${n}`;
}

function refusalRow(r) {
  const link = element("a", { href: "#" + new URLSearchParams({ id: r.id }) }, r.id);
  return element(
    "tr",
    {},
    element("td", { class: "when" }),
    element("th", { scope: "row" }, named(r.rule)),
    element("td", { class: "reason" }),
    element("td", {}, `${r.door}, ${r.node}`),
    element("td", { class: "key" }, link),
  );
}

// showRefusals lists the recent refusals of the key, the one with the id that was looked up first.
export function showRefusals(a) {
  const { refusal } = a;
  const others = a.refusals.filter((r) => r.id !== refusal?.id);
  const list = refusal ? [refusal, ...others] : others;
  sync(
    $("refusals-rows"),
    list,
    (r) => r.id,
    refusalRow,
    (row, r) => {
      const times = r.times > 1 ? `, ${figure(r.times)} times` : "";
      write(row.children[0], clock(r.at) + times);
      write(row.children[2], why(r));
      row.classList.toggle("asked", r === refusal);
    },
  );
  $("refusals-table").hidden = !list.length;
  show("refusals-empty", list.length ? "" : "None of its refusals is remembered.");
}
