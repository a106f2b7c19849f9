package pagetest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// TestTrafficIsSteady shows a member that executes 500 operations a second, and draws its row again
// between two views of the cluster, as events do.
func TestTrafficIsSteady(t *testing.T) {
	_, p := opened(t, 0, 0, "")
	var shown []string
	p.eval(`(async () => {
		const members = await import("/assets/members.js");
		const answer = (json) =>
			new Response(json, { headers: { "Content-Type": "application/json" } });
		let held = []; // the requests of the page itself get no answer
		window.fetch = (url) => url === "/v1/events"
			? new Promise((done) => held.push(() => done(answer('{"events":[],"departed":[]}'))))
			: new Promise(() => {});
		const traffic = () => document.querySelector("#members .traffic b").textContent;
		const view = (ops) => ({ ring_version: "1", mode: "two-tier", partitions: 1,
			members: [{ id: "m", started: 1, address: "a:1", state: "alive", share: 1,
				partitions: 1,
				status: { ops_total: ops, served_total: 0, forwarded_total: 0, incoming: 0,
					outgoing: 0, moving: 0, pending_buckets: 0, mode: "two-tier",
					ring_version: "1", redis_up: true } }] });
		const shown = [];
		let start = performance.now() + 1e6;
		for (let second = 0; second < 8; second++) {
			const now = start + second * 1000;
			const events = members.refreshEvents(now); // it shows the view of a second ago
			held.forEach((answer) => answer());
			held = [];
			await events;
			if (second > 0 && !document.querySelector("#members").textContent.includes("a:1")) {
				// The answer to an earlier request of the page came in between: begin again.
				second = -1;
				start += 1e6;
				shown.length = 0;
				continue;
			}
			members.showCluster(view(second * 500), now);
			shown.push(traffic());
		}
		return shown;
	})()`, &shown)
	if got := strings.Join(shown, " "); got != "– 500 500 500 500 500 500 500" {
		t.Errorf("its traffic is %s, want 500 from the second view on", got)
	}
}

// TestFillingBucketIsNoDrop draws a steady rate whose last bucket has just begun: its curve does
// not fall, whatever the clock of the browser.
func TestFillingBucketIsNoDrop(t *testing.T) {
	_, p := opened(t, 0, 0, "")
	drawings := 0
	for _, ahead := range []int{0, -3_600_000, 3_600_000} {
		for _, passed := range []int{1000, 4000, 20_000, 59_000} {
			drawings++
			var last float64
			p.eval(fmt.Sprintf(`(async () => {
				const overview = await import("/assets/overview.js");
				const now = Date.now() + %d, passed = %d, start = now - passed;
				const points = [5, 4, 3, 2, 1].map((i) => [start - i * 60000, 600]);
				points.push([start, passed / 100]);
				const hour = { bucket_ms: 60000, points };
				const minute = { bucket_ms: 1000, points: [[now - 1500, 10], [now - 500, 5]] };
				window.fetch = (url) => url.startsWith("/v1/series")
					? Promise.resolve(new Response(
						JSON.stringify(url.includes("window=1m") ? minute : hour),
						{ headers: { "Content-Type": "application/json" } }))
					: new Promise(() => {}); // the page itself gets no more answers
				await overview.refreshDecisions(performance.now() + 1e9 * %d);
				const canvas = document.querySelector("#decisions .canvas");
				const label = canvas.getAttribute("aria-label");
				return Number(/allowed: last ([0-9.]+)/.exec(label)[1]);
			})()`, ahead, passed, drawings), &last)
			if last < 9 || last > 16 {
				t.Errorf("%d ms ahead of the browser, after %d ms of a bucket the last rate is "+
					"%v, want about 10", ahead, passed, last)
			}
		}
	}
}

// TestVerdictsOfOneBucketAreDrawnTogether reads the refused acquires just after a bucket has begun,
// and the others just before: the curve of the refused ones neither moves nor falls.
func TestVerdictsOfOneBucketAreDrawnTogether(t *testing.T) {
	_, p := opened(t, 0, 0, "")
	var label string
	p.eval(`(async () => {
		const overview = await import("/assets/overview.js");
		const now = Date.now();
		const points = (late) => [5, 4, 3, 2, 1].map((i) => [now - (i - late) * 60000,
			i === late ? 0 : 600]);
		window.fetch = (url) => {
			if (!url.startsWith("/v1/series")) return new Promise(() => {});
			const late = url.includes("/refused") ? 1 : 0;
			return Promise.resolve(new Response(JSON.stringify(url.includes("window=1m")
				? { bucket_ms: 1000, points: [[now - 2000, 10], [now - 1000, 10]] }
				: { bucket_ms: 60000, points: points(late) }),
				{ headers: { "Content-Type": "application/json" } }));
		};
		await overview.refreshDecisions(performance.now() + 1e9);
		return document.querySelector("#decisions .canvas").getAttribute("aria-label");
	})()`, &label)
	if !strings.Contains(label, "; refused: last 10,") {
		t.Errorf("drawn is %s", label)
	}
}

// TestLinkIntoOpenPage follows links to keys in a page that is open, and goes back.
func TestLinkIntoOpenPage(t *testing.T) {
	node, p := opened(t, 2, 1, "")
	const shown = `!document.querySelector("#found").hidden &&
		document.querySelector("#found-title").textContent === %q`
	for _, key := range []string{"user:0", "user:1"} {
		p.tell("Page.navigate", map[string]any{"url": node.Base + "/#ns=default&key=" + key})
		p.until("the key is shown", fmt.Sprintf(shown, key))
	}
	p.eval("history.back()", nil)
	p.until("the earlier one is", fmt.Sprintf(shown, "user:0"))
	p.eval("history.back()", nil)
	p.until("none is", `document.querySelector("#found").hidden &&
		!document.querySelector("#lookup-empty").hidden`)
}

