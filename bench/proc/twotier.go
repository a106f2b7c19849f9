package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// BuildTwotier builds twotier from the directory above the working directory. The program's directory is the caller's to
// remove.
func BuildTwotier(ctx context.Context) (bin string, err error) {
	return Build(ctx, "..", "./cmd/twotier")
}

// StartTwotier builds twotier from the directory above the working directory and serves on a free port with further flags
// of `twotier serve`.
func StartTwotier(ctx context.Context, flags ...string) (*Server, error) {
	bin, err := BuildTwotier(ctx)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(bin))
	return Serve(ctx, bin, flags...)
}

// Serve serves on a free port with further flags of `twotier serve`.
func Serve(ctx context.Context, bin string, flags ...string) (*Server, error) {
	return StartServer(ctx, bin, append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
}

// ConfigFile writes a configuration for twotier's --config and returns its path and what removes it.
func ConfigFile(lines string) (path string, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "bench-config")
	if err != nil {
		return "", nil, fmt.Errorf("config file: %w", err)
	}
	path = filepath.Join(dir, "twotier.conf")
	if err := os.WriteFile(path, []byte(lines), 0o644); err != nil {
		return "", nil, errors.Join(fmt.Errorf("config file: %w", err), os.RemoveAll(dir))
	}
	return path, func() error { return os.RemoveAll(dir) }, nil
}

// Metric reads the value of a metric without labels from /metrics.
func (s *Server) Metric(ctx context.Context, name string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Base+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("metric %s: %w", name, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("metric %s: %w", name, err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("metric %s: %w", name, err)
	}
	for line := range bytes.Lines(page) {
		if value, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			return strconv.ParseFloat(string(bytes.TrimSpace(value)), 64)
		}
	}
	return 0, fmt.Errorf("metric %s: not on the page", name)
}

// Await waits until a metric is as it should be, for a minute at most.
func (s *Server) Await(ctx context.Context, name string, ok func(float64) bool) error {
	var last float64
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		v, err := s.Metric(ctx, name)
		if err != nil || ok(v) {
			return err
		}
		last = v
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("metric %s: still %g after a minute", name, last)
}
