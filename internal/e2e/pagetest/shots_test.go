package pagetest

import (
	"encoding/base64"
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

// shots is the directory for pictures.
var shots = flag.String("shots", "", "save pictures of the page in this directory")

// TestPageFitsEveryScreen lays the page out on a phone and wide, light, dark and printed: nothing
// is wider than the screen.
func TestPageFitsEveryScreen(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	acquire(node, 14, 7)
	p := b.open(node, "#ns=default&key=user:1")
	p.until("a key is shown", `document.querySelector("#series svg .bar") &&
		document.querySelectorAll("#counts tr").length > 3`)
	p.until("decisions are drawn", `document.querySelector("#decisions svg polyline")`)
	for _, width := range []int{390, 1000, 1600} {
		for _, scheme := range []string{"light", "dark"} {
			p.tell("Emulation.setDeviceMetricsOverride", map[string]any{"width": width,
				"height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
			p.tell("Emulation.setEmulatedMedia", map[string]any{"features": []any{
				map[string]any{"name": "prefers-color-scheme", "value": scheme}}})
			p.until("it fits", fmt.Sprintf(`innerWidth === %d &&
				document.querySelector("#decisions svg").clientWidth < innerWidth &&
				document.documentElement.scrollWidth <= innerWidth`, width))
			p.shoot(fmt.Sprintf("%d-%s.png", width, scheme))
		}
	}
	p.tell("Emulation.setEmulatedMedia", map[string]any{"media": "print", "features": []any{}})
	p.until("nothing to click is printed",
		`getComputedStyle(document.querySelector("#lookup")).display === "none"`)
	p.shoot("print.png")
}

// shoot saves a picture of the whole page if pictures are wanted.
func (p *page) shoot(name string) {
	p.t.Helper()
	if *shots == "" {
		return
	}
	var shot struct{ Data string }
	must.Succeed(p.t, p.do(p.session, "Page.captureScreenshot",
		map[string]any{"captureBeyondViewport": true}, &shot))
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	must.Succeed(p.t, err)
	must.Write(p.t, filepath.Join(*shots, name), picture)
}
