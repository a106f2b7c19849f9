package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

// version returns the tests' version n.
func version(n int64) twotier.RuleVersion {
	return twotier.RuleVersion{Number: n, ID: fmt.Sprint("id", n), Who: "tests",
		Text: fmt.Appendf(nil, "rules: # %d\n", n), At: time.UnixMilli(1_700_000_000_000 + n)}
}

// TestRulesAreKept appends more versions than are kept.
func TestRulesAreKept(t *testing.T) {
	t.Parallel()
	r := open(t, redisstore.Options{URL: redistest.Start(t).URL()}).Rules()
	ctx := t.Context()
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
}

// TestRulesAreRestored loses versions, and restores some of them in any order: the latest stays.
func TestRulesAreRestored(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := open(t, redisstore.Options{URL: srv.URL()}).Rules()
	ctx := t.Context()
	for n := int64(1); n <= 3; n++ {
		must.Succeed(t, r.Append(ctx, version(n)))
	}
	flushAll(t, srv)
	for _, n := range []int64{2, 7, 7, 6} {
		must.Succeed(t, r.Restore(ctx, version(n)))
	}
	if n, id, err := r.Newest(ctx); n != 7 || id != "id7" || err != nil {
		t.Errorf("newest: %d %q %v", n, id, err)
	}
	if err := r.Append(ctx, version(8)); err != nil {
		t.Error(err)
	}
}
