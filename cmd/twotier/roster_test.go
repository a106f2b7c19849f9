package main

import (
	"context"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/doctor"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/warning"
)

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
