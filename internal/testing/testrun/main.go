package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	dir := flag.String("dir", ".", "`directory` of the module to test")
	allow := flag.String("allow", "", "`file` with the skips that are allowed")
	stall := flag.Duration("stall", 0,
		"make everything stand still for up to so long again and again, as on a busy machine")
	flag.Parse()
	allowed, err := readAllowed(*allow)
	if err == nil {
		err = run(goTest{*dir, *stall}, allowed, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// run runs the tests and prints the report. It returns an error if a test failed, or was skipped
// and is not on the list.
func run(test goTest, allowed []*regexp.Regexp, args []string) error {
	report := newReport(os.Stdout)
	err := errors.Join(test.run(args, report), judge(report.skips, allowed))
	fmt.Print(report.slowest(10))
	for _, line := range report.results {
		fmt.Print(line)
	}
	return err
}

// goTest holds the settings for running go test.
type goTest struct {
	dir   string
	stall time.Duration // 0 to stall nothing
}

// run runs go test once and adds its output to a report.
func (g goTest) run(args []string, r *report) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir, cmd.Stderr = g.dir, os.Stderr
	if slices.Contains(args, "-race") {
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1") // the race detector needs cgo
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if g.stall > 0 {
		done := make(chan struct{})
		defer close(done)
		go stall(cmd.Process.Pid, g.stall, done)
	}
	readErr := r.read(out)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return readErr
}

// judge prints all skips and returns an error if one is not allowed.
func judge(skips []skip, allowed []*regexp.Regexp) error {
	refused := 0
	for _, s := range skips {
		if slices.ContainsFunc(allowed, func(re *regexp.Regexp) bool {
			return re.MatchString(s.String())
		}) {
			fmt.Println("skipped, as is allowed:", s)
			continue
		}
		refused++
		fmt.Println("SKIPPED, WHICH IS NOT ALLOWED:", s)
	}
	if refused > 0 {
		return fmt.Errorf("%d tests were skipped", refused)
	}
	return nil
}

// readAllowed reads the list of allowed skips. Without a file no skip is allowed.
func readAllowed(path string) ([]*regexp.Regexp, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read allowed skips: %w", err)
	}
	defer f.Close()
	var allowed []*regexp.Regexp
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		re, err := regexp.Compile(line)
		if err != nil {
			return nil, fmt.Errorf("read allowed skips: %w", err)
		}
		allowed = append(allowed, re)
	}
	return allowed, lines.Err()
}
