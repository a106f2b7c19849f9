package pagetest

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// program is the command under test.
var program = proctest.NewProgram()

func TestMain(m *testing.M) { proctest.MainAlone(m, program, 0) }

const (
	document = "rules:\n  - {name: login, limits: [3/1m, 50/24h], warn: 60%}\n" +
		"  - {name: tight, limits: [1/1m], state: shadow}\n"
	secret = "at-least-16-characters"
)

// serve starts a node with rules over a new Redis.
func serve(t *testing.T, rules string, args ...string) *proctest.Process {
	t.Helper()
	return serveOver(t, redistest.Start(t), "", rules, args...)
}

// serveOver starts a node with rules over a Redis, at an address unless that is empty.
func serveOver(t *testing.T, redis *redistest.Server, listen, rules string,
	args ...string) *proctest.Process {
	t.Helper()
	opt := proctest.Options{Listen: listen, MayComplain: true,
		Env: []string{"TWOTIER_ADMIN_TOKEN=" + secret}}
	return program.Serve(t, opt, append([]string{"--redis", redis.URL(), "--rules",
		must.File(t, "rules.yaml", rules)}, args...)...)
}

// opened starts a node with the document, which makes n decisions about each of several keys, and
// opens its page.
func opened(t *testing.T, keys, n int, fragment string) (*proctest.Process, *page) {
	t.Helper()
	b, node := startBrowser(t), serve(t, document)
	acquire(node, keys, n)
	return node, b.open(node, fragment)
}

// acquire asks for n decisions about each of several keys.
func acquire(node *proctest.Process, keys, n int) {
	for i := range keys {
		for range n {
			node.MustPost("/v1/acquire", fmt.Sprintf(`{"key":"user:%d","n":%d,"rules":["login",`+
				`"tight"],"limits":[{"window":"1m","max":1000000}]}`, i, 1+i%2))
		}
	}
}

// TestPageHasHistory restarts the only node: a page opened afterwards shows the earlier decisions
// without any new requests.
func TestPageHasHistory(t *testing.T) {
	b := startBrowser(t)
	redis := redistest.Start(t)
	node := serveOver(t, redis, "", document)
	acquire(node, 3, 6)
	if status := node.Stop(); status != 0 { // everything is flushed
		t.Fatalf("status %d", status)
	}
	p := b.open(serveOver(t, redis, "", document), "")
	p.click(`#top-window [data-window="24h"]`)
	p.until("the refused keys of before are said to be unknown",
		`/is not kept/.test(document.querySelector("#refused-empty").textContent)`)
	const label = `document.querySelector("#decisions .canvas").getAttribute("aria-label")`
	p.until("decisions are drawn", label)
	var text string
	p.eval(label, &text)
	for _, verdict := range []string{"allowed", "refused", "refused in shadow"} {
		if !drawn(text, verdict) {
			t.Errorf("nothing of what was %s: %s", verdict, text)
		}
	}
	var curves int
	p.eval(`document.querySelectorAll("#decisions polyline").length`, &curves)
	if curves != 3 {
		t.Errorf("%d curves", curves)
	}
	// The chart is read with the keyboard.
	p.eval(`document.querySelector("#decisions .canvas").focus()`, nil)
	p.key("ArrowLeft")
	p.until("a value is read", `/allowed .*refused/.test(
		document.querySelector("#decisions .readout").textContent)`)
}

// drawn reports whether the summary of a chart has more than 0 of a verdict at any time. It ignores
// the last value, because a new minute may have begun.
func drawn(summary, verdict string) bool {
	most := regexp.MustCompile(`[.;] ` + verdict + `: last [0-9.]+, most ([0-9]+(\.[0-9]+)?)[.;]`)
	found := most.FindStringSubmatch(summary)
	return found != nil && strings.Trim(found[1], "0.") != ""
}

