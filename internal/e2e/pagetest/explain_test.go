package pagetest

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

const explained = "rules:\n  - {name: login, limits: [3/1h, 50/24h]}\n" +
	"  - {name: banned, namespace: bans, limits: [20/1h], ban: 20m}\n" +
	"  - {name: devices, namespace: cards, distinct: 2/24h}\n" +
	"  - {name: tight, limits: [1/1h], state: shadow}\n" +
	"  - {name: content, namespace: sms, limits: [50/59s, 2/59m]}\n"

// serveExplained starts a node whose keys are refused for every reason: user:0 by a limit, user:1
// by a ban, user:2 by a limit on different values, and user:3 by a limit of the request. No request
// asked a rule about user:4.
func serveExplained(t *testing.T) *proctest.Process {
	t.Helper()
	node := serve(t, explained)
	for range 5 {
		node.MustPost("/v1/acquire", `{"key":"user:0","rules":["login","tight"]}`)
		node.MustPost("/v1/acquire", `{"key":"user:3","limits":[{"window":"1h","max":2}]}`)
	}
	node.MustPost("/v1/add", `{"key":"user:4","ns":"sms","n":3}`)
	for range 2 {
		node.MustPost("/v1/acquire", `{"key":"user:1","n":21,"rules":["banned"]}`)
	}
	for _, value := range []string{"a", "b", "c"} {
		response, text, err := proctest.Send(http.DefaultClient, http.MethodPost,
			node.Base+"/v1/distinct",
			fmt.Sprintf(`{"key":"user:2","values":[%q],"rules":["devices"]}`, value))
		must.Succeed(t, err)
		if response.StatusCode != http.StatusOK {
			t.Fatal(text)
		}
	}
	return node
}

// counts is the text of the counts of a key, a line for each row.
const counts = `[...document.querySelectorAll("#counts tr")].map((row) =>
	[...row.cells].map((cell) => cell.textContent).join("|")).join("\n")`

// TestCardExplainsEveryRefusal opens keys that were refused for different reasons: the card gives
// the reason beside the limit that refuses, and leaves nothing there. Rules that have not refused
// the key, and limits of an earlier request, need not judge the next request.
func TestCardExplainsEveryRefusal(t *testing.T) {
	b := startBrowser(t)
	node := serveExplained(t)
	p := b.open(node, "")
	for _, c := range []struct{ ns, key, verdict, row, refusal string }{
		{"default", "user:0", `^refusing Refused now, by login\.`,
			`^loginrefuses it until .*, in (59|60) min\|1h\|3\|3\|0\|`, `\|login\|3 of 3 in 1h\|http, `},
		{"default", "user:0", `^refusing Refused now, by login\.`,
			`\ntight shadowwould refuse it now\|1h\|3\|1\|0\|`, `\|login\|3 of 3 in 1h\|http, `},
		{"bans", "user:1", `^refusing Banned by banned until .*, for (19|20) min\.`,
			`^bannedbanned until .*, in (19|20) min\|ban\|–\|–\|–\|\nbanned\|1h\|0\|20\|–\|`,
			`\|banned\|banned until `},
		{"cards", "user:2", `^refusing Refused now, by devices\.`,
			`^devices[^|]*\|24h different\|2\|2\|0\|`,
			`\|devices\|2 of 2 different values in 24h\|http, `},
		{"default", "user:3",
			`^unsure A request with its own limit 2\/1h, as at [0-9:]+, would be refused\.$`,
			`limits of requestsrefuses it until [^|]*\|1h\|2\|2\|0\|`,
			`\|limits of requests\|2 of 2 in 1h\|http, `},
		{"sms", "user:4", `^unsure content would refuse it, if a request asked for that rule\.$`,
			`^content\|59s\|3\|50\|47\|\ncontentrefuses it until [^|]*\|59m\|3\|2\|0\|`, `^$`},
	} {
		p.eval(fmt.Sprintf(`location.hash = "#ns=%s&key=%s"`, c.ns, c.key), nil)
		p.until("the key is shown", fmt.Sprintf(`!document.querySelector("#found").hidden &&
			document.querySelector("#found-title").textContent.endsWith(%q)`, c.key))
		p.until("the verdict is right", fmt.Sprintf(
			`/%s/.test(document.querySelector("#verdict").className + " " +
			document.querySelector("#verdict").textContent)`, c.verdict))
		p.until("the limit is beside it", fmt.Sprintf("/%s/.test(%s)", c.row, counts))
		p.until("the refusal is listed", fmt.Sprintf(
			`/%s/.test([...document.querySelectorAll("#refusals-rows tr")].map((row) =>
			[...row.cells].map((cell) => cell.textContent).join("|")).join("\n"))`, c.refusal))
	}
	node.MustPost("/v1/add", `{"key":"user:9","n":1}`)
	p.eval(`location.hash = "#ns=default&key=user:9"`, nil)
	p.until("another key passes", `document.querySelector("#verdict").textContent ===
		"One more event passes every rule now." && !document.querySelector("#refusals-empty").hidden`)
}

