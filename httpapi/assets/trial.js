// The trial of a rule: a backtest runs as a limit is changed, and the change can be applied.
import {
  $,
  ask,
  element,
  figure,
  keysText,
  limitParts,
  limitsIn,
  number,
  postJSON,
  show,
  sync,
  write,
  TOKEN,
} from "./page.js";
import { openKey } from "./keys.js";
import { asked, explain, range, reloadRules, rulesIn, warningsText } from "./rules.js";

// base is the version that the trial began from, text its document, and limits the limits of the
// rule in it. inForce is the result of a backtest with these limits. decided is how many requests
// the rule has judged in a day, or null if that can't be read.
const state = {
  rule: null,
  base: "",
  text: "",
  limits: [],
  inForce: null,
  decided: null,
  turn: 0,
  asking: false,
};
// How long to wait for the next change before a backtest runs, and for its answer, in milliseconds.
const PAUSE = 300,
  PATIENCE = 15000;
const NAMED = 10;
// LARGEST is the largest maximum of a limit.
const LARGEST = Number.MAX_SAFE_INTEGER;
let timer;

const token = () => $("trial-token").value.trim() || sessionStorage.getItem(TOKEN) || "";
const version = () => state.base.replaceAll('"', "");
const tried = () => state.limits.map((l) => l.tried);
const valid = () => tried().every((n) => Number.isInteger(n) && n >= 0 && n <= LARGEST);
const changed = () => state.limits.some((l) => l.tried !== l.max);

// readDocument reads the document in force in its three forms, all of the same version.
async function readDocument() {
  for (let attempt = 0; attempt < 5; attempt++) {
    const answers = await Promise.all([
      ask("/v1/rules", { headers: { Accept: "application/yaml" } }),
      ask("/v1/rules"),
      ask("/v1/rules?limits=true"),
    ]);
    const bases = new Set(answers.map((a) => a.headers.get("ETag")));
    const [text, json, { limits }] = [
      await answers[0].text(),
      await answers[1].json(),
      await answers[2].json(),
    ];
    if (bases.size === 1) return { base: [...bases][0], text, rules: rulesIn(json), limits };
  }
  throw new Error("The rules change too often; try again.");
}

// digitsOf returns where the digits of a maximum begin and end in a document, or null if they are
// not written there as digits. Columns count characters.
export function digitsOf(text, { at, max }) {
  const [, line, column] = /:(\d+):(\d+)$/.exec(at).map(Number);
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0);
  const from = before + [...(lines[line - 1] || "")].slice(0, column - 1).join("").length;
  const found = /^["']?(\d+)/.exec(text.slice(from));
  if (!found || Number(found[1]) !== max) return null;
  const to = from + found[0].length;
  return [to - found[1].length, to];
}

// replaceDigits returns the document with the limits that are tried.
function replaceDigits() {
  let text = state.text;
  for (const l of [...state.limits].sort((a, b) => (b.digits?.[0] ?? 0) - (a.digits?.[0] ?? 0)))
    if (l.tried !== l.max) text = text.slice(0, l.digits[0]) + l.tried + text.slice(l.digits[1]);
  return text;
}

// withMaximum returns a limit of a document with another maximum.
const withMaximum = (limit, max) =>
  typeof limit === "object" ? { ...limit, max } : max + limit.slice(limit.indexOf("/"));

// proposal returns a document of the rule alone, with the limits that are tried.
function proposal() {
  let i = 0;
  const limits = limitsIn({ limits: state.rule.limits }).map((limit) =>
    limitParts(limit).open ? limit : withMaximum(limit, state.limits[i++].tried),
  );
  return { rules: [{ ...state.rule, limits }] };
}

function say(error, done) {
  write($("trial-error"), error);
  write($("trial-done"), done);
}

// failed shows why something was not done, and offers to go on if somebody else was faster.
function failed(e) {
  say(
    e.status === 412
      ? "Somebody else has changed the rules since you opened them, so nothing was applied. " +
          "Your numbers are still here: look at the newest version, and apply them again."
      : explain(e),
    "",
  );
  $("trial-renew").hidden = e.status !== 412;
}

