// What all parts of the page share: elements, numbers, requests, and lists that are updated in place.
//
// Everything that comes from the server is put on the page as text or as a number in an attribute,
// never as HTML: keys are chosen by whoever sends traffic.

export const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

export function element(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

export function shape(tag, attributes, text) {
  const e = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

export const number = new Intl.NumberFormat("en");
const brief = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const fraction = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });

// figure writes a number in a few characters.
export function figure(n) {
  if (Math.abs(n) >= 1e5) return brief.format(n);
  return (Number.isInteger(n) || Math.abs(n) >= 100 ? number : fraction).format(
    Math.abs(n) >= 100 ? Math.round(n) : n,
  );
}

// keysText writes a number of keys, or of more keys, or of something else.
export const keysText = (n, more = "", noun = "key") =>
  `${figure(n)} ${more}${noun}${n === 1 ? "" : "s"}`;

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)) + " " + units[i];
}

// seconds writes a duration that is given in seconds.
export function seconds(s) {
  if (s === 0) return "0 s";
  if (s < 1e-3) return Math.round(s * 1e6) + " µs";
  if (s < 1) return fraction.format(s * 1e3) + " ms";
  if (s < 120) return (s < 10 ? s.toFixed(1) : Math.round(s)) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  return s < 172800 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " d";
}

// long writes a duration that is given in milliseconds, and that people wait for.
export const long = (ms) =>
  ms < 120e3 ? Math.round(Math.max(0, ms) / 1e3) + " s" : seconds(ms / 1e3);

// clock writes a time of day, with the date unless it is of today.
export function clock(ms, precise = true) {
  const date = new Date(ms);
  const time = date.toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    ...(precise ? { second: "2-digit" } : {}),
  });
  if (date.toDateString() === new Date().toDateString()) return time;
  return date.toLocaleDateString([], { day: "numeric", month: "short" }) + " " + time;
}

// milliseconds reads a duration such as 1d2h3m4s.
export function milliseconds(text) {
  const unit = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5 };
  let sum = 0;
  for (const [, n, u] of text.matchAll(/([0-9]+)(ms|s|m|h|d|w)/g)) sum += Number(n) * unit[u];
  return sum;
}

// limitParts returns the maximum and the window of a limit in a document of rules: a text such as
// 15/1m, or an object with the fields of a calendar window, or with the number of concurrent holds,
// which are open instead of in a window.
export function limitParts(limit) {
  if (limit.concurrent !== undefined)
    return { max: Number(limit.concurrent), window: "open holds", open: true };
  if (typeof limit === "object") {
    const { max, window, zone, anchor } = limit;
    const at = anchor === undefined ? "" : "." + anchor;
    return { max: Number(max), window: window + at + (zone ? "@" + zone : "") };
  }
  const at = limit.indexOf("/");
  return { max: Number(limit.slice(0, at)), window: limit.slice(at + 1) };
}

// limitsIn returns the limits of a rule or an override in a document of rules. A single one need not
// be in a list, and the number of concurrent holds may stand beside the others.
export function limitsIn({ limits = [], concurrent }) {
  const all = [limits].flat();
  return concurrent === undefined ? all : [...all, { concurrent }];
}

// limitText writes a limit as 15/1m, or as 5 open holds.
export function limitText(limit) {
  const { max, window, open } = limitParts(limit);
  return max + (open ? " " : "/") + window;
}

export function facts(id, rows) {
  sync(
    $(id),
    rows,
    (row) => row[0],
    () => {
      const at = element("div", {}, element("dt", {}), element("dd", {}));
      return at;
    },
    (at, [name, value]) => {
      write(at.firstChild, name);
      write(at.lastChild, String(value));
    },
  );
}

export function badge(id, text, kind) {
  write($(id), text);
  $(id).className = "badge " + kind;
}

