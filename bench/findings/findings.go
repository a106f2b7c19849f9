package findings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"twotier/bench/drive"
	"twotier/bench/measure"
	"twotier/bench/pace"
	"twotier/bench/report"
)

// File is one file of results.
type File[T any] struct {
	Command string         `json:"command"`
	Machine report.Machine `json:"machine"`
	Result  T              `json:"result"`
}

// All are the results that were found; what was not found is nil.
type All struct {
	Compare  *File[Compare]
	Interval *File[Interval]
	Growth   *File[Growth]
	HTTP     *File[HTTP]
	Memory   *File[Memory]
	Messages *File[Messages]
	Loss     *File[Loss]
}

// Read reads a directory of results.
func Read(dir string) (a All, err error) {
	return a, errors.Join(read(dir, "compare", &a.Compare), read(dir, "interval", &a.Interval), read(dir, "growth", &a.Growth),
		read(dir, "http", &a.HTTP), read(dir, "memory", &a.Memory), read(dir, "messages", &a.Messages), read(dir, "loss", &a.Loss))
}

func read[T any](dir, name string, to **File[T]) error {
	raw, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	var f File[T]
	if err := json.Unmarshal(raw, &f); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	*to = &f
	return nil
}

// Compare is what cmd/compare writes.
type Compare struct {
	Batch int          `json:"batch"`
	Rate  float64      `json:"rate"`
	Rows  []CompareRow `json:"rows"`
}

// CompareRow is one rival with one workload.
type CompareRow struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	Workload string `json:"workload"`
	// Skipped says why it could not run.
	Skipped string `json:"skipped,omitempty"`
	// Single asks for one decision in each call, Batched for many, both as fast as they can; Open for single ones at a fixed
	// rate. Batched is nil where there is no such thing.
	Single  *Loop `json:"single,omitempty"`
	Batched *Loop `json:"batched,omitempty"`
	Open    *Loop `json:"open,omitempty"`
	// Memory is what all loops together have left behind.
	Memory measure.Memory `json:"memory"`
}

// Loop is one run and what it used, until Redis had everything.
type Loop struct {
	drive.Result
	Usage measure.Usage `json:"usage"`
	// Drained is how long it took after the last decision until Redis had everything, in seconds.
	Drained float64 `json:"drained_seconds"`
}

// Lasting is decisions per second with the time counted in that Redis needed to have all of them: what can be kept up.
func (l *Loop) Lasting() float64 {
	if l.Seconds+l.Drained == 0 {
		return 0
	}
	return float64(l.Decisions) / (l.Seconds + l.Drained)
}

// Per is a figure for each decision.
func (l *Loop) Per(v float64) float64 { return v / float64(max(l.Decisions, 1)) }

// Row finds a rival with a workload; nil if it was not measured.
func (c *Compare) Row(workload, name string) *CompareRow {
	for i, r := range c.Rows {
		if r.Workload == workload && r.Name == name && r.Skipped == "" {
			return &c.Rows[i]
		}
	}
	return nil
}

// Interval is what cmd/interval writes.
type Interval struct {
	Points []IntervalPoint `json:"points"`
	Steady struct {
		Load struct {
			pace.Result
			Operations int64   `json:"operations"`
			PerSecond  float64 `json:"operations_per_second"`
		} `json:"load"`
		Usage  measure.Usage  `json:"usage"`
		Memory measure.Memory `json:"memory"`
	} `json:"steady"`
}

// IntervalPoint is one flush interval.
type IntervalPoint struct {
	MS    float64       `json:"interval_ms"`
	Load  drive.Result  `json:"load"`
	Usage measure.Usage `json:"usage"`
	Redis struct {
		Median float64 `json:"median"`
	} `json:"redis_staleness_ms"`
	Other struct {
		Median float64 `json:"median"`
	} `json:"other_staleness_ms"`
	Overshoot float64 `json:"overshoot"`
}

// Growth is what cmd/growth writes.
type Growth struct {
	Cold *struct {
		Load      float64 `json:"load_us"`
		RedisLoad float64 `json:"redis_load_us"`
		Bytes     float64 `json:"bytes"`
	} `json:"cold"`
	Keys []struct {
		Keys     float64 `json:"keys"`
		Add      float64 `json:"add_ns"`
		Acquire  float64 `json:"acquire_ns"`
		Resident float64 `json:"resident_bytes_per_key"`
		Counted  float64 `json:"counted_bytes_per_key"`
		Server   float64 `json:"server_adds_per_second"`
	} `json:"keys"`
	Rules []GrowthPoint `json:"rules"`
	Nodes []GrowthPoint `json:"nodes"`
}

// GrowthPoint is a closed loop at one point of a scale.
type GrowthPoint struct {
	Name      string        `json:"name"`
	Workload  string        `json:"workload"`
	Rules     float64       `json:"rules"`
	Nodes     float64       `json:"nodes"`
	Single    float64       `json:"single_per_second"`
	Batched   float64       `json:"batched_per_second"`
	Usage     measure.Usage `json:"usage"`
	Decisions int64         `json:"decisions"`
}

// HTTP is what cmd/http writes.
type HTTP struct {
	Comparisons []struct {
		Generator string `json:"generator"`
		Store     string `json:"store"`
		Space     uint64 `json:"space"`
		Pairs     []struct {
			Rate float64 `json:"rate_ratio"`
		} `json:"pairs"`
	} `json:"comparisons"`
	Batches []struct {
		Store  string `json:"store"`
		Space  uint64 `json:"space"`
		Rounds []struct {
			PerSecond float64 `json:"operations_per_second"`
		} `json:"rounds"`
	} `json:"batches"`
}

// Memory is what cmd/memory writes.
type Memory struct {
	Rows []struct {
		Way      string  `json:"way"`
		Shape    string  `json:"shape"`
		Redis    float64 `json:"redis_bytes_per_key"`
		Counted  float64 `json:"twotier_bytes_per_key"`
		Resident float64 `json:"twotier_rss_per_key"`
	} `json:"rows"`
	Pauses struct {
		Keys        int     `json:"keys"`
		BytesPerKey float64 `json:"resident_bytes_per_key"`
	} `json:"pauses"`
}

// Messages is what cmd/messages writes.
type Messages struct {
	BoundMS  float64 `json:"p99_bound_ms"`
	Target   float64 `json:"target_per_second"`
	Searches []struct {
		Name     string        `json:"name"`
		Title    string        `json:"title"`
		Batch    int           `json:"batch"`
		Highest  float64       `json:"highest_per_second"`
		Held     drive.Result  `json:"held"`
		AtTarget drive.Result  `json:"at_target"`
		Usage    measure.Usage `json:"held_usage"`
	} `json:"searches"`
}

// Loss is what cmd/loss writes.
type Loss struct {
	Kills []struct {
		Setting string  `json:"setting"`
		LostMS  float64 `json:"lost_ms"`
		BoundMS float64 `json:"bound_ms"`
	} `json:"kills"`
}

// Median is the middle of figures, or of the two in the middle; 0 of none.
func Median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	of = slices.Sorted(slices.Values(of))
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}