// TestEveryClickIsTaken clicks sixty times on rows of the busiest keys while their figures and
// their order change all the time.
func TestEveryClickIsTaken(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, document)
	acquire(node, 20, 1)
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default: // every key is the busiest one for a while
				node.MustPost("/v1/add", fmt.Sprintf(`{"key":"user:%d","n":%d}`, i%20, i%997+1))
			}
		}
	})
	defer load.Wait()
	defer close(stop)
	p := b.open(node, "")
	// The key is beside the list. On a narrow screen the page would scroll to it.
	p.screen(1400, 900)
	p.until("keys are listed", `document.querySelectorAll("#top button").length === 12`)
	p.eval(`document.querySelector("#top").scrollIntoView({ block: "center",
		behavior: "instant" })`, nil)
	taken := 0
	for i := range 60 {
		var at []float64
		p.eval(fmt.Sprintf(`(() => { const r = document.querySelectorAll("#top button")[%d]
			.getBoundingClientRect(); return [r.x + 40, r.y + r.height / 2]; })()`, i%12), &at)
		p.mouse("mouseMoved", at[0], at[1])
		var key string
		p.eval(fmt.Sprintf(`document.elementFromPoint(%f, %f).closest("button").title`, at[0], at[1]),
			&key)
		p.press(at[0], at[1])
		var fragment string
		p.eval("location.hash", &fragment)
		if fragment == "#"+(url.Values{"ns": {"default"}, "key": {key}}).Encode() ||
			fragment == "#ns=default&key="+url.QueryEscape(key) {
			taken++
		}
		if i%12 == 11 { // the list moves on while no pointer is on it
			p.mouse("mouseMoved", 1, 1)
			before := p.text("#top")
			p.until("figures change",
				fmt.Sprintf("document.querySelector('#top').textContent !== %q", before))
		}
	}
	if taken != 60 {
		t.Errorf("%d of 60 clicks were taken", taken)
	}
	p.until("the key is shown", `document.querySelectorAll("#counts tr").length >= 4 &&
		document.querySelector("#series svg .bar")`)
	rows := p.text("#counts")
	if !strings.Contains(rows, "login") || !strings.Contains(rows, "tight") {
		t.Errorf("counts are not beside the limits of rules: %s", rows)
	}
	p.click(`#counts input`)
	p.write("#series-window", "5m")
	p.key("Enter")
	p.until("its limit is drawn", `document.querySelector("#series svg .limit") &&
		/login 3\/1m/.test(document.querySelector("#series .limit-name").textContent)`)
	p.shoot("key.png")
}

// TestKeysThatWouldBeRefused has a rule in shadow, and none that refuses: the keys that it would
// refuse are listed, next to an empty list of refused ones. A row under the pointer keeps its place
// while the others change, and opens its key.
func TestKeysThatWouldBeRefused(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, document)
	acquire := func(key string, n int) {
		for range n {
			node.MustPost("/v1/acquire", fmt.Sprintf(`{"key":%q,"rules":["tight"]}`, key))
		}
	}
	for i, key := range []string{"anna", "ben", "cleo"} {
		acquire(key, 30+i) // of many in one millisecond, only some are noted
	}
	acquire("dora", 1) // within the limit
	p := b.open(node, "")
	p.click(`#top-window [data-window="24h"]`)
	p.until("keys are listed", `document.querySelectorAll("#shadowed button").length === 3 &&
		document.querySelectorAll("#top button").length === 4`)
	p.until("nothing was refused", `/^Nothing was refused/.test(
		document.querySelector("#refused-empty").textContent) &&
		!document.querySelector("#refused-empty").hidden &&
		document.querySelector("#shadowed-empty").hidden`)
	p.eval(`document.querySelector("#shadowed").scrollIntoView({ block: "center",
		behavior: "instant" })`, nil)
	var at []float64
	p.eval(`(() => { const r = document.querySelector("#shadowed button").getBoundingClientRect();
		return [r.x + 20, r.y + r.height / 2]; })()`, &at)
	p.mouse("mouseMoved", at[0], at[1])
	var key string
	p.eval(`(window.held = document.querySelector("#shadowed button")).title`, &key)
	before := p.text("#shadowed")
	acquire("dora", 30)
	acquire("anna", 60)
	acquire("ben", 60)
	p.until("figures change",
		fmt.Sprintf("document.querySelector('#shadowed').textContent !== %q", before))
	var same bool
	if p.eval(`document.querySelector("#shadowed button") === window.held &&
		document.querySelectorAll("#shadowed button").length === 3`, &same); !same {
		t.Error("rows have moved under the pointer")
	}
	p.press(at[0], at[1])
	p.until("the key is opened",
		fmt.Sprintf(`location.hash === %q`, "#ns=default&key="+url.QueryEscape(key)))
	p.mouse("mouseMoved", 1, 1)
	p.until("the others come", `document.querySelectorAll("#shadowed button").length === 4`)
	p.write("#search", "dor")
	p.until("the list is searched", `document.querySelectorAll("#shadowed button").length === 1`)
}

