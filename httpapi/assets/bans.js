// Bans: the keys that a rule has banned, and lifting a ban.
import {
  $,
  clock,
  element,
  figure,
  held,
  holdPressed,
  long,
  postJSON,
  read,
  show,
  sync,
  write,
  TOKEN,
} from "./page.js";
import { openKey } from "./keys.js";
import { rulesBan } from "./rules.js";

// wanted is the ban to lift once there is a token that may.
const state = { read: -Infinity, wanted: null };
const EVERY = 2000,
  LISTED = 100,
  LIFT = "Lift",
  ASKS = 8000;

// keyLink returns a link that shows a key.
function keyLink({ ns, key }) {
  const link = element("a", { href: "#" + new URLSearchParams({ ns, key }) });
  if (ns !== "default") link.append(element("span", { class: "ns" }, ns + " / "));
  link.append(key);
  link.addEventListener("click", (e) => {
    if (e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    openKey(ns, key);
  });
  return link;
}

function banRow(b) {
  const lift = element("button", { type: "button" });
  nameLift(b, lift, LIFT);
  const row = element(
    "tr",
    {},
    element("th", { scope: "row", class: "key" }, keyLink(b)),
    element("td", {}, b.rule),
    element("td", {}),
    element("td", { class: "num" }, element("span", { class: "buttons" }, lift)),
  );
  lift.addEventListener("click", () => {
    if (lift.textContent === LIFT) return askFirst(b, lift);
    liftBan(b, lift);
  });
  return row;
}

// nameLift names the button that lifts a ban.
function nameLift(b, button, text) {
  write(button, text);
  const question = text === LIFT ? "" : "?";
  button.setAttribute("aria-label", `${text.replace("?", "")} the ban of ${b.key}${question}`);
}

// askFirst has the next click lift the ban, for a while.
function askFirst(b, button) {
  nameLift(b, button, "Really lift?");
  setTimeout(() => {
    if (!button.disabled) nameLift(b, button, LIFT);
  }, ASKS);
}

// refreshBans lists the bans that end last, unless no rule bans.
export async function refreshBans(now) {
  $("bans").hidden = !rulesBan();
  if ($("bans").hidden || now - state.read < EVERY) return;
  state.read = now;
  let list;
  try {
    list = (await read(`/v1/bans?n=${LISTED}`)).bans;
    show("bans-note", "");
  } catch (e) {
    if (e.lost || e.unauthorized) throw e;
    return show("bans-note", "The bans can't be read: " + e.message);
  }
  const count = list.length < LISTED ? figure(list.length) : LISTED + " or more";
  write($("bans-count"), list.length ? count : "");
  show("bans-empty", list.length ? "" : "No key is banned.");
  $("bans-table").hidden = !list.length;
  sync(
    $("bans-rows"),
    list,
    (b) => [b.ns, b.rule, b.key, b.until].join(" "),
    banRow,
    (row, b) => write(row.children[2], `${clock(b.until)}, in ${long(b.retry_after_ms)}`),
    held($("bans-rows")),
  );
}

function say(error, done) {
  write($("bans-error"), error);
  write($("bans-done"), done);
}

// liftBan lifts a ban, or asks for a token that may. Its row stays while the list is held, so that
// a second click does not lift the next ban.
async function liftBan(b, button) {
  const token = $("bans-token").value.trim() || sessionStorage.getItem(TOKEN) || "";
  button.disabled = true;
  try {
    const { lifted } = await postJSON("/v1/unban", { rule: b.rule, key: b.key }, token);
    write(button, "Lifted");
    $("bans-access").hidden = true;
    state.read = -Infinity;
    say("", lifted ? `${b.rule} no longer bans ${b.key}.` : `${b.rule} did not ban ${b.key} any more.`);
    $("bans-done").focus();
  } catch (e) {
    button.disabled = false;
    nameLift(b, button, LIFT);
    say(e.message, "");
    if (!e.unauthorized) return;
    state.wanted = [b, button];
    $("bans-access").hidden = false;
    $("bans-token").focus();
  }
}

export function openBans() {
  holdPressed($("bans-rows"));
  $("bans-access").addEventListener("submit", (e) => {
    e.preventDefault();
    liftBan(...state.wanted);
  });
}
