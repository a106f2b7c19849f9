package routing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/routing"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/ring"
)

const partitions = 8

// bed is the router of node a in a cluster of a, b and c, with fakes that record their calls.
type bed struct {
	*routing.Router
	table *ring.Table

	mu    sync.Mutex
	story []string

	redis   bool
	storeUp bool
	// errs holds the answers of each destination, in order; then nil.
	errs map[string][]error
	// moved overrides the owner of a partition by the table; "a" is this node.
	moved map[int]string
	// locating is the error of Locate.
	locating error
	refused  bool            // the owners refuse all of the next acquire
	borrowed map[string]bool // keys that this node borrows
	observed int
	remember bool // a refusal of every key is remembered
	changing bool // the mode is being changed
	stale    bool // who changes the mode does not call Refresh
}

// note appends lines to the story atomically, so that no concurrent line comes in between.
func (b *bed) note(lines ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.story = append(b.story, lines...)
}

// next returns the next error of a destination.
func (b *bed) next(at string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errs := b.errs[at]; len(errs) > 0 {
		b.errs[at] = errs[1:]
		return errs[0]
	}
	return nil
}

// memory is the fake of this node's counter.
type memory struct{ b *bed }

func (m memory) Do(_ context.Context, op *twotier.Op, res *twotier.Result) error {
	at, line := m.story(op)
	m.b.note(line)
	res.Source = twotier.SourceMemory
	return m.b.next(at)
}

// recalling is the fake of this node's counter with recalls.
type recalling struct{ memory }

func (r recalling) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	r.b.note("recall")
	return r.memory.Do(ctx, op, res)
}

// story returns the destination of an operation and its line of the story.
func (m memory) story(op *twotier.Op) (at, line string) {
	at = "local"
	if op.AllowNonOwner {
		at = "fallback"
	}
	line = at
	if list := inPlace(op); len(list) > 0 {
		line += fmt.Sprint(", in place of owners ", list, ",")
	}
	if op.CountDenied {
		line += ", even if refused,"
	}
	return at, fmt.Sprintf("%s %s", line, op.Checks[0].Key)
}

// inPlace lists the checks of an operation that this node decides in place of their owners.
func inPlace(op *twotier.Op) (list []int) {
	for i := range op.Checks {
		if op.Checks[i].InPlace {
			list = append(list, i)
		}
	}
	return list
}

func (m memory) DoAll(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	var lines []string
	for i := range ops {
		at, line := m.story(&ops[i])
		lines = append(lines, line)
		res[i].Source, res[i].Err = twotier.SourceMemory, m.b.next(at)
	}
	m.b.note(lines...)
}

// scripts is the fake of Redis.
type scripts struct{ b *bed }

func (s scripts) Do(_ context.Context, op *twotier.Op, _ *twotier.Result) error {
	s.b.note(fmt.Sprintf("redis %s", op.Checks[0].Key))
	return s.b.next("redis")
}

func (s scripts) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].Err = s.Do(ctx, &ops[i], &res[i])
	}
}

// peers fakes the other nodes.
func (b *bed) peers(_ context.Context, to *ring.Member, tasks []rpc.Task, res []twotier.Result) {
	var lines []string
	for i := range tasks {
		what := to.Name
		if tasks[i].Verb == rpc.VerbCoordinate {
			what += " coordinates"
		}
		lines = append(lines, fmt.Sprintf("%s %s", what, tasks[i].Op.Checks[0].Key))
		res[i].Allowed = !b.refused
		res[i].Source = twotier.SourceMemory
		res[i].Err = b.next(what)
	}
	b.note(lines...)
}

type peersFunc func(context.Context, *ring.Member, []rpc.Task, []twotier.Result)

func (f peersFunc) Do(ctx context.Context, to *ring.Member, tasks []rpc.Task,
	res []twotier.Result) {
	f(ctx, to, tasks, res)
}

func (f peersFunc) DoAll(
	ctx context.Context, groups []rpc.Group, ops []twotier.Op, res []twotier.Result,
	meanwhile func(), over func(group int),
) {
	var all sync.WaitGroup
	for _, g := range groups {
		all.Go(func() {
			tasks, answers := make([]rpc.Task, len(g.At)), make([]twotier.Result, len(g.At))
			for j, i := range g.At {
				tasks[j] = rpc.Task{Op: ops[i]}
			}
			f(ctx, g.To, tasks, answers)
			for j, i := range g.At {
				res[i] = answers[j]
			}
		})
	}
	meanwhile()
	all.Wait()
	for i := range groups {
		over(i)
	}
}

// Locate and DecidedBy follow the table, except for partitions in moved.
func (b *bed) Locate(_ context.Context, p int) (*ring.Member, error) {
	b.note("locate")
	if b.locating != nil {
		b.redis = errors.Is(b.locating, ownership.ErrInRedis)
		b.Refresh()
		return nil, b.locating
	}
	name, ok := b.moved[p]
	if !ok {
		name = b.table.Member(b.table.Owner(p)).Name
	}
	if name == "a" {
		return nil, nil
	}
	return b.table.Member(b.table.Find(name)), nil
}

