// Rules: what they decided, and changing them.
import {
  $,
  ask,
  clock,
  element,
  figure,
  keysText,
  limitParts,
  limitText,
  limitsIn,
  postJSON,
  read,
  show,
  sync,
  write,
  TOKEN,
} from "./page.js";
import { refreshTrends, verdictOf } from "./trends.js";

// read is when the rules were read, by performance.now(), which begins at 0 with the page.
const state = { rules: [], version: "", read: -Infinity, text: "", base: "", turn: 0 };
const EVERY = 5000;
// How long a backtest may take, in milliseconds.
const BACKTEST = 15000;

// rulesBan reports whether any rule bans keys.
export const rulesBan = () => state.rules.some((r) => r.ban);

// rulesIn returns the rules of a document, or of a list of several.
export const rulesIn = (document) => [document].flat().flatMap((d) => d.rules || []);

// MOST bounds how many rules have figures: three requests each, and one for its trend.
const MOST = 50;

// decisions returns how often a verdict was that of a rule, in the last minute and in 24 hours.
async function decisions(r, verdict) {
  const key = `${r.namespace || "default"}/${verdict}/${r.name}`;
  const query = new URLSearchParams({ ns: "@verdicts", key, window: "1m,24h" });
  return (await read("/v1/count?" + query)).counts.map((c) => c.count);
}

// figuresOf returns what a rule decided: allowed and refused in a minute, and in 24 hours. What it
// allows near a limit is counted apart.
async function figuresOf(r) {
  const verdicts = ["allowed", verdictOf(r)].concat(r.warn ? ["near"] : []);
  const [yes, no, near = [0, 0]] = await Promise.all(verdicts.map((v) => decisions(r, v)));
  return [yes[0] + near[0], no[0], yes[1] + near[1], no[1]];
}

// asked returns how many requests have asked for a rule in 24 hours.
export async function asked(r) {
  const [, , yes, no] = await figuresOf(r);
  return yes + no;
}

// isOnCounts reports whether a rule has limits that can be tried on past events.
const isOnCounts = (r) => limitsIn(r).some((limit) => !limitParts(limit).open);

function ruleRow(r) {
  const stateOf = r.state || "on";
  // A single limit on different values need not be a list.
  const distinct = [r.distinct || []].flat().map((l) => limitText(l) + " different");
  const limits =
    [...limitsIn(r).map(limitText), ...distinct].join(", ") +
    (r.ban ? `, then a ban of ${r.ban}` : "") +
    (r.overrides ? ` (overrides: ${r.overrides.length})` : "");
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, r.name),
    element("td", { "data-label": "Namespace" }, r.namespace || "default"),
    element(
      "td",
      { "data-label": "State" },
      element(
        "span",
        { class: "badge " + ({ on: "good", shadow: "warn" }[stateOf] || "") },
        stateOf,
      ),
    ),
    element(
      "td",
      { class: "limits", "data-label": "Limits" },
      limits,
      element("small", { class: "why" }),
    ),
    ...["Allowed 1m", "Refused 1m", "Allowed 24h", "Refused 24h"].map((label) =>
      element("td", { class: "num", "data-label": label }),
    ),
    element(
      "td",
      { "data-label": "Refusals" },
      element("span", { class: "plot inline trend", role: "img", "data-trend": r.name, "aria-label": `refusals of ${r.name}` }),
    ),
    element("td", {}, element("span", { class: "buttons" }, ...(isOnCounts(r) ? [tryButton(r)] : []))),
  );
}

// noteOn reports that a rule judges nothing, because no request names it.
const noteOn = (r, [, , yes, no]) =>
  r.state === "off" || yes + no > 0 ? "" : "no request has asked for it in 24h";

const tryButton = (r) =>
  element(
    "button",
    { type: "button", "data-rule": r.name, "aria-label": `Try limits of ${r.name}` },
    "Try",
  );

function showFigures(rules, decided) {
  const by = new Map(rules.map((r, i) => [r, decided[i]]));
  sync(
    $("rules-rows"),
    rules,
    (r) => JSON.stringify(r),
    ruleRow,
    (row, r) => {
      for (let i = 0; i < 4; i++)
        write(row.children[4 + i], by.get(r) ? figure(by.get(r)[i]) : "–");
      write(row.children[3].lastChild, by.get(r) ? noteOn(r, by.get(r)) : "");
    },
  );
}

