// Members, those that are gone included, and what the nodes have seen happen.
import { $, clock, element, figure, long, number, read, shape, sync, write } from "./page.js";
import { spark } from "./chart.js";

const PERIOD = 1000,
  KEPT = 30;
const state = { traffic: new Map(), colours: new Map(), departed: [], view: null, at: 0, seen: -Infinity };

const perSecond = (a, b, ms) => Math.max(0, Math.round((a - b) / (ms / 1000)));

// colour is the class of a member's colour, of which there are eight. It keeps the one that it had
// first.
function colour(id) {
  if (!state.colours.has(id)) state.colours.set(id, state.colours.size % 8);
  return "m" + state.colours.get(id);
}

function showShares(members) {
  const svg = shape("svg", { viewBox: "0 0 1000 16", preserveAspectRatio: "none" });
  let x = 0;
  for (const m of members) {
    const width = Math.max(0, m.share * 1000 - (members.length > 1 ? 2 : 0));
    const rect = shape("rect", {
      class: colour(m.id),
      x: (x * 1000).toFixed(1),
      width: width.toFixed(1),
      height: 16,
    });
    rect.append(
      shape(
        "title",
        {},
        `${m.id}: ${number.format(m.partitions)} partitions, ${(m.share * 100).toFixed(1)} %`,
      ),
    );
    svg.append(rect);
    x += m.share;
  }
  $("shares").replaceChildren(svg);
}

// rates compares the counters of a member with those of the view before. now is when its view was
// read: rows are also drawn again for other reasons.
function rates(m, now) {
  const s = m.status,
    id = m.id + " " + m.started;
  const known = state.traffic.get(id) || { rates: [] };
  state.traffic.set(id, known);
  if (known.seen === now) return known.result; // it is shown again
  known.seen = now;
  const before = known.before;
  known.before = s && {
    ops: s.ops_total,
    forwarded: s.forwarded_total,
    served: s.served_total,
    now,
  };
  known.result = { history: known.rates };
  if (!s || !before || now - before.now > 5 * PERIOD) return known.result;
  const ops = s.ops_total - before.ops;
  const traffic = perSecond(s.ops_total, before.ops, now - before.now);
  known.rates.push(traffic);
  if (known.rates.length > KEPT) known.rates.shift();
  known.result = {
    history: known.rates,
    traffic,
    served: perSecond(s.served_total, before.served, now - before.now),
    forwarded:
      ops > 0 ? Math.round(((s.forwarded_total - before.forwarded) / ops) * 100) + " %" : "–",
  };
  return known.result;
}

function moving(s) {
  const from = s.outgoing + s.moving;
  return (
    [...(s.incoming ? ["+" + figure(s.incoming)] : []), ...(from ? ["−" + figure(from)] : [])].join(
      " ",
    ) || "–"
  );
}

const CELLS = [
  ["Member", "who"],
  ["State", "states"],
  ["Partitions", "num"],
  ["Moving", "num"],
  ["Traffic", "traffic"],
  ["Forwarded", "num"],
  ["For others", "num"],
  ["Pending", "num"],
];

// memberRow makes the row of a member, empty.
function memberRow({ m }) {
  const row = element(
    "tr",
    {},
    ...CELLS.map(([label, kind]) =>
      element(label === "Member" ? "th" : "td", { "data-label": label, class: kind }),
    ),
  );
  const [who, states, partitions, , traffic] = row.children;
  who.scope = "row";
  who.append(
    element("span", { class: "swatch " + colour(m.id), "aria-hidden": "true" }),
    element("a", { href: location.protocol + "//" + m.address + "/" }, m.id),
    element("small", {}),
  );
  states.append(element("span", { class: "state" }), element("small", { class: "why" }));
  partitions.append(element("span", {}), element("small", {}));
  traffic.append(element("b", {}), element("span", { class: "plot inline" }));
  return row;
}

// fillMember writes what is known of a member that is there.
function fillMember(row, m, c, now) {
  const s = m.status,
    r = rates(m, now),
    unknown = "?";
  const [who, states, partitions, move, traffic, forwarded, served, pending] = row.children;
  const version = s && s.version ? ", " + s.version : "";
  write(who.lastChild, m.address + (m.self ? ", this node" : "") + version);
  states.firstChild.className =
    "state badge " + ({ alive: "good", suspect: "bad" }[m.state] || "warn");
  write(states.firstChild, m.state);
  const mode = s ? s.mode : m.mode;
  write(
    states.lastChild,
    [
      ...(mode && mode !== c.mode ? [mode] : []),
      ...(s && s.ring_version !== c.ring_version ? ["sees other members"] : []),
      ...(s && !s.redis_up ? ["Redis is down for it"] : []),
    ].join(", "),
  );
  write(partitions.firstChild, number.format(m.partitions));
  write(partitions.lastChild, ` ${(m.share * 100).toFixed(1)} %`);
  write(move, s ? moving(s) : unknown);
  write(traffic.firstChild, r.traffic === undefined ? "–" : figure(r.traffic));
  spark(traffic.lastChild, r.history, 22, 120, KEPT);
  write(forwarded, r.forwarded || "–");
  write(served, r.served === undefined ? "–" : figure(r.served));
  write(pending, s ? figure(s.pending_buckets) : unknown);
}

