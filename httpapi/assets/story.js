// The story of a demonstration: its current chapter, and buttons to repeat chapters or to go on. Only
// twotier demo serves this file.
import { $, TOKEN, ask, element, long, postJSON, show, sync, write } from "./page.js";

// The link from the terminal carries the token in its fragment, which no server sees. It is kept for
// this tab only, and sent with each request of the page. Links to the other nodes carry it on.
const linked = new URLSearchParams(location.hash.slice(1)).get("demo");
if (linked) {
  sessionStorage.setItem(TOKEN, linked);
  history.replaceState(null, "", location.pathname);
}

const PERIOD = 500;
const state = { lookAt: "", begun: false };

function button(id, text, play, look = "") {
  const at = element("button", { type: "button", id, class: look }, text);
  at.addEventListener("click", () => steer(play()));
  return at;
}

// open puts the banner above the figures.
function open() {
  const look = button("story-show", "Show me", () => "");
  $("main").prepend(
    element(
      "section",
      { class: "card", id: "story", "aria-labelledby": "story-title", hidden: "" },
      element(
        "h2",
        {},
        element("span", { id: "story-place", class: "badge" }),
        element("span", { id: "story-title", role: "status" }),
        element("small", { id: "story-left" }),
      ),
      element(
        "div",
        { class: "meter", id: "story-meter", "aria-hidden": "true" },
        element("div", {}),
      ),
      element("p", { id: "story-text" }),
      element("p", { id: "story-look" }, element("span", {}), " ", look),
      element("p", { id: "story-figures" }),
      element("p", { id: "story-problem", class: "error", role: "alert" }),
      element(
        "div",
        { class: "buttons", id: "story-buttons" },
        button("story-again", "Again", () => "again"),
        button("story-next", "Next", () => "next", "primary"),
        element("ol", { id: "story-chapters", "aria-label": "Chapters" }),
      ),
      element("p", { id: "story-note", class: "note", role: "status", hidden: "" }),
    ),
  );
}

// steer goes to a chapter, or to the section that the current one is about.
async function steer(play) {
  if (!play) {
    const to = $(state.lookAt);
    to?.closest(".card, article, section").scrollIntoView({ block: "start", behavior: "smooth" });
    return;
  }
  try {
    draw(await postJSON("/v1/demo", { play }));
    show("story-note", "");
  } catch (e) {
    if (e.unauthorized) show("story-note", "Open the link that the terminal shows: it has the token for the buttons.");
    else if (!e.lost) show("story-note", e.message);
  }
}

function draw(p) {
  $("story").hidden = p.chapter < 0;
  if (p.chapter < 0) return;
  state.lookAt = p.look_at;
  if (!state.begun && "started" in document.body.dataset) {
    state.begun = true;
    $("decisions-window").firstElementChild.click(); // a minute: the story is short
  }
  write($("story-place"), `${p.chapter + 1} of ${p.chapters.length}`);
  write($("story-title"), p.over ? "The story is over" : p.chapters[p.chapter].title);
  const left = p.over ? 0 : p.left_ms;
  write($("story-left"), left ? `next in ${long(left)}` : p.over ? "the traffic goes on" : "");
  $("story-meter").firstElementChild.style.width =
    (p.over ? 100 : 100 * (1 - Math.min(1, left / p.step_ms))).toFixed(1) + "%";
  write($("story-text"), p.text);
  write($("story-look").firstElementChild, "Look at: " + p.look);
  write($("story-figures"), p.figures);
  write($("story-problem"), p.problem || "");
  sync(
    $("story-chapters"),
    p.chapters.map((c, i) => ({ ...c, current: i === p.chapter })),
    (c) => c.name,
    (c) => element("li", {}, button("story-to-" + c.name, c.title, () => c.name)),
    (at, c) => {
      if (c.current) at.firstChild.setAttribute("aria-current", "step");
      else at.firstChild.removeAttribute("aria-current");
    },
  );
}

async function run() {
  try {
    if (!document.hidden) draw(await (await ask("/v1/demo")).json());
  } catch (e) {
    if (!e.lost && !e.status) reportError(e); // the page reports what is lost
  }
  setTimeout(run, PERIOD);
}

$("members").addEventListener("click", (e) => {
  const link = e.target.closest("a");
  const token = sessionStorage.getItem(TOKEN);
  if (link && token) link.hash = "demo=" + token;
});
open();
run();
