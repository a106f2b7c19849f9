package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/doctor"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/ring"
)

// fakeAgreement fails with its errors.
type fakeAgreement struct{ err, health error }

func (f fakeAgreement) EnsureAgreement(context.Context) error { return f.err }

func (f fakeAgreement) Health() redisstore.Health { return redisstore.Health{Err: f.health} }

// TestAnOlderSeedEndsTheServer wherever the store reports it: a flush that was under way may have
// set the health of the store right again.
func TestAnOlderSeedEndsTheServer(t *testing.T) {
	older := fmt.Errorf("probe: %w", redisstore.ErrOlderSeed)
	for name, test := range map[string]struct {
		store fakeAgreement
		ends  bool
	}{
		"agreed":          {fakeAgreement{}, false},
		"down":            {fakeAgreement{errors.New("down"), errors.New("down")}, false},
		"another setting": {fakeAgreement{redisstore.ErrMismatch, redisstore.ErrMismatch}, false},
		"returned":        {fakeAgreement{older, nil}, true},
		"in the health":   {fakeAgreement{nil, older}, true},
	} {
		s := &server{log: slog.New(slog.DiscardHandler)}
		if err := s.ensureAgreement(t.Context(), test.store); (err != nil) != test.ends ||
			test.ends && !errors.Is(err, redisstore.ErrOlderSeed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOthersOnOneRedisAreNoticed starts a cluster and a server without one over one Redis, with the
// same prefix. Each warns of the other in all places, until it ends. A third server with another
// prefix is none of their business.
func TestOthersOnOneRedisAreNoticed(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t).URL()
	a := startServe(t, t.Context(), "--node", "a", "--redis", redis)
	ctx, stop := context.WithCancel(t.Context())
	lone := startServe(t, ctx, "--node", "lone", "--gossip", "", "--redis", redis)
	other := startServe(t, t.Context(), "--redis", redis, "--redis-prefix", "other")
	for s, at := range map[*served]string{a: "node lone (", lone: "node a ("} {
		eventually(t, "warned of "+at, patience, func() bool {
			return strings.Contains(s.errs.String(), "warning=unmet-node")
		})
		w := warned{t, s}
		w.warns(warning.UnmetNode, at)
	}
	if text := other.errs.String(); strings.Contains(text, "unmet-node") {
		t.Errorf("another prefix: %s", text)
	}
	stop()
	lone.wait(t)
	eventually(t, "no warning any more", patience, func() bool {
		return !strings.Contains(fetch(t, "GET", a.url+"/v1/rules?warnings=true", ""), "unmet-node")
	})
}

// TestDoctorComparesJoin has doctor examine the settings of a node of three that knows one other,
// and of one that knows both.
func TestDoctorComparesJoin(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t).URL()
	nodes := startThree(t, t.Context(), "--redis", redis)
	for join, level := range map[string]doctor.Level{
		nodes[0].gossip + "," + nodes[1].gossip:                         doctor.Warning,
		nodes[0].gossip + "," + nodes[1].gossip + "," + nodes[2].gossip: doctor.Fine,
	} {
		_, about := diagnose(t, "--redis", redis, "--gossip", nodes[0].gossip, "--join", join,
			"--listen", strings.TrimPrefix(nodes[0].url, "http://"))
		if f := about["--join"]; f.Level != level {
			t.Errorf("--join %s: %+v", join, f)
		}
	}
}

// TestServeWaitsForTheSeed starts nodes while Redis is down. The node that knows the hash seed
// serves. The others wait, and then take the seed of the data in Redis.
func TestServeWaitsForTheSeed(t *testing.T) {
	redis := redistest.Start(t, redistest.AOF())
	first := startServe(t, t.Context(), "--node", "first", "--redis", redis.URL())
	fetch(t, "POST", first.url+"/v1/add", `{"key":"k","n":3,"ack":"redis"}`)
	seed, err := redis.Do("HGET", "tt:meta", "hash-seed").Text()
	must.Succeed(t, err)
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

// TestNodesWithOtherHashTags checks that nodes that would place keys differently, or look for them
// under another prefix, refuse each other even before they have reached Redis.
func TestNodesWithOtherHashTags(t *testing.T) {
	digest := func(text string) uint64 {
		t.Helper()
		path := must.File(t, "twotier.yaml", text)
		cfg, err := config.Parse([]string{"--config", path}, nil)
		must.Succeed(t, err)
		return dataDigest(placement(cfg), cfg.RedisPrefix)
	}
	tagged := digest("namespaces: {sms: {hash-tags: true}, login: {}}")
	if same := digest("namespaces: {sms: {hash-tags: true}, default: {hash-tags: false}}"); same !=
		tagged {
		t.Errorf("%x and %x place keys in the same way", tagged, same)
	}
	for _, other := range []string{"namespaces: {}", "namespaces: {sms: {}, login: {}}",
		"redis-prefix: tt-staging\nnamespaces: {sms: {hash-tags: true}}",
		"namespaces: {login: {hash-tags: true}}", "namespaces: {default: {hash-tags: true}}"} {
		if digest(other) == tagged {
			t.Errorf("the same as of %q", other)
		}
	}
}

// TestExactValues adds values to a key of a namespace that counts four exactly, in both modes. The
// count of five is an estimate, and exact in another namespace.
func TestExactValues(t *testing.T) {
	file := must.File(t, "twotier.yaml", "namespaces: {few: {exact-values: 4}}\n")
	for _, mode := range []string{"two-tier", "redis"} {
		node := startServe(t, t.Context(), "--redis", redistest.Start(t).URL(), "--mode", mode,
			"--config", file)
		for _, step := range []struct {
			ns, values string
			exact      bool
		}{
			{"few", `"a","b","c","d"`, true}, {"few", `"e"`, false},
			{"default", `"a","b","c","d","e"`, true},
		} {
			answer := fetch(t, "POST", node.url+"/v1/distinct", `{"ns":"`+step.ns+
				`","key":"k","values":[`+step.values+`],"window":"1h"}`)
			if !strings.Contains(answer, `"error":`) ||
				strings.Contains(answer, `"error":0}`) != step.exact {
				t.Errorf("%s, %s after %s: %s", mode, step.ns, step.values, answer)
			}
		}
	}
}

// TestMembersWithOtherZones lists the releases of a cluster: one warning for each other release,
// and none about members that announce none.
func TestMembersWithOtherZones(t *testing.T) {
	list := lintZones("2025c", []ring.Member{{ID: "self", Zones: "2025c"},
		{ID: "d", Zones: "2026a"}, {ID: "old"}, {ID: "c", Zones: "2024a"},
		{ID: "b", Zones: "2026a"}})
	if len(list) != 2 || list[0].At != "nodes c" || list[1].At != "nodes b, d" {
		t.Errorf("%v", list)
	}
	for _, w := range list {
		if w.Code != warning.ZonesDiffer || w.Reason == "" || w.Instead == "" {
			t.Errorf("%+v", w)
		}
	}
	if list := lintZones("2025c", []ring.Member{{ID: "self", Zones: "2025c"}, {ID: "old"}}); len(
		list) > 0 {
		t.Errorf("%v", list)
	}
}
