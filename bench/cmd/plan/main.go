package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"twotier/bench/findings"
	"twotier/bench/report"
)

func main() {
	l := Load{Name: "as asked for"}
	m := Machine{Memory: 32 << 30, RedisMemory: 24 << 30}
	flag.Float64Var(&l.Rate, "rate", 0, "decisions per second; 0 works out the two examples")
	flag.BoolVar(&l.Batched, "batched", true, "decisions come many in a call")
	flag.Float64Var(&l.Keys, "keys", 100e6, "keys that live within a day")
	flag.Float64Var(&l.PerDecision, "keys-per-decision", 2, "keys of a decision")
	flag.Float64Var(&l.Rules, "rules", 4, "rules of a decision")
	flag.StringVar(&l.Distribution, "distribution", "zipf", "hot, uniform, zipf or distinct")
	flush := flag.Duration("flush", 200*time.Millisecond, "flush interval")
	flag.Float64Var(&l.New, "new", -1, "share of touches that meet a key for the first time; negative: every live key once a day")
	flag.Float64Var(&m.Cores, "cores", 8, "of a node")
	flag.Float64Var(&m.Use, "use", 0.5, "share of the processors that may be used")
	flag.Float64Var(&m.Memory, "memory", m.Memory, "`bytes` of a node")
	flag.Float64Var(&m.RedisMemory, "redis-memory", m.RedisMemory, "`bytes` of a Redis")
	out := flag.String("out", "results", "`directory` of the results, which the plan is made from and the examples are written to")
	flag.Parse()
	l.Flush = flush.Seconds()
	if err := run(*out, l, m); err != nil {
		log.Fatal(err)
	}
}

// examples are worked out every time, evenly drawn and by Zipf: what is in between is in between.
func examples(flush float64) (loads []Load) {
	for _, e := range []Load{
		{Name: "100,000/s over 100 million keys", Rate: 100e3, Keys: 100e6, PerDecision: 2, Rules: 4},
		{Name: "10 million/s over a billion keys", Rate: 10e6, Keys: 1e9, PerDecision: 1, Rules: 2},
	} {
		for _, d := range []string{"uniform", "zipf"} {
			e.Distribution, e.Batched, e.Flush, e.New = d, true, flush, -1
			loads = append(loads, e)
		}
	}
	return loads
}

func run(dir string, asked Load, m Machine) error {
	a, err := findings.Read(dir)
	if err != nil {
		return err
	}
	c, err := constants(a)
	if err != nil {
		return err
	}
	loads := []Load{asked}
	if asked.Rate == 0 {
		loads = examples(asked.Flush)
	}
	var needs []Need
	for _, l := range loads {
		n, err := c.need(l, m)
		if err != nil {
			return err
		}
		needs = append(needs, n)
	}
	checks, err := c.checks(a)
	if err != nil {
		return err
	}
	body := markdown(c, m, needs, checks)
	fmt.Print(body)
	if asked.Rate > 0 {
		return nil
	}
	head := fmt.Sprintf("# Planning beyond one machine\n\n`go run ./cmd/plan`, from the results beside it: %s.\n\n", machine(a.Compare.Machine))
	return os.WriteFile(filepath.Join(dir, "plan.md"), []byte(head+body), 0o644)
}

func machine(m report.Machine) string {
	return fmt.Sprintf("%d cores of %s, %s, Redis %s", m.Cores, m.CPU, m.Go, m.Redis)
}

func milliseconds(ms float64) string { return fmt.Sprintf("%.0f ms", ms) }

func markdown(c Constants, m Machine, needs []Need, checks []Check) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Nodes have %.0f cores and %s, Redis servers one core and %s; %.0f %% of the processors may be used. "+
		"*Fewest* nodes keep in memory the keys that are asked for most, as many as fit, and read the others back from Redis.\n\n",
		m.Cores, size(m.Memory), size(m.RedisMemory), 100*m.Use)
	head := []string{"load", "keys drawn", "new/s", "flushed/s", "service cores", "memory of all keys", "nodes",
		"Redis cores", "Redis memory", "Redis shards", "to and from Redis", "fewest nodes", "read back/s", "Redis shards"}
	var rows [][]string
	for _, n := range needs {
		rows = append(rows, report.Cells("%s|%s|%.3g|%.3g|%.1f|%s|%d|%.2f|%s|%d|%s/s|%d|%.3g|%d", n.Name, n.Distribution,
			n.Created, n.Flushed, n.ServiceCores, size(n.ServiceBytes), n.Nodes, n.RedisCores, size(n.RedisBytes), n.Shards, size(n.Network),
			n.Fewest, n.Loaded, n.FewestShards))
	}
	b.WriteString(report.Table(head, rows))
	b.WriteString("\n## The constants\n\nMicroseconds of one core, and bytes.\n\n" + constantTable(c))
	b.WriteString("\n## Checked\n\nAgainst measured points that the constants were not taken from, in microseconds for each decision.\n\n")
	rows = nil
	for _, k := range checks {
		rows = append(rows, report.Cells("%s|%.2f|%.2f|%.2f", k.Of, k.Model, k.Measured, k.Model/k.Measured))
	}
	b.WriteString(report.Table([]string{"point", "model", "measured", "ratio"}, rows))
	return b.String()
}

func constantTable(c Constants) string {
	var rows [][]string
	for _, r := range []struct {
		name, from string
		v          float64
	}{
		{"decision on a warm key, batched, two rules", "compare: hot, batched", c.Base},
		{"a call of its own", "compare: hot, one by one less batched", c.Single},
		{"another rule", "growth: rules", c.Rule},
		{"a forwarded decision, both nodes", "growth: nodes, zipf", c.Forward},
		{"owners that agree on two keys, all nodes", "growth: nodes, messages", c.Agree},
		{"flushing a key, service", "interval: steady, less a decision and its rounds", c.Flush},
		{"flushing a key, Redis", "interval: steady, less its rounds", c.RedisFlush},
		{"the round of a partition, service", "interval: shortest against longest", c.Round},
		{"the round of a partition, Redis", "interval: shortest against longest", c.RedisRound},
		{"a new key beside that, service", "compare: distinct, less the above", c.New},
		{"a new key beside that, Redis", "compare: distinct, less the above", c.RedisNew},
		{"reading a key back, service", "growth: cold keys", c.Load},
		{"reading a key back, Redis", "growth: cold keys", c.RedisLoad},
		{"bytes of a flush", "interval: steady", c.FlushBytes},
		{"bytes of reading back", "growth: cold keys", c.LoadBytes},
		{"resident over counted memory", "memory: 1 event", c.Overhead},
	} {
		rows = append(rows, []string{r.name, r.from, fmt.Sprintf("%.2f", r.v)})
	}
	for _, s := range c.Sizes {
		rows = append(rows, []string{fmt.Sprintf("bytes of a key with %.0f events, service and Redis", s.Events), "memory",
			fmt.Sprintf("%.0f and %.0f", s.Service, s.Redis)})
	}
	return report.Table([]string{"price", "taken from", "value"}, rows)
}

func size(bytes float64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if bytes < 1024 {
			return fmt.Sprintf("%.3g %s", bytes, unit)
		}
		bytes /= 1024
	}
	return fmt.Sprintf("%.3g TiB", bytes)
}
