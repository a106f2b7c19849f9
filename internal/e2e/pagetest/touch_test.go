package pagetest

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// phone makes the screen that of a phone, which is touched.
func (p *page) phone() {
	p.t.Helper()
	p.tell("Emulation.setDeviceMetricsOverride", map[string]any{"width": 390, "height": 844,
		"deviceScaleFactor": 2, "mobile": true})
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
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	acquire(node, 14, 7)
	p := b.open(node, "")
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
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	acquire(node, 3, 1)
	p := b.open(node, "")
	p.phone()
	p.until("keys are listed", `document.querySelectorAll("#top button").length === 3`)
	p.tapUntil("#top button", "the key is in sight", inSight)
	node.MustPost("/v1/add", `{"key":"newcomer","n":99}`)
	p.until("a new key is listed first",
		`document.querySelector("#top button").title === "newcomer"`)
}

// TestTappedChartIsRead taps a chart: the values there stay readable once the finger is lifted.
func TestTappedChartIsRead(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	acquire(node, 3, 6)
	p := b.open(node, "")
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
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	acquire(node, 14, 7)
	p := b.open(node, "")
	p.phone()
	p.tell("Page.navigate", map[string]any{"url": "about:blank"})
	p.until("it is gone", `location.href === "about:blank"`)
	p.tell("Page.navigate", map[string]any{"url": node.Base + "/#ns=default&key=user:1"})
	p.until("the lists are full", `document.querySelectorAll("#top button").length === 12 &&
		document.querySelectorAll("#shadowed button").length === 8 &&
		document.querySelectorAll("#rules-rows tr").length === 2`)
	p.until("the key is in sight", inSight)
}