// write sets a text, and leaves alone what has it: what is selected stays selected, and a screen
// reader is not told again.
export function write(at, text) {
  if (at.textContent !== text) at.textContent = text;
}

// show writes a text into an element that is hidden while there is none.
export function show(id, text) {
  write($(id), text);
  $(id).hidden = !text;
}

// meter shows how much of something is used.
export function meter(id, share, text) {
  const at = $(id),
    part = Math.max(0, Math.min(1, share || 0));
  at.setAttribute("aria-valuenow", part.toFixed(3));
  at.setAttribute("aria-valuetext", text);
  at.firstElementChild.style.width = (part * 100).toFixed(1) + "%";
  at.classList.toggle("high", part > 0.8);
}

// sync makes the children of a list those of rows: each is made once, keeps its place in the document
// for as long as it has a row, and is updated in place, so that what is clicked, focused or selected
// is not replaced meanwhile. If the list is held, because somebody points at it, nothing moves,
// comes or goes.
export function sync(list, rows, keyOf, make, update, held = false) {
  const old = new Map([...list.children].map((child) => [child.rowKey, child]));
  if (held && old.size > 0) {
    for (const row of rows) if (old.has(keyOf(row))) update(old.get(keyOf(row)), row);
    return;
  }
  let next = list.firstElementChild;
  for (const row of rows) {
    const key = keyOf(row);
    let at = old.get(key);
    if (!at) {
      at = make(row);
      at.rowKey = key;
    }
    old.delete(key);
    update(at, row);
    if (at === next) next = next.nextElementSibling;
    else list.insertBefore(at, next);
  }
  for (const gone of old.values()) gone.remove();
}

let pressed = null,
  touching = false;
window.addEventListener("pointerover", (e) => {
  touching = e.pointerType === "touch";
});
for (const end of ["pointerup", "pointercancel"]) {
  window.addEventListener(end, () =>
    setTimeout(() => {
      pressed = null;
    }, 400),
  );
}

// held reports whether a list must not move: somebody points at it, presses it, or has a row of it
// in focus. A finger that is down does not hover everywhere, and one that is up still does.
export const held = (list) =>
  pressed === list ||
  (!touching && list.matches(":hover")) ||
  Boolean(list.querySelector(":focus-visible"));

// holdPressed has a list held from a press on it until shortly after.
export function holdPressed(list) {
  list.addEventListener("pointerdown", () => {
    pressed = list;
  });
}

// The token is kept for this tab only, and sent in a header: no other page can have the browser send
// it.
export const TOKEN = "twotier-token";
const PATIENCE = 8000;

// gone is the error of a request that was not answered.
function gone(cause) {
  const error = new Error("no answer: " + cause.message);
  error.lost = true;
  throw error;
}

// ask makes a request, and throws unless it succeeds.
export async function ask(path, options = {}) {
  const token = options.token || sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: "Bearer " + token } : {}) };
  const response = await fetch(path, {
    cache: "no-store",
    method: options.method,
    headers,
    body: options.body,
    signal: AbortSignal.timeout(options.patience || PATIENCE),
  }).catch(gone);
  if (response.ok) return response;
  let detail = response.status + " " + response.statusText;
  try {
    detail = (await response.json()).detail || detail;
  } catch {
    /* the status has to do */
  }
  const error = new Error(detail);
  error.status = response.status;
  error.unauthorized = response.status === 401 || response.status === 403;
  throw error;
}

export const read = async (path) => (await ask(path)).json().catch(gone);

export const postJSON = async (path, body, token, patience) =>
  (
    await ask(path, {
      method: "POST",
      token,
      patience,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    })
  ).json();

// tabs calls changed with the window of a button that is pressed.
export function tabs(id, changed) {
  const buttons = $(id).querySelectorAll("button");
  for (const button of buttons) {
    button.addEventListener("click", () => {
      for (const b of buttons) b.setAttribute("aria-pressed", String(b === button));
      changed(button.dataset.window);
    });
  }
}
