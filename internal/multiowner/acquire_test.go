package multiowner_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/rpc"
)

// TestAllOrNothing acquires at three nodes, with or without the coordinator among them, until one
// has no room left.
func TestAllOrNothing(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, c *cluster) {
		c.nodes[1].limit = 5
		for _, step := range []struct {
			at      []string
			allowed bool
			state   string
		}{
			{[]string{"c", "b", "a"}, true, "[3 3 3] 0"},
			{[]string{"a", "b"}, false, "[3 3 3] 0"},
			{[]string{"a", "c"}, true, "[6 3 6] 0"},
			{[]string{"c", "b"}, false, "[6 3 6] 0"},
		} {
			res, err := c.acquire(t, 3, step.at...)
			synctest.Wait()
			if err != nil || res.Allowed != step.allowed || c.state() != step.state {
				t.Errorf("at %v: allowed %v, %v, state %s, want %+v", step.at, res.Allowed, err,
					c.state(), step)
			}
			if len(res.Checks) != len(step.at) || (res.RetryAfter == 70) == step.allowed {
				t.Errorf("at %v: %+v", step.at, res)
			}
		}
		for _, n := range c.nodes {
			if n.idled.Load() || !n.Idle() {
				t.Errorf("%s is idle while it counts: %v, and afterwards: %v", n.self.Name,
					n.idled.Load(), n.Idle())
			}
		}
	})
}

// TestDryRun asks nodes, one of which has room for two: the answer matches the acquire that
// follows, each node is asked once, and nothing is counted or stays reserved.
func TestDryRun(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, c *cluster) {
		c.nodes[1].limit = 2
		for _, step := range []struct {
			at          []string
			n           int64
			countDenied bool
			allowed     bool
		}{
			{[]string{"a", "b", "c"}, 2, false, true},
			{[]string{"c", "b"}, 1, false, false},
			{[]string{"b", "a"}, 1, true, false},
			{[]string{"c", "a"}, 1, false, true},
		} {
			op := twotier.Op{CountDenied: step.countDenied, DryRun: true}
			before, asked := c.state(), c.asked()
			dry, err := c.acquireAs(t, op, step.n, step.at...)
			synctest.Wait()
			others := int64(len(step.at))
			if slices.Contains(step.at, "a") { // the coordinator
				others--
			}
			if err != nil || dry.Allowed != step.allowed || c.state() != before ||
				c.asked()-asked != others {
				t.Errorf("%+v: allowed %t, %v, %d messages, state %s after %s", step, dry.Allowed,
					err, c.asked()-asked, c.state(), before)
			}
			op.DryRun = false
			res, err := c.acquireAs(t, op, step.n, step.at...)
			synctest.Wait()
			if err != nil || res.Allowed != dry.Allowed || res.RetryAfter != dry.RetryAfter ||
				!reflect.DeepEqual(res.Checks, dry.Checks) {
				t.Errorf("%+v: %+v, and of the dry run %+v, %v", step, res, dry, err)
			}
		}
	})
}

// TestNothingIsCountedDuringABan counts no refusals either, as the counts in the answer show. Only
// a charge is left for the caller to count, and its answer shows the count with it.
func TestNothingIsCountedDuringABan(t *testing.T) {
	for charge, want := range map[bool]int64{false: 0, true: 3} {
		withNodes(t, 2, func(t *testing.T, c *cluster) {
			b := c.node("b")
			b.bans = true
			op := twotier.Op{Kind: twotier.Acquire, CountDenied: true, Charge: charge,
				Checks: []twotier.Check{{Key: []byte("a"), N: 3}, {Key: []byte("b"), N: 3},
					{Kind: twotier.BanCheck, Key: []byte("ban of b")}}}
			res := new(twotier.Result)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c.acquirer.Acquire(ctx, []multiowner.Request{{Op: &op, Res: res,
				Parts: []multiowner.Part{{Checks: []int{0}}, {To: &b.self, Checks: []int{1, 2}}}}})
			synctest.Wait()
			if res.Err != nil || res.Allowed || !op.Banned(res) || op.Counts(res) != charge {
				t.Fatalf("%+v", res)
			}
			if a := res.Checks[0]; a.TS != 0 || a.Limits[0].Count != want ||
				c.state() != "[0 0] 0" {
				t.Errorf("charge %v: a has %+v, state %s", charge, a, c.state())
			}
		})
	}
}

