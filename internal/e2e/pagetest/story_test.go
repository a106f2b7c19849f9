package pagetest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// terminal collects the output of a process.
type terminal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *terminal) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// count returns how often the output has a text.
func (o *terminal) count(text string) int { return strings.Count(o.String(), text) }

func (o *terminal) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startDemo starts a demo with long chapters, and returns its process, its output, the addresses of
// its nodes and the token of its link.
func startDemo(t *testing.T) (cmd *exec.Cmd, out *terminal, urls []string, token string) {
	t.Helper()
	out = new(terminal)
	cmd = exec.Command(program.Path(t), "demo", "--step", "40s")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	cmd.Dir = t.TempDir()
	cmd.Stdout, cmd.Stderr = out, out
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill() // the test has failed
			_ = cmd.Wait()
		}
	})
	proctest.Until(t, "the demo runs", func() bool { return out.count("Ctrl-C ends it") > 0 })
	for _, m := range regexp.MustCompile(`node [abc]  (http://127\.0\.0\.1:\d+)/ `).
		FindAllStringSubmatch(out.String(), -1) {
		urls = append(urls, m[1])
	}
	link := regexp.MustCompile(`/#demo=(\w+) `).FindStringSubmatch(out.String())
	if len(urls) != 3 || link == nil {
		t.Fatalf("printed\n%s", out)
	}
	return cmd, out, urls, link[1]
}

// TestStoryOnThePage follows the story of a demo with the buttons of the page, on a screen and on a
// phone: each chapter is announced in the terminal and on the page, with its figures. Without the
// link from the terminal the page shows the story, and its buttons do nothing. Ctrl-C in the middle
// leaves nothing.
func TestStoryOnThePage(t *testing.T) {
	b := startBrowser(t)
	cmd, out, urls, token := startDemo(t)
	p := b.openAt(urls[0], "#demo="+token)
	p.screen(1280, 900)
	p.showsChapter("1 of 6", "Logins, and an attacker", "0 refused. The others:")
	p.until("the token is not in the address", `location.href.endsWith("/")`)
	p.until("decisions of a minute are drawn",
		`document.querySelector("#decisions-window [aria-pressed=true]").textContent === "1m"`)
	p.shoot("story-traffic.png")
	p.click("#story-next")
	p.showsChapter("2 of 6", "The rule in shadow", "would have been")
	p.click("#story-again")
	proctest.Until(t, "told again", func() bool { return out.count("[2/6]") == 2 })
	p.click("#story-to-on")
	p.showsChapter("3 of 6", "The rule is on", " refused. The others:")
	p.click("#story-show")
	p.until("it shows the decisions", `(() => {
		const at = document.querySelector("#decisions-title").getBoundingClientRect();
		return at.top >= 0 && at.bottom <= innerHeight; })()`)
	p.triesTheRule(token)
	p.click("#story-next")
	p.showsChapter("4 of 6", "A ban", "Banned until")
	p.until("the ban is listed",
		`/203\.0\.113\.66/.test(document.querySelector("#bans-rows").textContent)`)
	p.shoot("story-ban.png")
	p.click("#story-next")
	p.showsChapter("5 of 6", "A node is killed", "a reports 300, b is dead, c reports 300.")
	p.until("the member is gone", `[...document.querySelectorAll("#members .gone")].some((r) =>
		r.querySelector("a").textContent === "b")`)
	p.shoot("story-kill.png")
	if got := out.count("[4/6]"); got != 1 {
		t.Errorf("the ban was told %d times", got)
	}
	p.click("#story-next")
	p.showsChapter("6 of 6", "The node is back",
		"a reports 400, b reports 400, c reports 400.")
	p.until("all members are alive",
		`document.querySelectorAll("#members .state.good").length === 3`)
	p.isReadableOnAPhone()
	other := b.openAt(urls[0], "") // in another tab
	other.showsChapter("6 of 6", "The node is back", "b reports 400")
	other.click("#story-next")
	other.until("it needs the link", `!document.querySelector("#story-note").hidden &&
		/link that the terminal shows/.test(document.querySelector("#story-note").textContent)`)
	if got := out.count("[1/6]"); got != 1 {
		t.Errorf("the story has begun %d times", got)
	}
	p.click("#story-to-kill")
	proctest.Until(t, "killed again", func() bool { return out.count("[5/6]") == 2 })
	endDemo(t, cmd, out, urls)
}

// triesTheRule tries and applies another limit in the demo. Only addresses that have logged in are
// looked at, and the link's token is enough, also at another node.
func (p *page) triesTheRule(token string) {
	p.t.Helper()
	p.click(`button[data-rule="login"]`)
	const status = `document.querySelector("#trial-status").textContent`
	p.until("keys are looked at", `/would refuse [01] of [0-9,]+ keys now/.test(`+status+`)`)
	var keys []string
	p.eval(`[...document.querySelectorAll("#trial-keys a")].map((e) => e.textContent)`, &keys)
	if len(keys) == 0 || slices.ContainsFunc(keys, func(key string) bool {
		return !strings.HasPrefix(key, "ip:")
	}) {
		p.t.Errorf("it would refuse %q", keys)
	}
	p.write(first, "12")
	p.until("it is tried", `/^With 12\/10s it would refuse/.test(`+status+`)`)
	p.click("#trial-apply")
	p.until("it is in force", `/^Version [0-9]+ is in force/.test(
		document.querySelector("#trial-done").textContent)`)
	p.click("#trial-close")
	var hash string
	p.eval(`(() => {
		addEventListener("click", (e) => e.preventDefault(), { once: true });
		const links = [...document.querySelectorAll("#members a")];
		const link = links.find((a) => a.textContent === "c");
		link.click();
		return link.hash; })()`, &hash)
	if hash != "#demo="+token {
		p.t.Errorf("the link to another node has %q", hash)
	}
}

// showsChapter waits until the banner shows a chapter with figures.
func (p *page) showsChapter(place, title, figures string) {
	p.t.Helper()
	p.until("the chapter "+title, fmt.Sprintf(`!document.querySelector("#story").hidden &&
		document.querySelector("#story-place").textContent === %q &&
		document.querySelector("#story-title").textContent === %q &&
		document.querySelector("#story-figures").textContent.includes(%q) &&
		document.querySelector("#story [aria-current]").textContent === %q &&
		document.querySelector("#story-problem").textContent === ""`, place, title, figures, title))
}

// isReadableOnAPhone checks that the page with the banner can be read and tapped on a phone.
func (p *page) isReadableOnAPhone() {
	p.t.Helper()
	p.screen(390, 844)
	p.until("it fits", "innerWidth === 390")
	p.legible("on a phone")
	p.shoot("story-phone.png")
}

// endDemo presses Ctrl-C: the process ends well, and leaves no listeners and no files.
func endDemo(t *testing.T, cmd *exec.Cmd, out *terminal, urls []string) {
	t.Helper()
	must.Succeed(t, cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, url := range urls {
		if conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")); err == nil {
			t.Errorf("%s is still there: %v", url, conn.Close())
		}
	}
	if list, err := os.ReadDir(cmd.Dir); err != nil || len(list) > 0 {
		t.Errorf("files are left: %v, %v", list, err)
	}
}