// TestPageSaysWhenItIsStale ends the node under an open page, starts it again, and has it stand
// still for a while.
func TestPageSaysWhenItIsStale(t *testing.T) {
	b := startBrowser(t)
	redis := redistest.Start(t)
	// No other process takes the node's address while it is down.
	node := serveOver(t, redis, proctest.Host()+":8080", document)
	p := b.open(node, "")
	p.until("figures are shown", `/^updated /.test(document.querySelector("#clock").textContent)`)
	const opacity = `Number(getComputedStyle(document.querySelector("#members")).opacity)`
	p.until("they are not grey", opacity+" === 1")
	node.Kill()
	p.until("it says since when", `!document.querySelector("#stale").hidden &&
		/has not answered since .*[0-9]:[0-9]/.test(document.querySelector("#stale").textContent)`)
	p.until("figures are grey", opacity+" < 0.5")
	p.until("nothing is said to be alive",
		`document.querySelector("#state").textContent === "no answer" && getComputedStyle(
			document.querySelector("#members .state"), "::before").content.includes("was")`)
	p.shoot("stale.png")
	node = serveOver(t, redis, node.Listen, document)
	over := `document.querySelector("#stale").hidden && ` + opacity + " === 1"
	p.until("it is over", over)
	node.Pause()
	p.until("figures are grey again", `!document.querySelector("#stale").hidden && `+
		opacity+" < 0.5")
	node.Resume()
	p.until("it is over again", over)
}

// TestNoFigureOfAStoppedRedisIsCurrent stops Redis under nodes in both modes.
func TestNoFigureOfAStoppedRedisIsCurrent(t *testing.T) {
	b := startBrowser(t)
	for _, mode := range []string{"two-tier", "redis"} {
		redis := redistest.Start(t)
		node := serveOver(t, redis, "", document, "--mode", mode)
		acquire(node, 1, 3)
		p := b.open(node, "")
		const facts = `document.querySelector("#redis").textContent`
		p.until("Redis is measured", `/round trip[0-9].*clock offset-?[0-9]/.test(`+facts+`)`)
		redis.Kill()
		p.until("it is down", `document.querySelector("#redis-state").textContent === "Down" &&
			/round trip–clock offset–/.test(`+facts+`)`)
		if mode == "redis" { // it has the history
			p.until("decisions are grey", `!document.querySelector("#decisions-note").hidden &&
				Number(getComputedStyle(document.querySelector("#decisions")).opacity) < 0.5`)
		}
	}
}

// TestDepartedMembersStay kills one node of three and stops another one.
func TestDepartedMembersStay(t *testing.T) {
	b := startBrowser(t)
	redis := redistest.Start(t)
	member := func(args ...string) *proctest.Process {
		return serveOver(t, redis, "", document, append(args, "--gossip", "127.0.0.1:0",
			"--cluster-secret", "0123456789abcdef0123456789abcdef")...)
	}
	nodes := []*proctest.Process{member("--node", "a")}
	for _, id := range []string{"b", "c"} {
		nodes = append(nodes, member("--node", id, "--join", nodes[0].Gossip))
	}
	p := b.open(nodes[0], "")
	p.until("all are there", `document.querySelectorAll("#members .state.good").length === 3`)
	nodes[1].Kill()
	nodes[2].Stop()
	const row = `[...document.querySelectorAll("#members .gone")].find((r) =>
		r.querySelector("a").textContent === %q)?.textContent ?? ""`
	p.until("who crashed is shown",
		fmt.Sprintf("/gone.*crashed.*since.*[0-9]:[0-9].*ago/.test("+row+")", "b"))
	p.until("who left is shown",
		fmt.Sprintf("/left.*stopped.*since.*[0-9]:[0-9].*ago/.test("+row+")", "c"))
	const state = `document.querySelector("#state")`
	p.until("the one that crashed is missing", state+`.textContent === "1 of 2 nodes: b is missing" &&
		`+state+`.classList.contains("warn")`)
	nodes[1] = member("--node", "b", "--join", nodes[0].Gossip)
	p.until("it is back", state+`.textContent === "healthy"`)
	for _, event := range []string{"b is gone without", "c is leaving", "c has left",
		"a has started"} {
		p.until("the event is shown",
			fmt.Sprintf("document.querySelector('#events').textContent.includes(%q)", event))
	}
	p.screen(390, 844)
	p.until("members fit a phone", `innerWidth === 390 && (() => {
		const at = document.querySelector("#cluster .scroll");
		return at.scrollWidth <= at.clientWidth; })()`)
	redis.Kill()
	p.until("Redis is down", `document.querySelector("#redis-state").textContent === "Down" &&
		/redis-lost/.test(document.querySelector("#events").textContent)`)
	p.shoot("departed.png")
}

