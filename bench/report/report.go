package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Machine says in general terms where a figure comes from.
type Machine struct {
	CPU    string    `json:"cpu"`
	Cores  int       `json:"cores"`
	System string    `json:"system"`
	Go     string    `json:"go"`
	Redis  string    `json:"redis"`
	Time   time.Time `json:"time"`
	// Load is the load average of the minute before the report was written: anything well above what the benchmark
	// itself runs means that the machine was not quiet.
	Load string `json:"load_average"`
}

// ThisMachine describes the machine that it runs on.
func ThisMachine(ctx context.Context) Machine {
	return Machine{
		CPU:    after("/proc/cpuinfo", "model name"),
		Cores:  runtime.NumCPU(),
		System: runtime.GOOS + "/" + runtime.GOARCH,
		Go:     runtime.Version(),
		Redis:  redisVersion(ctx),
		Time:   time.Now().UTC().Truncate(time.Second),
		Load:   load(),
	}
}

// after returns what follows the colon on the first line of a file that starts with label, or "unknown".
func after(path, label string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, label) {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func redisVersion(ctx context.Context) string {
	out, _ := exec.CommandContext(ctx, "redis-server", "--version").Output()
	for word := range strings.FieldsSeq(string(out)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			return v
		}
	}
	return "unknown"
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// Report is one result to be written.
type Report struct {
	// Name is the name of the files without their extensions, Title the heading.
	Name, Title string
	// Command makes the same files again.
	Command string
	// Data is the result as JSON.
	Data any
	// Body is the result as Markdown.
	Body string
}

// Write writes name.json and name.md into dir.
func (r Report) Write(ctx context.Context, dir string) error {
	m := ThisMachine(ctx)
	raw, err := json.MarshalIndent(struct {
		Command string  `json:"command"`
		Machine Machine `json:"machine"`
		Result  any     `json:"result"`
	}{r.Command, m, r.Data}, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", r.Name, err)
	}
	var md bytes.Buffer
	fmt.Fprintf(&md, "# %s\n\n", r.Title)
	fmt.Fprintf(&md, "`%s`, %s, on %d cores of %s (%s), %s, Redis %s; load average %s.\n\n%s",
		r.Command, m.Time.Format("2 January 2006 15:04 MST"), m.Cores, m.CPU, m.System, m.Go, m.Redis, m.Load, r.Body)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write %s: %w", r.Name, err)
	}
	path := filepath.Join(dir, r.Name)
	return errors.Join(os.WriteFile(path+".json", append(raw, '\n'), 0o644), os.WriteFile(path+".md", md.Bytes(), 0o644))
}

// Table renders rows below a head. The first column is aligned to the left, all others to the right.
func Table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	line(head)
	b.WriteString("|---|" + strings.Repeat("---:|", len(head)-1) + "\n")
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

// Cells formats a row, whose cells are separated by "|" in the format.
func Cells(format string, a ...any) []string { return strings.Split(fmt.Sprintf(format, a...), "|") }