func (b *bed) DecidedBy(m *ring.Member, p int) bool {
	name, ok := b.moved[p]
	if !ok {
		name = b.table.Member(b.table.Owner(p)).Name
	}
	return name == m.Name
}

// Acquire records the parts of each acquire.
func (b *bed) Acquire(_ context.Context, list []multiowner.Request) {
	var lines []string
	for _, r := range list {
		var to []string
		for _, p := range r.Parts {
			name := "a"
			if p.To != nil {
				name = p.To.Name
			}
			to = append(to, fmt.Sprint(name, p.Checks))
		}
		slices.Sort(to)
		line := fmt.Sprintf("several %v", to)
		if list := inPlace(r.Op); len(list) > 0 {
			line += fmt.Sprint(", in place of owners ", list)
		}
		lines = append(lines, line)
		r.Res.Allowed, r.Res.Err = !b.refused, b.next("several")
	}
	b.note(lines...)
}

// view returns the cluster as the test has set it up.
func (b *bed) view() routing.View {
	v := routing.View{Table: b.table, InRedis: b.redis, Shared: map[string]bool{}}
	for key, on := range b.borrowed {
		v.Shared[string((&twotier.Check{Key: []byte(key)}).AppendName(nil))] = on
	}
	return v
}

// Do is Router.Do with the current view; DoAll, Serve and Coordinate are alike.
func (b *bed) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	b.Refresh()
	return b.Router.Do(ctx, op, res)
}

func (b *bed) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	b.Refresh()
	b.Router.DoAll(ctx, ops, res)
}

func (b *bed) Serve(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	b.Refresh()
	b.Router.Serve(ctx, ops, res)
}

func (b *bed) Coordinate(ctx context.Context, tasks []rpc.Task, res []twotier.Result) {
	b.Refresh()
	b.Router.Coordinate(ctx, tasks, res)
}

func (b *bed) Sample(ops []twotier.Op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observed += len(ops)
}

func (b *bed) Record(*twotier.Op, *twotier.Result) { b.note("noted") }
func (b *bed) Forget(check *twotier.Check)         { b.note("forgotten " + string(check.Key)) }
func (b *bed) Refuse(_ *twotier.Op, res *twotier.Result) bool {
	if b.remember {
		res.Source = twotier.SourceNear
	}
	return b.remember
}

// During simulates a mode change in the middle of the call if the error "changed" is set.
func (b *bed) During(_ context.Context, in modes.Mode, fn func() error) error {
	if b.next("changed") != nil {
		b.redis = in != modes.Redis
		if !b.stale {
			b.Refresh()
		}
	}
	if b.changing || b.redis != (in == modes.Redis) {
		return modes.ErrChanged
	}
	return fn()
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{errs: map[string][]error{}, moved: map[int]string{}, storeUp: true}
	members := []ring.Member{{ID: "a", Name: "a"}, {ID: "b", Name: "b"}, {ID: "c", Name: "c"}}
	table, err := ring.NewTable(members, "a", partitions, 0)
	must.Succeed(t, err)
	b.table = table
	b.Router = routing.New(routing.Options{
		View: b.view, Placement: twotier.Placement{Partitions: partitions},
		Self:   func() string { return "a" },
		Owners: b, Counter: memory{b}, Recalling: recalling{memory{b}}, Direct: scripts{b},
		Peers: peersFunc(b.peers), Acquirer: b, Loans: b, Refusals: b, Modes: b,
		StoreUp: func() bool { return b.storeUp },
	})
	return b
}

// key returns a key that a node owns by the table; "b" and "b1" are different keys of b.
func (b *bed) key(name string) []byte {
	skip := 0
	if len(name) > 1 {
		skip = int(name[1] - '0')
	}
	for i := 0; ; i++ {
		key := fmt.Appendf(nil, "%s-%d", name[:1], i)
		p := twotier.Placement{Partitions: partitions}.Of(nil, key)
		if b.table.Member(b.table.Owner(p)).Name == name[:1] {
			if skip--; skip < 0 {
				return key
			}
		}
	}
}

// partition returns the partition of a node's key.
func (b *bed) partition(name string) int {
	return twotier.Placement{Partitions: partitions}.Of(nil, b.key(name))
}

// op returns an operation on keys of the named nodes.
func (b *bed) op(kind twotier.Kind, keys ...string) *twotier.Op {
	op := &twotier.Op{Kind: kind}
	for _, k := range keys {
		op.Checks = append(op.Checks, twotier.Check{Key: b.key(k), N: 1})
	}
	return op
}

// told returns the recorded calls, with keys named after their owners.
func (b *bed) told() string {
	var s string
	for _, line := range b.story {
		s += line + "; "
	}
	for _, name := range []string{"a", "b", "c"} {
		for _, k := range []string{name, name + "1", name + "2"} {
			s = strings.ReplaceAll(s, " "+string(b.key(k))+";", " "+k+";")
		}
	}
	return s
}
