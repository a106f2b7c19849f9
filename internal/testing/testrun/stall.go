package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// stallEvery is how long all processes run on average between two stalls.
const stallEvery = 8 * time.Second

// stall makes a process and its descendants stand still for up to a given time, again and again
// until done is closed, like an overloaded machine. A test that fails because of it waits for a
// duration where it should wait for a condition, or has found a defect.
func stall(pid int, longest time.Duration, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(rand.N(2 * stallEvery)):
		}
		stopped, err := freeze(pid)
		if err != nil {
			fmt.Fprintln(os.Stderr, "testrun: no stall:", err)
		}
		time.Sleep(rand.N(longest))
		thaw(stopped)
	}
}

// freeze stops a process and its descendants, and returns the ones that were not stopped before.
func freeze(pid int) (stopped []int, err error) {
	for news := true; news; { // until no running process is left that could start another
		news = false
		running, err := family(pid)
		if err != nil {
			return stopped, err
		}
		for _, member := range running {
			if syscall.Kill(member, syscall.SIGSTOP) == nil {
				stopped, news = append(stopped, member), true
			}
		}
	}
	return stopped, nil
}

func thaw(stopped []int) {
	for _, pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed meanwhile
	}
}

// family returns a process and its descendants, parents first, without stopped ones.
func family(pid int) (running []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("processes can't be listed: there is no /proc (%w)", err)
	}
	children, stopped := map[int][]int{}, map[int]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The name, in parentheses, may contain anything.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || len(fields) < 2 {
			continue
		}
		parent, _ := strconv.Atoi(string(fields[1]))
		children[parent] = append(children[parent], id)
		stopped[id] = bytes.ContainsAny(fields[0], "TtZ")
	}
	for all := []int{pid}; len(all) > 0; all = all[1:] {
		if _, lives := stopped[all[0]]; lives && !stopped[all[0]] {
			running = append(running, all[0])
		}
		all = append(all, children[all[0]]...)
	}
	return running, nil
}
