package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	return s.send(http.MethodGet, path, "", header...)
}

func (s *warned) send(method, path, body string, header ...string) string {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.node.url+path,
		strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
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
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rules:\n- {name: login, limits: [99/500ms]}\n- {name: search, limits: [30/1m]}\n")
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
			s.send(http.MethodPost, "/json", `{"domain":"webb","descriptors":[{"entries":[{"key":`+
				`"k","value":"v"}]}]}`, "Content-Type", "application/json")
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
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := warned{t, startServe(t, t.Context(), "--redis", redistest.Start(t).URL(), "--resp",
		"127.0.0.1:0", "--config", file)}
	acquire := func(ns, window string) {
		for range 3 {
			s.send(http.MethodPost, "/v1/acquire", `{"ns":"`+ns+`","key":"a","limits":[{"window":"`+
				window+`","max":1}]}`, "Content-Type", "application/json")
		}
	}
	var ready struct{ Resp string }
	decode(t, s.node.out.String(), &ready)
	conn, err := net.Dial("tcp", ready.Resp)
	if err != nil {
		t.Fatal(err)
	}
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

// TestDoctorWithoutItsNode has doctor look for a node that does not run.
func TestDoctorWithoutItsNode(t *testing.T) {
	_, about := diagnose(t, "--listen", "127.0.0.1:1")
	const node = "warnings of the node at --listen"
	if f := about[node]; f.Level != "ok" || !strings.Contains(f.Found, "does not run") {
		t.Errorf("nobody: %+v", f)
	}
}
