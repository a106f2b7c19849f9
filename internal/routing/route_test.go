package routing_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/routing"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/race"
)

// TestDo covers the decisions: the errors that each operation meets on its way, and the calls made.
func TestDo(t *testing.T) {
	down, elsewhere := rpc.ErrUnreachable, twotier.ErrNotOwner
	unknown := twotier.ErrUnknownOutcome
	for name, test := range map[string]struct {
		kind twotier.Kind
		keys string
		set  func(b *bed)
		want string
		err  error
	}{
		"local":        {twotier.Add, "a", nil, "local a; ", nil},
		"forward":      {twotier.Add, "b", nil, "b b; noted; ", nil},
		"several":      {twotier.Acquire, "a b c b1", nil, "several [a[0] b[1 3] c[2]]; ", nil},
		"others' keys": {twotier.Acquire, "b c", nil, "b coordinates b; ", nil},
		"others' keys, counted even if refused": {twotier.Acquire, "b c",
			func(b *bed) { b.refused = true }, "b coordinates b; b b; noted; c c; noted; ", nil},
		"others' keys, who does not coordinate": {twotier.Acquire, "b c",
			failing("b coordinates", elsewhere),
			"b coordinates b; locate; locate; several [b[0] c[1]]; ", nil},
		"others' keys, who can't be reached": {twotier.Acquire, "b c",
			failing("b coordinates", down),
			"b coordinates b; locate; locate; several [b[0] c[1]]; ", nil},
		"others' keys, nobody knows": {twotier.Acquire, "b c", failing("b coordinates", unknown),
			"b coordinates b; ", unknown},
		"one of several": {twotier.Acquire, "b b1", nil, "b b; noted; ", nil},
		"redis":          {twotier.Add, "b", func(b *bed) { b.redis = true }, "redis b; ", nil},

		"an owner that can't be reached": {twotier.Add, "b", failing("b", down),
			"b b; fallback b; ", nil},
		"another that can't be": {twotier.Add, "b", func(b *bed) {
			b.errs["b"], b.moved[b.partition("b")] = []error{down}, "c"
		}, "b b; locate; c b; noted; ", nil},
		"an owner that can't be reached while keys move": {twotier.Add, "b", func(b *bed) {
			b.errs["b"], b.errs["fallback"] = []error{down}, []error{elsewhere}
		}, "b b; fallback b; ", twotier.ErrUnavailable},
		"one that is slow": {twotier.Add, "b", failing("b", rpc.ErrLate),
			"b b; ", rpc.ErrLate},
		"an outcome that nobody knows": {twotier.Add, "b", failing("b", unknown), "b b; ", unknown},
		"a count may be asked twice": {twotier.Count, "b", failing("b", unknown),
			"b b; locate; b b; noted; ", nil},
		"values may be added twice": {twotier.Add, "b b1", failing("b", unknown),
			"b b; locate; locate; b b; noted; ", nil},
		"values of which nobody knows twice": {twotier.Acquire, "b", failing("b", unknown, unknown),
			"b b; locate; b b; ", unknown},
		"values of which nobody knows, then nobody is there": {twotier.Acquire, "b",
			func(b *bed) {
				b.errs["b"], b.locating = []error{unknown}, twotier.ErrUnavailable
			}, "b b; locate; ", unknown},
		"but not in memory": {twotier.Count, "a", failing("local", unknown), "local a; ", unknown},

		"one that names another": {twotier.Add, "b", func(b *bed) {
			b.errs["b"] = []error{&rpc.MovedError{To: *b.table.Member(b.table.Find("c"))}}
		}, "b b; c b; noted; ", nil},
		"one that names another that can't be reached": {twotier.Add, "b", func(b *bed) {
			b.errs["b"] = []error{&rpc.MovedError{To: *b.table.Member(b.table.Find("c"))}}
			b.errs["c"] = []error{down}
		}, "b b; c b; locate; b b; noted; ", nil},
		"one that names this one": {twotier.Add, "b", func(b *bed) {
			b.errs["b"] = []error{&rpc.MovedError{To: *b.table.Member(b.table.Find("a"))}}
			b.moved[b.partition("b")] = "a"
		}, "b b; locate; local b; ", nil},
		"not mine any more": {twotier.Add, "a", func(b *bed) {
			b.errs["local"], b.moved[b.partition("a")] = []error{elsewhere}, "c"
		}, "local a; locate; c a; noted; ", nil},
		"who decides is not known": {twotier.Add, "a", func(b *bed) {
			b.errs["local"], b.locating = []error{elsewhere}, twotier.ErrUnavailable
		}, "local a; locate; ", twotier.ErrUnavailable},
		"the mode has become Redis": {twotier.Add, "a", func(b *bed) {
			b.errs["local"], b.locating = []error{elsewhere}, ownership.ErrInRedis
		}, "local a; locate; redis a; ", nil},

		"no memory, Redis up": {twotier.Add, "a", failing("local", twotier.ErrFull),
			"local a; redis a; ", nil},
		"no memory, Redis down": {twotier.Add, "a", func(b *bed) {
			b.errs["local"], b.storeUp = []error{twotier.ErrFull}, false
		}, "local a; ", twotier.ErrFull},
		"no memory for two": {twotier.Acquire, "a a1", failing("local", twotier.ErrFull),
			"local a; ", twotier.ErrFull},

		"remembered": {twotier.Acquire, "b", func(b *bed) { b.remember = true }, "", nil},
		"borrowed":   {twotier.Acquire, "b", borrowing("b"), "local b; ", nil},
		"borrowed, but used up": {twotier.Acquire, "b", func(b *bed) {
			borrowing("b")(b)
			b.errs["local"] = []error{elsewhere}
		}, "local b; locate; b b; noted; ", nil},
		"borrowed, and the other is mine": {twotier.Acquire, "a b", borrowing("b"), "local a; ",
			nil},
		"borrowed, and the other is another's": {twotier.Acquire, "b c", borrowing("b"),
			"c b; noted; ", nil},
		"borrowed, and the others are of others": {twotier.Acquire, "a b c", borrowing("b"),
			"several [a[0] b[1] c[2]]; ", nil},
		"borrowed, but used up where the other is": {twotier.Acquire, "b c", func(b *bed) {
			borrowing("b")(b)
			b.errs["c"] = []error{elsewhere}
		}, "c b; locate; locate; several [b[0] c[1]]; ", nil},

		"the mode changes to memory": {twotier.Add, "b", func(b *bed) {
			b.redis, b.errs["changed"] = true, []error{errors.New("changed")}
		}, "b b; noted; ", nil},
		"the mode changes to Redis": {twotier.Add, "b", func(b *bed) {
			b.errs["b"], b.errs["changed"] = []error{down}, []error{errors.New("changed")}
		}, "b b; redis b; ", nil},

		"refused, and counted all the same": {twotier.Acquire, "a b",
			func(b *bed) { b.refused = true },
			"several [a[0] b[1]]; local a; b b; noted; ", nil},
		"several, one can't be reached": {twotier.Acquire, "a b", cutOff("b", 1),
			"several [a[0] b[1]]; local, in place of owners [1], a; ", nil},
		"several, one that decides no more can't be": {twotier.Acquire, "a b", func(b *bed) {
			b.errs["several"] = []error{b.unreachable("b", 1)}
			b.moved[b.partition("b")] = "a"
		}, "several [a[0] b[1]]; locate; locate; local a; ", nil},
		"several, none can be reached": {twotier.Acquire, "b c", func(b *bed) {
			b.errs["b coordinates"] = []error{down}
			b.errs["several"] = []error{b.unreachable("b", 0), b.unreachable("c", 1)}
			b.errs["c coordinates"] = []error{down}
		}, "b coordinates b; locate; locate; several [b[0] c[1]]; c coordinates b; " +
			"several [a[0] c[1]], in place of owners [0]; fallback b; ", nil},
		"several, another reaches all": {twotier.Acquire, "a b c", cutOff("b", 1),
			"several [a[0] b[1] c[2]]; c coordinates a; ", nil},
		"several, nobody reaches one": {twotier.Acquire, "a b c", func(b *bed) {
			b.errs["several"] = []error{b.unreachable("b", 1)}
			b.errs["c coordinates"] = []error{elsewhere}
		}, "several [a[0] b[1] c[2]]; c coordinates a; " +
			"several [a[0 1] c[2]], in place of owners [1]; ", nil},
		"several, another reaches all, but nobody knows": {twotier.Acquire, "a b c", func(b *bed) {
			b.errs["several"] = []error{b.unreachable("b", 1)}
			b.errs["c coordinates"] = []error{unknown}
		}, "several [a[0] b[1] c[2]]; c coordinates a; ", unknown},
		"several, nobody reaches one, and keys move": {twotier.Acquire, "a b c", func(b *bed) {
			b.moved[b.partition("b")] = "a"
			b.errs["several"] = []error{b.unreachable("c", 2), elsewhere}
			b.errs["b coordinates"] = []error{elsewhere}
		}, "several [a[0] b[1] c[2]]; b coordinates a; " +
			"several [a[0 2] b[1]], in place of owners [2]; locate; locate; locate; " +
			"several [a[0 1] c[2]]; ", nil},
		"several, nobody reaches one, refused and counted": {twotier.Acquire, "a b c",
			func(b *bed) {
				b.refused = true
				b.errs["several"] = []error{b.unreachable("b", 1)}
				b.errs["c coordinates"] = []error{elsewhere}
				b.errs["b"] = []error{down}
			}, "several [a[0] b[1] c[2]]; c coordinates a; " +
				"several [a[0 1] c[2]], in place of owners [1]; " +
				"local a; b b; fallback b; c c; noted; ", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				op := b.op(test.kind, strings.Fields(test.keys)...)
				op.CountDenied = strings.Contains(name, "counted")
				for i := range op.Checks {
					if strings.HasPrefix(name, "values") {
						op.Checks[i].Kind = twotier.ValuesCheck
					}
				}
				if test.set != nil {
					test.set(b)
				}
				res := new(twotier.Result)
				if err := b.Do(t.Context(), op, res); !errors.Is(err, test.err) ||
					err != nil && test.err == nil {
					t.Errorf("error %v, want %v", err, test.err)
				}
				if got := b.told(); got != test.want {
					t.Errorf("was told %q, want %q", got, test.want)
				}
			})
		})
	}
}

