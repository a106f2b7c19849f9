package verdicts

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
)

// The doors of a node: the endpoints that answer clients' acquires.
const (
	HTTP        = "http"
	ForwardAuth = "forward-auth"
	EnvoyJSON   = "envoy-json"
	GRPC        = "grpc"
	RESP        = "resp"
)

// doors is the number of doors: the ones above, and one for all others.
const doors = 6

// doorNames lists the names of the doors.
var doorNames = [doors]string{HTTP, ForwardAuth, EnvoyJSON, GRPC, RESP, "other"}

// indexOf returns the index of a door.
func indexOf(door string) int {
	for i, name := range doorNames {
		if name == door {
			return i
		}
	}
	return doors - 1
}

// Bounds of the number of series: of limits without a rule, whose namespaces clients choose, and of
// rules, which come from the documents that were in force.
const (
	maxPlain = 512
	maxRules = 4096
)

// All stands for all namespaces in the history. It can't be the name of a namespace.
const All = "@all"

// Others stands for the namespaces beyond the bound. It can't be the name of a namespace.
const Others = "*"

// name identifies a series.
type name struct{ ns, rule string }

// series counts the verdicts of one rule, or of the limits without a rule in one namespace, by
// door. It is not spread over cache lines: BenchmarkCount shows the cost when all cores count into
// one.
type series [doors][twotier.VerdictCount]atomic.Int64

// Counters count verdicts. Create them with [New].
type Counters struct {
	// all is copied when a series is added, which happens a bounded number of times, so that
	// counting takes no lock.
	all     atomic.Pointer[map[name]*series]
	latency [doors]latency
	whole   [twotier.VerdictCount]atomic.Int64 // decisions of all namespaces and doors, each once
	// unrecorded is the number of verdicts that may be missing in the history.
	unrecorded atomic.Int64
	// Shadows receives the keys that rules in shadow would have refused, see [ShadowNoter].
	// Optional; set it before the first count.
	Shadows ShadowNoter
	// Refusals receives the refusing limits without a rule, see [RefusalNoter]. Optional, as above.
	Refusals RefusalNoter

	mu           sync.Mutex // held while a series is added
	plain, rules int        // number of series of each kind
}

// New returns empty counters.
func New() *Counters {
	c := new(Counters)
	c.all.Store(&map[name]*series{})
	return c
}

// Count implements [Counter].
func (c *Counters) Count(door string, ns []byte, ruleName string, v twotier.Verdict, n int64) {
	var s *series
	if len(ns) == 0 {
		s = (*c.all.Load())[name{twotier.DefaultNamespace, ruleName}]
	} else {
		s = (*c.all.Load())[name{string(ns), ruleName}]
	}
	if s == nil {
		s = c.add(name{cmp.Or(string(ns), twotier.DefaultNamespace), ruleName})
	}
	s[indexOf(door)][v].Add(n)
}

// NoteShadow implements [ShadowNoter].
func (c *Counters) NoteShadow(ns, key []byte) {
	if c.Shadows != nil {
		c.Shadows.NoteShadow(ns, key)
	}
}

// NoteRefused implements [RefusalNoter].
func (c *Counters) NoteRefused(ns []byte, limits []twotier.LimitResult) {
	if c.Refusals != nil {
		c.Refusals.NoteRefused(ns, limits)
	}
}

// Took implements [Counter].
func (c *Counters) Took(door string, d time.Duration, n [twotier.VerdictCount]int64) {
	all := int64(0)
	for v, some := range n {
		if some > 0 {
			c.whole[v].Add(some)
			all += some
		}
	}
	c.latency[indexOf(door)].observe(d, all)
}

// add returns the series of a name, which it adds unless another goroutine just has, or the series
// of the names beyond the bound.
func (c *Counters) add(of name) *series {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := *c.all.Load()
	if s := all[of]; s != nil {
		return s
	}
	number, most := &c.plain, maxPlain
	if of.rule != "" {
		number, most = &c.rules, maxRules
	}
	if *number == most {
		of = name{Others, ""}
		if s := all[of]; s != nil {
			return s
		}
	} else {
		*number++
	}
	s := new(series)
	all = maps.Clone(all)
	all[of] = s
	c.all.Store(&all)
	return s
}

// Row holds the counts of one series at one door.
type Row struct {
	Namespace string
	// Rule is "" for limits without a rule.
	Rule string
	Door string
	// Totals is the number of decisions by verdict.
	Totals [twotier.VerdictCount]int64
}

// Rows returns the counts so far, sorted, without empty rows.
func (c *Counters) Rows() (rows []Row) {
	for of, s := range *c.all.Load() {
		for d := range doors {
			row := Row{Namespace: of.ns, Rule: of.rule, Door: doorNames[d]}
			for v := range row.Totals {
				row.Totals[v] = s[d][v].Load()
			}
			if row.Totals != [twotier.VerdictCount]int64{} {
				rows = append(rows, row)
			}
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Door, b.Door))
	})
	return rows
}
