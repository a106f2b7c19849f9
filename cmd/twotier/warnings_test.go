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
	"twotier.dev/twotier/internal/warning"
)

// warned is a server whose warnings are read.
type warned struct {
	t    *testing.T
	node *served
}

// get returns the body of an answer to a request with headers.
func (s *warned) get(path string, header ...string) string {
	s.t.Helper()
	_, text := call(s.t, http.MethodGet, s.node.url+path, "", header...)
	return text
}

func (s *warned) post(path, body string) string {
	s.t.Helper()
	_, text := call(s.t, http.MethodPost, s.node.url+path, body)
	return text
}

// warns fails the test unless a warning is in the log once, in the metric, and at /v1/rules with
// that place, and doctor finds it at the running node.
func (s *warned) warns(code warning.Code, at string) {
	s.t.Helper()
	if n := strings.Count(s.node.errs.String(), "warning="+string(code)+" "); n != 1 {
		s.t.Errorf("%s is %d times in the log:\n%s", code, n, s.node.errs.String())
	}
	if all := s.get("/metrics"); !strings.Contains(all, `twotier_warnings{code="`+string(code)+
		`"} 1`) {
		s.t.Errorf("%s is not in the metric", code)
	}
	var answer struct{ Warnings []warning.Warning }
	decode(s.t, s.get("/v1/rules?warnings=true"), &answer)
	found := false
	for _, w := range answer.Warnings {
		found = found || w.Code == code && strings.Contains(w.At, at)
	}
	if !found {
		s.t.Errorf("%s at %s is not among %v", code, at, answer.Warnings)
	}
	_, out, _ := exec(s.t, nil, "doctor", "--listen", strings.TrimPrefix(s.node.url, "http://"))
	if !strings.Contains(out, "("+string(code)+")") {
		s.t.Errorf("doctor does not find %s:\n%s", code, out)
	}
}

// TestNothingIsMisconfiguredInSilence misconfigures a server in typical ways: an untrusted proxy,
// windows of few buckets, rules that share counts. Each one warns in all places.
func TestNothingIsMisconfiguredInSilence(t *testing.T) {
	file := must.File(t, "rules.yaml",
		"rules:\n- {name: login, limits: [99/500ms]}\n- {name: search, limits: [30/1m]}\n")
	s := warned{t, startServe(t, t.Context(), "--redis", redistest.Start(t).URL(), "--rules",
		file)}
	t.Run("a window of five buckets", func(t *testing.T) {
		s.t = t
		s.warns(warning.CoarseWindow, "rules:2:26")
	})
	t.Run("rules with one key", func(t *testing.T) {
		s.t = t
		s.warns(warning.SharedCounts, "rules:3:10")
	})
	t.Run("a proxy that is not trusted", func(t *testing.T) {
		s.t = t
		for _, client := range []string{"203.0.113.7", "203.0.113.8"} {
			s.get("/v1/forward-auth?rule=search&key=ip", "X-Forwarded-For", client)
		}
		s.warns(warning.ForwardedUntrusted, "127.0.0.1")
	})
	t.Run("a domain of no rule", func(t *testing.T) {
		s.t = t
		for range 2 {
			s.post("/json", `{"domain":"webb","descriptors":[{"entries":[{"key":`+
				`"k","value":"v"}]}]}`)
		}
		s.warns(warning.UnknownDomain, "webb")
	})
	t.Run("all of it offline", func(t *testing.T) {
		status, out, _ := exec(t, nil, "rules", "check", file)
		for _, want := range []string{file + ":2:26: coarse-window: ",
			file + ":3:10: shared-counts: ", "no mistakes, 2 warnings"} {
			if status != exitOK || !strings.Contains(out, want) {
				t.Errorf("status %d, no %q:\n%s", status, want, out)
			}
		}
		status, _, errs := exec(t, []string{"TWOTIER_LISTN=x"}, "serve", "--rules", file,
			"--print-config")
		for _, want := range []string{"TWOTIER_LISTN: unknown-variable: ",
			"instead: a name that twotier serve --help lists", "coarse-window", "shared-counts"} {
			if status != exitOK || !strings.Contains(errs, want) {
				t.Errorf("status %d, no %q:\n%s", status, want, errs)
			}
		}
	})
}

// TestLimitsOfRequestsWarnWhenTheyRefuse sends limits that no rule has. A limit over a window of
// few buckets warns once it refuses; others never do, and neither does a limit on events that keep
// their millisecond.
func TestLimitsOfRequestsWarnWhenTheyRefuse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "twotier.yaml")
	const text = "namespaces:\n  default: {ladder: [1s x 60, 1m x 60, 15m x 96], exact: 0}\n" +
		"  exact: {exact: 1}\n"
	must.Write(t, file, text)
	s := warned{t, startServe(t, t.Context(), "--redis", redistest.Start(t).URL(), "--resp",
		"127.0.0.1:0", "--config", file)}
	acquire := func(ns, window string) {
		for range 3 {
			s.post("/v1/acquire", `{"ns":"`+ns+`","key":"a","limits":[{"window":"`+window+
				`","max":1}]}`)
		}
	}
	var ready struct{ Resp string }
	decode(t, s.node.out.String(), &ready)
	conn, err := net.Dial("tcp", ready.Resp)
	must.Succeed(t, err)
	defer conn.Close()
	listed := func(at string) bool {
		return strings.Contains(s.get("/v1/rules?warnings=true"), `"at":"`+at+`"`)
	}
	const three = "limits over 3s in namespace default"
	eventually(t, "a warning of a window of three buckets", patience, func() bool {
		acquire("exact", "1s")
		acquire("default", "1m")
		acquire("default", "day")
		acquire("default", "3s")
		return listed(three)
	})
	s.warns(warning.CoarseWindow, three)
	eventually(t, "a warning of CL.THROTTLE", patience, func() bool {
		fmt.Fprint(conn, "CL.THROTTLE c 0 1 1\r\n") // one in a second
		return listed("limits over 1s in namespace default")
	})
	all := s.get("/v1/rules?warnings=true")
	if strings.Contains(all, "over 1m ") || strings.Contains(all, "over day ") ||
		strings.Contains(all, "namespace exact") {
		t.Errorf("a limit over a minute or a day warns, or an exact one: %s", all)
	}
}

// longWindows starts a server whose default namespace covers 31 days, and returns a function for
// each way to give it a window, by name. Each returns the error, or "" if there is none.
func longWindows(t *testing.T) map[string]func(window string) string {
	file := must.File(t, "twotier.yaml",
		"namespaces: {default: {ladder: [1s x 60, 1m x 90, 1h x 768]}}\n")
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
			return failed(s.post(path, fmt.Sprintf(body, window)), `"detail"`)
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
			path := must.File(t, "file.yaml", fmt.Sprintf(text, window))
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