// unreachable returns the error of an acquire over several owners when the named owner, of the
// given check, can't be reached.
func (b *bed) unreachable(name string, check int) error {
	return &multiowner.UnreachableError{Parts: []multiowner.Part{
		{To: b.table.Member(b.table.Find(name)), Checks: []int{check}}}}
}

// failing makes the next calls of a destination fail.
func failing(at string, errs ...error) func(b *bed) {
	return func(b *bed) { b.errs[at] = errs }
}

// cutOff makes an acquire over several owners fail because it does not reach one of them.
func cutOff(name string, check int) func(b *bed) {
	return func(b *bed) { b.errs["several"] = []error{b.unreachable(name, check)} }
}

// borrowing makes this node borrow a key.
func borrowing(key string) func(b *bed) {
	return func(b *bed) { b.borrowed = map[string]bool{string(b.key(key)): true} }
}

// TestWhatIsBorrowedOnlyIfOwnersNeedNotKnow sends operations to the owner of a borrowed key if the
// owner has to learn of them.
func TestWhatIsBorrowedOnlyIfOwnersNeedNotKnow(t *testing.T) {
	for name, change := range map[string]func(op *twotier.Op){
		"in the past":              func(op *twotier.Op) { op.TS = 1 },
		"refused ones are counted": func(op *twotier.Op) { op.CountDenied = true },
		"a charge":                 func(op *twotier.Op) { op.Charge = true },
		"taking back": func(op *twotier.Op) {
			op.Kind, op.Checks[0].N, op.Checks[0].Limits = twotier.Add, -1, nil
		},
		"counts, then compares": func(op *twotier.Op) {
			op.Kind, op.Checks[0].Limits = twotier.Add, []twotier.Limit{{Window: 1, Max: 1}}
		},
	} {
		b := newBed(t)
		borrowing("b")(b)
		op := b.op(twotier.Acquire, "b")
		change(op)
		if err := b.Do(t.Context(), op, new(twotier.Result)); err != nil ||
			!strings.Contains(b.told(), "b b; ") {
			t.Errorf("%s: %v, was told %q", name, err, b.told())
		}
	}
}