// fillDeparted writes when and why a member has gone.
function fillDeparted(row, d) {
  const [who, states, ...rest] = row.children;
  write(who.lastChild, d.address);
  states.firstChild.className = "state badge " + (d.why === "crashed" ? "bad" : "");
  write(states.firstChild, d.why === "crashed" ? "gone" : "left");
  const ago = long(Date.now() - d.at) + " ago";
  const ran = d.started ? `, ran for ${long(d.at - d.started)}` : "";
  write(
    states.lastChild,
    (d.why === "crashed" ? "crashed, or can't be reached, " : "stopped as asked ") +
      `since ${clock(d.at)}, ${ago}${ran}`,
  );
  states.colSpan = CELLS.length - 1;
  rest.forEach((cell) => {
    cell.hidden = true;
  });
}

function showMembers() {
  const c = state.view;
  const there = new Set(c.members.map((m) => m.id));
  const rows = [
    ...c.members.map((m) => ({ key: m.id + " " + m.started, m })),
    ...state.departed
      .filter((d) => !there.has(d.id))
      .map((d) => ({ key: "gone " + d.id, m: d, gone: true })),
  ];
  sync(
    $("members"),
    rows,
    (r) => r.key,
    memberRow,
    (row, { m, gone }) => {
      row.classList.toggle("gone", Boolean(gone));
      if (gone) fillDeparted(row, m);
      else fillMember(row, m, c, state.at);
    },
  );
}

// noteVanished adds members that are not in the view any more to those that are gone, before the
// next events report them.
function noteVanished(c) {
  const there = new Set(c.members.map((m) => m.id));
  for (const m of state.view?.members || []) {
    if (there.has(m.id)) continue;
    const crashed = m.state !== "leaving";
    state.departed = [
      { ...m, at: Date.now(), why: crashed ? "crashed" : "left", missing: crashed },
      ...state.departed.filter((d) => d.id !== m.id),
    ];
    state.seen = -Infinity;
  }
}

// missingMembers returns the IDs of the members that have crashed, and did not come back.
export function missingMembers() {
  const there = new Set(state.view.members.map((m) => m.id));
  return state.departed.filter((d) => d.missing && !there.has(d.id)).map((d) => d.id);
}

export function showCluster(c, now) {
  noteVanished(c);
  state.view = c;
  state.at = now;
  const count = c.members.length;
  const under = c.members.reduce((n, m) => n + (m.status ? m.status.incoming : 0), 0);
  write(
    $("ring"),
    `${count} ${count === 1 ? "member" : "members"}, ${number.format(c.partitions)} partitions` +
      (under ? `, ${figure(under)} on their way to another` : ""),
  );
  $("ring").title = "ring version " + c.ring_version;
  showShares(c.members);
  showMembers();
  for (const [id, known] of state.traffic) if (known.seen !== now) state.traffic.delete(id);
}

const KINDS = {
  crashed: "bad",
  silent: "bad",
  "redis-lost": "bad",
  "redis-data-lost": "bad",
  "clock-doubted": "warn",
  left: "warn",
  draining: "warn",
  answering: "good",
  joined: "good",
  "redis-back": "good",
  "clock-trusted": "good",
  started: "good",
};

const EVENTS_EVERY = 2000;

// refreshEvents shows the events, and remembers the members that are gone.
export async function refreshEvents(now) {
  if (now - state.seen < EVENTS_EVERY) return;
  state.seen = now;
  const all = await read("/v1/events");
  state.departed = all.departed;
  if (state.view) showMembers();
  write(
    $("events-note"),
    all.events.length + (all.missing ? "; not heard of " + all.missing.join(", ") : ""),
  );
  sync(
    $("events"),
    all.events.slice(0, 200),
    (e) => [e.at, e.kind, e.member, e.text].join(" "),
    (e) =>
      element(
        "tr",
        {},
        element(
          "td",
          { class: "when" },
          element("time", { datetime: new Date(e.at).toISOString() }, clock(e.at)),
        ),
        element(
          "td",
          { class: "what" },
          element("span", { class: "badge " + (KINDS[e.kind] || "") }, e.kind),
          " " + e.text,
        ),
        element("td", {}),
      ),
    (row, e) => write(row.lastChild, e.nodes.join(", ")),
  );
}

// forget drops what rates are computed from: nobody has looked for a while.
export const forget = () => state.traffic.clear();