// TestOldBacktestGoes runs a backtest, and applies a document with a mistake: its message stands
// alone.
func TestOldBacktestGoes(t *testing.T) {
	_, p := opened(t, 1, 4, "")
	p.until("rules are shown", `document.querySelectorAll("#rules-rows tr").length === 2`)
	p.click("#rules-edit")
	p.until("the document is there",
		`document.querySelector("#rules-text").value.includes("name: login")`)
	p.write("#rules-token", secret)
	p.click("#rules-backtest")
	p.until("the backtest is shown",
		`/would refuse/.test(document.querySelector("#rules-shown").textContent)`)
	p.write("#rules-text", strings.Replace(document, "3/1m", "many", 1))
	p.click("#rules-apply")
	p.until("the mistake is shown",
		`document.querySelector("#rules-error").textContent.includes("many")`)
	if text := p.text("#rules-shown"); text != "" {
		t.Errorf("below it stands %q", text)
	}
}

// TestLateBacktestIsDropped applies a document with a mistake before the answer to a backtest of an
// earlier document arrives: the message about the mistake stays alone.
func TestLateBacktestIsDropped(t *testing.T) {
	_, p := opened(t, 1, 4, "")
	p.until("rules are shown", `document.querySelectorAll("#rules-rows tr").length === 2`)
	p.until("keys are listed", `document.querySelector("#shadowed button")`)
	p.click("#rules-edit")
	p.until("the document is there",
		`document.querySelector("#rules-text").value.includes("name: login")`)
	p.write("#rules-token", secret)
	p.eval(`(() => {
		const fetch = window.fetch;
		window.fetch = async (path, options) => {
			const answer = await fetch(path, options);
			if (path === "/v1/backtest") await new Promise((done) => { window.answer = done; });
			return answer;
		};
	})()`, nil)
	p.click("#rules-backtest")
	p.until("it is answered", "window.answer")
	p.write("#rules-text", strings.Replace(document, "3/1m", "many", 1))
	p.click("#rules-apply")
	p.until("the mistake is shown",
		`document.querySelector("#rules-error").textContent.includes("many")`)
	p.eval("window.answer()", nil)
	p.until("the answer has arrived", `!document.querySelector("#rules-backtest").disabled`)
	if text := p.text("#rules-error"); !strings.Contains(text, "many") {
		t.Errorf("the mistake has become %q", text)
	}
	if text := p.text("#rules-shown") + p.text("#rules-done"); text != "" {
		t.Errorf("below it stands %q", text)
	}
}

// TestKeyInAnyWindow types a window that no rule has: the counts of the key have a row for it.
func TestKeyInAnyWindow(t *testing.T) {
	_, p := opened(t, 1, 3, "#ns=default&key=user:0")
	p.until("a key is shown", `document.querySelectorAll("#counts tr").length === 4 &&
		document.querySelector("#shadowed button")`)
	p.write("#series-window", "37m")
	p.click("#lookup button")
	p.until("it has a row for the window", `[...document.querySelectorAll("#counts tr")].some(
		(row) => row.textContent === "no limit37m3––")`)
}

// TestRulesShowTheirRefusals draws the refusals of each rule over time, those in shadow too, and
// describes them for people who can't see the picture.
func TestRulesShowTheirRefusals(t *testing.T) {
	_, p := opened(t, 1, 5, "")
	label := func(rule string) string {
		return `document.querySelector('[data-trend="` + rule + `"]')?.ariaLabel`
	}
	p.until("what a rule refused is described", label("login")+
		`?.startsWith("login refused 2 in the last hour, most of them, 2, from ")`)
	p.until("what one in shadow would have refused, too", label("tight")+
		`?.startsWith("tight would have refused 4 in the last hour, most of them, ")`)
	var drawn string
	p.eval(`[...document.querySelectorAll(".trend")].map((e) => e.getAttribute("role") +
		Boolean(e.querySelector("polyline")) + e.classList.contains("shadow")).join()`, &drawn)
	if drawn != "imgtruefalse,imgtruetrue" {
		t.Errorf("drawn is %s", drawn)
	}
	p.click(`#rules-span [data-window="24h"]`)
	p.until("a day is shown", label("login")+`.startsWith("login refused 2 in the last 24 hours")`)
}

// TestPageShowsWarnings opens the page of a node without warnings, sends requests for two clients
// from an untrusted proxy, and puts a rule with a window of one bucket in force. The page reports
// that clients share a key, the place of the rule, and a replacement for it.
func TestPageShowsWarnings(t *testing.T) {
	node, p := opened(t, 0, 0, "")
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
	p.until("the editor says it", `/rules:2:25: coarse-window: .*\n  instead: a ladder/
		.test(document.querySelector("#rules-shown").textContent)`)
	p.until("the other one is counted", `document.querySelector("#warnings-summary").textContent ===
		"1 warning of this node"`)
	p.click("#warnings-summary")
	p.until("the list is open", `document.querySelector("#warnings").open`)
	list := p.text("#warnings-list")
	for _, want := range []string{"coarse-window", "rules:2:25",
		"Instead: a ladder of namespace default with finer buckets"} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in %q", want, list)
		}
	}
	p.fitsEveryScreen("warnings")
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
