package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

// longWindows starts a server whose default namespace covers 31 days, and returns a function for
// each way to give it a window, by name. Each returns the error, or "" if there is none.
func longWindows(t *testing.T) map[string]func(window string) string {
	file := filepath.Join(t.TempDir(), "twotier.yaml")
	must.Write(t, file, "namespaces: {default: {ladder: [1s x 60, 1m x 90, 1h x 768]}}\n")
	s := warned{t, startServe(t, t.Context(), "--redis", redistest.Start(t).URL(), "--resp",
		"127.0.0.1:0", "--config", file)}
	var ready struct{ Resp string }
	decode(t, s.node.out.String(), &ready)
	conn, err := net.Dial("tcp", ready.Resp)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, conn.Close()) })
	replies := bufio.NewReader(conn)
	failed := func(text, sign string) string {
		if strings.Contains(text, sign) {
			return text
		}
		return ""
	}
	ask := func(format string) func(string) string {
		return func(window string) string {
			fmt.Fprintf(conn, format+"\r\nECHO end\r\n", window)
			all := ""
			for !strings.HasSuffix(all, "end\r\n") {
				line, err := replies.ReadString('\n')
				must.Succeed(t, err)
				all += line
			}
			return failed(all, "-ERR")
		}
	}
	send := func(path, body string) func(string) string {
		return func(window string) string {
			return failed(s.send(http.MethodPost, path, fmt.Sprintf(body, window), "Content-Type",
				"application/json"), `"detail"`)
		}
	}
	shell := func(args string) func(string) string {
		return func(window string) string {
			status, _, errs := exec(t, []string{"TWOTIER_SERVER=" + s.node.url},
				strings.Fields(fmt.Sprintf(args, window))...)
			if status == exitOK {
				return ""
			}
			return errs
		}
	}
	get := func(path string) func(string) string {
		return func(window string) string { return failed(s.get(path+window), `"detail"`) }
	}
	read := func(text string, args ...string) func(string) string {
		return func(window string) string {
			path := filepath.Join(t.TempDir(), "file.yaml")
			must.Write(t, path, fmt.Sprintf(text, window))
			status, out, errs := exec(t, nil, append(args, path)...)
			if status == exitOK {
				return ""
			}
			return out + errs
		}
	}
	check := []string{"rules", "check", "--config", file}
	serve := []string{"serve", "--print-config", "--config"}
	return map[string]func(string) string{
		"acquire":      send("/v1/acquire", `{"key":"a","limits":[{"window":"%s","max":99}]}`),
		"add":          send("/v1/add", `{"key":"a","limits":[{"window":"%s","max":99}]}`),
		"distinct":     send("/v1/distinct", `{"key":"a","values":["v"],"window":"%s"}`),
		"count":        get("/v1/count?key=a&window="),
		"series":       get("/v1/series?key=a&window="),
		"top":          get("/v1/top?window="),
		"TT.ACQUIRE":   ask("TT.ACQUIRE a LIMIT %s 99"),
		"TT.COUNT":     ask("TT.COUNT a %s"),
		"TT.SERIES":    ask("TT.SERIES a %s"),
		"TT.DISTINCT":  ask("TT.DISTINCT a WINDOW %s"),
		"--limit":      shell("acquire a --limit 99/%s"),
		"--check":      shell("acquire --check a:99/%s"),
		"count -w":     shell("count a --window %s"),
		"series -w":    shell("series a --window %s"),
		"top -w":       shell("top --window %s"),
		"distinct -w":  shell("distinct a --window %s"),
		"--timeout":    shell("count a --timeout %s"),
		"a rule":       read("rules: [{name: a, limits: 9/%s}]\n", check...),
		"its fields":   read("rules: [{name: a, limits: {max: 9, window: %s}}]\n", check...),
		"its distinct": read("rules: [{name: a, distinct: 9/%s}]\n", check...),
		"a setting":    read("redis: redis://h\nmax-lag: %s\n", serve...),
		"a flag":       shell("serve --print-config --redis redis://h --max-lag %s"),
		"a ladder":     read("namespaces: {default: {ladder: [%s x 9]}}\n", serve...),
	}
}

// TestLongWindowsMeanSomethingEverywhere gives days and weeks to everything that has a window or a
// duration, which accepts them, and months, which it refuses with the reason.
func TestLongWindowsMeanSomethingEverywhere(t *testing.T) {
	for name, try := range longWindows(t) {
		for _, window := range []string{"30d", "2w", "1w2d3h"} {
			if got := try(window); got != "" {
				t.Errorf("%s: %s is refused: %s", name, window, got)
			}
		}
		for _, window := range []string{"1mo", "2months"} {
			got := try(window)
			if !strings.Contains(got, "a month has no fixed length; want days") ||
				!strings.Contains(got, "30d") {
				t.Errorf("%s: %s: %q does not explain", name, window, got)
			}
		}
		if got := try("1x"); got == "" || strings.Contains(got, "a month has") {
			t.Errorf("%s: 1x: %q", name, got)
		}
	}
}

// TestCalendarWindowsAreRefusedWithTheReason gives calendar windows to what has none.
func TestCalendarWindowsAreRefusedWithTheReason(t *testing.T) {
	all := longWindows(t)
	for _, name := range []string{"series", "top", "TT.SERIES", "series -w", "top -w"} {
		for _, window := range []string{"month", "day@Asia/Shanghai"} {
			if got := all[name](window); !strings.Contains(got,
				"calendar windows are for limits and counts of events") {
				t.Errorf("%s: %s: %q", name, window, got)
			}
		}
		if got := all[name]("months"); got == "" || strings.Contains(got, "calendar windows") {
			t.Errorf("%s: months: %q", name, got)
		}
	}
}
