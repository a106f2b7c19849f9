package routing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"twotier.dev/twotier"
)

// TestModeChangesWithoutARefresh runs operations in the new mode though the router's view is of the
// mode before.
func TestModeChangesWithoutARefresh(t *testing.T) {
	b := newBed(t)
	b.redis, b.stale, b.errs["changed"] = true, true, []error{errors.New("changed")}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err := b.Do(ctx, b.op(twotier.Add, "b"), new(twotier.Result))
	if got := b.told(); err != nil || got != "b b; noted; " {
		t.Errorf("%v after %q", err, got)
	}
	b.redis, b.story, b.errs["changed"] = true, nil, []error{errors.New("changed")}
	res := make([]twotier.Result, 1)
	b.DoAll(ctx, []twotier.Op{*b.op(twotier.Add, "b")}, res)
	if got := b.told(); res[0].Err != nil || got != "b b; noted; " {
		t.Errorf("a batch: %v after %q", res[0].Err, got)
	}
}
