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
	"sync"
	"time"
)

func main() {
	race := flag.Bool("race", false,
		"run under the race detector, and what skips itself there without it")
	plain := flag.String("plain", "",
		"further `arguments` and packages, to run at the same time without the race detector")
	dir := flag.String("dir", ".", "`directory` of the module to test")
	allow := flag.String("allow", "", "`file` with the skips that are allowed")
	stall := flag.Duration("stall", 0,
		"make everything stand still for up to so long again and again, as on a busy machine")
	flag.Parse()
	allowed, err := readAllowed(*allow)
	if err == nil {
		err = run(goTest{*dir, *stall}, *race, allowed, flag.Args(), strings.Fields(*plain))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// run runs the tests and prints the report; the tests of plain run at the same time as the others,
// always without the race detector. It returns an error if a test failed, or was skipped and is not
// on the list.
func run(test goTest, race bool, allowed []*regexp.Regexp, args, plain []string) error {
	report, first := newReport(os.Stdout), args
	if race {
		first = append([]string{"-race"}, args...)
	}
	var wg sync.WaitGroup
	var plainErr error
	if len(plain) > 0 {
		wg.Go(func() { plainErr = test.run(plain, report) })
	}
	err := test.run(first, report)
	wg.Wait()
	err = errors.Join(err, plainErr)
	skips := report.skips
	if ofRace := ofRaceDetector(skips); race && len(ofRace) > 0 {
		again := newReport(os.Stdout)
		againErr := test.run(rerun(ofRace), again)
		announce(ofRace, again.skips)
		skips = slices.DeleteFunc(skips, func(s skip) bool { return slices.Contains(ofRace, s) })
		skips, err = append(skips, again.skips...), errors.Join(err, againErr)
	}
	err = errors.Join(err, judge(skips, allowed))
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

// ofRaceDetector returns the skips caused by the race detector.
func ofRaceDetector(skips []skip) (of []skip) {
	for _, s := range skips {
		if strings.Contains(s.reason, "race detector") {
			of = append(of, s)
		}
	}
	return of
}

// rerun returns the arguments of go test that run the skipped tests. They have been vetted with all
// others.
func rerun(skips []skip) []string {
	var names, pkgs []string
	for _, s := range skips {
		name, _, _ := strings.Cut(s.test, "/")
		names, pkgs = append(names, regexp.QuoteMeta(name)), append(pkgs, s.pkg)
	}
	slices.Sort(names)
	slices.Sort(pkgs)
	pattern := "^(" + strings.Join(slices.Compact(names), "|") + ")$"
	return append([]string{"-count=1", "-vet=off", "-run", pattern}, slices.Compact(pkgs)...)
}

// announce prints which tests ran only without the race detector.
func announce(before, after []skip) {
	for _, s := range before {
		if !slices.Contains(after, s) {
			fmt.Println("run without the race detector:", s)
		}
	}
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
