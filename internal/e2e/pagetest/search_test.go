package pagetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/redistest"
)

// TestSearchFindsEveryKey searches among more keys than a list has: the beginning of a key finds
// it, however little it counted, and so does its part among the first 1,000. The result follows new
// counts.
func TestSearchFindsEveryKey(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	for i := range 11 {
		ops := make([]string, 100)
		for j := range ops {
			ops[j] = fmt.Sprintf(`{"op":"add","key":"busy:%d-%d","n":9}`, i, j)
		}
		node.MustPost("/v1/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	}
	node.MustPost("/v1/add", `{"key":"Rare:anna","n":2}`)
	node.MustPost("/v1/add", `{"key":"Rare:ben","ns":"sms","n":1}`)
	for range 5 {
		node.MustPost("/v1/acquire", `{"key":"Rare:cleo","rules":["login"]}`)
	}
	p := b.open(node, "")
	p.click(`#top-window [data-window="1h"]`)
	p.until("keys are listed", `document.querySelectorAll("#top button").length === 12`)
	const rows = `[...document.querySelectorAll("#top button")].map((e) => e.textContent).join()`
	p.write("#search", "Rare:")
	p.until("they are found", rows+` === "Rare:cleo3,Rare:anna2,sms / Rare:ben1"`)
	p.until("the refused one is", `document.querySelector("#refused").textContent ===
		"Rare:cleo2"`)
	p.mouse("mouseMoved", 1, 1)
	node.MustPost("/v1/add", `{"key":"Rare:dora","n":7}`)
	p.until("so is a new one", rows+`.startsWith("Rare:dora7,Rare:cleo3,")`)
	x, y := p.middle("#top button")
	p.mouse("mouseMoved", x, y) // a search moves the list even under the pointer
	p.write("#search", "nobody")
	p.until("nobody is", `/^No key that begins with it counted in the last 1h, /.test(
		document.querySelector("#top-empty").textContent)`)
	p.write("#search", "-99")
	p.until("parts are searched too", `document.querySelectorAll("#top button").length > 5`)
	p.write("#search", "Rare:a")
	p.until("one is left", rows+` === "Rare:anna2"`)
	p.click("#top button")
	p.until("it is opened", `document.querySelector("#found-title").textContent === "Rare:anna"`)
}

// TestSearchNamesItsWindow searches a key that counted before the window of the lists: the page
// names the window, and leads to a longer one.
func TestSearchNamesItsWindow(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	node.MustPost("/v1/add", fmt.Sprintf(`{"key":"old:anna","n":2,"ts":%d}`,
		time.Now().Add(-10*time.Minute).UnixMilli()))
	p := b.open(node, "")
	p.write("#search", "old:")
	p.until("it is not in the window", `/^No key that begins with it counted in the last 1m, /.test(
		document.querySelector("#top-empty").textContent) &&
		/^No key that begins with it was refused in the last 1m, /.test(
		document.querySelector("#refused-empty").textContent)`)
	p.click("#search-longer button")
	p.until("it is found", `document.querySelector("#top").textContent === "old:anna2" &&
		document.querySelector("#search-longer").hidden &&
		document.activeElement.dataset.window === "24h"`)
	p.write("#search", "nobody")
	p.until("nobody is", `/^No key that begins with it counted in the last 24h, /.test(
		document.querySelector("#top-empty").textContent) &&
		document.querySelector("#search-longer").hidden`)
}

// TestNothingRefusedInTheWindow opens the page where no member reports when it started: an empty
// list of refused keys is about its window only.
func TestNothingRefusedInTheWindow(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, redistest.Start(t), "")
	p := b.open(node, "")
	p.tell("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `
		const before = fetch;
		window.fetch = async (path, ...more) => {
			const answer = await before(path, ...more);
			if (!path.startsWith("/v1/cluster")) return answer;
			const cluster = await answer.json();
			for (const member of cluster.members) delete member.started;
			return new Response(JSON.stringify(cluster), answer);
		};`})
	p.tell("Page.navigate", map[string]any{"url": node.Base + "/"})
	p.until("the window is named", `/^Nothing was refused in the last 1m\. /.test(
		document.querySelector("#refused-empty")?.textContent)`)
}

// TestTopWithPrefix asks a node for the keys that begin with a text.
func TestTopWithPrefix(t *testing.T) {
	node := serve(t, redistest.Start(t), "")
	acquire(node, 3, 5)
	node.MustPost("/v1/add", `{"key":"other","n":99}`)
	for query, want := range map[string]string{"prefix=user%3A": "user:0 user:2 user:1",
		"prefix=o": "other", "prefix=user%3A1&by=refused": "user:1",
		"prefix=user%3A2&by=shadow": "user:2", "prefix=ser": "", "prefix=o&by=refused": ""} {
		_, text := node.Get("/v1/top?window=1h&" + query)
		var a struct{ Keys []struct{ Key string } }
		if err := json.Unmarshal(text, &a); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, k := range a.Keys {
			keys = append(keys, k.Key)
		}
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}
