package pagetest

import (
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
)

// unreadable is an expression that lists the parts of a page that can't be read or tapped at this
// width: it scrolls sideways, a cell of a table is cut off, overlaps the next one or lies outside
// of the screen, or a control is too small for a finger.
const unreadable = `(() => {
	const wrong = [], shown = (e) => e.getClientRects().length > 0;
	const name = (e) => e.id || e.title || e.ariaLabel || e.textContent.trim() || e.tagName;
	const root = document.documentElement;
	if (root.scrollWidth > innerWidth || document.body.scrollWidth > innerWidth)
		wrong.push("it scrolls sideways: " + root.scrollWidth);
	for (const row of document.querySelectorAll("tr")) {
		if (!shown(row) || row.closest("details:not([open])")) continue;
		let last = null;
		for (const cell of row.cells) {
			const at = cell.getBoundingClientRect();
			if (!shown(cell) || !at.width || !cell.textContent.trim()) continue;
			if (at.left < -1 || at.right > innerWidth + 1)
				wrong.push("outside: " + name(cell));
			if (cell.scrollWidth > cell.clientWidth + 1 &&
				getComputedStyle(cell).textOverflow !== "ellipsis")
				wrong.push("cut off: " + name(cell));
			if (last && at.left < last.right - 1 && at.top < last.bottom - 1 &&
				last.top < at.bottom - 1)
				wrong.push("overlaps: " + name(cell));
			last = at;
		}
	}
	for (const e of document.querySelectorAll("button, select, input, textarea, summary")) {
		const at = e.getBoundingClientRect();
		if (shown(e) && at.height > 1 && at.height < 40)
			wrong.push("small: " + name(e) + " " + at.height);
	}
	return wrong;
})()`

// TestPhone opens the page on a phone, with long keys, and expands everything: all of it can be
// read and tapped.
func TestPhone(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	acquire(node, 14, 7)
	long := "a-key-as-long-as-they-are-where-people-put-a-whole-path-into-it/and-then-some"
	node.MustPost("/v1/add", `{"key":"`+long+`","n":99}`)
	p := b.open(node, "#ns=default&key=user:1")
	p.tell("Emulation.setDeviceMetricsOverride", map[string]any{"width": 390, "height": 844,
		"deviceScaleFactor": 2, "mobile": true})
	p.until("a key is shown", `document.querySelector("#series svg .bar") &&
		document.querySelectorAll("#counts tr").length > 3`)
	p.until("decisions are drawn", `document.querySelector("#decisions svg polyline")`)
	p.until("the long key is listed", `document.querySelector("#top").textContent.includes("whole")`)
	p.until("it is laid out for a phone", `innerWidth === 390`)
	legible := func(what string) {
		t.Helper()
		var wrong []string
		p.eval(unreadable, &wrong)
		for _, w := range wrong {
			t.Errorf("%s: %s", what, w)
		}
	}
	legible("opened")
	p.shoot("phone.png")
	p.eval(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`, nil)
	p.until("the versions are listed", `document.querySelector("#rules-history").open &&
		document.querySelector("#rules-history tbody tr")`)
	legible("details")
	p.click("#rules-edit")
	p.until("the editor is open", `document.querySelector("#rules-text").value.includes("login")`)
	legible("the editor")
	p.shoot("phone-editor.png")
}