// TestDoGivesUp ends the search after three seconds in which no node claims the key, and at once if
// the request has timed out.
func TestDoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		for range 10_000 {
			b.errs["b"] = append(b.errs["b"], twotier.ErrNotOwner)
		}
		if err := b.Do(t.Context(), b.op(twotier.Add, "b"), new(twotier.Result)); !errors.Is(err,
			twotier.ErrUnavailable) || errors.Is(err, twotier.ErrNotOwner) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
		if n := strings.Count(b.told(), "b b;"); n < 100 || n > 200 {
			t.Errorf("asked %d times in 3 s, want about one each 20 ms", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b.story = nil
		if err := b.Do(ctx, b.op(twotier.Add, "a"), new(twotier.Result)); !errors.Is(err,
			twotier.ErrUnavailable) || b.told() != "" {
			t.Errorf("error %v after %q, want nothing done", err, b.told())
		}
	})
}

// TestSourceSaysWhoAnswered covers this node's memory, the owner's, and remembered refusals.
func TestSourceSaysWhoAnswered(t *testing.T) {
	b := newBed(t)
	for key, want := range map[string]twotier.Source{"a": twotier.SourceMemory,
		"b": twotier.SourceOwner} {
		res := new(twotier.Result)
		if err := b.Do(t.Context(), b.op(twotier.Add, key), res); err != nil || res.Source != want {
			t.Errorf("%s: source %q, %v, want %q", key, res.Source, err, want)
		}
	}
}

