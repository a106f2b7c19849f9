package simtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// notAbove fails if a node among n sends more than twice as much of any kind as one in the smallest
// cluster.
func (t traffic) notAbove(test *testing.T, what string, n int, least traffic) {
	for kind, a := range t {
		if b := least[kind]; a.messages > 2*b.messages+few.messages ||
			a.bytes > 2*b.bytes+few.bytes {
			test.Errorf("%s, %s: %.2f and %.0f bytes of each of %d nodes, %.2f and %.0f in the "+
				"smallest cluster", what, kind, a.messages, a.bytes, n, b.messages, b.bytes)
		}
	}
}

// few is an additional allowance, because small amounts vary by chance.
var few = amount{messages: 1, bytes: 500}

// scaleReport formats the measurements as tables.
func scaleReport(all []scaled) string {
	var b strings.Builder
	head := func(title string) {
		fmt.Fprintf(&b, "\n| %s |", title)
		for _, s := range all {
			fmt.Fprintf(&b, " %d nodes |", s.nodes)
		}
		fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---:|", len(all)))
	}
	row := func(name string, value func(s *scaled) string) {
		fmt.Fprintf(&b, "| %s |", name)
		for i := range all {
			fmt.Fprintf(&b, " %s |", value(&all[i]))
		}
		b.WriteString("\n")
	}
	part := func(title string, of func(s *scaled) traffic) {
		head(title)
		for _, kind := range kindsOf(all, of) {
			row(kind, func(s *scaled) string { return of(s)[kind].String() })
		}
	}
	part("quiet: each node, each second", func(s *scaled) traffic { return s.quiet })
	part("one node is replaced: each node", func(s *scaled) traffic { return s.replaced })
	part("all are replaced: each node", func(s *scaled) traffic { return s.deploy })
	head("all are replaced: the cluster")
	row("time", func(s *scaled) string { return s.deployed.took.Round(time.Second).String() })
	row("operations", func(s *scaled) string { return fmt.Sprint(s.deployed.operations) })
	row("refused", func(s *scaled) string { return fmt.Sprint(s.deployed.refused) })
	row("of unknown outcome", func(s *scaled) string { return fmt.Sprint(s.deployed.unknown) })
	row("longest operation", func(s *scaled) string {
		return s.deployed.longest.Round(time.Millisecond).String()
	})
	row("partitions handed over", func(s *scaled) string { return fmt.Sprint(s.deployed.moved) })
	row("partitions from the store", func(s *scaled) string {
		return fmt.Sprint(s.deployed.fromStore)
	})
	row("tables of each node", func(s *scaled) string { return fmt.Sprint(s.deployed.tables) })
	return b.String()
}

// kindsOf returns the kinds of traffic that occurred, in order.
func kindsOf(all []scaled, of func(s *scaled) traffic) (kinds []string) {
	for i := range all {
		for kind := range of(&all[i]) {
			if !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	slices.Sort(kinds)
	return kinds
}
