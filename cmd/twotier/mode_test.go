package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier/internal/redistest"
)

// ready is the line that a server prints once it is.
type ready struct{ Listen, Gossip string }

// startServe runs serve until the test ends, and returns what it says when it is ready.
func startServe(t *testing.T, args ...string) (r ready) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var out, errs output
	status := make(chan int, 1)
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0"}, args...)
	go func() { status <- run(ctx, args, nil, nil, &out, &errs) }()
	t.Cleanup(func() {
		stop()
		if code := <-status; code != exitOK {
			t.Errorf("serve ended with status %d:\n%s", code, errs.String())
		}
	})
	eventually(t, "ready", 30*time.Second, func() bool { return strings.Contains(out.String(), "\n") })
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatalf("%v: %s\n%s", err, out.String(), errs.String())
	}
	return r
}

// TestModeFromAShell switches a running cluster of three to and fro, and counts on in between.
func TestModeFromAShell(t *testing.T) {
	const token = "the token of this test"
	redis := redistest.Start(t)
	var servers []string
	join := ""
	for _, id := range []string{"a", "b", "c"} {
		args := []string{"--node", id, "--redis", redis.URL(), "--admin-token", token}
		if join != "" {
			args = append(args, "--join", join)
		}
		r := startServe(t, args...)
		servers, join = append(servers, "http://"+r.Listen), r.Gossip
	}
	eventually(t, "three members", 30*time.Second, func() bool {
		return !slices.ContainsFunc(servers, func(s string) bool {
			return strings.Count(ask(t, "GET", s+"/v1/cluster", ""), `"state":"alive"`) != 3
		})
	})
	environ := []string{"TWOTIER_ADMIN_TOKEN=" + token}
	counted := 0
	for turn, mode := range []string{"two-tier", "redis", "two-tier"} {
		if code, out, errs := exec(t, environ, "mode", mode, "--server", servers[turn]); code != exitOK || out != "all nodes count in "+mode+" mode\n" {
			t.Fatalf("status %d, %s%s", code, out, errs)
		}
		for _, s := range servers {
			if code, out, errs := exec(t, nil, "mode", "--server", s); code != exitOK || out != mode+"\n" {
				t.Errorf("%s: status %d, %s%s", s, code, out, errs)
			}
			ask(t, "POST", s+"/v1/add", `{"key":"k"}`)
			counted++
			if got := ask(t, "GET", s+"/v1/count?key=k&window=24h", ""); !strings.Contains(got, fmt.Sprintf(`"count":%d,`, counted)) {
				t.Errorf("%s in %s mode: %s, want %d", s, mode, got, counted)
			}
		}
	}
	if code, _, errs := exec(t, nil, "mode", "redis", "--server", servers[0], "--admin-token", "not the one of this test"); code != exitFailed || !strings.Contains(errs, "another --admin-token") {
		t.Errorf("status %d, %s", code, errs)
	}
	if code, out, errs := exec(t, nil, "cluster", "--owners", "--server", servers[0]); code != exitOK || strings.Count(out, "alive") != 3 || !strings.Contains(out, "\n   980  ") {
		t.Errorf("status %d, %s%s", code, out, errs)
	}
}