export async function refreshRules(now) {
  if (now - state.read < EVERY) return;
  state.read = now;
  let response;
  try {
    response = await ask("/v1/rules");
  } catch (e) {
    if (e.lost || e.unauthorized) throw e;
    show("rules-empty", e.message);
    return;
  }
  const version = response.headers.get("ETag") || "";
  const rules = rulesIn(await response.json());
  const changed = version !== state.version;
  Object.assign(state, { rules, version });
  write($("rules-version"), "version " + version.replaceAll('"', ""));
  show(
    "rules-empty",
    rules.length ? "" : "There are no rules yet. Edit the document to make some.",
  );
  if (changed) showFigures(rules, []); // until the figures are there
  const decided = await Promise.all(
    rules.slice(0, MOST).map((r) => figuresOf(r).catch(() => null)),
  );
  await refreshTrends(rules.slice(0, MOST));
  showFigures(rules, decided); // a rule without figures is shown nevertheless
  if (changed) await showVersions();
}

// reloadRules shows the rules that have just been put in force.
export function reloadRules() {
  state.read = -Infinity;
  return refreshRules(performance.now());
}

async function showVersions() {
  const { versions } = await read("/v1/rules?history=true");
  sync(
    $("versions"),
    versions,
    (v) => v.version,
    (v) =>
      element(
        "tr",
        {},
        element("td", { class: "num" }, String(v.version)),
        element("td", {}, v.at > 0 ? clock(v.at) : "–"),
        element("td", {}, v.who),
      ),
    () => {},
  );
}

// open fills the editor with the newest version.
async function openEditor() {
  begin("");
  try {
    const response = await ask("/v1/rules", { headers: { Accept: "application/yaml" } });
    state.base = response.headers.get("ETag") || "*";
    state.text = await response.text();
  } catch (e) {
    return say(e.message, "");
  } finally {
    $("editor").hidden = false;
  }
  $("rules-text").value = state.text || "rules: []\n";
  write($("editor-base"), "made from version " + state.base.replaceAll('"', ""));
  $("rules-text").focus();
}

function say(error, done) {
  write($("rules-error"), error);
  write($("rules-done"), done);
}

function result(text) {
  show("rules-shown", text);
}

// begin clears what the editor shows, and returns a function that reports whether nothing else has
// begun since: a late answer is about an earlier document.
function begin(doing) {
  const turn = ++state.turn;
  say("", doing);
  result("");
  return () => turn === state.turn;
}

// diff compares two texts line by line: what they have in common is as long as can be.
export function diff(a, b) {
  const x = a.split("\n"),
    y = b.split("\n");
  const common = Array.from({ length: x.length + 1 }, () => new Uint16Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i--) {
    for (let j = y.length - 1; j >= 0; j--) {
      common[i][j] =
        x[i] === y[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = [];
  let i = 0,
    j = 0;
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      lines.push("  " + x[i++]);
      j++;
    } else if (i < x.length && (j === y.length || common[i + 1][j] >= common[i][j + 1]))
      lines.push("- " + x[i++]);
    else lines.push("+ " + y[j++]);
  }
  return lines;
}

const NEAR = 3;

// showDiff shows what differs, with a few lines around it.
function showDiff() {
  begin("");
  const lines = diff(state.text, $("rules-text").value);
  const changed = lines.map((l) => l[0] !== " ");
  if (!changed.includes(true)) {
    result("Nothing differs from version " + state.base.replaceAll('"', "") + ".");
    return;
  }
  const near = lines.filter((_, i) =>
    changed.slice(Math.max(0, i - NEAR), i + NEAR + 1).includes(true),
  );
  result(near.join("\n"));
  const kinds = { "+": "added", "-": "removed" };
  $("rules-shown").replaceChildren(
    ...near.map((l) => element("span", { class: kinds[l[0]] || "same" }, l + "\n")),
  );
}

// goTo selects the place that an error names, as NAME:LINE:COLUMN.
function goTo(message) {
  const place = /:(\d+):(\d+)/.exec(message);
  if (!place) return;
  const area = $("rules-text"),
    lines = area.value.split("\n");
  const line = Math.min(Number(place[1]), lines.length);
  const start = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0);
  const at = start + Math.min(Number(place[2]) - 1, lines[line - 1].length);
  area.focus();
  area.setSelectionRange(at, start + lines[line - 1].length);
}