// TestErrorsOfParts covers acquires that one node could not decide about: nothing is counted
// anywhere, and the error is the right one.
func TestErrorsOfParts(t *testing.T) {
	invalid := &twotier.InvalidError{Check: 0, Limit: -1, Field: "key"}
	for name, test := range map[string]struct {
		err  error
		want func(err error) bool
	}{
		"moved": {&rpc.MovedError{}, func(err error) bool {
			return errors.Is(err, twotier.ErrNotOwner)
		}},
		"full": {twotier.ErrFull, func(err error) bool { return errors.Is(err, twotier.ErrFull) }},
		"unreachable": {rpc.ErrUnreachable, func(err error) bool {
			u, ok := errors.AsType[*multiowner.UnreachableError](err)
			return ok && len(u.Parts) == 1 && u.Parts[0].To.Name == "b" &&
				errors.Is(err, rpc.ErrUnreachable)
		}},
		"invalid": {invalid, func(err error) bool {
			i, ok := errors.AsType[*twotier.InvalidError](err)
			return ok && i.Check == 1 && invalid.Check == 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withNodes(t, 2, func(t *testing.T, c *cluster) {
				c.nodes[1].fails = test.err
				_, err := c.acquire(t, 1, "a", "b")
				synctest.Wait()
				if !test.want(err) || c.state() != "[0 0] 0" {
					t.Errorf("%v, state %s", err, c.state())
				}
			})
		})
	}
}

// TestMessages counts the messages of an acquire to each of the other nodes.
func TestMessages(t *testing.T) {
	for _, test := range []struct {
		at      []string
		limitOf string // has no room
		want    string
	}{
		{[]string{"a", "b"}, "", "1 0"},
		{[]string{"a", "b"}, "a", "1 0"},
		{[]string{"b", "a"}, "b", "1 0"},
		{[]string{"b", "c"}, "", "2 1"},
		{[]string{"b", "c"}, "b", "1 1"},
		{[]string{"b", "c"}, "c", "2 1"},
		{[]string{"a", "b", "c"}, "", "2 1"},
	} {
		withNodes(t, 3, func(t *testing.T, c *cluster) {
			if test.limitOf != "" {
				c.node(test.limitOf).limit = 0
			}
			if _, err := c.acquire(t, 1, test.at...); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute) // and nothing follows
			got := fmt.Sprint(c.nodes[1].asked.Load(), c.nodes[2].asked.Load())
			if got != test.want {
				t.Errorf("at %v, no room at %q: b and c got %s tasks, want %s", test.at,
					test.limitOf, got, test.want)
			}
		})
	}
}

// TestAcknowledgedByAll: an acquire that waits for the store waits for all owners. Reservations
// don't wait.
func TestAcknowledgedByAll(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, c *cluster) {
		if _, err := c.acquireAck(t, twotier.AckStore, 1, "a", "b", "c"); err != nil {
			t.Error(err)
		}
		for _, n := range c.nodes {
			if len(n.acks) != 1 || n.acks[0] != twotier.AckStore {
				t.Errorf("%s was asked to wait for %v", n.self.Name, n.acks)
			}
		}
		c.nodes[0].slow = true
		if _, err := c.acquireAck(t, twotier.AckStore, 1, "a", "b", "c"); !errors.Is(err,
			twotier.ErrUnknownOutcome) || c.state() != "[2 2 2] 0" {
			t.Errorf("one is not acknowledged: %v, state %s", err, c.state())
		}
	})
}
