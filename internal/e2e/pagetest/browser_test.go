package pagetest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// browser is a headless Chromium that the test controls through the DevTools protocol, over a pipe:
// that takes no library and no port.
type browser struct {
	t  testing.TB
	to io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
	wrong   []string          // faults of the pages
	outside []string          // their requests to other servers
	bases   map[string]string // the address that the page of a session may ask
	ended   chan struct{}
}

// reply is a message of the browser.
type reply struct {
	ID        int
	SessionID string
	Method    string
	Params    json.RawMessage
	Result    json.RawMessage
	Error     *struct{ Message string }
}

// startBrowser starts a browser that ends with the test, or skips the test if there is none.
func startBrowser(t testing.TB) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		t.Skip("there is no chromium on this machine")
	}
	theirIn, ourOut, err := os.Pipe()
	must.Succeed(t, err)
	ourIn, theirOut, err := os.Pipe()
	must.Succeed(t, err)
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-dev-shm-usage", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(),
		"--lang=en", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4 there
	must.Succeed(t, cmd.Start())
	must.Succeed(t, theirIn.Close())
	must.Succeed(t, theirOut.Close())
	b := &browser{t: t, to: ourOut, waiting: map[int]chan reply{}, bases: map[string]string{},
		ended: make(chan struct{})}
	go b.runRead(ourIn)
	t.Cleanup(func() {
		b.send("", "Browser.close", nil)
		select {
		case <-b.ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill() // it has ended, or does now
		}
		_ = ourOut.Close()
		_ = cmd.Wait() // however it ended
	})
	return b
}

// runRead dispatches the browser's messages until it ends.
func (b *browser) runRead(from io.ReadCloser) {
	defer close(b.ended)
	defer from.Close()
	for r := bufio.NewReader(from); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m reply
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if to := b.waiting[m.ID]; to != nil && m.ID > 0 {
			delete(b.waiting, m.ID)
			to <- m
		} else {
			b.eventLocked(m)
		}
		b.mu.Unlock()
	}
}

// eventLocked records the faults of a page: exceptions, violations of the content policy, and
// requests to other servers.
func (b *browser) eventLocked(m reply) {
	text := string(m.Params)
	switch m.Method {
	case "Runtime.exceptionThrown":
		b.wrong = append(b.wrong, text)
	case "Log.entryAdded":
		if strings.Contains(text, "Content Security Policy") ||
			strings.Contains(text, `"source":"javascript"`) {
			b.wrong = append(b.wrong, text)
		}
	case "Network.requestWillBeSent":
		var p struct{ Request struct{ URL string } }
		base := b.bases[m.SessionID] + "/"
		if json.Unmarshal(m.Params, &p) == nil && !strings.HasPrefix(p.Request.URL, base) &&
			!strings.HasPrefix(p.Request.URL, "data:") {
			b.outside = append(b.outside, p.Request.URL)
		}
	}
}

// send sends a command, and returns the channel for its reply.
func (b *browser) send(session, method string, params any) chan reply {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	command := map[string]any{"id": b.last, "method": method}
	if params != nil {
		command["params"] = params
	}
	if session != "" {
		command["sessionId"] = session
	}
	to := make(chan reply, 1)
	b.waiting[b.last] = to
	text, err := json.Marshal(command)
	if err != nil {
		b.t.Error(err)
	}
	_, _ = b.to.Write(append(text, 0)) // a caller that gets no answer reports that
	return to
}

// patience is how long any step of the browser may take.
const patience = 2 * time.Minute

// do sends a command and reads its result into result, if that is not nil.
func (b *browser) do(session, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case m := <-b.send(session, method, params):
		switch {
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-b.ended:
		return fmt.Errorf("%s: the browser has ended", method)
	case <-ctx.Done():
		return fmt.Errorf("%s: no answer", method)
	}
}

// page is a page in a browser.
type page struct {
	*browser
	session string
}

// open opens the page of a node. The end of the test checks that the page caused no fault.
func (b *browser) open(node *proctest.Process, fragment string) *page {
	b.t.Helper()
	return b.openAt(node.Base, fragment)
}

// openAt is open for the page at an address.
func (b *browser) openAt(base, fragment string) *page {
	b.t.Helper()
	var made struct{ TargetID, SessionID string }
	must.Succeed(b.t, b.do("", "Target.createTarget", map[string]any{"url": "about:blank"}, &made))
	must.Succeed(b.t, b.do("", "Target.attachToTarget",
		map[string]any{"targetId": made.TargetID, "flatten": true}, &made))
	p := &page{browser: b, session: made.SessionID}
	b.mu.Lock()
	b.bases[p.session] = base
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.tell(domain+".enable", nil)
	}
	p.tell("Page.bringToFront", nil) // a hidden page asks for nothing
	p.tell("Page.navigate", map[string]any{"url": base + "/" + fragment})
	p.until("it is there", `document.readyState === "complete" && "started" in document.body.dataset`)
	b.t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.wrong)+len(b.outside) > 0 {
			b.t.Errorf("the page did wrong: %v; asked others: %v", b.wrong, b.outside)
		}
	})
	return p
}

