package pagetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/token"
)

const banning = "rules:\n  - {name: login, limits: [3/1m], ban: 10m}\n"

// serveBans starts a node whose rule bans, and returns a function that gets keys banned, with the
// token as unless it is empty.
func serveBans(t *testing.T, as string, args ...string) (
	node *proctest.Process, ban func(keys ...string)) {
	t.Helper()
	node = serve(t, banning, args...)
	var headers []string
	if as != "" {
		headers = []string{"Authorization", "Bearer " + as}
	}
	return node, func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			response, text, err := proctest.Send(http.DefaultClient, http.MethodPost,
				node.Base+"/v1/acquire", fmt.Sprintf(`{"key":%q,"n":4,"rules":["login"]}`, key),
				headers...)
			must.Succeed(t, err)
			if response.StatusCode != http.StatusOK || !strings.Contains(text, `"started":true`) {
				t.Fatalf("%s: %s %s", key, response.Status, text)
			}
		}
	}
}

// listed is an expression for the keys in the list of bans, in the order of their names.
const listed = `[...document.querySelectorAll("#bans-rows th")].map((e) => e.textContent).sort()
	.join()`

// reallyLift is an expression for whether the first button asks before it lifts a ban.
const reallyLift = `document.querySelector("#bans-rows button").textContent === "Really lift?"`

// TestBansAreLifted lists banned keys, opens one and lifts its ban, by two clicks. Under the
// pointer no row moves when another key is banned.
func TestBansAreLifted(t *testing.T) {
	b := startBrowser(t)
	node, ban := serveBans(t, "")
	p := b.open(node, "")
	p.until("no key is", `!document.querySelector("#bans").hidden &&
		document.querySelector("#bans-empty").textContent === "No key is banned."`)
	ban("anna", "ben")
	p.until("bans are listed", listed+` === "anna,ben"`)
	row := p.text("#bans-rows tr")
	if !strings.Contains(row, "login") || !strings.Contains(row, ", in 10 min") {
		t.Errorf("a ban is shown as %q", row)
	}
	var key string
	p.eval(`(window.held = document.querySelector("#bans-rows tr"))
		.querySelector("a").textContent`, &key)
	p.mouse("mouseMoved", 1, 1)
	x, y := p.middle("#bans-rows button")
	p.mouse("mouseMoved", x, y)
	ban("cleo")
	p.until("it is counted", `document.querySelector("#bans-count").textContent === "3"`)
	var same bool
	if p.eval(`document.querySelector("#bans-rows tr") === window.held &&
		document.querySelectorAll("#bans-rows tr").length === 2`, &same); !same {
		t.Error("rows have moved under the pointer")
	}
	p.shoot("bans.png")
	p.press(x, y)
	p.until("it is asked first", reallyLift)
	if _, text := node.Get("/v1/bans?rule=login&key=" + key); !strings.Contains(string(text), key) {
		t.Errorf("one click has lifted the ban of %s: %s", key, text)
	}
	p.press(x, y)
	p.until("it is lifted", fmt.Sprintf(
		`document.querySelector("#bans-done").textContent === "login no longer bans %s."`, key))
	_, text := node.Get("/v1/bans?rule=login&key=" + key)
	if !strings.Contains(string(text), `"bans":[]`) {
		t.Errorf("%s is still banned: %s", key, text)
	}
	p.mouse("mouseMoved", 1, 1)
	rest := strings.TrimPrefix(strings.Replace(",anna,ben,cleo", ","+key, "", 1), ",")
	p.until("it is not listed", fmt.Sprintf("%s === %q", listed, rest))
	p.click("#bans-rows a")
	p.until("a key is opened", `document.querySelector("#found-title").textContent ===
		document.querySelector("#bans-rows a").textContent`)
}

// TestLiftingNeedsAdmin shows the page with a token that may only read: it asks for one that may
// lift a ban, and lifts it then.
func TestLiftingNeedsAdmin(t *testing.T) {
	b := startBrowser(t)
	file := filepath.Join(t.TempDir(), "tokens.conf")
	lines, secrets := "", map[twotier.Role]string{}
	for name, role := range map[string]twotier.Role{"counter": twotier.RoleCount,
		"reader": twotier.RoleRead, "admin": twotier.RoleAdmin} {
		text, hash := token.New()
		line, err := token.FormatLine(name, hash, role, "*")
		must.Succeed(t, err)
		lines, secrets[role] = lines+line+"\n", text
	}
	must.Write(t, file, lines)
	node, ban := serveBans(t, secrets[twotier.RoleCount], "--tokens", file)
	ban("anna")
	p := b.open(node, "")
	p.until("a token is asked for", `!document.querySelector("#login").hidden`)
	p.write("#token", secrets[twotier.RoleRead])
	p.click("#login button")
	p.until("the ban is listed", listed+` === "anna"`)
	p.click("#bans-rows button")
	p.until("it is asked first", reallyLift)
	p.click("#bans-rows button")
	p.until("another token is asked for", `!document.querySelector("#bans-access").hidden &&
		document.querySelector("#bans-error").textContent.includes("admin")`)
	p.write("#bans-token", secrets[twotier.RoleAdmin])
	p.click("#bans-access button")
	p.until("the ban is lifted", `document.querySelector("#bans-done").textContent ===
		"login no longer bans anna." && document.querySelector("#bans-access").hidden &&
		!document.querySelector("#bans-error").textContent`)
	p.until("it is not listed", `document.querySelector("#bans-empty").textContent ===
		"No key is banned." && document.querySelector("#bans-table").hidden`)
}

