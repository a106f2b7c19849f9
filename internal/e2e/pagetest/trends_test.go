package pagetest

import (
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
)

// TestRulesShowTheirRefusals draws the refusals of each rule over time, those in shadow too, and
// describes them for people who can't see the picture.
func TestRulesShowTheirRefusals(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	acquire(node, 1, 5)
	p := b.open(node, "")
	label := func(rule string) string {
		return `document.querySelector('[data-trend="` + rule + `"]')?.ariaLabel`
	}
	p.until("what a rule refused is described", label("login")+
		`?.startsWith("login refused 2 in the last hour, most of them, 2, from ")`)
	p.until("what one in shadow would have refused, too", label("tight")+
		`?.startsWith("tight would have refused 4 in the last hour, most of them, ")`)
	var drawn string
	p.eval(`[...document.querySelectorAll(".trend")].map((e) => e.getAttribute("role") +
		Boolean(e.querySelector("polyline")) + e.classList.contains("shadow")).join()`, &drawn)
	if drawn != "imgtruefalse,imgtruetrue" {
		t.Errorf("drawn is %s", drawn)
	}
	p.click(`#rules-span [data-window="24h"]`)
	p.until("a day is shown", label("login")+`.startsWith("login refused 2 in the last 24 hours")`)
}
