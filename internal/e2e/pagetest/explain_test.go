package pagetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
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
	file := t.TempDir() + "/rules.yaml"
	must.Write(t, file, explained)
	node := program.Serve(t, proctest.Options{MayComplain: true}, "--redis",
		redistest.Start(t).URL(), "--rules", file)
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
	for _, width := range []int{390, 1000, 1600} {
		for _, scheme := range []string{"light", "dark"} {
			p.tell("Emulation.setDeviceMetricsOverride", map[string]any{"width": width,
				"height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
			p.tell("Emulation.setEmulatedMedia", map[string]any{"features": []any{
				map[string]any{"name": "prefers-color-scheme", "value": scheme}}})
			p.until("it fits", fmt.Sprintf(`innerWidth === %d &&
				document.documentElement.scrollWidth <= innerWidth`, width))
			if width < 500 {
				p.until("ids have a line of their own", `[...document.querySelectorAll(
					"#refusals-rows tr")].every((row) =>
					row.querySelector(".key").getBoundingClientRect().top >=
					row.querySelector(".reason").getBoundingClientRect().bottom &&
					row.querySelector("a").getBoundingClientRect().right <= innerWidth - 20)`)
				var wrong []string
				if p.eval(unreadable, &wrong); len(wrong) > 0 {
					t.Errorf("unreadable: %v", wrong)
				}
			}
			p.shoot(fmt.Sprintf("card-%d-%s.png", width, scheme))
		}
	}
}
