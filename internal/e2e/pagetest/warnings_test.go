package pagetest

import (
	"net/http"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestPageShowsWarnings opens the page of a node without warnings, sends requests for two clients
// from an untrusted proxy, and puts a rule with a window of one bucket in force. The page reports
// that clients share a key, the place of the rule, and a replacement for it.
func TestPageShowsWarnings(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	p := b.open(node, "")
	p.until("rules are shown", `document.querySelectorAll("#rules-rows tr").length === 2`)
	var hidden bool
	if p.eval(`document.querySelector("#warnings").hidden`, &hidden); !hidden {
		t.Errorf("warnings of nothing: %s", p.text("#warnings"))
	}
	for _, client := range []string{"203.0.113.7", "203.0.113.8"} {
		forward(t, node.Base+"/v1/forward-auth?rule=login&key=ip", client)
	}
	p.until("the banner names the address", `!document.querySelector("#shared").hidden &&
		/^127\.0\.0\.1: .*all clients behind it share one key.*--trusted-proxies/.test(
			document.querySelector("#shared-list").textContent)`)
	var top bool
	p.eval(`document.querySelector("#shared").getAttribute("role") === "alert" &&
		document.querySelector("#shared").getBoundingClientRect().top <
			document.querySelector(".cards").getBoundingClientRect().top &&
		document.querySelector("#warnings").hidden`, &top)
	if !top {
		t.Error("it does not stand alone above the figures")
	}

	p.click("#rules-edit")
	p.until("the editor is open", `!document.querySelector("#editor").hidden &&
		document.querySelector("#rules-text").value.includes("login")`)
	p.write("#rules-text", "rules:\n- {name: fast, limits: [1000/500ms]}\n")
	p.write("#rules-token", secret)
	p.click("#rules-apply")
	p.until("the editor says it", `/rules:2:25: coarse-window: .*\n  instead: namespaces/
		.test(document.querySelector("#rules-shown").textContent)`)
	p.until("the other one is counted", `document.querySelector("#warnings-summary").textContent ===
		"1 warning of this node"`)
	p.click("#warnings-summary")
	p.until("the list is open", `document.querySelector("#warnings").open`)
	list := p.text("#warnings-list")
	for _, want := range []string{"coarse-window", "rules:2:25",
		"Instead: namespaces: {default: {ladder: [50ms x 10"} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in %q", want, list)
		}
	}
	for _, width := range []int{390, 1200} {
		for _, scheme := range []string{"light", "dark"} {
			p.tell("Emulation.setDeviceMetricsOverride", map[string]any{"width": width,
				"height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
			p.tell("Emulation.setEmulatedMedia", map[string]any{"features": []any{
				map[string]any{"name": "prefers-color-scheme", "value": scheme}}})
			p.until("it fits", `document.documentElement.scrollWidth <= innerWidth`)
			p.shoot("warnings-" + scheme + map[bool]string{true: "-phone"}[width < 500] + ".png")
		}
	}
	p.write("#rules-text", "rules: []\n")
	p.click("#rules-apply")
	p.until("the rule is gone", `document.querySelector("#warnings").hidden &&
		!document.querySelector("#shared").hidden`)
}

// forward sends a request as a proxy does for a client.
func forward(t *testing.T, url, client string) {
	t.Helper()
	response, _, err := proctest.Send(http.DefaultClient, http.MethodGet, url, "",
		"X-Forwarded-For", client)
	must.Succeed(t, err)
	if response.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", url, response.Status)
	}
}
