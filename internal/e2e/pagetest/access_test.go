package pagetest

import (
	"encoding/json"
	"slices"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestEverythingHasAName reads the page as a screen reader does: focusable elements, tables and
// regions have names, headings skip no level, and no ID is used twice.
func TestEverythingHasAName(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	acquire(node, 4, 5)
	p := b.open(node, "#ns=default&key=user:1")
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
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	acquire(node, 2, 1)
	p := b.open(node, "")
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
