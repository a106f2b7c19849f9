package pagetest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// commented is a document whose limits stand between comments and others of the same size.
const commented = "# 3/1h was agreed in May\nrules:\n  - name: tight\n    limits: [3/1h]\n" +
	"    state: shadow\n  - name: login\n    limits:\n      - 3/1h # not 3/1h for ever\n" +
	"      - {max: 50, window: 24h}\n    overrides: [{key: vip, limits: [3/1h]}]\n"

// serveTrial starts a node with a document, and counts 6 events of each of a number of keys.
func serveTrial(t *testing.T, keys int, args ...string) *proctest.Process {
	t.Helper()
	node := serve(t, commented, args...)
	for i := range keys {
		node.MustPost("/v1/add", fmt.Sprintf(`{"key":"user:%d","n":%d}`, i, 2+i))
	}
	return node
}

// inForce returns the document in force, as it was written.
func inForce(t *testing.T, node *proctest.Process) string {
	t.Helper()
	_, text, err := proctest.Send(http.DefaultClient, http.MethodGet, node.Base+"/v1/rules", "",
		"Accept", "application/yaml")
	must.Succeed(t, err)
	return text
}

// openTrial opens the trial of the rule login.
func openTrial(p *page) {
	p.t.Helper()
	p.until("the rules are listed", `document.querySelectorAll("#rules-rows tr").length === 2`)
	p.click(`button[data-rule="login"]`)
	p.until("the limits in force are tried", `/^With 3\/1h, 50\/24h it would refuse/.test(
		document.querySelector("#trial-status").textContent)`)
}

const (
	first  = `#trial-limits input[type="number"]`
	slider = `#trial-limits input[type="range"]`
)

// TestTrialOfALimit changes a limit with the slider and as a number: each time a backtest reports
// what the rule would refuse. The limit is applied in the document as it was written.
func TestTrialOfALimit(t *testing.T) {
	b := startBrowser(t)
	node := serveTrial(t, 4)
	p := b.open(node, "")
	openTrial(p)
	p.until("the focus is there", fmt.Sprintf(`document.activeElement ===
		document.querySelector(%q)`, first))
	if got := p.text("#trial-status"); !strings.Contains(got, "refuse 3 of 4 keys now") ||
		!strings.Contains(got, "all events of namespace default: the rule judged only 0 requests") {
		t.Errorf("in force: %q", got)
	}
	p.until("no request asks for either rule", `[...document.querySelectorAll(
		"#rules-rows .why")].filter((e) => /^no request has asked/.test(e.textContent)).length === 2`)
	node.MustPost("/v1/acquire", `{"key":"user:0","rules":["tight"]}`)
	p.until("one is asked for", `[...document.querySelectorAll("#rules-rows .why")].map((e) =>
		e.textContent).join() === ",no request has asked for it in 24h"`)
	p.eval(fmt.Sprintf("document.querySelector(%q).focus()", slider), nil)
	p.key("ArrowLeft")
	p.until("one less is tried", fmt.Sprintf(`document.querySelector(%q).value === "2" &&
		/^With 2\/1h, 50\/24h it would refuse 4 of 4 keys/.test(
			document.querySelector("#trial-status").textContent)`, first))
	p.write(first, "4")
	p.until("more is tried", fmt.Sprintf(`document.querySelector(%q).value === "4" &&
		/^With 4\/1h, 50\/24h it would refuse 2 of 4 keys/.test(
			document.querySelector("#trial-status").textContent)`, slider))
	figures := p.text("#trial-figures tr")
	if figures != "Keys refused now32" {
		t.Errorf("the figures are %q", figures)
	}
	if keys := p.text("#trial-keys"); !strings.Contains(keys, "user:3") ||
		strings.Contains(keys, "user:1") {
		t.Errorf("the keys are %q", keys)
	}
	if got := inForce(t, node); got != commented {
		t.Fatalf("a trial has changed the document: %s", got)
	}
	p.write(first, "1.5")
	p.until("a fraction is no limit", `document.querySelector("#trial-apply").disabled &&
		/whole number/.test(document.querySelector("#trial-status").textContent)`)
	p.write(first, "4")
	p.click("#trial-apply")
	p.until("a token is asked for", `/Bearer/.test(
		document.querySelector("#trial-error").textContent) &&
		document.activeElement === document.querySelector("#trial-token")`)
	p.write("#trial-token", secret)
	p.click("#trial-apply")
	p.until("it is in force", `/^Version 2 is in force/.test(
		document.querySelector("#trial-done").textContent) &&
		/4\/1h, 50\/24h/.test(document.querySelector("#rules-rows").textContent)`)
	want := strings.Replace(commented, "- 3/1h #", "- 4/1h #", 1)
	if got := inForce(t, node); got != want {
		t.Errorf("the document is %s\nwant %s", got, want)
	}
	p.until("it goes on from there", `document.querySelector("#trial-apply").disabled &&
		/^With 4\/1h/.test(document.querySelector("#trial-status").textContent)`)
	p.click("#trial-close")
	p.until("it is closed", `document.querySelector("#trial").hidden &&
		document.activeElement.dataset.rule === "login"`)
}

