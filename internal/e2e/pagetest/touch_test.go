package pagetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// screen sets the size of the screen, which is that of a phone if it is narrow.
func (p *page) screen(width, height int) {
	p.t.Helper()
	p.tell("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": 1, "mobile": width < 500})
}

// scheme sets the colours that the user prefers.
func (p *page) scheme(scheme string) {
	p.t.Helper()
	p.tell("Emulation.setEmulatedMedia", map[string]any{"features": []any{
		map[string]any{"name": "prefers-color-scheme", "value": scheme}}})
}

// fitsEveryScreen shows the page on a phone and wide, light and dark: nothing is wider than the
// screen, and on a phone everything can be read and tapped.
func (p *page) fitsEveryScreen(name string) {
	p.t.Helper()
	for _, width := range []int{390, 1000, 1600} {
		for _, scheme := range []string{"light", "dark"} {
			p.screen(width, 900)
			p.scheme(scheme)
			p.until("it fits", fmt.Sprintf(`innerWidth === %d &&
				document.documentElement.scrollWidth <= innerWidth`, width))
			if width < 500 {
				p.legible(name)
			}
			p.shoot(fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
		}
	}
}

// legible checks that everything can be read and tapped at this width.
func (p *page) legible(what string) {
	p.t.Helper()
	var wrong []string
	if p.eval(unreadable, &wrong); len(wrong) > 0 {
		p.t.Errorf("%s: %q", what, wrong)
	}
}

// phone makes the screen that of a phone, which is touched.
func (p *page) phone() {
	p.t.Helper()
	p.screen(390, 844)
	p.tell("Emulation.setTouchEmulationEnabled", map[string]any{"enabled": true})
	p.until("it is laid out for a phone", "innerWidth === 390")
}

// touch taps with a finger at a point.
func (p *page) touch(x, y float64) {
	p.t.Helper()
	p.tell("Input.dispatchTouchEvent", map[string]any{"type": "touchStart",
		"touchPoints": []any{map[string]any{"x": x, "y": y}}})
	p.tell("Input.dispatchTouchEvent", map[string]any{"type": "touchEnd", "touchPoints": []any{}})
}

// tap taps the middle of the first element that a selector matches.
func (p *page) tap(selector string) {
	p.t.Helper()
	p.aim(selector, "pointerdown", p.touch)
}

// tapUntil taps an element until an expression holds: like a person, again if nothing has come of
// it, because the list was drawn anew between the finger's coming and going.
func (p *page) tapUntil(selector, what, expression string) {
	p.t.Helper()
	proctest.UntilNil(p.t, what, func() error {
		p.tap(selector)
		for range 50 {
			var holds bool
			if err := p.evaluate("Boolean("+expression+")", &holds); err != nil || holds {
				return err
			}
			time.Sleep(100 * time.Millisecond)
		}
		return fmt.Errorf("%s does not hold", expression)
	})
}

// inSight is an expression that is true if the counts of a key are on the screen.
const inSight = `(() => {
	const row = document.querySelector("#counts tr");
	const at = row && row.getClientRects().length && row.getBoundingClientRect();
	return Boolean(at) && at.top >= 0 && at.bottom <= innerHeight; })()`

// TestTappedKeyIsShown taps keys on a phone: their counts come into sight, also when the top of the
// card is already on the screen.
func TestTappedKeyIsShown(t *testing.T) {
	_, p := opened(t, 14, 7, "")
	p.phone()
	p.until("keys are listed", `document.querySelectorAll("#top button").length === 12 &&
		document.querySelectorAll("#shadowed button").length === 8`)
	p.tapUntil("#top button", "the key is in sight", inSight)
	p.shoot("phone-key.png")
	var at []float64
	p.eval(`(() => {
		const top = document.querySelector("#lookup").parentElement.getBoundingClientRect().top;
		scrollBy({ top: top - innerHeight + 140, behavior: "instant" });
		const r = document.querySelector("#shadowed li:last-child button").getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2]; })()`, &at)
	p.touch(at[0], at[1])
	p.until("another key is in sight", `document.querySelector("#found-title").textContent ===
		document.querySelector("#shadowed li:last-child button").title && `+inSight)
}

// TestTappedListMovesOn taps a key: the list goes on to follow the traffic, although the finger was
// last on it.
func TestTappedListMovesOn(t *testing.T) {
	node, p := opened(t, 3, 1, "")
	p.phone()
	p.until("keys are listed", `document.querySelectorAll("#top button").length === 3`)
	p.tapUntil("#top button", "the key is in sight", inSight)
	node.MustPost("/v1/add", `{"key":"newcomer","n":99}`)
	p.until("a new key is listed first",
		`document.querySelector("#top button").title === "newcomer"`)
}

// TestTappedChartIsRead taps a chart: the values there stay readable once the finger is lifted.
func TestTappedChartIsRead(t *testing.T) {
	_, p := opened(t, 3, 6, "")
	p.phone()
	p.until("decisions are drawn", `document.querySelector("#decisions svg polyline")`)
	p.tap("#decisions .canvas")
	const read = `/allowed .*refused/.test(
		document.querySelector("#decisions .readout").textContent)`
	p.until("values are read", read)
	p.eval(`window.was = document.querySelector("#clock").textContent`, nil)
	p.until("the page has been updated",
		`document.querySelector("#clock").textContent !== window.was`)
	var still bool
	if p.eval(read, &still); !still {
		t.Error("the values are gone")
	}
}

// TestLinkOpensOnAPhone opens a link to a key on a phone: the key comes into sight, and stays there
// while the lists above it fill.
func TestLinkOpensOnAPhone(t *testing.T) {
	node, p := opened(t, 14, 7, "")
	p.phone()
	p.tell("Page.navigate", map[string]any{"url": "about:blank"})
	p.until("it is gone", `location.href === "about:blank"`)
	p.tell("Page.navigate", map[string]any{"url": node.Base + "/#ns=default&key=user:1"})
	p.until("the lists are full", `document.querySelectorAll("#top button").length === 12 &&
		document.querySelectorAll("#shadowed button").length === 8 &&
		document.querySelectorAll("#rules-rows tr").length === 2`)
	p.until("the key is in sight", inSight)
}

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
	node := serve(t, document)
	acquire(node, 14, 7)
	long := "a-key-as-long-as-they-are-where-people-put-a-whole-path-into-it/and-then-some"
	node.MustPost("/v1/add", `{"key":"`+long+`","n":99}`)
	p := b.open(node, "#ns=default&key=user:1")
	p.screen(390, 844)
	p.until("a key is shown", `document.querySelector("#series svg .bar") &&
		document.querySelectorAll("#counts tr").length > 3`)
	p.until("decisions are drawn", `document.querySelector("#decisions svg polyline")`)
	p.until("the long key is listed", `document.querySelector("#top").textContent.includes("whole")`)
	p.until("it is laid out for a phone", `innerWidth === 390`)
	p.legible("opened")
	p.shoot("phone.png")
	p.eval(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`, nil)
	p.until("the versions are listed", `document.querySelector("#rules-history").open &&
		document.querySelector("#rules-history tbody tr")`)
	p.legible("details")
	p.click("#rules-edit")
	p.until("the editor is open", `document.querySelector("#rules-text").value.includes("login")`)
	p.legible("the editor")
	p.shoot("phone-editor.png")
}

// TestEverythingHasAName reads the page as a screen reader does: focusable elements, tables and
// regions have names, headings skip no level, and no ID is used twice.
func TestEverythingHasAName(t *testing.T) {
	_, p := opened(t, 4, 5, "#ns=default&key=user:1")
	p.until("a key is shown", `document.querySelector("#series svg .bar")`)
	p.until("keys are listed", `document.querySelectorAll("#top button").length === 4`)
	p.click("#rules-edit")
	p.until("the editor is open", `document.querySelector("#rules-text").value.includes("login")`)
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value json.RawMessage }
			Properties []struct {
				Name  string
				Value struct{ Value json.RawMessage }
			}
		}
	}
	must.Succeed(t, p.do(p.session, "Accessibility.getFullAXTree", nil, &tree))
	named := []string{`"table"`, `"image"`, `"img"`, `"region"`, `"meter"`, `"group"`, `"button"`,
		`"link"`, `"textbox"`, `"searchbox"`, `"radio"`, `"combobox"`}
	seen := 0
	for _, n := range tree.Nodes {
		role := string(n.Role.Value)
		if n.Ignored || !slices.Contains(named, role) {
			continue
		}
		seen++
		if name := string(n.Name.Value); name == `""` || name == "" {
			t.Errorf("a %s has no name: %+v", role, n)
		}
	}
	if seen < 30 {
		t.Errorf("only %d elements", seen)
	}
	var wrong []string
	p.eval(`(() => {
		const wrong = [], ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
		for (const id of new Set(ids))
			if (ids.filter((i) => i === id).length > 1) wrong.push("twice: " + id);
		let level = 0;
		for (const h of document.querySelectorAll("h1, h2, h3")) {
			const to = Number(h.tagName[1]);
			if (!h.getClientRects().length) continue;
			if (to > level + 1) wrong.push("heading: " + h.textContent);
			level = to;
		}
		for (const t of document.querySelectorAll("table"))
			if (!t.caption || !t.querySelector("th[scope=col]"))
				wrong.push("table: " + t.outerHTML.slice(0, 80));
		if (!document.documentElement.lang) wrong.push("no language");
		return wrong;
	})()`, &wrong)
	if len(wrong) > 0 {
		t.Error(wrong)
	}
}

// TestKeyboardReachesEverything goes through the page with the tab key: every clickable element
// receives the focus, and shows it.
func TestKeyboardReachesEverything(t *testing.T) {
	_, p := opened(t, 2, 1, "")
	p.until("keys are listed", `document.querySelectorAll("#top button").length === 2`)
	p.until("rules are shown", `document.querySelectorAll("#rules-rows tr").length === 2`)
	p.eval(`document.body.focus()`, nil)
	reached := map[string]bool{}
	for range 60 {
		p.key("Tab")
		var at struct {
			ID      string
			Outline string
		}
		p.eval(`(() => { const e = document.activeElement;
			return { id: e === document.body ? "" : e.id || e.title || e.dataset.window ||
					e.className || e.textContent,
				outline: getComputedStyle(e).outlineStyle }; })()`, &at)
		reached[at.ID] = true
		if at.Outline == "none" && at.ID != "" && at.ID != "main" {
			t.Errorf("%s does not show that it has the focus", at.ID)
		}
	}
	for _, id := range []string{"skip", "1h", "24h", "search", "user:0", "user:1", "ns", "key",
		"series-window", "rules-edit", "canvas"} {
		if !reached[id] {
			t.Errorf("%s is not reached: %v", id, reached)
		}
	}
}
