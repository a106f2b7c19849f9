package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

// TestEntriesOfNodesRunOut lists processes in Redis, one of which is not renewed. The list ends
// with its last entry, and a field of another form is no entry.
func TestEntriesOfNodesRunOut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	nodes, direct := open(t, redisstore.Options{URL: server.URL()}).Nodes(), server.Client(t)
	renew := func(name string, lease time.Duration) (list []string) {
		all, err := nodes.Renew(t.Context(), name, "it is "+name, lease)
		must.Succeed(t, err)
		for _, r := range all {
			list = append(list, r.Name)
			if r.Left <= 0 || r.Left > time.Minute || r.Until == 0 || r.Text != "it is "+r.Name {
				t.Errorf("%+v", r)
			}
		}
		slices.Sort(list)
		return list
	}
	renew("a", 100*time.Millisecond)
	must.Succeed(t, direct.HSet(t.Context(), "tt:nodes", "other", "form").Err())
	for !slices.Equal(renew("b", time.Minute), []string{"b"}) { // until a has run out
		time.Sleep(10 * time.Millisecond)
	}
	if list := renew("a", time.Minute); !slices.Equal(list, []string{"a", "b"}) {
		t.Errorf("listed: %v", list)
	}
	must.Succeed(t, nodes.Remove(t.Context(), "a", "never"))
	if list := renew("b", time.Minute); !slices.Equal(list, []string{"b"}) {
		t.Errorf("listed: %v", list)
	}
	ttl, err := direct.PTTL(t.Context(), "tt:nodes").Result()
	if err != nil || ttl <= 0 || ttl > time.Minute {
		t.Errorf("the list lives for %v, %v", ttl, err)
	}
}

// version returns the tests' version n.
func version(n int64) twotier.RuleVersion {
	return twotier.RuleVersion{Number: n, ID: fmt.Sprint("id", n), Who: "tests",
		Text: fmt.Appendf(nil, "rules: # %d\n", n), At: time.UnixMilli(1_700_000_000_000 + n)}
}

// TestRulesAreKept appends more versions than are kept. After a loss some are restored, in any
// order: the latest stays.
func TestRulesAreKept(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r, ctx := open(t, redisstore.Options{URL: srv.URL()}).Rules(), t.Context()
	if n, id, err := r.Newest(ctx); n != 0 || id != "" || err != nil {
		t.Errorf("newest of none: %d %q %v", n, id, err)
	}
	const last = twotier.MaxRuleVersions + 5
	for n := int64(1); n <= last; n++ {
		for _, moved := range []int64{n - 1, n + 1} {
			other := version(moved)
			other.ID = "other"
			if err := r.Append(ctx, other); moved > 0 && !errors.Is(err, twotier.ErrRulesMoved) {
				t.Fatalf("%d after %d: %v", moved, n-1, err)
			}
		}
		must.Succeed(t, r.Append(ctx, version(n)))
	}
	if n, id, err := r.Newest(ctx); n != last || id != version(last).ID || err != nil {
		t.Errorf("newest: %d %q %v", n, id, err)
	}
	all, err := r.History(ctx)
	if err != nil || len(all) != twotier.MaxRuleVersions {
		t.Fatalf("%d versions, %v", len(all), err)
	}
	for i, got := range all {
		want := version(last - int64(i))
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("history: %v, want %v", got, want)
		}
		if one, err := r.Version(ctx, want.Number); err != nil ||
			fmt.Sprint(one) != fmt.Sprint(want) {
			t.Errorf("version: %v, %v", one, err)
		}
	}
	for _, gone := range []int64{0, last - twotier.MaxRuleVersions, last + 1} {
		if _, err := r.Version(ctx, gone); !errors.Is(err, twotier.ErrNoRuleVersion) {
			t.Errorf("version %d: %v", gone, err)
		}
	}
	flushAll(t, srv)
	for _, n := range []int64{2, 7, 7, 6} {
		must.Succeed(t, r.Restore(ctx, version(n)))
	}
	if n, id, err := r.Newest(ctx); n != 7 || id != "id7" || err != nil {
		t.Errorf("newest of the restored ones: %d %q %v", n, id, err)
	}
	must.Succeed(t, r.Append(ctx, version(8)))
}
