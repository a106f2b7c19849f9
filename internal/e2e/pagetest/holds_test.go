package pagetest

import (
	"encoding/json"
	"fmt"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestRulesInShortForms shows rules and overrides whose single limit is in no list, and whose
// number of open holds stands beside the limits.
func TestRulesInShortForms(t *testing.T) {
	b := startBrowser(t)
	file := t.TempDir() + "/rules.yaml"
	must.Write(t, file, "rules:\n  - {name: calls, limits: 50/24h, concurrent: 3, overrides: "+
		"[{key: user:1, limits: 90/24h}]}\n  - {name: alone, concurrent: 2}\n")
	node := program.Serve(t, proctest.Options{MayComplain: true}, "--redis",
		redistest.Start(t).URL(), "--rules", file)
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
	file := t.TempDir() + "/rules.yaml"
	must.Write(t, file, "rules:\n  - name: calls\n    limits: [{concurrent: 3}, 50/24h]\n"+
		"    overrides: [{key: user:1, limits: [90/24h]}]\n")
	node := program.Serve(t, proctest.Options{MayComplain: true}, "--redis",
		redistest.Start(t).URL(), "--rules", file)
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