// TestRulesAreEdited makes a mistake, corrects it, and applies the document, with a token and
// without.
func TestRulesAreEdited(t *testing.T) {
	node, p := opened(t, 1, 4, "")
	p.until("rules are shown", `document.querySelectorAll("#rules-rows tr").length === 2`)
	// The page requested them immediately: before its second request for anything else.
	var first bool
	p.eval(`(() => {
		const asked = performance.getEntriesByType("resource").map((e) => new URL(e.name).pathname);
		const again = asked.indexOf("/v1/cluster", asked.indexOf("/v1/cluster") + 1);
		return asked.includes("/v1/rules") && (again < 0 || asked.indexOf("/v1/rules") < again); })()`,
		&first)
	if !first {
		t.Error("the rules were not among what the page asked for first")
	}
	p.until("with their figures", `(() => {
		const cells = document.querySelector("#rules-rows tr").children;
		return cells[6].textContent === "3" && cells[7].textContent === "1"; })()`)
	p.click("#rules-edit")
	p.until("the document is there",
		`document.querySelector("#rules-text").value.includes("name: login")`)
	p.write("#rules-text", strings.Replace(document, "3/1m", "many", 1))
	p.write("#rules-token", secret)
	p.click("#rules-apply")
	p.until("the mistake has line and column",
		`/:2:[0-9]+: .*"many"/.test(document.querySelector("#rules-error").textContent)`)
	var selected string
	p.eval(`(() => { const a = document.querySelector("#rules-text");
		return a.value.slice(a.selectionStart, a.selectionEnd); })()`, &selected)
	if !strings.HasPrefix(selected, "many") {
		t.Errorf("%q is selected", selected)
	}
	p.write("#rules-text", strings.Replace(document, "3/1m", "7/1m", 1))
	p.click("#rules-diff")
	p.until("the difference is shown",
		`document.querySelector("#rules-shown .removed").textContent.includes("3/1m") &&
		document.querySelector("#rules-shown .added").textContent.includes("7/1m")`)
	p.write("#rules-text", strings.Replace(document, "50/24h", "2/24h", 1))
	p.click("#rules-backtest")
	p.until("the backtest is shown", `/login .*would refuse 1 of 1 key now[^]*refuses user:0: .*`+
		`3 of 2\/24h/.test(document.querySelector("#rules-shown").textContent)`)
	p.write("#rules-text", strings.Replace(document, "3/1m", "7/1m", 1))
	p.shoot("rules.png")
	p.write("#rules-token", "tt_nobody")
	p.click("#rules-apply")
	p.until("it is refused", `/token/.test(document.querySelector("#rules-error").textContent)`)
	p.write("#rules-token", secret)
	p.click("#rules-apply")
	p.until("it is in force",
		`/Version 2 is in force/.test(document.querySelector("#rules-done").textContent) &&
		document.querySelector("#rules-rows").textContent.includes("7/1m")`)
	if _, text := node.Get("/v1/rules"); !strings.Contains(string(text), "7/1m") {
		t.Errorf("the node has %s", text)
	}
	p.until("the version is listed", `document.querySelectorAll("#versions tr").length === 2`)
}

// TestRulesWithAdminElsewhere shows the rules of a node whose --admin has a separate address, and
// checks that the page names the place to change them.
func TestRulesWithAdminElsewhere(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, document, "--admin", "127.0.0.1:0")
	p := b.open(node, "")
	p.until("rules are shown", `document.querySelectorAll("#rules-rows tr").length === 2`)
	p.click("#rules-edit")
	p.until("the document is there",
		`document.querySelector("#rules-text").value.includes("name: login")`)
	for _, button := range []string{"#rules-apply", "#rules-backtest"} {
		p.write("#rules-token", secret)
		p.eval(`document.querySelector("#rules-error").textContent = ""`, nil)
		p.click(button)
		p.until(button+" says where", `/at the address of --admin/.test(
			document.querySelector("#rules-error").textContent)`)
	}
}

// TestPageIsLoadedAgain reloads the page while one of its files can't be loaded, as when the
// network of the browser changes: the page is there once it can. It goes on without styles that it
// has asked for many times.
func TestPageIsLoadedAgain(t *testing.T) {
	_, p := opened(t, 0, 0, "")
	for _, file := range []string{"dashboard.js", "chart.js", "style.css"} {
		p.until("it is there", `document.querySelector("#state").textContent === "healthy"`)
		p.tell("Network.setBlockedURLs", map[string]any{"urls": []string{"*/assets/" + file}})
		p.tell("Page.reload", nil)
		p.until(file+" is missing", fmt.Sprintf(`performance.getEntriesByType("resource")
			.some((e) => e.name.endsWith(%q) && e.responseStatus === 0)`, file))
		p.tell("Network.setBlockedURLs", map[string]any{"urls": []string{}})
	}
	const margin = `document.querySelector("#state").textContent === "healthy" &&
		getComputedStyle(document.body).margin === `
	p.until("it is there again", margin+`"0px"`)
	p.eval(`sessionStorage.setItem("twotier-loads", 20)`, nil)
	p.tell("Network.setBlockedURLs", map[string]any{"urls": []string{"*.css"}})
	p.tell("Page.reload", nil)
	p.until("it is there without styles", margin+`"8px"`)
}
