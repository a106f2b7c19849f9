// The page: reads the figures of the node every second, and says so when it has none.
import { $, TOKEN, ask, badge, clock, long, read, show, write } from "./page.js";
import { openOverview, refreshDecisions, showOverview } from "./overview.js";
import { forget, missingMembers, refreshEvents, showCluster } from "./members.js";
import { openKeys, refreshKey, reveal } from "./keys.js";
import { openLists, refreshLists, showSince } from "./lists.js";
import { openRules, refreshRules } from "./rules.js";
import { openBans, refreshBans } from "./bans.js";
import { openTrends } from "./trends.js";
import { openTrials } from "./trial.js";
import { refreshWarnings } from "./warnings.js";

// How often the figures are read, and how long they are current without an answer.
const PERIOD = 1000,
  LATE = 3000;
const state = { answered: 0, revealed: false };

function askForToken(detail) {
  $("login").hidden = false;
  write($("login-error"), sessionStorage.getItem(TOKEN) ? detail : "");
  badge("state", "a token is needed", "warn");
}

// stale says since when nothing has been heard. What is on the page is from then, and looks it.
function stale() {
  document.body.classList.add("stale");
  badge("state", "no answer", "bad");
  if (!state.answered) return show("stale", "This node does not answer.");
  show(
    "stale",
    `This node has not answered since ${clock(state.answered)}, for ${long(Date.now() - state.answered)}: the figures are from then.`,
  );
  document.title = "no answer – twotier";
}

function answered() {
  state.answered = Date.now();
  document.body.classList.remove("stale");
  document.title = "twotier";
  show("stale", "");
  write($("clock"), "updated " + clock(state.answered));
  $("login").hidden = true;
}

function failed(e) {
  if (e.unauthorized) return askForToken(e.message);
  if (e.lost) return stale();
  badge("state", e.message, "bad");
}

// refresh reads everything once. What is degraded fails by itself; the rest of the page goes on.
async function refresh() {
  const now = performance.now();
  const parts = [
    refreshDecisions,
    refreshLists,
    refreshEvents,
    refreshRules,
    refreshBans,
    refreshWarnings,
    refreshKey,
  ].map((part) =>
    part(now).catch((e) => {
      if (!e.status && !e.lost) reportError(e); // a mistake of this page
      return e;
    }),
  );
  const late = setTimeout(stale, LATE);
  let error;
  try {
    const cluster = await read("/v1/cluster?nodes=true");
    clearTimeout(late);
    showCluster(cluster, now);
    showOverview(cluster, missingMembers());
    showSince(cluster.members);
  } catch (e) {
    error = e;
    clearTimeout(late);
  }
  error ||= (await Promise.all(parts)).find((e) => e && (e.unauthorized || e.lost));
  if (error) failed(error);
  else answered();
}

async function run() {
  if (!document.hidden) await refresh();
  if (!state.revealed) reveal(); // what is above the key has its height now
  state.revealed = true;
  setTimeout(run, PERIOD);
}

// showRaw shows what a link of the footer leads to: following it would send no token. It is left
// alone where none is needed.
async function showRaw(e) {
  if (e.ctrlKey || e.metaKey || e.shiftKey || (!sessionStorage.getItem(TOKEN) && $("login").hidden))
    return;
  e.preventDefault();
  const path = e.currentTarget.getAttribute("href");
  try {
    const response = await ask(path);
    const json = response.headers.get("Content-Type").startsWith("application/json");
    write(
      $("raw-text"),
      json ? JSON.stringify(await response.json(), null, 2) : await response.text(),
    );
    write($("raw-title"), path);
    $("raw").showModal();
  } catch (e) {
    failed(e);
    if (e.unauthorized) $("token").focus();
  }
}

for (const link of $("links").querySelectorAll("a[data-guarded]"))
  link.addEventListener("click", showRaw);
$("raw-close").addEventListener("click", () => $("raw").close());
$("login").addEventListener("submit", (e) => {
  e.preventDefault();
  sessionStorage.setItem(TOKEN, $("token").value.trim());
  $("token").value = "";
  refresh();
});
document.addEventListener("keydown", (e) => {
  if (e.key !== "/" || e.target.closest("input, textarea")) return;
  e.preventDefault();
  $("search").focus();
});
document.addEventListener("visibilitychange", forget);
openOverview(failed);
openRules();
openTrials();
openTrends();
openLists();
openKeys();
openBans();
document.body.dataset.started = ""; // from now on, a click has an effect
run();