// explain says why a document was not taken or tried. Where --admin has an address of its own, that
// happens there: this page comes from --listen, and may not ask another address.
export const explain = (e) =>
  e.status === 404 || e.status === 405
    ? "Rules are changed and tried at the address of --admin, with twotier rules apply or backtest."
    : e.message;

// warningsText writes the warnings about a document that was taken.
export const warningsText = ({ warnings = [] }) =>
  warnings.map((w) => `${w.at}: ${w.code}: ${w.reason}\n  instead: ${w.instead}`).join("\n");

function failed(e) {
  const message = explain(e);
  say(message, "");
  goTo(message);
}

const token = () => $("rules-token").value.trim() || sessionStorage.getItem(TOKEN) || "";

async function apply() {
  begin("");
  try {
    const response = await ask("/v1/rules", {
      method: "PUT",
      body: $("rules-text").value,
      token: token(),
      headers: { "Content-Type": "application/yaml", "If-Match": state.base },
    });
    const made = await response.json();
    begin("");
    state.base = response.headers.get("ETag");
    state.text = $("rules-text").value;
    write($("editor-base"), "made from version " + made.version);
    say("", `Version ${made.version} is in force on this node, and within a second on the others.`);
    result(warningsText(made));
    await reloadRules();
  } catch (e) {
    if (e.status === 412)
      e.message += ". Close and edit again to start from it; copy what you have written first.";
    failed(e);
  }
}

export const range = (b) => (b.min === b.max ? figure(b.min) : `${figure(b.min)} to ${figure(b.max)}`);

// NAMED is how many keys of a rule a backtest names.
const NAMED = 20;

// backtested says what a rule would do.
function backtested(r) {
  if (r.distinct && !r.looked_at)
    return [`${r.rule} (${r.ns}, ${r.state}): limits on different values are not replayed`];
  const lines = [
    `${r.rule} (${r.ns}, ${r.state}): would refuse ${figure(r.refusing)} of ${keysText(r.looked_at)} now, ` +
      `and would have refused ${range(r.refused)} of the ${figure(r.events)} events of their last day`,
  ];
  for (const k of r.keys.slice(0, NAMED)) {
    const now = k.limits.map((l) => `${figure(l.now.count)} of ${l.max}/${l.window}`).join(", ");
    lines.push(
      `  ${k.refuses ? "refuses" : "allows "} ${k.key}: ${now}; ` +
        `would have refused ${range(k.refused)} of ${figure(k.events)}`,
    );
  }
  const more = Math.max(0, r.keys.length - NAMED) + r.left_out;
  if (more) lines.push(`  and ${keysText(more, "more ")}`);
  if (r.distinct) lines.push("  without its limits on different values, which are not replayed");
  return lines;
}

// backtest asks what the document would do to the keys that are busy now.
async function backtest() {
  const current = begin("Looking at the busiest keys…");
  $("rules-backtest").disabled = true;
  try {
    const body = { rules: $("rules-text").value, top: 1000 };
    const answer = await postJSON("/v1/backtest", body, token(), BACKTEST);
    if (!current()) return;
    say("", `Looked at ${figure(answer.looked_at)} keys; nothing was counted or changed.`);
    result(answer.rules.flatMap(backtested).join("\n") || "There are no rules in it.");
  } catch (e) {
    if (current()) failed(e);
  } finally {
    $("rules-backtest").disabled = false;
  }
}

export function openRules() {
  $("rules-edit").addEventListener("click", openEditor);
  $("rules-diff").addEventListener("click", showDiff);
  $("rules-close").addEventListener("click", () => {
    begin("");
    $("editor").hidden = true;
    $("rules-edit").focus();
  });
  $("editor").addEventListener("submit", (e) => {
    e.preventDefault();
    apply();
  });
  $("rules-backtest").addEventListener("click", backtest);
}
