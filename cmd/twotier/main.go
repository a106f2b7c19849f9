package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go watchSignals(signals, cancel, func(s os.Signal) {
		reportLeaving(s, jsonErrorLog(os.Args[1:], os.Environ(), os.Stderr), os.Stderr)
		os.Exit(exitFailed)
	})
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// watchSignals calls cancel on the first signal and leave on the second.
func watchSignals(signals <-chan os.Signal, cancel func(), leave func(os.Signal)) {
	<-signals
	cancel()
	leave(<-signals)
}

// reportLeaving reports why the program ends at once: in log, or on stderr if log is nil.
func reportLeaving(s os.Signal, log *slog.Logger, stderr io.Writer) {
	if log != nil {
		log.Error("leaving at once, without waiting for anything", "signal", s.String())
		return
	}
	fmt.Fprintf(stderr, "twotier: %v again: leaving at once, without waiting for anything\n", s)
}