// limitControls makes the number and the slider of a limit, which follow each other.
function limitControls(l) {
  const name = `At most in ${l.window}`,
    most = Math.max(20, l.max * 3);
  const box = element("input", { type: "number", min: 0, step: 1, required: "" });
  const slider = element("input", {
    type: "range",
    min: 0,
    max: most,
    step: most > 2000 ? Math.ceil(most / 1000) : 1,
    "aria-label": name + ", as a slider",
  });
  box.disabled = slider.disabled = !l.digits;
  for (const from of [box, slider])
    from.addEventListener("input", () => {
      l.tried = from.value === "" ? NaN : Number(from.value);
      if (from === box) slider.value = Math.min(most, l.tried || 0);
      else box.value = from.value;
      changeLimit();
    });
  box.value = slider.value = l.tried;
  const note = l.digits
    ? `in force: ${number.format(l.max)}`
    : "This limit is shared or written in another way: change it in the document.";
  return element(
    "div",
    { class: "trial-limit" },
    element("label", {}, name, box),
    slider,
    element("small", {}, note),
  );
}

// changeLimit runs a backtest once nothing has changed for a moment.
function changeLimit() {
  say("", "");
  $("trial-result").classList.add("pending");
  $("trial-apply").disabled = !valid() || !changed();
  if (!valid()) return show("trial-status", "A limit is a whole number, 0 or more.");
  runSoon();
}

function runSoon() {
  clearTimeout(timer);
  timer = setTimeout(backtest, PAUSE);
}

// backtest asks what the rule would refuse with the limits that are tried. One runs at a time, and
// an answer about other limits is dropped.
async function backtest() {
  if (state.asking || !valid() || !state.rule) return;
  const turn = state.turn,
    asked = tried().join();
  const current = () => turn === state.turn && asked === tried().join();
  state.asking = true;
  show("trial-status", "Looking at the busiest keys…");
  try {
    const body = { rules: proposal(), top: 1000 };
    const answer = await postJSON("/v1/backtest", body, token(), PATIENCE);
    if (current()) showResult(answer);
  } catch (e) {
    if (!current()) return;
    show("trial-status", "");
    failed(e);
  } finally {
    state.asking = false;
    if (!current()) runSoon();
  }
}

// showResult shows what a backtest found, beside what it found for the limits in force.
function showResult(answer) {
  const [r] = answer.rules,
    limits = state.limits.map((l) => `${number.format(l.tried)}/${l.window}`).join(", ");
  if (!changed()) state.inForce = r;
  const silent = answer.silent ? `; ${answer.silent.join(", ")} did not answer` : "";
  show(
    "trial-status",
    `With ${limits} it would refuse ${figure(r.refusing)} of ${keysText(r.looked_at)} now, and ` +
      `would have refused ${range(r.refused)} of the ${figure(r.events)} events of their last day` +
      silent +
      ". " +
      unjudged(r) +
      "Nothing was counted or changed.",
  );
  const f = state.inForce;
  const rows = [
    [f ? figure(f.refusing) : "–", figure(r.refusing)],
    [f ? range(f.refused) : "–", range(r.refused)],
  ];
  rows.forEach((row, i) =>
    row.forEach((text, j) => write($("trial-figures").rows[i].cells[j + 1], text)),
  );
  $("trial-result").hidden = false;
  $("trial-result").classList.remove("pending");
  showKeys(r);
}

// unjudged warns that most events are not of requests that the rule judged: a backtest replays all
// events of the namespace.
function unjudged({ ns, events }) {
  if (state.decided === null || 2 * state.decided >= events) return "";
  return (
    `They are all events of namespace ${ns}: the rule judged only ` +
    `${keysText(state.decided, "", "request")} in that day. `
  );
}

function showKeys(r) {
  sync($("trial-keys"), r.keys.slice(0, NAMED), (k) => k.key, (k) => keyRow(r.ns, k), (row, k) => {
    row.classList.toggle("over", k.refuses);
    write(row.children[1], `${range(k.refused)} of ${figure(k.events)}`);
    write(row.children[2], k.refuses ? "yes" : "no");
  });
  $("trial-keys-table").hidden = !r.keys.length;
  const more = Math.max(0, r.keys.length - NAMED) + r.left_out;
  show("trial-more", more ? `and ${keysText(more, "more ")}` : "");
}

