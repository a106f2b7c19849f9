// Warnings: what of the settings, rules and requests probably does something else than was intended.
import { $, element, read, sync, write } from "./page.js";

const state = { read: -Infinity };
const EVERY = 5000;

// SHARED are the warnings that matter at once: one client uses up the limit of all, because they
// share one key.
const SHARED = ["forwarded-untrusted", "forwarded-missing", "forwarded-malformed", "no-key-source"];

function item(w) {
  return element(
    "li",
    {},
    element("span", { class: "badge warn" }, w.code),
    " ",
    element("code", {}, w.at),
    element("p", {}, w.reason),
    element("p", { class: "instead" }, "Instead: " + w.instead),
  );
}

// sharedItem shows the place that clients share, and what to do.
const sharedItem = (w) =>
  element(
    "li",
    {},
    element("strong", {}, w.at),
    ": " + w.reason + ".",
    element("p", { class: "instead" }, "Instead: " + w.instead),
  );

// fill shows warnings in a list whose box is hidden while there are none.
function fill(box, list, warnings, make) {
  $(box).hidden = !warnings.length;
  sync($(list), warnings, (w) => JSON.stringify(w), make, () => {});
}

export async function refreshWarnings(now) {
  if (now - state.read < EVERY) return;
  state.read = now;
  const { warnings } = await read("/v1/rules?warnings=true");
  const shared = warnings.filter((w) => SHARED.includes(w.code)),
    others = warnings.filter((w) => !SHARED.includes(w.code));
  fill("shared", "shared-list", shared, sharedItem);
  fill("warnings", "warnings-list", others, item);
  write(
    $("warnings-summary"),
    (others.length === 1 ? "1 warning" : `${others.length} warnings`) + " of this node",
  );
}
