package pagetest

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/token"
)

const banning = "rules:\n  - {name: login, limits: [3/1m], ban: 10m}\n"

// serveBans starts a node whose rule bans, and returns a function that gets keys banned, with the
// token as unless it is empty.
func serveBans(t *testing.T, as string, args ...string) (
	node *proctest.Process, ban func(keys ...string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	must.Write(t, file, banning)
	node = program.Serve(t, proctest.Options{MayComplain: true,
		Env: []string{"TWOTIER_ADMIN_TOKEN=" + secret}}, append([]string{"--redis",
		redistest.Start(t).URL(), "--rules", file}, args...)...)
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
		p.tell("Emulation.setEmulatedMedia", map[string]any{"features": []any{
			map[string]any{"name": "prefers-color-scheme", "value": scheme}}})
		p.shoot("phone-bans-" + scheme + ".png")
	}
	var wrong []string
	if p.eval(unreadable, &wrong); len(wrong) > 0 {
		t.Errorf("unreadable: %v", wrong)
	}
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
