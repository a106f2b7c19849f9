package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
)

// TestModeFromAShell switches a running cluster of three nodes back and forth, and counts in
// between.
func TestModeFromAShell(t *testing.T) {
	const token = "the token of this test"
	nodes := startThree(t, t.Context(), "--redis", redistest.Start(t).URL(), "--admin-token", token)
	environ := []string{"TWOTIER_ADMIN_TOKEN=" + token}
	counted := 0
	for turn, mode := range []string{"two-tier", "redis", "two-tier"} {
		if code, out, errs := exec(t, environ, "mode", mode, "--server",
			nodes[turn].url); code != exitOK || out != "all nodes count in "+mode+" mode\n" {
			t.Fatalf("status %d, %s%s", code, out, errs)
		}
		for _, n := range nodes {
			if code, out, errs := exec(t, nil, "mode", "--server", n.url); code != exitOK ||
				out != mode+"\n" {
				t.Errorf("%s: status %d, %s%s", n.url, code, out, errs)
			}
			fetch(t, "POST", n.url+"/v1/add", `{"key":"k"}`)
			counted++
			got := fetch(t, "GET", n.url+"/v1/count?key=k&window=24h", "")
			if !strings.Contains(got,
				fmt.Sprintf(`"count":%d,`, counted)) {
				t.Errorf("%s in %s mode: %s, want %d", n.url, mode, got, counted)
			}
		}
	}
	if code, _, errs := exec(t, nil, "mode", "redis", "--server", nodes[0].url, "--admin-token",
		"not the one of this test"); code != exitFailed ||
		!strings.Contains(errs, "does not know this token") {
		t.Errorf("status %d, %s", code, errs)
	}
	if code, out, errs := exec(t, nil, "cluster", "--owners", "--server",
		nodes[0].url); code != exitOK || strings.Count(out, "alive") != 3 ||
		!strings.Contains(out, "\n   210  ") {
		t.Errorf("status %d, %s%s", code, out, errs)
	}
}

// TestModeOfAHotKey switches a cluster to Redis mode while every node counts a hot key locally.
// Once Redis decides, it must have all counts.
func TestModeOfAHotKey(t *testing.T) {
	const token = "the token of this test"
	nodes := startThree(t, t.Context(), "--redis", redistest.Start(t).URL(), "--admin-token", token,
		"--hot-rate", "50", "--flush-interval", "1m", "--max-lag", "0")
	const batch = 64
	body := `{"ops":[` + strings.Repeat(`{"op":"add","key":"hot"},`, batch-1) +
		`{"op":"add","key":"hot"}]}`
	var total atomic.Int64
	count := func(n *served) string {
		answer := fetch(t, "POST", n.url+"/v1/batch", body)
		if strings.Contains(answer, `"error"`) {
			t.Error(answer)
		}
		total.Add(batch)
		return answer
	}
	eventually(t, "every node counts the key itself", patience, func() bool {
		near := 0
		for _, n := range nodes {
			near += min(1, strings.Count(count(n), `"source":"near"`))
		}
		return near == len(nodes)-1
	})
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for _, n := range nodes {
		done.Go(func() {
			for ctx.Err() == nil {
				count(n)
			}
		})
	}
	code, out, errs := exec(t, []string{"TWOTIER_ADMIN_TOKEN=" + token}, "mode", "redis",
		"--server", nodes[0].url)
	stop()
	done.Wait()
	if code != exitOK {
		t.Fatalf("status %d, %s%s", code, out, errs)
	}
	for _, n := range nodes {
		if got := fetch(t, "GET", n.url+"/v1/count?key=hot&window=24h", ""); !strings.Contains(got,
			fmt.Sprintf(`"count":%d,`, total.Load())) {
			t.Errorf("%s, want %d", got, total.Load())
		}
	}
}

// TestResetWhileTheModeChanges resets keys over and over while a cluster is switched back and
// forth. No reset may fail with an internal error.
func TestResetWhileTheModeChanges(t *testing.T) {
	const token = "the token of this test"
	nodes := startThree(t, t.Context(), "--redis", redistest.Start(t).URL(), "--admin-token", token)
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for i, n := range nodes {
		done.Go(func() {
			for k := i; ctx.Err() == nil; k = (k + 3) % 60 {
				res, err := http.Post(n.url+"/v1/reset", "application/json",
					strings.NewReader(fmt.Sprintf(`{"key":"k%d"}`, k)))
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
				if res.StatusCode == http.StatusInternalServerError {
					t.Error(res.Status)
				}
			}
		})
	}
	for _, mode := range []string{"redis", "two-tier", "redis", "two-tier"} {
		if code, out, errs := exec(t, []string{"TWOTIER_ADMIN_TOKEN=" + token}, "mode", mode,
			"--server", nodes[0].url); code != exitOK {
			t.Errorf("status %d, %s%s", code, out, errs)
		}
	}
	stop()
	done.Wait()
}