function keyRow(ns, k) {
  const link = element("a", { href: "#" + new URLSearchParams({ ns, key: k.key }) }, k.key);
  link.addEventListener("click", (e) => {
    if (e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    openKey(ns, k.key);
  });
  return element(
    "tr",
    {},
    element("th", { scope: "row", class: "key" }, link),
    element("td", { class: "num" }),
    element("td", {}),
  );
}

// begin shows a rule of the document in force. kept are maxima to try, if the rule still has limits
// over the same windows.
async function begin(name, kept = []) {
  const turn = ++state.turn;
  clearTimeout(timer);
  Object.assign(state, { rule: null, limits: [], inForce: null });
  say("", "");
  show("trial-status", "");
  for (const id of ["trial-result", "trial-renew"]) $(id).hidden = true;
  $("trial-apply").disabled = true;
  write($("trial-title"), "Try limits of " + name);
  $("trial").hidden = false;
  try {
    const { base, text, rules, limits } = await readDocument();
    if (turn !== state.turn) return;
    const rule = rules.find((r) => r.name === name);
    if (!rule) throw new Error(`There is no rule ${name} any more.`);
    const decided = await asked(rule).catch(() => null);
    if (turn !== state.turn) return;
    Object.assign(state, { rule, base, text, decided, limits: adjustable(text, limits, name, kept) });
  } catch (e) {
    if (turn === state.turn) failed(e);
    return;
  }
  const opened = state.rule,
    stateOf = opened.state || "on";
  write(
    $("trial-about"),
    `Version ${version()}. ` +
      (opened.distinct || opened.concurrent ? "Only limits on counts are tried. " : "") +
      (stateOf !== "on" ? `The rule is ${stateOf}: it refuses nothing. ` : "") +
      (opened.overrides ? "Overrides stay as they are." : ""),
  );
  $("trial-limits").replaceChildren(...state.limits.map(limitControls));
  $("trial-apply").disabled = !changed();
  $("trial-limits").querySelector("input:enabled")?.focus({ preventScroll: true });
  $("trial").scrollIntoView({ block: "nearest" });
  backtest();
}

// adjustable returns the limits of a rule, with the digits of those that only this rule has.
function adjustable(text, all, name, kept) {
  const mine = all.filter((l) => l.rule === name);
  const same = mine.length === kept.length && mine.every((l, i) => l.window === kept[i].window);
  return mine.map((l, i) => {
    const digits = all.filter((o) => o.at === l.at).length === 1 ? digitsOf(text, l) : null;
    return { ...l, digits, tried: same && digits ? kept[i].tried : l.max };
  });
}

// apply puts the document with the tried limits in force, unless it is not the newest one any more.
async function apply() {
  if (!valid() || !changed()) return;
  const turn = state.turn,
    text = replaceDigits();
  $("trial-apply").disabled = true;
  say("", "");
  try {
    const response = await ask("/v1/rules", {
      method: "PUT",
      body: text,
      token: token(),
      headers: { "Content-Type": "application/yaml", "If-Match": state.base },
    });
    const made = await response.json();
    await reloadRules();
    if (turn !== state.turn) return;
    await begin(state.rule.name);
    say(
      "",
      `Version ${made.version} is in force on this node, and within a second on the others. ` +
        warningsText(made),
    );
  } catch (e) {
    if (turn !== state.turn) return;
    $("trial-apply").disabled = false;
    failed(e);
    if (e.unauthorized) $("trial-token").focus();
  }
}

function close() {
  const name = state.rule?.name;
  state.turn++;
  clearTimeout(timer);
  state.rule = null;
  $("trial").hidden = true;
  const buttons = [...$("rules-rows").querySelectorAll("button[data-rule]")];
  (buttons.find((b) => b.dataset.rule === name) || $("rules-edit")).focus();
}

export function openTrials() {
  $("rules-rows").addEventListener("click", (e) => {
    const button = e.target.closest("button[data-rule]");
    if (button) begin(button.dataset.rule);
  });
  $("trial").addEventListener("submit", (e) => {
    e.preventDefault();
    apply();
  });
  $("trial").addEventListener("keydown", (e) => {
    if (e.key === "Escape") close();
  });
  $("trial-token").addEventListener("change", runSoon);
  $("trial-renew").addEventListener("click", () => begin(state.rule.name, state.limits));
  $("trial-close").addEventListener("click", close);
}