// TestCardFindsARefusal looks a refusal up by its id, in the form and by a link: the card shows the
// key, and this refusal first. An unknown id is reported, and asked for once.
func TestCardFindsARefusal(t *testing.T) {
	b := startBrowser(t)
	node := serveExplained(t)
	var a struct {
		Refusals []struct{ ID string }
	}
	_, text := node.Get("/v1/explain?key=user:3")
	must.Succeed(t, json.Unmarshal(text, &a))
	if len(a.Refusals) == 0 {
		t.Fatalf("no refusals: %s", text)
	}
	id := a.Refusals[len(a.Refusals)-1].ID
	p := b.open(node, "")
	p.write("#refusal", id)
	p.click("#lookup button")
	found := fmt.Sprintf(`document.querySelector("#found-title").textContent === "user:3" &&
		document.querySelector("#key").value === "user:3" &&
		document.querySelector("#refusals-rows .asked a").textContent === %q &&
		document.querySelector("#refusals-rows tr").className === "asked"`, id)
	p.until("it is found", found)
	p.until("its refusal comes first", `document.querySelector("#verdict").textContent &&
		/^Refused [0-9]+ s ago by limits of the request: 2 of 2 in 1h\.$/.test(
			document.querySelector("#asked-refusal").textContent)`)
	p.eval(`(() => { const before = fetch; window.asked = [];
		window.fetch = (path, ...more) => { asked.push(path); return before(path, ...more); };
		})()`, nil)
	p.write("#refusal", "nonsense")
	p.click("#lookup button")
	p.until("nonsense is not", `document.querySelector("#found").hidden &&
		document.querySelector("#lookup-error").textContent.length > 10`)
	p.until("the page is read thrice",
		`asked.slice(asked.findIndex((path) => path.endsWith("=nonsense"))).filter(
			(path) => path.startsWith("/v1/cluster")).length > 2`)
	var times int
	p.eval(`asked.filter((path) => path.endsWith("=nonsense")).length`, &times)
	if times != 1 {
		t.Errorf("an unknown id was asked for %d times", times)
	}
	p.click("#lookup button")
	p.until("it can be asked for again",
		`asked.filter((path) => path.endsWith("=nonsense")).length === 2`)
	p.tell("Page.navigate", map[string]any{"url": node.Base + "/#id=" + id})
	p.until("a link finds it", found)
	p.write("#refusal", "")
	p.write("#key", "user:0")
	p.click("#lookup button")
	p.until("a key is looked up", `document.querySelector("#found-title").textContent ===
		"user:0" && location.hash === "#ns=default&key=user%3A0" &&
		document.querySelector("#asked-refusal").hidden`)
}

// TestCardFitsEveryScreen shows explanations on a phone and wide, light and dark.
func TestCardFitsEveryScreen(t *testing.T) {
	b := startBrowser(t)
	node := serveExplained(t)
	long := strings.Repeat("a-whole-path/", 9)
	for range 3 {
		node.MustPost("/v1/acquire", `{"key":"`+long+`","n":2,"rules":["login"]}`)
	}
	p := b.open(node, "#ns=default&key="+long)
	p.until("it is refused", `document.querySelectorAll("#refusals-rows tr").length > 0 &&
		document.querySelectorAll("#top button").length === 4`)
	p.fitsEveryScreen("card")
	p.screen(390, 900)
	p.until("ids have a line of their own", `[...document.querySelectorAll(
		"#refusals-rows tr")].every((row) =>
		row.querySelector(".key").getBoundingClientRect().top >=
		row.querySelector(".reason").getBoundingClientRect().bottom &&
		row.querySelector("a").getBoundingClientRect().right <= innerWidth - 20)`)
}

// TestSearchFindsEveryKey searches among more keys than a list has: the beginning of a key finds
// it, however little it counted, and so does its part among the first 1,000. The result follows new
// counts.
func TestSearchFindsEveryKey(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, document)
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
	node := serve(t, document)
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
	node, p := opened(t, 0, 0, "")
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
	node := serve(t, document)
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

// shots is the directory for pictures.
var shots = flag.String("shots", "", "save pictures of the page in this directory")

// TestPageFitsEveryScreen lays the page out on a phone and wide, light, dark and printed: nothing
// is wider than the screen.
func TestPageFitsEveryScreen(t *testing.T) {
	_, p := opened(t, 14, 7, "#ns=default&key=user:1")
	p.until("a key is shown", `document.querySelector("#series svg .bar") &&
		document.querySelectorAll("#counts tr").length > 3`)
	p.until("decisions are drawn", `document.querySelector("#decisions svg polyline")`)
	p.fitsEveryScreen("page")
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