// TestBansOnAPhone lists the bans of long keys on a phone, light and dark: all can be read and
// lifted with a finger. Without a rule that bans there is no list.
func TestBansOnAPhone(t *testing.T) {
	b := startBrowser(t)
	node, ban := serveBans(t, "")
	long := strings.Repeat("a-key-as-long-as-they-are-where-people-put-a-whole-path-into-it/", 3)
	ban("anna", long)
	p := b.open(node, "")
	p.phone()
	p.until("bans are listed", `document.querySelectorAll("#bans-rows tr").length === 2`)
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		p.shoot("phone-bans-" + scheme + ".png")
	}
	p.legible("bans")
	p.tap("#bans-rows button")
	p.until("it is asked first", reallyLift)
	p.tap("#bans-rows button")
	p.until("a ban is lifted", `document.querySelector("#bans-done").textContent &&
		document.querySelectorAll("#bans-rows tr").length === 1`)
	p.click("#rules-edit")
	p.until("the document is there",
		`document.querySelector("#rules-text").value.includes("name: login")`)
	p.write("#rules-text", strings.Replace(banning, ", ban: 10m", "", 1))
	p.write("#rules-token", secret)
	p.click("#rules-apply")
	p.until("there are no bans", `document.querySelector("#bans").hidden`)
}

// TestRulesInShortForms shows rules and overrides whose single limit is in no list, and whose
// number of open holds stands beside the limits.
func TestRulesInShortForms(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, "rules:\n  - {name: calls, limits: 50/24h, concurrent: 3, overrides: "+
		"[{key: user:1, limits: 90/24h}]}\n  - {name: alone, concurrent: 2}\n")
	node.MustPost("/v1/add", `{"key":"user:1","n":4}`)
	p := b.open(node, "#ns=default&key=user:1")
	p.until("the rules are listed", `[...document.querySelectorAll("#rules-rows .limits")].map(
		(cell) => cell.textContent).join(" ").startsWith(
			"50/24h, 3 open holds (overrides: 1) 2 open holds")`)
	p.until("the key has their limits", cells+`.startsWith("alone|open holds|0|2|2| `+
		`calls|24h|4|90|86| calls|open holds|0|3|3| ")`)
}

// cells is the text of the counts of a key.
const cells = `[...document.querySelectorAll("#counts tr")].map(
	(row) => [...row.children].map((cell) => cell.textContent).join("|")).join(" ")`

// TestOpenHoldsOfAKey makes holds of a key, two of them under a rule. The key has a line about the
// open ones while there are any, and a row that compares them with the limit of the rule, which the
// rules list too.
func TestOpenHoldsOfAKey(t *testing.T) {
	b := startBrowser(t)
	node := serve(t, "rules:\n  - name: calls\n    limits: [{concurrent: 3}, 50/24h]\n"+
		"    overrides: [{key: user:1, limits: [90/24h]}]\n")
	var ids []string
	hold := func(lasts string) {
		t.Helper()
		var a struct{ Hold string }
		must.Succeed(t, json.Unmarshal(node.MustPost("/v1/acquire", fmt.Sprintf(
			`{"key":"user:1","rules":["calls"],"hold":%q}`, lasts)), &a))
		ids = append(ids, a.Hold)
	}
	hold("50m")
	hold("20h")
	p := b.open(node, "#ns=default&key=user:1")
	p.until("the open ones are shown", `!document.querySelector("#open-holds").hidden &&
		/^Open holds: 2, the next ends in (49|50) min\.$/.test(
			document.querySelector("#open-holds").textContent)`)
	p.until("they are beside their limit", cells+`.startsWith("calls|24h|2|90|88| `+
		`calls|open holds|2|3|1| no limit|1m|2|–|–|")`)
	p.until("the rule is listed",
		`document.querySelector("#rules-rows .limits").textContent.startsWith(
			"3 open holds, 50/24h")`)
	p.shoot("holds.png")
	hold("50m")
	p.until("none is left", `document.querySelector("#counts .over th")?.textContent.startsWith(
		"callsrefuses it") &&
		/holds: 3,/.test(document.querySelector("#open-holds").textContent)`)
	for _, id := range ids {
		node.MustPost("/v1/settle", fmt.Sprintf(`{"hold":%q,"n":1}`, id))
	}
	p.until("none is open", `document.querySelector("#open-holds").hidden &&
		`+cells+`.includes("calls|open holds|0|3|3|")`)
	p.until("nothing is wrong", `document.querySelector("#lookup-error").hidden`)
}