// TestTrialDropsOutdatedAnswers changes a limit while a backtest runs: its answer is not shown, and
// never two run at a time.
func TestTrialDropsOutdatedAnswers(t *testing.T) {
	b := startBrowser(t)
	p := b.open(serveTrial(t, 4), "")
	openTrial(p)
	p.eval(`(() => {
		const fetch = window.fetch;
		Object.assign(window, { running: 0, most: 0, asked: [], held: null, said: [] });
		window.fetch = async (path, options) => {
			if (path !== "/v1/backtest") return fetch(path, options);
			asked.push(JSON.parse(options.body).rules.rules[0].limits[0]);
			most = Math.max(most, ++running);
			const answer = await fetch(path, options);
			if (asked.length === 1) await new Promise((done) => { held = done; });
			running--;
			return answer;
		};
		const status = document.querySelector("#trial-status");
		new MutationObserver(() => said.push(status.textContent)).observe(status,
			{ childList: true, characterData: true, subtree: true });
	})()`, nil)
	p.write(first, "2")
	p.until("it is answered", "held")
	for _, number := range []string{"9", "8", "7"} {
		p.write(first, number)
	}
	p.eval("held()", nil)
	p.until("the last one is tried", `/^With 7\/1h/.test(
		document.querySelector("#trial-status").textContent)`)
	var seen struct {
		Most        int
		Asked, Said []string
	}
	p.eval("({ most, asked, said })", &seen)
	if seen.Most != 1 || strings.Join(seen.Asked, " ") != "2/1h 7/1h" ||
		strings.Contains(strings.Join(seen.Said, "\n"), "With 2/1h") {
		t.Errorf("%+v", seen)
	}
}

// TestTrialAfterAnotherChange applies a limit after somebody else has changed the document: nothing
// is overwritten, and the number survives the step to the newest version.
func TestTrialAfterAnotherChange(t *testing.T) {
	b := startBrowser(t)
	node := serveTrial(t, 4)
	p := b.open(node, "")
	openTrial(p)
	p.write("#trial-token", secret)
	p.write(first, "6")
	other := strings.Replace(commented, "in May", "in June", 1)
	response, text, err := proctest.Send(http.DefaultClient, http.MethodPut, node.Base+"/v1/rules",
		other, "Authorization", "Bearer "+secret, "If-Match", `"1"`,
		"Content-Type", "application/yaml")
	must.Succeed(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatal(text)
	}
	p.click("#trial-apply")
	p.until("it is explained", `/^Somebody else has changed the rules/.test(
		document.querySelector("#trial-error").textContent) &&
		!document.querySelector("#trial-renew").hidden`)
	if got := inForce(t, node); got != other {
		t.Fatalf("it was overwritten: %s", got)
	}
	p.shoot("trial-conflict.png")
	p.click("#trial-renew")
	p.until("the number is kept", fmt.Sprintf(`document.querySelector(%q)?.value === "6" &&
		/^Version 2\./.test(document.querySelector("#trial-about").textContent) &&
		!document.querySelector("#trial-apply").disabled &&
		!document.querySelector("#trial-error").textContent`, first))
	p.click("#trial-apply")
	p.until("it is in force", `/^Version 3 is in force/.test(
		document.querySelector("#trial-done").textContent)`)
	want := strings.Replace(other, "- 3/1h #", "- 6/1h #", 1)
	if got := inForce(t, node); got != want {
		t.Errorf("the document is %s\nwant %s", got, want)
	}
}

// TestTrialElsewhere opens the page of a node whose rules are changed at another address: it names
// that address's setting, and can't be used to change them.
func TestTrialElsewhere(t *testing.T) {
	b := startBrowser(t)
	node := serveTrial(t, 2, "--admin", "127.0.0.1:0")
	p := b.open(node, "")
	p.until("the rules are listed", `document.querySelectorAll("#rules-rows tr").length === 2`)
	p.click(`button[data-rule="login"]`)
	const elsewhere = `/at the address of --admin/.test(
		document.querySelector("#trial-error").textContent)`
	p.until("it is explained", elsewhere)
	p.write("#trial-token", secret)
	p.write(first, "9")
	p.until("it stays so", `!document.querySelector("#trial-apply").disabled`)
	p.click("#trial-apply")
	p.until("it is explained again", elsewhere)
	if got := inForce(t, node); got != commented {
		t.Errorf("the document is %s", got)
	}
}

// TestTrialLeavesSharedLimitsAlone opens a rule whose limit another rule shares through an alias:
// it can't be changed here, because the other rule's would change too.
func TestTrialLeavesSharedLimitsAlone(t *testing.T) {
	b := startBrowser(t)
	p := b.open(serve(t, "rules:\n  - {name: a, limits: [&x 3/1h, 9/1h]}\n"+
		"  - {name: b, limits: [*x]}\n  - {name: c, concurrent: 4}\n"), "")
	p.until("only limits on counts are tried", `[...document.querySelectorAll(
		"#rules-rows button")].map((e) => e.dataset.rule).join() === "a,b" &&
		document.querySelectorAll("#rules-rows tr").length === 3`)
	p.click(`button[data-rule="a"]`)
	p.until("one can be changed", `[...document.querySelectorAll(
		"#trial-limits input[type=number]")].map((e) => e.disabled).join() === "true,false"`)
}

// TestTrialFitsEveryScreen shows a trial on a phone and wide, light and dark: everything can be
// read and tapped.
func TestTrialFitsEveryScreen(t *testing.T) {
	b := startBrowser(t)
	node := serveTrial(t, 14)
	node.MustPost("/v1/add", `{"key":"`+strings.Repeat("a-whole-path/", 9)+`","n":99}`)
	p := b.open(node, "")
	openTrial(p)
	p.fitsEveryScreen("trial")
}