// TestCoordinate runs acquires sent by other nodes because this node owns one of the keys.
func TestCoordinate(t *testing.T) {
	elsewhere := twotier.ErrNotOwner
	for name, test := range map[string]struct {
		keys string
		set  func(b *bed)
		want string
		err  error
	}{
		"mine and another's": {"a b", nil, "several [a[0] b[1]]; ", nil},
		"mine alone":         {"a a1", nil, "local a; ", nil},
		"others'":            {"b c", nil, "", elsewhere},
		"another's":          {"b", nil, "", elsewhere},
		"in Redis":           {"a b", func(b *bed) { b.redis = true }, "", elsewhere},
		"another's, who can't be reached": {"a b", cutOff("b", 1),
			"several [a[0] b[1]]; ", elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			if test.set != nil {
				test.set(b)
			}
			tasks := []rpc.Task{{Verb: rpc.VerbCoordinate,
				Op: *b.op(twotier.Acquire, strings.Fields(test.keys)...)}}
			tasks[0].Op.CountDenied = true // the sender counts refusals
			res := make([]twotier.Result, 1)
			b.Coordinate(t.Context(), tasks, res)
			if err := res[0].Err; !errors.Is(err, test.err) || err != nil && test.err == nil ||
				errors.Is(err, rpc.ErrUnreachable) || b.told() != test.want {
				t.Errorf("%v, was told %q, want %v, %q", err, b.told(), test.err, test.want)
			}
		})
	}
}

// TestServe runs forwarded operations and never forwards them again.
func TestServe(t *testing.T) {
	elsewhere := twotier.ErrNotOwner
	for name, test := range map[string]struct {
		keys string
		set  func(b *bed)
		want string
		err  func(err error) bool
	}{
		"mine": {"a", nil, "local a; ", nil},
		"another's": {"b", failing("local", elsewhere),
			"local b; locate; ", func(err error) bool {
				moved, ok := errors.AsType[*rpc.MovedError](err)
				return ok && moved.To.Name == "b"
			}},
		"several nodes'": {"a b", failing("local", elsewhere),
			"local a; locate; locate; ", func(err error) bool { return errors.Is(err, elsewhere) }},
		"on its way here": {"a", failing("local", elsewhere), "local a; locate; local a; ", nil},
		"in Redis":        {"b", func(b *bed) { b.redis = true }, "redis b; ", nil},
		"in Redis until just now": {"b", func(b *bed) {
			b.redis, b.errs["changed"] = true, []error{errors.New("changed")}
		}, "locate; ", func(err error) bool { return errors.As(err, new(*rpc.MovedError)) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			if test.set != nil {
				test.set(b)
			}
			ops := []twotier.Op{*b.op(twotier.Acquire, strings.Fields(test.keys)...)}
			res := make([]twotier.Result, 1)
			b.Serve(t.Context(), ops, res)
			if err := res[0].Err; (err != nil) != (test.err != nil) ||
				err != nil && !test.err(err) {
				t.Errorf("error %v", err)
			}
			if got := b.told(); got != test.want {
				t.Errorf("was told %q, want %q", got, test.want)
			}
		})
	}
}

// TestTakingBackRecalls takes back counts at the owner, which recalls the counts that other nodes
// have made of a lent key. Other operations, and operations in place of an owner, recall nothing.
func TestTakingBackRecalls(t *testing.T) {
	for name, test := range map[string]struct {
		n    int64
		down bool
		want string
	}{
		"add":                {1, false, "local a; "},
		"take back":          {-1, false, "recall; local a; "},
		"add in place":       {1, true, "b b; fallback b; "},
		"take back in place": {-1, true, "forgotten b; b b; fallback b; "},
	} {
		t.Run(name, func(t *testing.T) {
			b, key := newBed(t), "a"
			if test.down {
				key, b.errs["b"] = "b", []error{rpc.ErrUnreachable}
			}
			op := b.op(twotier.Add, key)
			op.Checks[0].N = test.n
			must.Succeed(t, b.Do(t.Context(), op, new(twotier.Result)))
			if got := b.told(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

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

// silent is a counter that does nothing.
type silent struct{}

func (silent) Do(context.Context, *twotier.Op, *twotier.Result) error { return nil }
func (silent) DoAll(context.Context, []twotier.Op, []twotier.Result)  {}

// TestLocalOperationsAllocateNothing runs one operation on a key of this node, from a client and
// from another node.
func TestLocalOperationsAllocateNothing(t *testing.T) {
	b := newBed(t)
	r := routing.New(routing.Options{View: b.view, Counter: silent{},
		Placement: twotier.Placement{Partitions: partitions}})
	ops, res := []twotier.Op{*b.op(twotier.Add, "a")}, make([]twotier.Result, 1)
	for name, run := range map[string]func(){
		"Do":    func() { _ = r.Do(t.Context(), &ops[0], &res[0]) },
		"Serve": func() { r.Serve(t.Context(), ops, res) },
	} {
		if n := testing.AllocsPerRun(100, run); n != 0 && !race.Enabled {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
