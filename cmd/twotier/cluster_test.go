package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/version"
)

// view returns the cluster as a node sees it, with the status of every member.
func view(t *testing.T, s *server) (v cluster.View) {
	t.Helper()
	decode(t, fetch(t, "GET", "http://"+s.http.Addr().String()+"/v1/cluster?nodes=true", ""), &v)
	return v
}

// decode decodes JSON.
func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// TestAddressOfANodeAlone: a node that listens on any free port reports the port.
func TestAddressOfANodeAlone(t *testing.T) {
	s := startServe(t, t.Context(), "--gossip", "")
	var v cluster.View
	decode(t, fetch(t, "GET", s.url+"/v1/cluster", ""), &v)
	if len(v.Members) != 1 || "http://"+v.Members[0].Address != s.url {
		t.Errorf("served at %s, members %+v", s.url, v.Members)
	}
}

// startDemo starts the nodes of a demo, without its traffic.
func startDemo(t *testing.T) []*server {
	t.Helper()
	d := newDemoCluster("", "", io.Discard)
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	must.Succeed(t, d.open(t.Context()))
	nodes := d.nodes
	eventually(t, "every node owns what is its", patience, func() bool {
		return !slices.ContainsFunc(nodes, func(s *server) bool {
			st := s.node.Stats()
			return st.Members != demoNodes || st.Phases.Own != st.Owned || st.Held != st.Owned
		})
	})
	return nodes
}

// TestFiguresOfACluster counts through one of three nodes, lets another one leave, and checks the
// figures that every node reports about itself and the others.
func TestFiguresOfACluster(t *testing.T) {
	nodes := startDemo(t)
	const keys = 120
	for k := range keys {
		fetch(t, "POST", "http://"+nodes[0].http.Addr().String()+"/v1/add",
			fmt.Sprintf(`{"key":"k%d"}`, k))
	}
	for _, asked := range nodes {
		v := view(t, asked)
		var held, owned int
		var ops, forwarded, served int64
		for _, m := range v.Members {
			if m.State != cluster.Alive || m.Status == nil ||
				m.Status.RingVersion != v.RingVersion || m.Status.Mode != cluster.TwoTier ||
				m.Status.Version != version.String() {
				t.Fatalf("%+v", m)
			}
			held, owned = held+m.Status.Held, owned+m.Partitions
			ops, forwarded, served = ops+m.Status.Ops, forwarded+m.Status.Forwarded,
				served+m.Status.Served
		}
		if held != v.Partitions || owned != v.Partitions || ops != keys || forwarded != served ||
			forwarded < keys/4 || forwarded > keys {
			t.Errorf("%d held, %d owned, %d operations, %d forwarded, %d served", held, owned, ops,
				forwarded, served)
		}
	}
	c := nodes[2]
	leaves := c.node.Stats().Held
	if err := c.close(); err != nil {
		t.Error(err)
	}
	nodes[2] = nil // the demo does not close it again
	eventually(t, "two are left", patience, func() bool {
		a, b := nodes[0].node.Stats(), nodes[1].node.Stats()
		return a.Members == 2 && b.Members == 2 &&
			a.Phases.Own+b.Phases.Own == nodes[0].cfg.Partitions
	})
	moves := c.node.Stats().Moves
	if moves.Given+moves.Abandoned < int64(leaves) || moves.Given == 0 {
		t.Errorf("%d partitions were given up: %+v", leaves, moves)
	}
	lines := fetch(t, "GET", "http://"+nodes[0].http.Addr().String()+"/metrics", "")
	for _, line := range []string{
		"twotier_members 2", `twotier_member_states{state="alive"} 2`,
		`twotier_peer_up{peer="b"} 1`, `twotier_mode{mode="two-tier"} 1`,
		fmt.Sprintf("twotier_partitions_owned %d", nodes[0].node.Stats().Owned),
		`twotier_partition_states{state="incoming"} 0`,
		fmt.Sprintf(`twotier_handovers_total{direction="in",via="peer"} %d`,
			nodes[0].node.Stats().Moves.Taken),
	} {
		if !strings.Contains(lines, "\n"+line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
	if strings.Contains(lines, `peer="c"`) {
		t.Error("a member that is gone has a series")
	}
}

// TestSuspect checks the view of the cluster when a node stops answering without leaving.
func TestSuspect(t *testing.T) {
	nodes := startDemo(t)
	must.Succeed(t, nodes[1].http.Close(t.Context()))
	eventually(t, "b is suspect", patience, func() bool {
		for k := range 20 { // these are counted even so
			fetch(t, "POST", "http://"+nodes[0].http.Addr().String()+"/v1/add",
				fmt.Sprintf(`{"key":"k%d"}`, k))
		}
		return slices.ContainsFunc(view(t, nodes[0]).Members, func(m cluster.Member) bool {
			return m.ID == "b" && m.State == cluster.Suspect && m.Status == nil
		})
	})
	st := nodes[0].node.Stats()
	if !slices.Contains(st.Links, cluster.Link{ID: "b"}) ||
		!slices.Contains(st.Links, cluster.Link{ID: "c", Up: true}) || st.Peers.FailedTotal == 0 {
		t.Errorf("%+v %+v", st.Links, st.Peers)
	}
	if !slices.Contains(st.States, cluster.StateCount{State: cluster.Suspect, Members: 1}) {
		t.Errorf("%+v", st.States)
	}
}

// TestFieldOfSeveralOwners checks that an error names a field by its place in the client's request,
// not in the part of the request that was forwarded to the owner.
func TestFieldOfSeveralOwners(t *testing.T) {
	nodes := startDemo(t)
	for wrong := range 12 {
		fieldOfSeveral(t, nodes[0].node, 12, wrong)
		// With two keys, either two owners have one each or one owner has both.
		fieldOfSeveral(t, nodes[0].node, wrong+2, wrong)
	}
}

// fieldOfSeveral acquires several keys, one of them with an invalid limit.
func fieldOfSeveral(t *testing.T, n *node.Node, checks, wrong int) {
	op := twotier.Op{Kind: twotier.Acquire}
	for i := range checks {
		limit := twotier.Limit{Window: 60_000, Max: 5}
		if i == wrong {
			limit.Window = 26 * 3600_000
		}
		op.Checks = append(op.Checks, twotier.Check{Key: fmt.Appendf(nil, "k%d.%d", checks, i),
			N:      1,
			Limits: []twotier.Limit{limit}})
	}
	var res twotier.Result
	err := n.Do(t.Context(), &op, &res)
	invalid, ok := errors.AsType[*twotier.InvalidError](err)
	if !ok || invalid.Check != wrong {
		t.Errorf("check %d of %d is wrong: %v", wrong, checks, err)
	}
}

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
	if code, out, errs := exec(t, nil, "cluster", "--server",
		nodes[0].url); code != exitOK || strings.Count(out, "alive") != 3 {
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
