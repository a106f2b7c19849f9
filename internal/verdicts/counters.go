package verdicts

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/httpapi/rule"
	"twotier.dev/twotier/syncer"
)

// The doors: ways to ask a node for a decision.
const (
	HTTP        = "http"
	ForwardAuth = "forward-auth"
	EnvoyJSON   = "envoy-json"
	GRPC        = "grpc"
	RESP        = "resp"
)

// doors is the number of doors: those above, and one for all others.
const doors = 6

// doorNames are their names.
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

// The most series of limits that are of no rule, and of rules. Clients choose namespaces; rules are
// those of the documents that were in force.
const (
	maxPlain = 512
	maxRules = 4096
)

// All is the namespace that stands for all of them in the history. It can't be the name of one.
const All = "@all"

// Others is the namespace that stands for those beyond the bound. It can't be the name of one.
const Others = "*"

// name says what a series counts.
type name struct{ ns, rule string }

// series counts the verdicts of one rule, or of the limits of one namespace without a rule, by
// door. It is not spread over cache lines: BenchmarkCount shows what it costs when all cores count
// into one.
type series [doors][rule.Verdicts]atomic.Int64

// Counters count verdicts. Make them with [New].
type Counters struct {
	// all is copied when a series is added, which happens a bounded number of times, so that
	// counting takes no lock.
	all     atomic.Pointer[map[name]*series]
	latency [doors]latency
	whole   [rule.Verdicts]atomic.Int64 // decisions, each once, of all namespaces and doors
	// unrecorded is how many verdicts may be missing in the history.
	unrecorded atomic.Int64
	// Shadows is told which keys rules in shadow would have refused, see [ShadowNoter]. Optional;
	// set it before anything is counted.
	Shadows ShadowNoter
	// Refusals is told which limits of no rule refused, see [RefusalNoter]. Optional, as above.
	Refusals RefusalNoter

	mu           sync.Mutex // held while a series is added
	plain, rules int        // so many series there are
}

// New returns counters that have counted nothing.
func New() *Counters {
	c := new(Counters)
	c.all.Store(&map[name]*series{})
	return c
}

// Count implements [Counter].
func (c *Counters) Count(door string, ns []byte, ruleName string, v rule.Verdict, n int64) {
	var s *series
	if len(ns) == 0 {
		s = (*c.all.Load())[name{syncer.DefaultNamespace, ruleName}]
	} else {
		s = (*c.all.Load())[name{string(ns), ruleName}]
	}
	if s == nil {
		s = c.add(name{cmp.Or(string(ns), syncer.DefaultNamespace), ruleName})
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
func (c *Counters) NoteRefused(ns []byte, limits []syncer.LimitResult) {
	if c.Refusals != nil {
		c.Refusals.NoteRefused(ns, limits)
	}
}

// Took implements [Counter].
func (c *Counters) Took(door string, d time.Duration, n [rule.Verdicts]int64) {
	all := int64(0)
	for v, some := range n {
		if some > 0 {
			c.whole[v].Add(some)
			all += some
		}
	}
	c.latency[indexOf(door)].observe(d, all)
}

// add returns a series that is new or that others have just added, or the one for what is beyond
// the bound.
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

// Row is what one series has counted at one door.
type Row struct {
	Namespace string
	// Rule is "" for limits that are of no rule.
	Rule string
	Door string
	// Totals has the number of decisions by their verdict.
	Totals [rule.Verdicts]int64
}

// Rows returns what was counted so far, sorted, for the doors that were asked.
func (c *Counters) Rows() (rows []Row) {
	for of, s := range *c.all.Load() {
		for d := range doors {
			row := Row{Namespace: of.ns, Rule: of.rule, Door: doorNames[d]}
			for v := range row.Totals {
				row.Totals[v] = s[d][v].Load()
			}
			if row.Totals != [rule.Verdicts]int64{} {
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
