// Warnings: what of the settings, rules and requests probably does something else than was intended.
import { $, element, read, sync, write } from "./page.js";

const state = { read: -Infinity };
const EVERY = 5000;

// SHARED is how warnings begin that matter at once: clients share one key.
const SHARED = "forwarded-";

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

// summary returns the line of the banner: the number of warnings, and the reason of one that matters
// at once.
function summary(list) {
  const shared = list.find((w) => w.code.startsWith(SHARED));
  const several = list.length === 1 ? "1 warning" : `${list.length} warnings`;
  return shared ? `${several}: ${shared.at}: ${shared.reason}` : several + " of this node";
}

export async function refreshWarnings(now) {
  if (now - state.read < EVERY) return;
  state.read = now;
  const { warnings } = await read("/v1/rules?warnings=true");
  const banner = $("warnings");
  banner.hidden = !warnings.length;
  if (!warnings.length) return;
  write($("warnings-summary"), summary(warnings));
  sync($("warnings-list"), warnings, (w) => JSON.stringify(w), item, () => {});
}
