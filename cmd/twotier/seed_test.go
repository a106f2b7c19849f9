package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/redistest"
)

// TestServeWaitsForTheSeed starts nodes while Redis is down. The node that knows the hash seed
// serves. The others wait, and then take the seed of the data in Redis.
func TestServeWaitsForTheSeed(t *testing.T) {
	redis := redistest.Start(t, redistest.AOF())
	first := startServe(t, t.Context(), "--node", "first", "--redis", redis.URL())
	fetch(t, "POST", first.url+"/v1/add", `{"key":"k","n":3,"ack":"redis"}`)
	seed, err := redis.Do("HGET", "tt:meta", "hash-seed").Text()
	if err != nil {
		t.Fatal(err)
	}
	redis.Kill()
	knows := startServe(t, t.Context(), "--node", "knows", "--redis", redis.URL(),
		"--hash-seed", seed)
	fetch(t, "POST", knows.url+"/v1/add", `{"key":"k"}`)
	late := &served{status: make(chan int, 1)}
	go func() {
		args := []string{"serve", "--listen", "127.0.0.1:0", "--node", "late", "--redis",
			redis.URL()}
		late.status <- run(t.Context(), args, nil, &late.out, &late.errs)
	}()
	t.Cleanup(func() { late.wait(t) })
	eventually(t, "says what it waits for", patience, func() bool {
		return strings.Contains(late.errs.String(), "waiting for it, it has the hash seed")
	})
	if late.out.String() != "" {
		t.Errorf("it serves: %s", late.out.String())
	}
	redis.Restart(t)
	eventually(t, "ready", patience, func() bool {
		return strings.Contains(late.out.String(), "\n")
	})
	direct := startServe(t, t.Context(), "--node", "direct", "--mode", "redis", "--redis",
		redis.URL())
	eventually(t, "both counts", patience, func() bool {
		return strings.Contains(fetch(t, "GET", direct.url+"/v1/count?key=k&window=24h", ""),
			`"count":4,`)
	})
	if now, err := redis.Do("HGET", "tt:meta", "hash-seed").Text(); now != seed {
		t.Errorf("the seed was %s and is %s, %v", seed, now, err)
	}
}

// TestServeEndsWhileItWaits stops a node that waits for a Redis that never comes.
func TestServeEndsWhileItWaits(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errs output
	status := make(chan int, 1)
	go func() {
		args := []string{"serve", "--listen", "127.0.0.1:0", "--redis", "redis://127.0.0.1:1"}
		status <- run(ctx, args, nil, &out, &errs)
	}()
	eventually(t, "waits", patience, func() bool {
		return strings.Contains(errs.String(), "waiting for it")
	})
	stop()
	if code := <-status; code != exitFailed || out.String() != "" {
		t.Errorf("status %d, stdout %q, stderr %s", code, out.String(), errs.String())
	}
}

// TestServeEndsWithAYoungerSeed has Redis lose the seed of a node and get an older one back, as a
// cluster writes it whose node this one is not. The node ends although Redis refuses its counts,
// and adopts that seed when it starts again.
func TestServeEndsWithAYoungerSeed(t *testing.T) {
	redis := redistest.Start(t)
	node := startServe(t, t.Context(), "--node", "late", "--redis", redis.URL(),
		"--drain-timeout", "1ms")
	fetch(t, "POST", node.url+"/v1/add", `{"key":"k","ack":"redis"}`)
	redis.Do("FLUSHALL")
	redis.Do("HSET", "tt:meta", "hash-seed", "5", "hash-seed-since", "1")
	fetch(t, "POST", node.url+"/v1/add", `{"key":"k"}`)
	eventually(t, "stops", patience, func() bool {
		return strings.Contains(node.errs.String(), "stopping:")
	})
	stopping := time.Now()
	status := <-node.status
	node.status <- exitOK // for the cleanup
	t.Logf("stopping took %v with --drain-timeout 1ms", time.Since(stopping))
	if status != exitFailed ||
		!strings.Contains(node.errs.String(), "place keys by another hash seed") {
		t.Errorf("status %d, stderr %s", status, node.errs.String())
	}
	again := startServe(t, t.Context(), "--node", "late", "--redis", redis.URL())
	view := fetch(t, "GET", again.url+"/v1/cluster?owners=true", "")
	if !strings.Contains(view, `"hash_seed":5,`) {
		t.Errorf("after another start: %.200s", view)
	}
}