// tell sends a command that must succeed.
func (p *page) tell(method string, params map[string]any) {
	p.t.Helper()
	must.Succeed(p.t, p.do(p.session, method, params, nil))
}

// eval evaluates an expression, and reads its value into value, if that is not nil.
func (p *page) eval(expression string, value any) {
	p.t.Helper()
	must.Succeed(p.t, p.evaluate(expression, value))
}

// evaluate is eval for an expression that may fail.
func (p *page) evaluate(expression string, value any) error {
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	err := p.do(p.session, "Runtime.evaluate", map[string]any{"expression": expression,
		"returnByValue": true, "awaitPromise": true}, &got)
	switch {
	case err != nil:
		return err
	case got.ExceptionDetails != nil:
		return fmt.Errorf("%s: %s", expression, got.ExceptionDetails)
	case value != nil && len(got.Result.Value) > 0:
		return json.Unmarshal(got.Result.Value, value)
	}
	return nil
}

// text returns the text of the first element that a selector matches.
func (p *page) text(selector string) (text string) {
	p.t.Helper()
	p.eval(fmt.Sprintf("document.querySelector(%q)?.textContent ?? ''", selector), &text)
	return text
}

// until waits until an expression is true. It may fail until then, as while the page is loaded.
func (p *page) until(what, expression string) {
	p.t.Helper()
	proctest.UntilNil(p.t, what, func() error {
		var holds bool
		if err := p.evaluate("Boolean("+expression+")", &holds); err != nil || holds {
			return err
		}
		var page string
		err := p.evaluate(`[document.readyState, document.visibilityState,
			document.body?.className, document.querySelector("#state")?.textContent,
			...performance.getEntriesByType("resource").filter((e) => e.responseStatus !== 200)
				.map((e) => e.responseStatus + " " + e.name)].join(", ")`, &page)
		return errors.Join(err, fmt.Errorf("%s does not hold, the page is %s", expression, page))
	})
}

// press clicks with the mouse at a point.
func (p *page) press(x, y float64) {
	p.t.Helper()
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.mouse(kind, x, y)
	}
}

// mouse sends one event of the mouse.
func (p *page) mouse(kind string, x, y float64) {
	p.t.Helper()
	params := map[string]any{"type": kind, "x": x, "y": y}
	if kind != "mouseMoved" {
		params["button"], params["clickCount"] = "left", 1
	}
	p.tell("Input.dispatchMouseEvent", params)
}

// middle scrolls to the first element that a selector matches, and returns where its middle is.
func (p *page) middle(selector string) (x, y float64) {
	p.t.Helper()
	var at []float64
	p.eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q);
		e.scrollIntoView({ block: "center", behavior: "instant" });
		const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`,
		selector), &at)
	return at[0], at[1]
}

// click clicks in the middle of the first element that a selector matches.
func (p *page) click(selector string) {
	p.t.Helper()
	p.aim(selector, "click", func(x, y float64) {
		p.mouse("mouseMoved", x, y)
		p.press(x, y)
	})
}

// aim acts on the middle of the first element that a selector matches, until the element has got
// the last event of the action. An answer that arrives in between may move the element: then the
// page ignores what hits another one.
func (p *page) aim(selector, last string, act func(x, y float64)) {
	p.t.Helper()
	proctest.UntilNil(p.t, last, func() error {
		x, y := p.middle(selector)
		p.eval(fmt.Sprintf(`(() => {
			const e = document.querySelector(%q);
			const kinds = ["pointerdown", "mousedown", "pointerup", "mouseup", "click"];
			const guard = (event) => {
				if (!e.contains(event.target)) {
					event.preventDefault();
					event.stopImmediatePropagation();
				} else if (event.type === %q) unguard(true);
			};
			window.unguard = (hit) => {
				for (const kind of kinds) removeEventListener(kind, guard, true);
				window.unguard = () => hit;
				return hit;
			};
			for (const kind of kinds) addEventListener(kind, guard, true);
		})()`, selector, last), nil)
		act(x, y)
		hit := true // what opens another document has hit
		p.eval("window.unguard ? unguard(false) : true", &hit)
		if !hit {
			return fmt.Errorf("%s is no longer at %g, %g", selector, x, y)
		}
		return nil
	})
}

// key presses a key.
func (p *page) key(name string) {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		p.tell("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name,
			"windowsVirtualKeyCode": map[string]int{"Tab": 9, "ArrowLeft": 37, "Home": 36,
				"Enter": 13}[name]})
	}
}

// write replaces the content of a field.
func (p *page) write(selector, text string) {
	p.t.Helper()
	p.eval(fmt.Sprintf("document.querySelector(%q).focus()", selector), nil)
	p.eval(fmt.Sprintf("document.querySelector(%q).select()", selector), nil)
	p.tell("Input.insertText", map[string]any{"text": text})
}
