package load

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"twotier/bench/pace"
)

//go:embed wrk.lua
var wrkScript []byte

// WrkKeys is how many different keys RunWrk adds to unless Options.Space says otherwise.
const WrkKeys = 50_000

// HaveWrk tells whether wrk can be found.
func HaveWrk() bool {
	_, err := exec.LookPath("wrk")
	return err == nil
}

// RunWrk has wrk send adds in a closed loop, with o's Addr, Conns and Duration and its own keys: a second opinion from a
// generator that is not ours. It has no warm-up, and takes whole seconds.
func RunWrk(ctx context.Context, o Options) (Result, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Result{}, fmt.Errorf("wrk: %w", err)
	}
	if o.Space == 0 {
		o.Space = WrkKeys
	}
	dir, err := os.MkdirTemp("", "bench-wrk")
	if err != nil {
		return Result{}, fmt.Errorf("wrk: %w", err)
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "wrk.lua")
	if err := os.WriteFile(script, wrkScript, 0o644); err != nil {
		return Result{}, fmt.Errorf("wrk: %w", err)
	}
	seconds := max(1, int(o.Duration.Seconds()))
	cmd := exec.CommandContext(ctx, "wrk", "-t", "2", "-c", strconv.Itoa(o.Conns), "-d", strconv.Itoa(seconds)+"s",
		"-s", script, "http://"+o.Addr, "--", strconv.Itoa(int(o.Space)))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return Result{}, fmt.Errorf("wrk: %w: %s", err, out)
	}
	return parseWrk(o, out)
}

func parseWrk(o Options, out []byte) (Result, error) {
	_, line, ok := bytes.Cut(out, []byte("\nresult "))
	if !ok {
		return Result{}, fmt.Errorf("wrk: no result in %s", out)
	}
	var w struct {
		Requests, US, Errors, P50, P90, P99, P999, Max int64
		Mean                                           float64
	}
	if err := json.Unmarshal(line, &w); err != nil {
		return Result{}, fmt.Errorf("wrk: %w in %s", err, line)
	}
	if w.Errors > 0 || w.Requests == 0 {
		return Result{}, errors.New("wrk: calls failed: " + string(line))
	}
	o.Op, o.Keys, o.Warmup = "add", "uniform", 0
	p := pace.Result{
		Seconds: float64(w.US) / 1e6, Calls: w.Requests, CallsPerSecond: float64(w.Requests) / float64(w.US) * 1e6,
		Latency: pace.Latency{Mean: w.Mean, P50: w.P50, P90: w.P90, P99: w.P99, P999: w.P999, Max: w.Max},
	}
	return newResult(o, p), nil
}
