package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Forward measures what it costs to ask a node that doesn't own the key, compared with asking the
// owner and with the routing client, which asks owners itself.
type Forward struct {
	Duration time.Duration `help:"Of each run." default:"4s"`
	Rounds   int           `help:"Runs of each way; the middle one counts." default:"3"`
}

// ForwardResult is the result of Forward.
type ForwardResult struct {
	Points []ForwardPoint `json:"points"`
}

// ForwardPoint is one way of adding.
type ForwardPoint struct {
	Way string `json:"way"`
	// PerCall is the number of adds per request.
	PerCall int `json:"adds_per_request"`
	// Rate is adds per second, ServiceCPU the processor time of all nodes per add in microseconds,
	// OfOwners its ratio to that of asking the owner, and Forwarded the share of adds that one node
	// sent to another.
	Rate       float64 `json:"adds_per_second"`
	ServiceCPU float64 `json:"service_cpu_us"`
	OfOwners   float64 `json:"of_owners"`
	Forwarded  float64 `json:"forwarded"`
	// P50 and P99 are those of the latency of a request, in microseconds.
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
}

// Run measures every way with one add and with a hundred adds per request.
func (o *Forward) Run(ctx context.Context, b *bench) error {
	m, err := measureMicro(ctx, "^BenchmarkForward$", o.Duration.String(), "-count",
		strconv.Itoa(o.Rounds))
	if err != nil {
		return err
	}
	var r ForwardResult
	for _, perCall := range []int{1, 100} {
		var owner float64
		for _, way := range []string{"owner", "forwarded", "client"} {
			runs := m[fmt.Sprintf("Forward/%s/adds=%d", way, perCall)]
			if len(runs) == 0 {
				return fmt.Errorf("%s, %d a request: not measured", way, perCall)
			}
			p := forwardPoint(runs)
			if p.Way, p.PerCall = way, perCall; way == "owner" {
				owner = p.ServiceCPU
			}
			p.OfOwners = ratio(p.ServiceCPU, owner)
			r.Points = append(r.Points, p)
		}
	}
	return save(b, "forward", o, r)
}

// forwardPoint returns the run with the median processor time.
func forwardPoint(runs []map[string]float64) ForwardPoint {
	const cpu = "service-us/add"
	slices.SortFunc(runs, func(x, y map[string]float64) int { return cmp.Compare(x[cpu], y[cpu]) })
	of := runs[len(runs)/2]
	return ForwardPoint{
		Rate: of["adds/s"], ServiceCPU: of[cpu], Forwarded: of["forwarded/add"],
		P50: of["p50-us"], P99: of["p99-us"],
	}
}
