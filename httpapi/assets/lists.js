// The lists of keys: the busiest and the most refused ones, and those that a search finds.
import {
  $,
  clock,
  element,
  figure,
  held,
  holdPressed,
  milliseconds,
  read,
  shape,
  show,
  sync,
  tabs,
  write,
} from "./page.js";
import { openKey } from "./keys.js";

// LISTED is how many keys are searched for a part of them, FOUND how many of those that begin with
// the text are asked for, and SHOWN how many are shown: of those that are found, FOUND.
const LISTED = 1000,
  FOUND = 40,
  SHOWN = { top: 12, refused: 8, shadowed: 8 };
const LONGEST = "24h";
const ORDERS = { top: "count", refused: "refused", shadowed: "shadow" };
// How long to wait for the next character of a search, and how long its result is good for.
const PAUSE = 300,
  LASTS = 5000;
const state = {
  window: "1m",
  since: 0, // when the last node started that is there; 0 if there is one that is no cluster
  lists: { top: [], refused: [], shadowed: [] },
  found: { of: "", at: -Infinity, lists: {} }, // the keys that begin with a text
};
let timer;

const name = (k) => k.ns + " " + k.key;

function keyRow(k) {
  const svg = shape("svg", {
    viewBox: "0 0 100 10",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  svg.append(shape("rect", { height: 10, rx: 0.8 }));
  const label = element("span", { class: "name" });
  if (k.ns !== "default") label.append(element("span", { class: "ns" }, k.ns + " / "));
  label.append(k.key);
  const button = element(
    "button",
    { type: "button", title: k.key },
    svg,
    label,
    element("span", { class: "n" }),
  );
  button.addEventListener("click", () => openKey(k.ns, k.key));
  return element("li", {}, button);
}

const wanted = () => $("search").value.trim();
const searched = (prefix) => state.window + " " + prefix;

// matching returns the rows of a list that match what is searched for: all keys that begin with it,
// and those of the first that contain it.
function matching(id) {
  const search = wanted();
  if (!search) return state.lists[id].slice(0, SHOWN[id]);
  const begin = state.found.of === searched(search) ? state.found.lists[id] : [];
  const rows = new Map(begin.map((k) => [name(k), k]));
  for (const k of state.lists[id])
    if (name(k).toLowerCase().includes(search.toLowerCase())) rows.set(name(k), k);
  return [...rows.values()].sort((a, b) => b.count - a.count).slice(0, FOUND);
}

// find asks for the keys that begin with what is searched for. An outdated answer is dropped.
async function find() {
  const prefix = wanted(),
    of = searched(prefix);
  if (!prefix) return;
  const query = new URLSearchParams({ n: FOUND, window: state.window, prefix });
  const answers = await Promise.all(
    Object.values(ORDERS).map((by) => read(`/v1/top?by=${by}&${query}`)),
  );
  if (of !== searched(wanted())) return;
  const lists = Object.fromEntries(Object.keys(ORDERS).map((id, i) => [id, answers[i].keys]));
  state.found = { of, at: performance.now(), lists };
  Object.keys(ORDERS).forEach(showList);
}

function findSoon() {
  Object.keys(ORDERS).forEach(showList);
  clearTimeout(timer);
  timer = setTimeout(() => find().catch(() => {}), PAUSE);
}

// showList shows the rows of a list. What somebody searches for is shown even if the pointer is on
// the list.
function showList(id) {
  const rows = matching(id),
    list = $(id),
    of = searched(wanted()) + "\n" + state.found.of,
    still = list.shownOf === of && held(list);
  list.shownOf = of;
  const most = Math.max(1, ...rows.map((k) => k.count));
  sync(
    list,
    rows,
    name,
    keyRow,
    (row, k) => {
      const [svg, , n] = row.firstChild.children;
      svg.firstChild.setAttribute("width", Math.max(0, (k.count / most) * 100));
      write(n, figure(k.count));
    },
    still,
  );
  show(
    id + "-empty",
    rows.length
      ? ""
      : wanted()
        ? state.found.of === searched(wanted())
          ? nothingFound(id)
          : "Searching…"
        : id === "top"
          ? `No key counted anything in the last ${state.window}. Count one: POST /v1/add`
          : nothingRefused(id),
  );
  const found = rows.length || state.found.of !== searched(wanted());
  if (id === "top") $("search-longer").hidden = !wanted() || found || state.window === LONGEST;
}

// nothingFound names the window in which no key was found.
function nothingFound(id) {
  const counted = { top: "counted", refused: "was refused", shadowed: "would have been refused" };
  return `No key that begins with it ${counted[id]} in the last ${state.window}, and none of the first 1,000 contains it.`;
}

// nothingRefused says since when: which keys were refused is known to nodes since they started.
function nothingRefused(id) {
  const nothing = id === "refused" ? "Nothing was refused" : "Nothing would have been refused";
  const last = `${nothing} in the last ${state.window}`;
  if (state.since && Date.now() - state.since > milliseconds(state.window)) return `${last}.`;
  const known = state.since
    ? `${nothing} since ${clock(state.since)}, when a node started.`
    : `${last}. Refusals before this node started are not included.`;
  if (id === "shadowed") return known;
  return `${known} Which keys were refused before is not kept; how many refusals there were is under Decisions.`;
}

async function list(id) {
  const query = `by=${ORDERS[id]}&n=${LISTED}&window=${state.window}`;
  state.lists[id] = (await read("/v1/top?" + query)).keys;
  showList(id);
}

export const refreshLists = (now) =>
  Promise.all([
    ...Object.keys(ORDERS).map(list),
    ...(now - state.found.at >= LASTS ? [find()] : []),
  ]);

// showSince says from when on the lists know anything.
export function showSince(members) {
  const since = members.map((m) => m.started).filter(Boolean);
  if (!since.length) return;
  state.since = Math.max(...since);
  write(
    $("since"),
    `Busiest: of the keys in memory. Refused: what nodes were asked since they started, the last one at ${clock(state.since)}.`,
  );
}

export function openLists() {
  tabs("top-window", (w) => {
    state.window = w;
    findSoon();
    refreshLists(-Infinity).catch(() => {});
  });
  $("search").addEventListener("input", findSoon);
  $("search-longer").firstChild.addEventListener("click", () => {
    const longest = $("top-window").querySelector(`[data-window="${LONGEST}"]`);
    longest.click();
    longest.focus();
  });
  for (const id in SHOWN) holdPressed($(id));
}
